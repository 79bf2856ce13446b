/* en_step_lora.c -- see en_step_lora.h. */
#include "engine/checkpoint/en_step_lora.h"

#include <stdio.h>
#include <string.h>

#include "engine/model/en_adapt.h"
#include "libckpt/base/ck_err.h"

#define MOST_PATH 4096

bool en_step_lora_has(const struct ckpt *ck)
{
	struct ckpt_tensor_info t;

	for (uint64_t i = 0; !ckpt_tensor_get(ck, i, &t, NULL); i++)
		if (strstr(t.name, ".lora_A."))
			return true;
	return false;
}

static int not_found(const char *where, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_NOTFOUND, where, CKPT_NO_OFFSET, "no adapter_config.json");
}

int en_step_lora_read(const struct ckpt *ck, struct en_lora *out, struct ckpt_err *err)
{
	struct ckpt_info info;
	const char *slash;
	char above[MOST_PATH];
	int rc;

	ckpt_info_get(ck, &info);
	if (!en_step_lora_has(ck) || strlen(info.path) >= sizeof(above))
		return not_found(info.path, err);
	rc = en_lora_read(info.path, out, err);
	if (rc != -CKPT_E_NOTFOUND)
		return rc;
	slash = strrchr(info.path, '/');
	snprintf(above, sizeof(above), "%.*s", slash ? (int)(slash - info.path) : 1,
		 slash ? info.path : ".");
	rc = en_lora_read(above, out, err);
	return rc == -CKPT_E_NOTFOUND ? not_found(info.path, err) : rc;
}

int en_step_lora_check(const struct ckpt *ck, const struct en_model *model,
		       struct ckpt_err *err)
{
	char text[EN_LORA_TEXT], was[EN_LORA_TEXT + 8], is[EN_LORA_TEXT];
	struct ckpt_info info;
	struct en_lora lora;
	int rc = en_step_lora_read(ck, &lora, err);

	if (rc == -CKPT_E_NOTFOUND && err)
		*err = (struct ckpt_err){ 0 };
	if (rc)
		return rc == -CKPT_E_NOTFOUND ? 0 : rc;
	if (!lora.targets)	/* the names of the tensors are compared in any case */
		lora.targets = model->lora.targets;
	en_lora_text(&lora, text);
	snprintf(was, sizeof(was), "%s%s", text, lora.targets ? "" : "NAMES");
	en_lora_text(&model->lora, is);
	ckpt_info_get(ck, &info);
	return !strcmp(was, is) ? 0 :
	       ck_fail(err, CKPT_E_MISMATCH, info.path, CKPT_NO_OFFSET,
		       "--lora: the step was trained with %s, this run has %s; give --lora %s to "
		       "resume it, or begin a new run with its weights (zckpt convert)", was, is,
		       was);
}
