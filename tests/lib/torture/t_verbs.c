/* See t_verbs.h. */
#include "tests/lib/torture/t_verbs.h"

#include <unistd.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"

#define Z0 "ds0.19.8-z0-fp32-w2"
#define Z1 "ds0.19.8-z1-bf16-w2-lora"
#define Z2 "ds0.19.8-z2-bf16-w2-lora"
#define Z3 "ds0.19.8-z3-bf16-w2-lora"
#define BF "ds0.19.8-z1-bf16-w2-bf16opt"
#define UNI "universal"
#define NATIVE "native"
#define WEIGHTS "weights"
#define DEFLATED "deflated"

#define STEP "global_step3"
#define BF16_OPT 4
#define TO_UNIVERSAL 5
#define TO_NATIVE 6
#define FORCE CKPT_WRITE_FORCE

static int open_path(const char *path, uint32_t threads, struct ckpt **ck, struct ckpt_err *err)
{
	const struct ckpt_open_opts o = { .size = sizeof(o), .threads = threads };

	return ckpt_open(&path, 1, &o, ck, err);
}

static int open_source(const struct t_vscene *s, struct ckpt **ck, struct ckpt_err *err)
{
	return open_path(s->src, s->threads, ck, err);
}

static struct ckpt_run_opts run_opts(const struct t_vscene *s)
{
	return (struct ckpt_run_opts){
		.size = sizeof(struct ckpt_run_opts), .threads = s->threads, .mem_limit = 8 << 20,
	};
}

/* ---------------------------------------------------------------- the verbs */

static int convert_part(const struct t_vscene *s, uint32_t part, uint32_t nparts,
			struct ckpt_err *err)
{
	const struct t_verb *v = s->verb;
	const char *const all[] = { "all", NULL };
	const struct ckpt_run_opts run = run_opts(s);
	const struct ckpt_convert_opts o = {
		.size = sizeof(o), .run = &run, .max_shard_bytes = 4096, .part = part,
		.nparts = nparts, .flags = v->flags,
		.states = strstr(v->what, "states") ? all : NULL,
	};
	struct ckpt_report report = { 0 };
	struct ckpt *ck = NULL;
	int rc = open_source(s, &ck, err);

	if (!rc)
		rc = ckpt_convert(ck, s->dst, &o, &report, err);
	ckpt_report_free(&report);
	ckpt_close(ck);
	return rc;
}

static int convert(const struct t_vscene *s, struct ckpt_err *err)
{
	return convert_part(s, s->verb->part, s->verb->nparts, err);
}

static int reshard_as(const struct t_vscene *s, const char *dst, const char *tag, uint32_t world,
		      uint32_t part, struct ckpt_err *err)
{
	const struct t_verb *v = s->verb;
	const struct ckpt_run_opts run = run_opts(s);
	const struct ckpt_reshard_opts o = {
		.size = sizeof(o), .run = &run, .world = world, .round_robin = -1,
		.stage = v->stage >= TO_UNIVERSAL ? -1 : v->stage, .flags = v->flags,
		.to = v->stage == TO_UNIVERSAL ? CKPT_TO_UNIVERSAL :
		      v->stage == TO_NATIVE ? CKPT_TO_NATIVE : CKPT_TO_DEEPSPEED,
		.tag = tag, .part = part,
		.nparts = v->nparts,
	};
	struct ckpt_report report = { 0 };
	struct ckpt *ck = NULL;
	int rc = open_source(s, &ck, err);

	if (!rc)
		rc = ckpt_reshard(ck, dst, &o, &report, err);
	ckpt_report_free(&report);
	ckpt_close(ck);
	return rc;
}

static int reshard(const struct t_vscene *s, struct ckpt_err *err)
{
	return reshard_as(s, s->dst, NULL, s->verb->world, s->verb->part, err);
}

