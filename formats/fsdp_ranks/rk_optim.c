/*
 * rk_optim.c -- the optimizer's files: groups, steps, and the states of each parameter.
 *
 * accelerate's files have the parameters' names; those of others have numbers (rk_numbers.c).
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/fsdp_ranks/rk.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/step/ck_step_ds.h"
#include "libckpt/step/ck_step_fact.h"
#include "libckpt/tensor/ck_dtype.h"

#define COMPARE_DEPTH 20u
#define COMPARED ((size_t)64 << 10)

static const struct ck_val *root_of(const struct rk_file *file)
{
	return file && file->ok && file->pt ? file->pt->doc.root : NULL;
}

/* ---- groups and their parameters ---- */

/* The key of a number or a name in by_id. */
static const char *key_of(struct rk *r, const struct ck_val *v, struct rk_id *id)
{
	const char *name = ck_val_str(v);
	int64_t n;

	id->name = NULL;
	if (name) {
		id->name = ck_rk_name_clean(r, name, strlen(name));
		return id->name;
	}
	if (!ck_val_int(v, &n))
		return "";
	id->number = n;
	return ck_arena_printf(&r->arena, "%" PRId64, n);
}

static int add_id(struct rk *r, const struct ck_val *v, const struct ck_val *called, uint32_t group,
		  struct ckpt_err *err)
{
	struct rk_id id = { .group = group, .tensor = CK_NONE, .called = ck_val_str(called) };
	const char *key = key_of(r, v, &id);
	int rc;

	id.of_rank = ck_arena_zalloc(&r->arena, r->world * sizeof(struct ck_val *));
	if (id.called)
		id.called = ck_rk_name_clean(r, id.called, strlen(id.called));
	if (!key || !id.of_rank || (!id.called && ck_val_str(called)))
		return ck_fail_nomem(err, "a parameter", 0);
	if (!*key)
		return 0;
	if (r->nids && !r->id[0].name != !id.name)
		return ck_fail(
			err, CKPT_E_CORRUPT, r->where, CKPT_NO_OFFSET,
			"the optimizer has names for some parameters and numbers for others");
	rc = ck_map_add(&r->by_id, key, strlen(key), r->nids, NULL, err);
	if (rc)
		return rc < 0 ? rc : 0;
	rc = ck_grow(&r->id, &r->id_cap, r->nids + 1, sizeof(*r->id), err);
	if (!rc)
		r->id[r->nids++] = id;
	return rc;
}

static int read_groups(struct rk *r, const struct rk_file *file, struct ckpt_err *err)
{
	struct ck_val *const *group, *const *param;
	uint64_t n, m;
	int rc = 0;

	if (!ck_val_seq(ck_val_get(root_of(file), "param_groups"), &group, &n) ||
	    n > UINT32_MAX / 2)
		return ck_fail(err, CKPT_E_CORRUPT, file->path, CKPT_NO_OFFSET,
			       "it has no 'param_groups', so it is no optimizer file of a rank");
	r->group = ck_arena_zalloc(&r->arena, (n + 1) * sizeof(*r->group));
	if (!r->group)
		return ck_fail_nomem(err, "param groups", n);
	r->ngroups = (uint32_t)n;
	for (uint32_t g = 0; !rc && g < n; g++) {
		r->group[g].hyper = group[g];
		if (!ck_val_seq(ck_val_get(group[g], "params"), &param, &m))
			continue;
		for (uint64_t i = 0; !rc && i < m; i++)
			rc = add_id(r, param[i], ck_val_at(ck_val_get(group[g], "param_names"), i),
				    g, err);
	}
	return rc;
}

static void compare_groups(struct rk *r, const struct rk_file *file, const struct rk_file *first)
{
	if (file == first ||
	    ck_val_equal(ck_val_get(root_of(file), "param_groups"),
			 ck_val_get(root_of(first), "param_groups"), COMPARE_DEPTH))
		return;
	ck_findings_add(r->f, CK_FINDING_RANKS_DISAGREE, file->path,
			"'param_groups' differs from the value in %s (files of two saves in one "
			"folder?)", first->name);
}

