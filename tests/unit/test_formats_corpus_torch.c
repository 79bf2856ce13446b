/*
 * Every torch file of the format corpus against its manifest: zip archives, legacy streams,
 * bare pickles, and sparse files beyond 4 GiB. If a row is wrong, a user gets other
 * numbers than torch.load gives, or a damaged or hostile file goes through.
 *
 * A row is opened through the driver and read whole through its extents by a reader of
 * this file's own, which knows nothing of the library's. Memory and time are bounded.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/torch_pt/ck_pt.h"
#include "formats/torch_pt/ck_pt_driver.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_extents.h"
#include "libckpt/zip/ck_zip.h"
#include "tests/lib/fixture/t_corpus.h"
#include "tests/lib/fixture/t_sha256.h"
#include "tests/lib/fs/t_dir.h"

static const struct t_corpus_other others[] = {
	{ "pickle/args05.pt", "lists for tuples say the same; torch takes both" },
	{ "pickle/bool-bytes.pt", "bytes of a bool are kept, nothing computes with them" },
	{ "pickle/err-inst.pt", "Python 2 wrote it for objects of old classes: opaque, told" },
	{ "pickle/err-obj.pt", "Python 2 wrote it for objects of old classes: opaque, told" },
	{ "pickle/geo-v3-odd.pt", "a byte behind the last whole element is no element's" },
	{ "pickle/global-dotted.pt", "the name is the known one however it is cut; it is told" },
	{ "pickle/global-not-called.pt", "a name is no call; it is told, and audit lists it" },
	{ "pickle/location2.pt", "the device a tensor came from does not matter to its bytes" },
	{ "pickle/proto-none.pt", "protocols 0 and 1 have no PROTO" },
	{ "zip/align-wrong.pt", "the directory says where things lie; the hint is for mmap" },
	{ "zip/appended-zip.pt", "the first archive is whole and is read; the rest is told" },
	{ "zip/comment-len.pt", "an end record that passes the end is none" },
	{ "zip/crc-desc.pt", "the directory's checksum holds; torch's own descriptors differ too" },
	{ "zip/entry-nul.pt", "programs disagree about such a name" },
	{ "zip/extra-overrun.pt", "a header that contradicts itself" },
	{ "zip/flip/desc-crc.pt", "the directory's checksum holds" },
	{ "zip/gap.pt", "padding between records is usual" },
	{ "zip/hidden-local.pt", "what the directory does not list is no entry" },
	{ "zip/local-name.pt", "two names for one entry: programs disagree which it is" },
	{ "zip/swapped-local-sizes.pt", "two sizes for one entry: programs disagree which it is" },
	{ NULL, NULL },
};

/* ------------------------------------------------------------------ one file */

static void open_path(struct t_corpus_opened *o, const char *const *path)
{
	t_corpus_look(o, path);
	assert_false(o->in.is_dir);
	/* Without a bid the reader must still refuse with a sentence. */
	o->rc = ck_format_torch.index(&o->in, &o->ix, &o->f, &o->err);
}

static const char *verdict(const struct t_corpus_opened *o)
{
	if (o->rc || ck_findings_worst(&o->f, CKPT_ERROR))
		return "must-refuse";
	for (uint64_t i = 0; i < o->f.n; i++)
		if (o->f.list[i].severity >= CKPT_WARN && strcmp(o->f.list[i].id, "TENSOR_OPAQUE"))
			return "must-warn";
	return "valid";
}

/* A note that is no warning does for a row that wants a finding. */
static bool agrees(const struct t_corpus_opened *o, const char *class)
{
	const char *got = verdict(o);

	return class && (!strcmp(got, class) ||
			 (o->f.n && !strcmp(got, "valid") && !strcmp(class, "must-warn")));
}

/* ------------------------------------------------------------- bytes of a state */

/* The bytes that the extent counts its offsets in: a file, or an inflated member. */
struct bytes {
	struct ck_src *src;
	uint8_t *mem;
	uint64_t n;
};

