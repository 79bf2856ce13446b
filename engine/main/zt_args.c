/* zt_args.c -- see zt_args.h. */
#include "engine/main/zt_args.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/comm/en_comm_mpi.h"

enum {
	OPT_MODEL = 256, OPT_CONFIG, OPT_SAVE, OPT_EVERY, OPT_FORMAT, OPT_RESUME, OPT_STEPS,
	OPT_SEED, OPT_SEQ, OPT_THREADS, OPT_TIMEOUT, OPT_MICRO, OPT_ACC, OPT_LR, OPT_RANDOM,
	OPT_DATA, OPT_SHUFFLE, OPT_RECOMPUTE, OPT_STOP_AT, OPT_COUNTERS, OPT_EXACT, OPT_SYNC,
	OPT_HELP, OPT_VERSION,
};

static const struct option options[] = {
	{ "model", required_argument, NULL, OPT_MODEL },
	{ "config", required_argument, NULL, OPT_CONFIG },
	{ "data", required_argument, NULL, OPT_DATA },
	{ "shuffle", no_argument, NULL, OPT_SHUFFLE },
	{ "save", required_argument, NULL, OPT_SAVE },
	{ "save-every", required_argument, NULL, OPT_EVERY },
	{ "save-format", required_argument, NULL, OPT_FORMAT },
	{ "sync", required_argument, NULL, OPT_SYNC },
	{ "resume", required_argument, NULL, OPT_RESUME },
	{ "steps", required_argument, NULL, OPT_STEPS },
	{ "stop-at", required_argument, NULL, OPT_STOP_AT },
	{ "seed", required_argument, NULL, OPT_SEED },
	{ "seq", required_argument, NULL, OPT_SEQ },
	{ "threads", required_argument, NULL, OPT_THREADS },
	{ "timeout", required_argument, NULL, OPT_TIMEOUT },
	{ "micro-batch", required_argument, NULL, OPT_MICRO },
	{ "accumulation", required_argument, NULL, OPT_ACC },
	{ "lr", required_argument, NULL, OPT_LR },
	{ "random", no_argument, NULL, OPT_RANDOM },
	{ "recompute", no_argument, NULL, OPT_RECOMPUTE },
	{ "counters", no_argument, NULL, OPT_COUNTERS },
	{ "exact", no_argument, NULL, OPT_EXACT },
	{ "quiet", no_argument, NULL, 'q' },
	{ "help", no_argument, NULL, OPT_HELP },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: ztrain --model DIR|config.json [options]\n"
	"       mpirun -n N ztrain ...\n"
	"\n"
	"Trains Llama 3, Qwen2.5 and Qwen3 with ZeRO 0 to 3 on CPU ranks.\n"
	"\n"
	"  --model PATH         a Hugging Face folder: config.json, and weights to begin with\n"
	"  --data FILE          rows of tokens: .bin .u16 .u32 .jsonl .safetensors; without it\n"
	"                       tokens are made up\n"
	"  --shuffle            another order in each epoch, from the seed\n"
	"  --random             begin with random weights\n"
	"  --config FILE        a DeepSpeed JSON, or accelerate's YAML, as it is\n"
	"  --micro-batch N      rows of a rank at once, where the file does not say\n"
	"  --accumulation N     micro-batches of a step, likewise\n"
	"  --lr RATE            likewise\n"
	"  --steps N            of the whole run (100)\n"
	"  --stop-at N          end this part of it after step N, saved\n"
	"  --seq N              tokens of a row (64; of JSON lines and safetensors the longest)\n"
	"  --seed N             of random weights and tokens (1)\n"
	"  --recompute          keep a layer's input only, compute it again on the way back\n"
	"  --threads N          of each rank (1)\n"
	"  --save DIR           save there at the end, and on SIGTERM\n"
	"  --save-every N       and every N steps\n"
	"  --save-format F      native (default), deepspeed, universal\n"
	"  --sync data|full|none\n"
	"  --resume auto|DIR    go on from the newest whole step of --save, or of DIR\n"
	"  --timeout SECONDS    for a rank that is not heard from (300)\n"
	"  --counters           bytes that were sent and memory, at the end\n"
	"  --exact              print losses so that they read back to the bit\n"
	"  -q, --quiet          no screen of the configuration, no line a step\n";

static bool number(const char *text, int64_t least, int64_t most, int64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoll(text, &end, 10);
	return !errno && end != text && !*end && *out >= least && *out <= most;
}

static int wrong(const char *option, const char *text, const char *what)
{
	fprintf(stderr, "ztrain: --%s %s: %s\n", option, text, what);
	return 2;
}

static int whole(const char *option, const char *text, int64_t least, int64_t most, int64_t *out)
{
	char what[80];

	if (number(text, least, most, out))
		return 0;
	snprintf(what, sizeof(what), "a whole number from %lld to %lld is wanted",
		 (long long)least, (long long)most);
	return wrong(option, text, what);
}

static int one_of(const char *option, const char *text, const char *const *name, int *out)
{
	for (*out = 0; name[*out]; ++*out)
		if (!strcmp(name[*out], text))
			return 0;
	return wrong(option, text, "see ztrain --help for what it can be");
}

static int take_words(int c, const char *name, struct zt_args *a)
{
	static const char *const formats[] = { "deepspeed", "universal", "native", NULL };
	static const char *const syncs[] = { "data", "full", "none", NULL };
	int n = 0, rc = 0;

	switch (c) {
	case OPT_MODEL:
		a->model = optarg;
		break;
	case OPT_CONFIG:
		a->config = optarg;
		break;
	case OPT_DATA:
		a->data = optarg;
		break;
	case OPT_SAVE:
		a->save = optarg;
		break;
	case OPT_RESUME:
		a->resume = optarg;
		break;
	case OPT_FORMAT:
		rc = one_of(name, optarg, formats, &a->save_to);
		break;
	case OPT_SYNC:
		rc = one_of(name, optarg, syncs, &n);
		a->sync = (enum ckpt_sync)n;
		break;
	case OPT_LR:
		a->lr = strtod(optarg, NULL);
		rc = a->lr >= 0 ? 0 : wrong(name, optarg, "a rate of 0 or more is wanted");
		break;
	default:
		rc = -1;
	}
	return rc;
}

static int take_number(int c, const char *name, struct zt_args *a)
{
	int64_t n = 0;
	int rc;

	switch (c) {
	case OPT_STEPS:
		return whole(name, optarg, 0, INT64_MAX / 2, &a->steps);
	case OPT_STOP_AT:
		return whole(name, optarg, 1, INT64_MAX / 2, &a->stop_at);
	case OPT_EVERY:
		return whole(name, optarg, 1, INT64_MAX / 2, &a->save_every);
	case OPT_SEED:
		rc = whole(name, optarg, 0, INT64_MAX, &n);
		a->seed = (uint64_t)n;
		return rc;
	case OPT_MICRO:
		rc = whole(name, optarg, 1, 1 << 20, &n);
		a->micro_batch = (uint64_t)n;
		return rc;
	case OPT_ACC:
		rc = whole(name, optarg, 1, 1 << 20, &n);
		a->accumulation = (uint64_t)n;
		return rc;
	case OPT_SEQ:
		rc = whole(name, optarg, 2, 1 << 20, &n);
		a->seq = (uint32_t)n;
		return rc;
	case OPT_THREADS:
		rc = whole(name, optarg, 1, 256, &n);
		a->threads = (uint32_t)n;
		return rc;
	case OPT_TIMEOUT:
		rc = whole(name, optarg, 1, 1000000, &n);
		a->timeout_s = (uint32_t)n;
		return rc;
	default:
		return -1;
	}
}

static int take_flag(int c, struct zt_args *a)
{
	switch (c) {
	case OPT_RANDOM:
		a->random = true;
		break;
	case OPT_SHUFFLE:
		a->shuffle = true;
		break;
	case OPT_RECOMPUTE:
		a->recompute = true;
		break;
	case OPT_COUNTERS:
		a->counters = true;
		break;
	case OPT_EXACT:
		a->exact = true;
		break;
	case 'q':
		a->quiet = true;
		break;
	case OPT_HELP:
		fputs(help, stdout);
		return 1;
	case OPT_VERSION:
		printf("ztrain %s%s\n", ckpt_version(),
		       en_comm_mpi_is_built() ? ", with MPI" : "");
		return 1;
	default:
		return 2;	/* getopt has said why */
	}
	return 0;
}

int zt_args_parse(int argc, char **argv, struct zt_args *a)
{
	int c, at = 0, rc = 0;

	*a = (struct zt_args){
		.save_to = CKPT_TO_NATIVE, .steps = 100, .seed = 1, .seq = 0, .threads = 1,
		.timeout_s = 300, .lr = NAN,
	};
	while (!rc && (c = getopt_long(argc, argv, "q", options, &at)) != -1) {
		rc = take_words(c, options[at].name, a);
		if (rc < 0)
			rc = take_number(c, options[at].name, a);
		if (rc < 0)
			rc = take_flag(c, a);
	}
	if (rc)
		return rc;
	if (optind < argc || !a->model) {
		fprintf(stderr, "ztrain: %s%s (see ztrain --help)\n",
			optind < argc ? "what is this: " : "--model says what is to be trained",
			optind < argc ? argv[optind] : "");
		return 2;
	}
	if (!a->seq && (!a->data || strstr(a->data, ".bin") || strstr(a->data, ".u")))
		a->seq = 64;
	if (a->resume && !strcmp(a->resume, "auto") && !a->save) {
		fprintf(stderr, "ztrain: --resume auto looks in the folder of --save, which is not "
			"given\n");
		return 2;
	}
	return 0;
}
