/*
 * nat_text.c -- the manifest as text.  What is known only when all bytes are written (sums and
 * digests) has its place marked in the plan.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/native/ck_nat.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/json/ck_json_out.h"

#define MOST ((size_t)4 << 30)

/* 32 digits that are filled in later. */
static void put_later(struct ck_json_out *t, const char *key, uint64_t *fill_out)
{
	ck_json_out_hash(t, key, (struct ck_hash128){ 0 });
	*fill_out = ck_json_out_digits(t);
}

static void put_head(struct ck_json_out *t, const struct ck_nat_want *w)
{
	const struct ck_index *ix = w->ix;

	ck_json_out_raw(t, "{\n\"format\": \"" CK_NAT_FORMAT "\",\n");
	ck_json_out_str(t, "\"zckpt\": ", CKPT_VERSION_STRING);
	ck_json_out_hash(t, ",\n\"id\": ", w->id);
	if (w->alone) {
		ck_json_out_int(t, ",\n\"part\": [", w->cut_rank);
		ck_json_out_int(t, ", ", w->world);
		ck_json_out_raw(t, "]");
	}
	ck_json_out_str(t, ",\n\"checkpoint\": {\"tag\": ", w->tag);
	ck_json_out_str(t, ", \"writer\": ", ix->writer);
	ck_json_out_str(t, ", \"optimizer\": ", ix->optimizer);
	ck_json_out_int(t, ", \"stage\": ", w->stage);
	ck_json_out_int(t, ", \"world\": ", w->world);
	ck_json_out_int(t, ", \"groups\": ", (int64_t)w->ngroups);
	ck_json_out_int(t, ", \"step\": ", ix->step);
	ck_json_out_raw(t, "},\n\"facts\": [");
	for (uint64_t i = 0; i < w->nfacts; i++) {
		ck_json_out_str(t, i ? ",\n[" : "\n[", w->fact[i].key);
		ck_json_out_str(t, ", ", w->fact[i].value);
		ck_json_out_raw(t, "]");
	}
	ck_json_out_raw(t, "\n],\n");
}

/* The number in rest-00003.pt; rest.pt is rank 0's. */
static uint32_t rank_of(const struct nat_out *o, uint64_t file, const char *name)
{
	if (o->head_len[file])
		return o->rank[file];
	return strncmp(name, "rest-", 5) ? 0 : (uint32_t)strtoul(name + 5, NULL, 10);
}

static void put_files(struct ck_json_out *t, const struct nat_out *o)
{
	const size_t skip = strlen(o->want->tag) + 1;

	ck_json_out_raw(t, "\"files\": [");
	for (uint64_t i = 0; i < o->plan->nfiles; i++) {
		const struct ck_outfile *f = &o->plan->file[i];

		ck_json_out_str(t, i ? ",\n{\"name\": " : "\n{\"name\": ", f->name + skip);
		ck_json_out_int(t, ", \"bytes\": ", (int64_t)f->bytes);
		ck_json_out_int(t, ", \"rank\": ", rank_of(o, i, f->name + skip));
		ck_json_out_int(t, ", \"head\": ", (int64_t)o->head_len[i]);
		if (o->head_len[i])
			ck_json_out_hash(t, ", \"hash\": ", o->head[i]);
		else
			ck_json_out_str(t, ", \"hash\": ", "");
		ck_json_out_raw(t, "}");
	}
	ck_json_out_raw(t, "\n],\n");
}

/* No entry: a name that JSON cannot say, and files that pack and slim leave out (ck_folder.h). */
static bool is_said(const struct ck_nat_want *w, uint64_t i)
{
	const char *name = w->along[i].name;
	uint64_t bad;

	return ck_utf8_valid(name, strlen(name), &bad) && name[0] != '.' && !strstr(name, "/.") &&
	       !strstr(name, ".zckpt-") && !strstr(name, "zckpt-manifest.json");
}

