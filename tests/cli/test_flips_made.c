/*
 * test_flips_made.c -- one bit of what a verb wrote flips, for every verb that writes, in every
 * form. Then verify --full finds it, or it changes no value; and every verb that reads it refuses
 * it, or gives what it gives of the whole.
 *
 * If this fails, a user trains or serves a model with a damaged value, and zckpt says that it is
 * whole, or writes the damage again with a sum that fits it.
 *
 * usage: test_flips_made [FLIPS [NAME]]	(of each form; default 4; of forms called so)
 * Environment: ZCKPT_SEED, ZCKPT_LONG (300 flips of each form).
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/fs/t_files.h"
#include "tests/lib/mutate/t_flip.h"
#include "tests/lib/ops/t_load.h"
#include "tests/lib/torture/t_verbs.h"

static const struct ckpt_run_opts run = {
	.size = sizeof(run), .threads = 1, .sync = CKPT_SYNC_NONE,
};

enum reader {
	DIGEST,
	CONVERT,
	RESHARD,
	NATIVE,
	SLIM,
	PACK,
	READERS,
};

static const char *const reader_name[READERS] = {
	"digest", "convert", "reshard", "reshard --to native", "slim", "pack",
};

struct scene {
	const struct t_verb *verb;
	struct t_vscene v;
	char *name, *out;
	struct t_files files;		/* of the result */
	bool reads[READERS];
	uint64_t hash[READERS];		/* of what it makes of the whole result */
	uint64_t random;
	long flips, found, silent, refused[READERS];
	int failed;
};

static int open_it(const char *path, struct ckpt **ck, struct ckpt_err *err)
{
	const struct ckpt_open_opts o = { .size = sizeof(o), .threads = 1 };

	return ckpt_open(&path, 1, &o, ck, err);
}

/* ---------------------------------------------------------------- packs */

static int pack(const struct t_vscene *s, struct ckpt_err *err)
{
	const struct ckpt_pack_opts o = { .size = sizeof(o), .run = &run, .level = 1 };
	struct ckpt *ck = NULL;
	int rc = open_it(s->src, &ck, err);

	if (!rc)
		rc = ckpt_pack(ck, s->dst, &o, NULL, err);
	ckpt_close(ck);
	return rc;
}

static int unpack(const struct t_vscene *s, struct ckpt_err *err)
{
	const struct ckpt_unpack_opts o = { .size = sizeof(o), .run = &run };
	char *path = t_fmt("%s/x.tar.zst", s->dir);
	struct t_vscene there = *s;
	int rc;

	there.dst = path;
	rc = pack(&there, err);
	if (!rc)
		rc = ckpt_unpack(path, s->dst, &o, NULL, err);
	free(path);
	return rc;
}

static const struct t_verb packs[] = {
	{ .verb = "pack", .work = pack, .layout = "z2", .source = "ds0.19.8-z2-bf16-w2-lora",
	  .dst = "x.tar.zst", .what = "a step" },
	{ .verb = "pack", .work = pack, .layout = "nat", .source = "native", .dst = "x.tar.zst",
	  .what = "a native step" },
	{ .verb = "unpack", .work = unpack, .layout = "z3", .source = "ds0.19.8-z3-bf16-w2-lora",
	  .dst = "run", .what = "a step" },
	{ .verb = "unpack", .work = unpack, .layout = "nat", .source = "native", .dst = "run",
	  .what = "a native step" },
};

/* ---------------------------------------------------------------- verbs that read */

static int make(struct ckpt *ck, enum reader r, const char *dst, struct ckpt_err *err)
{
	static const char *const all[] = { "all", NULL };
	const struct ckpt_convert_opts convert = {
		.size = sizeof(convert), .run = &run, .states = all,
	};
	const struct ckpt_reshard_opts reshard = {
		.size = sizeof(reshard), .run = &run, .world = 3, .stage = -1, .round_robin = -1,
		.to = r == NATIVE ? CKPT_TO_NATIVE : CKPT_TO_DEEPSPEED, .tag = "s",
	};
	const struct ckpt_slim_opts slim = { .size = sizeof(slim), .run = &run };
	const struct ckpt_pack_opts pack_opts = {
		.size = sizeof(pack_opts), .run = &run, .level = 1,
	};

	return r == CONVERT ? ckpt_convert(ck, dst, &convert, NULL, err) :
	       r == SLIM ? ckpt_slim(ck, dst, &slim, NULL, err) :
	       r == PACK ? ckpt_pack(ck, dst, &pack_opts, NULL, err) :
			   ckpt_reshard(ck, dst, &reshard, NULL, err);
}

