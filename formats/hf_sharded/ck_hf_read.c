/*
 * ck_hf_read.c -- a Hugging Face model folder as a driver.
 *
 * The index's weight_map says which shard holds which tensor.  Every shard it names is
 * read once, in the order of their names; then every entry must be met in its own
 * shard.  (transformers uses the map as a list of files only, so that a wrong map gives
 * random weights without a word.)
 */
#include "formats/hf_sharded/ck_hf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hf_sharded/ck_hf_bin.h"
#include "formats/hf_sharded/ck_hf_pick.h"
#include "formats/hf_sharded/ck_hf_plan.h"
#include "formats/safetensors/ck_st.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_map.h"
#include "libckpt/base/ck_search.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/json/ck_json.h"
#include "libckpt/tensor/ck_dtype.h"

/* A file that weight_map names; its tensors are [first, last) of the index. */
struct shard {
	const char *name;
	uint64_t first, last;
	bool readable;
};

struct folder {
	const struct ck_input *in;
	struct ck_index *ix;
	struct ck_findings *f;
	struct ckpt_err *err;
	const char *index_path;		/* NULL = one whole file */
	struct ck_json json;
	uint64_t map;			/* token of weight_map */
	bool bin;
	bool pieces;			/* HuggingFaceStorageWriter of one rank wrote a file */
	struct shard *shard;
	uint64_t nshards, shard_cap;
	struct ck_map by_name;		/* file name -> shard */
};

/* --------------------------------------------------------------- one file */

static int index_st(struct folder *h, struct ck_src *src, uint32_t source)
{
	struct ck_st *st = NULL;
	int rc = ck_st_open(src, &h->in->limits, &st, h->err);

	if (!rc)
		rc = ck_st_index(st, source, "weight", h->ix, h->f, h->err);
	if (!rc)
		rc = ck_st_index_beside(st, source, h->ix, h->err);
	if (!rc && (st->notes & CK_ST_NO_FORMAT))
		ck_findings_add(h->f, CK_FINDING_FORMAT_NOTE, st->name,
				"__metadata__ lacks \"format\"; older transformers refuse such a "
				"file");
	h->pieces |= !rc && st->is_piece;
	ck_st_close(st);
	return rc;
}

static int read_file(struct folder *h, const struct ck_tree_entry *file, bool bin)
{
	struct ck_src *src;
	uint32_t source;
	int rc = ck_src_open(h->in->pool, file->path, &src, h->err);

	if (!rc)
		rc = ck_index_add_source(h->ix, file->path, src, -1, &source, h->err);
	if (rc)
		return rc;
	return bin ? ck_hf_bin_index(src, source, &h->in->limits, h->ix, h->f, h->err)
		   : index_st(h, src, source);
}

/* --------------------------------------------------------- reading the index */

static int bad_index(struct folder *h, uint64_t number, const char *what)
{
	return ck_fail(h->err, CKPT_E_CORRUPT, h->index_path,
		       number == UINT64_MAX ? CKPT_NO_OFFSET : h->json.tok[number].off, "%s",
		       what);
}

/* The name of a shard: in this folder, and of the index's own kind. */
static int check_shard_name(struct folder *h, uint64_t number)
{
	const struct ck_json_tok *v = &h->json.tok[number];
	const char *ext = h->bin ? ".bin" : ".safetensors";
	const size_t n = strlen(ext);

	if (v->type != CK_JSON_STRING)
		return bad_index(h, number, "weight_map: a file name is not a string");
	if (!ck_hf_is_base_name(v->str, v->str_len))
		return ck_fail(h->err, CKPT_E_CORRUPT, h->index_path, v->off,
			       "weight_map names the file \"%.160s\"; only names within the "
			       "folder are followed", v->str);
	if (v->str_len <= n || strcmp(v->str + v->str_len - n, ext))
		return ck_fail(h->err, CKPT_E_CORRUPT, h->index_path, v->off,
			       "weight_map names the file \"%.160s\", but this is an index of "
			       "%s files", v->str, ext);
	return 0;
}

static int by_shard_name(const void *a, const void *b)
{
	const struct shard *x = a, *y = b;

	return ck_name_compare(x->name, y->name);
}

