/* zt_args.c -- see zt_args.h: one table says what there is, what it takes and what it is for. */
#include "engine/main/zt_args.h"
#include "engine/main/zt_say.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/comm/en_comm_mpi.h"
#include "engine/config/en_config.h"
#include "engine/data/en_data.h"

enum kind { HEADING, WORD, WHOLE, RATE, FLAG, CHOICE, SIZE, STAGES };

struct row {
	enum kind kind;
	const char *name, *arg, *help;
	size_t at;
	int64_t least, most;
	const char *const *choice;	/* NULL behind the last; the first is number 'least' */
};

#define F(field) .at = offsetof(struct zt_args, field)
#define HEAD(text) { .kind = HEADING, .help = text }
#define ON(name_, field, text) { .kind = FLAG, .name = name_, F(field), .help = text }
#define TEXT(name_, arg_, field, text) \
	{ .kind = WORD, .name = name_, .arg = arg_, F(field), .help = text }
#define REAL(name_, arg_, field, text) \
	{ .kind = RATE, .name = name_, .arg = arg_, F(field), .help = text }
#define INTEGER(name_, arg_, field, from, to, text) \
	{ .kind = WHOLE, .name = name_, .arg = arg_, F(field), .least = from, .most = to, \
	  .help = text }
#define BYTES(name_, field, text) \
	{ .kind = SIZE, .name = name_, .arg = "SIZE", F(field), .help = text }
#define ONE_OF(name_, arg_, field, from, names, text) \
	{ .kind = CHOICE, .name = name_, .arg = arg_, F(field), .least = from, .choice = names, \
	  .help = text }

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

