/*
 * ck_step_match.h -- whose are the states of an optimizer that numbers its parameters?
 *
 * The numbers count through the param groups.  A group has its parameters in the order of the
 * model, but which parameters are in which group no file says.
 */
#ifndef CK_STEP_MATCH_H
#define CK_STEP_MATCH_H

#include "libckpt/base/ck_base.h"

#define CK_MATCH_ANY UINT32_MAX

/* Items, and groups of entries that are some of them, each group in the order of the items. */
struct ck_step_match {
	const uint32_t *item;		/* what kind each item is */
	uint64_t nitems;
	const uint32_t *entry;		/* the same of each entry; CK_MATCH_ANY = of any kind */
	uint64_t nentries;
	const uint64_t *first;		/* [ngroups + 1] of a group's entries */
	uint32_t ngroups;
};

enum ck_step_verdict {
	CK_MATCH_UNIQUE = 1,
	CK_MATCH_NONE,		/* no way fits */
	CK_MATCH_SEVERAL,		/* more ways than one do */
	CK_MATCH_TOO_MANY,		/* there are too many to try */
};

/*
 * In how many ways do the entries lie on the items?  If in one, 'of_out' [nentries] has the items;
 * of an entry CK_MATCH_ANY that may be several it has CK_NONE.
 */
int ck_step_match_run(const struct ck_step_match *m, uint32_t *of_out, enum ck_step_verdict *out,
		 struct ckpt_err *err);

/* A clause: "fit the model's parameters in more ways than one". */
const char *ck_step_match_why(enum ck_step_verdict verdict);

#endif
