/*
 * ck_step_find.h -- which step a folder means, whatever its format: by names alone, no file is
 * opened but 'latest'.  What a step of a format looks like, its driver says (holds()).
 */
#ifndef CK_STEP_FIND_H
#define CK_STEP_FIND_H

#include "libckpt/format/ck_format.h"

/* What a folder is to steps. */
enum ck_holds {
	CK_HOLDS_OTHER = 0,
	CK_HOLDS_STEPS,		/* a step may be put beside what is there */
	CK_HOLDS_SHARDS,	/* it is itself a step */
};

/* The step that a folder means without a tag. */
struct ck_which {
	const char *path;	/* of the step */
	const char *name;	/* entry of the folder that leads to it; "" = itself */
	const char *why;	/* a clause */
	bool named;		/* by a file 'latest' or 'latest_universal' */
};

/* Who looks for a step. */
struct ck_step_finder {
	const struct ck_input *in;
	struct ck_findings *f;
	struct ck_arena *arena;
};

struct ck_step_choice {
	const char *const *root;	/* of the folder 'tag' */
	size_t nroots;
	const char *tag;		/* NULL: the roots are the step */
	const struct ck_format *kind;
	const char *why;		/* a clause */
	bool named;			/* by a file 'latest' or 'latest_universal' */
	const char *universal;		/* that 'latest_universal' names beside it, or NULL */
};

/* Where a step is. */
struct ck_step_place {
	struct ck_tree tree;		/* of its folder */
	const char *where;		/* path of its folder, for messages */
	bool given_step;		/* the path given is its folder */
	const char *const *root;	/* else the folders above it, laid over each other */
	size_t nroots;
};

/* The driver whose step is listed there, or NULL. */
const struct ck_format *ck_step_holds(const struct ck_formats *formats,
				      const struct ck_tree *tree);
/* Is a step listed there, or what is left of one? */
bool ck_step_is_step(const struct ck_formats *formats, const struct ck_tree *tree);
/* Do its names say that steps are kept in it ('latest', global_stepN, checkpoint-N)? */
bool ck_step_keeps_steps(const struct ck_tree *tree);
/* The same without 'latest': worth a low bid. */
bool ck_step_may_keep_steps(const struct ck_tree *tree);
/* Or does another program call folders in it so: "step-100", "epoch_3"? */
bool ck_step_may_be_numbered(const struct ck_tree *tree);
/* N of "global_stepN", or of verl's "global_step_N"; false for any other name. */
bool ck_step_of_tag(const char *tag, uint64_t *step_out);
/* N of "global_stepN", of Megatron-Core's "iter_N", or of "checkpoint-N" or "checkpoint_N". */
bool ck_step_number(const char *name, uint64_t *step_out);
/* Folders of Megatron-Core: "iter_0000003" ('number' has digits alone; NULL without memory). */
bool ck_step_keeps_iterations(const struct ck_tree *tree);
const char *ck_step_iteration(struct ck_arena *a, const char *number);
/* Such a folder of a trainer: "checkpoint-" (transformers) or "checkpoint_" (accelerate). */
bool ck_step_is_trainers(const char *name);
/* A step is in the folder that names it: no way up, no other root. */
bool ck_step_leads_outside(const char *tag);
/* The text of 'latest' (or so) without white space around it, or NULL. CKPT_E_IO, CKPT_E_NOMEM. */
int ck_step_latest(struct ck_step_finder *fd, const struct ck_tree *tree, const char *file,
		   char **tag_out, struct ckpt_err *err);

/*
 * The step that 'fd->in' means, whatever its form; what was passed over goes to 'fd->f'.
 * CKPT_E_NOTFOUND, CKPT_E_UNSAFE ('latest' leads outside), CKPT_E_USAGE, CKPT_E_IO, CKPT_E_NOMEM.
 */
int ck_step_choose(struct ck_step_finder *fd, struct ck_step_choice *out, struct ckpt_err *err);
/*
 * Choose it and list its folder; the index gets tag, why and path.  '*out' is zeroed, and
 * out->tree is released also after a failure.
 */
int ck_step_find(struct ck_step_finder *fd, struct ck_index *ix, struct ck_step_place *out,
		 struct ckpt_err *err);
/* For probes: its driver, NULL without one; 'named': by --tag or 'latest'. */
int ck_step_chosen_kind(const struct ck_input *in, const struct ck_format **kind_out,
			bool *named_out);
/*
 * A probe's bid for 'format': 'sure' on a folder that is one, 'chosen' on a root whose chosen step
 * is of it; else 0, or a failure.
 */
int ck_step_bid(const struct ck_input *in, const struct ck_format *format, int sure, int chosen);

/* What the folder at 'path' is to steps; a trainer's folder keeps some. */
int ck_step_look(const struct ck_formats *formats, const char *path,
		 const struct ckpt_limits *limits, enum ck_holds *out, struct ckpt_err *err);
/*
 * Which step the folder 'in' means, by names alone; strings in 'arena'.  Codes of
 * ck_step_choose().
 */
int ck_step_which(const struct ck_input *in, struct ck_arena *arena, struct ck_which *out,
		  struct ckpt_err *err);

#endif
