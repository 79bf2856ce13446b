/* zt_adapt.c -- the model with what --lora, --lora-from and --freeze say is trained of it. */
#include <stdio.h>

#include "engine/main/zt_program.h"
#include "engine/model/en_adapt.h"

static int adapters(const struct zt_args *a, struct en_lora *out, struct ckpt_err *err)
{
	int rc = a->lora_from ? en_lora_read(a->lora_from, out, err) : 0;

	if (!rc && a->lora)
		rc = en_lora_parse(a->lora, out, err);
	if (rc || !out->r || out->targets)
		return rc;
	err->code = CKPT_E_UNSUPPORTED;
	snprintf(err->where, sizeof(err->where), "--lora-from %.280s", a->lora_from);
	snprintf(err->msg, sizeof(err->msg), "target_modules is a regular expression; name the "
		 "modules: --lora target=q_proj+v_proj, or all-linear");
	return -CKPT_E_UNSUPPORTED;
}

int zt_adapt_model(struct zt_program *p, const struct en_model_config *config,
		   struct ckpt_err *err)
{
	const struct zt_args *a = &p->args;
	struct en_adapt adapt = {
		.freeze = a->freeze.list, .nfreeze = (uint32_t)a->freeze.n,
		.ranks = p->comm->size,
	};
	int rc = adapters(a, &adapt.lora, err);

	return rc ? rc : en_model_new_adapted(config, &adapt, &p->model, err);
}

void zt_adapt_tell(const struct zt_program *p)
{
	const struct en_model *m = p->model;
	char text[EN_LORA_TEXT];

	if (m->trained == m->numel)
		return;
	en_lora_text(&m->lora, text);
	printf("trains %llu of %llu parameters (%.2f %%)%s%s%s%s\n",
	       (unsigned long long)m->trained, (unsigned long long)m->numel,
	       100.0 * (double)m->trained / (double)m->numel, m->lora.r ? ": adapters " : "",
	       m->lora.r ? text : "", *m->freeze ? ", frozen: " : "", m->freeze);
}