static const struct row rows[] = {
	HEAD("What is trained, and how"),
	TEXT("model", "PATH", model, "a Hugging Face folder: config.json, and weights to begin "
		"with; or a config.json alone"),
	TEXT("config", "FILE", config, "a DeepSpeed JSON, or accelerate's YAML, as it is"),
	INTEGER("micro-batch", "N", micro_batch, 1, 1 << 20, "rows of a rank at once; refused if "
		"the file has another number (1; 8 where the file says \"auto\")"),
	INTEGER("accumulation", "N", accumulation, 1, 1 << 20, "micro-batches of a step, likewise"),
	REAL("lr", "RATE", lr, "likewise (5e-5, as TrainingArguments have it)"),
	REAL("beta1", "B", beta1, "of Adam, likewise (0.9)"),
	REAL("beta2", "B", beta2, "likewise (0.999)"),
	REAL("eps", "E", eps, "likewise (1e-8)"),
	REAL("weight-decay", "D", weight_decay, "likewise (0)"),
	REAL("clip", "NORM", clip, "of all gradients together, likewise (1.0)"),
	REAL("warmup-steps", "N", warmup, "of the schedule, likewise (0); a value below 1 is a "
		"fraction of --steps"),
	ONE_OF("precision", "P", precision, EN_FP32, precisions, "fp32, bf16, fp16, likewise"),
	TEXT("lr-scheduler", "TYPE", scheduler, "one of transformers' (linear, cosine, ...), "
		"where the file has none"),
	TEXT("lr-scheduler-args", "JSON", scheduler_args, "its lr_scheduler_kwargs"),
	ONE_OF("loss", "KIND", loss, 0, losses, "micro: the mean of the micro-batches' means, as "
		"DeepSpeed does (default); tokens: the mean over all tokens of a step, as "
		"transformers' Trainer does"),
	ONE_OF("overflow", "KIND", overflow, ZT_UNITS, overflows, "which steps fp16 skips. units: "
		"the same ones at any number of ranks (default on CPU ranks, and with --reduction "
		"tree); deepspeed: the ones that DeepSpeed skips (default on GPUs)"),
	ON("random", random, "begin with random weights"),
	ON("recompute", recompute, "keep a layer's input only, compute it again on the way back"),
	ON("keep-all", keep_all, "GPUs: keep norms, turned heads and activations too, which are "
		"else computed again, as they are cheap"),
	ONE_OF("device", "KIND", device, ZT_AUTO, devices, "auto (default: a GPU for each rank, "
		"where there are some), cpu, cuda"),
	ONE_OF("reduction", "KIND", reduction, 0, reductions, "how GPUs sum gradients: nccl "
		"(default); tree: the same bits at 1, 2, 4, 8 ranks, as CPU ranks always do"),
	INTEGER("threads", "N", threads, 1, 256, "of each rank (1; where GPUs leave the optimizer "
		"to the host, its share of the cores)"),
	INTEGER("steps", "N", steps, 0, MANY, "of the whole run (what the scheduler has, or 100)"),
	INTEGER("stop-at", "N", stop_at, 1, MANY, "end this part of it after step N, saved"),
	INTEGER("seed", "N", seed, 0, INT64_MAX, "of random weights, order and tokens (1)"),
	INTEGER("timeout", "SECONDS", timeout_s, 1, 1000000, "for a rank that is not heard from "
		"(300)"),
	TEXT("secret-file", "FILE", secret_file, "ranks that meet by TCP prove that they know "
		"what is in it: a file of your own, mode 600 (ZTRAIN_SECRET_FILE, ZTRAIN_SECRET)"),

	HEAD("Data"),
	TEXT("data", "FILE", data, "rows of tokens: .bin .u16 .u32 .jsonl .safetensors"),
	ON("synthetic", synthetic, "tokens are made up; also without --data"),
	ONE_OF("data-kind", "KIND", data_kind, EN_SOURCE_U16, kinds, "u16, u32, jsonl, "
		"safetensors, where the name does not say"),
	INTEGER("seq", "N", seq, 2, EN_MAX_ROW, "tokens of a row (64; of JSON lines and "
		"safetensors the longest)"),
	ON("overlap", overlap, "the last token of a row is the first of the next"),
	ON("pack", pack, "JSON lines one after the other, cut into rows"),
	ON("cut", cut, "rows that are longer lose their end"),
	INTEGER("pad-id", "ID", pad_id, 0, INT32_MAX, "fills shorter rows, and counts as nothing "
		"(0)"),
	ON("shuffle", shuffle, "another order in each epoch, from the seed"),
	ONE_OF("order", "KIND", order, EN_ORDER_SEQUENTIAL, orders, "sequential (default), "
		"shuffled, torch: as torch's samplers"),
	ONE_OF("tail", "KIND", tail, EN_TAIL_FLOW, tails, "where an epoch is no multiple of the "
		"batch: flow (default) into the next, drop, fill"),
	ONE_OF("deal", "KIND", deal, EN_DEAL_UNITS, deals, "rows of a step to ranks: units "
		"(default), as accelerate; ranks, as DistributedSampler"),
	INTEGER("eval-rows", "N", eval_rows, 1, MANY, "hold the last N rows out of training, and "
		"print their loss"),
	TEXT("eval", "FILE", eval, "rows to evaluate on come from there"),
	INTEGER("eval-every", "N", eval_every, 1, MANY, "every N steps, besides the end"),

	HEAD("Saving and resuming"),
	TEXT("save", "DIR", save, "save there at the end, and on SIGTERM"),
	INTEGER("save-every", "N", save_every, 1, MANY, "and every N steps"),
	ONE_OF("save-format", "F", save_to, CKPT_TO_DEEPSPEED, formats, "native (default), "
		"deepspeed, universal"),
	TEXT("save-buffer", "SIZE", save_buffer, "memory of a rank for copies of what is saved: "
		"full (default), or 512MB, 8GiB: then a save waits until what is beyond is "
		"written"),
	INTEGER("save-threads", "N", save_threads, 1, 64, "of a rank, that write (by the cores "
		"that are left)"),
	ONE_OF("sync", "KIND", sync, CKPT_SYNC_DATA, syncs, "what is safe when a save is over: "
		"data (default), full, none"),
	INTEGER("grace", "SECONDS", grace_s, 1, 1000000, "for the save on SIGTERM, from then on "
		"(30)"),
	TEXT("resume", "auto|DIR", resume, "resume from the step that 'latest' names in --save "
		"(auto) or in DIR; if that step is not whole, from the newest whole one"),
	ON("overwrite-steps", overwrite, "replace steps in --save that another run saved; without "
		"this option the run refuses to start"),
	ON("allow-other-model", other_model, "resume from a step though config.json defines "
		"another model than the step's (of equal shapes)"),

	HEAD("Weights at the end"),
	TEXT("export", "DIR", export, "as a folder for transformers: config.json, tokenizer, "
		"model.safetensors"),
	ONE_OF("export-dtype", "T", export_dtype, EN_FP32, precisions, "fp32, bf16, fp16 (fp32; "
		"16-bit where stage3_gather_16bit_weights_on_model_save is true)"),
	TEXT("max-shard-size", "SIZE", max_shard_size, "of a file: 5GB (default), 500MB, 1GiB"),

	HEAD("Output"),
	TEXT("log", "FILE", log, "one line of JSON per step; a resumed run appends to it"),
	ON("counters", counters, "bytes that were sent and memory, at the end"),
	ON("exact", exact, "print losses so that they read back to the bit"),
	ON("check-launch", check_launch, "say who each rank is and which GPU is its own, and end"),
	ON("quiet", quiet, "no screen of the configuration, no line a step"),
	INTEGER("local_rank", "N", local_rank, 0, 1 << 20, "as deepspeed's launcher adds it; "
		"LOCAL_RANK is what counts"),
};

