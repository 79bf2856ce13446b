/*
 * test_flips.c -- one bit of a saved step flips; then every verb that reads it either refuses it or
 * gives what the whole step gives.  A model's files that lie in it are found to be changed.
 *
 * If this fails, damage that a checksum tells of is taken: a converted or resharded step has the
 * wrong values, perhaps with a new sum that fits them, or a run resumes from them.
 *
 * usage: test_flips [FLIPS]	(of each form; default 12)
 * Environment: ZCKPT_SEED, ZCKPT_LONG (2000 flips of each form).
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/fs/t_files.h"
#include "tests/lib/mutate/t_flip.h"
#include "tests/lib/ops/t_save.h"

#define STEP "s"
#define CONFIG "config.json"
#define TOKENIZER "tokenizer.json"

static const struct ckpt_run_opts run = {
	.size = sizeof(run), .threads = 2, .sync = CKPT_SYNC_NONE,
};

struct form {
	const char *name;
	int to, stage;
	struct t_trainer t;
};

static const struct form forms[] = {
	{ "native", CKPT_TO_NATIVE, 2, { .nranks = 3, .size = 40000 } },
	{ "native, cut anywhere", CKPT_TO_NATIVE, 3,
	  { .nranks = 3, .size = 9001, .own = true, .held = T_HELD_EVEN } },
	{ "native, weights follow", CKPT_TO_NATIVE, 1,
	  { .nranks = 2, .own = true, .held = T_HELD_BLOCKS, .derived = true } },
	{ "stage 2", CKPT_TO_DEEPSPEED, 2, { .nranks = 3, .size = 9001 } },
	{ "stage 3", CKPT_TO_DEEPSPEED, 3, { .nranks = 2, .size = 40000, .derived = true } },
};

enum verb {
	CONVERT,
	CONVERT_PARTS,
	RESHARD,
	RESHARD_PARTS,
	NATIVE,
	SLIM,
	PACK,
	DIGEST,
	DIFF,
	CAT,
	LOAD,
	VERBS,
};

static const char *const verb_name[VERBS] = {
	"convert", "convert in parts", "reshard", "reshard in parts", "reshard --to native", "slim",
	"pack", "digest", "diff", "cat", "load by three ranks",
};

struct scene {
	const struct form *form;
	char *dir, *root, *whole, *out;
	struct t_files files;		/* of the step */
	size_t nstates;
	bool along;			/* the flip is in a file of the model that lies in it */
	/* Of what a verb makes of the whole step; [1]: files of tensors alone. */
	uint64_t hash[2][VERBS];
	uint64_t random;
	long flips, refused[VERBS], same[VERBS];
	int failed;
};

static int open_step(const char *root, struct ckpt **ck, struct ckpt_err *err)
{
	const struct ckpt_open_opts o = { .size = sizeof(o), .tag = STEP, .threads = 1 };

	return ckpt_open(&root, 1, &o, ck, err);
}

/* ---------------------------------------------------------------- the verbs */

static int convert(struct ckpt *ck, const char *dst, uint32_t part, uint32_t nparts,
		   struct ckpt_err *err)
{
	const char *const all[] = { "all", NULL };
	const struct ckpt_convert_opts o = {
		.size = sizeof(o), .run = &run, .states = all, .part = part, .nparts = nparts,
	};

	return ckpt_convert(ck, dst, &o, NULL, err);
}

static int reshard(struct ckpt *ck, const char *dst, int to, uint32_t part, uint32_t nparts,
		   struct ckpt_err *err)
{
	const struct ckpt_reshard_opts o = {
		.size = sizeof(o), .run = &run, .world = 5, .stage = to ? -1 : 3, .to = to,
		.round_robin = -1, .tag = STEP, .part = part, .nparts = nparts,
	};

	return ckpt_reshard(ck, dst, &o, NULL, err);
}