static int work(const struct scene *s, enum reader r, uint64_t *hash, struct ckpt_err *err)
{
	char *dst = t_fmt("%s/%s", s->out, r == PACK ? "o.tar.zst" :
			  r == SLIM && !t_is_dir(s->v.dst) ? "o.pt" : "o");
	struct ckpt *ck = NULL;
	struct ckpt_err inner = { 0 };
	int rc;

	if (r == DIGEST) {
		free(dst);
		return t_flip_digest(s->v.dst, &run, hash, err);
	}
	t_dir_remove(s->out);
	t_dir_make(s->out);
	rc = open_it(s->v.dst, &ck, err);
	if (!rc)
		rc = make(ck, r, dst, err);
	ckpt_close(ck);
	*hash = 0;
	if (rc && t_exists(dst))
		t_die("%s: %s failed and left %s", s->name, reader_name[r], dst);
	if (!rc && (r == CONVERT || r == RESHARD))
		*hash = t_flip_folder(s->out, true);	/* what goes along has no sums */
	else if (!rc && t_flip_digest(dst, &run, hash, &inner))
		*hash = 0;	/* made of damage */
	free(dst);
	return rc;
}

/* ---------------------------------------------------------------- one flip */

static bool is_native(const struct scene *s)
{
	return t_files_next(&s->files, NULL, "manifest.json") != NULL &&
	       t_files_next(&s->files, NULL, "rank-") != NULL;
}

/* Of a native step: in its folder, beside the manifest or below it. */
static bool is_in_step(const struct scene *s, const char *name)
{
	const struct t_file *manifest = t_files_next(&s->files, NULL, "manifest.json");
	const size_t n = strlen(manifest->name) - strlen("manifest.json");

	return !strncmp(name, manifest->name, n);
}

/*
 * Does a sum of this form cover the file?  Then no flip in it may pass.  Archives have CRC-32s of
 * their records alone; what lies above a step's folder is of no step.
 */
static bool is_summed(const struct scene *s, const char *name)
{
	if (t_ends_with(name, ".safetensors") || t_ends_with(name, ".index.json") ||
	    t_ends_with(name, ".tar.zst"))
		return true;
	if (is_native(s))
		return !strcmp(name, "latest") ||
		       (!t_ends_with(name, ".pt") && is_in_step(s, name));
	return t_files_next(&s->files, NULL, "model.safetensors") != NULL ||
	       t_files_next(&s->files, NULL, "model-00001-of-") != NULL;
}

static void say(struct scene *s, const struct t_flip *flip, const char *id, const char *what)
{
	const struct t_file *f = flip->f;

	printf("%s: bit %d of byte %zu of %zu of %s (verify --full: %s): %s\n", s->name, flip->bit,
	       flip->at, f->n, *f->name ? f->name : "the file", *id ? id : "nothing", what);
	s->failed++;
}

static void judge(struct scene *s, const struct t_flip *flip)
{
	const bool summed = is_summed(s, *flip->f->name ? flip->f->name : s->v.dst);
	char id[64], what[200];
	const enum ckpt_severity worst = t_flip_found(s->v.dst, NULL, &run, id, sizeof(id));

	s->found += worst >= CKPT_WARN;
	s->silent += worst < CKPT_WARN;
	if (summed && worst < CKPT_WARN)
		say(s, flip, id, "it is not found");
	for (int r = 0; r < READERS; r++) {
		struct ckpt_err err = { 0 };
		uint64_t hash = 0;
		int rc;

		if (!s->reads[r])
			continue;
		rc = work(s, (enum reader)r, &hash, &err);
		*what = 0;
		if (!rc && hash != s->hash[r])
			snprintf(what, sizeof(what), "%s gives another result", reader_name[r]);
		else if (!rc && summed && worst == CKPT_ERROR)
			snprintf(what, sizeof(what), "%s takes it", reader_name[r]);
		if (*what)
			say(s, flip, id, what);
		s->refused[r] += rc != 0;
	}
}

static void flip_one(struct scene *s)
{
	struct t_flip flip;
	char *path;

	if (!t_flip_draw(&s->files, &s->random, &flip))
		return;
	path = *flip.f->name ? t_fmt("%s/%s", s->v.dst, flip.f->name) : t_fmt("%s", s->v.dst);
	t_flip_put(&flip, path);
	judge(s, &flip);
	t_flip_put(&flip, path);
	free(path);
	s->flips++;
}

/* ---------------------------------------------------------------- all of them */

static void read_result(struct scene *s)
{
	if (t_is_dir(s->v.dst)) {
		t_files_read(&s->files, s->v.dst);
		return;
	}
	s->files.f = t_alloc(sizeof(*s->files.f));
	s->files.n = 1;
	s->files.f[0] = (struct t_file){ .name = t_fmt("%s", "") };
	s->files.f[0].p = t_file_read(s->v.dst, &s->files.f[0].n);
}