/* The states of this rank, by parameter. */
static int read_states(struct rk *r, const struct rk_file *file, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n, at;

	if (!ck_val_pairs(ck_val_get(root_of(file), "state"), &item, &n))
		return ck_fail(err, CKPT_E_CORRUPT, file->path, CKPT_NO_OFFSET,
			       "it has no 'state', so it is no optimizer file of a rank");
	for (uint64_t i = 0; i < n; i++) {
		struct rk_id id;
		const char *key = key_of(r, item[2 * i], &id);

		if (!key)
			return ck_fail_nomem(err, "a parameter", 0);
		if (!ck_map_find(&r->by_id, key, strlen(key), &at)) {
			r->nlost++;
			ck_findings_add(r->f, CK_FINDING_NOT_IN_CHECKPOINT, file->path,
					"left out: it has a state of parameter %.80s, which no "
					"param group lists", key);
			continue;
		}
		r->id[at].of_rank[file->id.rank] = item[2 * i + 1];
		r->id[at].has_state = true;
	}
	return 0;
}

/* ---- steps ---- */

static bool step_of(const struct rk_file *file, const struct ck_val *states, double *out)
{
	const struct ck_val *v = ck_val_get(states, "step");
	const struct ck_tensor_ref *t = ck_val_tensor(v);
	uint8_t *p = NULL;
	bool yes;

	if (!t)
		return v && ck_val_num(v, out);
	if (t->numel != 1 || ck_pt_tensor_bytes(file->pt, t, 16, &p, NULL) || !p)
		return false;
	yes = ck_dtype_number((enum ckpt_dtype)t->dtype, p, out);
	ck_free(p);
	return yes;
}

/* A parameter has one count of steps, on whichever ranks it has pieces. */
static int check_steps(struct rk *r, struct ckpt_err *err)
{
	bool *said = ck_zalloc(r->world);
	double first_last = 0, v, last;
	uint32_t first_rank = r->world;

	if (!said)
		return ck_fail_nomem(err, "ranks", r->world);
	for (uint32_t k = 0; k < r->world; k++) {
		bool any = false;

		last = 0;
		for (uint64_t i = 0; i < r->nids; i++) {
			struct rk_group *g = &r->group[r->id[i].group];

			if (!r->id[i].of_rank[k] || !step_of(r->optim[k], r->id[i].of_rank[k], &v))
				continue;
			last = !any || v > last ? v : last;
			any = true;
			if (!g->has_step || v > g->step)
				g->step = v;
			if (!g->has_step || v < g->least)
				g->least = v;
			g->has_step = true;
		}
		if (any && first_rank == r->world) {
			first_rank = k;
			first_last = last;
		} else if (any && last != first_last && !said[k]) {
			said[k] = true;
			ck_findings_add(r->f, CK_FINDING_STEP_MIXED, r->optim[k]->path,
					"the optimizer is at step %.17g here and at %.17g in %s "
					"(files of two saves in one folder?)", last, first_last,
					r->optim[first_rank]->name);
		}
	}
	ck_free(said);
	return 0;
}

/* ---- states of a known parameter ---- */

bool ck_rk_optim_is_state(const struct ck_val *key, const struct ck_val *v)
{
	const char *name = ck_val_str(key);

	return name && *name && strcmp(name, "step") != 0 && v && v->kind == CK_VAL_OBJECT;
}

static int state_get(struct rk *r, struct rk_tensor *t, const char *name, struct rk_state **out,
		     struct ckpt_err *err)
{
	struct rk_state **at = &t->state;

	while (*at && strcmp((*at)->name, name) != 0)
		at = &(*at)->next;
	if (!*at) {
		*at = ck_arena_zalloc(&r->arena, sizeof(**at));
		if (!*at)
			return ck_fail_nomem(err, "a state", sizeof(**at));
		(*at)->name = name;
	}
	*out = *at;
	return 0;
}

