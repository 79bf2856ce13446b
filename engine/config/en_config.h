/*
 * en_config.h -- DeepSpeed's JSON and accelerate's YAML, unchanged, as settings of the engine.
 *
 * Calling sequence:
 *
 *	struct en_config cfg;
 *	struct en_facts facts = { .world = 4, .hidden_size = 4096, ... };
 *
 *	en_config_init(&cfg, EN_DS_0_19);
 *	rc = en_config_read_deepspeed(&cfg, "ds_config.json", &err);	(or _read_accelerate)
 *	if (!rc)
 *		rc = en_config_resolve(&cfg, &facts, &err);
 *	... en_config_screen() also where that failed: it says what was refused and why ...
 *	... cfg.set, en_config_origin() ...
 *	en_config_release(&cfg);
 *
 * Reading a file only makes a tree of it.  Resolving does what DeepSpeed, accelerate and the
 * Trainer of transformers do between them: fill in "auto", read the values as their classes read
 * them, take defaults, derive the batch sizes.  Every key of the file ends with a verdict.
 *
 * The rule for keys: a key that changes numbers, or files that others read, is used or refused; a
 * key that changes only speed, memory or the order of sums may have no effect; the screen says so.
 *
 * Nothing here prints, ends the process or reads the environment.  One thread a struct.
 */
#ifndef EN_CONFIG_H
#define EN_CONFIG_H

#include "engine/config/accelerate/en_accelerate.h"
#include "engine/config/deepspeed/en_deepspeed.h"

/* 'version' as above.  Nothing is allocated. */
void en_config_init(struct en_config *cfg, enum en_ds_version version);
void en_config_release(struct en_config *cfg);

/* One of both, by the name of the file: accelerate's ends in .yaml or .yml, in any case. */
int en_config_read(struct en_config *cfg, const char *path, uint32_t num_processes,
		   struct ckpt_err *err);

/*
 * Fill, read and check everything.  0, and cfg->set is complete; or the first refusal (verdicts are
 * all there; cfg->set is as it was):
 *
 *	CKPT_E_CORRUPT      a value that DeepSpeed does not take either
 *	CKPT_E_UNSUPPORTED  a feature this engine does not have
 *	CKPT_E_MISMATCH     batch sizes, or stated facts, that contradict each other
 *	CKPT_E_USAGE        "auto" for which no value was given
 *
 * Once a struct.
 */
int en_config_resolve(struct en_config *cfg, const struct en_facts *facts, struct ckpt_err *err);

/*
 * The one screen: what was read, batch, precision, stage, and every key under used, filled, without
 * effect, unknown or refused, then the defaults that matter.  Lines of at most 'width' columns
 * (0 = 100; words longer than that stay whole), lent by 'cfg'.
 */
int en_config_screen(struct en_config *cfg, unsigned width, const char *const **lines_out,
		     size_t *n_out, struct ckpt_err *err);

#endif