static void put(const char *dir, const char *name, const char *text)
{
	char *path = t_fmt("%s/%s", dir, name);

	t_file_write(path, text, strlen(text));
	free(path);
}

/* What goes along in the folder of a step: a small file, none, and one of several blocks. */
static void put_along(const char *step)
{
	static char text[9001];

	memset(text, 'x', sizeof(text) - 1);
	put(step, "config.json", "{\"model_type\": \"llama\"}");
	put(step, "merges.txt", "");
	put(step, "tokenizer.json", text);
	t_dir_make_in(step, "notes");
	put(step, "notes/today.txt", "it learns");
}

/* The source's manifest has sums of them, if it is native. */
static void add_along(const struct scene *s)
{
	char *latest = t_fmt("%s/latest", s->v.src), *step, *old, *tag;
	size_t n;

	if (t_exists(latest)) {
		tag = (char *)t_file_read(latest, &n);
		step = t_fmt("%s/%.*s", s->v.src, (int)n, tag);
		put_along(step);
		if (!strcmp(s->verb->source, "native")) {
			old = t_fmt("%s-without", s->v.src);
			t_dir_copy(s->v.src, old);
			t_dir_remove(s->v.src);
			t_load_reshard(old, s->v.src, CKPT_TO_NATIVE, 0);
			t_dir_remove(old);
			free(old);
		}
		free(step);
		free(tag);
	}
	free(latest);
}

/* Is it something that is opened as it is? */
static bool begin(struct scene *s, const struct t_verb *verb, size_t number)
{
	struct ckpt_err err = { 0 };
	char id[64];
	bool any = false;

	*s = (struct scene){ .verb = verb, .random = t_flip_seed(number) };
	s->name = t_fmt("%s, %s, %s", verb->verb, verb->layout, verb->what);
	t_vscene_open(&s->v, verb);
	add_along(s);
	s->out = t_fmt("%s/again", s->v.dir);
	if (verb->work(&s->v, &err))
		t_die("%s: %s: %s", s->name, err.where, err.msg);
	read_result(s);
	for (int r = 0; r < READERS; r++) {
		s->reads[r] = !work(s, (enum reader)r, &s->hash[r], &err) && s->hash[r];
		any = any || s->reads[r];
	}
	if (any && t_flip_found(s->v.dst, NULL, &run, id, sizeof(id)) >= CKPT_WARN)
		t_die("%s: verify --full finds %s in the whole", s->name, id);
	return any;
}

static void end(struct scene *s)
{
	if (s->flips) {
		printf("%-44s %5ld flips, found %5ld, without effect %4ld; refused:", s->name,
		       s->flips, s->found, s->silent);
		for (int r = 0; r < READERS; r++)
			if (s->reads[r])
				printf(" %s %ld%s", reader_name[r], s->refused[r],
				       r + 1 < READERS ? "," : "");
		printf("\n");
	}
	t_files_free(&s->files);
	t_vscene_close(&s->v);
	free(s->name);
	free(s->out);
}

/*
 * Results by themselves, without what was there before. Of a folder with files of several states
 * only the weights are read; tests/unit/test_convert_flips.c looks at each file of it. What
 * sessions save: tests/cli/test_flips.c.
 */
static bool is_wanted(const struct t_verb *v)
{
	static const char *const verbs[] = { "convert", "reshard", "universal", "shard", "slim",
					     "pack", "unpack" };

	if (v->prepare || v->nparts || strstr(v->what, "all states"))
		return false;
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (!strcmp(v->verb, verbs[i]))
			return true;
	return false;
}

static int try(const struct t_verb *v, long flips, const char *only, size_t number)
{
	struct scene s;
	int failed;

	if (!is_wanted(v))
		return 0;
	if (begin(&s, v, number) && strstr(s.name, only))
		while (s.flips < flips)
			flip_one(&s);
	failed = s.failed;
	end(&s);
	return failed;
}

int main(int argc, char **argv)
{
	const long flips = t_flip_count(argc, argv, 4, 300);
	const char *only = argc > 2 ? argv[2] : "";
	int failed = 0;

	t_dir_in_memory();
	for (unsigned i = 0; i < t_nverbs; i++)
		failed += try(&t_verbs[i], flips, only, i);
	for (size_t i = 0; ckpt_has_packs() && i < sizeof(packs) / sizeof(packs[0]); i++)
		failed += try(&packs[i], flips, only, t_nverbs + i);
	return failed ? 1 : 0;
}
