/* zt_args.c -- see zt_args.h: one table says what there is, what it takes and what it is for. */
#include "engine/main/zt_args.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/comm/en_comm_mpi.h"
#include "engine/config/en_config.h"
#include "engine/data/en_data.h"
#include "engine/main/zt_opt.h"
#include "engine/main/zt_say.h"

/* What the tables fill. */
static struct zt_args args;
static int help, version, color;

static const char *const precisions[] = { "fp32", "bf16", "fp16", NULL };
static const char *const devices[] = { "auto", "cpu", "cuda", NULL };
static const char *const reductions[] = { "nccl", "tree", NULL };
static const char *const overflows[] = { "units", "deepspeed", NULL };
static const char *const losses[] = { "micro", "tokens", NULL };
static const char *const kinds[] = { "u16", "u32", "jsonl", "safetensors", NULL };
static const char *const orders[] = { "sequential", "shuffled", "torch", NULL };
static const char *const tails[] = { "flow", "drop", "fill", NULL };
static const char *const deals[] = { "units", "ranks", NULL };
static const char *const formats[] = { "deepspeed", "universal", "native", NULL };
static const char *const syncs[] = { "data", "full", "none", NULL };

#define MANY ((int64_t)1 << 40)

static const struct opt rows[] = {
	ZT_HEAD("What is trained, and how"),
	ZT_TEXT("model", "PATH", args.model,
		"a Hugging Face folder: config.json, and weights to begin with; or a "
		"config.json alone"),
	ZT_TEXT("config", "FILE", args.config,
		"a DeepSpeed JSON, or accelerate's YAML, as it is"),
	ZT_WHOLE("micro-batch", "N", args.micro_batch, 1, 1 << 20,
		"rows of a rank at once; refused if the file has another number (1; 8 where "
		"the file says \"auto\")"),
	ZT_WHOLE("accumulation", "N", args.accumulation, 1, 1 << 20,
		"micro-batches of a step, likewise"),
	ZT_REAL("lr", "RATE", args.lr, 0, "likewise (5e-5, as TrainingArguments have it)"),
	ZT_REAL("beta1", "B", args.beta1, 0, "of Adam, likewise (0.9)"),
	ZT_REAL("beta2", "B", args.beta2, 0, "likewise (0.999)"),
	ZT_REAL("eps", "E", args.eps, 0, "likewise (1e-8)"),
	ZT_REAL("weight-decay", "D", args.weight_decay, 0, "likewise (0)"),
	ZT_REAL("clip", "NORM", args.clip, 0, "of all gradients together, likewise (1.0)"),
	ZT_REAL("warmup-steps", "N", args.warmup, 0,
		"of the schedule, likewise (0); a value below 1 is a fraction of --steps"),
	ZT_ONE_OF("precision", "P", args.precision, EN_FP32, precisions,
		"fp32, bf16, fp16, likewise"),
	ZT_TEXT("lr-scheduler", "TYPE", args.scheduler,
		"one of transformers' (linear, cosine, ...), where the file has none"),
	ZT_TEXT("lr-scheduler-args", "JSON", args.scheduler_args, "its lr_scheduler_kwargs"),
	ZT_ONE_OF("loss", "KIND", args.loss, 0, losses,
		"micro: the mean of the micro-batches' means, as DeepSpeed does (default); "
		"tokens: the mean over all tokens of a step, as transformers' Trainer does"),
	ZT_ONE_OF("overflow", "KIND", args.overflow, ZT_UNITS, overflows,
		"which steps fp16 skips. units: the same ones at any number of ranks (default "
		"on CPU ranks, and with --reduction tree); deepspeed: the ones that DeepSpeed "
		"skips (default on GPUs)"),
	ZT_FLAG("random", args.random, "begin with random weights"),
	ZT_FLAG("recompute", args.recompute,
		"keep a layer's input only, compute it again on the way back"),
	ZT_FLAG("keep-all", args.keep_all,
		"GPUs: keep norms, turned heads and activations too, which are else computed "
		"again, as they are cheap"),
	ZT_ONE_OF("device", "KIND", args.device, ZT_AUTO, devices,
		"auto (default: a GPU for each rank, where there are some), cpu, cuda"),
	ZT_ONE_OF("reduction", "KIND", args.reduction, 0, reductions,
		"how GPUs sum gradients: nccl (default); tree: the same bits at 1, 2, 4, 8 "
		"ranks, as CPU ranks always do"),
	ZT_WHOLE("threads", "N", args.threads, 1, 256,
		"of each rank (1; where GPUs leave the optimizer to the host, its share of the "
		"cores)"),
	ZT_WHOLE("steps", "N", args.steps, 0, MANY,
		"of the whole run (what the scheduler has, or 100)"),
	ZT_WHOLE("stop-at", "N", args.stop_at, 1, MANY,
		"end this part of it after step N, saved"),
	ZT_WHOLE("seed", "N", args.seed, 0, INT64_MAX, "of random weights, order and tokens (1)"),
	ZT_WHOLE("timeout", "SECONDS", args.timeout_s, 1, 1000000,
		"for a rank that is not heard from (300)"),
	ZT_TEXT("secret-file", "FILE", args.secret_file,
		"ranks that meet by TCP prove that they know what is in it: a file of your "
		"own, mode 600 (ZTRAIN_SECRET_FILE, ZTRAIN_SECRET)"),

	ZT_HEAD("Data"),
	ZT_TEXT("data", "FILE", args.data, "rows of tokens: .bin .u16 .u32 .jsonl .safetensors"),
	ZT_FLAG("synthetic", args.synthetic, "tokens are made up; also without --data"),
	ZT_ONE_OF("data-kind", "KIND", args.data_kind, EN_SOURCE_U16, kinds,
		"u16, u32, jsonl, safetensors, where the name does not say"),
	ZT_WHOLE("seq", "N", args.seq, 2, EN_MAX_ROW,
		"tokens of a row (64; of JSON lines and safetensors the longest)"),
	ZT_FLAG("overlap", args.overlap, "the last token of a row is the first of the next"),
	ZT_FLAG("pack", args.pack, "JSON lines one after the other, cut into rows"),
	ZT_FLAG("cut", args.cut, "rows that are longer lose their end"),
	ZT_WHOLE("pad-id", "ID", args.pad_id, 0, INT32_MAX,
		"fills shorter rows, and counts as nothing (0)"),
	ZT_FLAG("shuffle", args.shuffle, "another order in each epoch, from the seed"),
	ZT_ONE_OF("order", "KIND", args.order, EN_ORDER_SEQUENTIAL, orders,
		"sequential (default), shuffled, torch: as torch's samplers"),
	ZT_ONE_OF("tail", "KIND", args.tail, EN_LAST_FLOW, tails,
		"where an epoch is no multiple of the batch: flow (default) into the next, "
		"drop, fill"),
	ZT_ONE_OF("deal", "KIND", args.deal, EN_SAMPLER_UNITS, deals,
		"rows of a step to ranks: units (default), as accelerate; ranks, as "
		"DistributedSampler"),
	ZT_WHOLE("eval-rows", "N", args.eval_rows, 1, MANY,
		"hold the last N rows out of training, and print their loss"),
	ZT_TEXT("eval", "FILE", args.eval, "rows to evaluate on come from there"),
	ZT_WHOLE("eval-every", "N", args.eval_every, 1, MANY, "every N steps, besides the end"),

	ZT_HEAD("Saving and resuming"),
	ZT_TEXT("save", "DIR", args.save, "save there at the end, and on SIGTERM"),
	ZT_WHOLE("save-every", "N", args.save_every, 1, MANY, "and every N steps"),
	ZT_ONE_OF("save-format", "F", args.save_to, CKPT_TO_DEEPSPEED, formats,
		"native (default), deepspeed, universal"),
	ZT_TEXT("save-buffer", "SIZE", args.save_buffer,
		"memory of a rank for copies of what is saved: full (default), or 512MB, 8GiB: "
		"then a save waits until what is beyond is written"),
	ZT_WHOLE("save-threads", "N", args.save_threads, 1, 64,
		"of a rank, that write (by the cores that are left)"),
	ZT_ONE_OF("sync", "KIND", args.sync, CKPT_SYNC_DATA, syncs,
		"what is safe when a save is over: data (default), full, none"),
	ZT_WHOLE("grace", "SECONDS", args.grace_s, 1, 1000000,
		"for the save on SIGTERM, from then on (30)"),
	ZT_TEXT("resume", "auto|DIR", args.resume,
		"resume from the step that 'latest' names in --save (auto) or in DIR; if that "
		"step is not whole, from the newest whole one"),
	ZT_FLAG("overwrite-steps", args.overwrite,
		"replace steps in --save that another run saved; without this option the run "
		"refuses to start"),
	ZT_FLAG("allow-other-model", args.other_model,
		"resume from a step though config.json defines another model than the step's "
		"(of equal shapes)"),

	ZT_HEAD("Weights at the end"),
	ZT_TEXT("export", "DIR", args.export,
		"as a folder for transformers: config.json, tokenizer, model.safetensors"),
	ZT_ONE_OF("export-dtype", "T", args.export_dtype, EN_FP32, precisions,
		"fp32, bf16, fp16 (fp32; 16-bit where "
		"stage3_gather_16bit_weights_on_model_save is true)"),
	ZT_TEXT("max-shard-size", "SIZE", args.max_shard_size,
		"of a file: 5GB (default), 500MB, 1GiB"),

	ZT_HEAD("Output"),
	ZT_TEXT("log", "FILE", args.log,
		"one line of JSON per step; a resumed run appends to it"),
	ZT_FLAG("counters", args.counters, "bytes that were sent and memory, at the end"),
	ZT_FLAG("exact", args.exact, "print losses so that they read back to the bit"),
	ZT_FLAG("check-launch", args.check_launch,
		"say who each rank is and which GPU is its own, and end"),
	{ .kind = OPT_FLAG, .name = "quiet", .letter = 'q', .to = &args.quiet,
	  .help = "no screen of the configuration, no line a step" },
	{ "color", 0, OPT_CHOICE, &color, TERM_COLORS,
	  "colours (default: on terminals, unless NO_COLOR is set)", 0 },
	ZT_WHOLE("local_rank", "N", args.local_rank, 0, 1 << 20,
		"as deepspeed's launcher adds it; LOCAL_RANK is what counts"),
	{ 0 },
};