static int shard(const struct t_vscene *s, struct ckpt_err *err)
{
	const struct t_verb *v = s->verb;
	const struct ckpt_run_opts run = run_opts(s);
	const struct ckpt_shard_opts o = {
		.size = sizeof(o), .run = &run, .world = v->world, .stage = v->stage,
		.round_robin = -1, .flags = v->flags, .order_path = s->order, .dtype = CKPT_BF16,
		.lr = 1e-3, .first_lr = NAN, .weight_decay = NAN, .beta1 = NAN, .beta2 = NAN,
		.eps = NAN,
	};
	struct ckpt_report report = { 0 };
	struct ckpt *ck = NULL;
	int rc = open_source(s, &ck, err);

	if (!rc)
		rc = ckpt_shard(ck, s->dst, &o, &report, err);
	ckpt_report_free(&report);
	ckpt_close(ck);
	return rc;
}

static int slim(const struct t_vscene *s, struct ckpt_err *err)
{
	const struct ckpt_run_opts run = run_opts(s);
	const struct ckpt_slim_opts o = {
		.size = sizeof(o), .run = &run, .flags = s->verb->flags,
		.what = (unsigned)s->verb->stage,
	};
	struct ckpt_slimmed done = { 0 };
	struct ckpt *ck = NULL;
	int rc = open_source(s, &ck, err);

	if (!rc)
		rc = ckpt_slim(ck, s->dst, &o, &done, err);
	ckpt_slimmed_free(&done);
	ckpt_close(ck);
	return rc;
}

static int prune(const struct t_vscene *s, struct ckpt_err *err)
{
	const struct ckpt_run_opts run = run_opts(s);
	const struct ckpt_prune_opts o = {
		.size = sizeof(o), .run = &run, .flags = CKPT_PRUNE_APPLY,
		.keep_last = s->verb->world, .moments_last = s->verb->stage ? 1 : 0,
	};
	struct ckpt_pruned done = { 0 };
	const int rc = ckpt_prune(s->dst, &o, &done, err);

	ckpt_pruned_free(&done);
	return rc;
}

static int commit(const struct t_vscene *s, struct ckpt_err *err)
{
	return ckpt_commit(s->dst, 0, CKPT_SYNC_DATA, err);
}

static int discard(const struct t_vscene *s, struct ckpt_err *err)
{
	return ckpt_discard(s->dst, err);
}

/* All parts and the commit; parts that have ended are found so. */
static int finish_parts(const struct t_vscene *s, struct ckpt_err *err)
{
	const struct t_verb *v = s->verb;
	char *partial = t_fmt("%s.zckpt-partial", s->dst);
	const int begun = t_exists(partial);
	int rc = 0;

	free(partial);
	if (t_exists(s->dst))	/* all was done, or all but the tidying up */
		return begun ? commit(s, err) : 0;
	for (uint32_t part = 0; !rc && part < 2; part++)
		rc = v->stage == -1 ? convert_part(s, part, 2, err) :
		     reshard_as(s, s->dst, NULL, v->world, part, err);
	return rc ? rc : commit(s, err);
}

/* What parts left was given up: nothing is there. */
static int finish_discard(const struct t_vscene *s, struct ckpt_err *err)
{
	struct ckpt_err inner = { 0 };
	const int rc = ckpt_discard(s->dst, &inner);

	if (rc && rc != -CKPT_E_NOTFOUND) {
		*err = inner;
		return rc;
	}
	return 0;
}

static int set_latest(const struct t_vscene *s, struct ckpt_err *err)
{
	return ckpt_latest_set(s->dst, "older", 0, CKPT_SYNC_DATA, err);
}

