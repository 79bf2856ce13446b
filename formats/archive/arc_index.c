/* arc_index.c -- the index of a pack: written, and read as what may come from anybody. */
#include <inttypes.h>
#include <string.h>

#include "formats/archive/ck_pack.h"
#include "libckpt/base/ck_cur.h"
#include "libckpt/base/ck_sys.h"

#define MAGIC_INDEX 0x184D2A5Bu
#define MAGIC_TABLE 0x184D2A5Eu
#define MAGIC_END 0x8F92EAB1u
#define VERSION 1u
#define HEAD 48u	/* bytes before the frames */
#define FRAME 32u
#define ENTRY 48u
#define SUM 16u
#define FOOT 9u		/* of the seek table */
#define SKIPPABLE 8u	/* magic and length */
#define MAX_HEADER 8192u	/* of a file, with what the longest name needs */

static const char magic[8] = "ZCKPTPAK";

/* ------------------------------------------------------------------------ writing */

static int add32(struct ck_buf *out, uint32_t v, struct ckpt_err *err)
{
	uint8_t p[4];

	ck_put_le32(p, v);
	return ck_buf_add(out, p, sizeof(p), err);
}

static int add64(struct ck_buf *out, uint64_t v, struct ckpt_err *err)
{
	uint8_t p[8];

	ck_put_le64(p, v);
	return ck_buf_add(out, p, sizeof(p), err);
}

static int add_frame(struct ck_buf *out, const struct ck_pack_frame *f, struct ckpt_err *err)
{
	int rc = add64(out, f->off, err);

	if (!rc)
		rc = add32(out, f->bytes, err);
	if (!rc)
		rc = add32(out, f->content, err);
	if (!rc)
		rc = add64(out, f->at, err);
	return rc ? rc : add64(out, f->hash, err);
}

static int add_entry(struct ck_buf *out, const struct ck_pack_entry *e, uint32_t name,
		     struct ckpt_err *err)
{
	int rc = add64(out, e->at, err);

	if (!rc)
		rc = add64(out, e->bytes, err);
	if (!rc)
		rc = add64(out, (uint64_t)e->mtime_ns, err);
	if (!rc)
		rc = add32(out, name, err);
	if (!rc)
		rc = add32(out, (uint32_t)strlen(e->name), err);
	if (!rc)
		rc = add64(out, e->hash.lo, err);
	return rc ? rc : add64(out, e->hash.hi, err);
}

static int add_head(struct ck_buf *out, const struct ck_pack_index *ix, uint64_t names,
		    struct ckpt_err *err)
{
	int rc = ck_buf_add(out, magic, sizeof(magic), err);

	if (!rc)
		rc = add32(out, VERSION, err);
	if (!rc)
		rc = add32(out, 0, err);
	if (!rc)
		rc = add64(out, ix->content, err);
	if (!rc)
		rc = add64(out, ix->nframes, err);
	if (!rc)
		rc = add64(out, ix->n, err);
	return rc ? rc : add64(out, names, err);
}

static int add_body(struct ck_buf *out, const struct ck_pack_index *ix, struct ckpt_err *err)
{
	uint32_t name = 0;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < ix->nframes; i++)
		rc = add_frame(out, &ix->frame[i], err);
	for (uint64_t i = 0; !rc && i < ix->n; i++) {
		rc = add_entry(out, &ix->entry[i], name, err);
		name += (uint32_t)strlen(ix->entry[i].name);
	}
	for (uint64_t i = 0; !rc && i < ix->n; i++)
		rc = ck_buf_adds(out, ix->entry[i].name, err);
	return rc;
}

static int add_table(struct ck_buf *out, const struct ck_pack_index *ix, uint64_t index_bytes,
		     struct ckpt_err *err)
{
	int rc = add32(out, MAGIC_TABLE, err);

	if (!rc)
		rc = add32(out, (uint32_t)((ix->nframes + 1) * 8 + FOOT), err);
	for (uint64_t i = 0; !rc && i < ix->nframes; i++) {
		rc = add32(out, ix->frame[i].bytes, err);
		if (!rc)
			rc = add32(out, ix->frame[i].content, err);
	}
	if (!rc)
		rc = add64(out, index_bytes, err);	/* and 0 bytes of content */
	if (!rc)
		rc = add32(out, (uint32_t)ix->nframes + 1, err);
	if (!rc)
		rc = ck_buf_add(out, "", 1, err);
	return rc ? rc : add32(out, MAGIC_END, err);
}