/* "0,2,3": each at most once. */
static int set_stages(const struct opt_call *call, const struct opt *opt, const char *text)
{
	args.stages = text;
	args.nstages = 0;
	for (const char *p = text;; p++) {
		if (*p < '0' || *p > '3')
			return zt_wrong_value(call, opt, text, "some of 0,1,2,3 are wanted");
		for (uint32_t i = 0; i < args.nstages; i++)
			if (args.stage[i] == (uint32_t)(*p - '0'))
				return zt_wrong_value(call, opt, text,
						      "a stage is listed twice");
		args.stage[args.nstages++] = (uint32_t)(*p++ - '0');
		if (!*p)
			return 0;
		if (*p != ',')
			return zt_wrong_value(call, opt, text, "some of 0,1,2,3 are wanted");
	}
}

/* Of `ztrain bench`: its own, and which of the above it has as well. */
static const struct opt bench_rows[] = {
	ZT_HEAD("What is measured"),
	ZT_TEXT("model", "PATH", args.model,
		"a folder with a config.json, or that file; weights are random"),
	ZT_WHOLE("seq", "N", args.seq, 2, EN_MAX_ROW, "tokens of a row (64)"),
	ZT_FLAG("table", args.table,
		"of one configuration: times, tokens, what is held, sent and waited for "
		"(default, without --stages)"),
	ZT_OWN("stages", "LIST", "0,1,2,3: of each the largest micro-batch that fits, its memory "
		"and speed, and which to take", .set = set_stages),
	ZT_FLAG("offload", args.offload,
		"the optimizer's state on the host; at stage 3 parameters too"),
	ZT_WHOLE("rows", "N", args.rows, 1, 1 << 20,
		"of a micro-batch, whatever the file says; with --stages the most that are "
		"tried (4096 on GPUs, 16 on CPU ranks)"),
	ZT_SIZE("memory", args.memory, "that a rank may take, for --stages (what is free)"),
	ZT_WHOLE("steps", "N", args.timed, 1, 100000, "that are timed (10)"),
	ZT_WHOLE("warmup", "N", args.warm, 0, 100000, "before them (2)"),
	ZT_REAL("peak-tflops", "N", args.peak_tflops, 0,
		"of a rank's processor, for the MFU (16-bit types: 989 on H100 and H200, 312 "
		"on A100; else not known)"),
	ZT_TEXT("trace", "FILE", args.trace,
		"a timeline of three more steps: Chrome's trace format"),
	ZT_TEXT("plot", "FILE", args.plot, "of --stages, a picture (PNG, by gnuplot)"),
	ZT_FLAG("json", args.json, "one object instead of tables"),

	ZT_HEAD("As in a run"),
	{ 0 },
};
static const char *const bench_has[] = {
	"config", "micro-batch", "accumulation", "clip", "precision", "recompute", "keep-all",
	"overflow", "device", "reduction", "threads", "seed", "timeout", "secret-file",
	"color",
};

