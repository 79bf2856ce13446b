/* cmd_plan.c -- `zckpt plan`: memory and disk of a run before it is started. */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli_plan.h"

#define MAX_WORLD 4096
#define LEAST_MEM (UINT64_C(1) << 20)	/* less was meant in another unit */
#define LEAST_COUNT 1000	/* likewise of parameters */

static struct {
	const char *stage, *ds_config, *dtype, *config, *lora;
	uint64_t tp, pp, ep;
	uint64_t gpus, gpus_per_node, micro, seq, accumulation, gpu_mem, host_mem, overhead;
	int offload, recompute, attention, ops, engine, deepspeed, ranks, freeze_tower, fp8;
} want = { .offload = -1 };

static const char *const offloads[] = { "none", "optimizer", "params", NULL };

static int set_offload(const struct opt_call *call, const struct opt *opt, const char *text)
{
	for (int i = 0; offloads[i]; i++)
		if (!strcmp(text, offloads[i])) {
			want.offload = i;
			return 0;
		}
	return opt_wrong(call, "--offload: %s is not one of %s%s", out_name(text), opt->value,
			 opt_is_name(text, "cpu") ? ", each of which says what to keep in the "
			 "host's memory; did you mean optimizer?" : "");
}

/* A size; "80" would be 80 bytes. */
static int set_mem(const struct opt_call *call, const struct opt *opt, const char *text)
{
	uint64_t *to = ((const struct opt_own *)opt->to)->to;

	if (opt_size_parse(text, to) || !*to)
		return opt_wrong(call, "--%s: %s is not a size; give the memory as in 80GiB",
				 opt->name, out_name(text));
	if (*to < LEAST_MEM)
		return opt_wrong(call, "--%s: %s is %" PRIu64 " bytes; did you mean %" PRIu64
				 "GiB?", opt->name, out_name(text), *to, *to);
	return 0;
}

static struct opt_own to_offload = { .set = set_offload, .choice = offloads };
static struct opt_own to_gpu_mem = { .set = set_mem, .to = &want.gpu_mem };
static struct opt_own to_host_mem = { .set = set_mem, .to = &want.host_mem };

static const struct opt own[] = {
	{ "gpus", 'n', OPT_COUNT, &want.gpus, "N",
	  "number of GPUs (default 1); also --world, --world-size", 0 },
	{ "world", 0, OPT_COUNT, &want.gpus, "N", "", OPT_HIDDEN },
	{ "world-size", 0, OPT_COUNT, &want.gpus, "N", "", OPT_HIDDEN },
	{ "num-gpus", 0, OPT_COUNT, &want.gpus, "N", "", OPT_HIDDEN },
	{ "tp", 0, OPT_COUNT, &want.tp, "N",
	  "tensor-parallel ranks among the GPUs (default 1)", 0 },
	{ "pp", 0, OPT_COUNT, &want.pp, "N", "pipeline stages (default 1)", 0 },
	{ "ep", 0, OPT_COUNT, &want.ep, "N",
	  "expert-parallel ranks, which have different experts (default 1)", 0 },
	{ "ranks", 0, OPT_FLAG, &want.ranks, NULL,
	  "list what each rank has: layers, experts, states, its optimizer file", OPT_RARE },
	{ "gpus-per-node", 0, OPT_COUNT, &want.gpus_per_node, "N",
	  "GPUs of a host (default 8)", OPT_RARE },
	{ "gpu-mem", 0, OPT_OWN, &to_gpu_mem, "SIZE",
	  "memory of a GPU, such as 80GiB: say whether the run fits", 0 },
	{ "host-mem", 0, OPT_OWN, &to_host_mem, "SIZE",
	  "memory of a host: say whether the run fits", OPT_RARE },
	{ "stage", 0, OPT_TEXT, &want.stage, "0|1|2|3",
	  "ZeRO stage (default: the first that fits, else 3)", 0 },
	{ "offload", 0, OPT_OWN, &to_offload, "none|optimizer|params",
	  "what to keep in host memory; params (stage 3) includes the optimizer", 0 },
	{ "dtype", 0, OPT_TEXT, &want.dtype, "bf16|fp16|fp32",
	  "type to train in (default bf16)", 0 },
	{ "micro", 0, OPT_COUNT, &want.micro, "N", "samples of a micro-batch (default 1)", 0 },
	{ "seq", 0, OPT_COUNT, &want.seq, "N", "tokens of a sample (default 2048)", 0 },
	{ "accumulation", 0, OPT_COUNT, &want.accumulation, "N",
	  "micro-batches of a step (default 1)", 0 },
	{ "lora", 0, OPT_TEXT, &want.lora, "KEYS",
	  "train adapters, the rest is frozen: r=16,target=q_proj+v_proj or all-linear", 0 },
	{ "recompute", 0, OPT_FLAG, &want.recompute, NULL,
	  "recompute activations (activation checkpointing)", 0 },
	{ "attention", 0, OPT_CHOICE, &want.attention, "flash|matrix",
	  "matrix: attention scores are stored (\"eager\")", OPT_RARE },
	{ "ops", 0, OPT_CHOICE, &want.ops, "eager|fused",
	  "implementation of layers: as in transformers, or fused", OPT_RARE },
	{ "engine", 0, OPT_CHOICE, &want.engine, "deepspeed|ztrain",
	  "ztrain: CPU ranks; --gpus is their number, --gpu-mem the memory of each", OPT_RARE },
	{ "fp8", 0, OPT_CHOICE, &want.fp8, "off|tensorwise|tensorwise_with_gw_hp|tensorwise_fast",
	  "with --engine ztrain: what that recipe's 8-bit copies take on a GPU", OPT_RARE },
	{ "ds-config", 0, OPT_TEXT, &want.ds_config, "FILE",
	  "DeepSpeed configuration: defaults of the options above", 0 },
	{ "config", 0, OPT_TEXT, &want.config, "FILE",
	  "config.json, if it is not beside the weights", 0 },
	{ "freeze-tower", 0, OPT_FLAG, &want.freeze_tower, NULL,
	  "train the language part of a vision-language model only", OPT_RARE },
	{ "overhead", 0, OPT_SIZE, &want.overhead, "SIZE",
	  "memory for CUDA and NCCL (default 685MiB, with several GPUs 840MiB more)",
	  OPT_RARE },
	{ "deepspeed", 0, OPT_FLAG, &want.deepspeed, NULL,
	  "print what DeepSpeed's own estimators return, too", OPT_RARE },
	{ 0 },
};

