/*
 * ck_select.h -- struct ckpt_select applied to an index: which tensors, under which names.
 */
#ifndef CK_SELECT_H
#define CK_SELECT_H

#include "libckpt/base/ck_mem.h"
#include "libckpt/format/ck_findings.h"
#include "libckpt/tensor/ck_index.h"

struct ck_pick {
	const char *name;	/* as written */
	const char *stored;	/* as the index has it: what patterns are compared with */
	uint32_t tensor;	/* that has the states, never an alias */
};

/* A name that gets no bytes of its own (CKPT_TIED_ALIAS). */
struct ck_pick_alias {
	const char *name;	/* as written */
	const char *kept;	/* name of the pick, as written */
	uint32_t tensor;
};

struct ck_selection {
	struct ck_arena arena;		/* names that are not the index's */
	struct ck_pick *pick;		/* in the order of the index */
	uint64_t npicks, pick_cap;
	struct ck_pick_alias *alias;
	uint64_t naliases, alias_cap;
	uint64_t nshared;		/* names that share bytes of a pick, mentioned or not */
	const char *strip_hint;		/* a wrapper's prefix that every name has, or NULL */
	bool stripped;			/* 'strip_prefix' was in front of some name */
	uint64_t npublished;		/* names that a rule of 'publish' changed */
	bool *renamed;			/* per rule: it changed some name */
};

#define CK_SELECTION_INIT { .pick = NULL }

/*
 * 'sel' (complete, or NULL = everything).  An alias whose tensor is not taken stands in for
 * it.  No tensor at all is no error here.
 *	CKPT_E_USAGE  two tensors get one name; a name becomes empty; a rename with two '*';
 *	              'only' or 'skip' where the files do not say what their tensors are
 *	CKPT_E_NOMEM
 */
int ck_select(const struct ck_index *ix, const struct ckpt_select *sel,
	      struct ck_selection *out, struct ckpt_err *err);
/* Each name is then changed by the first of the rules in 'publish' that fits all of it. */
int ck_select_published(const struct ck_index *ix, const struct ckpt_select *sel,
			const struct ckpt_rule *publish, struct ck_selection *out,
			struct ckpt_err *err);
/* Whether 'include' and 'exclude' take a name, as stored; 'sel' may be NULL. */
bool ck_select_takes(const struct ckpt_select *sel, const char *name);
/* PATTERN_UNUSED for what fitted no tensor.  'sel' as ck_select() had it, 'made' what it made. */
void ck_select_tell_unused(const struct ck_index *ix, const struct ckpt_select *sel,
			   const struct ck_selection *made, struct ck_findings *findings);
/* The same for one pattern of 'option', held against all names. */
void ck_select_tell_pattern(const struct ck_index *ix, const char *option, const char *pattern,
			    struct ck_findings *findings);
/* CKPT_E_USAGE: nothing is left to do, and why. */
int ck_select_fail_empty(const struct ck_index *ix, struct ckpt_err *err);
void ck_selection_release(struct ck_selection *s);

/* Number of the tensor whose states 'tensor' has: itself, or what an alias leads to. */
uint32_t ck_select_stored(const struct ck_index *ix, uint32_t tensor);

#endif