static int add_shard(struct folder *h, uint64_t number)
{
	const struct ck_json_tok *v = &h->json.tok[number];
	int rc = check_shard_name(h, number);

	if (!rc)
		rc = ck_map_add(&h->by_name, v->str, v->str_len, h->nshards, NULL, h->err);
	if (rc)
		return rc < 0 ? rc : 0;
	if (h->nshards >= h->in->limits.files)
		return ck_fail_limit(h->err, h->index_path, v->off, "files", h->in->limits.files,
				     "the index names too many files");
	rc = ck_grow(&h->shard, &h->shard_cap, h->nshards + 1, sizeof(*h->shard), h->err);
	if (!rc)
		h->shard[h->nshards++] = (struct shard){ .name = v->str };
	return rc;
}

/* Number the shards in the order of their names. */
static int sort_shards(struct folder *h)
{
	int rc = 0;

	ck_map_release(&h->by_name);
	qsort(h->shard, h->nshards, sizeof(*h->shard), by_shard_name);
	for (uint64_t i = 0; !rc && i < h->nshards; i++)
		rc = ck_map_add(&h->by_name, h->shard[i].name, strlen(h->shard[i].name), i,
				NULL, h->err);
	return rc;
}

static int collect_shards(struct folder *h)
{
	const struct ck_json_tok *tok = h->json.tok;
	uint64_t at = h->map + 1;

	for (uint32_t i = 0; i < tok[h->map].n; i++) {
		int rc;

		if (memchr(tok[at].str, 0, tok[at].str_len))
			return bad_index(h, at, "weight_map: a tensor name holds NUL");
		rc = add_shard(h, at + 1);
		if (rc)
			return rc;
		at = tok[at + 1].next;
	}
	return sort_shards(h);
}

static int parse_index(struct folder *h, const char *text, uint64_t len)
{
	int rc = ck_json_parse(&h->json, text, len, &h->in->limits, 0, h->index_path, h->err);

	if (rc)
		return rc;
	h->map = ck_json_get(&h->json, 0, "weight_map");
	if (h->map == UINT64_MAX)
		return bad_index(h, 0, "the index has no weight_map");
	if (h->json.tok[h->map].type != CK_JSON_OBJECT)
		return bad_index(h, h->map, "weight_map is not an object");
	if (!h->json.tok[h->map].n)
		return bad_index(h, h->map, "weight_map is empty");
	return collect_shards(h);
}

/* ------------------------------------------------------------------- shards */

/* What leaves the other shards usable is a finding; the rest ends the call. */
static bool is_damage(int rc)
{
	return rc == -CKPT_E_CORRUPT || rc == -CKPT_E_TRUNCATED || rc == -CKPT_E_FORMAT;
}

static int read_shard(struct folder *h, struct shard *s)
{
	const struct ck_tree_entry *e = ck_tree_find(&h->in->tree, s->name);
	struct ckpt_err *outer = h->err, why = { 0 };
	int rc;

	s->first = s->last = h->ix->ntensors;
	if (!e) {
		ck_findings_add(h->f, CK_FINDING_MODEL_FILE_MISSING, s->name,
				"the index names it, but the folder does not have it");
		return 0;
	}
	h->err = &why;
	rc = read_file(h, e, h->bin);
	h->err = outer;
	s->last = h->ix->ntensors;
	s->readable = !rc;
	if (!rc)
		return 0;
	if (!is_damage(rc))
		return ck_fail(outer, why.code, why.where, why.offset, "%s", why.msg);
	ck_findings_add(h->f, CK_FINDING_FILE_DAMAGED, why.where, "%s", why.msg);
	return 0;
}

/* "...-of-00007" on two files: a harmless lie, or the rest of another model. */
static void check_counts(struct folder *h)
{
	for (uint64_t i = 0; i < h->nshards; i++) {
		uint64_t of;

		if (ck_hf_is_shard_name(h->shard[i].name, h->bin ? ".bin" : ".safetensors",
					NULL, NULL, &of) && of != h->nshards) {
			ck_findings_add(h->f, CK_FINDING_FORMAT_NOTE, h->shard[i].name,
					"the file's name says %" PRIu64 " shards, the index "
					"names %" PRIu64, of, h->nshards);
			return;
		}
	}
}

static void check_strays(struct folder *h)
{
	const char *ext = h->bin ? ".bin" : ".safetensors";

	for (uint64_t i = 0; i < h->in->tree.n; i++) {
		const struct ck_tree_entry *e = &h->in->tree.entry[i];

		if (!e->is_dir && ck_hf_is_shard_name(e->name, ext, NULL, NULL, NULL) &&
		    !ck_map_find(&h->by_name, e->name, strlen(e->name), NULL))
			ck_findings_add(h->f, CK_FINDING_FORMAT_NOTE, e->path,
					"no entry of the index names this shard (left over "
					"from an older save?); it is ignored");
	}
}