extern const struct command cmd_plan;

static int failed(const struct planning *p, const struct ckpt *ck)
{
	return cli_fail(p->args->json ? "plan" : NULL, ck, &p->err);
}

/* ---------------------------------------------------------------- the model */

/* "8B", "7.6b", "135M", "7615616512", "7e9": 1, and the number. */
static int is_number(const char *text, uint64_t *out)
{
	uint64_t whole = 0, part = 0, scale = 1, factor = 1;
	const char *p = text;

	for (; *p >= '0' && *p <= '9' && whole < UINT64_MAX / 100; p++)
		whole = whole * 10 + (uint64_t)(*p - '0');
	if (*p == '.')
		for (p++; *p >= '0' && *p <= '9' && scale < 1000000; p++, scale *= 10)
			part = part * 10 + (uint64_t)(*p - '0');
	if ((*p == 'e' || *p == 'E') && p[1] >= '1' && p[1] <= '9' && !p[2]) {
		for (int i = p[1] - '0'; i > 0; i--)
			factor *= 10;
		p += 2;
	} else if (*p && !p[1]) {
		factor = *p == 'k' || *p == 'K' ? 1000 : *p == 'm' || *p == 'M' ? 1000000 :
			 *p == 'b' || *p == 'B' || *p == 'g' || *p == 'G' ? 1000000000 :
			 *p == 't' || *p == 'T' ? UINT64_C(1000000000000) : 0;
		p++;
	}
	if (p == text || *p || text[0] < '0' || text[0] > '9' || !factor)
		return 0;
	if (__builtin_mul_overflow(whole, factor, &whole) || part > UINT64_MAX / factor)
		return 0;
	*out = whole + part * factor / scale;
	return 1;
}

static char *beside(const char *path, const char *name)
{
	const char *slash = strrchr(path, '/');
	struct stat st;
	char *out;

	if (!stat(path, &st) && S_ISDIR(st.st_mode))
		out = cli_format("%s/%s", path, name);
	else
		out = slash ? cli_format("%.*s/%s", (int)(slash - path), path, name) :
			      cli_strdup(name);
	if (!access(out, R_OK))
		return out;
	cli_free(out);
	return NULL;
}