static int in_parts(struct ckpt *ck, enum verb verb, const char *dst,
		    struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t part = 0; !rc && part < 3; part++)
		rc = verb == CONVERT_PARTS ? convert(ck, dst, part, 3, err) :
		     reshard(ck, dst, CKPT_TO_DEEPSPEED, part, 3, err);
	return rc ? rc : ckpt_commit(dst, 0, CKPT_SYNC_NONE, err);
}

static int take(void *arg, const void *p, size_t n, struct ckpt_err *err)
{
	uint64_t *h = arg;

	(void)err;
	*h = XXH3_64bits_withSeed(p, n, *h);
	return 0;
}

/* '*n': how many states there are. */
static int cat(struct ckpt *ck, uint64_t *hash, size_t *n, struct ckpt_err *err)
{
	struct ckpt_tensor_info t;
	struct ckpt_state_info st;
	int rc = 0;

	*n = 0;

	for (uint64_t i = 0; !rc && !ckpt_tensor_get(ck, i, &t, NULL); i++)
		for (uint32_t k = 0; !rc && !ckpt_state_get(ck, i, k, &st, NULL); k++) {
			const struct ckpt_cat_opts o = {
				.size = sizeof(o), .run = &run, .state = st.name,
				.form = CKPT_CAT_RAW,
			};
			const uint64_t before = *hash;

			++*n;

			rc = ckpt_cat(ck, i, &o, take, hash, NULL, err);
			if (rc && before != *hash) {
				printf("cat of %s gave bytes before it failed\n", t.name);
				exit(1);
			}
		}
	return rc;
}

static int diff(const struct scene *s, struct ckpt *ck, uint64_t *hash, struct ckpt_err *err)
{
	const struct ckpt_diff_opts o = { .size = sizeof(o), .run = &run };
	struct ckpt_diff_result r = { 0 };
	struct ckpt *whole = NULL;
	int rc = open_step(s->whole, &whole, err);

	if (!rc)
		rc = ckpt_diff(whole, ck, &o, &r, err);
	*hash = r.ndiffering;
	ckpt_diff_free(&r);
	ckpt_close(whole);
	return rc;
}

/* Elements [numel r / 3, numel (r + 1) / 3) of every state, in two calls. */
static int load_rank(struct ckpt *ck, uint32_t r, uint64_t *hash, struct ckpt_err *err)
{
	struct ckpt_load_checks *checks = NULL;
	struct ckpt_load_opts o = { .size = sizeof(o), .run = &run };
	struct ckpt_load_range *range = NULL;
	struct ckpt_tensor_info t;
	struct ckpt_state_info st;
	size_t n = 0, at = 0;
	uint8_t *mem = t_alloc(4 << 20);
	int rc = ckpt_load_checks_new(ck, &checks, err);

	o.checks = checks;
	for (uint64_t i = 0; !rc && !ckpt_tensor_get(ck, i, &t, NULL); i++)
		for (uint32_t k = 0; !ckpt_state_get(ck, i, k, &st, NULL); k++) {
			const uint64_t first = t.numel * r / 3;

			range = t_grow(range, (n + 1) * sizeof(*range));
			range[n] = (struct ckpt_load_range){
				.tensor = i, .state = st.name, .first = first,
				.count = t.numel * (r + 1) / 3 - first, .dst = mem + at,
			};
			at += range[n++].count * ckpt_dtype_bits(st.dtype) / 8;
			if (at > 4 << 20)
				t_die("a rank takes more memory");
		}
	if (!rc)
		rc = ckpt_load(ck, range, n / 2, &o, NULL, err);
	if (!rc)
		rc = ckpt_load(ck, range + n / 2, n - n / 2, &o, NULL, err);
	if (!rc)
		rc = ckpt_load_checks_end(checks, &run, NULL, err);
	if (!rc)
		*hash = XXH3_64bits_withSeed(mem, at, *hash);
	ckpt_load_checks_free(checks);
	free(range);
	free(mem);
	return rc;
}