/* ----------------------------------------------------------- map against data */

/* The shard that holds tensor 'tensor': its range includes the number. */
static const struct shard *holder(const struct folder *h, uint64_t tensor)
{
	uint64_t i;

	CK_LOWER_BOUND(i, h->nshards, h->shard[i].last <= tensor);
	return i < h->nshards && h->shard[i].first <= tensor ? &h->shard[i] : NULL;
}

static void check_entry(struct folder *h, const struct ck_json_tok *name,
			const struct ck_json_tok *file)
{
	const struct shard *said, *real;
	uint64_t number = 0;
	uint32_t tensor;

	ck_map_find(&h->by_name, file->str, file->str_len, &number);
	said = &h->shard[number];
	if (!said->readable)
		return;		/* reported with the file */
	if (!ck_index_find(h->ix, name->str, &tensor)) {
		ck_findings_add(h->f, CK_FINDING_NAMES_WRONG, name->str,
				"the index says that it is in %s, but it is not", said->name);
		return;
	}
	real = holder(h, tensor);
	if (real != said)
		ck_findings_add(h->f, CK_FINDING_NAMES_WRONG, name->str,
				"the index says that it is in %s, but it is in %s", said->name,
				real ? real->name : "another file");
}

static int check_map(struct folder *h)
{
	const struct ck_json_tok *tok = h->json.tok;
	struct ck_map listed = CK_MAP_INIT;
	uint64_t at = h->map + 1, nextra = 0;
	int rc = 0;

	for (uint32_t i = 0; rc >= 0 && i < tok[h->map].n; i++) {
		rc = ck_map_add(&listed, tok[at].str, tok[at].str_len, 0, NULL, h->err);
		check_entry(h, &tok[at], &tok[at + 1]);
		at = tok[at + 1].next;
	}
	for (uint64_t i = 0; rc >= 0 && i < h->ix->ntensors; i++) {
		const char *name = h->ix->tensor[i].name;

		if (!ck_map_find(&listed, name, strlen(name), NULL) && ++nextra <= 20)
			ck_findings_add(h->f, CK_FINDING_FORMAT_NOTE, name,
					"a shard holds it, but the index does not list it; "
					"zckpt keeps it");
	}
	ck_map_release(&listed);
	return rc < 0 ? rc : 0;
}

/* Bytes of all tensors, an alias counted once; twice in '*twice_out'. */
static void count_bytes(const struct ck_index *ix, uint64_t *once_out, uint64_t *twice_out)
{
	*once_out = *twice_out = 0;
	for (uint64_t i = 0; i < ix->ntensors; i++) {
		const struct ck_tensor *t = &ix->tensor[i];
		const bool alias = t->role == CKPT_ROLE_ALIAS;
		const struct ck_tensor *data = alias ? &ix->tensor[t->alias_of] : t;
		uint64_t bytes;

		if (data->first_state == CK_NONE ||
		    ck_dtype_bytes(ix->state[data->first_state].dtype, data->numel, &bytes, NULL))
			continue;
		*twice_out += bytes;
		*once_out += alias ? 0 : bytes;
	}
}

/*
 * total_size guides loaders' memory only; a wrong one is worth a line, not more.  But where ranks
 * may have written their parts of tensors over each other, nothing else says so.
 */
static void check_total(struct folder *h)
{
	const uint64_t meta = ck_json_get(&h->json, 0, "metadata");
	const uint64_t total = meta == UINT64_MAX ? meta
						  : ck_json_get(&h->json, meta, "total_size");
	uint64_t said, once, twice;
	bool whole = true;

	if (meta == UINT64_MAX || h->json.tok[meta].type != CK_JSON_OBJECT) {
		ck_findings_add(h->f, CK_FINDING_FORMAT_NOTE, h->index_path,
				"the index has no metadata; transformers refuses it");
		return;
	}
	if (!ck_json_u64(&h->json, total, &said)) {
		ck_findings_add(h->f, CK_FINDING_FORMAT_NOTE, h->index_path,
				total == UINT64_MAX ? "metadata has no total_size"
						    : "total_size is not an integer");
		return;
	}
	for (uint64_t i = 0; i < h->nshards; i++)
		whole &= h->shard[i].readable;
	count_bytes(h->ix, &once, &twice);
	if (whole && said != once && said != twice)
		ck_findings_add(h->f, h->pieces ? CK_FINDING_LENGTH_WRONG : CK_FINDING_FORMAT_NOTE,
				h->index_path, "total_size says %" PRIu64
				" bytes, the tensors take %" PRIu64 "%s", said, once,
				h->pieces ? " (several ranks saved without save_distributed=True, "
				"each over the other's file?)" : "");
}

