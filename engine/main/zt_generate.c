/* zt_generate.c -- see zt_generate.h. */
#include "engine/main/zt_generate.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/main/zt_opt.h"
#include "engine/main/zt_prompt.h"
#include "engine/main/zt_say.h"
#include "engine/checkpoint/en_run_facts.h"
#include "engine/model/en_adapt.h"
#include "engine/model/en_decode.h"
#include "engine/model/en_sample.h"
#include "engine/model/en_weights.h"
#include "libckpt/base/ck_clock.h"

#define PATH 4096

struct args {
	const char *model, *config, *prompt_ids, *prompt_file, *prompt;
	int64_t max_new, top_k, seed, threads;
	double temperature, top_p;
	enum kn_type type;
	int bytes, json, ignore_eos;
};

struct generate {
	struct args args;
	struct en_model *model;
	struct en_weights weights;
	struct en_decode *decode;
	struct en_sample_entry *work;
	struct zt_ids prompt;
	int32_t *ids;		/* new ones, n of them */
	double *logprob;
	int64_t n;
	int32_t eos[EN_EOS_MOST];
	uint32_t neos;
	bool ended;		/* by one of these */
	double seconds;		/* from the first token of the prompt on */
};

/* ---- the call ---- */

/* What the table fills. */
static struct args args;
static int dtype, help, color;

static const char *const dtypes[] = { "fp32", "bf16", "fp16", NULL };

static const struct opt options[] = {
	ZT_TEXT("model", "PATH", args.model, "a Hugging Face folder, or a saved step"),
	ZT_TEXT("config", "DIR", args.config, "folder of config.json, if PATH has none"),
	ZT_TEXT("prompt-ids", "1,2,3", args.prompt_ids, "the prompt, as token ids"),
	ZT_TEXT("prompt-file", "FILE", args.prompt_file,
		"read token ids from FILE (- is standard input)"),
	ZT_FLAG("bytes", args.bytes, "each token is a byte: read and print text"),
	ZT_TEXT("prompt", "TEXT", args.prompt, "the prompt, as text; needs --bytes"),
	ZT_WHOLE("max-new-tokens", "N", args.max_new, 1, 1 << 24, "stop after N tokens (32)"),
	ZT_REAL("temperature", "T", args.temperature, 1000000,
		"sample from logits divided by T; without --temperature, --top-k and --top-p take "
		"the most likely token"),
	ZT_WHOLE("top-k", "K", args.top_k, 1, INT32_MAX, "sample among the K most likely tokens"),
	ZT_REAL("top-p", "P", args.top_p, 1,
		"sample among the most likely tokens whose probabilities add up to P"),
	ZT_WHOLE("seed", "N", args.seed, 0, INT64_MAX, "seed of the sampling (1)"),
	ZT_FLAG("ignore-eos", args.ignore_eos, "continue after an end-of-text token"),
	ZT_ONE_OF("dtype", "T", dtype, 0, dtypes, "compute in fp32 (default), bf16 or fp16"),
	ZT_WHOLE("threads", "N", args.threads, 1, 256, "threads to compute with (1)"),
	ZT_FLAG("json", args.json, "print one JSON object, with the log-probability of each token"),
	{ "color", 0, OPT_CHOICE, &color, TERM_COLORS,
	  "colour errors, warnings and headings (default: on a terminal)", 0 },
	{ "help", 'h', OPT_FLAG, &help, NULL, "", OPT_HIDDEN | OPT_LAST },
	{ 0 },
};

const struct opt *const *zt_generate_tables(void)
{
	static const struct opt *const tables[] = { options, NULL };

	return tables;
}

static void print_help(void)
{
	static const struct opt_style style = { .list = OPT_LIST_ALL, .column = 26, .gap = 1,
						.width = 79 };

	puts("usage: ztrain generate --model PATH --prompt-ids 1,2,3 [options]\n"
	     "\n"
	     "Continues a prompt and prints the ids of the new tokens on one line.\n"
	     "\n"
	     "examples:\n"
	     "  ztrain generate --model my-model --prompt-ids 1,2,3\n"
	     "  ztrain generate --model my-model --bytes --prompt 'Once upon' --temperature 1\n"
	     "\n"
	     "options:");
	opt_help(options, &style, stdout);
	puts("\nExit status: 0 done, 1 failed, 2 usage error.");
}

static int check(struct args *a, const char *rest)
{
	const int prompts = !!a->prompt_ids + !!a->prompt_file + !!a->prompt;
	const char *what = NULL;

	if (rest)
		what = "an argument that is not an option";
	else if (!a->model)
		what = "--model is required";
	else if (prompts != 1)
		what = "give the prompt by --prompt-ids, --prompt-file or --prompt";
	else if (a->prompt && !a->bytes)
		what = "--prompt needs --bytes, for models whose tokens are bytes; for other "
		       "models give token ids by --prompt-ids";
	if (what)
		zt_say_error("ztrain generate: ", "%s%s%s (see ztrain generate --help)", what,
			     rest ? ": " : "", rest ? rest : "");
	if (isnan(a->temperature))
		a->temperature = a->top_k || a->top_p < 1 ? 1 : 0;
	return what ? 2 : 0;
}

