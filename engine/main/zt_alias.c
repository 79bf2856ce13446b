/* zt_alias.c -- see zt_alias.h. */
#include "engine/main/zt_alias.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "engine/main/zt_opt.h"
#include "engine/main/zt_say.h"

/* ---- names ---- */

static const struct {
	const char *option;
	const char *names[8];	/* end with NULL */
} aliases[] = {
	{ "model", { "model_name_or_path", "model_name", "model_path" } },
	{ "config",
	  { "deepspeed", "deepspeed_config", "ds_config", "config_file", "config_path" } },
	{ "micro-batch",
	  { "per_device_train_batch_size", "train_micro_batch_size_per_gpu",
	    "micro_batch_size" } },
	{ "accumulation", { "gradient_accumulation_steps", "grad_accum_steps" } },
	{ "lr", { "learning_rate" } },
	{ "beta1", { "adam_beta1" } },
	{ "beta2", { "adam_beta2" } },
	{ "eps", { "adam_epsilon" } },
	{ "clip", { "max_grad_norm", "gradient_clipping", "grad_clip" } },
	{ "lr-scheduler", { "lr_scheduler_type" } },
	{ "lr-scheduler-args", { "lr_scheduler_kwargs" } },
	{ "warmup-steps", { "num_warmup_steps", "lr_warmup_steps" } },
	{ "epochs", { "num_train_epochs", "num_epochs" } },
	{ "steps", { "max_steps", "num_steps", "max_train_steps" } },
	{ "seq",
	  { "max_seq_length", "max_length", "seq_length", "seq_len", "block_size",
	    "cutoff_len" } },
	{ "eval-every", { "eval_steps" } },
	{ "save", { "output_dir", "checkpoint_dir", "save_dir" } },
	{ "save-every", { "save_steps", "save_interval" } },
	{ "print-every", { "logging_steps" } },
	{ "timeout", { "ddp_timeout" } },
};

static const struct opt *find_option(const struct opt *const *tables, const char *name)
{
	for (; *tables; tables++)
		for (const struct opt *row = *tables; row->kind; row++)
			if (row->name && !strcmp(row->name, name))
				return row;
	return NULL;
}

void zt_alias_options(const struct opt *const *tables, struct opt out[ZT_ALIASES])
{
	size_t n = 0;

	for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++) {
		const struct opt *row = find_option(tables, aliases[i].option);

		for (const char *const *name = aliases[i].names; row && *name; name++) {
			if (n + 1 == ZT_ALIASES || find_option(tables, *name))
				continue;
			out[n] = *row;
			out[n].name = *name;
			out[n++].flags |= OPT_HIDDEN;
		}
	}
	out[n] = (struct opt){ 0 };
}

bool zt_alias_has(const char *name)
{
	for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++)
		for (const char *const *n = aliases[i].names; *n; n++)
			if (opt_is_name(name, *n))
				return true;
	return false;
}

/* ---- flags, and values of theirs ---- */

enum how {
	FLAG = 1,	/* true: 'give' */
	FIXED,		/* 'give' lists the values that ztrain has anyway, blanks around each */
	NOTHING,	/* of no effect here, whatever its value */
	MOST_STEPS,	/* -1 is none */
	RATIO,		/* of the steps */
	RESUME,		/* true, false, or a folder */
	CONFIG,		/* a file, or a flag before deepspeed_config */
	PRECISION,	/* "no" is fp32 */
};

static const struct special {
	const char *name;
	enum how how;
	const char *give;	/* of FLAG two words, or one */
	const char *value;
	const char *else_;	/* of FIXED: the sentence for another value */
} specials[] = {
	{ "bf16", FLAG, "--precision", "bf16", NULL },
	{ "fp16", FLAG, "--precision", "fp16", NULL },
	{ "gradient_checkpointing", FLAG, "--recompute", NULL, NULL },
	{ "activation_checkpointing", FLAG, "--recompute", NULL, NULL },
	{ "overwrite_output_dir", FLAG, "--overwrite-steps", NULL, NULL },
	{ "dataloader_drop_last", FLAG, "--drop-last", NULL, NULL },
	{ "mixed_precision", PRECISION, NULL, NULL, NULL },
	{ "deepspeed", CONFIG, NULL, NULL, NULL },
	{ "max_steps", MOST_STEPS, NULL, NULL, NULL },
	{ "warmup_ratio", RATIO, NULL, NULL, NULL },
	{ "resume_from_checkpoint", RESUME, NULL, NULL, NULL },
	{ "eval_strategy", FIXED, " steps no ", NULL,
	  "--eval-every N evaluates every N steps, and the end has one always" },
	{ "evaluation_strategy", FIXED, " steps no ", NULL,
	  "--eval-every N evaluates every N steps, and the end has one always" },
	{ "save_strategy", FIXED, " steps ", NULL,
	  "--save-every N saves every N steps, and the end has a save always; without --save "
	  "nothing is saved" },
	{ "logging_strategy", FIXED, " steps ", NULL, "--print-every N prints every N steps" },
	{ "optim", FIXED, " adamw_torch adamw_torch_fused adamw_hf adamw ", NULL,
	  "ztrain has AdamW and Adam; \"optimizer\" of --config selects the form" },
	{ "report_to", FIXED, " none ", NULL,
	  "give --log FILE, then `ztrain log --tensorboard DIR FILE`" },
	{ "do_train", NOTHING, NULL, NULL, NULL },
	{ "do_eval", NOTHING, NULL, NULL, NULL },
	{ "use_deepspeed", NOTHING, NULL, NULL, NULL },
	{ "remove_unused_columns", NOTHING, NULL, NULL, NULL },
	{ "dataloader_num_workers", NOTHING, NULL, NULL, NULL },
	{ "dataloader_pin_memory", NOTHING, NULL, NULL, NULL },
	{ "disable_tqdm", NOTHING, NULL, NULL, NULL },
	{ "ddp_find_unused_parameters", NOTHING, NULL, NULL, NULL },
	{ "ddp_backend", NOTHING, NULL, NULL, NULL },
	{ "logging_first_step", NOTHING, NULL, NULL, NULL },
	{ "save_safetensors", NOTHING, NULL, NULL, NULL },
	{ "log_level", NOTHING, NULL, NULL, NULL },
	{ "tf32", NOTHING, NULL, NULL, NULL },
};

