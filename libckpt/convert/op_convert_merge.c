/*
 * op_convert_merge.c -- `convert --merge-lora`: which tensors of the base an adapter changes, and
 * how.  The arithmetic is that of ck_lora.h.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"
#include "libckpt/naming/ck_peft_name.h"
#include "libckpt/convert/op_convert.h"
#include "libckpt/run/ck_master_check.h"
#include "libckpt/run/ck_stated.h"
#include "libckpt/tensor/ck_dtype.h"

/* A module of the adapter: its matrices, or what takes the place of a tensor. */
struct pair {
	const char *module;	/* without wrappers; of 'instead' the whole name */
	uint32_t a, b, instead;	/* tensors of the adapter, CK_NONE */
	bool embedding;
};

struct merging {
	struct ck_cv *cv;
	const struct ck_index *ix;	/* of the adapter */
	struct pair *pair;
	uint64_t n, cap;
	struct ck_map by_module;
	struct ck_map base;		/* plain name -> number of the item */
	struct ck_lora_part *part;
	uint64_t nparts, part_cap;
	uint64_t straight, flipped;	/* modules whose shapes leave no choice */
};

/* ---------------------------------------------------------------- of the base */

int ck_cv_merge_pick(struct ck_cv *cv, struct ckpt_err *err)
{
	struct ck_selection *sel = &cv->sel;
	uint64_t kept = 0;
	bool wrapped = false;
	int rc = 0;

	if (cv->opts->states)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "an adapter is merged into weights, not into states of an "
			       "optimizer");
	for (uint64_t i = 0; i < sel->npicks; i++)
		wrapped |= ck_peft_is_wrapped(sel->pick[i].stored);
	for (uint64_t i = 0; !rc && wrapped && i < sel->npicks; i++) {
		struct ck_pick pick = sel->pick[i];
		struct ck_peft_name p;

		ck_peft_name_parse(pick.stored, &p);
		if (p.part != CK_PEFT_NONE && p.part != CK_PEFT_ORIGINAL)
			continue;
		if (!strcmp(pick.name, pick.stored))
			pick.name = ck_peft_plain(&cv->arena, pick.stored, strlen(pick.stored));
		if (!pick.name)
			rc = ck_fail_nomem(err, "a name", strlen(pick.stored));
		sel->pick[kept++] = pick;
	}
	if (wrapped)
		sel->npicks = kept;
	return rc;
}

static int list_base(struct merging *m, struct ckpt_err *err)
{
	struct ck_cv *cv = m->cv;
	int rc = 0;

	for (uint64_t i = 0; rc >= 0 && i < cv->set[0].nitems; i++) {
		const char *name = cv->ck->ix.tensor[cv->set[0].item[i].tensor].name;
		const char *plain = ck_peft_plain(&cv->arena, name, strlen(name));

		rc = plain ? ck_map_add(&m->base, plain, strlen(plain), i, NULL, err) :
			     ck_fail_nomem(err, "a name", strlen(name));
	}
	return rc < 0 ? rc : 0;
}

/* The item of the base; models of one kind are saved with "model." in front and without. */
static const struct ck_item *find_base(struct merging *m, const char *name)
{
	const char *more = ck_arena_printf(&m->cv->arena, "model.%s", name);
	uint64_t i;

	if (ck_map_find(&m->base, name, strlen(name), &i) ||
	    (more && ck_map_find(&m->base, more, strlen(more), &i)) ||
	    (!strncmp(name, "model.", 6) && ck_map_find(&m->base, name + 6, strlen(name + 6), &i)))
		return &m->cv->set[0].item[i];
	return NULL;
}

/* ------------------------------------------------------------- of the adapter */

static int pair_of(struct merging *m, const char *module, struct pair **out, struct ckpt_err *err)
{
	uint64_t at = m->n;
	int rc = ck_map_add(&m->by_module, module, strlen(module), m->n, &at, err);

	if (rc < 0)
		return rc;
	if (!rc) {
		rc = ck_grow(&m->pair, &m->cap, m->n + 1, sizeof(*m->pair), err);
		if (rc)
			return rc;
		m->pair[m->n++] = (struct pair){ module, CK_NONE, CK_NONE, CK_NONE, false };
	}
	*out = &m->pair[at];
	return 0;
}

