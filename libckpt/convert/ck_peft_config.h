/*
 * ck_peft_config.h -- adapter_config.json of PEFT: found beside a checkpoint, read, written.
 */
#ifndef CK_PEFT_CONFIG_H
#define CK_PEFT_CONFIG_H

#include "libckpt/json/ck_json.h"
#include "libckpt/run/ck_ckpt.h"

struct ck_peft_config {
	struct ck_arena arena;
	const char *path;	/* NULL = none was found */
	char *text;
	struct ck_json doc;
	const char *method;	/* "LORA" */
	double alpha;		/* 0 = not known */
	double r;		/* 0 = not known */
	bool rslora, fan_in_fan_out;
};

#define CK_PEFT_CONFIG_INIT { .doc = CK_JSON_INIT }

/*
 * The file at 'path'; if that is NULL, the one in the folder of 'ck' or the one above it, for
 * 'adapter' (not "" or "default") first in a folder of that name in these.  None there is no
 * failure unless a path was given.  CKPT_E_UNSUPPORTED names a method that is not LoRA.
 */
int ck_peft_config_read(const struct ckpt *ck, const char *path, const char *adapter,
			struct ck_peft_config *out, struct ckpt_err *err);
void ck_peft_config_release(struct ck_peft_config *c);

/* CKPT_E_UNSUPPORTED: what a merge of LoRA alone would leave out (DoRA, PiSSA, ...), by its key. */
int ck_peft_config_check_merge(const struct ck_peft_config *c, struct ckpt_err *err);
/*
 * Of a module, without wrappers: its alpha, and the r that the file says it has (0 = not said).
 * CKPT_E_UNSUPPORTED for a pattern that is a regular expression.
 */
int ck_peft_config_of(const struct ck_peft_config *c, const char *module, double *alpha_out,
		      double *r_out, struct ckpt_err *err);
/* A number in the text, 0 for none. */
double ck_peft_number(const struct ck_json *doc, uint64_t tok);

#endif
