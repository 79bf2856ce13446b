/*
 * op_convert.h -- the verb `convert`, and what its files share.
 *
 * op_convert_items.c says which state of which tensor is written as what; op_convert_meta.c
 * what the metadata says; op_convert_plan.c lays files out; op_convert.c runs and reports.
 */
#ifndef OP_CONVERT_H
#define OP_CONVERT_H

#include "libckpt/convert/ck_lora.h"
#include "libckpt/convert/ck_peft_config.h"
#include "libckpt/format/ck_format.h"
#include "libckpt/format/ck_plan.h"
#include "libckpt/io/ck_tree.h"
#include "libckpt/naming/ck_naming.h"
#include "libckpt/run/ck_ckpt.h"
#include "libckpt/run/ck_run.h"
#include "libckpt/select/ck_select.h"

/* As the functions of the API; options are complete copies, so each field may be read (ckpt.h). */
int ck_convert(struct ckpt *ck, const char *dst, const struct ckpt_convert_opts *opts,
	       struct ckpt_report *report_out, struct ckpt_err *err);

int ck_dst_kind(const char *dst, enum ckpt_dst_kind *kind_out, struct ckpt_err *err);

/* What goes to one file or shard set. */
struct ck_cv_set {
	const char *state;	/* "weight", or as asked */
	struct ck_item *item;	/* in the order of the index */
	uint64_t nitems;
	struct ck_fact *meta;	/* sorted by key */
	uint64_t nmeta, meta_cap;
};

/* A file that is copied beside the weights. */
struct ck_cv_aux {
	const char *name, *path;
	uint64_t bytes;
};

struct ck_cv {
	struct ckpt *ck;
	const struct ckpt_convert_opts *opts;	/* complete */
	const char *dst;
	enum ckpt_dst_kind to;
	struct ckpt_run_opts run;
	struct ck_arena arena;
	const char *config;	/* the path of config.json, or NULL */
	struct ck_naming naming;
	struct ck_selection sel;
	struct ck_cv_set *set;
	uint64_t nsets;
	struct ck_cv_aux *aux;
	uint64_t naux, aux_cap;
	struct ck_plan plan;
	struct ck_tree before;	/* with --force: the old files of the folder */
	struct ck_hash128 fingerprint;
	uint64_t ntensors;
	uint64_t no_master;
	/* With opts->peft. */
	const char *adapter;		/* its name, "" in files of PEFT itself */
	struct ck_peft_config peft_config;
	const char *config_text;	/* of the adapter that is written */
	struct ck_lora *lora;		/* what is merged; NULL = nothing */
	uint64_t merged;
};

/*
 * The source is checked, and cv->plan says what is written; cv->ck, opts, run, dst and 'to' are
 * set, the rest is as CK_CV_INIT left it.  Codes of checking and planning.
 */
#define CK_CV_INIT .arena = CK_ARENA_INIT, .naming = CK_NAMING_INIT, \
	.sel = CK_SELECTION_INIT, .plan = CK_PLAN_INIT, .peft_config = CK_PEFT_CONFIG_INIT
int ck_cv_prepare(struct ck_cv *cv, struct ckpt_err *err);
void ck_cv_release(struct ck_cv *cv);

/* Files to copy beside the weights, and the configuration.  Codes of listing a folder. */
int ck_cv_find_aux(struct ck_cv *cv, struct ckpt_err *err);
/* The sets with their items.  Skipped tensors become findings.  CKPT_E_USAGE, CKPT_E_NOMEM. */
int ck_cv_choose_items(struct ck_cv *cv, struct ckpt_err *err);
/* set->meta of a set whose items are chosen. */
int ck_cv_make_meta(struct ck_cv *cv, struct ck_cv_set *set, struct ckpt_err *err);
/* cv->plan, cut into units. */
int ck_cv_make_plan(struct ck_cv *cv, struct ckpt_err *err);
/*
 * op_convert_peft.c: an adapter as PEFT has it.  Of the selection what is the adapter's, under the
 * names of its file; then the text of adapter_config.json.
 */
int ck_cv_peft_pick(struct ck_cv *cv, struct ckpt_err *err);
int ck_cv_peft_config(struct ck_cv *cv, struct ckpt_err *err);
bool ck_cv_peft_is_output(const char *name, const struct ck_tree *fresh);
/* The name of the adapter of 'ck' that is asked for, or the only one; CKPT_E_USAGE. */
int ck_cv_peft_choose(const struct ckpt *ck, const char *asked, struct ck_arena *arena,
		      const char **out, struct ckpt_err *err);
/*
 * op_convert_merge.c: an adapter into the base.  Of the selection what is the base's; then
 * cv->lora, cv->merged, and a fingerprint of both.
 */
int ck_cv_merge_pick(struct ck_cv *cv, struct ckpt_err *err);
int ck_cv_merge_begin(struct ck_cv *cv, struct ckpt_err *err);
/* config.json, with the type that the weights are written in, into the file made last. */
int ck_cv_plan_config(struct ck_cv *cv, const struct ck_cv_aux *aux, struct ckpt_err *err);

#endif