/* Of all calls: '-h --all' lists them, -h alone does not. */
static const char *const rare[] = {
	"beta1", "beta2", "eps", "lr-scheduler-args", "loss", "overflow", "keep-all", "reduction",
	"seed", "timeout", "secret-file", "data-kind", "overlap", "pad-id", "order", "tail", "deal",
	"save-buffer", "save-threads", "sync", "grace", "overwrite-steps", "allow-other-model",
	"max-shard-size", "color", "counters", "exact", "check-launch", "local_rank",
	"peak-tflops", "warmup",
};

/* A call: rows of its own, and some of 'rows'. */
struct call {
	const char *name, *usage, *examples;
	const struct opt *own;
	const char *const *has;
	size_t nhas;
};

static const struct call calls[] = {
	{ "ztrain", "usage: ztrain --model DIR|config.json [options]\n"
	  "       mpirun -n N ztrain ...        (srun likewise)\n"
	  "       torchrun --no-python --nproc-per-node N -- ztrain ...\n"
	  "       ztrain bench --help\n"
	  "       ztrain generate --help\n"
	  "       ztrain config FILE          (DeepSpeed's JSON of accelerate's YAML)\n"
	  "\n"
	  "Trains Llama 3, Qwen2.5 and Qwen3 with ZeRO 0 to 3 on CPU ranks, or GPUs\n"
	  "(make gpu).",
	  "  ztrain --model config.json --random --steps 100\n"
	  "  ztrain --model my-model --data rows.jsonl --config ds.json --save run\n"
	  "  mpirun -n 8 ztrain --model my-model --data rows.jsonl --save run "
	  "--resume auto\n",
	  rows, NULL, 0 },
	{ "ztrain bench", "usage: ztrain bench --model DIR|config.json [options]\n"
	  "       mpirun -n N ztrain bench ...        (srun, torchrun likewise)\n"
	  "\n"
	  "Trains on random tokens from random weights, saves nothing, and says how fast.",
	  "  ztrain bench --model config.json\n"
	  "  ztrain bench --model config.json --stages 0,1,2,3 --memory 1GiB\n",
	  bench_rows, bench_has, sizeof(bench_has) / sizeof(bench_has[0]) },
};

