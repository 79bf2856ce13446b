/*
 * rep_lanes.c -- how the files of each rank are cut: the pieces of tensors, in the order of bytes.
 *
 * A lane is one state in the files of one rank; of a checkpoint without ranks, in one file.  The
 * pieces of a lane are sorted by file and byte.  Those that follow each other without other bytes
 * between them are a segment: a group or sub-group of ZeRO, or a storage.  Within a segment the
 * place of a piece follows from the sizes before it, so that only segments have an offset, and the
 * states of one rank, which are cut alike, share one list of pieces (a layout).
 *
 * Padding.  At stage 3 each parameter is cut into 'world' parts of one length; what a rank's piece
 * lacks of it is padding after the piece.  At stages 1 and 2 a group is cut so, and the padding is
 * at the end of the group's last piece.  A checkpoint whose files have no padding, as
 * ckpt_sizes_get() says, gets none: a native one, and some old ones.
 *
 * A page has a budget of pieces.  Where there are more, neighbours below a size are drawn as one,
 * and the size is doubled until they fit.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <ckpt_zero.h>

#include "rep_data.h"

#define BUDGET 40000	/* pieces of all layouts, and segments of all lanes */
#define MANY 1000000	/* extents: rows of a block of columns are one piece then */
#define LATE 64		/* pieces that the next row of one may continue */
#define PATHS 64
#define HEADER 30	/* bytes of the smallest header between two storages of an archive */

struct piece {
	const char *member;	/* lent by the checkpoint; of a deflated one only */
	uint64_t offset, first, count, pad;	/* pad: elements */
	uint64_t span;		/* bytes, without padding */
	/* Padding before it, at the beginning of its storage: elements, and of which tensor. */
	uint64_t lead;
	uint32_t tensor, lead_tensor;
	uint32_t lane, file;	/* lane: rank + 1, or the file's number */
	int32_t group;
	uint32_t merged;	/* pieces that it stands for */
	uint16_t state;		/* number of its name */
	uint8_t dtype, bits;
	uint8_t broken;		/* other bytes are in it: the next one begins a segment */
	uint64_t runs;		/* that it consists of, each of as many elements */
};

struct lanes {
	struct rep *rep;
	struct piece *piece;
	size_t n, cap;
	const char *path[PATHS];	/* of the last calls of file_number(), and its results */
	uint32_t path_number[PATHS];
	const char **state;		/* names, lent */
	size_t nstates;
	struct rep_dict layouts, files;
	int padded;			/* groups have padding in the files */
	uint64_t least;			/* bytes below which neighbours are one */
	uint64_t written;		/* pieces in the layouts, and segments of the lanes */
};

/* ---------------------------------------------------------------- collecting */

static uint16_t state_number(struct lanes *l, const char *name)
{
	const char **more;

	for (size_t i = 0; i < l->nstates; i++)
		if (!strcmp(l->state[i], name))
			return (uint16_t)i;
	more = cli_alloc((l->nstates + 1) * sizeof(*more));
	if (l->nstates)
		memcpy(more, l->state, l->nstates * sizeof(*more));
	cli_free(l->state);
	l->state = more;
	more[l->nstates] = name;
	return (uint16_t)l->nstates++;
}

/* The number of a file among the names that were met. */
static uint32_t file_number(struct lanes *l, const char *path)
{
	const size_t slot = (uintptr_t)path / 16 % PATHS;
	char *text;
	size_t size;
	FILE *out;

	if (path == l->path[slot])
		return l->path_number[slot];
	out = rep_text_open(&text, &size);
	json_quote(out, path);
	fclose(out);
	l->path[slot] = path;
	l->path_number[slot] = (uint32_t)rep_dict_take(&l->files, text);
	return l->path_number[slot];
}

/* Of stage 3: what the part of the tensor is longer than this piece. */
static uint64_t padding_of_part(const struct lanes *l, const struct ckpt_tensor_info *t,
				const struct ckpt_extent_info *e)
{
	const struct ckpt_info *info = &l->rep->info;
	struct ckpt_zero_cut cut;

	if (!l->padded || info->stage != 3 || e->rank < 0 || e->runs != 1 ||
	    ckpt_z3_cut(t->numel, info->world, &cut) || e->count > cut.part ||
	    e->first != (uint64_t)e->rank * cut.part)
		return 0;
	return cut.part - e->count;
}

