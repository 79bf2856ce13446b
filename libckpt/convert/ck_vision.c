/*
 * ck_vision.c -- see ck_vision.h.  The names were taken from what transformers 5 saves of models of
 * each kind: Qwen3-VL, for one, is saved under its module's names and not listed here.
 */
#include "libckpt/convert/ck_vision.h"

#include <string.h>

#include "libckpt/base/ck_sys.h"

#define RULES 5

struct family {
	const char *const *begins;	/* of names that all must occur */
	struct ckpt_rule rule[RULES];
};

/* Qwen2-VL and Qwen2.5-VL: their merger begins with a norm of this name. */
static const char *const qwen[] = {
	"model.language_model.", "model.visual.merger.ln_q.", NULL,
};
static const char *const internvl[] = {
	"model.language_model.", "model.multi_modal_projector.",
	"model.vision_tower.encoder.layer.", NULL,
};

static const struct family families[] = {
	{ qwen, { { "model.language_model.*", "model.*" },
		  { "model.visual.*", "visual.*" } } },
	{ internvl, { { "model.language_model.*", "language_model.model.*" },
		      { "model.vision_tower.*", "vision_tower.*" },
		      { "model.multi_modal_projector.*", "multi_modal_projector.*" },
		      { "lm_head.*", "language_model.lm_head.*" } } },
};

static bool has_name(const struct ck_selection *s, const char *begin)
{
	for (uint64_t i = 0; i < s->npicks; i++)
		if (!strncmp(s->pick[i].name, begin, strlen(begin)))
			return true;
	return false;
}

static bool is_family(const struct ck_selection *s, const char *const *begins)
{
	for (; *begins; begins++)
		if (!has_name(s, *begins))
			return false;
	return true;
}

const struct ckpt_rule *ck_vision_renames(const struct ck_selection *s)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(families); i++)
		if (is_family(s, families[i].begins))
			return families[i].rule;
	return NULL;
}