/* Of `ztrain bench`: its own, and which of the above it has as well. */
static const struct row bench_rows[] = {
	HEAD("What is measured"),
	TEXT("model", "PATH", model, "a folder with a config.json, or that file; weights are "
		"random"),
	INTEGER("seq", "N", seq, 2, EN_MAX_ROW, "tokens of a row (64)"),
	ON("table", table, "of one configuration: times, tokens, what is held, sent and waited for "
		"(default, without --stages)"),
	{ .kind = STAGES, .name = "stages", .arg = "LIST", F(stages), .help = "0,1,2,3: of each "
		"the largest micro-batch that fits, its memory and speed, and which to take" },
	ON("offload", offload, "the optimizer's state on the host; at stage 3 parameters too"),
	INTEGER("rows", "N", rows, 1, 1 << 20, "of a micro-batch, whatever the file says; with "
		"--stages the most that are tried (4096 on GPUs, 16 on CPU ranks)"),
	BYTES("memory", memory, "that a rank may take, for --stages (what is free)"),
	INTEGER("steps", "N", timed, 1, 100000, "that are timed (10)"),
	INTEGER("warmup", "N", warm, 0, 100000, "before them (2)"),
	REAL("peak-tflops", "N", peak_tflops, "of a rank's processor, for the MFU (16-bit types: "
		"989 on H100 and H200, 312 on A100; else not known)"),
	TEXT("trace", "FILE", trace, "a timeline of three more steps: Chrome's trace format"),
	TEXT("plot", "FILE", plot, "of --stages, a picture (PNG, by gnuplot)"),
	ON("json", json, "one object instead of tables"),

	HEAD("As in a run"),
};
static const char *const bench_has[] = {
	"config", "micro-batch", "accumulation", "clip", "precision", "recompute", "keep-all",
	"overflow", "device", "reduction", "threads", "seed", "timeout", "secret-file",
};

/* A call: rows of its own, and some (or all, 'has' NULL) of 'rows'. */
struct call {
	const char *name, *usage;
	const struct row *own;
	size_t nown;
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
	  "(make gpu).", NULL, 0, NULL, 0 },
	{ "ztrain bench", "usage: ztrain bench --model DIR|config.json [options]\n"
	  "       mpirun -n N ztrain bench ...        (srun, torchrun likewise)\n"
	  "\n"
	  "Trains on random tokens from random weights, saves nothing, and says how fast.",
	  bench_rows, sizeof(bench_rows) / sizeof(bench_rows[0]), bench_has,
	  sizeof(bench_has) / sizeof(bench_has[0]) },
};

#define NROWS (sizeof(rows) / sizeof(rows[0]))
#define MOST_ROWS (NROWS + sizeof(bench_rows) / sizeof(bench_rows[0]))
#define HELP_COLUMN 26
#define HELP_WIDTH 98

/* The words of 'text' between two columns. */
static void print_wrapped(const char *text, int at)
{
	while (*text) {
		const size_t n = strcspn(text, " ");

		if (at > HELP_COLUMN && at + 1 + (int)n > HELP_WIDTH) {
			printf("\n%*s", HELP_COLUMN, "");
			at = HELP_COLUMN;
		}
		printf("%s%.*s", at > HELP_COLUMN ? " " : "", (int)n, text);
		at += (int)n + (at > HELP_COLUMN);
		text += n + strspn(text + n, " ");
	}
	putchar('\n');
}