/* The next row of a block of columns: of a large checkpoint it is not kept for itself. */
static int continues(struct lanes *l, const struct piece *p)
{
	if (l->rep->info.nextents < MANY || l->padded || p->member || p->runs != 1)
		return 0;
	for (size_t i = l->n; i > 0 && i + LATE > l->n; i--) {
		struct piece *q = &l->piece[i - 1];

		if (q->tensor != p->tensor || q->state != p->state || q->file != p->file ||
		    q->lane != p->lane || q->offset + q->span != p->offset || q->runs != 1)
			continue;
		q->span += p->span;
		q->count += p->count;
		q->merged++;
		return 1;
	}
	return 0;
}

static void keep(struct lanes *l, const struct piece *p)
{
	struct piece *more;

	if (l->n == l->cap) {
		l->cap = l->cap ? 2 * l->cap : 1024;
		more = cli_alloc(l->cap * sizeof(*more));
		if (l->n)
			memcpy(more, l->piece, l->n * sizeof(*more));
		cli_free(l->piece);
		l->piece = more;
	}
	l->piece[l->n++] = *p;
}

static void add_extent(struct lanes *l, uint64_t i, const struct ckpt_tensor_info *t,
		       const struct ckpt_state_info *state, const struct ckpt_extent_info *e)
{
	const struct ckpt_info *info = &l->rep->info;
	const uint32_t bits = ckpt_dtype_bits(e->dtype);
	struct piece p;

	if (!e->count || !e->runs)
		return;
	p = (struct piece){
		.member = e->flags & CKPT_EXTENT_DEFLATED ? e->member : NULL,
		.tensor = (uint32_t)i, .offset = e->offset, .first = e->first,
		.count = e->count * e->runs, .pad = padding_of_part(l, t, e), .group = t->group,
		.bits = (uint8_t)bits, .dtype = (uint8_t)e->dtype, .merged = 1,
		.span = (e->runs - 1) * e->src_stride + (e->count * bits + 7) / 8,
		.runs = e->runs, .broken = e->runs > 1,
		.state = state_number(l, state->name), .file = file_number(l, e->path),
	};
	p.lane = info->world ? (uint32_t)(e->rank + 1) : p.file;
	if (!continues(l, &p))
		keep(l, &p);
}

static void collect(struct lanes *l)
{
	struct ckpt_tensor_info t;
	struct ckpt_state_info state;
	struct ckpt_extent_info e;

	for (uint64_t i = 0; !ckpt_tensor_get(l->rep->ck, i, &t, NULL); i++)
		for (uint32_t k = 0; t.role != CKPT_ROLE_ALIAS && k < t.nstates; k++) {
			if (ckpt_state_get(l->rep->ck, i, k, &state, NULL) ||
			    state.flags & CKPT_STATE_DERIVED)
				continue;
			for (uint64_t x = 0; x < state.nextents; x++)
				if (!ckpt_extent_get(l->rep->ck, i, k, x, &e, NULL))
					add_extent(l, i, &t, &state, &e);
		}
}

static int compare_numbers(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int by_place(const void *a, const void *b)
{
	const struct piece *p = a, *q = b;
	int order = compare_numbers(p->lane, q->lane);

	if (!order)
		order = compare_numbers(p->state, q->state);
	if (!order)
		order = compare_numbers(p->file, q->file);
	if (!order)
		order = strcmp(p->member ? p->member : "", q->member ? q->member : "");
	return order ? order : compare_numbers(p->offset, q->offset);
}

/* ---------------------------------------------------------------- padding of groups */

struct group_sum {
	uint32_t lane, state;
	int32_t group;
	uint64_t elements;	/* from its first piece to the end of its last one */
	size_t first, last;	/* numbers of these */
};

static int by_group(const void *a, const void *b)
{
	const struct group_sum *p = a, *q = b;
	int order = compare_numbers(p->state, q->state);

	return order ? order : (p->group > q->group) - (p->group < q->group);
}

static uint64_t elements_between(const struct piece *first, const struct piece *last)
{
	return (last->offset - first->offset + last->span) * 8 / (first->bits ? first->bits : 8);
}

/* The sum of each lane, state and group, which is one storage; pieces are in its order. */
static size_t sum_groups(const struct lanes *l, struct group_sum *sum)
{
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++) {
		const struct piece *p = &l->piece[i];
		struct group_sum *last = n ? &sum[n - 1] : NULL;

		if (!p->lane || p->group < 0 || !strcmp(l->state[p->state], "weight"))
			continue;
		if (!last || last->lane != p->lane || last->state != p->state ||
		    last->group != p->group)
			*(last = &sum[n++]) = (struct group_sum){ p->lane, p->state, p->group,
								       0, i, i };
		last->last = i;
		last->elements = elements_between(&l->piece[last->first], p);
	}
	return n;
}