/* A call that is read: words from argv[i] on, the name and value of the option at hand. */
struct reading {
	const char *program;
	int argc, i;
	char **argv;
	const struct special *s;
	const char *value;	/* or NULL */
	struct words *out;
};

static const struct special *find_special(const char *word, const char **value_out)
{
	const size_t n = strcspn(word, "=");
	char name[48];

	*value_out = word[n] ? word + n + 1 : NULL;
	if (n >= sizeof(name))
		return NULL;
	snprintf(name, sizeof(name), "%.*s", (int)n, word);
	for (size_t i = 0; i < sizeof(specials) / sizeof(specials[0]); i++)
		if (opt_is_name(name, specials[i].name))
			return &specials[i];
	return NULL;
}

static bool is_truth(const char *word, bool *true_out)
{
	static const char *const yes[] = { "true", "yes", "1" }, *const no[] = { "false", "no",
										 "0" };

	for (int i = 0; i < 3; i++) {
		*true_out = !strcasecmp(word, yes[i]);
		if (*true_out || !strcasecmp(word, no[i]))
			return true;
	}
	return false;
}

static int refuse(const struct reading *r, const char *what)
{
	zt_say_error(r->program, ": --%s%s%s: %s", r->s->name, r->value ? " " : "",
		     r->value ? r->value : "", what);
	return 2;
}

static void give(const struct reading *r, const char *option, const char *value)
{
	words_add(r->out, option);
	if (value)
		words_add(r->out, value);
}

static int take_flag(const struct reading *r)
{
	bool on = true;

	if (r->value && !is_truth(r->value, &on))
		return refuse(r, "expected True or False");
	if (on)
		give(r, r->s->give, r->s->value);
	return 0;
}

/* The words in 'give' have '_'. */
static int take_fixed(const struct reading *r)
{
	char word[64];

	snprintf(word, sizeof(word), " %.60s ", r->value ? r->value : "");
	for (char *p = word; *p; p++)
		*p = *p == '-' ? '_' : *p;
	return r->value && strstr(r->s->give, word) ? 0 : refuse(r, r->s->else_);
}

static int take_ratio(const struct reading *r)
{
	char *end;
	const double v = r->value ? strtod(r->value, &end) : -1;

	if (!r->value || *end || !(v >= 0 && v < 1))
		return refuse(r, "expected a part of the steps, from 0 to below 1; "
				 "--warmup-steps N is a number of steps");
	if (v > 0)
		give(r, "--warmup-steps", r->value);
	return 0;
}

static int take_resume(const struct reading *r)
{
	bool on = false;

	if (!r->value)
		return refuse(r, "expected True, or the folder of a step");
	if (!is_truth(r->value, &on))
		give(r, "--resume", r->value);
	else if (on)
		give(r, "--resume", "auto");
	return 0;
}

static int take_special(const struct reading *r)
{
	switch (r->s->how) {
	case FLAG:
		return take_flag(r);
	case FIXED:
		return take_fixed(r);
	case RATIO:
		return take_ratio(r);
	case RESUME:
		return take_resume(r);
	case CONFIG:
		if (r->value)
			give(r, "--config", r->value);
		return 0;
	case PRECISION:
		if (!r->value)
			return refuse(r, "expected no, bf16 or fp16");
		give(r, "--precision", strcmp(r->value, "no") ? r->value : "fp32");
		return 0;
	case MOST_STEPS:
		if (!r->value)
			return refuse(r, "expected a number of steps");
		if (strcmp(r->value, "-1"))
			give(r, "--max_steps", r->value);
		return 0;
	default:
		return 0;
	}
}

/* Of those whose value may be missing the next word counts if it looks like one. */
static bool has_value(const struct reading *r)
{
	const char *next = r->i + 1 < r->argc ? r->argv[r->i + 1] : NULL;
	bool on;

	if (!next)
		return false;
	if (r->s->how == FLAG)
		return is_truth(next, &on);
	return *next != '-' || (r->s->how == MOST_STEPS && !strcmp(next, "-1"));
}

int zt_alias_words(const char *name, int argc, char **argv, struct words *out)
{
	struct reading r = { .program = name, .argc = argc, .argv = argv, .out = out };
	int rc = 0;

	for (; !rc && r.i < argc; r.i++) {
		const char *word = argv[r.i];

		if (!strcmp(word, "--"))
			break;
		r.s = strncmp(word, "--", 2) ? NULL : find_special(word + 2, &r.value);
		if (!r.s) {
			words_add(out, word);
			continue;
		}
		if (!r.value && has_value(&r))
			r.value = argv[++r.i];
		rc = take_special(&r);
	}
	for (; !rc && r.i < argc; r.i++)
		words_add(out, argv[r.i]);
	return rc;
}