/* Whether a tensor of the model itself takes the place of the base's. */
static bool is_instead(const struct merging *m, const struct ck_tensor *t)
{
	/* PEFT's file has nothing else; of a step only trained biases count */
	return !*m->cv->adapter || (t->role == CKPT_ROLE_TRAINABLE &&
				    ck_ends_with(t->name, ".bias"));
}

static int take_tensor(struct merging *m, uint32_t number, struct ckpt_err *err)
{
	const struct ck_tensor *t = &m->ix->tensor[number];
	struct ck_arena *arena = &m->cv->arena;
	struct ck_peft_name p;
	struct pair *pair;
	const char *plain;
	int rc;

	ck_peft_name_parse(t->name, &p);
	if (p.part == CK_PEFT_ORIGINAL || t->role == CKPT_ROLE_ALIAS ||
	    (p.part == CK_PEFT_NONE && !is_instead(m, t)) ||
	    (p.part != CK_PEFT_NONE && (strlen(m->cv->adapter) != p.adapter_len ||
					memcmp(m->cv->adapter, p.adapter, p.adapter_len))))
		return 0;
	if (p.part == CK_PEFT_MAGNITUDE || p.part == CK_PEFT_B_BIAS)
		return ck_fail(err, CKPT_E_UNSUPPORTED, t->name, CKPT_NO_OFFSET,
			       "zckpt does not merge %s; PEFT's merge_and_unload() does",
			       p.part == CK_PEFT_MAGNITUDE ? "DoRA (lora_magnitude_vector)" :
			       "a bias of B (lora_bias)");
	plain = ck_peft_plain(arena, t->name, p.module_len);
	if (plain && p.part == CK_PEFT_SAVED)
		plain = ck_arena_printf(arena, "%s.%s", plain, p.rest);
	if (!plain)
		return ck_fail_nomem(err, "a name", strlen(t->name));
	rc = pair_of(m, plain, &pair, err);
	if (rc)
		return rc;
	if (!ck_peft_is_lora(p.part))
		pair->instead = number;
	else if (p.part == CK_PEFT_A || p.part == CK_PEFT_EMBED_A)
		pair->a = number;
	else
		pair->b = number;
	pair->embedding |= p.part == CK_PEFT_EMBED_A;
	return 0;
}

/* The state to read: the master, else the weight. */
static int state_of(const struct merging *m, uint32_t tensor, uint32_t *out, struct ckpt_err *err)
{
	const uint32_t master = ck_index_state_find(m->ix, tensor, "master");

	*out = master != CK_NONE ? master : ck_index_state_find(m->ix, tensor, "weight");
	if (*out == CK_NONE)
		return ck_fail(err, CKPT_E_INCOMPLETE, m->ix->tensor[tensor].name, CKPT_NO_OFFSET,
			       "the files hold no values of this tensor of the adapter");
	if (!ck_dtype_is_castable(m->ix->state[*out].dtype))
		return ck_fail(err, CKPT_E_UNSUPPORTED, m->ix->tensor[tensor].name, CKPT_NO_OFFSET,
			       "elements of type %s cannot be merged",
			       ckpt_dtype_name(m->ix->state[*out].dtype));
	return 0;
}

/* ------------------------------------------------------------------- shapes */

static const char *shape_text(const struct ck_tensor *t, char text[64])
{
	size_t at = (size_t)snprintf(text, 64, "[");

	for (uint32_t i = 0; i < t->ndim && at < 40; i++)
		at += (size_t)snprintf(text + at, 64 - at, "%s%" PRIu64, i ? ", " : "",
				       t->shape[i]);
	snprintf(text + at, 64 - at, "]");
	return text;
}

static int fail_shapes(const struct merging *m, const struct pair *p, const struct ck_tensor *w,
		       struct ckpt_err *err)
{
	const struct ck_tensor *a = &m->ix->tensor[p->a], *b = &m->ix->tensor[p->b];
	char ta[64], tb[64], tw[64];

	return ck_fail(err, CKPT_E_MISMATCH, w->name, CKPT_NO_OFFSET,
		       "the base has %s here, but A is %s and B is %s: the adapter was trained on "
		       "another model", shape_text(w, tw), shape_text(a, ta), shape_text(b, tb));
}

