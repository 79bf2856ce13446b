/*
 * zt_args.c -- see zt_args.h: calls, what options say together, help; the tables are in
 * zt_args_rows.c.
 */
#include "engine/main/zt_args.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/comm/en_comm_mpi.h"
#include "engine/data/en_data.h"
#include "engine/main/zt_alias.h"
#include "engine/main/zt_args_rows.h"
#include "engine/main/zt_command.h"
#include "engine/main/zt_meant.h"
#include "engine/main/zt_opt.h"
#include "engine/main/zt_say.h"

/* A call: rows of its own, and some of those of a run. */
struct call {
	const char *name, *usage, *examples;
	const struct opt *own;
	const char *const *has;
};

static const char *const no_more[] = { NULL };

static const struct call calls[] = {
	{ "ztrain",
	  "usage: ztrain --model DIR|config.json [options]\n"
	  "       mpirun -n N ztrain ...        (or srun)\n"
	  "       torchrun --no-python --nproc-per-node N -- ztrain ...\n"
	  "       ztrain bench --help         (measures speed and memory)\n"
	  "       ztrain eval STEP|MODEL      (loss on other rows)\n"
	  "       ztrain generate --help      (continues a prompt)\n"
	  "       ztrain report LOG           (charts and a table of runs)\n"
	  "       ztrain log --help           (logs as TensorBoard's files)\n"
	  "       ztrain config FILE          (accelerate YAML to DeepSpeed JSON)\n\n"
	  "Trains Llama 3, Qwen2.5 and Qwen3 with ZeRO stage 0 to 3 on CPUs, or on GPUs\n"
	  "(after make gpu). Defaults are in parentheses. An option that contradicts\n"
	  "--config is an error. Names of the HF Trainer, accelerate and DeepSpeed\n"
	  "(--learning_rate, --deepspeed FILE, --bf16 True) are taken too.",
	  "  ztrain --model config.json --random --steps 100\n"
	  "  ztrain --model my-model --data rows.jsonl --config ds.json --save run\n"
	  "  mpirun -n 8 ztrain --model my-model --data rows.jsonl --save run "
	  "--resume auto\n",
	  zt_args_run, no_more },
	{ "ztrain bench",
	  "usage: ztrain bench --model DIR|config.json [options]\n"
	  "       mpirun -n N ztrain bench ...        (or srun, torchrun)\n\n"
	  "Times training steps on random tokens with random weights. Saves nothing.",
	  "  ztrain bench --model config.json\n"
	  "  ztrain bench --model config.json --stages 0,1,2,3 --memory 1GiB\n",
	  zt_args_bench, zt_args_bench_has },
	{ "ztrain eval",
	  "usage: ztrain eval STEP|MODEL --data FILE [options]\n"
	  "       mpirun -n N ztrain eval ...        (or srun, torchrun)\n\n"
	  "Prints the loss and the perplexity of a saved step, of the step that 'latest' in\n"
	  "a folder of steps names, or of a model. Rows of a micro-batch, tokens of a row,\n"
	  "precision and ZeRO stage are those of the run that saved the step.",
	  "  ztrain eval run --data held-out.jsonl\n"
	  "  ztrain eval run/global_step100 --data rows.jsonl --eval-rows 64 --json\n",
	  zt_args_eval, zt_args_eval_has },
};

#define LEAST_BUFFER ((uint64_t)4 << 20)
#define GRACE 30		/* seconds */

static const char *check_buffer(struct zt_args *a)
{
	if (!a->save_buffer || !strcmp(a->save_buffer, "full"))
		return NULL;
	a->save_buffer_bytes = zt_size(a->save_buffer);
	return a->save_buffer_bytes >= LEAST_BUFFER ?
		       NULL :
		       "--save-buffer: expected full, or a size of 4 MiB or more (512MB, 8GiB)";
}