static int ends_with(const char *text, const char *end)
{
	const size_t n = strlen(text), m = strlen(end);

	return n >= m && !strcmp(text + n - m, end);
}

/* A folder that is no checkpoint, but holds a config.json? */
static int is_config_folder(const struct planning *p, const char *config)
{
	const struct ckpt_open_opts opts = { .size = sizeof(opts), .threads = 1 };
	const char *const *paths = p->args->rest.list;
	struct ckpt *ck = NULL;
	struct stat st;
	int rc;

	if (!config || p->args->rest.n != 1 || stat(paths[0], &st) || !S_ISDIR(st.st_mode))
		return 0;
	rc = ckpt_open(paths, 1, &opts, &ck, NULL);
	ckpt_close(ck);
	return rc == -CKPT_E_FORMAT;
}

/* Without the advice to give the weights, which are given. */
static void say_unused(const char *config, const char *why)
{
	const char *advice = strstr(why, "; give its weights");
	const int n = advice ? (int)(advice - why) : (int)strlen(why);

	cli_say("note: %s is not used: %.*s", out_name(config), n, why);
}

/* Sizes of placeholders are no sizes of a model. */
static int check_whole(struct planning *p, const struct ckpt *ck)
{
	struct ckpt_finding f;

	for (uint64_t i = 0; !ckpt_finding_get(ck, i, &f, NULL); i++) {
		if (f.severity != CKPT_ERROR || strcmp(f.id, "PLACEHOLDERS_ONLY") != 0)
			continue;
		out_findings_asked(p->args, ck);
		p->err = (struct ckpt_err){ .code = CKPT_E_MISMATCH, .offset = CKPT_NO_OFFSET };
		snprintf(p->err.where, sizeof(p->err.where), "%s", f.where);
		snprintf(p->err.msg, sizeof(p->err.msg), "%s: %s", f.id, f.text);
		return failed(p, ck);
	}
	return 0;
}

static int from_weights(struct planning *p)
{
	const char *config = want.config ? want.config : beside(p->source, "config.json");
	struct ckpt *ck = NULL;
	int status;

	if (is_config_folder(p, config))
		return ckpt_model_from_config(config, &p->model, &p->err) ? failed(p, NULL) : 0;
	status = cli_open(p->args, "plan", &p->args->rest, &ck, &p->err);
	if (!status)
		status = check_whole(p, ck);
	if (!status && ckpt_model_from_ckpt(ck, config, &p->model, &p->err)) {
		/* The weights are here: one beside them of an unknown kind is not needed. */
		if (config && !want.config && p->err.code != CKPT_E_NOMEM &&
		    !ckpt_model_from_ckpt(ck, NULL, &p->model, NULL)) {
			say_unused(config, p->err.msg);
			p->err = (struct ckpt_err){ 0 };
		} else {
			status = failed(p, ck);
		}
	}
	ckpt_close(ck);
	return status;
}

/* The call with another model. */
static char *call_with(const struct planning *p, const char *model)
{
	char *call = cli_strdup("zckpt plan");

	for (int i = 2; i < p->args->argc; i++)
		call = cli_format("%s %s", call, p->args->argv[i] == p->source ? out_word(model) :
				  cli_argument(p->args->argv[i]));
	return call;
}

/* "meta-llama/Llama-3.1-8B-Instruct" -> "Llama-3.1-8B" */
static char *model_name(const char *text)
{
	const char *slash = strrchr(text, '/'), *name = slash && slash[1] ? slash + 1 : text;
	size_t n = strlen(name);

	if (ends_with(name, "-Instruct"))
		n -= 9;
	else if (ends_with(name, "-Base"))
		n -= 5;
	return cli_format("%.*s", (int)n, name);
}

static int no_such(const struct planning *p)
{
	const int is_file = ends_with(p->source, ".json") || ends_with(p->source, ".safetensors");
	struct words names = { 0 };
	const char *near;
	char *list = cli_strdup("");

	for (uint32_t i = 0; ckpt_model_name(i); i++) {
		words_add(&names, ckpt_model_name(i));
		list = cli_format("%s%s%s", list, i ? ", " : "", ckpt_model_name(i));
	}
	near = is_file ? NULL : opt_nearest(model_name(p->source), names.list);
	if (p->args->verbose)
		cli_say("known models: %s", list);
	if (near)
		return cli_try(&cmd_plan, call_with(p, near), "%s is not a file, folder or known "
			       "model; did you mean %s?", out_name(p->source), near);
	if (is_file || strchr(p->source, '/'))
		return cli_wrong(&cmd_plan, "%s: no such file or folder", out_name(p->source));
	return cli_wrong(&cmd_plan, "%s is not a file, folder, number of parameters (8B) or known "
			 "model", out_name(p->source));
}

