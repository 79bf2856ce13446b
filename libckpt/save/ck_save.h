/*
 * ck_save.h -- private to libckpt/save: a save session from inside.
 *
 * sv_spec.c copies the description and makes the plan of it, sv_hf.c that of a folder of weights;
 * sv_beside.c adds the model's configuration and tokenizer; sv_refs.c finds the segments that
 * elements go to, sv_write.c writes there; sv_work.c has buffer, queue and threads; sv_part.c
 * what a rank says it put; sv_join.c what rank 0 makes of all ranks' parts; sv_end.c the end of
 * a save; sv_link.c what an earlier step has already; ckpt_saver.c its life.
 */
#ifndef CK_SAVE_H
#define CK_SAVE_H

#include <pthread.h>
#include <string.h>

#include "libckpt/base/ck_crc.h"
#include "libckpt/base/ck_hash.h"
#include "libckpt/commit/ck_stage.h"
#include "libckpt/format/ck_format.h"
#include "libckpt/include/ckpt_save.h"

/* ---- sv_spec.c: what is saved ---- */

/* Of a folder of weights for transformers. */
struct sv_hf {
	bool wanted;
	uint64_t max_shard_bytes;	/* 0 = the default */
	const char *config, *aux_dir;	/* or NULL */
};

/* A file of the model's folder, or a text, that goes into the step's. */
struct sv_along {
	const char *name;	/* in the plan: TAG/NAME */
	const char *path, *text;	/* one of them */
	uint64_t bytes;
};

struct sv_spec {
	const struct ck_formats *formats;
	struct ck_arena arena;
	struct ckpt_limits limits;
	struct ck_index ix;	/* tensors and states without bytes */
	struct ck_shard_want want;
	struct ck_shard_now now;
	struct ck_cut *own;	/* of this rank, or NULL */
	uint64_t nown;
	const char *tag;
	const char *frozen_from;	/* or NULL */
	bool own_cut;		/* files are cut as the ranks say */
	bool local;		/* on storage of this rank's own: nobody waits for anybody */
	bool force, latest;
	struct sv_hf hf;
	struct sv_along *along;	/* of rank 0 */
	uint64_t nalong, along_cap;
	struct ck_plan plan;	/* with own_cut: the values and this rank's files */
	uint64_t nshared;	/* files of the plan that all ranks know; rank 0 alone has others */
	struct ck_hash128 hash;	/* of what all ranks have in common */
};

int ck_sv_spec_make(struct sv_spec *s, const struct ck_formats *formats,
		    const struct ckpt_saver_opts *o, const struct ckpt_save_step *step,
		    struct ck_hash128 id, struct ckpt_err *err);
/* The whole step as all ranks together cut it. */
int ck_sv_spec_plan_all(struct sv_spec *s, const struct ck_cut *cut, uint64_t ncuts,
		     struct ck_plan *plan, struct ckpt_err *err);
void ck_sv_spec_release(struct sv_spec *s);
/* The state that puts of 'name' go to; errors say what cannot be put. */
int ck_sv_spec_state(const struct sv_spec *s, uint64_t tensor, const char *name,
		     uint32_t *state_out, struct ckpt_err *err);
/* The name of a file within the step, NULL if it is beside it. */
static inline const char *ck_sv_spec_local(const struct sv_spec *s, const char *name)
{
	const size_t n = strlen(s->tag);

	return !strncmp(name, s->tag, n) && name[n] == '/' ? name + n + 1 : NULL;
}

/* ---- sv_hf.c ---- */

/* Copies what the caller says of such a folder. */
int ck_sv_hf_take(struct sv_spec *s, const struct ckpt_save_step *step, struct ckpt_err *err);
/* Its files, TAG/NAME each. */
int ck_sv_hf_plan(struct sv_spec *s, struct ck_plan *plan, struct ckpt_err *err);
/* Which files of a folder that was there it stands for (ck_stage.h); NULL of a step. */
ck_is_ours_fn *ck_sv_hf_outputs(const struct sv_spec *s);