int ck_pack_index_write(const struct ck_pack_index *ix, struct ck_buf *out, struct ckpt_err *err)
{
	const size_t begin = out->len;
	uint64_t names = 0, length;
	struct ck_hash128 sum;
	int rc;

	for (uint64_t i = 0; i < ix->n; i++)
		names += strlen(ix->entry[i].name);
	length = HEAD + ix->nframes * FRAME + ix->n * ENTRY + names + SUM;
	if (length > UINT32_MAX || ix->nframes >= UINT32_MAX / 8)
		return ck_fail(err, CKPT_E_LIMIT, NULL, CKPT_NO_OFFSET,
			       "the pack's index would have %" PRIu64 " bytes, more than a pack "
			       "can hold", length);
	rc = add32(out, MAGIC_INDEX, err);
	if (!rc)
		rc = add32(out, (uint32_t)length, err);
	if (!rc)
		rc = add_head(out, ix, names, err);
	if (!rc)
		rc = add_body(out, ix, err);
	if (rc)
		return rc;
	sum = ck_hash128(out->p + begin + SKIPPABLE, out->len - begin - SKIPPABLE);
	rc = add64(out, sum.lo, err);
	if (!rc)
		rc = add64(out, sum.hi, err);
	return rc ? rc : add_table(out, ix, length + SKIPPABLE, err);
}

/* ------------------------------------------------------------------------ reading */

struct reading {
	struct ck_src *src;
	const char *where;
	uint64_t data;		/* bytes of the frames: where the index begins */
	uint64_t index;		/* bytes of the index frame */
	uint64_t count;		/* entries of the seek table */
	uint8_t *table;		/* entries */
	uint64_t names;		/* bytes */
};

static int bad(const struct reading *r, uint64_t off, const char *what, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_CORRUPT, r->where, off, "the pack's index is damaged: %s", what);
}

/* The seek table, of which the last entry leads to the index. */
static int read_table(struct reading *r, const struct ckpt_limits *limits, bool *found_out,
		      struct ckpt_err *err)
{
	const uint64_t size = ck_src_size(r->src);
	uint8_t foot[FOOT], head[SKIPPABLE];
	uint64_t bytes;
	int rc;

	*found_out = false;
	if (size < FOOT)
		return 0;
	rc = ck_src_read(r->src, size - FOOT, foot, FOOT, err);
	if (rc || ck_le32(foot + 5) != MAGIC_END || foot[4])
		return rc;
	r->count = ck_le32(foot);
	bytes = r->count * 8 + FOOT + SKIPPABLE;
	if (!r->count || bytes > size)
		return 0;
	if (bytes > limits->zip_dir_bytes)
		return ck_fail(err, CKPT_E_LIMIT, r->where, size - FOOT,
			       "the pack's seek table has %" PRIu64 " bytes, more than zckpt "
			       "reads", bytes);
	rc = ck_src_read(r->src, size - bytes, head, SKIPPABLE, err);
	if (rc || ck_le32(head) != MAGIC_TABLE || ck_le32(head + 4) != bytes - SKIPPABLE)
		return rc;
	r->table = ck_alloc(bytes);
	if (!r->table)
		return ck_fail_nomem(err, "a seek table", bytes);
	rc = ck_src_read(r->src, size - bytes + SKIPPABLE, r->table, r->count * 8, err);
	if (rc)
		return rc;
	/* Others write the seekable format too: a pack has an index before the table. */
	r->index = ck_le32(r->table + (r->count - 1) * 8);
	if (r->index < SKIPPABLE + HEAD + SUM || r->index > size - bytes ||
	    ck_le32(r->table + (r->count - 1) * 8 + 4))
		return 0;
	r->data = size - bytes - r->index;
	rc = ck_src_read(r->src, r->data, head, SKIPPABLE, err);
	*found_out = !rc && ck_le32(head) == MAGIC_INDEX;
	if (*found_out && ck_le32(head + 4) != r->index - SKIPPABLE)
		return bad(r, r->data, "its length contradicts the seek table", err);
	return rc;
}

static int take_frames(const struct reading *r, struct ck_cur *c, struct ck_pack_index *ix,
		       struct ckpt_err *err)
{
	uint64_t off = 0, at = 0;