/* The rows and columns that each way of reading A and B gives, and those of W. */
static int find_shape(struct merging *m, const struct pair *p, const struct ck_tensor *w,
		      struct ck_lora_part *part, bool *straight_out, bool *flipped_out,
		      struct ckpt_err *err)
{
	const struct ck_tensor *a = &m->ix->tensor[p->a], *b = &m->ix->tensor[p->b];
	uint64_t in, out;

	if (a->ndim < 2 || b->ndim < 2 || w->ndim < 2 || !a->shape[0] ||
	    b->shape[1] != a->shape[0] || b->numel != b->shape[0] * b->shape[1])
		return fail_shapes(m, p, w, err);
	part->r = a->shape[0];
	in = a->numel / part->r;
	out = b->shape[0];
	part->rows = w->shape[0];
	part->cols = w->shape[0] ? w->numel / w->shape[0] : 0;
	*straight_out = !p->embedding && w->shape[0] == out &&
			(!out || part->cols == in) && w->ndim == a->ndim;
	*flipped_out = w->ndim == 2 && w->shape[0] == in && w->shape[1] == out;
	return *straight_out || *flipped_out ? 0 : fail_shapes(m, p, w, err);
}

static int no_base(struct merging *m, const char *name, const char *what, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_MISMATCH, m->cv->ck->ix.path, CKPT_NO_OFFSET,
		       "the base has no %.200s, which the adapter %s: it was trained on another "
		       "model%s", name, what,
		       strstr(name, "lm_head") ? ", or its head is the embedding (tied)" : "");
}

/* Square matrices fit both ways: as the others do, or as the configuration says. */
static int choose_way(struct merging *m, const struct pair *p, bool straight, bool flipped,
		      bool *out, struct ckpt_err *err)
{
	*out = flipped && !straight;
	if (!flipped || !straight)
		return 0;
	*out = m->cv->peft_config.fan_in_fan_out || (m->flipped && !m->straight);
	if (!*out && m->flipped && m->straight)
		return ck_fail(err, CKPT_E_UNSUPPORTED, p->module, CKPT_NO_OFFSET,
			       "this matrix is square, and others of the adapter are stored both "
			       "as out x in and as in x out (Conv1D): \"fan_in_fan_out\" in "
			       "adapter_config.json must say which it is");
	return 0;
}

static int scale_of(struct merging *m, const struct pair *p, uint64_t r, double *out,
		    struct ckpt_err *err)
{
	const struct ckpt_peft_opts *o = m->cv->opts->peft;
	const struct ck_peft_config *c = &m->cv->peft_config;
	double alpha = 0, said = 0;
	int rc = ck_peft_config_of(c, p->module, &alpha, &said, err);

	if (rc)
		return rc;
	if (said > 0 && said != (double)r)
		return ck_fail(err, CKPT_E_MISMATCH, c->path, CKPT_NO_OFFSET,
			       "r is %g here, but the matrix A of %.120s has %" PRIu64 " row%s: "
			       "it is the configuration of another run", said, p->module, r,
			       r == 1 ? "" : "s");
	if (o->alpha > 0)
		alpha = o->alpha;
	if (!(alpha > 0))
		return ck_fail(err, CKPT_E_USAGE, m->ix->path, CKPT_NO_OFFSET,
			       "the alpha of LoRA is in no tensor, and no adapter_config.json "
			       "beside the adapter gives it; give --lora-alpha N as the run had it "
			       "(r is %" PRIu64 "), or --adapter-config FILE", r);
	*out = alpha / (c->rslora || o->rslora ? sqrt((double)r) : (double)r);
	return 0;
}

/* -------------------------------------------------------------------- parts */

/* How W is written: quantised weights are not numbers that can be added to. */
static int check_base(const struct merging *m, const struct ck_item *item, struct ckpt_err *err)
{
	const struct ck_index *ix = &m->cv->ck->ix;
	const enum ckpt_dtype dtype = ix->state[item->state].dtype;

	if (ck_dtype_is_castable(dtype))
		return 0;
	return ck_fail(err, CKPT_E_UNSUPPORTED, ix->tensor[item->tensor].name, CKPT_NO_OFFSET,
		       "the base has elements of type %s here, to which no adapter can be added; "
		       "give the model as it was before quantisation", ckpt_dtype_name(dtype));
}