static int work(const struct scene *s, enum verb verb, uint64_t *hash, struct ckpt_err *err)
{
	const struct ckpt_slim_opts slim = { .size = sizeof(slim), .run = &run };
	const struct ckpt_pack_opts pack = { .size = sizeof(pack), .run = &run, .level = 1 };
	char *dst = t_fmt("%s/%s", s->out, verb == PACK ? "o.tar.zst" : "o");
	struct ckpt *ck = NULL;
	size_t n = 0;
	int rc;

	t_dir_remove(s->out);
	t_dir_make(s->out);
	*hash = 1;
	rc = open_step(s->root, &ck, err);
	if (!rc && verb == CONVERT)
		rc = convert(ck, dst, 0, 0, err);
	else if (!rc && verb == RESHARD)
		rc = reshard(ck, dst, CKPT_TO_DEEPSPEED, 0, 0, err);
	else if (!rc && (verb == CONVERT_PARTS || verb == RESHARD_PARTS))
		rc = in_parts(ck, verb, dst, err);
	else if (!rc && verb == NATIVE)
		rc = reshard(ck, dst, CKPT_TO_NATIVE, 0, 0, err);
	else if (!rc && verb == SLIM)
		rc = ckpt_slim(ck, dst, &slim, NULL, err);
	else if (!rc && verb == PACK)
		rc = ckpt_pack(ck, dst, &pack, NULL, err);
	else if (!rc && verb == DIGEST)
		rc = t_flip_digest(s->root, &run, hash, err);
	else if (!rc && verb == DIFF)
		rc = diff(s, ck, hash, err);
	else if (!rc && verb == CAT)
		rc = cat(ck, hash, &n, err);
	if (!rc && verb == CAT && s->nstates && n < s->nstates)
		rc = -CKPT_E_INCOMPLETE;	/* of a file that is not opened */
	for (uint32_t r = 0; !rc && verb == LOAD && r < 3; r++)
		rc = load_rank(ck, r, hash, err);
	ckpt_close(ck);
	if (!rc && (verb == NATIVE || verb == SLIM || verb == PACK)) {
		struct ckpt_err inner = { 0 };

		if (t_flip_digest(dst, &run, hash, &inner))	/* made of damage */
			*hash = 0;
	} else if (!rc && verb <= RESHARD_PARTS) {
		*hash = t_flip_folder(s->out, s->along);
	} else if (rc && verb <= PACK && t_exists(dst)) {
		printf("%s failed and left %s\n", verb_name[verb], dst);
		exit(1);
	}
	free(dst);
	return rc;
}

/* Who wants no reason gives no place for one. */
static void open_unheard(const struct scene *s)
{
	struct ckpt *ck = NULL;

	if (!open_step(s->root, &ck, NULL))
		ckpt_close(ck);
}

/* ---------------------------------------------------------------- one flip */

static void say(struct scene *s, const struct t_flip *flip, const char *id, const char *what)
{
	printf("%s: bit %d of byte %zu of %s (verify --full: %s): %s\n", s->form->name, flip->bit,
	       flip->at, flip->f->name, *id ? id : "nothing", what);
	s->failed++;
}

static void judge(struct scene *s, const struct t_flip *flip)
{
	const bool native = s->form->to == CKPT_TO_NATIVE;
	const bool values = strstr(flip->f->name, ".pt") != NULL;
	const enum ckpt_severity least = s->along ? CKPT_WARN : CKPT_ERROR;
	char id[64], what[200];

	open_unheard(s);
	if (t_flip_found(s->root, STEP, &run, id, sizeof(id)) < least)
		*id = 0;
	if (native && s->along && strcmp(id, "BESIDE_CHANGED"))
		say(s, flip, id, "it is not found to be changed");
	if (native && !values && !*id)
		say(s, flip, id, "it is not found");
	for (int v = 0; v < VERBS; v++) {
		struct ckpt_err err = { 0 };
		uint64_t hash = 0;
		const int rc = work(s, (enum verb)v, &hash, &err);
		const bool summed = !values ? !s->along : !strcmp(id, "CRC_WRONG");

		*what = 0;
		if (!rc && hash != s->hash[s->along][v])
			snprintf(what, sizeof(what), "%s gives another result", verb_name[v]);
		else if (!rc && summed && (v == PACK || (native && values)))
			snprintf(what, sizeof(what), "%s takes it", verb_name[v]);
		if (*what)
			say(s, flip, id, what);
		s->refused[v] += rc != 0;
		s->same[v] += !rc;
	}
}

