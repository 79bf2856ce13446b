/*
 * ds_par.h -- a step of DeepSpeed with tensor or pipeline parallelism.
 *
 * The files of one model-parallel position (mp_rank MM = pipeline stage * tensor ranks + tensor
 * rank) are a step of data parallelism, which is read by itself into an index of its own.  Then the
 * positions' tensors are joined: ds_par_join.c.
 */
#ifndef CK_DS_PAR_H
#define CK_DS_PAR_H

#include "formats/ds_pt/ck_ds.h"
#include "formats/ds_pt/ds_tp_rules.h"

struct ds_pos {
	struct ds_step *ds;	/* ds->mp = MM */
	struct ck_index ix;	/* of its local tensors */
	bool has_ix;
	uint32_t pp, tp;
	bool incomplete;	/* an error says which of its files are of no use */
	uint32_t *source, *member, *view;	/* their numbers in the whole index */
};

/* layer_LL-model_TT-model_states.pt */
struct ds_layer {
	struct ds_file file;
	uint32_t number, tp;
	uint32_t pos;		/* CK_NONE = of no position */
	uint32_t first;		/* its storages' first number in the position's 'module' */
	const char *tied;	/* the module's key in tied_modules, or NULL */
};

struct ds_par {
	struct ds_step *whole;
	struct ds_pos *pos;	/* by MM */
	uint32_t npos, npp, ntp;
	struct ds_layer *layer;	/* by number, then tensor rank */
	uint32_t nlayers;
	struct ds_tp_rules *rules;	/* of each stage, of the files; NULL = there is none */
	struct ds_tp_rules given;	/* the user's; given.given */
	bool no_layers;		/* a pipeline whose weights are in no file (universal form) */
	bool cut_vocabulary;	/* to original_vocab_size (universal form) */
	/* A position as a step of data parallelism with its values; of a step that was read. */
	int (*fill)(struct ds_step *ds, const struct ck_index *ix, struct ck_step *step,
		    struct ckpt_err *err);
};

/* Do the names of the files say so?  ck_ds_sort_files() was there. */
bool ck_ds_is_parallel(const struct ds_step *whole);
/*
 * ds_par.c: sort the files of 'whole' into positions, open their model files, compare them.  '*out'
 * becomes whole->parts, which ck_ds_free() frees.  MODEL_FILE_MISSING, RANKS_DISAGREE,
 * LAYOUT_UNSUPPORTED.
 */
int ck_ds_par_open(struct ds_step *whole, struct ckpt_err *err);
/* Read every position into its index. */
int ck_ds_par_read(struct ds_par *par, int (*read)(struct ds_step *ds, struct ckpt_err *err),
		   struct ckpt_err *err);
void ck_ds_par_free(struct ds_par *par);

static inline struct ds_pos *ck_ds_pos(const struct ds_par *par, uint32_t pp, uint32_t tp)
{
	return &par->pos[(uint64_t)pp * par->ntp + tp];
}

/* ds_par_rules.c: how the tensor 'name' of stage 'pp' is cut; shapes by tensor rank. */
int ck_ds_par_rules(struct ds_par *par, struct ckpt_err *err);
int ck_ds_par_cut(struct ds_par *par, uint32_t pp, const struct ds_tp_local *local,
		  struct ds_tp_cut *cut_out, struct ckpt_err *err);
/* The rules of the files, also where there is one tensor rank; none without them. */
int ck_ds_par_file_rules(struct ds_par *par, struct ckpt_err *err);
/* Rows of it that the step's form keeps: 'rows', or original_vocab_size of a vocabulary. */
int ck_ds_par_rows(const struct ds_par *par, uint32_t pp, const char *name, uint64_t rows,
		   uint64_t *out, struct ckpt_err *err);

/* ds_par_join.c: all into the index of par->whole; the files become its sources. */
int ck_ds_par_join(struct ds_par *par, struct ckpt_err *err);
/* The fact "layout": "tp 2 x pp 2 x dp 2". */
int ck_ds_par_add_layout(struct ds_par *par, uint32_t dp, struct ckpt_err *err);
/* The rank in the run of data-parallel rank 'dp' of a position. */
uint32_t ck_ds_par_rank(const struct ds_par *par, const struct ds_pos *pos, uint32_t dp);

/*
 * ds_par_whole.c, make_whole() of a step that was read: one without tensor and pipeline
 * parallelism.  The second is for the universal form, whose param groups are whole.
 */
int ck_ds_par_whole(struct ck_step *step, const struct ck_reshard_want *want,
		    struct ckpt_err *err);
int ck_ds_par_whole_model(struct ck_step *step, const struct ck_reshard_want *want,
			  struct ckpt_err *err);

/*
 * ds_par_same.c: have two states, of the same number of elements, the same bytes?  All of them up
 * to 'most' elements, else samples.  '*known_out' is false where it cannot be said.
 */
struct ds_par_state {
	const struct ds_pos *pos;
	uint32_t state;
	uint64_t numel;
};

int ck_ds_par_same(const struct ds_par *par, const struct ds_par_state *a,
		   const struct ds_par_state *b, uint64_t most, bool *same_out, bool *known_out,
		   struct ckpt_err *err);

/* ds_pipe.c: layer files to positions. */
int ck_ds_pipe_open(struct ds_par *par, struct ckpt_err *err);
/* The weights of a position's layers as the 'module' that its model file lacks. */
int ck_ds_pipe_module(struct ds_step *ds, struct ckpt_err *err);
int ck_ds_pipe_add_sources(struct ds_step *ds, struct ckpt_err *err);
/* As add_weight() of ds_model.c, of such a module. */
int ck_ds_pipe_add_weight(struct ds_step *ds, uint32_t tensor, const struct ck_tensor_ref *t,
			  struct ckpt_err *err);

#endif
