/* cli_form.c -- see cli_form.h. */
#include <stdio.h>
#include <string.h>

#include <ckpt.h>

#include "cli_form.h"

const char *const cli_forms[] = {
	"deepspeed", "universal", "native", "dcp", "fsdp-ranks", "trainer", "torch-training",
	NULL,
};

static const int form_of[] = {
	CKPT_TO_DEEPSPEED, CKPT_TO_UNIVERSAL, CKPT_TO_NATIVE, CKPT_TO_DCP, CKPT_TO_FSDP_RANKS,
	CKPT_TO_TRAINER, CKPT_TO_TORCH_TRAINING,
};

const char *cli_form_name(int to)
{
	for (int i = 0; cli_forms[i]; i++)
		if (form_of[i] == to)
			return cli_forms[i];
	return "?";
}

int cli_form_find(const char *name)
{
	for (int i = 0; cli_forms[i]; i++)
		if (!strcmp(name, cli_forms[i]))
			return form_of[i];
	return -1;
}

int cli_form_is_reshards(const char *verb, int argc, char **argv)
{
	static const char name[] = "torch-training";
	const int convert = !strcmp(verb, "convert"), shard = !strcmp(verb, "shard");

	for (int i = 2; i < argc && strcmp(argv[i], "--"); i++) {
		if (shard && !strcmp(argv[i], "--with-states"))
			return 1;
		if (!convert || strncmp(argv[i], "--to", 4))
			continue;
		if (argv[i][4] == '=' && !strcmp(argv[i] + 5, name))
			return 1;
		if (!argv[i][4] && i + 1 < argc && !strcmp(argv[i + 1], name))
			return 1;
	}
	return 0;
}

int cli_form_check(const struct command *cmd, int to, const struct form_options *o)
{
	const int is_deepspeed = to == CKPT_TO_DEEPSPEED || to == CKPT_TO_UNIVERSAL;
	const int is_ranks = to == CKPT_TO_FSDP_RANKS;

	if (o->deepspeed && !is_deepspeed)
		return cli_wrong(cmd, "%s applies to DeepSpeed output only; give it when you "
				 "reshard the %s step to DeepSpeed", o->deepspeed,
				 cli_form_name(to));
	if (o->torch && to != CKPT_TO_DCP && !is_ranks)
		return cli_wrong(cmd, "--torch applies to output that torch loads: --to dcp or "
				 "fsdp-ranks");
	if (o->layout && to != CKPT_TO_DCP)
		return cli_wrong(cmd, "--layout applies to DCP output only: --to dcp");
	if (o->device && !is_ranks)
		return cli_wrong(cmd, "--device applies to rank files only: --to fsdp-ranks");
	if (o->device && strcmp(o->device, "cuda") && strcmp(o->device, "cpu"))
		return cli_wrong(cmd, "--device %s: must be cuda or cpu", out_name(o->device));
	return 0;
}

void cli_form_note(int to, const char *torch, const char *dst)
{
	unsigned minor = 0;

	if (to == CKPT_TO_TRAINER)
		cli_say("  trainer.train(resume_from_checkpoint=True) finds the folder "
			"checkpoint-N in there if output_dir is %s", out_name(dst));
	if (torch && sscanf(torch, "2.%u", &minor) == 1 && minor < 4)
		cli_say("note: in this form torch 2.4 does not find param groups and schedulers; "
			"torch before 2.4 does, and 2.6 and later");
}