int ck_rk_optim_state(struct rk *r, struct rk_tensor *t, const char *name, struct rk_state **out,
		   struct ckpt_err *err)
{
	return state_get(r, t, name, out, err);
}

static int add_rank(struct rk *r, struct rk_tensor *t, uint32_t rank, const struct ck_val *states,
		    struct ckpt_err *err)
{
	struct ck_val *const *item;
	struct rk_state *s;
	uint64_t n = 0;
	int rc = 0;

	ck_val_pairs(states, &item, &n);
	for (uint64_t i = 0; !rc && i < n; i++) {
		struct rk_value v;

		if (!ck_rk_optim_is_state(item[2 * i], item[2 * i + 1]))
			continue;
		rc = ck_rk_value_read(r, r->optim[rank], item[2 * i + 1], &v, err);
		if (rc || !v.is_tensor || (!v.ndim && t->weight.ndim))
			continue;
		rc = state_get(r, t, ck_val_str(item[2 * i]), &s, err);
		if (!rc)
			rc = ck_rk_state_add(r, s, t->name, r->optim[rank], &v, err);
	}
	return rc;
}

static int add_states(struct rk *r, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < r->nids; i++) {
		const struct rk_id *id = &r->id[i];

		if (id->tensor == CK_NONE)
			continue;
		for (uint32_t k = 0; !rc && k < r->world; k++)
			if (id->of_rank[k])
				rc = add_rank(r, &r->tensor[id->tensor], k, id->of_rank[k], err);
	}
	return rc;
}

/* ---- by name ---- */

static void find_names(struct rk *r)
{
	uint64_t at;

	for (uint64_t i = 0; i < r->nids; i++) {
		struct rk_id *id = &r->id[i];

		if (ck_map_find(&r->by_name, id->name, strlen(id->name), &at))
			id->tensor = r->tensor[at].alias_of != CK_NONE ? r->tensor[at].alias_of :
									(uint32_t)at;
		else if (id->has_state) {
			r->nlost++;
			ck_findings_add(r->f, CK_FINDING_NOT_IN_CHECKPOINT, id->name,
					"its optimizer state is left out: the model file has no "
					"tensor of that name");
		}
	}
}

/*
 * torch gathers a FULL_STATE_DICT without offload_to_cpu into one buffer that it uses again for
 * each state: all states of a parameter then have the bytes of the last.
 */
static bool is_run(const struct ck_tensor_ref *t)
{
	uint64_t want = 1;

	for (uint32_t k = t->ndim; k > 0; k--) {
		if (t->shape[k - 1] != 1 && t->stride[k - 1] != want)
			return false;
		want *= t->shape[k - 1];
	}
	return t->numel && !t->conj && !t->neg && ckpt_dtype_bits((enum ckpt_dtype)t->dtype) >= 8;
}

/* The first bytes of both, which are not all zero. */
static int same_bytes(const struct rk_file *file, const struct ck_tensor_ref *a,
		      const struct ck_tensor_ref *b, bool *yes, struct ckpt_err *err)
{
	const uint64_t es = ckpt_dtype_bits((enum ckpt_dtype)a->dtype) / 8, stride = 1;
	const uint64_t shape = ck_min_u64(a->numel, COMPARED / es);
	struct ck_tensor_ref x = *a, y = *b;
	uint8_t *p = NULL, *q = NULL;
	int rc;

	*yes = false;
	x.ndim = y.ndim = 1;
	x.shape = y.shape = &shape;
	x.stride = y.stride = &stride;
	x.numel = y.numel = shape;
	rc = ck_pt_tensor_bytes(file->pt, &x, COMPARED, &p, err);
	if (!rc)
		rc = ck_pt_tensor_bytes(file->pt, &y, COMPARED, &q, err);
	if (!rc && p && q && !memcmp(p, q, shape * es))
		for (uint64_t i = 0; i < shape * es && !*yes; i++)
			*yes = p[i] != 0;
	ck_free(p);
	ck_free(q);
	return rc;
}

