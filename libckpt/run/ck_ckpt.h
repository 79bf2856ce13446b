/*
 * ck_ckpt.h -- what an open checkpoint is, for the verbs and the API above them.
 */
#ifndef CK_CKPT_H
#define CK_CKPT_H

#include <pthread.h>

#include "libckpt/commit/ck_commit.h"
#include "libckpt/format/ck_format.h"
#include "libckpt/io/ck_src.h"
#include "libckpt/tensor/ck_index.h"

/* Whether heads of files were compared (ck_stated.h). */
struct ck_begun {
	pthread_mutex_t lock;
	bool done;
};

struct ckpt {
	const struct ck_formats *formats;
	const struct ck_format *driver;	/* the one that read it */
	struct ck_index ix;
	struct ck_findings findings;
	struct ck_fdpool *pool;		/* of the index's sources */
	struct ckpt_limits limits;	/* complete */
	struct ck_arena arena;		/* copies of what the caller gave, as all below */
	const char **path;
	size_t npaths;
	const char *tag;		/* NULL = none was given */
	uint32_t threads;
	struct ck_begun *begun;
};

/* As ckpt_open(), with these drivers. */
int ck_ckpt_open(const struct ck_formats *formats, const char *const *paths, size_t npaths,
		 const struct ckpt_open_opts *opts, struct ckpt **ck_out, struct ckpt_err *err);

/* The verbs.  Options are complete copies, so every field may be read (ckpt.h). */
int ck_convert(struct ckpt *ck, const char *dst, const struct ckpt_convert_opts *opts,
	       struct ckpt_report *report_out, struct ckpt_err *err);
int ck_reshard(struct ckpt *ck, const char *dst, const struct ckpt_reshard_opts *opts,
	       struct ckpt_report *report_out, struct ckpt_err *err);
int ck_shard(struct ckpt *ck, const char *dst, const struct ckpt_shard_opts *opts,
	     struct ckpt_report *report_out, struct ckpt_err *err);
int ck_audit(const struct ck_formats *formats, const char *const *paths, size_t npaths,
	     const struct ckpt_limits *limits, struct ckpt_audit *out, struct ckpt_err *err);
int ck_sizes(struct ckpt *ck, struct ckpt_sizes *out, struct ckpt_err *err);
int ck_pack_step(struct ckpt *ck, const char *dst, const struct ckpt_pack_opts *opts,
		 struct ckpt_packed *packed_out, struct ckpt_err *err);
int ck_unpack_archive(const struct ck_archive_format *driver, const char *path, const char *dst,
		      const struct ckpt_unpack_opts *opts, struct ckpt_packed *packed_out,
		      struct ckpt_err *err);
int ck_digest(struct ckpt *ck, const struct ckpt_digest_opts *opts, struct ckpt_digests *out,
	      struct ckpt_err *err);
int ck_verify(struct ckpt *ck, const struct ckpt_verify_opts *opts, struct ckpt_verified *out,
	      struct ckpt_err *err);
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
int ck_diff(struct ckpt *a, struct ckpt *b, const struct ckpt_diff_opts *opts,
	    struct ckpt_diff_result *out, struct ckpt_err *err);

/*
 * Copy an option struct that begins with its size into '*out' of 'size' bytes; what the
 * caller's is shorter is zero.  CKPT_E_USAGE if its size was not set, or if it is longer
 * and says something there that this library does not know.
 */
int ck_opts_take(void *out, size_t size, const void *in, const char *what,
		 struct ckpt_err *err);

#endif
