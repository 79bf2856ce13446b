/*
 * test_resume_flips.c -- one bit of the newest step of a run flips; then the run is resumed, as
 * `ztrain --resume` does it, and trains on.
 *
 * If this fails, a run resumes from damaged values, or from others than its step has, and does not
 * say so.  The damage is found if the run names it: it begins at the older step, which is whole,
 * and says that it passed over the newest, and why; or it is refused with a reason.  Of bits that
 * no reader needs (padding between members of an archive, values of other readers) the run may
 * begin at the newest step: the state that it saves one step later then has the bits of the run
 * whose step was not damaged.  A native step has no such bits but in the archives of its values.
 * Half of the runs save into another folder, half into the one that they resume from.
 *
 * usage: test_resume_flips [FLIPS]	(of each form; default 20)
 * Environment: ZCKPT_SEED, ZCKPT_LONG (1500 flips of each form).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/config/en_config.h"
#include "engine/run/en_run.h"
#include "tests/engine/te_ranks.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/fs/t_files.h"
#include "tests/lib/mutate/t_flip.h"
#include "tests/lib/ops/t_step.h"

#define TOKENS 5u
#define VOCAB 23
#define STEPS 4		/* of the run */
#define SAVED 3		/* the newest step; the one before it is there, too */

static const char model_text[] =
	"{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
	"\"hidden_act\": \"silu\", \"hidden_size\": 8, \"intermediate_size\": 12, "
	"\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
	"\"vocab_size\": 23, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, "
	"\"initializer_range\": 0.2, \"tie_word_embeddings\": false}";

struct form {
	const char *name;
	int to;
	uint32_t stage, world, again;	/* ranks that save, that resume */
	const char *precision;
};

static const struct form forms[] = {
	{ "native, 1 rank", CKPT_TO_NATIVE, 0, 1, 1, "" },
	{ "native, 2 ranks, bf16", CKPT_TO_NATIVE, 2, 2, 2, "\"bf16\": {\"enabled\": true}, " },
	{ "native, 3 ranks", CKPT_TO_NATIVE, 3, 3, 3, "" },
	{ "deepspeed stage 1, 2 ranks, bf16", CKPT_TO_DEEPSPEED, 1, 2, 2,
	  "\"bf16\": {\"enabled\": true}, " },
	{ "deepspeed stage 2, 3 ranks", CKPT_TO_DEEPSPEED, 2, 3, 3, "" },
	{ "deepspeed stage 3, 2 ranks, bf16", CKPT_TO_DEEPSPEED, 3, 2, 2,
	  "\"bf16\": {\"enabled\": true}, " },
	{ "universal, 2 ranks", CKPT_TO_UNIVERSAL, 2, 2, 2, "" },
	{ "dcp, 1 rank", CKPT_TO_DCP, 0, 1, 1, "" },
	{ "dcp, 3 ranks, bf16", CKPT_TO_DCP, 2, 3, 3, "\"bf16\": {\"enabled\": true}, " },
	{ "trainer, 1 rank", CKPT_TO_TRAINER, 0, 1, 1, "" },
	{ "trainer, 3 ranks, bf16", CKPT_TO_TRAINER, 2, 3, 3, "\"bf16\": {\"enabled\": true}, " },
};

struct scene {
	const struct form *form;
	struct en_model *model;
	char *dir, *root, *out;
	char *newest;			/* folder of the step whose bits flip */
	struct t_files files;		/* of the newest step */
	char whole[2][33];		/* digest of the run without damage; saved to another
					 * folder, to the same */
	uint64_t random;
	long flips, passed_over, refused, harmless, failed;
};

/* One run. */
struct again {
	const struct scene *scene;
	const char *from, *save;
	int64_t stop_at;
	struct en_config config;
	struct en_find_opts find;
	struct en_found found[4];	/* by rank */
	int64_t began;			/* after so many steps; by rank 0 */
	struct en_step_report reported;	/* the last one */
};

/* What rank 0 said of the run. */
static char said[4000];

static void say(const char *line)
{
	const size_t n = strlen(said);

	snprintf(said + n, sizeof(said) - n, "%s\n", line);
}

static const char *newest(const struct scene *s)
{
	return s->form->to == CKPT_TO_TRAINER ? "checkpoint-3" : "global_step3";
}

/* ---------------------------------------------------------------- data */