static int check_reused(struct rk *r, struct ckpt_err *err)
{
	const struct rk_file *file = r->optim[0];
	int rc = 0;

	for (uint64_t i = 0; !rc && r->naming == RK_WHOLE && i < r->nids; i++) {
		struct rk_id *id = &r->id[i];
		const struct ck_tensor_ref *a =
			ck_val_tensor(ck_val_get(id->of_rank[0], "exp_avg"));
		const struct ck_tensor_ref *b = ck_val_tensor(ck_val_get(id->of_rank[0],
									"exp_avg_sq"));
		bool yes;

		if (!a || !b || a->dtype != b->dtype || a->numel != b->numel || !is_run(a) ||
		    !is_run(b))
			continue;
		rc = same_bytes(file, a, b, &yes, err);
		if (rc || !yes)
			continue;
		id->tensor = CK_NONE;
		r->nlost++;
		ck_findings_add(r->f, CK_FINDING_NOT_IN_CHECKPOINT, id->name,
				"its exp_avg and exp_avg_sq in %s are the same bytes, so they are "
				"left out (torch saves them so without offload_to_cpu)",
				file->name);
	}
	return rc;
}

/* ---- */

static void set_groups(struct rk *r)
{
	for (uint64_t i = 0; i < r->nids; i++)
		if (r->id[i].tensor != CK_NONE) {
			r->tensor[r->id[i].tensor].group = (int32_t)r->id[i].group;
			r->tensor[r->id[i].tensor].entry = i;
		}
}

int ck_rk_optim_facts(struct rk *r, struct ckpt_err *err)
{
	static const char *const counts[] = { "global_steps", "skipped_steps", "global_samples" };
	struct ck_val *const *item;
	char key[128];
	uint64_t n;
	int rc = 0;

	for (size_t i = 0; !rc && i < CK_ARRAY_LEN(counts); i++)
		if (ck_val_get(r->deepspeed, counts[i]))
			rc = ck_step_add_fact(r->ix, counts[i],
					      ck_val_get(r->deepspeed, counts[i]), err);
	for (uint32_t g = 0; !rc && g < r->ngroups; g++) {
		n = 0;
		ck_val_pairs(r->group[g].hyper, &item, &n);
		for (uint64_t i = 0; !rc && i < n; i++) {
			const char *name = ck_val_str(item[2 * i]);

			if (!name || !strcmp(name, "params") || !strcmp(name, "param_names") ||
			    !strcmp(name, "step") || !ck_step_ds_has_key(r->deepspeed, g, name))
				continue;
			snprintf(key, sizeof(key), "group.%u.%s", g, name);
			rc = ck_step_add_fact(r->ix, key, item[2 * i + 1], err);
		}
		if (!rc && r->group[g].has_step) {
			snprintf(key, sizeof(key), "group.%u.step", g);
			rc = ck_step_add_number(r->ix, key, r->group[g].step, err);
		}
	}
	return rc;
}

static int read_all(struct rk *r, struct ckpt_err *err)
{
	const struct rk_file *first = NULL;
	int rc = 0;

	for (uint32_t k = 0; !rc && k < r->world; k++) {
		if (!root_of(r->optim[k]))
			continue;
		if (!first) {
			first = r->optim[k];
			rc = read_groups(r, first, err);
		}
		compare_groups(r, r->optim[k], first);
		if (!rc)
			rc = read_states(r, r->optim[k], err);
	}
	if (rc || !r->nids || r->incomplete)
		return rc;
	rc = check_steps(r, err);
	if (rc)
		return rc;
	if (!r->id[0].name)
		return ck_rk_numbers_find(r, err);
	find_names(r);
	return check_reused(r, err);
}

int ck_rk_optim_read(struct rk *r, struct ckpt_err *err)
{
	int rc = read_all(r, err);

	if (!rc) {
		set_groups(r);
		rc = add_states(r, err);
	}
	if (rc != -CKPT_E_CORRUPT)
		return rc;
	ck_findings_add(r->f, CK_FINDING_FILE_DAMAGED, err->where, "%s", err->msg);
	ck_err_clear(err);
	return 0;
}
