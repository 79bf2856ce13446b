/* cli_peft.c -- see cli_peft.h. */
#include "cli_peft.h"

#include <stdlib.h>
#include <string.h>

static struct {
	const char *base, *adapter, *config, *bias, *task, *model;
	double alpha, dropout;
	int rslora;
} want;

/* A number of at least 'least' and at most 'most'. */
static int set_number(const struct opt_call *call, const struct opt *opt, const char *text)
{
	const struct opt_own *own = opt->to;
	char *end;
	const double v = strtod(text, &end);

	if (end == text || *end || !(v >= (double)own->least) || v > (double)own->most)
		return opt_wrong(call, "--%s: %s is not a number%s", opt->name, out_name(text),
				 own->most == 1 ? " between 0 and 1" : " above 0");
	if (own->most > 1 && !(v > 0))
		return opt_wrong(call, "--%s: %s is not above 0", opt->name, out_name(text));
	*(double *)own->to = v;
	return 0;
}

static struct opt_own to_alpha = {
	.set = set_number, .to = &want.alpha, .least = 0, .most = 1000000,
};
static struct opt_own to_dropout = {
	.set = set_number, .to = &want.dropout, .least = 0, .most = 1,
};

const struct opt opts_peft[] = {
	{ "merge-lora", 0, OPT_TEXT, &want.base, "BASE",
	  "SRC is an adapter: write the model BASE with it merged", 0 },
	{ "adapter", 0, OPT_TEXT, &want.adapter, "NAME",
	  "which adapter, if the run has several", OPT_RARE },
	{ "adapter-config", 0, OPT_TEXT, &want.config, "FILE",
	  "adapter_config.json, if it is not beside SRC", OPT_RARE },
	{ "lora-alpha", 0, OPT_OWN, &to_alpha, "N",
	  "lora_alpha of the run, where no adapter_config.json says it", OPT_RARE },
	{ "lora-dropout", 0, OPT_OWN, &to_dropout, "P", "lora_dropout of the run", OPT_RARE },
	{ "lora-bias", 0, OPT_TEXT, &want.bias, "none|all|lora_only", "bias of the run", OPT_RARE },
	{ "lora-task", 0, OPT_TEXT, &want.task, "TYPE", "task_type, such as CAUSAL_LM", OPT_RARE },
	{ "lora-base", 0, OPT_TEXT, &want.model, "NAME", "base_model_name_or_path", OPT_RARE },
	{ "rslora", 0, OPT_FLAG, &want.rslora, NULL,
	  "the run had use_rslora: alpha is divided by the root of r", OPT_RARE },
	{ 0 },
};

const char *peft_base(void)
{
	return want.base;
}

int peft_unused(const struct command *cmd)
{
	const char *name = want.adapter ? "adapter" : want.config ? "adapter-config" :
			   want.alpha > 0 ? "lora-alpha" : want.dropout > 0 ? "lora-dropout" :
			   want.bias ? "lora-bias" : want.task ? "lora-task" :
			   want.model ? "lora-base" : want.rslora ? "rslora" : NULL;

	return name ? cli_wrong(cmd, "--%s goes with --to peft or --merge-lora BASE", name) : 0;
}

int peft_take(const struct command *cmd, struct ckpt_peft_opts *out, struct words *sources,
	      struct words *adapter)
{
	const char *bias = want.bias;

	if (bias && strcmp(bias, "none") && strcmp(bias, "all") && strcmp(bias, "lora_only"))
		return cli_wrong(cmd, "--lora-bias: %s is not one of none|all|lora_only",
				 out_name(bias));
	*out = (struct ckpt_peft_opts){
		.size = sizeof(*out), .adapter = want.adapter, .config_path = want.config,
		.alpha = want.alpha, .dropout = want.dropout, .bias = bias,
		.task_type = want.task, .base_model = want.model, .rslora = want.rslora,
	};
	if (!want.base)
		return 0;
	*adapter = *sources;
	*sources = (struct words){ 0 };
	words_add(sources, want.base);
	return 0;
}