/* Elements of a rank's part of a group, whose ranks are sum[0..n-1]. */
static uint64_t part_of_group(const struct lanes *l, const struct group_sum *sum, size_t n)
{
	struct ckpt_zero_cut cut;
	uint64_t most = 0, all = 0;

	for (size_t k = 0; k < n; k++) {
		most = sum[k].elements > most ? sum[k].elements : most;
		all += sum[k].elements;
	}
	/* DeepSpeed aligns a group to two elements a rank, which shows where one rank has it all */
	return n == 1 && !ckpt_z12_cut(all, l->rep->info.world, 2, &cut) && cut.part > most ?
	       cut.part : most;
}

/* Stages 1 and 2: each rank has as much of a group as the one that has most. */
static void pad_groups(struct lanes *l)
{
	struct group_sum *sum;
	size_t n, end;

	if (!l->padded || (l->rep->info.stage != 1 && l->rep->info.stage != 2) || !l->n)
		return;
	sum = cli_alloc(l->n * sizeof(*sum));
	n = sum_groups(l, sum);
	qsort(sum, n, sizeof(*sum), by_group);
	for (size_t i = 0; i < n; i = end) {
		uint64_t part;

		for (end = i; end < n && !by_group(&sum[i], &sum[end]); end++)
			;
		part = part_of_group(l, &sum[i], end - i);
		for (size_t k = i; k < end; k++)
			l->piece[sum[k].last].pad += part - sum[k].elements;
	}
	cli_free(sum);
}

/* ---------------------------------------------------------------- parts of padding alone */

/* Whether rank 'lane - 1' has a part of the tensor of rank 0's piece 'p' that is all padding. */
static int is_all_padding(const struct lanes *l, const struct piece *p, uint32_t lane)
{
	struct ckpt_tensor_info t;
	struct ckpt_zero_cut cut;

	return !ckpt_tensor_get(l->rep->ck, p->tensor, &t, NULL) &&
	       !ckpt_z3_cut(t.numel, l->rep->info.world, &cut) && p->count == cut.part &&
	       !ckpt_zero_valid_numel(&cut, lane - 1);
}

/*
 * The sub-groups of all ranks have the same parts in the same order, so rank 0's pieces say where
 * a rank has a part that is all padding: in the same storage, after the piece before it, or at the
 * beginning, before the first piece.
 */
static void pad_lane(struct lanes *l, const struct piece *model, size_t nmodel, struct piece *own,
		     size_t nown)
{
	struct piece *before = NULL;
	uint64_t lead = 0, lead_tensor = 0;

	for (size_t i = 0, k = 0; i < nmodel; i++) {
		if (i && model[i].offset != model[i - 1].offset + model[i - 1].span) {
			before = NULL;	/* another storage */
			lead = 0;
		}
		if (k < nown && own[k].tensor == model[i].tensor) {
			if (!before) {
				own[k].lead = lead;
				own[k].lead_tensor = lead_tensor;
			}
			before = &own[k++];
		} else if (is_all_padding(l, &model[i], own->lane)) {
			lead_tensor = lead ? lead_tensor : model[i].tensor;
			if (before)
				before->pad += model[i].count;
			else
				lead += model[i].count;
		}
	}
}

static size_t lane_end(const struct lanes *l, size_t from)
{
	size_t end = from;

	while (end < l->n && l->piece[end].lane == l->piece[from].lane &&
	       l->piece[end].state == l->piece[from].state)
		end++;
	return end;
}