static int add_part(struct merging *m, const struct ck_lora_part *part, struct ckpt_err *err)
{
	int rc = ck_grow(&m->part, &m->part_cap, m->nparts + 1, sizeof(*part), err);

	if (!rc)
		m->part[m->nparts++] = *part;
	return rc;
}

static int add_instead(struct merging *m, const struct pair *p, struct ckpt_err *err)
{
	const struct ck_item *item = find_base(m, p->module);
	struct ck_lora_part part = { .left = CK_NONE, .right = CK_NONE };
	const struct ck_tensor *t = &m->ix->tensor[p->instead], *w;
	char tt[64], tw[64];
	int rc;

	if (!item)
		return no_base(m, p->module, "replaces", err);
	w = &m->cv->ck->ix.tensor[item->tensor];
	if (w->ndim != t->ndim || memcmp(w->shape, t->shape, w->ndim * sizeof(*w->shape)))
		return ck_fail(err, CKPT_E_MISMATCH, w->name, CKPT_NO_OFFSET,
			       "the base has %s here, and the adapter %s (was the vocabulary "
			       "resized before training?)", shape_text(w, tw), shape_text(t, tt));
	rc = check_base(m, item, err);
	if (!rc)
		rc = state_of(m, p->instead, &part.instead, err);
	part.base = item->state;
	return rc ? rc : add_part(m, &part, err);
}

/* 'decide' is false on the first pass, which sees which way the matrices are stored. */
static int add_product(struct merging *m, const struct pair *p, bool decide, struct ckpt_err *err)
{
	const char *name = ck_arena_printf(&m->cv->arena, "%s.weight", p->module);
	const struct ck_item *item = name ? find_base(m, name) : NULL;
	struct ck_lora_part part = { .instead = CK_NONE };
	bool straight, flipped;
	int rc;

	if (!name)
		return ck_fail_nomem(err, "a name", strlen(p->module));
	if (p->a == CK_NONE || p->b == CK_NONE)
		return ck_fail(err, CKPT_E_INCOMPLETE, p->module, CKPT_NO_OFFSET,
			       "the adapter has %s of this module without %s",
			       p->a == CK_NONE ? "B" : "A", p->a == CK_NONE ? "A" : "B");
	if (!item)
		return no_base(m, name, "changes", err);
	rc = find_shape(m, p, &m->cv->ck->ix.tensor[item->tensor], &part, &straight, &flipped,
			err);
	if (rc || !decide) {
		m->straight += !rc && straight && !flipped;
		m->flipped += !rc && flipped && !straight && !p->embedding;
		return rc;
	}
	rc = check_base(m, item, err);
	if (!rc)
		rc = choose_way(m, p, straight, flipped, &part.flipped, err);
	if (!rc)
		rc = scale_of(m, p, part.r, &part.scale, err);
	if (!rc)
		rc = state_of(m, p->b, &part.left, err);
	if (!rc)
		rc = state_of(m, p->a, &part.right, err);
	part.base = item->state;
	return rc ? rc : add_part(m, &part, err);
}

static int make_parts(struct merging *m, struct ckpt_err *err)
{
	uint64_t products = 0;
	int rc = 0;

	for (int pass = 0; pass < 2; pass++)
		for (uint64_t i = 0; !rc && i < m->n; i++)
			if (m->pair[i].instead == CK_NONE)
				rc = add_product(m, &m->pair[i], pass, err);
	products = m->nparts;
	for (uint64_t i = 0; !rc && i < m->n; i++)
		if (m->pair[i].instead != CK_NONE)
			rc = add_instead(m, &m->pair[i], err);
	if (!rc && !products)
		rc = ck_fail(err, CKPT_E_USAGE, m->ix->path, CKPT_NO_OFFSET,
			     "the adapter has no matrices of LoRA");
	return rc;
}

/* ----------------------------------------------------------------- all of it */

