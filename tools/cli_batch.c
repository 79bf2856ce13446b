/* cli_batch.c -- see cli_batch.h. */
#include "cli_batch.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STATE_BYTES (64L << 20)	/* of a trainer's state, which has its log in it */

/* A count that a fact gives; -1 if it is none ("auto", or not there). */
static int64_t fact_number(const struct ckpt *ck, const char *wanted)
{
	const char *key, *value;

	for (uint64_t i = 0; !ckpt_fact_get(ck, i, &key, &value, NULL); i++) {
		char *end;
		long long n;

		if (strcmp(key, wanted))
			continue;
		n = strtoll(value, &end, 10);
		return *value && !*end && n >= 0 ? n : -1;
	}
	return -1;
}

static uint64_t given(const struct ckpt *ck, const char *key)
{
	const int64_t n = fact_number(ck, key);

	return n > 0 ? (uint64_t)n : 0;
}

static char *read_text(const char *path)
{
	FILE *f = fopen(path, "rb");
	char *text = NULL;
	long n;

	if (f && !fseek(f, 0, SEEK_END) && (n = ftell(f)) >= 0 && n < MAX_STATE_BYTES &&
	    !fseek(f, 0, SEEK_SET)) {
		text = malloc((size_t)n + 1);
		if (text)
			text[fread(text, 1, (size_t)n, f)] = 0;
	}
	if (f)
		fclose(f);
	return text;
}

/* Python writes NaN and Infinity, which are no JSON; a log of losses may have them. */
static void mend_numbers(char *text)
{
	static const char *const words[] = { "NaN", "Infinity" };
	int in_string = 0;

	for (char *p = text; *p; p++) {
		if (*p == '"')
			in_string = !in_string;
		else if (in_string && *p == '\\' && p[1])
			p++;
		for (size_t i = 0; !in_string && i < 2; i++)
			if (!strncmp(p, words[i], strlen(words[i]))) {
				memset(p, ' ', strlen(words[i]));
				*p = '0';
			}
	}
}

/* trainer_state.json of transformers, in the folder above the step. */
static void read_trainer(struct batch *b, const char *step)
{
	static const char name[] = "trainer_state.json";
	const char *slash = strrchr(step, '/');
	const size_t n = slash ? (size_t)(slash - step) + 1 : 0;
	char *path = malloc(n + sizeof(name)), *text;
	cJSON *root, *at;

	if (!path)
		return;
	memcpy(path, step, n);
	memcpy(path + n, name, sizeof(name));
	text = read_text(path);
	if (text)
		mend_numbers(text);
	root = text ? cJSON_Parse(text) : NULL;
	at = cJSON_GetObjectItemCaseSensitive(root, "global_step");
	if (cJSON_IsNumber(at) && at->valuedouble >= 0 && at->valuedouble < 1e15) {
		b->trainer = 1;
		b->trainer_step = (int64_t)at->valuedouble;
		at = cJSON_GetObjectItemCaseSensitive(root, "epoch");
		b->epoch = cJSON_IsNumber(at) ? at->valuedouble : -1;
	}
	cJSON_Delete(root);
	free(text);
	free(path);
}

/* Without a configuration the counters still tell the batch. */
static uint64_t batch_by_counters(const struct batch *b)
{
	return b->steps > 0 && b->samples > 0 && b->samples % b->steps == 0 ?
	       (uint64_t)(b->samples / b->steps) : 0;
}

void batch_read(struct batch *b, const struct ckpt *ck, uint32_t to)
{
	struct ckpt_info info;

	ckpt_info_get(ck, &info);
	*b = (struct batch){
		.from = info.world, .to = to, .kept = -1, .fits = -1,
		.steps = fact_number(ck, "global_steps"),
		.samples = fact_number(ck, "global_samples"),
		.given = {
			.train = given(ck, "train_batch_size"),
			.micro = given(ck, "train_micro_batch_size_per_gpu"),
			.accumulation = given(ck, "gradient_accumulation_steps"),
		},
	};
	read_trainer(b, info.path);
	b->now = b->given;
	if (!b->now.train && !b->now.micro)
		b->now.train = batch_by_counters(b);
	b->known = !ckpt_zero_batch_fill(&b->now, b->from);
	if (!b->known)
		return;
	b->kept = ckpt_zero_batch_keep(&b->now, to, &b->then);
	b->unchanged = b->given;
	b->fits = ckpt_zero_batch_fill(&b->unchanged, to);
}