static void flip_one(struct scene *s)
{
	struct t_flip flip;
	char *path;

	if (!t_flip_draw(&s->files, &s->random, &flip))
		return;
	path = t_fmt("%s/%s/%s", s->root, STEP, flip.f->name);
	s->along = !strcmp(flip.f->name, CONFIG) || !strcmp(flip.f->name, TOKENIZER);
	t_flip_put(&flip, path);
	judge(s, &flip);
	t_flip_put(&flip, path);
	free(path);
	s->flips++;
}

/* ---------------------------------------------------------------- all of them */

static size_t count_states(const struct scene *s)
{
	struct ckpt_err err = { 0 };
	struct ckpt *ck = NULL;
	uint64_t hash = 0;
	size_t n = 0;

	if (open_step(s->root, &ck, &err) || cat(ck, &hash, &n, &err))
		t_die("%s: %s", err.where, err.msg);
	ckpt_close(ck);
	return n;
}

/* The model's folder has a tokenizer of two blocks of a sum, and part of a third. */
static void save(const struct scene *s, const struct t_trainer *t)
{
	struct ckpt_save_step *step = t_save_step(t, STEP, s->form->to, s->form->stage, 0);
	char *model = t_fmt("%s/m", s->dir), *path = t_fmt("%s/" TOKENIZER, model);
	struct ckpt_err err = { 0 };
	static char text[9001];

	memset(text, 'x', sizeof(text));
	t_dir_make(model);
	t_file_write(path, text, sizeof(text));
	step->config_json = "{\"model_type\": \"llama\"}";
	step->aux_dir = model;
	if (t_save_all(t, step, &err))
		t_die("%s: %s: %s", s->form->name, err.where, err.msg);
	free(path);
	free(model);
}

static void begin(struct scene *s)
{
	struct t_trainer t = s->form->t;
	struct ckpt_err err = { 0 };
	char *step;

	s->dir = t_dir_new();
	s->root = t_fmt("%s/r", s->dir);
	s->whole = t_fmt("%s/w", s->dir);
	s->out = t_fmt("%s/o", s->dir);
	t.root = s->root;
	t.job = "flips";
	t.threads = 1;
	t.timeout_ms = 5000;
	t.sync = CKPT_SYNC_NONE;
	t.seed = 7;
	t_dir_make(s->root);
	save(s, &t);
	t_dir_copy(s->root, s->whole);
	step = t_fmt("%s/%s", s->root, STEP);
	t_files_read(&s->files, step);
	free(step);
	s->nstates = count_states(s);
	for (int k = 0; k < 2; k++) {
		s->along = k;
		for (int v = 0; v < VERBS; v++)
			if (work(s, (enum verb)v, &s->hash[k][v], &err) ||
			    !s->hash[k][v] != (v == DIFF))
				t_die("%s of a whole step: %s: %s", verb_name[v], err.where,
				      err.msg);
	}
}

static void end(struct scene *s)
{
	printf("%s: %ld flips;", s->form->name, s->flips);
	for (int v = 0; v < VERBS; v++)
		printf(" %s %ld of %ld refused%s", verb_name[v], s->refused[v],
		       s->refused[v] + s->same[v], v + 1 < VERBS ? "," : "\n");
	t_files_free(&s->files);
	t_dir_end(s->dir);
	free(s->root);
	free(s->whole);
	free(s->out);
}

int main(int argc, char **argv)
{
	const long flips = t_flip_count(argc, argv, 12, 2000);
	int failed = 0;

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
