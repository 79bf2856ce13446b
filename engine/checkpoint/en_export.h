/*
 * en_export.h -- the weights of a run as a folder for transformers: config.json, tokenizer, and
 * model.safetensors or shards.
 *
 * No rank gathers weights.  All ranks compute the same layout of the files (CKPT_TO_HUGGINGFACE of
 * <ckpt_save.h>), and each rank rounds and writes the masters that it holds.  So a rank needs a
 * window of 256 KiB and a buffer of 1 MiB for a model of any size.  No weights are sent, and one
 * rank writes each byte of the files once.
 */
#ifndef EN_EXPORT_H
#define EN_EXPORT_H

#include "engine/zero/en_zero.h"

struct en_export_opts {
	const char *dir;	/* becomes the folder */
	const char *job;	/* see struct ckpt_saver_opts; another one than that of the saves */
	const char *model;	/* folder with config.json, tokenizer, ...; or a config.json */
	enum kn_type type;	/* KN_F32, KN_BF16, KN_F16 */
	uint64_t max_shard_bytes;	/* 0 = 5,000,000,000 */
	int64_t steps;		/* that the run has made; en_run() sets it */
	bool merge;		/* adapters are added to their matrices; else they alone are
				 * exported, as PEFT's folder */
	bool last_only;		/* for en_run(): after the last step of the run alone */
	enum ckpt_sync sync;
	uint32_t timeout_ms;
};

/*
 * All ranks call it between steps.  The folder is whole or absent when it returns.  In an
 * existing folder the weights are replaced, and other files stay.  '*out' (may be NULL) is of this
 * rank; nfiles and file_bytes are rank 0's.  Codes of ckpt_save_begin() and ckpt_save_wait();
 * CKPT_E_NOTFOUND and CKPT_E_CORRUPT of config.json.
 */
int en_export(const struct en_model *model, struct en_zero *z, struct en_comm *comm,
	      const struct en_export_opts *opts, struct ckpt_saved *out, struct ckpt_err *err);

/*
 * By one rank, before the first step: creates the parent folder of 'dir', and finds errors that
 * would stop the export at the end of the run.  CKPT_E_USAGE ('dir' is not a folder name, or is the
 * folder of the model, whose weights would be replaced), CKPT_E_EXISTS (a file), CKPT_E_IO,
 * CKPT_E_NOTFOUND and CKPT_E_CORRUPT of config.json.
 */
int en_export_check(const struct en_export_opts *opts, struct ckpt_err *err);

/*
 * The text of config.json at 'path' with "dtype" (and "torch_dtype", if it is there) naming 'type',
 * all else unchanged; new memory (ck_free()).
 */
int en_export_config(const char *path, enum kn_type type, char **text_out, struct ckpt_err *err);

#endif
