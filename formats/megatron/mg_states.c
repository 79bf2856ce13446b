/*
 * mg_states.c -- states that have the names of their parameters.
 *
 * Their items have the shape of the parameter, or (fully_sharded_model_space) one more axis than
 * it: [X/x, Y/y, ..., x * y * ...].  The leading axes count blocks of x by y by ... elements, the
 * last one goes through a block, row by row; shards of data parallel ranks cut it anywhere.
 *
 * Of the legacy grouped experts (GroupedMLP, up to 0.14) the last two axes of such blocks are
 * exchanged: the optimizer has weight1 [H, 2F] and weight2 [F, H], the model's items their
 * transposes.  Elements of a row of the parameter are then as far apart as the block is wide, and
 * an extent with a view has them.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/megatron/mg.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_dtype.h"

#define AXES 16u

/* An item in blocks. */
struct blocks {
	struct mg *mg;
	struct mg_param *p;
	const struct dcp_item *it;
	uint64_t size[AXES];	/* of a block, in the axes of the item */
	bool turned;		/* its last two axes are those of the parameter, exchanged */
	uint64_t view_rows, view_cols, view_step;	/* the last view that was made */
	uint32_t view;
};

static void leave_out(struct mg *mg, struct mg_param *p, const struct dcp_item *it,
		      const char *why)
{
	if (p)
		p->no_states = why;
	ck_findings_add(mg->fs.f, CK_FINDING_NOT_IN_CHECKPOINT, it->flat, "left out: %s", why);
}

struct ck_extent ck_mg_extent(const struct mg *mg, const struct dcp_item *it,
			      const struct dcp_chunk *c)
{
	const struct dcp_file *file = &mg->fs.file[c->at.file];

	return (struct ck_extent){
		.off = c->data, .source = file->source, .member = CK_NONE, .view = CK_NONE,
		.rank = file->rank, .dtype = it->dtype,
	};
}

/* ---- shape ---- */

/* As the writer notes it, where torch has not dropped the note; else NULL. */
static const uint64_t *noted_shape(struct mg *mg, const struct dcp_item *it, uint32_t ndim)
{
	const struct ck_val *v = ck_val_get(ck_val_get(mg->mcore_data, it->flat),
					    "nd_reformulated_orig_global_shape");
	const uint64_t *shape;
	uint64_t n;

	return v && ck_dcp_sizes_of(&mg->fs, v, &shape, &n) && n == ndim ? shape : NULL;
}

static bool is_turned_shape(const struct mg_param *p, const uint64_t *shape)
{
	const uint32_t n = p->ndim;

	return n >= 2 && shape[n - 1] == p->shape[n - 2] && shape[n - 2] == p->shape[n - 1] &&
	       !memcmp(shape, p->shape, (n - 2) * sizeof(*shape));
}

/* The state of the other matrix of the same experts: of one of the two the shapes differ. */
static const struct dcp_item *partner_of(const struct mg *mg, const struct dcp_item *it,
					 const struct mg_param **p_out)
{
	char key[512];
	char *at;

	if (strlen(it->name) >= sizeof(key))
		return NULL;
	memcpy(key, it->name, strlen(it->name) + 1);
	at = strstr(key, "linear_fc");
	if (!at || (at[9] != '1' && at[9] != '2'))
		return NULL;
	at[9] = at[9] == '1' ? '2' : '1';
	*p_out = ck_mg_param_find(mg, key);
	for (uint64_t i = 0; i < mg->fs.nitems && *p_out; i++) {
		const struct dcp_item *other = &mg->fs.item[i];

		if (other->use == MG_BY_NAME && other->which == it->which &&
		    !strcmp(other->name, key))
			return other;
	}
	return NULL;
}

/* Gate and up are blocks of their own, so the axis with two of them is that of 2F. */
static bool is_turned_grid(const struct mg_param *p, const struct dcp_item *it)
{
	const uint32_t n = p->ndim;

	return n >= 2 && strstr(p->key, "linear_fc1") && it->shape[n - 2] == 1 &&
	       it->shape[n - 1] > 1;
}

