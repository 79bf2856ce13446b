/* ds_write_file.c -- one .pt of the target: storages of the source file and new ones. */
#include <string.h>

#include "formats/ds_pt/ck_ds.h"
#include "formats/ds_pt/ds_write.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"

static int add_store(struct wr *w, enum ckpt_dtype dtype, struct ckpt_err *err)
{
	int rc = ck_grow(&w->store, &w->store_cap, w->nstores + 1, sizeof(*w->store), err);

	if (!rc)
		w->store[w->nstores++] = (struct wr_store){
			.piece = w->npieces, .dtype = (uint8_t)dtype,
		};
	return rc;
}

static int add_piece(struct wr *w, const struct ck_pt_piece *piece, struct ckpt_err *err)
{
	int rc;

	if (!piece->count)
		return 0;
	rc = ck_grow(&w->piece, &w->piece_cap, w->npieces + 1, sizeof(*piece), err);
	if (rc)
		return rc;
	w->piece[w->npieces++] = *piece;
	w->store[w->nstores - 1].npieces++;
	return 0;
}

/* Bytes of a storage as they lie in the source; inflated and turned round if need be. */
static int take_storage(struct wr *w, const struct ck_step_file *file,
			const struct ck_pt_storage *s, struct ckpt_err *err)
{
	struct ck_pt_piece piece = {
		.kind = CK_SEG_FILE, .first = s->off, .count = s->absent ? 0 : s->bytes,
		.text = file->path, .slot = CK_NONE,
	};
	int rc = add_store(w, (enum ckpt_dtype)s->dtype, err);

	if (!rc && piece.count && (s->swapped || s->deflated))
		rc = ck_wr_own(w, file, s, &piece, err);
	return rc ? rc : add_piece(w, &piece, err);
}

static int take_storages(struct wr *w, const struct ck_step_file *file, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < file->pt->nstorages; i++)
		rc = take_storage(w, file, &file->pt->storage[i], err);
	return rc;
}

int ck_wr_begin(struct wr *w, const struct ck_step_file *file, uint32_t n, struct ckpt_err *err)
{
	int rc = 0;

	w->npieces = 0;
	w->nstores = 0;
	for (uint32_t i = 0; !rc && i < n; i++)
		rc = take_storages(w, &file[i], err);
	return rc;
}

int ck_wr_storage(struct wr *w, enum ckpt_dtype dtype, uint32_t *number_out,
		  struct ckpt_err *err)
{
	int rc = add_store(w, dtype, err);

	if (!rc)
		*number_out = (uint32_t)(w->nstores - 1);
	return rc;
}

int ck_wr_state(struct wr *w, uint32_t state, uint64_t first, uint64_t count,
		struct ckpt_err *err)
{
	struct ck_pt_piece piece = {
		.kind = CK_SEG_STATE, .state = state, .first = first, .count = count,
		.dtype = w->store[w->nstores - 1].dtype, .slot = CK_NONE,
	};
	int rc = 0;

	if (count && (state == CK_NONE ||
		      (w->own_state && w->ix->state[state].dtype != piece.dtype)))
		return ck_fail(err, CKPT_E_INCOMPLETE, w->step->at.where, CKPT_NO_OFFSET,
			       "a parameter lacks a state that others of its group have");
	if (count && w->own_state) {
		piece.kind = CK_SEG_OWN;
		rc = ck_wr_own_state(w, state, &piece.state, err);
	}
	return rc ? rc : add_piece(w, &piece, err);
}

/* Of stage 0 in fp32, and of a folder of weights, the weights are the masters. */
static uint32_t stored(const struct wr *w, uint32_t tensor, const char *name)
{
	const uint32_t s = ck_index_state_find(w->ix, tensor, name);

	return s == CK_NONE && !strcmp(name, "master") ?
	       ck_index_state_find(w->ix, tensor, "weight") : s;
}

bool ck_wr_has(const struct wr *w, uint32_t tensor, const char *name)
{
	return w->step->is_new || stored(w, tensor, name) != CK_NONE;
}

enum ckpt_dtype ck_wr_dtype(const struct wr *w, uint32_t tensor, const char *name)
{
	const uint32_t s = ck_index_state_find(w->ix, tensor, name);

	if (w->step->is_new)	/* of what may be a step with states of its own */
		return CKPT_F32;
	return s == CK_NONE ? CKPT_F32 : (enum ckpt_dtype)w->ix->state[s].dtype;
}

int ck_wr_named(struct wr *w, uint32_t tensor, const char *name, uint64_t first, uint64_t count,
		struct ckpt_err *err)
{
	const bool new = w->want->reset || w->step->is_new;
	const uint32_t s = ck_index_state_find(w->ix, tensor, name);
	const uint8_t type = w->store[w->nstores - 1].dtype;

	if (new && strcmp(name, "master"))
		return ck_wr_zero(w, count, err);
	if (s != CK_NONE && w->ix->state[s].dtype != type && !w->step->is_new)
		return ck_fail(err, CKPT_E_UNSUPPORTED, w->ix->tensor[tensor].name, CKPT_NO_OFFSET,
			       "its %.60s has type %s, that of the first parameter of its group "
			       "%s; within a group all must have one type", name,
			       ckpt_dtype_name(w->ix->state[s].dtype), ckpt_dtype_name(type));
	return ck_wr_state(w, stored(w, tensor, name), first, count, err);
}