/* ---- sv_beside.c ---- */

/* The files beside the model's weights: rank 0 alone lists them, before the plan is made. */
int ck_sv_beside_list(struct sv_spec *s, uint32_t rank, const struct ckpt_save_step *step,
		      struct ckpt_err *err);
/* They come after the files of the step itself. */
int ck_sv_beside_plan(const struct sv_spec *s, struct ck_plan *plan, struct ckpt_err *err);

/* ---- sv_refs.c: where elements go ---- */

/* Elements first .. of a state go to a segment: one that puts name, not a derived one. */
struct sv_ref {
	uint64_t first, count;
	uint64_t seg;
	uint32_t state;
	uint32_t file;
};

struct sv_refs {
	struct sv_ref *ref;	/* by state, then first */
	uint64_t n;
	uint64_t *of;		/* of[s] .. of[s + 1] - 1 are those of state s */
	uint8_t *type;		/* in which sums of state s are: of the segments that have them */
};

int ck_sv_refs_make(struct sv_refs *r, const struct ck_index *ix, const struct ck_plan *plan,
		 struct ckpt_err *err);
void ck_sv_refs_release(struct sv_refs *r);
/* Elements of a state that fill a block of its digest, and the bytes of one there. */
uint64_t ck_sv_grain(const struct sv_refs *r, uint32_t state);
uint64_t ck_sv_size(const struct sv_refs *r, uint32_t state);

/* ---- sv_part.c: what a rank put ---- */

struct sv_range {
	uint64_t first, count;
	uint32_t state;
	uint32_t rank;		/* when joined */
};

/* Of the piece of 'state' that begins at 'first': the sum over blocks that one put filled. */
struct sv_term {
	uint64_t first;
	struct ck_hash128 sum;
	uint32_t state;
};

struct sv_part {
	uint32_t rank;
	int code;		/* not 0: it gave up */
	char *why;
	struct sv_range *range;
	uint64_t nranges, range_cap;
	struct sv_term *term;
	uint64_t nterms, term_cap;
	struct ck_crc_piece *crc;	/* 'slot' is the number of the plan's CRC */
	uint64_t ncrcs, crc_cap;
	struct ck_cut *cut;
	uint64_t ncuts, cut_cap;
};

void ck_sv_part_release(struct sv_part *p);
int ck_sv_part_write(const struct sv_part *p, const char *path, struct ckpt_err *err);
/* CKPT_E_NOTFOUND, CKPT_E_CORRUPT, CKPT_E_IO, CKPT_E_NOMEM. */
int ck_sv_part_read(struct sv_part *p, const char *path, struct ckpt_err *err);

/* ---- sv_write.c: to the files ---- */

/* A save as its writers see it. */
struct sv_target {
	const struct ck_index *ix;
	const struct ck_plan *plan;
	const struct sv_refs *refs;
	struct ck_stage *stage;
	const uint32_t *stage_file;
};

/* Elements that are put, in memory. */
struct sv_run {
	const uint8_t *p;
	uint64_t first, count;
	uint32_t state;
};

/* What one thread needs to write, and what it found out. */
struct sv_hand {
	uint8_t *buf;			/* a window */
	struct ck_hash128 *sum;		/* by slot, lazily made */
	struct ck_crc_piece *crc;
	uint64_t ncrcs, crc_cap;
	uint64_t written;
};

int ck_sv_hand_init(struct sv_hand *me, struct ckpt_err *err);
/* Begin anew; and for good. */
void ck_sv_hand_forget(struct sv_hand *me);
void ck_sv_hand_release(struct sv_hand *me);
int ck_sv_write(const struct sv_target *t, struct sv_hand *me, const struct sv_run *run,
		struct ckpt_err *err);

/* ---- sv_work.c: the threads that write ---- */