static bool is_turned(struct mg *mg, const struct mg_param *p, const struct dcp_item *it)
{
	const uint64_t *shape = noted_shape(mg, it, p->ndim);
	const struct mg_param *q;
	const struct dcp_item *other;

	if (!strstr(p->key, ".experts.experts.linear_fc"))
		return false;
	if (shape && memcmp(shape, p->shape, p->ndim * sizeof(*shape)))
		return is_turned_shape(p, shape);
	if (shape && p->ndim >= 2 && shape[p->ndim - 1] != shape[p->ndim - 2])
		return false;
	other = partner_of(mg, it, &q);
	shape = other ? noted_shape(mg, other, q->ndim) : NULL;
	if (shape)
		return memcmp(shape, q->shape, q->ndim * sizeof(*shape)) &&
		       is_turned_shape(q, shape);
	return is_turned_grid(p, it) || (other && other->ndim == q->ndim + 1 &&
					 is_turned_grid(q, other));
}

/* The size of a block follows from the full shape; NULL, or why it does not. */
static const char *measure(struct blocks *b)
{
	const struct mg_param *p = b->p;
	const struct dcp_item *it = b->it;
	const uint32_t n = p->ndim;
	uint64_t all = 1;

	for (uint32_t d = 0; d < n; d++) {
		const uint32_t from = b->turned && d + 2 >= n ? 2 * n - 3 - d : d;

		if (!it->shape[d] || p->shape[from] % it->shape[d])
			return "its blocks do not divide the parameter";
		b->size[d] = p->shape[from] / it->shape[d];
		all *= b->size[d];
	}
	return all == it->shape[n] ? NULL : "its blocks have another size than the parameter's";
}

/* ---- pieces ---- */

static int view_of(struct blocks *b, uint64_t rows, uint64_t cols, uint64_t step, uint32_t *out,
		   struct ckpt_err *err)
{
	const uint64_t shape[] = { rows, cols }, stride[] = { 1, step };
	const bool is_new = b->view == CK_NONE || b->view_rows != rows || b->view_cols != cols ||
			    b->view_step != step;
	int rc = is_new ? ck_index_add_view(b->mg->fs.ix, shape, stride, 2, &b->view, err) : 0;

	if (!rc) {
		b->view_rows = rows;
		b->view_cols = cols;
		b->view_step = step;
		*out = b->view;
	}
	return rc;
}

/* A block that has whole rows of the parameter: one extent. */
static int add_turned_whole(struct blocks *b, enum mg_which which, const uint64_t *offset,
			    const uint64_t *size, const struct ck_extent *at, struct ckpt_err *err)
{
	const uint32_t n = b->p->ndim;
	struct mg_piece piece = { .offset = offset, .size = size,
				  .count = size[n - 2] * size[n - 1], .extent = *at };
	int rc;

	piece.extent.flags |= CKPT_EXTENT_GATHER;
	rc = view_of(b, size[n - 2], size[n - 1], size[n - 2], &piece.extent.view, err);
	return rc ? rc : ck_mg_piece_add(b->mg, b->p, which, &piece, err);
}

/* Blocks of one layer and one expert, as wide as the parameter. */
static bool has_whole_rows(const struct blocks *b, const uint64_t *size)
{
	const uint32_t n = b->p->ndim;

	for (uint32_t d = 0; d + 2 < n; d++)
		if (size[d] != 1)
			return false;
	return size[n - 1] == b->p->shape[n - 1];
}

/*
 * Elements [first, first + count) of a turned block: element k of it is in column k / wide of the
 * parameter's block, and in row k % wide.  So each row of the parameter gets every wide-th.
 */
static int add_turned(struct blocks *b, enum mg_which which, const uint64_t *offset,
		      const uint64_t *size, uint64_t first, uint64_t count,
		      const struct ck_extent *at, struct ckpt_err *err)
{
	const uint32_t n = b->p->ndim;
	const uint64_t wide = size[n - 2], es = ckpt_dtype_bits(at->dtype) / 8;
	int rc = 0;

	for (uint64_t row = 0; !rc && row < wide; row++) {
		const uint64_t k = first + (row + wide - first % wide) % wide;
		const uint64_t rows = k < first + count ? (first + count - 1 - k) / wide + 1 : 0;
		uint64_t begin[AXES], one[AXES];
		struct mg_piece piece = { .offset = begin, .size = one, .count = rows,
					  .extent = *at };

		memcpy(begin, offset, n * sizeof(*begin));
		memcpy(one, size, n * sizeof(*one));
		begin[n - 2] += k % wide;
		one[n - 2] = 1;
		begin[n - 1] += k / wide;
		one[n - 1] = rows;
		piece.extent.off += (k - first) * es;
		if (rows > 1) {
			piece.extent.flags |= CKPT_EXTENT_GATHER;
			rc = view_of(b, 1, rows, wide, &piece.extent.view, err);
		}
		if (!rc && rows)
			rc = ck_mg_piece_add(b->mg, b->p, which, &piece, err);
	}
	return rc;
}

