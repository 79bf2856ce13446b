/* dcp_list.c -- what a folder has, as its index lists it. */
#include "formats/dcp/dcp_out.h"
#include "formats/dcp_files/ck_dcp_out.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

/* Where a block begins, or how large it is: rows of the tensor. */
static const uint64_t *rows_of(struct dcp_out *o, const struct dcp_entry *e,
			       const struct dcp_spot *s, bool is_size)
{
	const uint64_t rows = is_size ? s->rows : s->row;
	uint64_t *dim;

	if (s->from)
		return is_size ? s->from->size : s->from->offset;
	dim = ck_arena_zalloc(o->arena, ((uint64_t)e->ndim + 1) * sizeof(*dim));
	for (uint32_t k = 0; dim && k < e->ndim; k++)
		dim[k] = k ? is_size ? e->shape[k] : 0 : rows;
	return dim;
}

static int list_entry(struct dcp_out *o, const struct dcp_entry *e, struct ck_dcp_listed *out,
		      struct ckpt_err *err)
{
	struct ck_dcp_block *block = ck_arena_zalloc(o->arena, (e->nspots + 1) * sizeof(*block));
	bool ok = block != NULL;

	for (uint64_t i = 0; ok && i < e->nspots; i++) {
		const struct dcp_spot *s = &e->spot[i];

		block[i] = (struct ck_dcp_block){
			.file = ck_arena_printf(o->arena, "__%u_0.distcp", s->rank),
			.begin = s->begin, .bytes = s->bytes,
			.offset = e->is_tensor ? rows_of(o, e, s, false) : NULL,
			.size = e->is_tensor ? rows_of(o, e, s, true) : NULL,
		};
		ok = block[i].file && (!e->is_tensor || (block[i].offset && block[i].size));
	}
	*out = (struct ck_dcp_listed){
		.name = e->name, .path = e->path, .block = block, .nblocks = e->nspots,
		.shape = e->shape, .ndim = e->ndim, .dtype = e->dtype, .is_tensor = e->is_tensor,
	};
	return ok ? 0 : ck_fail_nomem(err, "an index", e->nspots);
}

int ck_dcp_list_write(struct dcp_out *o, uint8_t part, struct ckpt_err *err)
{
	struct ck_dcp_listed *item = ck_alloc_array(o->n + 1, sizeof(*item));
	struct ck_dcp_meta meta = {
		.name = ck_arena_printf(o->arena, "%s/%s.metadata", o->tag,
					ck_dcp_layout_folder(o, part)),
		.item = item, .has_paths = true, .is_old = o->is_old,
	};
	int rc = item && meta.name ? 0 : ck_fail_nomem(err, "an index", o->n);

	for (uint64_t i = 0; !rc && i < o->n; i++)
		if (o->entry[i].part == part)
			rc = list_entry(o, &o->entry[i], &item[meta.n++], err);
	if (!rc)
		rc = ck_dcp_meta_write(o->plan, &meta, err);
	ck_free(item);
	return rc;
}