static void put_beside(struct ck_json_out *t, struct nat_out *o)
{
	const struct ck_nat_want *w = o->want;
	uint64_t n = 0;

	for (uint64_t i = 0; i < w->nalong; i++) {
		if (!is_said(w, i))
			continue;
		ck_json_out_raw(t, n++ ? ",\n" : "\"beside\": [\n");
		ck_json_out_str(t, "{\"name\": ", w->along[i].name);
		ck_json_out_int(t, ", \"bytes\": ", (int64_t)w->along[i].bytes);
		put_later(t, ", \"sum\": ", &o->along[i]);
		ck_json_out_raw(t, "}");
	}
	if (n)
		ck_json_out_raw(t, "\n],\n");
}

/* Does it begin or end within a block of the state's digest? */
static bool cuts_block(const struct nat_out *o, const struct nat_piece *p)
{
	const struct ck_nat_tensor *t = &o->want->tensor[p->tensor];
	const uint32_t bits = ckpt_dtype_bits((enum ckpt_dtype)t->state[p->state].dtype);
	const uint64_t per = CK_DIGEST_BLOCK * 8 / bits, end = p->first + p->count;

	return p->first % per || (end % per && end != o->want->ix->tensor[t->tensor].numel);
}

static void put_piece(struct ck_json_out *t, const struct nat_out *o, const struct nat_piece *p,
		      bool first)
{
	ck_json_out_int(t, first ? "[" : ", [", p->file);
	ck_json_out_int(t, ", ", (int64_t)p->off);
	ck_json_out_int(t, ", ", (int64_t)p->first);
	ck_json_out_int(t, ", ", (int64_t)p->count);
	put_later(t, ", ", &o->plan->slot[p->slot].fill);
	if (cuts_block(o, p))
		put_later(t, ", ", &o->plan->slot[p->slot].ends);
	else
		ck_json_out_str(t, ", ", "");
	ck_json_out_raw(t, "]");
}

static void put_digest(struct ck_json_out *t, const struct nat_out *o, uint64_t i, uint32_t s)
{
	const struct ck_tensor *tensor = &o->want->ix->tensor[o->want->tensor[i].tensor];
	const struct ck_nat_state *state = &o->want->tensor[i].state[s];
	const uint32_t slot = o->slot[i][s];

	if (o->want->alone)	/* other ranks have some of it */
		ck_json_out_str(t, ", \"digest\": ", "");
	else if (slot != CK_NONE)
		put_later(t, ", \"digest\": ", &o->plan->slot[slot].fill);
	else if (state->flags & CKPT_STATE_DERIVED)
		ck_json_out_str(t, ", \"digest\": ", "");
	else	/* no elements */
		ck_json_out_hash(t, ", \"digest\": ",
				 ck_digest_close(ckpt_dtype_name((enum ckpt_dtype)state->dtype),
						 tensor->shape, tensor->ndim,
						 (struct ck_hash128){ 0 }));
}

/* Pieces are sorted by tensor and state; '*at' is the next one. */
static void put_state(struct ck_json_out *t, const struct nat_out *o, uint64_t i, uint32_t s,
		      uint64_t *at)
{
	const struct ck_nat_state *state = &o->want->tensor[i].state[s];
	bool first = true;

	ck_json_out_str(t, s ? ", {\"name\": " : "{\"name\": ", state->name);
	ck_json_out_str(t, ", \"dtype\": ", ckpt_dtype_name((enum ckpt_dtype)state->dtype));
	put_digest(t, o, i, s);
	if (state->flags & CKPT_STATE_DERIVED)
		ck_json_out_raw(t, ", \"derived\": true");
	if (state->flags & CKPT_STATE_PER_RANK)
		ck_json_out_raw(t, ", \"per_rank\": true");
	ck_json_out_raw(t, ", \"pieces\": [");
	for (; *at < o->npieces && o->piece[*at].tensor == i && o->piece[*at].state == s; ++*at) {
		put_piece(t, o, &o->piece[*at], first);
		first = false;
	}
	ck_json_out_raw(t, "]}");
}

