/*
 * ck_st_pieces.c -- files of torch's HuggingFaceStorageWriter: their names, and where their tensors
 * begin in the full ones (docs/formats/dcp-safetensors.md).
 *
 *	"DCP_SHARDING_INFO": "{\"NAME\": {\"saved_offsets\": [8, 0]}, ...}"
 */
#include "formats/safetensors/ck_st.h"

#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_map.h"
#include "libckpt/json/ck_json.h"

#define MOST_DIGITS 7u

/* ---- names ---- */

static bool skip(const char **at, const char *text)
{
	const size_t n = strlen(text);

	if (strncmp(*at, text, n) != 0)
		return false;
	*at += n;
	return true;
}

/* Five digits or more, and not 0. */
static bool number(const char **at, uint64_t *out)
{
	const size_t n = strspn(*at, "0123456789");
	uint64_t v = 0;

	if (n < 5 || n > MOST_DIGITS)
		return false;
	for (size_t i = 0; i < n; i++)
		v = v * 10 + (uint64_t)((*at)[i] - '0');
	*at += n;
	*out = v;
	return v > 0;
}

bool ck_st_shard_read(const char *name, struct ck_st_shard *out)
{
	struct ck_st_shard id = { .rank = 0 };
	const char *p = name;

	if (skip(&p, "shard-") && !(number(&p, &id.rank) && skip(&p, "-")))
		return false;
	if (!skip(&p, "model-") || !number(&p, &id.number) || !skip(&p, "-of-") ||
	    !number(&p, &id.of) || strcmp(p, ".safetensors") != 0 || id.number > id.of)
		return false;
	*out = id;
	return true;
}

/* ---- places ---- */

struct places {
	struct ck_st *st;
	struct ck_json json;
	struct ck_map by_name;	/* tensor -> its number */
	struct ckpt_err *err;
};

static int bad(const struct places *p, const char *name, const char *what)
{
	return ck_fail(p->err, CKPT_E_CORRUPT, p->st->name, 8,
		       "DCP_SHARDING_INFO: \"%.120s\" %s", name, what);
}

static int read_place(struct places *p, uint64_t tok, struct ck_st_tensor *t)
{
	const uint64_t at = p->json.tok[tok].type == CK_JSON_OBJECT ?
			    ck_json_get(&p->json, tok, "saved_offsets") : UINT64_MAX;
	uint64_t *place;

	if (at == UINT64_MAX || p->json.tok[at].type != CK_JSON_ARRAY)
		return bad(p, t->name, "has no saved_offsets");
	if (p->json.tok[at].n != t->ndim)
		return ck_fail(p->err, CKPT_E_CORRUPT, p->st->name, 8,
			       "DCP_SHARDING_INFO: \"%.120s\" has %" PRIu32
			       " saved_offsets, the tensor %" PRIu32 " dimensions", t->name,
			       p->json.tok[at].n, t->ndim);
	place = ck_arena_alloc(&p->st->arena, (t->ndim + 1) * sizeof(*place));
	if (!place)
		return ck_fail_nomem(p->err, "a place", t->ndim);
	for (uint32_t k = 0; k < t->ndim; k++) {
		if (!ck_json_u64(&p->json, at + 1 + k, &place[k]))
			return bad(p, t->name, "has a saved_offset that is no count");
		if (place[k] > INT64_MAX || t->shape[k] > INT64_MAX - place[k])
			return ck_fail(p->err, CKPT_E_CORRUPT, p->st->name, 8,
				       "DCP_SHARDING_INFO: \"%.120s\" begins at %" PRIu64
				       " of a dimension, which no tensor reaches", t->name,
				       place[k]);
		p->st->at_start &= place[k] == 0;
	}
	t->place = place;
	return 0;
}

static int read_all(struct places *p)
{
	const struct ck_json_tok *tok = p->json.tok;
	uint64_t at = 1, i;
	int rc = 0;

	if (tok[0].type != CK_JSON_OBJECT)
		return ck_fail(p->err, CKPT_E_CORRUPT, p->st->name, 8,
			       "DCP_SHARDING_INFO is not an object");
	for (i = 0; rc >= 0 && i < p->st->ntensors; i++)
		rc = ck_map_add(&p->by_name, p->st->tensor[i].name, p->st->tensor[i].name_len, i,
				NULL, p->err);
	for (uint32_t k = 0; rc >= 0 && k < tok[0].n; k++) {
		if (!ck_map_find(&p->by_name, tok[at].str, tok[at].str_len, &i))
			return bad(p, tok[at].str, "is no tensor of the file");
		rc = read_place(p, at + 1, &p->st->tensor[i]);
		at = tok[at + 1].next;
	}
	for (i = 0; rc >= 0 && i < p->st->ntensors; i++)
		if (!p->st->tensor[i].place)
			return bad(p, p->st->tensor[i].name, "is missing");
	return rc < 0 ? rc : 0;
}

static const char *meta_get(const struct ck_st *st, const char *key)
{
	for (uint64_t i = 0; i < st->nmeta; i++)
		if (!strcmp(st->meta[i].key, key))
			return st->meta[i].value;
	return NULL;
}

int ck_st_read_places(struct ck_st *st, const struct ckpt_limits *limits, struct ckpt_err *err)
{
	const char *text = meta_get(st, CK_ST_PLACES_KEY);
	const char *version = meta_get(st, CK_ST_VERSION_KEY);
	struct places p = { .st = st, .err = err };
	struct ckpt_err why = { 0 };
	int rc;

	if (!text && !version)
		return 0;
	if (!text)
		return ck_fail(err, CKPT_E_CORRUPT, st->name, 8,
			       "__metadata__ has DCP_VERSION, but no DCP_SHARDING_INFO");
	if (version && strcmp(version, "1.0") != 0)
		return ck_fail(err, CKPT_E_UNSUPPORTED, st->name, 8,
			       "DCP_VERSION is \"%.40s\"; zckpt reads 1.0", version);
	st->is_piece = st->at_start = true;
	rc = ck_json_parse(&p.json, text, strlen(text), limits, 0, st->name, &why);
	rc = rc ? ck_fail(err, why.code, st->name, 8, "DCP_SHARDING_INFO: %s", why.msg) :
		  read_all(&p);
	ck_map_release(&p.by_name);
	ck_json_release(&p.json);
	return rc;
}
