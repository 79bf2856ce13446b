/*
 * formats.c -- the drivers, and which of them the verbs write with.  A driver's own header is for
 * those who build on it; the list needs no more than the name of its table.
 */
#include "formats/ck_formats.h"

extern const struct ck_archive_format ck_format_archive;
extern const struct ck_format ck_format_dcp;
extern const struct ck_format ck_format_dcp_st;
extern const struct ck_format ck_format_deepspeed;
extern const struct ck_format ck_format_fsdp_ranks;
extern const struct ck_format ck_format_hf;
extern const struct ck_format ck_format_megatron;
extern const struct ck_format ck_format_native;
extern const struct ck_format ck_format_safetensors;
extern const struct ck_format ck_format_torch;
extern const struct ck_format ck_format_trainer;
extern const struct ck_format ck_format_universal;

static const struct ck_format *const readers[] = {
	&ck_format_deepspeed,
	&ck_format_universal,
	&ck_format_native,
	&ck_format_megatron,
	&ck_format_dcp,
	&ck_format_fsdp_ranks,
	&ck_format_trainer,
	&ck_format_dcp_st,
	&ck_format_hf,
	&ck_format_safetensors,
	&ck_format_torch,
	NULL,
};

const struct ck_formats ck_all_formats = {
	.reader = readers,
#ifdef CKPT_PACKS	/* libarchive and zstd were found */
	.archive = &ck_format_archive,
#endif
	.step = &ck_format_deepspeed,
	.universal = &ck_format_universal,
	.native = &ck_format_native,
	.dcp = &ck_format_dcp,
	.ranks = &ck_format_fsdp_ranks,
	.trainer = &ck_format_trainer,
	.megatron = &ck_format_megatron,
	.folder = &ck_format_hf,
	.file = &ck_format_safetensors,
	.pickles = &ck_format_torch,
};