/* "7" is no model: 7b was meant. */
static int too_few(const struct planning *p, uint64_t n)
{
	char *meant = cli_format("%sb", p->source);

	return cli_try(&cmd_plan, call_with(p, meant), "%s is %" PRIu64 " parameter%s; did you "
		       "mean %s?", p->source, n, out_plural(n), meant);
}

static int read_model(struct planning *p)
{
	uint64_t n;
	int rc;

	p->source = p->args->rest.list[0];
	if (!access(p->source, F_OK)) {
		if (!ends_with(p->source, ".json") || ends_with(p->source, ".index.json"))
			return from_weights(p);
		rc = ckpt_model_from_config(p->source, &p->model, &p->err);
	} else if (is_number(p->source, &n)) {
		if (n && n < LEAST_COUNT && !p->source[strspn(p->source, "0123456789.")])
			return too_few(p, n);
		rc = ckpt_model_from_count(n, &p->model, &p->err);
	} else if (!ckpt_model_from_name(p->source, &p->model, NULL)) {
		rc = 0;
	} else {
		return no_such(p);
	}
	return rc ? failed(p, NULL) : 0;
}

static int freeze(struct planning *p)
{
	return want.freeze_tower && ckpt_model_freeze_tower(p->model, &p->err) ? failed(p, NULL) :
	       0;
}

static int adapt_model(struct planning *p)
{
	return want.lora && ckpt_model_lora(p->model, want.lora, &p->err) ? failed(p, NULL) : 0;
}

/* ---------------------------------------------------------------- the setup */

static int check_words(struct planning *p)
{
	static const struct {
		const char *name;
		const uint64_t *n;
	} part[] = { { "tp", &want.tp }, { "pp", &want.pp }, { "ep", &want.ep } };
	const struct args *args = p->args;

	if (!args->rest.n)
		return cli_wrong(&cmd_plan, "plan needs a model: zckpt plan config.json --gpus 8, "
				 "or a number: zckpt plan 8B");
	if (want.fp8 && !want.engine)
		return cli_wrong(&cmd_plan, "--fp8 is a recipe of ztrain: give --engine ztrain");
	if (want.gpus > MAX_WORLD)
		return cli_wrong(&cmd_plan, "--gpus %" PRIu64 ": at most %d are possible",
				 want.gpus, MAX_WORLD);
	for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); i++)
		if (*part[i].n > MAX_WORLD)
			return cli_wrong(&cmd_plan, "--%s %" PRIu64 ": at most %d are possible",
					 part[i].name, *part[i].n, MAX_WORLD);
	if (want.stage && (strlen(want.stage) != 1 || *want.stage < '0' || *want.stage > '3'))
		return cli_wrong(&cmd_plan, "--stage %s: expected 0, 1, 2 or 3",
				 out_name(want.stage));
	if (want.dtype && strcmp(want.dtype, "bf16") &&
	    strcmp(want.dtype, "fp16") && strcmp(want.dtype, "fp32"))
		return cli_wrong(&cmd_plan, "--dtype %s: expected bf16, fp16 or fp32",
				 out_name(want.dtype));
	return 0;
}

static void set_numbers(struct planning *p)
{
	struct ckpt_setup *s = &p->setup;

	if (want.dtype) {
		if (s->grad_dtype != CKPT_F32)
			s->grad_dtype = 0;
		s->dtype = ckpt_dtype_parse(want.dtype);
	}
	if (want.micro)
		s->micro = want.micro;
	if (want.accumulation)
		s->accumulation = want.accumulation;
	s->micro = s->micro ? s->micro : 1;
	s->accumulation = s->accumulation ? s->accumulation : 1;
	s->gpus_per_node = (uint32_t)want.gpus_per_node;
	s->tp = (uint32_t)want.tp;
	s->pp = (uint32_t)want.pp;
	s->ep = (uint32_t)want.ep;
	s->sequence = want.seq ? want.seq : 2048;
	s->recompute = (uint32_t)want.recompute;
	s->attention_matrix = (uint32_t)want.attention;
	s->ops = want.ops ? CKPT_OPS_FUSED : CKPT_OPS_EAGER;
	s->engine = want.engine ? CKPT_ENGINE_ZTRAIN : CKPT_ENGINE_DEEPSPEED;
	s->overhead = want.overhead;
	s->fp8 = (uint32_t)want.fp8;
	p->gpu_mem = want.gpu_mem;
	p->host_mem = want.host_mem;
	p->deepspeed = want.deepspeed;
}

