/*
 * ck_step.h -- a training step in memory, between the driver that has read it and the one that
 * writes it.
 */
#ifndef CK_STEP_H
#define CK_STEP_H

#include "libckpt/step/ck_step_find.h"

struct ck_step {
	const struct ck_format *format;	/* that it was read as; NULL = it is made of weights */
	const char *tag;		/* name of its folder */
	void *own;			/* struct ds_step */
};

#endif
