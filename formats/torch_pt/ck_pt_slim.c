/*
 * ck_pt_slim.c -- a torch file without what nobody needs, and otherwise as it was.
 *
 * The value tree stays; what may go from it are optimizer states, and second copies of frozen
 * parameters, which then share the storage of the first.  ck_pt_cut.c leaves out what of the
 * storages no tensor uses.  A file in which nothing is to be saved is copied byte by byte.
 */
#include "formats/torch_pt/ck_pt_slim.h"

#include <string.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_val_new.h"

#define WINDOW_BYTES ((uint64_t)1 << 20)

/* ---- moments ---- */

/* What an optimizer keeps beside its states: a count, and masters of its own. */
static bool stays(const char *name)
{
	return !strcmp(name, "step") || !strcmp(name, "master") || !strcmp(name, "master_param");
}

/* The name of a state of an entry that goes, or NULL. */
static const char *some_state(const struct ck_val *entry)
{
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_pairs(entry, &item, &n))
		return NULL;
	for (uint64_t i = 0; i < n; i++) {
		const char *name = ck_val_str(item[2 * i]);

		if (name && !stays(name) && ck_pt_call_of(item[2 * i + 1]) != CK_PT_NONE)
			return name;
	}
	return NULL;
}

static void drop_states(struct ck_val *entry)
{
	const char *name;

	while ((name = some_state(entry)))
		if (!ck_val_dict_drop(entry, name))
			return;
}

/* A torch optimizer's dictionary, whoever it belongs to; or an elastic checkpoint's list. */
static void drop_moments(const struct ck_val *v)
{
	const struct ck_val *state = ck_val_get(v, "state");
	struct ck_val *const *item;
	uint64_t n;

	if (ck_val_seq(ck_val_get(v, "param_groups"), &item, &n) &&
	    ck_val_pairs(state, &item, &n))
		for (uint64_t i = 0; i < n; i++)
			drop_states(item[2 * i + 1]);
	if (ck_val_seq(ck_val_get(v, "base_optimizer_state"), &item, &n))
		for (uint64_t i = 0; i < n; i++)
			drop_states(item[i]);
}

/* ---- frozen parameters ---- */

static bool is_dense(const struct ck_tensor_ref *t)
{
	uint64_t step = 1;

	for (uint32_t d = t->ndim; d > 0; d--) {
		if (t->shape[d - 1] != 1 && t->stride[d - 1] != step)
			return false;
		step *= t->shape[d - 1];
	}
	return !t->conj && !t->neg;
}

static bool are_alike(const struct ck_tensor_ref *a, const struct ck_tensor_ref *b)
{
	return a && b && a->numel && a->dtype == b->dtype && a->ndim == b->ndim &&
	       !memcmp(a->shape, b->shape, a->ndim * sizeof(*a->shape)) && is_dense(a) &&
	       is_dense(b) && a->storage != b->storage;
}

/* 'buf' holds two windows. */
static int compare(const struct pt_slim *s, const struct ck_tensor_ref *a,
		   const struct ck_tensor_ref *b, uint8_t *buf, bool *same_out,
		   struct ckpt_err *err)
{
	const uint64_t es = ckpt_dtype_bits(a->dtype) / 8, bytes = a->numel * es;
	const uint64_t from_a = s->pt->storage[a->storage].off + a->offset * es;
	const uint64_t from_b = s->pt->storage[b->storage].off + b->offset * es;
	bool same = true;
	int rc = 0;

	for (uint64_t at = 0; !rc && same && at < bytes; at += WINDOW_BYTES) {
		const uint64_t n = ck_min_u64(WINDOW_BYTES, bytes - at);

		rc = ck_src_read(s->pt->src, from_a + at, buf, n, err);
		if (!rc)
			rc = ck_src_read(s->pt->src, from_b + at, buf + WINDOW_BYTES, n, err);
		same = !rc && !memcmp(buf, buf + WINDOW_BYTES, n);
	}
	*same_out = same;
	return rc;
}

/* A parameter's second copy becomes a second name; copies that differ are left alone. */
static int join(struct pt_slim *s, const struct ck_val *module, const struct ck_val *copies,
		struct ckpt_err *err)
{
	uint8_t *buf = ck_alloc(2 * WINDOW_BYTES);
	struct ck_val *const *item;
	uint64_t n;
	int rc = buf ? 0 : ck_fail_nomem(err, "a buffer", 2 * WINDOW_BYTES);

	if (!ck_val_pairs(copies, &item, &n))
		n = 0;
	for (uint64_t i = 0; !rc && i < n; i++) {
		const char *name = ck_val_str(item[2 * i]);
		const struct ck_val *v = item[2 * i + 1];
		const struct ck_tensor_ref *first = name ? ck_val_tensor(ck_val_get(module, name)) :
						    NULL;
		struct ck_tensor_ref *t = v->kind == CK_VAL_OBJECT ? v->u.obj->tensor : NULL;
		bool same = false;

		if (are_alike(first, t))
			rc = compare(s, first, t, buf, &same, err);
		if (!same)
			continue;
		t->storage = first->storage;
		t->offset = first->offset;
		t->stride = first->stride;
	}
	ck_free(buf);
	return rc;
}