/* A word that no option has taken: what it probably is. */
static void say_rest(const struct zt_args *a, const char *rest, const char *call)
{
	const char *before = strcmp(call, "ztrain") ? "" : ", --data or --resume";

	if (!strcmp(call, "ztrain") && zt_is_command(rest))
		zt_say_error("ztrain: ", "%s: a command is the first word: ztrain %s ...", rest,
			     rest);
	else if (a->lora && strchr(rest, '=') && *rest != '/')
		zt_say_error("ztrain: ", "unknown argument: %s; keys of --lora are one word, with "
			     "commas: --lora %s,%s", rest, a->lora, rest);
	else if (!access(rest, F_OK))
		zt_say_error("ztrain: ", "unknown argument: %s is a path; its option comes before "
			     "it: --model%s (see %s --help)", rest, before, call);
	else
		zt_say_error("ztrain: ", "unknown argument: %s (see %s --help)", rest, call);
}

static int check_bench(const struct zt_args *a, const char *rest)
{
	const char *what = NULL;

	if (rest)
		say_rest(a, rest, "ztrain bench");
	else if (!a->model)
		what = "--model is required: a folder with config.json (see ztrain bench --help)";
	else if (a->recompute && a->keep_all)
		what = "--recompute and --keep-all exclude each other";
	else if (a->stages && a->table)
		what = "--table measures one configuration, --stages compares several: give one of "
		       "them";
	else if (a->stages && a->trace)
		what = "--trace records one configuration, and --stages runs several: give one of "
		       "them";
	else if (!a->stages && a->plot)
		what = "--plot needs --stages";
	else if (!a->stages && a->memory)
		what = "--memory needs --stages";
	else if (a->peak_tflops <= 0)
		what = "--peak-tflops: expected a number above 0";
	if (what)
		zt_say_error("ztrain: ", "%s", what);
	return what || rest ? 2 : 0;
}

static int check_eval(struct zt_args *a, const struct words *rest)
{
	const char *what = NULL;

	a->eval_of = a->resume = rest->n ? rest->list[0] : NULL;
	if (rest->n > 1)
		zt_say_error("ztrain: ", "%s and %s: one step or model at a time (see ztrain eval "
			     "--help)", rest->list[0], rest->list[1]);
	else if (!a->eval_of)
		what = "a step, a folder of steps or a model is required (see ztrain eval --help)";
	else if (!a->data)
		what = "--data is required: rows to compute the loss of (see ztrain eval --help)";
	if (what)
		zt_say_error("ztrain: ", "%s", what);
	return what || rest->n > 1 ? 2 : 0;
}

/* The first of the options of saves that is given, as a sentence; or NULL. */
static const char *needs_save(const struct zt_args *a)
{
	static const char folder[] = "the folder of the steps";
	const char *option = a->save_every ? "--save-every" : a->save_most ? "--save-total-limit" :
			     a->save_to >= 0 ? "--save-format" : a->save_buffer ? "--save-buffer" :
			     a->save_threads ? "--save-threads" :
			     a->overwrite ? "--overwrite-steps" : a->grace_s ? "--grace" : NULL;

	return option ? cli_format("%s needs --save DIR, %s", option, folder) : NULL;
}

