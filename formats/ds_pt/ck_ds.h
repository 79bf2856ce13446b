/*
 * ck_ds.h -- DeepSpeed's .pt files, which steps of several formats have: model files and shards
 * while they are being read.
 *
 * ds_sort.c sorts the files of a folder; ds_load.c reads them, in parallel, into the summaries
 * below; ds_model.c turns the model files into the index.  What each key means:
 * docs/formats/deepspeed.md.
 */
#ifndef CK_DS_H
#define CK_DS_H

#include <pthread.h>

#include "formats/torch_pt/ck_pt.h"
#include "libckpt/format/ck_format.h"
#include "libckpt/format/ck_values.h"
#include "libckpt/step/ck_step.h"

#define DS_MAX_STATES 32u

/* What a file name says. */
enum ds_kind {
	DS_OTHER = 0,
	DS_MODEL,		/* mp_rank_MM_model_states.pt */
	DS_MODEL_RANK,		/* zero_pp_rank_R_mp_rank_MM_model_states.pt (stage 3) */
	DS_OPTIM,		/* [bf16_]zero_pp_rank_R_mp_rank_MM_optim_states.pt */
	DS_LAYER,		/* pipeline layer */
	DS_EXPERT,		/* mixture of experts: weights */
	DS_EXPERT_OPTIM,	/* and optimizer */
	DS_PIECE,		/* NAME.pt-RANK.N of the FAST writer */
};

struct ds_name {
	enum ds_kind kind;
	uint32_t rank;		/* R; of DS_EXPERT_OPTIM: E; of a layer file LL */
	uint32_t layer;		/* DS_EXPERT: l, and 'rank' is its expert; CK_NONE before 0.6.0 */
	uint32_t mp;		/* MM; of a layer file TT */
	bool bf16;		/* prefix */
};

/* Take the name of a file apart. */
struct ds_name ck_ds_name_parse(const char *name);
/* The same for an archive's prefix, which lacks ".pt". */
struct ds_name ck_ds_prefix_parse(const char *prefix);

/* A 1-D run of elements in one file. */
struct ds_slice {
	uint64_t off;		/* byte in the file, or in the inflated member */
	uint64_t numel;
	uint32_t storage;	/* of the file; needed for deflated ones */
	uint8_t dtype;		/* 0 = there is none */
	uint8_t flags;		/* CKPT_EXTENT_SWAPPED, _DEFLATED */
};

/* A file that is there. */
struct ds_file {
	const char *path;	/* in the listing */
	const char *name;
	struct ds_name id;
	struct ck_src *src;	/* handed to the index; then NULL */
	uint64_t bytes;
	uint32_t source;	/* its number in the index */
	struct ck_hash128 fingerprint;
	struct ck_pt *pt;	/* open: rank 0's files for good, others while they are read */
	bool ok;		/* parsed */
	bool done;		/* read; not to be opened again */
	bool named;		/* the archive says which rank it is of */
	bool legacy;		/* a stream, which has no checksums */
	struct ck_pt_storage *deflated;	/* copy of the storages if one is deflated, or NULL */
	uint32_t *member;	/* of each of them in the index, CK_NONE = not yet */
	uint64_t nstorages;
	uint64_t key;		/* kind, prefix and rank in one number */
	const char *own;	/* a key whose value is not rank 0's (if the step is kept) */
	struct ck_findings notes;	/* made by the thread that read it */
};

/* Flat tensors of one rank for one param group (stages 1, 2) or sub-group (stage 3). */
struct ds_part {
	struct ds_slice master;
	struct ds_slice *state;	/* by number of ds->state_name */
	double step;
	bool has_step;
};

struct ds_optim {
	struct ds_file *file;	/* NULL = missing */
	struct ds_part *part;
	uint32_t nparts;
};

/* What a rank's model file of stage 3 holds; numbered as ds->frozen and ds->buffer are. */
struct ds_model_rank {
	struct ds_file *file;	/* NULL = missing */
	struct ds_slice *frozen;	/* fragments; ck_free() */
	struct ds_slice *buffer;
};