/* The first stage without offload that fits, else the last there is: 3, or less with --tp, ... */
static uint32_t choose_stage(struct planning *p)
{
	struct plan_row row[PLAN_ROWS];
	const size_t n = plan_rows(p, row);
	uint32_t last = 0;

	for (size_t i = 0; i < n; i++) {
		if ((p->gpu_mem || p->host_mem) && row[i].fits &&
		    row[i].offload == p->setup.offload)
			return row[i].stage;
		last = row[i].stage > last ? row[i].stage : last;
	}
	return n ? last : plan_is_split(p) ? 1 : 3;
}

static int read_setup(struct planning *p)
{
	unsigned said = 0;

	p->setup.size = sizeof(p->setup);
	p->setup.gpus = want.gpus ? (uint32_t)want.gpus : 1;
	if (want.ds_config && ckpt_setup_read(want.ds_config, &p->setup, &said, &p->err))
		return failed(p, NULL);
	set_numbers(p);
	if (want.offload >= 0)
		p->setup.offload = want.offload == 2 ? CKPT_OFFLOAD_OPTIMIZER |
				   CKPT_OFFLOAD_PARAMS : (unsigned)want.offload;
	if (want.stage)
		p->setup.stage = (uint32_t)(*want.stage - '0');
	else if (!(said & CKPT_SETUP_STAGE))
		p->setup.stage = choose_stage(p);
	return 0;
}

static int run(struct args *args)
{
	struct planning p = { .args = args };
	int status = check_words(&p);

	if (!status)
		status = read_model(&p);
	if (!status)
		status = freeze(&p);
	if (!status)
		status = adapt_model(&p);
	if (status) {
		ckpt_model_free(p.model);
		return status;
	}
	ckpt_model_get(p.model, &p.info);
	status = read_setup(&p);
	if (!status && ckpt_estimate(p.model, &p.setup, &p.est, &p.err))
		status = failed(&p, NULL);
	if (!status && want.ranks) {
		status = plan_ranks(&p) ? failed(&p, NULL) : EXIT_DONE;
	} else if (!status) {
		if (args->json)
			plan_json(&p);
		else
			plan_print(&p);
		status = plan_fits(&p, &p.est) ? EXIT_DONE : EXIT_NO;
	}
	ckpt_model_free(p.model);
	return status;
}

const struct command cmd_plan = {
	.name = "plan",
	.run = run,
	.ranks = RANKS_ONE,
	.gist = "estimate the memory and disk space that a run needs",
	.synopsis = "MODEL",
	.about = "Estimates the memory of a GPU and of a host, and the files of a save, for a run "
		 "under DeepSpeed. The first lines are the answer: with --gpu-mem whether it "
		 "fits, and if not, the cheapest options that make it fit. Then one line for "
		 "each part of the memory (with -v its formula), and a table of all stages.",
	.examples = "zckpt plan --gpus 8 8B\n"
		    "zckpt plan --gpus 8 --gpu-mem 80GiB qwen2.5-7b\n"
		    "zckpt plan --gpus 8 --stage 3 --offload optimizer my-model\n"
		    "zckpt plan --gpus 64 --tp 4 --pp 2 --ep 8 mixtral-8x7b\n",
	.notes = "MODEL is a config.json of transformers, weights or a step of any format, a "
		 "number of parameters (8B), or a published model: llama-3-8b, llama-3-70b, "
		 "llama-3.2-1b, llama-3.2-3b, qwen2.5-0.5b, -1.5b, -3b, -7b, -14b, -32b, "
		 "qwen3-0.6b, -1.7b, -4b, -8b, -14b, -32b, qwen3-30b-a3b, qwen3-235b-a22b, "
		 "mixtral-8x7b, mixtral-8x22b, deepseek-v3. Exit 1 if it does not fit.",
	.tables = { own, opts_source, opts_talk, NULL },
};