static void pad_empty(struct lanes *l)
{
	size_t end, other;

	if (l->rep->info.stage != 3)
		return;
	for (size_t i = 0; i < l->n && l->piece[i].lane <= 1; i = end) {
		end = lane_end(l, i);
		if (l->piece[i].lane != 1 || !strcmp(l->state[l->piece[i].state], "weight"))
			continue;
		for (size_t k = end; k < l->n; k = other) {
			other = lane_end(l, k);
			if (l->piece[k].state == l->piece[i].state)
				pad_lane(l, &l->piece[i], end - i, &l->piece[k], other - k);
		}
	}
}

/* ---------------------------------------------------------------- layouts */

static uint64_t bytes_with_padding(const struct piece *p)
{
	return p->span + (p->pad * p->bits + 7) / 8;
}

/*
 * Whether 'b' is in the storage of 'a', at most padding between them.  Sets that padding: in an
 * archive, fewer bytes than a header has are of no other storage.
 */
static int follows(const struct lanes *l, struct piece *a, const struct piece *b)
{
	const uint64_t end = a->offset + bytes_with_padding(a);

	if (a->file != b->file || a->group != b->group || a->dtype != b->dtype ||
	    strcmp(a->member ? a->member : "", b->member ? b->member : "") || b->offset < end)
		return 0;
	if (b->offset == end)
		return 1;
	if (!l->padded || b->offset - end >= HEADER || !a->bits ||
	    (b->offset - end) * 8 % a->bits)
		return 0;
	a->pad += (b->offset - end) * 8 / a->bits;
	return 1;
}

/* The pieces of one lane, from 'from' on, with small neighbours as one; their number. */
static size_t merge(const struct lanes *l, size_t from, size_t end, struct piece *out)
{
	size_t n = 0;

	for (size_t i = from; i < end; i++) {
		struct piece p = l->piece[i];
		struct piece *last = n ? &out[n - 1] : NULL;

		if (last && l->least && !p.lead && p.runs == 1 &&
		    last->runs == 1 && last->file == p.file &&
		    last->group == p.group && last->dtype == p.dtype &&
		    p.span + last->span < l->least && p.offset >= last->offset) {
			last->broken |= !follows(l, last, &p);
			last->span += p.span;
			last->count += p.count;
			last->pad += p.pad;
			last->merged += p.merged;
		} else {
			out[n++] = p;
		}
	}
	return n;
}

/* A segment of runs says how many. */
static void end_segment(uint64_t runs, FILE *out)
{
	fputc(']', out);
	if (runs > 1)
		fprintf(out, ",%" PRIu64, runs);
	fputc(']', out);
}

/* Opens a segment, and says where it is; 'runs' of the one before it, 0: it is the first. */
static void begin_segment(const struct piece *p, uint64_t runs, FILE *out, FILE *places)
{
	if (runs) {
		end_segment(runs, out);
		fputc(',', out);
	}
	fprintf(out, "[%" PRId32 ",%" PRIu32 ",[", p->group, (uint32_t)p->bits);
	if (p->lead)
		fprintf(out, "%" PRIu32 ",0,0,%" PRIu64 ",", p->lead_tensor, p->lead);
	fprintf(places, "%s[%" PRIu32 ",%" PRIu64, runs ? "," : "", p->file,
		p->offset - p->lead * p->bits / 8);
	if (p->member) {
		fputc(',', places);
		json_quote(places, p->member);
	}
	fputc(']', places);
}

static void put_piece(const struct piece *p, FILE *out)
{
	fprintf(out, "%" PRIu32 ",", p->tensor);
	if (p->merged > 1)
		fprintf(out, "-%" PRIu32, p->merged);
	else
		fprintf(out, "%" PRIu64, p->first);
	fprintf(out, ",%" PRIu64 ",%" PRIu64, p->count, p->pad);
}

/*
 * [group, bits, [tensor, first, count, padding, ...]] of each segment; of merged pieces 'first' is
 * minus their number.  A piece of several runs is a segment alone, with a fourth member, the number
 * of runs: its elements are in order, but not neighbours, in the tensor and in the file.
 */