static void put_tensor(struct ck_json_out *t, const struct nat_out *o, uint64_t i, uint64_t *at)
{
	const struct ck_nat_tensor *mine = &o->want->tensor[i];
	const struct ck_tensor *tensor = &o->want->ix->tensor[mine->tensor];

	ck_json_out_str(t, i ? ",\n{\"name\": " : "\n{\"name\": ", tensor->name);
	ck_json_out_str(t, ", \"role\": ", ck_role_name(tensor->role));
	ck_json_out_shape(t, ", \"shape\": ", tensor->shape, tensor->ndim);
	ck_json_out_int(t, ", \"group\": ", mine->group);
	if (tensor->role == CKPT_ROLE_ALIAS)
		ck_json_out_str(t, ", \"alias_of\": ",
				o->want->ix->tensor[tensor->alias_of].name);
	ck_json_out_raw(t, ", \"states\": [");
	for (uint32_t s = 0; s < mine->nstates; s++)
		put_state(t, o, i, s, at);
	ck_json_out_raw(t, "]}");
}

static int by_state(const void *a, const void *b)
{
	const struct nat_piece *x = a, *y = b;

	if (x->tensor != y->tensor)
		return x->tensor < y->tensor ? -1 : 1;
	if (x->state != y->state)
		return x->state < y->state ? -1 : 1;
	return (x->first > y->first) - (x->first < y->first);
}

/* A root is said if every state has a digest: none is derived. */
static bool has_root(const struct nat_out *o)
{
	for (uint64_t i = 0; i < o->want->n && !o->want->alone; i++)
		for (uint32_t s = 0; s < o->want->tensor[i].nstates; s++)
			if (o->slot[i][s] == CK_NONE)
				return false;
	return o->want->n > 0 && !o->want->alone;
}

static void put_all(struct ck_json_out *t, struct nat_out *o)
{
	struct ck_plan_seal *seal = &o->plan->seal;
	uint64_t at = 0;

	put_head(t, o->want);
	put_files(t, o);
	put_beside(t, o);
	ck_json_out_raw(t, "\"tensors\": [");
	for (uint64_t i = 0; i < o->want->n; i++)
		put_tensor(t, o, i, &at);
	seal->root = UINT64_MAX;
	if (has_root(o))
		put_later(t, "\n],\n\"digest\": ", &seal->root);
	else
		ck_json_out_str(t, "\n],\n\"digest\": ", "");
	ck_json_out_raw(t, ",\n");
	seal->bytes = t->buf.len;
	put_later(t, "\"sum\": ", &seal->sum);
	ck_json_out_raw(t, "\n}\n");
}

/* Places of digests are in the manifest, which becomes the file after those that are there. */
static void take_fills(struct nat_out *o, uint32_t file)
{
	for (uint64_t i = 0; i < o->plan->nslots; i++)
		o->plan->slot[i].file = file;
	o->plan->seal.file = file;
	o->plan->seal.wanted = true;
}

/* The manifest is the file made last. */
static int sum_beside(const struct nat_out *o, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < o->want->nalong; i++) {
		char *name;

		if (!is_said(o->want, i))
			continue;
		name = ck_asprintf("%s/%s", o->want->tag, o->want->along[i].name);
		rc = name ? ck_plan_beside(o->plan, name, o->along[i], err) :
		     ck_fail_nomem(err, "a file name", 0);
		ck_free(name);
	}
	return rc;
}

int ck_nat_text(struct nat_out *o, struct ckpt_err *err)
{
	struct ck_json_out t = { .buf = CK_BUF_INIT(MOST), .err = err };
	char *name = o->want->alone ?
		     ck_asprintf("%s/manifest-%05" PRId32 ".json", o->want->tag,
				 o->want->cut_rank) :
		     ck_asprintf("%s/" CK_NAT_MANIFEST, o->want->tag);
	int rc;

	if (o->npieces)
		qsort(o->piece, o->npieces, sizeof(*o->piece), by_state);
	put_all(&t, o);
	take_fills(o, (uint32_t)o->plan->nfiles);
	rc = t.rc;
	if (!rc && !name)
		rc = ck_fail_nomem(err, "a file name", 0);
	if (!rc)
		rc = ck_plan_file(o->plan, name, err);
	if (!rc)
		rc = ck_plan_literal(o->plan, t.buf.p, t.buf.len, err);
	if (!rc)
		rc = sum_beside(o, err);
	ck_buf_release(&t.buf);
	ck_free(name);
	return rc;
}