/* What options say together. */
static int check(struct zt_args *a, const char *rest)
{
	const char *what = NULL;

	if (rest)
		say_rest(a, rest, "ztrain");
	else if (!a->model && !a->check_launch)
		what = "--model is required: a Hugging Face folder, or a config.json (see ztrain "
		       "--help)";
	else if (a->recompute && a->keep_all)
		what = "--recompute and --keep-all exclude each other";
	else if (a->resume && !strcmp(a->resume, "auto") && !a->save)
		what = "--resume auto needs --save DIR, the folder of the steps";
	else if (a->random && a->resume && strcmp(a->resume, "auto") != 0)
		what = "--random starts from random weights, --resume DIR from a saved step: give "
		       "one of them";
	else if (a->data_kind && !a->data)
		what = "--data-kind needs --data";
	else if (a->merge && (!a->export || (!a->lora && !a->lora_from)))
		what = "--merge needs --export, and adapters: --lora or --lora-from";
	else if (a->no_frozen && !a->save)
		what = "--exclude-frozen needs --save";
	else if (a->no_frozen && !a->freeze.n && !a->lora && !a->lora_from)
		what = "--exclude-frozen needs frozen parameters: --freeze, --lora or --lora-from";
	else if ((a->resume_order || a->resume_frozen.n || a->resume_buffer.n) &&
		 (!a->resume || !strcmp(a->resume, "auto")))
		what = "--resume-order, --resume-frozen and --resume-buffer need --resume FILE, a "
		       "file of torch.save";
	else if (a->other_model && !a->resume)
		what = "--allow-other-model needs --resume";
	else if (a->new_data && !a->resume)
		what = "--new-data needs --resume";
	else if (a->synthetic && a->data)
		what = "--synthetic trains on synthetic tokens, --data on those of a file: remove "
		       "--synthetic to train on the file, or --data";
	else if (a->synthetic_rows && a->data)
		what = "--synthetic-rows counts rows of synthetic tokens, --data trains on those "
		       "of a file: remove --synthetic-rows to train on the file, or --data";
	else if (a->epochs <= 0)
		what = "--epochs: expected a number above 0";
	else if (!isnan(a->epochs) && a->steps < 0 && !a->data && !a->synthetic_rows)
		what = "--epochs needs --data, or --synthetic-rows N: synthetic tokens have no end";
	else if (a->shuffle && a->order > EN_ORDER_SEQUENTIAL)
		what = "--shuffle means --order shuffled: give one of --shuffle and --order";
	else if (a->drop_last && a->tail != EN_LAST_DROP)
		what = "--drop-last means --tail drop: give one of --drop-last and --tail";
	else if (a->scheduler_args && !a->scheduler)
		what = "--lr-scheduler-args needs --lr-scheduler";
	else if (a->keep_best && !a->eval_every)
		what = "--keep-best needs evaluations: --eval-every N, of --eval FILE or of the "
		       "last rows of --data (--eval-rows N)";
	else if (a->patience && !a->eval_every)
		what = "--patience needs evaluations: --eval-every N, of --eval FILE or of the "
		       "last rows of --data (--eval-rows N)";
	else if (a->eval_every && !a->eval && !a->eval_rows)
		what = "--eval-every needs rows to evaluate: --eval FILE, or --eval-rows N, the "
		       "last rows of --data";
	else if (a->scheduler && !strcmp(a->scheduler, "reduce_lr_on_plateau") && !a->eval_every)
		what = "--lr-scheduler reduce_lr_on_plateau needs evaluations: --eval-every N";
	else if (a->keep_best && !a->save)
		what = "--keep-best needs --save";
	else if ((a->export_dtype || a->max_shard_size) && !a->export && !a->save)
		what = "--export-dtype and --max-shard-size need --export";
	else if (a->eval_rows && !a->data && !a->eval && !a->synthetic_rows)
		what = "--eval-rows needs --data, whose last rows it holds out";
	else if (!a->save && needs_save(a))
		what = needs_save(a);
	else if (a->sync != CKPT_SYNC_DATA && !a->save && !a->export)
		what = "--sync needs --save or --export";
	else
		what = check_buffer(a);
	if (what)
		zt_say_error("ztrain: ", "%s", what);
	return what || rest ? 2 : 0;
}

/* Rows of a run that a call has besides its own, in their order; { 0 } follows. */
static void list_shared(const struct call *c, struct opt *out)
{
	for (const struct opt *row = zt_args_run; row->kind; row++)
		for (const char *const *name = c->has; *name && row->name; name++)
			if (!strcmp(*name, row->name))
				*out++ = *row;
	*out = (struct opt){ 0 };
}

const struct opt *const *zt_args_tables(enum zt_call call)
{
	static struct opt shared[ZT_ROWS];
	static const struct opt *tables[] = { NULL, shared, NULL };

	tables[0] = calls[call].own;
	list_shared(&calls[call], shared);
	return tables;
}

static bool is_in(const struct opt *row, const char *name)
{
	for (; row->kind; row++)
		if (row->name && opt_is_name(name, row->name))
			return true;
	return false;
}

bool zt_args_has(const char *name)
{
	return is_in(zt_args_run, name);
}

bool zt_args_is_own(enum zt_call call, const char *name)
{
	return is_in(calls[call].own, name) && !zt_args_has(name);
}

/* The table with OPT_RARE where it belongs. */
static const struct opt *mark_rare(const struct opt *from, struct opt *out)
{
	for (struct opt *row = out;; row++) {
		*row = *from++;
		row->flags |= row->name && zt_args_is_rare(row->name) ? OPT_RARE : 0;
		if (!row->kind)
			return out;
	}
}