/* Block number 'cell' of the leading axes of a chunk. */
static int add_cell(struct blocks *b, enum mg_which which, const struct dcp_chunk *c,
		    uint64_t cell, struct ckpt_err *err)
{
	const uint32_t n = b->p->ndim;
	const uint64_t first = c->offset[n], count = c->size[n];
	struct ck_extent at = ck_mg_extent(b->mg, b->it, c);
	uint64_t offset[AXES], size[AXES], rest = cell;

	for (uint32_t d = n; d > 0; d--) {
		const uint32_t to = b->turned && d - 1 + 2 >= n ? 2 * n - 3 - (d - 1) : d - 1;

		offset[to] = (c->offset[d - 1] + rest % c->size[d - 1]) * b->size[d - 1];
		size[to] = b->size[d - 1];
		rest /= c->size[d - 1];
	}
	at.off += cell * count * (ckpt_dtype_bits(at.dtype) / 8);
	if (b->turned && !first && count == b->it->shape[n] && has_whole_rows(b, size))
		return add_turned_whole(b, which, offset, size, &at, err);
	if (b->turned)
		return add_turned(b, which, offset, size, first, count, &at, err);
	return ck_mg_piece_add(b->mg, b->p, which, &(struct mg_piece){
		.offset = offset, .size = size, .first = first, .count = count, .extent = at,
	}, err);
}

static int add_blocks(struct mg *mg, struct mg_param *p, const struct dcp_item *it,
		      struct ckpt_err *err)
{
	struct blocks b = { .mg = mg, .p = p, .it = it, .view = CK_NONE };
	const char *why;
	int rc = 0;

	b.turned = is_turned(mg, p, it);
	why = measure(&b);
	if (why) {
		leave_out(mg, p, it, why);
		return 0;
	}
	for (uint64_t i = 0; !rc && i < it->nchunks; i++) {
		const struct dcp_chunk *c = &it->chunk[i];
		uint64_t cells = 1;

		for (uint32_t d = 0; d < p->ndim; d++)
			cells *= c->size[d];
		for (uint64_t k = 0; !rc && c->is_read && k < cells; k++)
			rc = add_cell(&b, (enum mg_which)it->which, c, k, err);
	}
	return rc;
}

static bool has_elements(const struct dcp_item *it)
{
	for (uint64_t i = 0; i < it->nchunks; i++)
		if (it->chunk[i].numel)
			return true;
	return false;
}

static int add_state(struct mg *mg, const struct dcp_item *it, struct ckpt_err *err)
{
	struct mg_param *p = ck_mg_param_find(mg, it->name);

	if (!p) {
		leave_out(mg, NULL, it, "the model has no tensor of this name");
		return 0;
	}
	if (p->state[it->which].dtype) {
		leave_out(mg, p, it, "the parameter has this state already");
		return 0;
	}
	p->state[it->which].item = it;
	if (p->numel && !has_elements(it)) {
		ck_findings_add(mg->fs.f, CK_FINDING_LENGTH_WRONG, it->flat,
				"its blocks in '.metadata' have no elements, the parameter has "
				"%" PRIu64, p->numel);
		return 0;
	}
	if (it->ndim == p->ndim && !memcmp(it->shape, p->shape, p->ndim * sizeof(*p->shape)))
		return ck_mg_chunks_add(mg, p, (enum mg_which)it->which, it, err);
	if (it->ndim == p->ndim + 1 && p->ndim && it->ndim <= AXES &&
	    ckpt_dtype_bits((enum ckpt_dtype)it->dtype) >= 8)
		return add_blocks(mg, p, it, err);
	leave_out(mg, p, it, "its shape is not that of the parameter");
	return 0;
}

int ck_mg_states_find(struct mg *mg, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < mg->fs.nitems; i++)
		if (mg->fs.item[i].use == MG_BY_NAME)
			rc = add_state(mg, &mg->fs.item[i], err);
	return rc;
}