/* -1 when help was printed. */
static int parse(int argc, char **argv, struct args *out)
{
	static const enum kn_type types[] = { KN_F32, KN_BF16, KN_F16 };
	struct words rest = { 0 };
	const struct opt_call call = {
		.tables = zt_generate_tables(), .rest = &rest, .wrong = zt_wrong_call,
		.arg = "ztrain generate",
	};
	int rc;

	args = (struct args){
		.max_new = 32, .seed = 1, .threads = 1, .temperature = NAN, .top_p = 1,
	};
	rc = opt_parse(&call, argc - 1, argv + 1);
	if (!rc && help)
		print_help();
	if (rc || help)
		return rc ? rc : -1;
	args.type = types[dtype];
	rc = check(&args, rest.n ? rest.list[0] : NULL);
	*out = args;
	return rc;
}

/* ---- the model ---- */

static int fail(struct ckpt_err *err, enum ckpt_code code, const char *where, const char *what)
{
	err->code = code;
	snprintf(err->where, sizeof(err->where), "%.300s", where);
	snprintf(err->msg, sizeof(err->msg), "%s", what);
	return -(int)code;
}

static bool is_dir(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* '*dir' is the folder with generation_config.json, "" = none. */
static int open_model(struct generate *g, char dir[PATH], struct ckpt_err *err)
{
	const struct args *a = &g->args;
	const char *at = a->config ? a->config : a->model;
	struct en_model_config config;
	char path[PATH + 16];
	struct stat st;
	int rc;

	snprintf(dir, PATH, "%s", is_dir(at) ? at : "");
	snprintf(path, sizeof(path), "%s%s", at, *dir ? "/config.json" : "");
	if (stat(a->model, &st))
		return fail(err, CKPT_E_NOTFOUND, a->model, strerror(errno));
	if (!a->config && (!*dir || stat(path, &st)))
		return fail(err, CKPT_E_NOTFOUND, a->model,
			    "no config.json in this folder; give its folder by --config");
	rc = en_model_config_read(path, &config, err);
	return rc ? rc : en_model_new(&config, &g->model, err);
}

/* A step of a run with adapters says so: the model has them, too. */
static int adapt_model(struct generate *g, const struct ckpt *ck, struct ckpt_err *err)
{
	const struct en_model_config config = g->model->config;
	struct en_adapt adapt = { .ranks = 1 };
	struct en_run_facts made;
	struct ckpt_values *values;
	const char *lora;
	int rc;

	if (ckpt_values_open(ck, 0, 0, &values, NULL))
		return 0;	/* weights */
	lora = en_run_facts_read(&made, values) ? en_run_facts_find(&made, "lora") : NULL;
	ckpt_values_close(values);
	if (!lora)
		return 0;
	rc = en_lora_parse(lora, &adapt.lora, err);
	if (rc)
		return rc;
	en_model_free(g->model);
	g->model = NULL;
	return en_model_new_adapted(&config, &adapt, &g->model, err);
}

static int load(struct generate *g, struct ckpt_err *err)
{
	const struct args *a = &g->args;
	struct ckpt *ck;
	int rc = ckpt_open(&a->model, 1, NULL, &ck, err);

	if (rc)
		return rc;
	rc = adapt_model(g, ck, err);
	if (!rc)
		rc = en_weights_load(g->model, ck, a->type, (uint32_t)a->threads, &g->weights, err);
	ckpt_close(ck);
	return rc;
}

static int take_prompt(struct generate *g, struct ckpt_err *err)
{
	const struct args *a = &g->args;
	const uint32_t most = g->model->config.max_positions;
	char what[160];
	int rc;

	if (a->bytes && g->model->config.vocab < 256)
		return fail(err, CKPT_E_USAGE, "--bytes", "the vocabulary has fewer than 256 "
			    "tokens");
	rc = a->prompt_ids ? zt_ids_parse(a->prompt_ids, "--prompt-ids", &g->prompt, err) :
	     a->prompt ? zt_ids_bytes(a->prompt, &g->prompt, err) :
	     zt_ids_read(a->prompt_file, a->bytes, &g->prompt, err);
	if (rc)
		return rc;
	if (most && g->prompt.n + (uint64_t)a->max_new > most) {
		snprintf(what, sizeof(what),
			 "%" PRIu64 " tokens and %" PRId64
			 " new ones exceed the model's max_position_embeddings, %" PRIu32,
			 g->prompt.n, a->max_new, most);
		return fail(err, CKPT_E_LIMIT, "prompt", what);
	}
	return 0;
}

static int make_room(struct generate *g, struct ckpt_err *err)
{
	const struct args *a = &g->args;
	const struct en_decode_opts o = {
		.tokens = (uint32_t)(g->prompt.n + (uint64_t)a->max_new), .type = a->type,
		.threads = (uint32_t)a->threads,
	};

	g->ids = calloc((size_t)a->max_new, sizeof(*g->ids));
	g->logprob = calloc((size_t)a->max_new, sizeof(*g->logprob));
	g->work = calloc(g->model->config.vocab, sizeof(*g->work));
	if (!g->ids || !g->logprob || !g->work)
		return fail(err, CKPT_E_NOMEM, "", "no memory for the generated tokens");
	return en_decode_new(g->model, &o, (const void *const *)g->weights.block, &g->decode, err);
}

/* ---- tokens ---- */

static bool ends(const struct generate *g, int32_t id)
{
	for (uint32_t i = 0; !g->args.ignore_eos && i < g->neos; i++)
		if (g->eos[i] == id)
			return true;
	return false;
}

static int speak(struct generate *g, struct ckpt_err *err)
{
	const struct args *a = &g->args;
	const struct en_sample_how how = {
		.temperature = a->temperature, .top_k = (uint32_t)a->top_k, .top_p = a->top_p,
		.seed = (uint64_t)a->seed,
	};
	const double since = ck_clock_seconds();
	const float *logits;
	int rc = en_decode_feed(g->decode, g->prompt.id, (uint32_t)g->prompt.n, &logits, err);

	while (!rc && g->n < a->max_new && !g->ended) {
		const int32_t id = en_sample(&how, logits, g->model->config.vocab, (uint64_t)g->n,
					     g->work, &g->logprob[g->n]);

		g->ids[g->n++] = id;
		g->ended = ends(g, id);
		if (!g->ended && g->n < a->max_new)
			rc = en_decode_feed(g->decode, &id, 1, &logits, err);
	}
	g->seconds = ck_clock_seconds() - since;
	return rc;
}

/* ---- what is said ---- */

static void print_list(const int32_t *id, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		printf("%s%" PRId32, i ? "," : "", id[i]);
}

/* JSON has no infinity: a token of probability 0 has null. */
static void print_json(const struct generate *g)
{
	printf("{\"prompt\": [");
	print_list(g->prompt.id, g->prompt.n);
	printf("], \"ids\": [");
	print_list(g->ids, (uint64_t)g->n);
	printf("], \"logprobs\": [");
	for (int64_t i = 0; i < g->n; i++)
		printf(isfinite(g->logprob[i]) ? "%s%.9g" : "%snull", i ? ", " : "",
		       g->logprob[i]);
	printf("], \"end\": \"%s\", \"seconds\": %.6f, \"tokens_per_second\": %.3f}\n",
	       g->ended ? "eos" : "length", g->seconds,
	       (double)g->n / (g->seconds > 0 ? g->seconds : 1e-9));
}

static int print(const struct generate *g, struct ckpt_err *err)
{
	if (g->args.json) {
		print_json(g);
	} else if (g->args.bytes) {
		for (int64_t i = 0; i < g->n; i++)
			putchar(g->ids[i] < 256 ? g->ids[i] : '?');
		putchar('\n');
	} else {
		print_list(g->ids, (uint64_t)g->n);
		putchar('\n');
	}
	return fflush(stdout) ? fail(err, CKPT_E_IO, "standard output", strerror(errno)) : 0;
}

static int everything(struct generate *g, struct ckpt_err *err)
{
	char dir[PATH];
	int rc = open_model(g, dir, err);

	if (!rc && *dir)
		rc = en_eos_read(dir, g->eos, &g->neos, err);
	if (!rc)
		rc = take_prompt(g, err);
	if (!rc)
		rc = load(g, err);
	if (!rc)
		rc = make_room(g, err);
	if (!rc)
		rc = speak(g, err);
	return rc ? rc : print(g, err);
}

int zt_generate(int argc, char **argv)
{
	struct generate g = { .n = 0 };
	struct ckpt_err err = { 0 };
	int rc = parse(argc, argv, &g.args);

	if (rc)
		return rc < 0 ? 0 : rc;
	rc = everything(&g, &err);
	if (rc)
		zt_say_error("ztrain generate: ", "%s%s%s", err.where, *err.where ? ": " : "",
		       *err.msg ? err.msg : ckpt_code_name(err.code));
	en_decode_free(g.decode);
	en_weights_free(&g.weights);
	en_model_free(g.model);
	zt_ids_release(&g.prompt);
	free(g.ids);
	free(g.logprob);
	free(g.work);
	return rc ? 1 : 0;
}