/* A frozen parameter or buffer that rank 0's model file names. */
struct ds_named {
	const char *name;
	const uint64_t *shape;
	uint32_t ndim;
	uint64_t numel;
};

/* A parameter in the optimizer, in layout order. */
struct ds_param {
	const char *name;
	const uint64_t *shape;
	uint32_t ndim;
	uint32_t tensor;	/* in the index */
	uint64_t numel;
	const struct ck_val *state;	/* stage 0: its entry in the optimizer's 'state' */
};

struct ds_group {
	struct ds_param *param;
	uint32_t nparams;
	int32_t group;		/* optimizer param group it belongs to, -1 = unknown */
	int64_t state_key;	/* of its entry in the optimizer's 'state' */
	/* Experts: the flat run of each expert rank is on other ranks (ds_experts_group.c). */
	uint32_t ep;		/* expert ranks; 0 = the group has no experts */
	bool stacked;		/* each expert rank has an equal part of every parameter */
	bool unplaced;		/* which ranks have what is not known: no states */
};

struct ds_experts;
struct ds_par;

struct ds_step {
	const struct ck_input *in;
	struct ck_index *ix;
	struct ck_findings *f;
	struct ck_arena arena;
	struct ck_step_place at;
	struct ds_par *parts;	/* of a whole step: its positions (ds_par.h), or NULL */
	struct ds_par *par;	/* of a position: what it is a part of, or NULL */
	uint32_t mp;		/* and its MM */
	bool piped;		/* 'module' is made of files of layers */

	struct ds_file *file;
	uint64_t nfiles;

	uint32_t world;		/* N of the shards, or dp_world_size */
	int stage;		/* 0, 1, 2, 3 */
	bool bf16_optimizer;
	bool elastic;
	uint32_t version[3];	/* of DeepSpeed; 0 0 0 = unknown */

	struct ds_file *model_file;	/* rank 0's, kept open */
	struct ck_val *model;		/* its root */
	struct ck_val *module;
	struct ck_map in_module;	/* name -> number of its pair */
	struct ds_named *frozen, *buffer;
	uint64_t nfrozen, nbuffers;
	struct ck_map frozen_no, buffer_no;	/* name -> number in these two */
	bool frozen_listed;		/* frozen_param_shapes is there (maybe empty) */
	struct ds_model_rank *model_rank;	/* stage 3: world of them */

	struct ds_optim *optim;		/* world of them, or NULL */
	struct ds_file *optim_file;	/* the first one that is there, kept open */
	struct ck_val *zero;		/* its ZeRO dict */
	struct ck_val *param_groups;	/* of the optimizer, or NULL */
	bool no_shards;			/* shards in the folder are not the step's */
	bool nameless;			/* there are shards, and nothing names what is in them */
	bool optim_whole;		/* every rank is there and agrees */
	uint64_t kept_bytes;	/* of ranks' trees that stay open, for who writes a step */

	struct ds_experts *experts;	/* ds_experts.h; NULL = there is none */
	struct ds_group *group;		/* per param group or sub-group */
	uint32_t ngroups;

	pthread_mutex_t lock;		/* guards 'arena' while files are read in parallel */
	const char *state_name[DS_MAX_STATES];	/* those of the first shard */
	const char *left_out;	/* a state that is none of them, said already */
	uint32_t nstates;
};

/* ds_step.c: 'in', 'ix', 'f' are set, the rest is zero. */
int ck_ds_find(struct ds_step *ds, struct ckpt_err *err);
/* Also after a failure: all of it, and the struct of ck_alloc() that begins with it. */
void ck_ds_free(void *of);
/* Hand an open file to the index, and feed the fingerprint: in the order of the listing. */
int ck_ds_add_source(struct ds_step *ds, struct ds_file *file, struct ckpt_err *err);
/*
 * The optimizer's counts of steps: a warning at 'where' if none is what the model files say.
 */
