/*
 * ck_hf_write.c -- names, shards and the index of a Hugging Face folder to be written.
 */
#include "formats/hf_sharded/ck_hf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"

#define UNASSIGNED UINT32_MAX
#define MAX_INDEX_BYTES ((size_t)4 << 30)

/* Give the tensors [from, to) that have no shard yet the number 'shard'. */
static void close_shard(uint32_t *shard_of, uint64_t from, uint64_t to, uint32_t shard)
{
	for (uint64_t i = from; i < to; i++)
		if (shard_of[i] == UNASSIGNED)
			shard_of[i] = shard;
}

int ck_hf_split(const uint64_t *bytes, uint64_t n, uint64_t max_bytes, uint32_t *shard_out,
		uint32_t *nshards_out, struct ckpt_err *err)
{
	uint64_t open_from = 0, open_bytes = 0;
	uint32_t next = 0;
	bool open = false;

	if (!max_bytes)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "the size limit of a shard cannot be 0 bytes");
	if (n >= UNASSIGNED)
		return ck_fail(err, CKPT_E_LIMIT, NULL, CKPT_NO_OFFSET,
			       "the folder would have %" PRIu64 " tensors, but at most %u are "
			       "possible", n, UNASSIGNED);
	for (uint64_t i = 0; i < n; i++) {
		if (bytes[i] > max_bytes) {
			shard_out[i] = next++;
			continue;
		}
		if (bytes[i] > max_bytes - open_bytes) {
			close_shard(shard_out, open_from, i, next++);
			open_from = i;
			open_bytes = 0;
		}
		shard_out[i] = UNASSIGNED;
		open_bytes += bytes[i];
		open = true;
	}
	if (open)
		close_shard(shard_out, open_from, n, next++);
	*nshards_out = next ? next : 1;
	return 0;
}

/* -------------------------------------------------------------------- names */

char *ck_hf_shard_name(const char *stem, uint32_t shard, uint32_t nshards)
{
	if (nshards <= 1)
		return ck_asprintf("%s.safetensors", stem);
	return ck_asprintf("%s-%05" PRIu32 "-of-%05" PRIu32 ".safetensors", stem, shard + 1,
			   nshards);
}

char *ck_hf_index_name(const char *stem)
{
	return ck_asprintf("%s.safetensors.index.json", stem);
}

/* The number of five to nine digits that ends before 'end'; where it begins. */
static const char *number_before(const char *start, const char *end, uint64_t *out)
{
	const char *p = end;
	uint64_t v = 0;

	while (p > start && p[-1] >= '0' && p[-1] <= '9')
		p--;
	if (end - p < 5 || end - p > 9)
		return NULL;
	for (const char *q = p; q < end; q++)
		v = v * 10 + (uint64_t)(*q - '0');
	*out = v;
	return p;
}

bool ck_hf_is_shard_name(const char *name, const char *ext, size_t *stem_len_out,
			 uint64_t *number_out, uint64_t *of_out)
{
	const size_t n = strlen(name), m = strlen(ext);
	uint64_t number, of;
	const char *p;

	if (n < m || strcmp(name + n - m, ext))
		return false;
	p = number_before(name, name + n - m, &of);
	if (!p || p - name < 4 || memcmp(p - 4, "-of-", 4))
		return false;
	p = number_before(name, p - 4, &number);
	if (!p || p == name || p[-1] != '-')
		return false;
	if (stem_len_out)
		*stem_len_out = (size_t)(p - 1 - name);
	if (number_out)
		*number_out = number;
	if (of_out)
		*of_out = of;
	return true;
}

static bool starts_with(const char *s, const char *start)
{
	return !strncmp(s, start, strlen(start));
}

static bool is_one_of(const char *name, const char *const *list)
{
	while (*list && strcmp(name, *list))
		list++;
	return *list;
}

