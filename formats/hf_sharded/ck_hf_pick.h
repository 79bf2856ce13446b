/*
 * ck_hf_pick.h -- which of a folder's files hold the model's weights.
 */
#ifndef CK_HF_PICK_H
#define CK_HF_PICK_H

#include "libckpt/format/ck_format.h"

/* In order of precedence (docs/formats/hf-folder.md). */
enum ck_hf_kind {
	CK_HF_NONE = 0,
	CK_HF_ST,		/* model.safetensors */
	CK_HF_ST_INDEX,		/* model.safetensors.index.json */
	CK_HF_ST_INDEX_OTHER,	/* of a variant or another stem */
	CK_HF_ST_OTHER,
	CK_HF_BIN,		/* pytorch_model.bin */
	CK_HF_BIN_INDEX,
	CK_HF_BIN_INDEX_OTHER,
	CK_HF_BIN_OTHER,
};

enum ck_hf_kind ck_hf_kind_of(const char *name);
bool ck_hf_kind_is_index(enum ck_hf_kind kind);
bool ck_hf_kind_is_bin(enum ck_hf_kind kind);

/* The best kind among the files of a folder, CK_HF_NONE if there is none. */
enum ck_hf_kind ck_hf_best(const struct ck_tree *tree);

/*
 * The file to read: the one that config.json names as transformers_weights, else the
 * best.  What is passed over becomes a finding.  CKPT_E_MISMATCH when two files are equally
 * good, CKPT_E_INCOMPLETE for shards without an index, CKPT_E_NOTFOUND when config.json names what
 * is not there.
 */
int ck_hf_pick(const struct ck_input *in, struct ck_findings *f,
	       const struct ck_tree_entry **file_out, enum ck_hf_kind *kind_out,
	       struct ckpt_err *err);

/* True for a name within the folder: no separator of any system, no drive, no dots. */
bool ck_hf_is_base_name(const char *name, uint64_t len);

#endif