struct sv_work;

int ck_sv_work_new(uint32_t threads, uint64_t buffer_bytes, struct sv_work **out,
		struct ckpt_err *err);
void ck_sv_work_free(struct sv_work *w);
/* Nothing is queued: elements go to 't' from here on. */
void ck_sv_work_begin(struct sv_work *w, const struct sv_target *t);
/* One thread.  Copies, or lends; waits for room; returns what a writer failed with. */
int ck_sv_work_put(struct sv_work *w, uint32_t state, uint64_t first, uint64_t count, const void *p,
		bool lent, struct ckpt_err *err);
/* What failed so far, or 0. */
int ck_sv_work_check(struct sv_work *w, struct ckpt_err *err);
/* Drop what is queued. */
void ck_sv_work_cancel(struct sv_work *w);
/* Until all is written; terms and CRCs go to 'part'. */
int ck_sv_work_finish(struct sv_work *w, struct sv_part *part, uint64_t *written_out,
		   struct ckpt_err *err);

/* ---- sv_join.c: all parts ---- */

struct sv_save;

struct sv_join {
	const struct sv_spec *spec;
	const struct ck_plan *plan;
	const struct sv_refs *refs;
	struct ck_stage *stage;
	const uint32_t *stage_file;
	struct sv_part *part;
	uint32_t nparts;
	const struct sv_save *alone;	/* one rank's part is all there is of the step; or NULL */
};

/* Every element was put once; sums and digests go to their places. */
int ck_sv_join(const struct sv_join *j, struct ckpt_err *err);

/* ---- sv_end.c ---- */

/* Who takes part in the commit: with storage of its own, each rank alone. */
static inline uint32_t ck_sv_part(const struct ckpt_saver_opts *o)
{
	return o->flags & CKPT_SAVER_LOCAL ? 0 : o->rank;
}

static inline uint32_t ck_sv_parts(const struct ckpt_saver_opts *o)
{
	return o->flags & CKPT_SAVER_LOCAL ? 1 : o->nranks;
}


struct sv_save {
	const struct ckpt_saver_opts *opts;
	const _Atomic uint8_t *gone;	/* [nranks]: have ended, as the caller says; or NULL */
	struct sv_spec spec;
	struct sv_refs refs;
	struct ck_stage *stage;
	uint32_t *stage_file;
	struct sv_part part;
	struct sv_work *work;
	char *link_from;	/* folder that frozen files are links to; NULL = they are written */
	struct ck_stamp *link_stamp;	/* of those, by file of the plan, when looked at */
	uint64_t linked_bytes;
	uint64_t written;
	double write_seconds, commit_seconds;
	uint64_t nfiles, file_bytes;
};

/* This rank's literals, its record; on rank 0 all the rest. */
int ck_sv_end(struct sv_save *s, double since, struct ckpt_err *err);
/* Tell the others, and leave nothing that costs room. */
void ck_sv_give_up(struct sv_save *s, const struct ckpt_err *why);

/* A file of the step whose space this rank takes, and whose literals it writes; sv_refs.c. */
bool ck_sv_is_mine(const struct sv_save *s, uint32_t file);

/* ---- sv_link.c: what an earlier step has already ---- */

/*
 * Are the frozen files of spec.frozen_from those that this save would write?  Then link_from is
 * set, and what is in this rank's is counted as put.  Before the stage begins.
 */
int ck_sv_link_find(struct sv_save *s, struct ckpt_err *err);
/* Write them after all; before anything is put. */
void ck_sv_link_forget(struct sv_save *s);
/* Make a file of this rank's one of the stage. */
int ck_sv_link_file(struct sv_save *s, uint32_t file, struct ckpt_err *err);
bool ck_sv_is_frozen(const struct sv_save *s, const struct ck_plan *plan, uint32_t file);
bool ck_sv_is_linked(const struct sv_save *s, uint32_t file);


#endif