int ck_wr_zero(struct wr *w, uint64_t count, struct ckpt_err *err)
{
	const uint32_t bits = ckpt_dtype_bits(w->store[w->nstores - 1].dtype);
	const struct ck_pt_piece piece = {
		.kind = CK_SEG_ZERO, .count = count * (bits / 8), .slot = CK_NONE,
	};

	return add_piece(w, &piece, err);
}

static uint64_t store_numel(const struct wr *w, uint32_t number)
{
	const struct wr_store *s = &w->store[number];
	const uint64_t es = ckpt_dtype_bits(s->dtype) / 8;
	uint64_t n = 0;

	for (uint64_t i = s->piece; i < s->piece + s->npieces; i++)
		n += w->piece[i].kind == CK_SEG_STATE || w->piece[i].kind == CK_SEG_OWN ?
		     w->piece[i].count : w->piece[i].count / es;
	return n;
}

struct ck_val *ck_wr_flat(struct wr *w, uint32_t number, bool requires_grad)
{
	const uint64_t n = store_numel(w, number), one = 1;
	const struct ck_tensor_ref ref = {
		.storage = number, .dtype = w->store[number].dtype, .ndim = 1, .shape = &n,
		.stride = &one, .numel = n, .requires_grad = requires_grad,
	};

	return ck_val_new_tensor(&w->arena, &ref);
}

struct ck_val *ck_wr_tensor(struct wr *w, uint32_t number, const uint64_t *shape, uint32_t ndim,
			    bool requires_grad)
{
	struct ck_tensor_ref ref = {
		.storage = number, .dtype = w->store[number].dtype, .ndim = ndim, .shape = shape,
		.numel = 1, .requires_grad = requires_grad,
	};
	uint64_t *stride = ck_arena_alloc(&w->arena, ((uint64_t)ndim + 1) * sizeof(*stride));

	if (!stride)
		return NULL;
	for (uint32_t d = ndim; d > 0; d--) {
		stride[d - 1] = ref.numel;
		ref.numel *= shape[d - 1];
	}
	ref.stride = stride;
	return ck_val_new_tensor(&w->arena, &ref);
}

/* Elements of a storage as they are, inflated and turned round if need be. */
static int copied(struct wr *w, const struct ck_step_file *file, const struct ck_tensor_ref *t,
		  const struct ds_slice *s, struct ck_pt_piece *out, struct ckpt_err *err)
{
	int rc = 0;

	*out = (struct ck_pt_piece){
		.kind = CK_SEG_FILE, .text = file->path, .slot = CK_NONE, .first = s->off,
		.count = s->numel * (ckpt_dtype_bits(s->dtype) / 8),
	};
	if (!s->flags || !s->numel)
		return 0;
	rc = ck_wr_own(w, file, &file->pt->storage[s->storage], out, err);
	out->first = t->offset;
	out->count = t->numel;
	return rc;
}

/* The file that a tensor of the optimizer is in; '*local_out' is the tensor in its numbers. */
static const struct ck_step_file *file_of(struct wr *w, const struct ck_tensor_ref *t,
					  struct ck_val **local_out)
{
	const struct ck_step_file *file = w->step->file;
	struct ck_tensor_ref ref = *t;

	for (uint32_t i = 1; i < w->step->nfiles; i++)
		if (t->storage >= w->step->file[i].first)
			file = &w->step->file[i];
	ref.storage = t->storage - file->first;
	*local_out = ck_val_new_tensor(&w->arena, &ref);
	return file;
}

struct ck_val *ck_wr_copy(struct wr *w, const struct ck_val *tensor, struct ckpt_err *err)
{
	struct ck_val *local;
	const struct ck_step_file *file = file_of(w, ck_val_tensor(tensor), &local);
	const struct ck_tensor_ref *t = ck_val_tensor(local);
	struct ck_pt_piece piece;
	struct ds_slice s;
	uint32_t number;

	if (!t)
		return NULL;
	if (!ck_ds_slice_of(file->pt, local, &s)) {
		ck_fail(err, CKPT_E_UNSUPPORTED, file->path, CKPT_NO_OFFSET,
			"a tensor of the optimizer is strided; zckpt cannot reshard it");
		return NULL;
	}
	if (copied(w, file, t, &s, &piece, err) ||
	    ck_wr_storage(w, (enum ckpt_dtype)s.dtype, &number, err) || add_piece(w, &piece, err))
		return NULL;
	return ck_wr_tensor(w, number, t->shape, t->ndim, t->requires_grad);
}

int ck_wr_finish(struct wr *w, const char *stem, const struct ck_val *root,
		 struct ckpt_err *err)
{
	struct ck_pt_part *part = ck_alloc_array(w->nstores + 1, sizeof(*part));
	struct ck_pt_want want = {
		.ix = w->ix, .prefix = stem ? ck_fs_base(stem) : NULL, .root = root,
		.storage = part,
		.nstorages = w->nstores,
		.name = stem ? ck_arena_printf(&w->arena, "%s/%s.pt", w->tag, stem) : NULL,
	};
	int rc = 0;

	if (!stem || !part || !want.name)
		rc = ck_fail_nomem(err, "a file", w->nstores);
	for (uint64_t i = 0; !rc && i < w->nstores; i++)
		part[i] = (struct ck_pt_part){
			.dtype = w->store[i].dtype, .npieces = w->store[i].npieces,
			.piece = w->piece ? w->piece + w->store[i].piece : NULL,
		};
	if (!rc)
		rc = ck_pt_plan_file(&want, w->plan, err);
	ck_free(part);
	ck_arena_release(&w->arena);
	return rc;
}