	for (uint64_t i = 0; i < ix->nframes; i++) {
		struct ck_pack_frame *f = &ix->frame[i];
		const uint8_t *p = NULL;
		int rc = ck_cur_take(c, FRAME, &p, err);

		if (rc)
			return rc;
		*f = (struct ck_pack_frame){
			.off = ck_le64(p), .bytes = ck_le32(p + 8), .content = ck_le32(p + 12),
			.at = ck_le64(p + 16), .hash = ck_le64(p + 24),
		};
		if (f->off != off || f->at != at || f->bytes > r->data - off)
			return bad(r, c->off - FRAME, "a frame does not follow the one before",
				   err);
		if (!f->content || f->content > CK_PACK_FRAME_MAX)
			return bad(r, c->off - FRAME, "a frame has no content, or more than 16 MiB",
				   err);
		if (ck_le32(r->table + i * 8) != f->bytes ||
		    ck_le32(r->table + i * 8 + 4) != f->content)
			return bad(r, c->off - FRAME, "it contradicts the seek table", err);
		off += f->bytes;
		at += f->content;
	}
	if (off != r->data || at != ix->content)
		return bad(r, r->data, "the file has bytes outside its frames", err);
	return 0;
}

/* Where the header of file i may begin. */
static uint64_t end_before(const struct ck_pack_index *ix, uint64_t i)
{
	const struct ck_pack_entry *e = i ? &ix->entry[i - 1] : NULL;

	return e ? e->at + e->bytes + ck_tar_pad(e->bytes) : 0;
}

static int take_entry(const struct reading *r, struct ck_cur *c, struct ck_pack_index *ix,
		      uint64_t i, const char *names, struct ckpt_err *err)
{
	const uint64_t before = end_before(ix, i);
	struct ck_pack_entry *e = &ix->entry[i];
	uint32_t name, len;
	const uint8_t *p = NULL;
	int rc = ck_cur_take(c, ENTRY, &p, err);

	if (rc)
		return rc;
	*e = (struct ck_pack_entry){
		.at = ck_le64(p), .bytes = ck_le64(p + 8), .mtime_ns = (int64_t)ck_le64(p + 16),
		.hash = { ck_le64(p + 32), ck_le64(p + 40) },
	};
	name = ck_le32(p + 24);
	len = ck_le32(p + 28);
	if (e->at > ix->content || e->bytes > ix->content - e->at || e->at % CK_TAR_BLOCK ||
	    e->at < before || e->at - before < CK_TAR_BLOCK || e->at - before > MAX_HEADER)
		return bad(r, c->off - ENTRY, "a file is at an impossible place", err);
	if (name > r->names || len > r->names - name)
		return bad(r, c->off - ENTRY, "a name is beyond the table of names", err);
	rc = ck_arc_name_check(names + name, len, r->where, err);
	if (rc)
		return rc;
	e->name = ck_arena_strndup(&ix->arena, names + name, len);
	return e->name ? 0 : ck_fail_nomem(err, "a name", len);
}

static int take_entries(const struct reading *r, struct ck_cur *c, struct ck_pack_index *ix,
			struct ckpt_err *err)
{
	const char *names = (const char *)c->p + ix->n * ENTRY;
	const char **list = ck_alloc_array(ix->n + 1, sizeof(*list));
	int rc = list ? 0 : ck_fail_nomem(err, "names", ix->n);

	for (uint64_t i = 0; !rc && i < ix->n; i++) {
		rc = take_entry(r, c, ix, i, names, err);
		list[i] = ix->entry[i].name;
	}
	if (!rc && ix->content != end_before(ix, ix->n) + CK_TAR_END)
		rc = bad(r, c->off, "the tar stream does not end after the last file", err);
	if (!rc)
		rc = ck_arc_names_check(list, ix->n, r->where, err);
	ck_free(list);
	return rc;
}

/* Every count is held against the bytes that are there before it is used. */
static int take_head(struct reading *r, struct ck_cur *c, const struct ckpt_limits *limits,
		     struct ck_pack_index *ix, struct ckpt_err *err)
{
	const uint8_t *p = NULL;
	uint64_t left;
	int rc = ck_cur_take(c, HEAD, &p, err);

