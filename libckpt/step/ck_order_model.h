/* ck_order_model.h -- private to libckpt/step: which modules a model has, in their order. */
#ifndef CK_ORDER_MODEL_H
#define CK_ORDER_MODEL_H

#include <stdbool.h>

#include "libckpt/step/ck_order.h"

/*
 * One module "PREFIX", or with parts "PREFIX.N.PART" for each layer N.  A module has a weight, a
 * bias, or is a parameter itself.
 */
struct ck_order_section {
	const char *prefix;
	const char *const *part;	/* in order, NULL at the end; NULL = one module */
	const char *count;	/* of layers: a key of the configuration, number or list */
	bool in_vision;		/* of vision_config, else of the text's configuration */
	bool needed;		/* no model is without it */
};

#define CK_ORDER_SECTIONS 16u

struct ck_order_model {
	const char *type;
	const struct ck_order_section *section;	/* up to one with prefix NULL */
	uint64_t layers[CK_ORDER_SECTIONS];	/* of those with parts */
	const char *embedding;			/* what a tied head is */
	uint32_t head;				/* its section */
	bool tied;
};

/* CKPT_E_UNSUPPORTED for a model whose order is not known; CKPT_E_MISMATCH for a key. */
int ck_order_model_parse(const struct ck_order_config *from, const struct ckpt_limits *limits,
			 struct ck_order_model *out, struct ckpt_err *err);

#endif