void ck_ds_check_counts(struct ds_step *ds, const char *where, const double *count, uint32_t n);
/* That path has an error, which says why the file cannot be used; or that rank's file. */
bool ck_ds_is_named(const struct ds_step *ds, const char *path);
bool ck_ds_is_rank_named(const struct ds_step *ds, enum ds_kind kind, uint32_t rank);
/* The model file has an optimizer; no shards besides. */
bool ck_ds_has_optimizer(const struct ds_step *ds);
bool ck_ds_is_z0(const struct ds_step *ds);
/* Of a name in 'module' that is in no list of the model file. */
enum ckpt_role ck_ds_role_of_rest(const struct ds_step *ds);

/* The type the model computes in: that of the placeholder in 'module'. */
enum ckpt_dtype ck_ds_placeholder_dtype(const struct ds_step *ds, const char *name);

/* ds_sort.c: does the folder have such files? */
bool ck_ds_has_files(const struct ck_tree *tree);
/* Sort the files, refuse other layouts, open sources. */
int ck_ds_sort_files(struct ds_step *ds, struct ckpt_err *err);

/* ds_load.c: read every file. */
int ck_ds_load(struct ds_step *ds, struct ckpt_err *err);
/* Parse 'file' unless it is open; it stays so until ck_ds_close_pt(). */
int ck_ds_open_pt(struct ds_step *ds, struct ds_file *file, struct ckpt_err *err);
/* The same; its failure is one of the step: FILE_DAMAGED at the file's path. */
int ck_ds_open_needed(struct ds_step *ds, struct ds_file *file, struct ckpt_err *err);
/* Does the archive say that it was saved under another name? */
bool ck_ds_is_swapped(const struct ds_file *file);
/* If so, files contradict each other because of that: 'err' says it instead.  The new 'rc'. */
int ck_ds_why_swapped(const struct ds_step *ds, int rc, struct ckpt_err *err);
void ck_ds_close_pt(struct ds_file *file);
/* Keep it open for who writes a step, while there is room; else close it. */
void ck_ds_keep_pt(struct ds_step *ds, struct ds_file *file);
/* Damage of one file is a finding; what concerns the whole run is not. */
int ck_ds_note_damage(struct ds_file *file, int rc, struct ckpt_err *err);

/* ds_experts.c: are ranks of one flat run of experts neighbours?  Findings of a step with experts
 * and without shards; true if there was one. */
bool ck_ds_experts_by_data(const struct ds_step *ds);
bool ck_ds_experts_judge(struct ds_step *ds);
/* ds_experts_weight.c: a stack of AutoEP?  In a universal checkpoint it has a master alone, and its
 * weight has the type that all other trained ones have; 0 = they differ, or it is no stack. */
bool ck_ds_experts_is_stack(const struct ds_step *ds, const char *name);
enum ckpt_dtype ck_ds_experts_dtype(const struct ds_step *ds, const char *name);
void ck_ds_file_release(struct ds_file *file);	/* ds_step.c */

/* ds_slice.c: the contiguous tensor of a value as a run of elements; false if it is none. */
bool ck_ds_slice_of(const struct ck_pt *pt, const struct ck_val *v, struct ds_slice *out);
/* A number, or the only element of a tensor (read from the file); false in '*is_out' for another
 * value, or one that is damaged.  CKPT_E_IO, CKPT_E_NOMEM. */
int ck_ds_number_of(struct ds_file *file, const struct ck_val *v, bool *is_out, double *out,
		    struct ckpt_err *err);

/* ds_optim.c */
/* Stage, world and kind of optimizer by the first shard (open). CKPT_E_LAYOUT. */
int ck_ds_read_zero_dict(struct ds_step *ds, struct ckpt_err *err);
/* Can the model file be of its run, whose world is 'world' (0 = unknown)?  The shard is open. */
bool ck_ds_fits_model(const struct ds_step *ds, const struct ds_file *file, int64_t world);
/*
 * Slices and step of a shard (open); compared with the first shard's, which must come
 * before all others and alone: its states are the ones that count.
 */
int ck_ds_take_optim(struct ds_step *ds, struct ds_file *file, struct ds_optim *optim,
		  struct ckpt_err *err);
