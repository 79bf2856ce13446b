/*
 * ck_hf_bin.h -- a pytorch_model.bin, or a shard of one: a flat dict of tensors.
 */
#ifndef CK_HF_BIN_H
#define CK_HF_BIN_H

#include "libckpt/format/ck_format.h"

/*
 * Add the tensors of the .bin file 'src' (source number 'source') under their keys as they
 * stand, dots and all, with state "weight".  A key whose value is the same view of the same
 * storage as an earlier one becomes CKPT_ROLE_ALIAS.  A name that is there already gives
 * TENSOR_DUPLICATE; what is no dense tensor gives TENSOR_OPAQUE.  Codes of ck_pt_open() and
 * ck_pt_extent(); CKPT_E_UNSUPPORTED if the file is no dict.
 */
int ck_hf_bin_index(struct ck_src *src, uint32_t source, const struct ckpt_limits *limits,
		    struct ck_index *ix, struct ck_findings *f, struct ckpt_err *err);

#endif