/* What verifying finds is an answer that the checkpoint is not whole: an error here. */
static int verify(const struct t_vscene *s, struct ckpt_err *err)
{
	const struct ckpt_run_opts run = run_opts(s);
	const struct ckpt_verify_opts o = {
		.size = sizeof(o), .run = &run,
		.flags = CKPT_VERIFY_WRITE_MANIFEST | s->verb->flags,
	};
	struct ckpt_verified v;
	struct ckpt_finding f;
	struct ckpt *ck = NULL;
	int rc = open_path(s->dst, s->threads, &ck, err);

	if (!rc)
		rc = ckpt_verify(ck, &o, &v, err);
	for (uint64_t i = 0; !rc && !ckpt_finding_get(ck, i, &f, NULL); i++) {
		if (f.severity != CKPT_ERROR)
			continue;
		rc = -(int)f.code;
		err->code = f.code;
		strncpy(err->where, f.where, sizeof(err->where) - 1);
		strncpy(err->msg, f.text, sizeof(err->msg) - 1);
	}
	ckpt_close(ck);
	return rc;
}

static int cat(const struct t_vscene *s, struct ckpt_err *err)
{
	const struct ckpt_run_opts run = run_opts(s);
	const struct ckpt_cat_opts o = {
		.size = sizeof(o), .run = &run, .dtype = s->verb->flags ? CKPT_F32 : 0,
		.form = s->verb->flags ? CKPT_CAT_TEXT : CKPT_CAT_NPY,
	};
	struct ckpt *ck = NULL;
	uint64_t tensor;
	int rc = open_source(s, &ck, err);

	if (!rc)
		rc = ckpt_tensor_find(ck, "blocks.0.qkv.base.weight", &tensor, err);
	if (!rc)
		rc = ckpt_cat_file(ck, tensor, &o, s->dst, s->verb->flags, NULL, err);
	ckpt_close(ck);
	return rc;
}

/* Every state into memory, and the count of steps; what came is written by other means. */
static int load(const struct t_vscene *s, struct ckpt_err *err)
{
	const struct ckpt_run_opts run = run_opts(s);
	const struct ckpt_load_opts o = {
		.size = sizeof(o), .run = &run, .flags = CKPT_LOAD_CHECK,
	};
	struct ckpt_load_range *range = NULL;
	struct ckpt_values *values = NULL;
	struct ckpt_tensor_info t;
	struct ckpt_state_info st;
	struct ckpt *ck = NULL;
	size_t n = 0, at = 8;
	int64_t steps = 0;
	uint8_t *mem = t_alloc(1 << 20);
	int rc = open_source(s, &ck, err);

	for (uint64_t i = 0; !rc && !ckpt_tensor_get(ck, i, &t, NULL); i++)
		for (uint32_t k = 0; !ckpt_state_get(ck, i, k, &st, NULL); k++) {
			range = t_grow(range, (n + 1) * sizeof(*range));
			range[n++] = (struct ckpt_load_range){
				.tensor = i, .state = st.name, .count = t.numel, .dst = mem + at,
			};
			at += t.numel * ckpt_dtype_bits(st.dtype) / 8;
			if (at > 1 << 20)
				t_die("a torture of loading takes more memory");
		}
	if (!rc)
		rc = ckpt_load(ck, range, n, &o, NULL, err);
	if (!rc)
		rc = ckpt_values_open(ck, 1, 0, &values, err);
	if (!rc)
		rc = ckpt_value_int(values, "global_steps", &steps, err);
	ckpt_values_close(values);
	ckpt_close(ck);
	memcpy(mem, &steps, 8);
	if (!rc)
		t_file_write(s->dst, mem, at);
	free(range);
	free(mem);
	return rc;
}

/* ---------------------------------------------------------------- what is there before */

static void must(int rc, const struct ckpt_err *err)
{
	if (rc)
		t_die("a torture cannot be prepared: %s: %s", err->where, err->msg);
}

static void put(const char *dir, const char *name, const char *text)
{
	char *path = t_fmt("%s/%s", dir, name);

	t_file_write(path, text, strlen(text));
	free(path);
}

static void before_file(const struct t_vscene *s)
{
	t_file_write(s->dst, "old", 3);
}