static size_t layout_of(struct lanes *l, struct piece *p, size_t n, FILE *places)
{
	char *text;
	size_t size;
	FILE *out = rep_text_open(&text, &size);

	fputc('[', out);
	for (size_t i = 0; i < n; i++) {
		const int begins = !i || p[i].lead || p[i].runs > 1 || p[i - 1].broken ||
				   !follows(l, &p[i - 1], &p[i]);

		l->written += begins;
		if (begins)
			begin_segment(&p[i], i ? p[i - 1].runs : 0, out, places);
		else
			fputc(',', out);
		/* the padding before the next piece is known when that has been looked at */
		if (i + 1 < n && !p[i].broken)
			follows(l, &p[i], &p[i + 1]);
		put_piece(&p[i], out);
	}
	if (n)
		end_segment(p[n - 1].runs, out);
	fputc(']', out);
	fclose(out);
	return rep_dict_take(&l->layouts, text);
}

/* One lane as an object of 'out'; without 'out' only its layout is made. */
static void put_lane(struct lanes *l, size_t from, size_t end, FILE *out)
{
	struct piece *p = cli_alloc((end - from) * sizeof(*p));
	const size_t n = merge(l, from, end, p), before = l->layouts.n;
	const struct piece *first = &l->piece[from];
	char *places;
	size_t size, layout;
	FILE *at = rep_text_open(&places, &size);

	layout = layout_of(l, p, n, at);
	fclose(at);
	l->written += layout >= before ? n : 0;
	if (out) {
		fprintf(out, "{\"rank\":");
		if (l->rep->info.world && first->lane)
			fprintf(out, "%" PRIu32, first->lane - 1);
		else
			fputs("null", out);
		fprintf(out, ",\"state\":");
		json_quote(out, l->state[first->state]);
		fprintf(out, ",\"layout\":%zu,\"at\":[%s]}", layout, places);
	}
	free(places);
	cli_free(p);
}

/* All lanes; stops early without 'out' when the budget is spent. */
static void put_lanes(struct lanes *l, FILE *out)
{
	size_t end;

	for (size_t i = 0; i < l->n && (out || l->written <= BUDGET); i = end) {
		end = lane_end(l, i);
		if (out && i)
			fputc(',', out);
		put_lane(l, i, end, out);
	}
}

static void fit(struct lanes *l)
{
	for (;;) {
		put_lanes(l, NULL);
		if (l->written <= BUDGET || l->least >> 62)
			return;
		rep_dict_release(&l->layouts);
		l->written = 0;
		l->least = l->least ? 2 * l->least : 64;
	}
}

/* Size and rank of the files, in the order of the numbers that lanes use. */
static void put_files(struct lanes *l)
{
	struct json *json = l->rep->json;
	struct ckpt_file_info file;
	uint64_t *bytes;
	size_t n;

	for (uint64_t i = 0; !ckpt_file_get(l->rep->ck, i, &file, NULL); i++)
		file_number(l, file.path);
	n = l->files.n;
	bytes = cli_alloc((n + 1) * sizeof(*bytes));
	for (uint64_t i = 0; !ckpt_file_get(l->rep->ck, i, &file, NULL); i++)
		bytes[file_number(l, file.path)] = file.bytes;
	rep_dict_json(&l->files, json, "files");
	json_open(json, "file_bytes", '[');
	for (size_t i = 0; i < n; i++)
		fprintf(json->out, "%s%" PRIu64, i ? "," : "", bytes[i]);
	json_close(json, ']');
	cli_free(bytes);
}

void rep_lanes(struct rep *rep)
{
	struct lanes l = { .rep = rep, .padded = rep->padded };
	struct json *json = rep->json;

	collect(&l);
	if (l.n)
		qsort(l.piece, l.n, sizeof(*l.piece), by_place);
	pad_groups(&l);
	pad_empty(&l);
	fit(&l);
	json_uint(json, "pieces", l.n);
	json_uint(json, "merged_below", l.least);
	json_open(json, "lanes", '[');
	put_lanes(&l, json->out);
	json_close(json, ']');
	rep_dict_json(&l.layouts, json, "layouts");
	put_files(&l);
	rep_dict_release(&l.layouts);
	rep_dict_release(&l.files);
	cli_free(l.state);
	cli_free(l.piece);
}