bool ck_hf_aux_is_wanted(const char *name)
{
	static const char *const names[] = {
		"config.json", "generation_config.json", "special_tokens_map.json",
		"added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "bpe.codes",
		"preprocessor_config.json", "processor_config.json",
		"video_preprocessor_config.json", "image_processor_config.json",
		"normalizer.json", NULL,
	};
	static const char *const weights[] = {
		".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".index.json", NULL,
	};
	static const char *const code[] = {	/* of models that bring their own */
		"modeling_", "configuration_", "tokenization_", "processing_",
		"image_processing_", NULL,
	};

	for (const char *const *p = weights; *p; p++)
		if (ck_ends_with(name, *p))
			return false;
	if (is_one_of(name, names) || starts_with(name, "tokenizer") ||
	    starts_with(name, "chat_template") || ck_ends_with(name, ".tiktoken"))
		return true;
	if (ck_ends_with(name, ".model"))		/* sentencepiece */
		return true;
	for (const char *const *p = code; *p; p++)
		if (starts_with(name, *p) && ck_ends_with(name, ".py"))
			return true;
	return false;
}

bool ck_hf_is_model_output(const char *name)
{
	static const char *const names[] = {
		"model.safetensors", "model.safetensors.index.json",
		"pytorch_model.bin", "pytorch_model.bin.index.json", NULL,
	};
	size_t stem;

	if (is_one_of(name, names))
		return true;
	if (ck_hf_is_shard_name(name, ".safetensors", &stem, NULL, NULL))
		return stem == strlen("model") && starts_with(name, "model");
	if (ck_hf_is_shard_name(name, ".bin", &stem, NULL, NULL))
		return stem == strlen("pytorch_model") && starts_with(name, "pytorch_model");
	return false;
}

/* -------------------------------------------------------------------- index */

struct named {
	const char *name;
	uint32_t shard;
};

static int by_name(const void *a, const void *b)
{
	const struct named *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static int add_pair(struct ck_buf *buf, const char *key, const char *value, bool last,
		    struct ckpt_err *err)
{
	int rc = ck_buf_adds(buf, "    ", err);

	if (!rc)
		rc = ck_buf_add_json(buf, key, strlen(key), err);
	if (!rc)
		rc = ck_buf_adds(buf, ": ", err);
	if (!rc)
		rc = ck_buf_add_json(buf, value, strlen(value), err);
	if (!rc)
		rc = ck_buf_adds(buf, last ? "\n" : ",\n", err);
	return rc;
}

static int add_weight_map(struct ck_buf *buf, const char *stem, const struct named *list,
			  uint64_t n, uint32_t nshards, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < n; i++) {
		char *file = ck_hf_shard_name(stem, list[i].shard, nshards);

		rc = file ? add_pair(buf, list[i].name, file, i + 1 == n, err)
			  : ck_fail_nomem(err, "a file name", strlen(stem));
		ck_free(file);
	}
	return rc;
}

static int add_metadata(struct ck_buf *buf, uint64_t total_bytes, const struct ck_fact *meta,
			uint64_t nmeta, struct ckpt_err *err)
{
	int rc = ck_buf_addf(buf, err, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "%s\n",
			     total_bytes, nmeta ? "," : "");

	for (uint64_t i = 0; !rc && i < nmeta; i++)
		rc = add_pair(buf, meta[i].key, meta[i].value, i + 1 == nmeta, err);
	return rc;
}

int ck_hf_index_json(const char *stem, const char *const *name, const uint32_t *shard,
		     uint64_t n, uint32_t nshards, uint64_t total_bytes,
		     const struct ck_fact *meta, uint64_t nmeta, char **text_out,
		     uint64_t *len_out, struct ckpt_err *err)
{
	struct ck_buf buf = CK_BUF_INIT(MAX_INDEX_BYTES);
	struct named *list = ck_alloc_array(n, sizeof(*list));
	int rc = 0;

	if (!list)
		return ck_fail_nomem(err, "an index", n);
	for (uint64_t i = 0; i < n; i++)
		list[i] = (struct named){ name[i], shard[i] };
	qsort(list, n, sizeof(*list), by_name);
	rc = add_metadata(&buf, total_bytes, meta, nmeta, err);
	if (!rc)
		rc = ck_buf_adds(&buf, "  },\n  \"weight_map\": {\n", err);
	if (!rc)
		rc = add_weight_map(&buf, stem, list, n, nshards, err);
	if (!rc)
		rc = ck_buf_adds(&buf, "  }\n}\n", err);
	if (!rc) {
		*len_out = buf.len;
		*text_out = ck_buf_take(&buf);
	}
	ck_buf_release(&buf);
	ck_free(list);
	return rc;
}
