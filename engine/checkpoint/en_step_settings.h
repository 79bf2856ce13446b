/*
 * en_step_settings.h -- what a step says of the run that saved it, as far as its loss on other rows
 * depends on it.
 */
#ifndef EN_STEP_SETTINGS_H
#define EN_STEP_SETTINGS_H

#include <ckpt.h>

#include "engine/checkpoint/en_run_facts.h"

struct en_step_settings {
	int64_t rows, tokens;	/* of a micro-batch; 0 = the step does not say */
	int precision;		/* enum en_precision, 0 likewise */
	int64_t stage;		/* of ZeRO; 0 likewise */
	/* Adapters and frozen patterns, as --lora and --freeze take them; "" likewise. */
	char lora[EN_RUN_FACT_VALUE], freeze[EN_RUN_FACT_VALUE];
};

/*
 * Of step 'tag' in folder 'path', or of 'path' itself with NULL.  Weights say nothing: that is no
 * error.  Codes of ckpt_open().
 */
int en_step_settings_read(const char *path, const char *tag, struct en_step_settings *out,
			  struct ckpt_err *err);

#endif