/* ds_own.c: set 'own' of a file that is open, if it has values that are not rank 0's. */
void ck_ds_note_own_model(struct ds_step *ds, struct ds_file *file);
void ck_ds_note_own_zero(struct ds_step *ds, struct ds_file *file, const struct ck_val *zero);
/* Does any rank's shard hold elements of state number 'state' for part 'part'? */
bool ck_ds_has_state(const struct ds_step *ds, uint32_t part, uint32_t state);
/*
 * The number of a zero_stage: a plain number before DeepSpeed 0.7.0, then ZeroStageEnum(2), and
 * getattr(ZeroStageEnum, 'gradients') as Python 3.11.0 to 3.11.3 pickles it.
 */
bool ck_ds_stage_of(const struct ck_val *v, int64_t *out);
/* The torch optimizer in a ZeRO dict (a list if it is elastic), its param_groups; or NULL. */
struct ck_val *ck_ds_torch_optimizer(const struct ds_step *ds, const struct ck_val *zero);
struct ck_val *ck_ds_param_groups(const struct ds_step *ds, const struct ck_val *zero);

/* ds_shapes.c: names and shapes in layout order; groups of sub-groups. */
int ck_ds_read_shapes(struct ds_step *ds, struct ckpt_err *err);
/* The param group of each group of names, once 'zero' is there. */
int ck_ds_name_groups(struct ds_step *ds, struct ckpt_err *err);
/* A size list as an array in ds->arena; false if it is none. */
bool ck_ds_shape_of(struct ds_step *ds, const struct ck_val *v, const uint64_t **shape_out,
		 uint32_t *ndim_out, uint64_t *numel_out);

/*
 * ds_slice.c: add to the open state: elements [begin, begin + count) of slice 's' are
 * elements first, ... of the state.
 */
int ck_ds_extent(struct ds_step *ds, const struct ds_file *file, const struct ds_slice *s,
	      uint64_t begin, uint64_t count, uint64_t first, struct ckpt_err *err);
/* The finding LENGTH_WRONG: 'have' elements where there should be 'want'. */
void ck_ds_length_wrong(struct ds_step *ds, const struct ds_file *file, const char *what,
		     uint64_t have, uint64_t want);

int ck_ds_index_model(struct ds_step *ds, struct ckpt_err *err);	/* ds_model.c */
int ck_ds_add_facts(struct ds_step *ds, struct ckpt_err *err);	/* ds_facts.c */
/* Of these: what a step of the optimizer takes, as the configuration in ds->model says it. */
int ck_ds_add_batch(struct ds_step *ds, struct ckpt_err *err);

/* ds_fill.c: the step that index() left in in->kept, from now on with 'in' and 'f'. */
struct ds_step *ck_ds_kept(const struct ck_input *in, struct ck_findings *f);
/* Of it all but the optimizer's values; 'ds' outlives the step. */
int ck_ds_fill(struct ds_step *ds, const struct ck_format *format, struct ck_step *step,
	       struct ckpt_err *err);
/* Values of the optimizer by their keys in a ZeRO dictionary, which all forms share. */
void ck_ds_fill_optimizer(struct ck_step *step, const struct ck_val *zero);

/*
 * ds_values.c: open the files with a rank's values ('optim' may be NULL, or 'model'), for the slot
 * values(); ck_ds_take_optimizer() where the optimizer is in the root of the latter.
 */
int ck_ds_open_values(const struct ck_index *ix, const struct ckpt_limits *limits, uint32_t rank,
		      const struct ck_source *model, const struct ck_source *optim,
		      struct ck_values *out, struct ckpt_err *err);
const struct ck_val *ck_ds_values_root(const struct ck_values *v);
void ck_ds_take_optimizer(struct ck_values *v, const struct ck_val *optimizer);
/* The source of a kind and rank, the model file of a rank, a source by the end of its path. */
const struct ck_source *ck_ds_source_of(const struct ck_index *ix, enum ds_kind kind,
					uint32_t rank);
const struct ck_source *ck_ds_model_source(const struct ck_index *ix, uint32_t rank);
const struct ck_source *ck_ds_source_named(const struct ck_index *ix, const char *end);

#endif