static bool bytes_open(const struct ck_index *ix, const struct ck_extent *e, struct bytes *b)
{
	const struct ck_member *m;
	uint8_t *packed;
	bool ok;

	b->src = ix->source[e->source].src;
	b->mem = NULL;
	b->n = ck_src_size(b->src);
	if (!(e->flags & CKPT_EXTENT_DEFLATED))
		return true;
	m = &ix->member[e->member];
	b->n = m->bytes;
	b->mem = t_alloc(m->bytes + 1);
	packed = t_alloc(m->packed + 1);
	ok = !ck_src_read(b->src, m->off, packed, m->packed, NULL) &&
	     !ck_zip_inflate(packed, m->packed, b->mem, m->bytes, "", NULL) &&
	     (!m->crc || ck_zip_crc32(0, b->mem, m->bytes) == m->crc);
	free(packed);
	return ok;
}

static bool bytes_get(const struct bytes *b, uint64_t off, void *out, uint64_t n)
{
	if (off > b->n || n > b->n - off)
		return false;
	if (b->mem)
		memcpy(out, b->mem + off, n);
	return b->mem || !ck_src_read(b->src, off, out, n, NULL);
}

static bool gather(const struct bytes *b, const struct ck_extent *e, const struct ck_view *v,
		   uint64_t esize, uint8_t *out)
{
	for (uint64_t i = 0; i < e->count; i++) {
		uint64_t rest = i, at = 0;

		for (uint32_t d = v->ndim; d-- > 0;) {
			at += rest % v->shape[d] * v->stride[d];
			rest /= v->shape[d];
		}
		if (!bytes_get(b, e->off + at * esize, out + i * esize, esize))
			return false;
	}
	return true;
}

static void swap(uint8_t *p, uint64_t n, uint64_t width)
{
	for (uint64_t i = 0; i + width <= n; i += width)
		for (uint64_t k = 0; k < width / 2; k++) {
			const uint8_t c = p[i + k];

			p[i + k] = p[i + width - 1 - k];
			p[i + width - 1 - k] = c;
		}
}

/* Lazy bits of floating and complex elements, which are all the corpus has. */
static void negate(uint8_t *p, uint64_t n, uint64_t width, uint64_t from, uint64_t step)
{
	for (uint64_t i = from; i + width <= n; i += step)
		p[i + width - 1] ^= 0x80;
}

static bool read_extent(const struct ck_index *ix, const struct ck_extent *e, uint8_t *out)
{
	const struct ck_dtype_info *info = ck_dtype_info((enum ckpt_dtype)e->dtype);
	const uint64_t esize = info->bits / 8, n = e->runs * e->count * esize;
	const uint64_t part = info->cls == CK_CLASS_COMPLEX ? esize / 2 : esize;
	struct bytes b;
	bool ok = bytes_open(ix, e, &b);

	if (ok && e->flags & CKPT_EXTENT_GATHER)
		ok = gather(&b, e, &ix->view[e->view], esize, out);
	else
		for (uint64_t k = 0; ok && k < e->runs; k++)
			ok = bytes_get(&b, e->off + k * e->src_stride, out + k * e->count * esize,
				       e->count * esize);
	free(b.mem);
	if (e->flags & CKPT_EXTENT_SWAPPED)
		swap(out, n, part);
	if (e->flags & CKPT_EXTENT_NEG)
		negate(out, n, part, 0, part);
	if (e->flags & CKPT_EXTENT_CONJ)
		negate(out, n, part, part, esize);
	return ok;
}

static bool hash_tensor(const struct ck_index *ix, const struct ck_tensor *t, uint64_t bytes,
			char out[65])
{
	const uint32_t number = ck_index_state_find(ix, (uint32_t)(t - ix->tensor), "weight");
	uint8_t *buf = t_alloc(bytes + 1);
	uint64_t at = 0;
	bool ok = number != CK_NONE;
	const struct ck_extent *e;
	struct ck_extents extents;

	if (ok)
		ck_extents_begin(&extents, ix, &ix->state[number], 0);
	while (ok && (e = ck_extents_next(&extents))) {
		ok = read_extent(ix, e, buf + at);
		at += e->runs * e->count * (ckpt_dtype_bits((enum ckpt_dtype)e->dtype) / 8);
	}
	t_sha256_of(buf, bytes, out);
	free(buf);
	return ok && at == bytes;
}