#define LEAST_BUFFER ((uint64_t)4 << 20)
#define GRACE 30		/* seconds */

static const char *check_buffer(struct zt_args *a)
{
	if (!a->save_buffer || !strcmp(a->save_buffer, "full"))
		return NULL;
	a->save_buffer_bytes = zt_size(a->save_buffer);
	return a->save_buffer_bytes >= LEAST_BUFFER ? NULL :
	       "--save-buffer is a size of 4 MiB or more (512MB, 8GiB), or full";
}

static int check_bench(const struct zt_args *a, const char *rest)
{
	const char *what = NULL;

	if (rest)
		zt_say_error("ztrain: ", "unknown argument: %s (see ztrain bench --help)", rest);
	else if (!a->model)
		what = "--model says what is to be trained (see ztrain bench --help)";
	else if (a->recompute && a->keep_all)
		what = "--recompute keeps the least and --keep-all the most: one of them";
	else if (a->stages && a->table)
		what = "--table is of one configuration, --stages compares them: one at a time";
	else if (a->stages && a->trace)
		what = "--trace is of one configuration, and --stages runs several";
	else if (!a->stages && a->plot)
		what = "--plot draws what --stages finds, which is not asked for";
	else if (!a->stages && a->memory)
		what = "--memory bounds what --stages tries, which is not asked for";
	else if (a->peak_tflops <= 0)
		what = "--peak-tflops: more than 0 is wanted";
	if (what)
		zt_say_error("ztrain: ", "%s", what);
	return what || rest ? 2 : 0;
}

