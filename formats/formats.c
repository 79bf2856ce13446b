/*
 * formats.c -- the drivers.  Order decides between equal bids only.  A driver's own header is
 * for those who build on it; the list needs no more than the name of its table.
 */
#include "libckpt/format/ck_format.h"

extern const struct ck_format ck_format_archive;
extern const struct ck_format ck_format_deepspeed;
extern const struct ck_format ck_format_hf;
extern const struct ck_format ck_format_native;
extern const struct ck_format ck_format_safetensors;
extern const struct ck_format ck_format_torch;
extern const struct ck_format ck_format_universal;

const struct ck_format *const ck_formats[] = {
	&ck_format_deepspeed,
	&ck_format_universal,
	&ck_format_native,
	&ck_format_hf,
	&ck_format_safetensors,
	&ck_format_torch,
#ifdef CKPT_PACKS	/* libarchive and zstd were found */
	&ck_format_archive,
#endif
	NULL,
};