/* ------------------------------------------------------------------ comparing */

/* 'text' behind 'name', its dots and backslashes escaped if 'escape'. */
static char *append_step(char *name, const char *dot, const char *text, bool escape)
{
	char *out = t_fmt("%s%s", name, dot);

	for (; *text; text++) {
		const char *slash = escape && (*text == '.' || *text == '\\') ? "\\" : "";
		char *more = t_fmt("%s%s%c", out, slash, *text);

		free(out);
		out = more;
	}
	free(name);
	return out;
}

/* The name that the index must give to a path. */
static char *path_name(const cJSON *path)
{
	const bool escape = cJSON_GetArraySize(path) > 1;
	char *name = t_fmt("%s", "");
	const cJSON *step;

	if (!cJSON_GetArraySize(path)) {
		free(name);
		return t_fmt("tensor");
	}
	cJSON_ArrayForEach(step, path)
	{
		const char *dot = step == path->child ? "" : ".";
		char *text = cJSON_IsString(step) ? t_fmt("%s", step->valuestring) :
			     t_fmt("%.0f", step->valuedouble);

		name = append_step(name, dot, text, escape);
		free(text);
	}
	return name;
}

static const char *compare_tensor(const struct ck_index *ix, uint32_t number, const cJSON *want)
{
	const struct ck_tensor *t = &ix->tensor[number];
	const char *sha = t_corpus_text(want, "sha256");
	enum ckpt_dtype dtype;
	char got[65];

	if (!t_corpus_same_shape(t, cJSON_GetObjectItem(want, "shape")))
		return "a shape differs";
	if (t->role == CKPT_ROLE_ALIAS)
		t = &ix->tensor[t->alias_of];
	if (t->first_state == CK_NONE)
		return "a tensor has no state";
	dtype = (enum ckpt_dtype)ix->state[t->first_state].dtype;
	if (!ckpt_dtype_torch_name(dtype) ||
	    strcmp(ckpt_dtype_torch_name(dtype), t_corpus_text(want, "dtype")))
		return "a dtype differs";
	if (!sha)
		return NULL;
	if (!hash_tensor(ix, t, (uint64_t)cJSON_GetObjectItem(want, "nbytes")->valuedouble, got))
		return "the bytes cannot be read";
	return strcmp(sha, got) ? "the bytes differ" : NULL;
}

/* Tensors inside what is reported by name only may be listed. */
static bool is_inside_opaque(const char *name, const cJSON *expect)
{
	const cJSON *one;

	cJSON_ArrayForEach(one, cJSON_GetObjectItem(expect, "opaque"))
	{
		const cJSON *path = cJSON_GetObjectItem(one, "path");
		char *head = path_name(path);
		const size_t n = strlen(head);
		const bool inside =
			!cJSON_GetArraySize(path) || (!strncmp(name, head, n) && name[n] == '.');

		free(head);
		if (inside && !strcmp(t_corpus_text(one, "kind"), "object"))
			return true;
	}
	return false;
}

static const char *compare_tensors(const struct ck_index *ix, const cJSON *expect)
{
	const cJSON *list = cJSON_GetObjectItem(expect, "tensors"), *one;
	uint8_t *seen = t_alloc(ix->ntensors + 1);
	const char *what = NULL;

	memset(seen, 0, ix->ntensors + 1);
	cJSON_ArrayForEach(one, list)
	{
		char *name = path_name(cJSON_GetObjectItem(one, "path"));
		uint32_t number;

		if (!ck_index_find(ix, name, &number))
			what = "a tensor is missing";
		else if (seen[number]++)
			what = "two paths give one name";
		else
			what = compare_tensor(ix, number, one);
		free(name);
		if (what)
			break;
	}
	for (uint64_t i = 0; !what && i < ix->ntensors; i++)
		if (!seen[i] && !is_inside_opaque(ix->tensor[i].name, expect))
			what = "there is a tensor more";
	free(seen);
	return what;
}