/* What options say together. */
static int check(struct zt_args *a, const char *rest)
{
	const char *what = NULL;

	if (rest)
		zt_say_error("ztrain: ", "unknown argument: %s (see ztrain --help)", rest);
	else if (!a->model && !a->check_launch)
		what = "--model says what is to be trained (see ztrain --help)";
	else if (a->recompute && a->keep_all)
		what = "--recompute keeps the least and --keep-all the most: one of them";
	else if (a->resume && !strcmp(a->resume, "auto") && !a->save)
		what = "--resume auto looks in the folder of --save, which is not given";
	else if (a->random && a->resume && strcmp(a->resume, "auto") != 0)
		what = "--random starts from random weights, and --resume DIR from those of a "
		       "step: give one of them";
	else if (a->data_kind && !a->data)
		what = "--data-kind says what --data is, which is not given";
	else if (a->other_model && !a->resume)
		what = "--allow-other-model needs --resume, which is not given";
	else if (a->synthetic && a->data)
		what = "--synthetic makes tokens up, and --data says where they are";
	else if (a->shuffle && a->order > EN_ORDER_SEQUENTIAL)
		what = "--shuffle is --order shuffled; one of them is enough";
	else if (a->scheduler_args && !a->scheduler)
		what = "--lr-scheduler-args are those of --lr-scheduler, which is not given";
	else if (a->eval_every && !a->eval && !a->eval_rows)
		what = "--eval-every says when; --eval-rows or --eval must say on what";
	else if ((a->export_dtype || a->max_shard_size) && !a->export && !a->save)
		what = "--export-dtype and --max-shard-size need --export, which is not given";
	else if (a->eval_rows && !a->data && !a->eval)
		what = "--eval-rows holds rows of --data out, which is not given";
	else if ((a->save_every || a->save_to >= 0 || a->grace_s || a->save_buffer ||
		  a->save_threads || a->overwrite) && !a->save)
		what = "--save-every, --save-format, --save-buffer, --save-threads, "
		       "--overwrite-steps and --grace need --save, which is not given";
	else if (a->sync != CKPT_SYNC_DATA && !a->save && !a->export)
		what = "--sync needs --save or --export, and neither is given";
	else
		what = check_buffer(a);
	if (what)
		zt_say_error("ztrain: ", "%s", what);
	return what || rest ? 2 : 0;
}

