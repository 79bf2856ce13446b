/*
 * ck_pt_priv.h -- what the files of formats/torch_pt lend each other.
 */
#ifndef CK_PT_PRIV_H
#define CK_PT_PRIV_H

#include "formats/torch_pt/ck_pt.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/tensor/ck_dtype.h"

/* What a call in the tree means to torch. */
enum ck_pt_call {
	CK_PT_NONE = 0,		/* nothing we know */
	CK_PT_V1,		/* _rebuild_tensor */
	CK_PT_V2,
	CK_PT_V3,
	CK_PT_PARAMETER,	/* with or without state */
	CK_PT_FROM_TYPE,
	CK_PT_CPU_TENSOR,	/* a device's tensor, saved as one of the CPU */
	CK_PT_OLD,		/* torch.FloatTensor() and a 4-tuple, before 1.0 */
	CK_PT_OPAQUE,		/* first of those that are not read: sparse, ... */
};

/*
 * Is 'src' a data file of torch.distributed.checkpoint of several archives?  As ck_zip_row();
 * *n_out is 0 if not.
 */
int ck_pt_is_row(struct ck_src *src, const struct ckpt_limits *limits, uint64_t **begin_out,
		 uint64_t *n_out, struct ckpt_err *err);

enum ck_pt_call ck_pt_call_of(const struct ck_val *v);
/* "a sparse tensor", for a CK_PT_OPAQUE call; "a tensor" otherwise. */
const char *ck_pt_opaque_name(const struct ck_val *v);

/* A persistent id, taken apart. */
struct ck_pt_pid {
	const char *key, *location;
	const char *view_key;	/* NULL = no view */
	uint64_t numel, view_off, view_numel;
	uint8_t dtype;
	bool untyped;
};

/* Give every known rebuild call of the tree its tensor, and the file its storages. */
int ck_pt_bind(struct ck_pt *pt, struct ck_findings *findings, struct ckpt_err *err);
/* Number of the storage that a CK_VAL_PERSID names; it is added at its first mention. */
int ck_pt_storage_get(struct ck_pt *pt, const struct ck_val *persid, uint32_t *out,
		      uint8_t *dtype_out, struct ckpt_err *err);
/* "torch" and "torch.cuda". */
bool ck_pt_is_torch_module(const char *module);
/* A whole number from 0 on. */
bool ck_pt_count(const struct ck_val *v, uint64_t *out);
/* CKPT_E_CORRUPT with the place of the pickle. */
int ck_pt_bad(const struct ck_pt *pt, struct ckpt_err *err, const char *what);
/* Bytes of 'numel' elements; a failure names the file. */
int ck_pt_bytes(const struct ck_pt *pt, uint8_t dtype, uint64_t numel, uint64_t *out,
		struct ckpt_err *err);
/* NULL if the archive has no such record. */
const struct ck_zip_entry *ck_pt_record_find(const struct ck_pt *pt, const char *record);

int ck_pt_legacy_open(struct ck_pt *pt, unsigned pkl_flags, struct ck_findings *findings,
		      struct ckpt_err *err);
/* True if the bytes begin with the pickled magic number of the legacy stream. */
bool ck_pt_is_legacy(const uint8_t *p, size_t n);

/* A FORMAT_NOTE about the file; 'findings' may be NULL. */
void ck_pt_note(const struct ck_pt *pt, struct ck_findings *findings, const char *text);
void ck_pt_notes_pickle(const struct ck_pt *pt, struct ck_findings *findings, unsigned notes);

#endif