static int take_rows(void *arg, uint64_t start, uint64_t unit, int32_t *ids, int32_t *labels,
		     int32_t *starts, struct ckpt_err *err)
{
	(void)arg;
	(void)starts;
	(void)err;
	for (uint64_t i = 0; i < TOKENS; i++) {
		ids[i] = (int32_t)((start * 31 + unit * 7 + i * i * 3 + 1) % VOCAB);
		labels[i] = ids[i];
	}
	return 0;
}

static int put_state(void *arg, uint64_t samples, struct ck_buf *buf, struct ckpt_err *err)
{
	(void)arg;
	return ck_buf_addf(buf, err, "{\"samples\": %" PRIu64 "}", samples);
}

static int take_state(void *arg, const char *state, uint64_t len, uint64_t *samples_out,
		      struct ckpt_err *err)
{
	char text[64] = "";

	(void)arg;
	memcpy(text, state, len < sizeof(text) - 1 ? len : sizeof(text) - 1);
	if (sscanf(text, "{\"samples\": %" SCNu64 "}", samples_out) == 1)
		return 0;
	err->code = CKPT_E_CORRUPT;
	snprintf(err->msg, sizeof(err->msg), "the state of the data is no number: %s", text);
	return -CKPT_E_CORRUPT;
}

/* ---------------------------------------------------------------- runs */

static void read_config(struct again *a, uint32_t world)
{
	const struct en_facts facts = {
		.world = world, .filler = EN_FILL_TRAINER, .steps = STEPS, .lr = 1e-2,
		.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1,
		.has = EN_HAS_STEPS | EN_HAS_LR | EN_HAS_BETAS | EN_HAS_EPS | EN_HAS_WEIGHT_DECAY,
	};
	const struct form *f = a->scene->form;
	char *text = t_fmt("{\"train_micro_batch_size_per_gpu\": 1, %s"
			   "\"zero_optimization\": {\"stage\": %u}, "
			   "\"gradient_clipping\": 1.0}", f->precision, f->stage);
	struct ckpt_err err = { 0 };

	en_config_init(&a->config, EN_DS_0_19);
	if (en_config_parse_deepspeed(&a->config, text, strlen(text), "test", &err) ||
	    en_config_resolve(&a->config, &facts, &err))
		t_die("%s: %s", err.where, err.msg);
	free(text);
}

static int begins(void *arg, const struct en_start_report *begun, struct ckpt_err *err)
{
	struct again *a = arg;

	(void)err;
	if (begun->save_bytes && begun->mem)	/* on all ranks alike */
		__atomic_store_n(&a->began, begun->at.steps, __ATOMIC_RELAXED);
	return 0;
}

static void ends_step(void *arg, const struct en_step_report *step)
{
	struct again *a = arg;

	if (!step->comm->rank)
		a->reported = *step;
}

static int train(struct en_comm *comm, void *arg, struct ckpt_err *err)
{
	struct again *a = arg;
	const struct scene *s = a->scene;
	struct en_run_opts o = {
		.model = s->model, .comm = comm, .set = &a->config.set,
		.version = a->config.version,
		.loader = { a, take_rows, put_state, take_state },
		.scheduler = "linear", .warmup_steps = 1, .tokens = TOKENS, .threads = 1,
		.seed = 3, .steps = STEPS, .stop_at = a->stop_at, .save_root = a->save,
		.job = "flips",
		.save_to = a->from && a->from != a->save ? CKPT_TO_NATIVE : s->form->to,
		.save_every = a->from ? 0 : 1, .save_threads = 1, .sync = CKPT_SYNC_NONE,
		.from = a->from, .on_start = begins, .on_step = ends_step, .callback_arg = a,
	};
	struct en_ran ran;
	int rc = 0;

	if (a->from) {
		rc = en_find_steps(&a->find, comm, &a->found[comm->rank], err);
		o.find = &a->find;
		o.found = &a->found[comm->rank];
	}
	if (!rc)
		rc = en_run(&o, &ran, err);
	en_found_release(&a->found[comm->rank]);
	return rc;
}

/* From 'from' (NULL = the beginning), saved to 'save'; a->began is -1 if it does not begin. */
static int run_to(const struct scene *s, struct again *a, const char *from, const char *save,
		  struct ckpt_err *err)
{
	const uint32_t world = from ? s->form->again : s->form->world;
	uint32_t rank;
	int rc;

	*a = (struct again){
		.scene = s, .from = from, .save = save, .stop_at = from ? STEPS : SAVED,
		.find = { .save = save, .from = from, .newest = from == save,
			  .sync = CKPT_SYNC_NONE, .say = say },
		.began = -1,
	};
	*said = 0;
	read_config(a, world);
	rc = te_ranks_try(world, train, a, &rank, err);
	en_config_release(&a->config);
	return rc;
}