static void print_help(const struct call *c, const struct opt *shared, int all)
{
	static struct opt own_rows[ZT_ROWS], shared_rows[ZT_ROWS];
	const struct opt *const tables[] = {
		mark_rare(c->own, own_rows), mark_rare(shared, shared_rows), NULL,
	};
	const struct opt_style style = {
		.list = all ? OPT_LIST_ALL : OPT_LIST_COMMON, .column = 26, .gap = 1, .width = 79,
	};

	puts(c->usage);
	printf("\nexamples:\n%s", c->examples);
	for (size_t i = 0; tables[i]; i++)
		opt_help(tables[i], &style, stdout);
	puts("\nExit status: 0 done, 1 failed, 2 usage error.");
	if (!all)
		printf("'%s -h --all' lists %u more options.\n", c->name,
		       opt_count(tables, OPT_LIST_RARE));
}

/* 1 when help or the version was printed. */
static int parse(const struct call *c, int argc, char **argv, struct words *rest)
{
	static struct opt alias[ZT_ALIASES];
	const struct opt *const *own = zt_args_tables((enum zt_call)(c - calls));
	const struct opt *const tables[] = { own[0], own[1], zt_args_talk, alias, NULL };
	const struct opt_call call = {
		.tables = tables, .rest = rest, .wrong = zt_wrong_call, .arg = c->name,
		.meant = c == &calls[ZT_BENCH] ? zt_meant_bench :
			 c == &calls[ZT_EVAL] ? zt_meant_eval : zt_meant,
	};
	const struct zt_args *a = zt_args_filled();
	struct words words = { 0 };
	int rc;

	zt_alias_options(own, alias);
	rc = c == calls ? zt_alias_words(c->name, argc, argv, &words) : 0;
	if (rc)
		return rc;
	rc = c == calls ? opt_parse(&call, (int)words.n, (char **)(void *)words.list) :
	     opt_parse(&call, argc, argv);
	if (rc)
		return rc;
	if (a->help)
		print_help(c, own[1], opt_help_all(argc, argv));
	if (a->version)
		printf("ztrain %s%s\n", ckpt_version(), en_comm_mpi_is_built() ? ", with MPI" : "");
	return a->help || a->version;
}

/* "--fp8" alone is the first recipe. */
static void complete_fp8(int argc, char **argv)
{
	static char with[] = "--fp8=tensorwise";

	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--fp8") && (i + 1 == argc || argv[i + 1][0] == '-'))
			argv[i] = with;
}

int zt_args_parse(int argc, char **argv, struct zt_args *out)
{
	const enum zt_call call = argc < 2 ? ZT_RUN : !strcmp(argv[1], "bench") ? ZT_BENCH :
				  !strcmp(argv[1], "eval") ? ZT_EVAL : ZT_RUN;
	const int named = call != ZT_RUN;
	struct zt_args *a = zt_args_filled();
	struct words words = { 0 };
	const char *rest;
	int rc;

	*a = (struct zt_args){
		.save_to = -1,
		.steps = -1,
		.epochs = NAN,
		.seed = 1,
		.timeout_s = 300,
		.lr = NAN,
		.beta1 = NAN,
		.beta2 = NAN,
		.eps = NAN,
		.weight_decay = NAN,
		.clip = NAN,
		.warmup = NAN,
		.order = EN_ORDER_SEQUENTIAL,
		.deal = EN_SAMPLER_UNITS,
		.sync = CKPT_SYNC_DATA,
		.call = call,
		.timed = 10,
		.warm = 2,
		.peak_tflops = NAN,
	};
	complete_fp8(argc, argv);
	rc = parse(&calls[call], argc - 1 - named, argv + 1 + named, &words);
	if (rc)
		return rc;
	if (!a->tail)
		a->tail = a->drop_last ? EN_LAST_DROP : EN_LAST_FLOW;
	a->quiet |= a->json;	/* one object, and nothing before it */
	rest = words.n ? words.list[0] : NULL;
	rc = call == ZT_BENCH ? check_bench(a, rest) :
	     call == ZT_EVAL ? check_eval(a, &words) : check(a, rest);
	a->save_to = a->save_to < 0 ? CKPT_TO_NATIVE : zt_args_layout(a->save_to);
	if (!a->grace_s)
		a->grace_s = GRACE;
	*out = *a;
	return rc;
}