/* A model's folder: weights that are replaced, files that are not. */
static void before_model(const struct t_vscene *s)
{
	t_dir_make(s->dst);
	put(s->dst, "model.safetensors", "old");
	put(s->dst, "config.json", "{}");
	t_dir_make_in(s->dst, "adapter");
	put(s->dst, "adapter/notes", "theirs");
}

static void before_link(const struct t_vscene *s)
{
	char *to = t_fmt("%s/model", s->out);
	struct t_vscene there = *s;

	there.dst = to;
	before_model(&there);
	if (symlink("model", s->dst))
		t_die("cannot make the link %s", s->dst);
	free(to);
}

static void older_step(const struct t_vscene *s, const char *tag)
{
	struct t_verb v = *s->verb;
	struct t_vscene there = *s;
	struct ckpt_err err = { 0 };

	v.flags = 0;
	v.stage = -1;
	v.nparts = 0;
	there.verb = &v;
	if (!strcmp(v.verb, "shard")) {
		v.stage = 2;
		v.world = 3;
		must(shard(&there, &err), &err);
		return;
	}
	must(reshard_as(&there, s->dst, tag, 1, 0, &err), &err);
}

static void strangers(const struct t_vscene *s)
{
	put(s->dst, "notes", "theirs");
	t_dir_make_in(s->dst, "other");
	put(s->dst, "other/file", "theirs");
}

/* A root that has another step. */
static void before_root(const struct t_vscene *s)
{
	older_step(s, "older");
	strangers(s);
}

/* One that has a step of this name, for another world. */
static void before_same_step(const struct t_vscene *s)
{
	older_step(s, NULL);
	strangers(s);
}

static void before_two_steps(const struct t_vscene *s)
{
	older_step(s, "older");
	older_step(s, "newer");
	strangers(s);
}

/* The same step twice: the number in the name says which is newer. */
static void before_prune(const struct t_vscene *s)
{
	older_step(s, "step1");
	older_step(s, "step2");
	strangers(s);
}

static void before_save(const struct t_vscene *s)
{
	struct ckpt_err err = { 0 };

	must(t_verb_save_older(s, &err), &err);
	strangers(s);
}

static void before_parts(const struct t_vscene *s)
{
	struct ckpt_err err = { 0 };

	for (uint32_t part = 0; part < 2; part++)
		must(s->verb->stage == -1 ? convert_part(s, part, 2, &err) :
		     reshard_as(s, s->dst, NULL, s->verb->world, part, &err), &err);
}

static void before_first_part(const struct t_vscene *s)
{
	struct ckpt_err err = { 0 };

	must(s->verb->stage == -1 ? convert_part(s, 0, 2, &err) :
	     reshard_as(s, s->dst, NULL, s->verb->world, 0, &err), &err);
}

static void before_step(const struct t_vscene *s)
{
	t_dir_copy(s->src, s->dst);
}

static void before_manifest(const struct t_vscene *s)
{
	before_step(s);
	put(s->dst, STEP "/zckpt-manifest.json", "{}");
}

/* ---------------------------------------------------------------- the list */

#define CONVERT .verb = "convert", .work = convert, .stage = -1
#define RESHARD .verb = "reshard", .work = reshard, .dst = "run"
#define SLIM .verb = "slim", .work = slim, .dst = "run"
#define PRUNE .verb = "prune", .work = prune, .dst = "run", .prepare = before_prune
#define MOMENTS CKPT_SLIM_MOMENTS
#define UNIVERSAL .verb = "universal", .work = reshard, .dst = "run"
#define SAVE .verb = "save", .work = t_verb_save, .source = Z2, .dst = "run", \
	.prepare = before_save, .finish = t_verb_save_again, .unit = "run/s", \
	.needs_threads = true, .latest_apart = true
#define INTO .prepare = before_root, .unit = "run/" STEP