/* What the shards say of the index itself. */
static void check_own_sum(struct folder *h, const char *name, const char *text, uint64_t len)
{
	const struct ck_hash128 is = ck_digest_blocks(text, len, 0);

	for (uint64_t i = 0; i < h->ix->nstated_files; i++) {
		const struct ck_stated_file *f = &h->ix->stated_file[i];

		if (!strcmp(f->name, name) && !ck_hash128_equal(f->sum, is))
			ck_findings_add(h->f, CK_FINDING_SUM_WRONG, h->index_path,
					"the index differs from the one that was written with "
					"the shards: it is damaged, or was edited since (then "
					"--as-warning SUM_WRONG)");
	}
}

/* -------------------------------------------------------------------- driver */

static int read_indexed(struct folder *h, const struct ck_tree_entry *file)
{
	char *text = NULL;
	uint64_t len;
	int rc = ck_src_watch(h->in->pool, file->path, h->err);

	if (!rc)
		rc = ck_look_read(h->in->pool, file->path, h->in->limits.header_bytes, &text, &len,
				  h->err);
	h->index_path = file->path;
	if (!rc)
		rc = parse_index(h, text, len);
	for (uint64_t i = 0; !rc && i < h->nshards; i++)
		rc = read_shard(h, &h->shard[i]);
	if (!rc)
		rc = check_map(h);
	if (!rc) {
		check_counts(h);
		check_strays(h);
		check_total(h);
		check_own_sum(h, file->name, text, len);
	}
	ck_map_release(&h->by_name);
	ck_free(h->shard);
	ck_json_release(&h->json);
	ck_free(text);
	return rc;
}

static int hf_probe(const struct ck_input *in)
{
	const enum ck_hf_kind kind = in->is_dir ? ck_hf_best(&in->tree) : CK_HF_NONE;

	if (!in->is_dir)
		return 0;
	if (ck_hf_kind_is_index(kind))
		return 48;
	if (kind)
		return ck_hf_kind_is_bin(kind) ? 30 : 40;
	for (uint64_t i = 0; i < in->tree.n; i++)
		if (ck_hf_is_shard_name(in->tree.entry[i].name, ".safetensors", NULL, NULL, NULL))
			return 8;
	return 0;
}

/* A file of weights that stands in two of the given folders, with different sizes. */
static void check_overlay(const struct ck_input *in, struct ck_findings *f)
{
	for (uint64_t i = 0; i < in->tree.ndiffering; i++) {
		const char *name = in->tree.differing[i];

		if (ck_hf_kind_of(name) ||
		    ck_hf_is_shard_name(name, ".safetensors", NULL, NULL, NULL) ||
		    ck_hf_is_shard_name(name, ".bin", NULL, NULL, NULL))
			ck_findings_add(f, CK_FINDING_OVERLAY_DIFFERS, name,
					"it is in two of the given folders with different sizes; "
					"the first one is read");
	}
}

static int hf_index(const struct ck_input *in, struct ck_index *ix, struct ck_findings *f,
		    struct ckpt_err *err)
{
	struct folder h = { .in = in, .ix = ix, .f = f, .err = err };
	const struct ck_tree_entry *file;
	enum ck_hf_kind kind;
	int rc = ck_hf_pick(in, f, &file, &kind, err);

	ix->format = "huggingface";
	if (rc)
		return rc;
	check_overlay(in, f);
	ix->why = ck_arena_printf(&ix->arena, "%s is in the folder", file->name);
	h.bin = ck_hf_kind_is_bin(kind);
	return ck_hf_kind_is_index(kind) ? read_indexed(&h, file) : read_file(&h, file, h.bin);
}

static bool is_output(const char *name, const struct ck_tree *fresh)
{
	(void)fresh;
	return ck_hf_is_model_output(name);
}

const struct ck_format ck_format_hf = {
	.name = "huggingface",
	.is_model = true,
	.probe = hf_probe,
	.index = hf_index,
	.plan = ck_hf_plan,
	.is_output = is_output,
	.is_aux = ck_hf_aux_is_wanted,
};
