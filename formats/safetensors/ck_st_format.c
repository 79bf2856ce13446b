/*
 * ck_st_format.c -- a safetensors file as a driver: header into index.
 */
#include "formats/safetensors/ck_st.h"
#include "formats/safetensors/ck_st_driver.h"
#include "formats/safetensors/ck_st_plan.h"

#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_map.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/tensor/ck_extents.h"

#define MAX_FILE_NAME 255u

/* ------------------------------------------------------------ odd but legal */

/* The scalar value at p (valid UTF-8); steps behind it. */
static uint32_t utf8_next(const unsigned char **p_io)
{
	const unsigned char *p = *p_io;
	const unsigned n = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
	uint32_t c = n == 1 ? p[0] : p[0] & (0xffu >> (n + 1));

	for (unsigned i = 1; i < n; i++)
		c = c << 6 | (p[i] & 0x3f);
	*p_io = p + n;
	return c;
}

/* Tab, C1 controls, and marks that change the direction or the line of text around them. */
static bool is_deceptive(uint32_t c)
{
	return c == '\t' || (c >= 0x80 && c < 0xa0) || c == 0x061c ||
	       (c >= 0x200e && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
	       (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

static void note_odd_name(const struct ck_st *st, const struct ck_st_tensor *t,
			  struct ck_findings *findings)
{
	const unsigned char *p = (const unsigned char *)t->name;

	if (!t->name_len) {
		ck_findings_add(findings, CK_FINDING_NAME_ODD, st->name,
				"the name of a tensor is empty");
		return;
	}
	while (*p)
		if (is_deceptive(utf8_next(&p))) {
			ck_findings_add(findings, CK_FINDING_NAME_ODD, t->name,
					"the name holds control characters that change how "
					"a terminal shows text around it");
			return;
		}
}

static void add_notes(const struct ck_st *st, struct ck_findings *findings)
{
	static const struct {
		unsigned note;
		const char *text;
	} notes[] = {
		{ CK_ST_SPACE_BEFORE, "white space precedes the header's brace: the format "
				      "forbids it, common readers accept it" },
		{ CK_ST_META_NULL, "__metadata__ is null; the format requires an object" },
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(notes); i++)
		if (st->notes & notes[i].note)
			ck_findings_add(findings, CK_FINDING_FORMAT_NOTE, st->name, "%s",
					notes[i].text);
	if (st->notes & CK_ST_UNKNOWN_FIELD)
		ck_findings_add(findings, CK_FINDING_FORMAT_NOTE, st->name,
				"tensor \"%.120s\" (perhaps others too) has a field that is not "
				"part of the format; zckpt ignores it", st->unknown_in);
}

/* ----------------------------------------------------------------- metadata */

static bool starts_with(const char *s, const char *start)
{
	return !strncmp(s, start, strlen(start));
}

static bool is_index(const char *name)
{
	static const char end[] = ".index.json";
	const size_t n = strlen(name);

	return n >= sizeof(end) && !strcmp(name + n - (sizeof(end) - 1), end);
}

/* It is of these bytes alone: a file made of them must not have it. */
static bool is_own_key(const char *key)
{
	return !strcmp(key, CK_ST_HEADER_KEY) || !strcmp(key, CK_ST_SUMS_KEY) ||
	       starts_with(key, CK_ST_FILE_KEY) || starts_with(key, CK_ST_DIGEST_KEY) ||
	       !strcmp(key, CK_ST_PLACES_KEY) || !strcmp(key, CK_ST_VERSION_KEY);
}

/* The folder of a source, in the index's arena. */
static const char *dir_of(struct ck_index *ix, uint32_t source)
{
	char *parent = ck_fs_parent(ix->source[source].path);
	const char *dir = parent ? ck_arena_strdup(&ix->arena, parent) : NULL;

	ck_free(parent);
	return dir;
}

int ck_st_index_beside(const struct ck_st *st, uint32_t source, struct ck_index *ix,
		       struct ckpt_err *err)
{
	const char *dir = NULL;
	int rc = 0;

	for (uint64_t i = 0; !rc && st->sums && i < st->nmeta; i++) {
		struct ck_stated_file f = { .bytes = UINT64_MAX };

		if (!starts_with(st->meta[i].key, CK_ST_FILE_KEY))
			continue;
		f.name = st->meta[i].key + strlen(CK_ST_FILE_KEY);
		if (!f.name[0] || strlen(f.name) > MAX_FILE_NAME || strchr(f.name, '/') ||
		    f.name[0] == '.' || !ck_hash128_parse(st->meta[i].value, &f.sum))
			continue;
		dir = dir ? dir : dir_of(ix, source);
		f.dir = dir;
		f.compared = is_index(f.name);
		rc = dir ? ck_index_add_stated_file(ix, &f, err) :
		     ck_fail_nomem(err, "a path", 0);
	}
	return rc;
}

/*
 * Through a map of the facts that are there: hostile metadata may have a million keys, and
 * looking each up in the list would take their square.
 */
static int add_metadata(const struct ck_st *st, struct ck_index *ix, struct ckpt_err *err)
{
	struct ck_map seen = CK_MAP_INIT;
	int rc = 0;

	for (uint64_t i = 0; rc >= 0 && i < ix->nfacts; i++)
		rc = ck_map_add(&seen, ix->fact[i].key, strlen(ix->fact[i].key), i, NULL, err);
	for (uint64_t i = 0; rc >= 0 && i < st->nmeta; i++) {
		char *key = ck_asprintf("metadata.%s", st->meta[i].key);

		rc = key ? 0 : ck_fail_nomem(err, "metadata", strlen(st->meta[i].key));
		if (!rc && !is_own_key(st->meta[i].key) &&
		    !ck_map_find(&seen, key, strlen(key), NULL))
			rc = ck_index_add_fact(ix, err, key, "%s", st->meta[i].value);
		ck_free(key);
	}
	ck_map_release(&seen);
	return rc < 0 ? rc : 0;
}

/* ---------------------------------------------------------------------- sums */

/* "zckpt.digest.NAME" -> number in the metadata: what files without the other sums have. */
static int find_digests(const struct ck_st *st, struct ck_map *by_name, struct ckpt_err *err)
{
	const size_t n = strlen(CK_ST_DIGEST_KEY);
	int rc = 0;

	for (uint64_t i = 0; rc >= 0 && !st->sums && i < st->nmeta; i++)
		if (starts_with(st->meta[i].key, CK_ST_DIGEST_KEY))
			rc = ck_map_add(by_name, st->meta[i].key + n,
					strlen(st->meta[i].key) - n, i, NULL, err);
	return rc < 0 ? rc : 0;
}

/* Of tensor 'i', whose state was added last. */
static int state_sum(const struct ck_st *st, uint64_t i, const struct ck_map *digests,
		     struct ck_index *ix, struct ckpt_err *err)
{
	const struct ck_st_tensor *t = &st->tensor[i];
	struct ck_stated_sum sum = {
		.count = t->numel, .state = (uint32_t)ix->nstates - 1, .of_file = true,
	};
	char text[33] = "";
	uint64_t number;

	if (!t->numel)
		return 0;
	if (st->sums) {
		memcpy(text, st->sums + i * 32, 32);
	} else if (ck_map_find(digests, t->name, t->name_len, &number) &&
		   strlen(st->meta[number].value) == 32) {
		memcpy(text, st->meta[number].value, 33);
		sum.closed = true;
	}
	if (!ck_hash128_parse(text, &sum.sum)) {
		ix->nunsummed++;
		return 0;
	}
	return ck_index_add_stated_sum(ix, &sum, err);
}

static void tell_changed(const struct ck_st *st, struct ck_findings *findings)
{
	if (st->notes & CK_ST_HEADER_CHANGED)
		ck_findings_add(findings, CK_FINDING_HEADER_SUM_WRONG, st->name,
				"its header (%" PRIu64 " bytes) does not match its sums: the "
				"file is damaged, or another program rewrote it and kept the "
				"metadata (if so, --as-warning HEADER_SUM_WRONG ignores the "
				"sums)", st->data);
}

/* ------------------------------------------------------------------- tensors */

static int add_state(const struct ck_st_tensor *t, uint32_t tensor, uint32_t source,
		     const char *state, struct ck_index *ix, struct ckpt_err *err)
{
	const struct ck_extent e = {
		.count = t->numel,
		.off = t->off,
		.runs = 1,
		.source = source,
		.member = CK_NONE,
		.view = CK_NONE,
		.rank = -1,
		.dtype = (uint8_t)t->dtype,
	};
	int rc = ck_index_state_begin(ix, tensor, state, t->dtype, 0, err);

	if (rc)
		return rc;
	if (t->numel)
		rc = ck_index_state_extent(ix, &e, err);
	if (rc) {
		ck_index_state_cancel(ix);
		return rc;
	}
	return ck_index_state_end(ix, NULL, err);
}

/* Where a tensor that is there already came from. */
static const char *first_file(const struct ck_index *ix, uint32_t tensor)
{
	const uint32_t s = ix->tensor[tensor].first_state;

	if (s == CK_NONE || !ix->state[s].nextents)
		return "another file";
	return ix->source[ck_extent_stored(ix, &ix->state[s], 0)->source].path;
}

static int add_tensors(const struct ck_st *st, uint32_t source, const char *state,
		       const struct ck_map *digests, struct ck_index *ix,
		       struct ck_findings *findings, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < st->ntensors; i++) {
		const struct ck_st_tensor *t = &st->tensor[i];
		uint32_t tensor;

		rc = ck_index_add_tensor(ix, t->name, t->shape, t->ndim, CKPT_ROLE_PLAIN, &tensor,
					 err);
		if (rc > 0) {
			ck_findings_add(findings, CK_FINDING_TENSOR_DUPLICATE, t->name,
					"it is in %s and in %s", first_file(ix, tensor), st->name);
			rc = 0;
			continue;
		}
		if (!rc)
			rc = add_state(t, tensor, source, state, ix, err);
		if (!rc)
			rc = state_sum(st, i, digests, ix, err);
	}
	return rc;
}

void ck_st_note(const struct ck_st *st, struct ck_findings *findings)
{
	add_notes(st, findings);
	for (uint64_t i = 0; i < st->ntensors; i++)
		note_odd_name(st, &st->tensor[i], findings);
}

/* ------------------------------------------------------------------- pieces */

/*
 * A file that one rank saved of whole tensors has places too, all of them 0.  The first rank's
 * piece of a tensor that is cut looks the same, but has another name.
 */
static int check_whole(const struct ck_st *st, struct ckpt_err *err)
{
	struct ck_st_shard id;

	if (!ck_st_shard_read(ck_fs_base(st->name), &id))
		return ck_fail(err, CKPT_E_UNSUPPORTED, st->name, 8,
			       "this is one piece of a distributed checkpoint (DCP_SHARDING_INFO): "
			       "its tensors may be parts of larger ones, and its name does not say "
			       "of which rank (shard-00001-model-00001-of-00001.safetensors)");
	if (id.rank)
		return ck_fail(err, CKPT_E_UNSUPPORTED, st->name, 8,
			       "this is one piece of a distributed checkpoint (DCP_SHARDING_INFO): "
			       "the parts that rank %" PRIu64 " has of the tensors of file %" PRIu64
			       " of %" PRIu64 "; give its folder, where the files of the other "
			       "ranks are, and zckpt joins them", id.rank, id.number, id.of);
	if (!st->at_start)
		return ck_fail(err, CKPT_E_UNSUPPORTED, st->name, 8,
			       "this is one piece of a distributed checkpoint (DCP_SHARDING_INFO): "
			       "a tensor in it does not begin where the full one does (several "
			       "ranks saved without save_distributed=True?)");
	return 0;
}

int ck_st_index(const struct ck_st *st, uint32_t source, const char *state,
		struct ck_index *ix, struct ck_findings *findings, struct ckpt_err *err)
{
	struct ck_map digests = CK_MAP_INIT;
	int rc = st->is_piece ? check_whole(st, err) : 0;

	if (rc)
		return rc;
	ck_st_note(st, findings);
	tell_changed(st, findings);
	rc = find_digests(st, &digests, err);
	if (!rc)
		rc = add_tensors(st, source, state, &digests, ix, findings, err);
	ck_map_release(&digests);
	if (rc)
		return rc;
	ck_hasher_add(ix->fingerprint, &st->fingerprint, sizeof(st->fingerprint));
	return add_metadata(st, ix, err);
}

/* -------------------------------------------------------------------- driver */

/*
 * A sound head bids high.  A brace behind a possible length that the file is too short
 * for, or the name alone, bid low: nobody else may want the file, and then the
 * reader's own message says more than "not recognised".
 */
static int st_probe(const struct ck_input *in)
{
	uint64_t len;

	if (in->is_dir || in->npaths != 1)
		return 0;
	if (ck_st_probe(in->head, in->head_len, in->bytes))
		return 64;
	len = in->head_len >= 9 ? ck_le64(in->head) : 0;
	if (len >= 2 && len <= CK_ST_MAX_HEADER && in->head[8] == '{')
		return 16;
	return ck_ends_with(in->path[0], ".safetensors") ? 4 : 0;
}

static int st_index(const struct ck_input *in, struct ck_index *ix, struct ck_findings *f,
		    struct ckpt_err *err)
{
	struct ck_src *src = NULL;
	struct ck_st *st = NULL;
	uint32_t source;
	int rc = ck_src_open(in->pool, in->path[0], &src, err);

	if (!rc)
		rc = ck_st_open(src, &in->limits, &st, err);
	if (rc) {
		ck_src_close(src);
		return rc;
	}
	ix->format = "safetensors";
	rc = ck_index_add_source(ix, in->path[0], src, -1, &source, err);
	if (!rc)
		rc = ck_st_index(st, source, "weight", ix, f, err);
	if (!rc && st->is_piece)
		ck_findings_add(f, CK_FINDING_FORMAT_NOTE, st->name,
				"HuggingFaceStorageWriter saved it, and its tensors are whole only "
				"if one rank saved all of them; the folder's index, "
				"model.safetensors.index.json, has the size to compare with");
	ck_st_close(st);
	return rc;
}

const struct ck_format ck_format_safetensors = {
	.name = "safetensors",
	.is_model = true,
	.probe = st_probe,
	.index = st_index,
	.plan = ck_st_plan,
};