/* To the same stage, another, the universal form; into a root that is there. */
#define LAYOUT(name, fix, same, other) \
	{ RESHARD, .layout = name, .source = fix, .world = 3, .stage = same, \
	  .what = "same stage, 2->3" }, \
	{ RESHARD, .layout = name, .source = fix, .world = 1, .stage = other, \
	  .what = "another stage, 2->1" }, \
	{ UNIVERSAL, .layout = name, .source = fix, .world = 2, .stage = TO_UNIVERSAL, \
	  .what = "out" }, \
	{ RESHARD, .layout = name, .source = fix, .world = 3, .stage = same, INTO, \
	  .what = "into a root" }

const struct t_verb t_verbs[] = {
	{ CONVERT, .layout = "z0", .source = Z0, .dst = "w.pt", .what = "to a .pt" },
	{ CONVERT, .layout = "z1", .source = Z1, .dst = "w.safetensors",
	  .what = "to a .safetensors" },
	{ CONVERT, .layout = "z2", .source = Z2, .dst = "hf", .what = "to a sharded folder" },
	{ CONVERT, .layout = "z3", .source = Z3, .dst = "states", .what = "to all states" },
	{ CONVERT, .layout = "bf16", .source = BF, .dst = "w.safetensors",
	  .flags = CKPT_CONVERT_DIGEST, .what = "to a .safetensors with digests" },
	{ CONVERT, .layout = "uni", .source = UNI, .dst = "w.pt", .what = "to a .pt" },
	{ CONVERT, .layout = "pt", .source = DEFLATED, .dst = "w.safetensors",
	  .what = "of a deflated .pt" },
	{ CONVERT, .layout = "z3", .source = Z3, .dst = "w.pt", .flags = FORCE,
	  .prepare = before_file, .what = "over a .pt" },
	{ CONVERT, .layout = "z2", .source = Z2, .dst = "hf", .flags = FORCE,
	  .prepare = before_model, .what = "over a folder" },
	{ CONVERT, .layout = "z2", .source = Z2, .dst = "link", .flags = FORCE,
	  .prepare = before_link, .what = "over a link to a folder" },
	LAYOUT("z0", Z0, 0, 2),
	LAYOUT("z1", Z1, 1, 3),
	LAYOUT("z2", Z2, 2, 1),
	LAYOUT("z3", Z3, 3, 2),
	LAYOUT("bf16", BF, BF16_OPT, 0),
	{ RESHARD, .layout = "z2", .source = Z2, .world = 3, .stage = TO_NATIVE,
	  .what = "to native" },
	{ RESHARD, .layout = "z3", .source = Z3, .world = 2, .stage = TO_NATIVE, INTO,
	  .what = "to native, into a root" },
	{ RESHARD, .layout = "z2", .source = Z2, .world = 3, .stage = 2, .flags = FORCE,
	  .prepare = before_same_step, .unit = "run/" STEP, .what = "over a step" },
	{ UNIVERSAL, .layout = "uni", .source = UNI, .world = 3, .stage = 2,
	  .what = "in, stage 2" },
	{ UNIVERSAL, .layout = "uni", .source = UNI, .world = 2, .stage = 3,
	  .what = "in, stage 3" },
	{ UNIVERSAL, .layout = "uni", .source = UNI, .world = 1, .stage = TO_UNIVERSAL,
	  .what = "in and out" },
	{ UNIVERSAL, .layout = "uni", .source = UNI, .world = 3, .stage = 1, INTO,
	  .what = "in, into a root" },
	{ .verb = "shard", .work = shard, .layout = "hf", .source = WEIGHTS, .dst = "run",
	  .world = 2, .stage = 3, .what = "stage 3" },
	{ .verb = "shard", .work = shard, .layout = "hf", .source = WEIGHTS, .dst = "run",
	  .world = 2, .stage = 2, .flags = FORCE, .prepare = before_same_step,
	  .unit = "run/global_step0", .what = "stage 2, over a step" },
	{ SLIM, .layout = "z2", .source = Z2, .what = "a step" },
	{ SLIM, .layout = "z3", .source = Z3, .stage = MOMENTS, INTO,
	  .what = "without moments, into a root" },
	{ SLIM, .layout = "uni", .source = UNI, .stage = MOMENTS, .what = "without moments" },
	{ SLIM, .layout = "hf", .source = WEIGHTS, .what = "weights" },
	{ PRUNE, .layout = "z2", .source = Z2, .world = 1, .what = "removes a step" },
	{ PRUNE, .layout = "z3", .source = Z3, .world = 2, .stage = MOMENTS,
	  .what = "slims a step" },
	{ .verb = "commit", .work = convert, .layout = "z2", .source = Z2, .dst = "w.pt",
	  .stage = -1, .nparts = 2, .finish = finish_parts, .on_partial = true,
	  .what = "part 1/2 of a .pt" },
	{ .verb = "commit", .work = convert, .layout = "z2", .source = Z2, .dst = "w.pt",
	  .stage = -1, .part = 1, .nparts = 2, .prepare = before_first_part,
	  .finish = finish_parts, .on_partial = true, .what = "part 2/2 of a .pt" },
	{ .verb = "commit", .work = commit, .layout = "z2", .source = Z2, .dst = "w.pt",
	  .stage = -1, .nparts = 2, .prepare = before_parts, .finish = finish_parts,
	  .on_partial = true, .what = "a .pt" },
	{ .verb = "commit", .work = commit, .layout = "z2", .source = Z2, .dst = "run",
	  .stage = 2, .world = 3, .nparts = 2, .prepare = before_parts, .finish = finish_parts,
	  .on_partial = true, .what = "a step" },
	{ .verb = "commit", .work = discard, .layout = "z2", .source = Z2, .dst = "run",
	  .stage = 2, .world = 3, .nparts = 2, .prepare = before_parts, .finish = finish_discard,
	  .on_partial = true, .what = "--discard" },
	{ SAVE, .layout = "nat", .world = 1, .stage = T_SAVE_NATIVE, .what = "1 rank" },
	{ SAVE, .layout = "nat", .world = 2, .stage = T_SAVE_NATIVE, .on_partial = true,
	  .what = "2 ranks, as held" },
	{ SAVE, .layout = "z2", .world = 2, .stage = 2, .on_partial = true,
	  .what = "2 ranks" },
	{ SAVE, .layout = "z3", .world = 1, .stage = 3, .flags = CKPT_SAVE_FORCE,
	  .what = "1 rank, over a step" },
	{ SAVE, .layout = "hf", .world = 1, .stage = T_SAVE_WEIGHTS, .what = "1 rank, weights" },
	{ .verb = "set-latest", .work = set_latest, .layout = "z2", .source = Z2, .dst = "run",
	  .prepare = before_two_steps, .what = "" },
	{ .verb = "cat", .work = cat, .layout = "z2", .source = Z2, .dst = "w.npy",
	  .what = "-o .npy" },
	{ .verb = "cat", .work = cat, .layout = "z3", .source = Z3, .dst = "w.txt",
	  .flags = FORCE, .prepare = before_file, .what = "-o --force, text" },
	{ .verb = "load", .work = load, .layout = "z2", .source = Z2, .dst = "mem", .what = "all" },
	{ .verb = "load", .work = load, .layout = "z3", .source = Z3, .dst = "mem", .what = "all" },
	{ .verb = "load", .work = load, .layout = "native", .source = NATIVE, .dst = "mem",
	  .what = "all" },
	{ .verb = "verify", .work = verify, .layout = "z2", .source = Z2, .dst = "run",
	  .prepare = before_step, .what = "--write-manifest" },
	{ .verb = "verify", .work = verify, .layout = "z3", .source = Z3, .dst = "run",
	  .flags = CKPT_VERIFY_FORCE, .prepare = before_manifest,
	  .what = "--write-manifest --force" },
};

const unsigned t_nverbs = sizeof(t_verbs) / sizeof(t_verbs[0]);
