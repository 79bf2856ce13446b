/*
 * ck_hf.h -- Hugging Face model folders (docs/formats/hf-folder.md): the driver that reads
 * one, and what a writer of one must decide.  Planning only: nothing here writes.
 */
#ifndef CK_HF_H
#define CK_HF_H

#include "libckpt/format/ck_format.h"

/*
 * Bids 48 for a folder with an index, 40 for one whole .safetensors file, 30 for
 * pytorch_model.bin, 8 for shards without an index (to say what is missing).
 */
extern const struct ck_format ck_format_hf;

/*
 * Assign tensors, in their order, to shards of at most 'max_bytes' bytes of data.  A tensor
 * that would overfill the open shard closes it; exactly full is allowed; a tensor larger
 * than 'max_bytes' becomes a shard of its own at once, numbered before the one that
 * stays open.  (The algorithm of huggingface_hub and transformers.)
 *
 * bytes[n]: sizes.  shard_out[n]: numbers from 0.  '*nshards_out' is at least 1: no tensors
 * make one empty file.  O(n).  CKPT_E_USAGE if 'max_bytes' is 0.
 */
int ck_hf_split(const uint64_t *bytes, uint64_t n, uint64_t max_bytes, uint32_t *shard_out,
		uint32_t *nshards_out, struct ckpt_err *err);

/*
 * "STEM.safetensors" for the only shard, else "STEM-00001-of-00003.safetensors" with
 * 'shard' counted from 0.  The caller frees it with ck_free().  NULL = no memory.
 */
char *ck_hf_shard_name(const char *stem, uint32_t shard, uint32_t nshards);
/* "STEM.safetensors.index.json", likewise. */
char *ck_hf_index_name(const char *stem);

/*
 * The text of that index: metadata with total_size and meta[nmeta] (strings; NULL, 0 =
 * none; keys as given), weight_map sorted bytewise, indented by two, a newline at the end.
 * name[n] and shard[n] describe the tensors; names must differ.  '*text_out' is for ck_free().
 * CKPT_E_NOMEM, CKPT_E_LIMIT.
 */
int ck_hf_index_json(const char *stem, const char *const *name, const uint32_t *shard,
		     uint64_t n, uint32_t nshards, uint64_t total_bytes,
		     const struct ck_fact *meta, uint64_t nmeta, char **text_out,
		     uint64_t *len_out, struct ckpt_err *err);

/* True for files beside a model that go with its weights: config, tokenizer, templates. */
bool ck_hf_aux_is_wanted(const char *name);
/* True for names of a model's weights and their indexes: what a rewrite must replace. */
bool ck_hf_is_model_output(const char *name);

/*
 * True for "STEM-00001-of-00003EXT" (five digits or more on both sides); the numbers
 * and the length of STEM are stored where the pointers are not NULL.
 */
bool ck_hf_is_shard_name(const char *name, const char *ext, size_t *stem_len_out,
			 uint64_t *number_out, uint64_t *of_out);

#endif
