/*
 * What DeepSpeed, accelerate and transformers made of configurations (config/expected.json of the
 * fixtures), and a configuration of ours compared with it, setting by setting. What differs ends
 * the test with its path and both values.
 */
#ifndef TE_EXPECTED_H
#define TE_EXPECTED_H

#include "engine/config/en_config.h"

struct te_expected {
	struct ck_arena arena;
	const struct en_node *root;
	const struct en_node *defaults;	/* of DeepSpeed: path there, value */
	unsigned compared;		/* settings, so far */
};

/* From here on the folder of the configurations is the working one. 0, or -1: missing. */
int te_expected_load(struct te_expected *x);
void te_expected_release(struct te_expected *x);

/* The value at "a.b.c" of a dict, which must be there. */
const struct en_node *te_need(const struct en_node *dict, const char *path);

/* 'theirs' is DeepSpeed's path ("zero_config.stage"); 'file' is for messages. */
void te_same_setting(struct te_expected *x, const char *file, const struct en_config *cfg,
		     const char *theirs, const struct en_node *want);
/* All defaults, but for those that differ: 'differs' has their values by path. */
void te_same_settings(struct te_expected *x, const char *file, const struct en_config *cfg,
		      const struct en_node *differs);
/* 'want' is a list: train_batch_size, micro batch, accumulation. */
void te_same_batches(struct te_expected *x, const char *file, const struct en_config *cfg,
		     const struct en_node *want);

#endif