static const char *ranks(uint32_t n)
{
	return n == 1 ? "rank" : "ranks";
}

static void say_then(const struct batch *b)
{
	const struct ckpt_zero_batch *t = &b->then;

	if (b->kept < 0)
		return;
	if (!b->kept)
		cli_say("  to keep that batch on %" PRIu32 " %s, set:", b->to, ranks(b->to));
	else
		cli_say("  %" PRIu32 " ranks cannot keep that batch; for %" PRIu64 " samples, "
			"the nearest, set:", b->to, t->train);
	cli_say("    \"train_batch_size\": %" PRIu64 ", \"train_micro_batch_size_per_gpu\": %"
		PRIu64 ", \"gradient_accumulation_steps\": %" PRIu64, t->train, t->micro,
		t->accumulation);
	if (b->trainer)
		cli_say("    or, where these are \"auto\": --per_device_train_batch_size %" PRIu64
			" --gradient_accumulation_steps %" PRIu64, t->micro, t->accumulation);
}

static void say_batch(const struct batch *b)
{
	cli_say("batch: %" PRIu64 " sample%s per step = micro-batch %" PRIu64 " x accumulation %"
		PRIu64 " x %" PRIu32 " %s", b->now.train, out_plural(b->now.train),
		b->now.micro, b->now.accumulation, b->from, ranks(b->from));
	if (!b->fits && b->unchanged.train == b->now.train) {
		cli_say("  the configuration of the run keeps that batch on %" PRIu32 " %s: "
			"micro-batch %" PRIu64 " x accumulation %" PRIu64,
			b->to, ranks(b->to), b->unchanged.micro,
			b->unchanged.accumulation);
		return;
	}
	say_then(b);
	if (b->fits > 0)
		cli_say("  with the old configuration DeepSpeed stops: %" PRIu64 " is not %"
			PRIu64 " x %" PRIu64 " x %" PRIu32, b->unchanged.train, b->unchanged.micro,
			b->unchanged.accumulation, b->to);
	else if (!b->fits)
		cli_say("  with the old configuration it is %" PRIu64 " sample%s per step",
			b->unchanged.train, out_plural(b->unchanged.train));
}

static void say_data(const struct batch *b)
{
	if (b->samples >= 0 && b->steps > 0)
		cli_say("data: %" PRId64 " sample%s %s used in %" PRId64 " step%s; your program "
			"must skip them when it resumes",
			b->samples, out_plural((uint64_t)b->samples),
			b->samples == 1 ? "was" : "were", b->steps,
			out_plural((uint64_t)b->steps));
	if (!b->trainer)
		return;
	if (b->epoch >= 0)
		cli_say("  trainer_state.json: step %" PRId64 ", epoch %g; the Trainer skips steps "
			"times accumulation batches on each rank,", b->trainer_step, b->epoch);
	else
		cli_say("  trainer_state.json: step %" PRId64 "; the Trainer skips steps times "
			"accumulation batches on each rank,", b->trainer_step);
	cli_say("  which are the samples that were used only if the batch stays the same");
}

void batch_say(const struct batch *b)
{
	if (b->from == b->to)
		return;
	if (b->known)
		say_batch(b);
	say_data(b);
}

static void put_sizes(struct json *json, const char *key, const struct ckpt_zero_batch *b)
{
	json_open(json, key, '{');
	json_uint(json, "train_batch_size", b->train);
	json_uint(json, "train_micro_batch_size_per_gpu", b->micro);
	json_uint(json, "gradient_accumulation_steps", b->accumulation);
	json_close(json, '}');
}

void batch_json(const struct batch *b, struct json *json)
{
	if (b->known) {
		put_sizes(json, "batch", &b->now);
		if (b->kept >= 0) {
			json_bool(json, "batch_kept", !b->kept);
			put_sizes(json, "batch_at_world", &b->then);
		}
		json_bool(json, "config_fits", !b->fits && b->unchanged.train == b->now.train);
	}
	json_open(json, "data", '{');
	json_known(json, "steps", b->steps);
	json_known(json, "samples", b->samples);
	json_known(json, "trainer_step", b->trainer ? b->trainer_step : -1);
	json_close(json, '}');
}
