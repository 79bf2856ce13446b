/*
 * dcp_write_client.c -- what a folder has beside the model and the optimizer: the client's values,
 * in the items that torch would make of them.
 *
 * torch 2.4 and later go into dictionaries, and into lists that have any.  Before 2.4 only a
 * container with a tensor in it was divided, and any other was one value.  A value of the client
 * has no tensor, unless the source is a DCP folder: its items are copied as they are, and joined
 * or divided where the two forms differ.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/dcp/dcp_out.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/step/ck_step_ds.h"
#include "libckpt/tensor/ck_val_new.h"

#define DEPTH 64u

/* ---- the client's values ---- */

/* Numbers among the keys would come back as texts. */
static bool has_text_keys(const struct ck_val *v)
{
	for (uint64_t i = 0; i < v->u.seq.n; i += 2)
		if (!ck_val_str(v->u.seq.item[i]) || strchr(ck_val_str(v->u.seq.item[i]), '.'))
			return false;
	return v->u.seq.n != 0;
}

/* torch goes into dictionaries, and into lists that have any; the rest is one value. */
static bool is_leaf(const struct ck_val *v)
{
	if (v->kind == CK_VAL_DICT)
		return !has_text_keys(v);
	if (v->kind != CK_VAL_LIST)
		return true;
	for (uint64_t i = 0; i < v->u.seq.n; i++)
		if (!is_leaf(v->u.seq.item[i]))
			return false;
	return true;
}

static int add_client(struct dcp_out *o, const char *name, struct ck_val *path,
		      const struct ck_val *v, unsigned depth, struct ckpt_err *err)
{
	const bool is_dict = v && v->kind == CK_VAL_DICT;
	const bool is_one = !v || is_leaf(v) || !depth;
	const uint64_t n = is_one ? 0 : v->u.seq.n / (is_dict ? 2 : 1);
	int rc = 0;

	if (!path || !name || !v)
		return ck_fail_nomem(err, "a name", 0);
	if (is_one || o->is_old)
		return ck_dcp_add_value(o, name, path, v, true, err);
	for (uint64_t i = 0; !rc && i < n; i++) {
		const struct ck_val *in = v->u.seq.item[is_dict ? 2 * i + 1 : i];
		const char *key = is_dict ? ck_val_str(v->u.seq.item[2 * i]) :
				  ck_arena_printf(o->arena, "%" PRIu64, i);
		struct ck_val *step = is_dict ? v->u.seq.item[2 * i] :
				      ck_val_new_int(o->arena, (int64_t)i);
		const char *full = key ? ck_arena_printf(o->arena, "%s.%s", name, key) : NULL;

		rc = add_client(o, full, ck_dcp_path_add(o, path, step), in, depth - 1, err);
	}
	return rc;
}

/* Of torch's schedulers; DeepSpeed's own have another form. */
bool ck_dcp_is_scheduler(const struct ck_val *v)
{
	return ck_val_get(v, "last_epoch") != NULL;
}

/* ---- of a folder that was DCP ---- */

/* The archives of the source. */
static int copy_item(struct dcp_out *o, const struct dcp_item *it, struct ckpt_err *err)
{
	struct dcp_entry e = {
		.name = it->flat, .path = (struct ck_val *)it->path, .dtype = it->dtype,
		.ndim = it->ndim, .shape = it->shape, .state = CK_NONE,
		.is_tensor = it->is_tensor, .is_copied = true, .is_client = true,
	};

	e.spot = ck_arena_zalloc(o->arena, (it->nchunks + 1) * sizeof(*e.spot));
	if (!e.spot)
		return ck_fail_nomem(err, "a value of the client", it->nchunks);
	for (uint64_t k = 0; k < it->nchunks; k++) {
		const struct dcp_chunk *c = &it->chunk[k];

		if (c->at.file != CK_NONE && (c->numel || !it->is_tensor))
			e.spot[e.nspots++].from = c;
	}
	if (!e.path)
		e.path = ck_dcp_path(o, "", &it->flat, 1);
	return ck_dcp_add(o, &e, err);
}

/* A value that can be written again; NULL = it is copied or nothing. */
static struct ck_val *plain_value(const struct dcp_item *it)
{
	struct ck_val *v = it->is_tensor ? NULL : (struct ck_val *)ck_dcp_value_of(it);

	return v && !it->value->pt->nstorages && ck_step_ds_is_plain(v) ? v : NULL;
}

static int divide_item(struct dcp_out *o, const struct dcp_item *it, const struct ck_val *v,
		       struct ckpt_err *err)
{
	struct ck_val *path = (struct ck_val *)it->path;

	return add_client(o, it->flat, path ? path : ck_dcp_path(o, "", &it->flat, 1), v, DEPTH,
			  err);
}

/* Values that become one: those of a dictionary, or of a list. */
struct joined {
	const char *name;
	struct ck_val *path, *root;
};

struct joining {
	struct ck_map divided;	/* beginnings of paths that lead to a tensor as well */
	struct ck_map by_path;	/* beginning of a path -> number in 'one' */
	struct joined *one;
	uint64_t n, cap;
};

/* The first 'n' steps of a path, for a map; and as a flat name. */
static const char *key_of(struct dcp_out *o, struct ck_val *const *step, uint64_t n, bool is_name)
{
	const char *key = "";

	for (uint64_t i = 0; key && i < n; i++) {
		const char *text = ck_val_str(step[i]);
		int64_t number = 0;

		if (!text && !ck_val_int(step[i], &number))
			return NULL;
		if (!text)
			text = ck_arena_printf(o->arena, "%s%" PRId64, is_name ? "" : "#", number);
		key = !text ? NULL : ck_arena_printf(o->arena, "%s%s%s", key, !is_name ? "\x1f" :
						     i ? "." : "", text);
	}
	return key;
}