/* The rows of a call, in their order. */
static size_t list_rows(const struct call *c, const struct row *out[MOST_ROWS])
{
	size_t n = 0;

	for (size_t i = 0; i < c->nown; i++)
		out[n++] = &c->own[i];
	for (size_t i = 0; i < NROWS; i++) {
		bool is_in = !c->has;

		for (size_t k = 0; k < c->nhas && rows[i].kind != HEADING; k++)
			is_in |= !strcmp(c->has[k], rows[i].name);
		if (is_in)
			out[n++] = &rows[i];
	}
	return n;
}

static void print_help(const struct call *c, const struct row *const *row, size_t n)
{
	char left[64];

	puts(c->usage);
	for (size_t i = 0; i < n; i++) {
		const struct row *r = row[i];

		if (r->kind == HEADING) {
			printf("\n%s\n", r->help);
			continue;
		}
		snprintf(left, sizeof(left), "  --%s%s%s", r->name, r->arg ? " " : "",
			 r->arg ? r->arg : "");
		printf("%-*s", HELP_COLUMN, left);
		if (strlen(left) >= HELP_COLUMN)
			printf("\n%*s", HELP_COLUMN, "");
		print_wrapped(r->help, HELP_COLUMN);
	}
	puts("\nExit status: 0 done, 1 it failed, 2 a wrong call.");
}

static int wrong(const struct row *r, const char *text, const char *what)
{
	zt_say("ztrain: ", "--%s %s: %s", r->name, text, what);
	return 2;
}

uint64_t zt_size(const char *text)
{
	static const char letters[] = "KMGT";
	const char *at;
	char *end;
	double n = strtod(text, &end);
	bool binary;

	if (*text < '0' || *text > '9')
		return 0;
	end += strspn(end, " ");
	at = *end ? strchr(letters, *end) : NULL;
	binary = at && end[1] == 'i';
	for (; at && at >= letters; at--)
		n *= binary ? 1024 : 1000;
	end += binary ? 2 : *end && strchr(letters, *end) ? 1 : 0;
	end += *end == 'B';
	return *end || !(n >= 1) || n > 0x1p62 ? 0 : (uint64_t)n;
}

static int take_whole(const struct row *r, const char *text, int64_t *out)
{
	char *end, what[96];

	errno = 0;
	*out = strtoll(text, &end, 10);
	if (!errno && end != text && !*end && *out >= r->least && *out <= r->most)
		return 0;
	snprintf(what, sizeof(what), "a whole number from %lld to %lld is wanted",
		 (long long)r->least, (long long)r->most);
	return wrong(r, text, what);
}

static int take_choice(const struct row *r, const char *text, int *out)
{
	char what[128] = "one of";
	size_t n = strlen(what);

	for (int i = 0; r->choice[i]; i++) {
		if (!strcmp(r->choice[i], text)) {
			*out = (int)r->least + i;
			return 0;
		}
		n += (size_t)snprintf(what + n, sizeof(what) - n, " %s", r->choice[i]);
	}
	snprintf(what + n, sizeof(what) - n, " is wanted");
	return wrong(r, text, what);
}

/* "0,2,3": each at most once. */
static int take_stages(const struct row *r, const char *text, struct zt_args *a)
{
	a->stages = text;
	a->nstages = 0;
	for (const char *p = text;; p++) {
		if (*p < '0' || *p > '3')
			return wrong(r, text, "some of 0,1,2,3 are wanted");
		for (uint32_t i = 0; i < a->nstages; i++)
			if (a->stage[i] == (uint32_t)(*p - '0'))
				return wrong(r, text, "a stage stands there twice");
		a->stage[a->nstages++] = (uint32_t)(*p++ - '0');
		if (!*p)
			return 0;
		if (*p != ',')
			return wrong(r, text, "some of 0,1,2,3 are wanted");
	}
}