/* Resumed, and what it saved; 'same': into the folder that it resumes from, a copy of 'root'. */
static int resume(const struct scene *s, struct again *a, bool same, char digest[33],
		  struct ckpt_err *err)
{
	int rc;

	t_dir_remove(s->out);
	if (same)
		t_dir_copy(s->root, s->out);
	else
		t_dir_make(s->out);
	rc = run_to(s, a, same ? s->out : s->root, s->out, err);
	if (!rc)
		t_step_digest_at(s->out, NULL, digest);
	return rc;
}

/* ---------------------------------------------------------------- one flip */

/* A line says that the newest step was passed over or left, and why. */
static bool is_said(const struct scene *s)
{
	const char *at = strstr(said, newest(s));
	const char *why = at ? strstr(at, ": ") : NULL;

	return why && strlen(why) > 10;
}

/* NULL = as it should be. */
static const char *judge(struct scene *s, const struct t_file *f, bool same)
{
	const bool archive = strstr(f->name, ".pt") != NULL;
	struct ckpt_err err = { 0 };
	char digest[33] = "";
	struct again a;
	const int rc = resume(s, &a, same, digest, &err);

	if (rc && a.began >= 0)
		return "the run began, and failed later";
	if (rc) {
		s->refused++;
		return *err.msg && *err.where ? NULL : "it is refused without a reason";
	}
	if (strcmp(digest, s->whole[same]))
		return "the resumed run has other bits";
	if (a.reported.at.steps != STEPS)
		return "the resumed run ends at another step";
	if (a.began == SAVED) {
		s->harmless++;
		return s->form->to == CKPT_TO_NATIVE && !archive ? "it is not found" : NULL;
	}
	s->passed_over++;
	return a.began == SAVED - 1 && is_said(s) ? NULL :
	       "the run begins at an older step, and does not say why";
}

static void flip_one(struct scene *s)
{
	struct t_flip flip;
	const char *wrong;
	char *path;

	if (!t_flip_draw(&s->files, &s->random, &flip))
		return;
	path = t_fmt("%s/%s", s->newest, flip.f->name);
	t_flip_put(&flip, path);
	wrong = judge(s, flip.f, s->flips % 2);
	t_flip_put(&flip, path);
	if (wrong) {
		s->failed++;
		printf("%s: bit %d of byte %zu of %s: %s\n%s", s->form->name, flip.bit, flip.at,
		       flip.f->name, wrong, said);
	}
	s->flips++;
	free(path);
}

/* ---------------------------------------------------------------- all of them */

static void begin(struct scene *s)
{
	struct ckpt_err err = { 0 };
	struct en_model_config config;
	struct again a;

	if (en_model_config_parse(model_text, sizeof(model_text) - 1, "model", &config, &err) ||
	    en_model_new(&config, &s->model, &err))
		t_die("%s: %s", err.where, err.msg);
	s->dir = t_dir_new();
	s->root = t_fmt("%s/r", s->dir);
	s->out = t_fmt("%s/o", s->dir);
	s->newest = t_fmt("%s/%s", s->root, newest(s));
	t_dir_make(s->root);
	if (run_to(s, &a, NULL, s->root, &err))
		t_die("%s: %s: %s", s->form->name, err.where, err.msg);
	t_files_read(&s->files, s->newest);
	for (int same = 0; same < 2; same++)
		if (resume(s, &a, same, s->whole[same], &err) || a.began != SAVED || *said)
			t_die("%s: resumed: %s: %s\n%s", s->form->name, err.where, err.msg, said);
}

static void end(struct scene *s)
{
	printf("%-34s %6ld flips: %6ld passed over, %6ld refused, %6ld harmless, %ld failed\n",
	       s->form->name, s->flips, s->passed_over, s->refused, s->harmless, s->failed);
	t_files_free(&s->files);
	en_model_free(s->model);
	t_dir_end(s->dir);
	free(s->root);
	free(s->out);
	free(s->newest);
}

int main(int argc, char **argv)
{
	const long flips = t_flip_count(argc, argv, 20, 1500);
	long failed = 0;

	t_dir_in_memory();
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		struct scene s = { .form = &forms[i], .random = t_flip_seed(i) };

		begin(&s);
		while (s.flips < flips)
			flip_one(&s);
		failed += s.failed;
		end(&s);
	}
	return failed ? 1 : 0;
}