/* No container on the way to this item is one value. */
static int keep_divided(struct dcp_out *o, struct joining *j, const struct dcp_item *it,
			struct ckpt_err *err)
{
	struct ck_val *const *step;
	uint64_t n = 0;
	int rc = 0;

	ck_val_seq(it->path, &step, &n);
	for (uint64_t k = 1; rc >= 0 && k < n && k < DEPTH; k++) {
		const char *key = key_of(o, step, k, false);

		if (key)
			rc = ck_map_add(&j->divided, key, strlen(key), 0, NULL, err);
	}
	return rc < 0 ? rc : 0;
}

static struct joined *joined_at(struct dcp_out *o, struct joining *j, const char *key,
				struct ck_val *const *step, uint64_t n, struct ckpt_err *err)
{
	uint64_t at = j->n;
	const int rc = ck_map_add(&j->by_path, key, strlen(key), j->n, &at, err);

	if (rc < 0 || (!rc && ck_grow(&j->one, &j->cap, j->n + 1, sizeof(*j->one), err)))
		return NULL;
	if (rc)
		return &j->one[at];
	j->one[j->n] = (struct joined){
		key_of(o, step, n, true), ck_val_new_tuple(o->arena, step, n),
		ck_dcp_tree_new(o->arena),
	};
	return &j->one[j->n++];
}

/* Into the outermost container without a tensor.  1: it is in none. */
static int join_item(struct dcp_out *o, struct joining *j, const struct dcp_item *it,
		     struct ck_val *v, struct ckpt_err *err)
{
	struct ck_val *const *step, *in;
	struct joined *one;
	const char *key = NULL;
	uint64_t n = 0, k = 1;

	ck_val_seq(it->path, &step, &n);
	for (; k < n && k < DEPTH; k++) {
		key = key_of(o, step, k, false);
		if (!key || !ck_map_find(&j->divided, key, strlen(key), NULL))
			break;
	}
	if (!key || k >= n || k >= DEPTH)
		return 1;
	one = joined_at(o, j, key, step, k, err);
	if (!one)
		return -CKPT_E_NOMEM;
	in = ck_dcp_tree_at(o->arena, one->root, step + k, n - 1 - k);
	return in && ck_val_dict_add(o->arena, in, step[n - 1], v) ? 0 :
	       ck_fail_nomem(err, "a value of the client", n);
}

static int add_joined(struct dcp_out *o, struct joining *j, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < j->n; i++)
		rc = !j->one[i].name ? ck_fail_nomem(err, "a name", 0) :
		     add_client(o, j->one[i].name, j->one[i].path,
				ck_dcp_tree_done(o->arena, j->one[i].root), DEPTH, err);
	return rc;
}

/* Is it neither the model's nor the optimizer's, and not made again? */
static bool is_clients(const struct dcp_item *it)
{
	return it->use == DCP_OTHER && strcmp(it->flat, "deepspeed");
}

static int copy_clients(struct dcp_out *o, struct ckpt_err *err)
{
	const struct dcp *d = o->source;
	struct joining j = { .n = 0 };
	int rc = 0;

	for (uint64_t i = 0; !rc && o->is_old && !d->fs.is_old && i < d->fs.nitems; i++)
		if (d->fs.item[i].is_tensor ||
		    (is_clients(&d->fs.item[i]) && !plain_value(&d->fs.item[i])))
			rc = keep_divided(o, &j, &d->fs.item[i], err);
	for (uint64_t i = 0; !rc && i < d->fs.nitems; i++) {
		const struct dcp_item *it = &d->fs.item[i];
		struct ck_val *v = plain_value(it);

		if (!is_clients(it))
			continue;
		if (v && o->is_old && !d->fs.is_old) {
			rc = join_item(o, &j, it, v, err);
			if (rc <= 0)
				continue;
		}
		rc = v && d->fs.is_old && !o->is_old && !is_leaf(v) ? divide_item(o, it, v, err) :
		     copy_item(o, it, err);
	}
	if (!rc)
		rc = add_joined(o, &j, err);
	ck_map_release(&j.divided);
	ck_map_release(&j.by_path);
	ck_free(j.one);
	return rc;
}

/* ---- */

/* What a box of the folder is called. */
static bool is_box(const struct dcp_out *o, const char *key)
{
	const size_t n = strlen(key);

	return !strcmp(key, "deepspeed") || (!strncmp(o->model, key, n) && o->model[n] == '.') ||
	       (!strncmp(o->optim, key, n) && o->optim[n] == '.');
}

int ck_dcp_clients_add(struct dcp_out *o, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n = 0;
	int rc = 0;

	if (o->source)
		return copy_clients(o, err);
	ck_val_pairs(o->step->model, &item, &n);
	for (uint64_t i = 0; !rc && i < n; i++) {
		const char *key = ck_val_str(item[2 * i]);
		const struct ck_val *v = item[2 * i + 1];

		if (!key || ck_step_ds_is_own(key) ||
		    ck_val_is_none(v) ||
		    (!strcmp(key, "lr_scheduler") && !ck_dcp_is_scheduler(v)))
			continue;
		if (!ck_step_ds_is_plain(v) || strchr(key, '.') || is_box(o, key)) {
			ck_findings_add(o->step->f, CK_FINDING_NOT_CARRIED, key,
					"a value of the client with tensors, objects or more "
					"than %u values in it, or with the model's name",
					CK_STEP_DS_MOST_VALUES);
			continue;
		}
		rc = add_client(o, key, ck_dcp_path(o, "", &key, 1), v, DEPTH, err);
	}
	return rc;
}

