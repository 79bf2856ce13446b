/* op_read.h -- what hands elements out: `cat`, and loading; values of a step. */
#ifndef OP_READ_H
#define OP_READ_H

#include "libckpt/run/ck_ckpt.h"

/* As the functions of the API; options are complete copies, so each field may be read (ckpt.h). */
int ck_cat(struct ckpt *ck, uint64_t tensor, const struct ckpt_cat_opts *opts, ckpt_bytes_fn fn,
	   void *arg, struct ckpt_cat_info *info_out, struct ckpt_err *err);
int ck_cat_file(struct ckpt *ck, uint64_t tensor, const struct ckpt_cat_opts *opts,
		const char *dst, bool force, struct ckpt_cat_info *info_out, struct ckpt_err *err);

int ck_load(const struct ckpt *ck, const struct ckpt_load_range *range, size_t n,
	    const struct ckpt_load_opts *opts, struct ckpt_loaded *out, struct ckpt_err *err);
int ck_load_checks_new(const struct ckpt *ck, struct ckpt_load_checks **out, struct ckpt_err *err);
int ck_load_checks_end(struct ckpt_load_checks *checks, const struct ckpt_run_opts *run,
		       struct ckpt_load_checked *out, struct ckpt_err *err);
bool ck_load_checks_of(const struct ckpt_load_checks *checks, const struct ckpt *ck);
void ck_load_checks_free(struct ckpt_load_checks *checks);

int ck_values_open(const struct ckpt *ck, uint32_t rank, struct ckpt_values **out,
		   struct ckpt_err *err);
void ck_values_free(struct ckpt_values *values);
int ck_value_get(struct ckpt_values *values, const char *path, struct ckpt_value *out,
		 struct ckpt_err *err);
int ck_value_step(struct ckpt_values *values, const char *path, uint64_t item,
		  const char **step_out, struct ckpt_err *err);

#endif