	if (rc)
		return rc;
	if (memcmp(p, magic, sizeof(magic)))
		return bad(r, c->off - HEAD, "it does not begin like an index", err);
	if (ck_le32(p + 8) != VERSION || ck_le32(p + 12))
		return ck_fail(err, CKPT_E_UNSUPPORTED, r->where, c->off - HEAD + 8,
			       "the pack has version %u and flags 0x%x; zckpt reads version 1 "
			       "with flags 0x0", ck_le32(p + 8), ck_le32(p + 12));
	ix->content = ck_le64(p + 16);
	ix->nframes = ck_le64(p + 24);
	ix->n = ck_le64(p + 32);
	r->names = ck_le64(p + 40);
	left = c->left - SUM;
	if (ix->nframes > left / FRAME || ix->nframes + 1 != r->count)
		return bad(r, c->off, "more or fewer frames than the seek table has", err);
	left -= ix->nframes * FRAME;
	if (ix->n > left / ENTRY || r->names != left - ix->n * ENTRY)
		return bad(r, c->off, "more or fewer files than it has bytes for", err);
	if (ix->n > limits->files)
		return ck_fail(err, CKPT_E_LIMIT, r->where, CKPT_NO_OFFSET,
			       "the pack holds %" PRIu64 " files, the limit is %u", ix->n,
			       limits->files);
	return 0;
}

static int take_index(struct reading *r, const uint8_t *p, const struct ckpt_limits *limits,
		      struct ck_pack_index *ix, struct ckpt_err *err)
{
	const uint64_t n = r->index - SKIPPABLE;
	struct ck_hash128 sum = ck_hash128(p, n - SUM);
	struct ck_cur c;
	int rc;

	if (sum.lo != ck_le64(p + n - SUM) || sum.hi != ck_le64(p + n - SUM + 8))
		return bad(r, r->data, "its hash differs", err);
	ck_cur_init(&c, p, n, r->where);
	c.off = r->data + SKIPPABLE;
	rc = take_head(r, &c, limits, ix, err);
	if (rc)
		return rc;
	ix->frame = ck_alloc_array(ix->nframes + 1, sizeof(*ix->frame));
	ix->entry = ck_alloc_array(ix->n + 1, sizeof(*ix->entry));
	if (!ix->frame || !ix->entry)
		return ck_fail_nomem(err, "a pack's index", n);
	rc = take_frames(r, &c, ix, err);
	return rc ? rc : take_entries(r, &c, ix, err);
}

/* So that a few bytes do not fill a disk: what is promised must be in proportion. */
static int check_ratio(const struct reading *r, const struct ckpt_limits *limits,
		       const struct ck_pack_index *ix, struct ckpt_err *err)
{
	if (ix->content <= limits->inflate_bytes ||
	    ix->content / limits->inflate_ratio <= ck_src_size(r->src))
		return 0;
	return ck_fail(err, CKPT_E_LIMIT, r->where, CKPT_NO_OFFSET,
		       "%" PRIu64 " bytes unpack to %" PRIu64 ", more than %u times as many; "
		       "--limit inflate_ratio=%" PRIu64 " allows it",
		       ck_src_size(r->src), ix->content, limits->inflate_ratio,
		       ix->content / ck_max_u64(1, ck_src_size(r->src)) + 1);
}

int ck_pack_index_read(struct ck_src *src, const struct ckpt_limits *limits,
		       struct ck_pack_index *ix, bool *found_out, struct ckpt_err *err)
{
	struct reading r = { .src = src, .where = ck_src_name(src) };
	struct ck_pack_index made = { .frame = NULL };
	uint8_t *p = NULL;
	bool found;
	int rc = read_table(&r, limits, &found, err);

	if (!rc && found && r.index > limits->zip_dir_bytes)
		rc = ck_fail(err, CKPT_E_LIMIT, r.where, r.data,
			     "the pack's index has %" PRIu64 " bytes, more than zckpt reads",
			     r.index);
	if (!rc && found) {
		p = ck_alloc(r.index - SKIPPABLE);
		rc = p ? ck_src_read(src, r.data + SKIPPABLE, p, r.index - SKIPPABLE, err) :
		     ck_fail_nomem(err, "a pack's index", r.index);
	}
	if (!rc && found)
		rc = take_index(&r, p, limits, &made, err);
	if (!rc && found)
		rc = check_ratio(&r, limits, &made, err);
	ck_free(p);
	ck_free(r.table);
	if (rc) {
		ck_pack_index_release(&made);
		return rc;
	}
	*found_out = found;
	if (found)
		*ix = made;
	return 0;
}

void ck_pack_index_release(struct ck_pack_index *ix)
{
	ck_arena_release(&ix->arena);
	ck_free(ix->frame);
	ck_free(ix->entry);
	memset(ix, 0, sizeof(*ix));
}
