/*
 * op_view.h -- the files of `convert`, read at any place: the plan is that of op_convert.h, the
 * bytes come from ck_seg_read.h after ck_proof.h has compared what they are made of.
 */
#ifndef OP_VIEW_H
#define OP_VIEW_H

#include "libckpt/run/ck_ckpt.h"
#include "libckpt/view/ck_proof.h"

/* As the functions of the API; options are complete copies. */
int ck_vf_open(struct ckpt *ck, const struct ckpt_view_opts *opts, struct ckpt_view **view_out,
	       struct ckpt_err *err);
void ck_vf_close(struct ckpt_view *view);
uint64_t ck_vf_count(const struct ckpt_view *view);
/* 'file' is one that there is, here and below. */
void ck_vf_get(const struct ckpt_view *view, uint64_t file, struct ckpt_view_file *out);
int ck_vf_read(struct ckpt_view *view, uint64_t file, uint64_t off, size_t n, void *buf,
	       struct ckpt_err *err);
int ck_vf_check(struct ckpt_view *view, uint64_t file, uint64_t off, uint64_t n,
		struct ckpt_err *err);
uint64_t ck_vf_overflows(const struct ckpt_view *view);

#endif