static int take_size(const struct row *r, const char *text, int64_t *out)
{
	*out = (int64_t)zt_size(text);
	return *out ? 0 : wrong(r, text, "a size is wanted: 512M, 80GB, 1.5GiB");
}

static int take(const struct row *r, const char *text, struct zt_args *a)
{
	void *const field = (char *)a + r->at;
	char *end;

	switch (r->kind) {
	case WORD:
		*(const char **)field = text;
		return 0;
	case FLAG:
		*(bool *)field = true;
		return 0;
	case WHOLE:
		return take_whole(r, text, field);
	case CHOICE:
		return take_choice(r, text, field);
	case SIZE:
		return take_size(r, text, field);
	case STAGES:
		return take_stages(r, text, a);
	default:
		*(double *)field = strtod(text, &end);
		return end != text && !*end && *(double *)field >= 0 ? 0 :
			wrong(r, text, "a number of 0 or more is wanted");
	}
}

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
		zt_say("ztrain: ", "unknown argument: %s (see ztrain bench --help)", rest);
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
		zt_say("ztrain: ", "%s", what);
	return what || rest ? 2 : 0;
}

/* What options say together. */
static int check(struct zt_args *a, const char *rest)
{
	const char *what = NULL;

	if (rest)
		zt_say("ztrain: ", "unknown argument: %s (see ztrain --help)", rest);
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
		zt_say("ztrain: ", "%s", what);
	return what || rest ? 2 : 0;
}

/* Options of the table have its row's number from here on. */
#define FIRST 256

static void list_options(struct option *o, const struct row *const *row, size_t nrows)
{
	size_t n = 0;

	for (size_t i = 0; i < nrows; i++)
		if (row[i]->kind != HEADING)
			o[n++] = (struct option){ row[i]->name, row[i]->kind == FLAG ?
						  no_argument : required_argument, NULL,
						  FIRST + (int)i };
	o[n++] = (struct option){ "help", no_argument, NULL, 'h' };
	o[n++] = (struct option){ "version", no_argument, NULL, 'V' };
	o[n] = (struct option){ NULL, 0, NULL, 0 };
}

static int parse(int argc, char **argv, struct zt_args *a)
{
	const struct call *call = &calls[a->bench];
	const struct row *row[MOST_ROWS];
	const size_t n = list_rows(call, row);
	struct option options[MOST_ROWS + 3];
	int c, rc = 0;

	list_options(options, row, n);
	while (!rc && (c = getopt_long(argc, argv, "hq", options, NULL)) != -1) {
		if (c == 'h') {
			print_help(call, row, n);
			return 1;
		} else if (c == 'V') {
			printf("ztrain %s%s\n", ckpt_version(),
			       en_comm_mpi_is_built() ? ", with MPI" : "");
			return 1;
		} else if (c == 'q') {
			a->quiet = true;
		} else {
			rc = c >= FIRST ? take(row[c - FIRST], optarg, a) : 2;
		}
	}
	return rc;
}

int zt_args_parse(int argc, char **argv, struct zt_args *a)
{
	static char bench_name[] = "ztrain bench";	/* as getopt calls it */
	const bool bench = argc > 1 && !strcmp(argv[1], "bench");
	const char *rest;
	int rc;

	if (bench)
		argv[1] = bench_name;
	*a = (struct zt_args){
		.save_to = -1, .steps = -1, .seed = 1, .timeout_s = 300,
		.lr = NAN, .beta1 = NAN, .beta2 = NAN, .eps = NAN, .weight_decay = NAN, .clip = NAN,
		.warmup = NAN, .order = EN_ORDER_SEQUENTIAL, .tail = EN_TAIL_FLOW,
		.deal = EN_DEAL_UNITS, .sync = CKPT_SYNC_DATA,
		.bench = bench, .timed = 10, .warm = 2, .peak_tflops = NAN,
	};
	rc = parse(argc - bench, argv + bench, a);
	if (rc)
		return rc;
	a->quiet |= a->json;	/* one object, and nothing before it */
	rest = optind < argc - bench ? argv[optind + bench] : NULL;
	rc = bench ? check_bench(a, rest) : check(a, rest);
	if (a->save_to < 0)
		a->save_to = CKPT_TO_NATIVE;
	if (!a->grace_s)
		a->grace_s = GRACE;
	return rc;
}