/* The checksums of the archive's storages: what a full verification looks at. */
static bool checksums_agree(const char *path)
{
	struct ck_fdpool *pool = ck_fdpool_new(2);
	struct ckpt_limits limits;
	struct ck_src *src;
	struct ck_pt *pt;
	bool ok = true;

	ck_limits_fill(NULL, &limits);
	assert_int_equal(ck_src_open(pool, path, &src, NULL), 0);
	assert_int_equal(ck_pt_open(src, &limits, 0, NULL, &pt, NULL), 0);
	for (uint64_t i = 0; i < pt->nstorages; i++) {
		const struct ck_pt_storage *s = &pt->storage[i];
		uint8_t *p = t_alloc(s->packed + 1);

		assert_int_equal(ck_src_read(src, s->off, p, s->packed, NULL), 0);
		ok &= s->deflated || !s->crc || ck_zip_crc32(0, p, s->packed) == s->crc;
		free(p);
	}
	ck_pt_close(pt);
	ck_src_close(src);
	ck_fdpool_free(pool);
	return ok;
}

/* ----------------------------------------------------------------------- rows */

/* NULL if the row is right but for its class. */
static const char *judge(const cJSON *row, struct t_corpus_verdict *v)
{
	const char *class = t_corpus_text(row, "class"), *what = NULL;
	const char *mode = t_corpus_text(row, "mode"), *reason = t_corpus_text(row, "reason");
	char *path = t_corpus_path(row);
	const char *const paths[] = { path };
	const cJSON *expect = cJSON_GetObjectItem(row, "expect");
	struct t_corpus_opened o;

	open_path(&o, paths);
	v->got = agrees(&o, class) ? class : verdict(&o);
	snprintf(v->said, sizeof(v->said), "%s: %s %s", o.err.where, o.err.msg,
		 o.f.n ? o.f.list[0].text : "");
	/* What only shows when the data are read. */
	if (mode && !strcmp(mode, "verify") && !o.rc && !strcmp(reason, "bad-crc") &&
	    !checksums_agree(path))
		v->got = "must-refuse";
	else if (!o.rc && expect)
		what = compare_tensors(&o.ix, expect);
	if (!what && !t_corpus_tells_why(&o))
		what = "the refusal has no place or no sentence";
	if (!what && reason && !strcmp(reason, "hostile-global") && !strcmp(class, "must-refuse") &&
	    !t_corpus_text(row, "alt") && cJSON_GetObjectItem(row, "globals") &&
	    o.rc != -CKPT_E_UNSAFE)
		what = "a hostile call is not refused as one";
	t_corpus_close(&o);
	free(path);
	return what;
}

static void zip_archives_read_as_the_manifest_says(void **state)
{
	(void)state;
	t_corpus_walk("pt-zip", 700, others, judge);
}

static void legacy_streams_read_as_the_manifest_says(void **state)
{
	(void)state;
	t_corpus_walk("pt-legacy", 80, others, judge);
}

static void bare_pickles_are_refused(void **state)
{
	(void)state;
	t_corpus_walk("pickle", 5, others, judge);
}

/* -------------------------------------------------------------------- recipes */

/* Recipes of safetensors files are the other test's. */
static const char *judge_recipe(const cJSON *row, struct t_corpus_verdict *v)
{
	static const struct t_corpus_way way = { "big.pt", open_path, verdict, path_name };
	const char *file = t_corpus_text(row, "file");

	v->got = T_CORPUS_SKIPPED;
	if (!strstr(file, "safetensors") && !strstr(file, "header-"))
		t_corpus_judge_recipe(&way, row, v);
	return NULL;
}

static void archives_beyond_4_gib_are_read(void **state)
{
	static const struct t_corpus_other none[] = { { NULL, NULL } };

	(void)state;
	t_corpus_walk("recipe", 6, none, judge_recipe);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(zip_archives_read_as_the_manifest_says),
		cmocka_unit_test(legacy_streams_read_as_the_manifest_says),
		cmocka_unit_test(bare_pickles_are_refused),
		cmocka_unit_test(archives_beyond_4_gib_are_read),
	};
	int rc;

	if (!t_corpus_load())
		return 77;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	t_corpus_unload();
	return rc ? 1 : 0;
}