/* Rows of 'rows' that a call has besides its own, in their order; {0} follows. */
static void list_shared(const struct call *c, struct opt *out)
{
	for (const struct opt *row = rows; row->kind; row++)
		for (size_t k = 0; k < c->nhas && row->name; k++)
			if (!strcmp(c->has[k], row->name))
				*out++ = *row;
	*out = (struct opt){ 0 };
}

const struct opt *const *zt_args_tables(bool bench)
{
	static struct opt shared[sizeof(rows) / sizeof(rows[0])];
	static const struct opt *tables[] = { NULL, shared, NULL };

	tables[0] = calls[bench].own;
	list_shared(&calls[bench], shared);
	return tables;
}

/* The table with OPT_RARE where it belongs. */
static const struct opt *mark_rare(const struct opt *from, struct opt *out)
{
	for (struct opt *row = out;; row++) {
		*row = *from++;
		for (size_t i = 0; row->name && i < sizeof(rare) / sizeof(rare[0]); i++)
			row->flags |= !strcmp(row->name, rare[i]) ? OPT_RARE : 0;
		if (!row->kind)
			return out;
	}
}

static void print_help(const struct call *c, const struct opt *shared, int all)
{
	static struct opt own_rows[sizeof(rows) / sizeof(rows[0])];
	static struct opt shared_rows[sizeof(rows) / sizeof(rows[0])];
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
	puts("\nExit status: 0 done, 1 it failed, 2 a wrong call.");
	if (!all)
		printf("'%s -h --all' lists %u more options.\n", c->name,
		       opt_count(tables, OPT_LIST_RARE));
}

/* 1 when help or the version was printed. */
static int parse(const struct call *c, int argc, char **argv, struct words *rest)
{
	static const struct opt talk[] = {
		{ "quiet", 'q', OPT_FLAG, &args.quiet, NULL, "", OPT_HIDDEN },
		{ "help", 'h', OPT_FLAG, &help, NULL, "", OPT_HIDDEN | OPT_LAST },
		{ "version", 0, OPT_FLAG, &version, NULL, "", OPT_HIDDEN | OPT_LAST },
		{ 0 },
	};
	const struct opt *const *own = zt_args_tables(c != calls);
	const struct opt *const tables[] = { own[0], own[1], talk, NULL };
	const struct opt_call call = {
		.tables = tables, .rest = rest, .wrong = zt_wrong_call, .arg = c->name,
	};
	const int rc = opt_parse(&call, argc, argv);

	if (rc)
		return rc;
	if (help)
		print_help(c, own[1], opt_help_all(argc, argv));
	if (version)
		printf("ztrain %s%s\n", ckpt_version(), en_comm_mpi_is_built() ? ", with MPI" : "");
	return help || version;
}

int zt_args_parse(int argc, char **argv, struct zt_args *out)
{
	const bool bench = argc > 1 && !strcmp(argv[1], "bench");
	struct words words = { 0 };
	const char *rest;
	int rc;

	args = (struct zt_args){
		.save_to = -1, .steps = -1, .seed = 1, .timeout_s = 300,
		.lr = NAN, .beta1 = NAN, .beta2 = NAN, .eps = NAN, .weight_decay = NAN, .clip = NAN,
		.warmup = NAN, .order = EN_ORDER_SEQUENTIAL, .tail = EN_LAST_FLOW,
		.deal = EN_SAMPLER_UNITS, .sync = CKPT_SYNC_DATA,
		.bench = bench, .timed = 10, .warm = 2, .peak_tflops = NAN,
	};
	rc = parse(&calls[bench], argc - 1 - bench, argv + 1 + bench, &words);
	if (rc)
		return rc;
	args.quiet |= args.json;	/* one object, and nothing before it */
	rest = words.n ? words.list[0] : NULL;
	rc = bench ? check_bench(&args, rest) : check(&args, rest);
	if (args.save_to < 0)
		args.save_to = CKPT_TO_NATIVE;
	if (!args.grace_s)
		args.grace_s = GRACE;
	*out = args;
	return rc;
}