static int join_frozen(struct pt_slim *s, struct ckpt_err *err)
{
	const struct ck_val *root = s->pt->doc.root;
	const struct ck_val *module = ck_val_get(root, "module");
	const struct ck_val *copies = ck_val_get(root, "frozen_param_fragments");
	struct ck_val *const *item;
	uint64_t n;

	return ck_val_pairs(module, &item, &n) && ck_val_pairs(copies, &item, &n) && n ?
	       join(s, module, copies, err) : 0;
}

/* ---- a file ---- */

static int copy_whole(const struct ck_slim_want *want, uint64_t bytes, struct ck_plan *plan,
		      struct ckpt_err *err)
{
	int rc = ck_plan_file(plan, want->name, err);

	return rc ? rc : ck_plan_copy(plan, want->path, 0, bytes, err);
}

/* What edits of the tree leave out, counted by the storages that are no longer mentioned. */
static int edit(struct pt_slim *s, struct ckpt_err *err)
{
	uint64_t before, without = 0, joined = 0;
	int rc = ck_pt_live(s, &before, err);

	if (rc)
		return rc;
	s->saved.why = ck_pt_hinders(s);
	if (s->saved.why)
		return 0;
	if (s->want->what & CKPT_SLIM_MOMENTS)
		for (uint64_t i = 0; i < s->walk.n; i++)
			drop_moments(s->walk.node[i]);
	rc = ck_pt_live(s, &without, err);
	if (!rc && s->want->what & CKPT_SLIM_FROZEN)
		rc = join_frozen(s, err);
	if (!rc)
		rc = ck_pt_live(s, &joined, err);
	if (rc)
		return rc;
	s->saved.moments = before - without;
	s->saved.frozen = without - joined;
	return ck_pt_cut(s, err);
}

/* The file anew; 1 if it is none that can be written. */
static int write_anew(struct pt_slim *s, struct ckpt_err *err)
{
	const struct ck_pt_want want = {
		.name = s->want->name, .prefix = s->pt->legacy ? NULL : s->pt->prefix,
		.root = s->pt->doc.root, .storage = s->part, .nstorages = s->pt->nstorages,
	};
	const uint64_t files = s->plan->nfiles;
	struct ckpt_err inner = { 0 };
	int rc = ck_pt_plan_file(&want, s->plan, &inner);

	if (rc == -CKPT_E_UNSUPPORTED && s->plan->nfiles == files) {
		s->saved.why = "it holds values that zckpt cannot write";
		return 1;
	}
	return rc ? ck_fail(err, inner.code, inner.where, inner.offset, "%s", inner.msg) : 0;
}

/* An archive of today's form has more around its records than one of old: it must pay. */
static bool pays(struct pt_slim *s, uint64_t bytes)
{
	if (s->saved.moments || s->plan->file[s->plan->nfiles - 1].bytes < bytes)
		return true;
	ck_plan_drop_file(s->plan);
	return false;
}

static int slim(struct pt_slim *s, uint64_t bytes, struct ckpt_err *err)
{
	int rc = edit(s, err);

	if (!rc && (s->saved.views || s->saved.frozen || s->saved.moments)) {
		rc = write_anew(s, err);
		if (rc < 0 || (!rc && pays(s, bytes)))
			return rc;
		s->saved.views = s->saved.frozen = s->saved.moments = 0;
		rc = 0;
	}
	return rc ? rc : copy_whole(s->want, bytes, s->plan, err);
}

/* What is no torch file, or cannot be read as one, goes along as it is. */
static int open_file(struct pt_slim *s, struct ck_src *src, struct ckpt_err *err)
{
	struct ckpt_err inner = { 0 };
	uint8_t head[512];
	const size_t n = (size_t)ck_min_u64(sizeof(head), ck_src_size(src));
	int rc = ck_src_read(src, 0, head, n, err);

	if (rc || !ck_pt_probe(head, n))
		return rc ? rc : 1;
	rc = ck_pt_open(src, s->want->limits, 0, NULL, &s->pt, &inner);
	if (rc == -CKPT_E_NOMEM || rc == -CKPT_E_IO || rc == -CKPT_E_LIMIT)
		return ck_fail(err, inner.code, inner.where, inner.offset, "%s", inner.msg);
	if (rc)
		s->saved.why = "it cannot be read";
	return rc ? 1 : 0;
}

int ck_pt_slim(const struct ck_slim_want *want, struct ck_plan *plan,
	       struct ck_slim_saved *saved_out, struct ckpt_err *err)
{
	struct pt_slim s = { .want = want, .plan = plan };
	struct ck_src *src = NULL;
	int rc = ck_src_open(want->pool, want->path, &src, err);
	const uint64_t bytes = rc ? 0 : ck_src_size(src);

	if (!rc)
		rc = open_file(&s, src, err);
	if (s.pt)
		s.walk.arena = &s.pt->doc.arena;
	if (rc == 1)
		rc = copy_whole(want, bytes, plan, err);
	else if (!rc)
		rc = slim(&s, bytes, err);
	if (!rc)
		*saved_out = s.saved;
	ck_pt_close(s.pt);
	ck_src_close(src);
	ck_free(s.walk.node);
	ck_free(s.ref);
	ck_arena_release(&s.arena);
	return rc;
}