/* The adapter is small: all that is used of it is read once before, for its checksums. */
static int check_bytes(struct merging *m, struct ckpt_err *err)
{
	struct ckpt *from = m->cv->opts->peft->merge;
	struct ck_plan plan = CK_PLAN_INIT;
	struct ck_run_stats stats = { 0 };
	const struct ck_run_job job = {
		.ix = &from->ix, .plan = &plan, .limits = &from->limits, .opts = &m->cv->run,
		.to = CK_RUN_NOWHERE, .pool = from->pool, .fd = -1, .nparts = 1,
		.findings = &from->findings,
	};
	int rc = ck_plan_file(&plan, "adapter", err);

	for (uint64_t i = 0; !rc && i < m->nparts; i++) {
		const uint32_t use[] = { m->part[i].left, m->part[i].right, m->part[i].instead };

		for (size_t k = 0; !rc && k < CK_ARRAY_LEN(use); k++)
			if (use[k] != CK_NONE)
				rc = ck_plan_state(&plan, &from->ix, use[k],
						   from->ix.state[use[k]].dtype, 0,
						   from->ix.tensor[from->ix.state[use[k]].tensor]
						   .numel, CK_NONE, err);
	}
	if (!rc)
		rc = ck_plan_finish(&plan, err);
	if (!rc)
		rc = ck_run(&job, &stats, err);
	ck_free(stats.digest);
	ck_free(stats.piece);
	ck_plan_release(&plan);
	return rc ? ck_fdpool_check(from->pool, rc, err) : 0;
}

static int check_adapter(struct merging *m, struct ckpt_err *err)
{
	struct ckpt *from = m->cv->opts->peft->merge;
	const struct ckpt_finding *f = ck_findings_worst(&from->findings, CKPT_ERROR);
	int rc = f ? ck_findings_fail(f, err) : 0;

	if (!rc)
		rc = ck_stated_begin(from, err);
	if (!rc)
		rc = ck_master_check(from, m->cv->run.threads, true, err);
	return rc;
}

/* The bytes of the result follow from both, and from the scales. */
static int take_fingerprint(struct merging *m, struct ckpt_err *err)
{
	const struct ckpt *from = m->cv->opts->peft->merge;
	const struct ck_hash128 both[2] = {
		m->cv->fingerprint, ck_hasher_sum(from->ix.fingerprint),
	};
	struct ck_hasher *h = ck_hasher_new();

	if (!h)
		return ck_fail_nomem(err, "a hash", 0);
	ck_hasher_add(h, both, sizeof(both));
	for (uint64_t i = 0; i < m->nparts; i++) {
		ck_hasher_add(h, &m->part[i].base, sizeof(m->part[i].base));
		ck_hasher_add(h, &m->part[i].scale, sizeof(m->part[i].scale));
		ck_hasher_add(h, &m->part[i].flipped, sizeof(m->part[i].flipped));
	}
	m->cv->fingerprint = ck_hasher_sum(h);
	ck_hasher_free(h);
	return 0;
}

static int begin(struct merging *m, struct ckpt_err *err)
{
	const struct ckpt_peft_opts *o = m->cv->opts->peft;
	struct ck_cv *cv = m->cv;
	int rc = ck_cv_peft_choose(o->merge, o->adapter, &cv->arena, &cv->adapter, err);

	if (!rc)
		rc = ck_peft_config_read(o->merge, o->config_path, o->adapter ? o->adapter :
					 cv->adapter, &cv->peft_config, err);
	if (!rc)
		rc = ck_peft_config_check_merge(&cv->peft_config, err);
	if (!rc)
		rc = check_adapter(m, err);
	for (uint32_t i = 0; !rc && i < m->ix->ntensors; i++)
		rc = take_tensor(m, i, err);
	if (!rc)
		rc = list_base(m, err);
	if (!rc)
		rc = make_parts(m, err);
	if (!rc && !(cv->opts->flags & CKPT_WRITE_DRY_RUN))
		rc = check_bytes(m, err);
	if (!rc)
		rc = take_fingerprint(m, err);
	if (!rc)
		rc = ck_lora_new(m->ix, &o->merge->limits, m->part, m->nparts, cv->ck->ix.nstates,
				 cv->run.mem_limit / 2, &cv->lora, err);
	cv->merged = m->nparts;
	return rc;
}

int ck_cv_merge_begin(struct ck_cv *cv, struct ckpt_err *err)
{
	struct merging m = {
		.cv = cv, .ix = &cv->opts->peft->merge->ix, .by_module = CK_MAP_INIT,
		.base = CK_MAP_INIT,
	};
	const int rc = begin(&m, err);

	ck_map_release(&m.by_module);
	ck_map_release(&m.base);
	ck_free(m.pair);
	ck_free(m.part);
	return rc;
}
