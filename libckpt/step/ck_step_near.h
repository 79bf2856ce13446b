/* ck_step_near.h -- the name of a step that was probably meant. */
#ifndef CK_STEP_NEAR_H
#define CK_STEP_NEAR_H

#include <stddef.h>

struct ck_step_names {
	const char *const *name;
	size_t n;
};

/* The name that differs least from 'word', the first of several; NULL if none is near.  Lent. */
const char *ck_step_near(const char *word, const struct ck_step_names *names);

#endif
