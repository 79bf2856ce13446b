/*
 * See t_power.h: the verbs whose power is cut, and the disks they begin with. A new verb, or a new
 * way to write, is a line in one of the functions below that add them.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_step.h"
#include "tests/lib/torture/t_power.h"

#define MAX_VERBS 32

static const struct ckpt_run_opts run1 = { .size = sizeof(run1), .threads = 1 };
static const struct ckpt_run_opts run_full = {
	.size = sizeof(run_full), .threads = 1, .sync = CKPT_SYNC_FULL,
};

static struct t_verb verb[MAX_VERBS];
static size_t nverbs;

/* ---- what the verbs do ---- */

static int open_at(const char *path, const char *tag, struct ckpt **ck_out, struct ckpt_err *err)
{
	const struct ckpt_open_opts o = { .size = sizeof(o), .threads = 1, .tag = tag };

	return ckpt_open(&path, 1, &o, ck_out, err);
}

static int convert(const struct t_verb *v, struct ckpt_err *err)
{
	struct ckpt *ck = NULL;
	int rc = open_at("/src", NULL, &ck, err);

	if (!rc)
		rc = ckpt_convert(ck, v->dst, v->opts, NULL, err);
	ckpt_close(ck);
	return rc;
}

static int reshard(const struct t_verb *v, struct ckpt_err *err)
{
	struct ckpt *ck = NULL;
	int rc = open_at("/src", NULL, &ck, err);

	if (!rc)
		rc = ckpt_reshard(ck, v->dst, v->opts, NULL, err);
	ckpt_close(ck);
	return rc;
}

/* The source is the step that 'latest' of the destination names, as it was before. */
static int reshard_here(const struct t_verb *v, struct ckpt_err *err)
{
	const struct ckpt_reshard_opts *o = v->opts;
	struct ckpt_info info;
	struct ckpt *ck = NULL;
	int settled = 0, rc = ckpt_settle(v->dst, v->sync, &settled, err);

	if (!rc)
		rc = open_at(v->dst, NULL, &ck, err);
	if (!rc) {
		ckpt_info_get(ck, &info);
		if (strcmp(info.tag, o->tag))
			rc = ckpt_reshard(ck, v->dst, o, NULL, err);
		else if (!settled)
			rc = -CKPT_E_EXISTS;
	}
	ckpt_close(ck);
	return rc;
}

static int shard(const struct t_verb *v, struct ckpt_err *err)
{
	struct ckpt *ck = NULL;
	int rc = open_at("/model.safetensors", NULL, &ck, err);

	if (!rc)
		rc = ckpt_shard(ck, v->dst, v->opts, NULL, err);
	ckpt_close(ck);
	return rc;
}

static int reshard_part(const struct t_verb *v, uint32_t part, struct ckpt_err *err)
{
	struct ckpt_reshard_opts o = *(const struct ckpt_reshard_opts *)v->opts;
	struct ckpt *ck = NULL;
	int rc = open_at("/src", NULL, &ck, err);

	o.part = part;
	o.nparts = 2;
	if (!rc)
		rc = ckpt_reshard(ck, v->dst, &o, NULL, err);
	ckpt_close(ck);
	return rc;
}

static int convert_part(const struct t_verb *v, uint32_t part, struct ckpt_err *err)
{
	struct ckpt_convert_opts o = *(const struct ckpt_convert_opts *)v->opts;
	struct ckpt *ck = NULL;
	int rc = open_at("/src", NULL, &ck, err);

	o.part = part;
	o.nparts = 2;
	if (!rc)
		rc = ckpt_convert(ck, v->dst, &o, NULL, err);
	ckpt_close(ck);
	return rc;
}

typedef int (*part_fn)(const struct t_verb *v, uint32_t part, struct ckpt_err *err);

/* Both parts, the second one first. */
static int both(const struct t_verb *v, part_fn part, struct ckpt_err *err)
{
	const int rc = part(v, 1, err);

	return rc ? rc : part(v, 0, err);
}

static int parts(const struct t_verb *v, part_fn part, struct ckpt_err *err)
{
	const int rc = both(v, part, err);

	return rc ? rc : ckpt_commit(v->dst, 0, v->sync, err);
}

/* Somebody looks first if there is anything left to do. */
static int parts_again(const struct t_verb *v, part_fn part, struct ckpt_err *err)
{
	int rc = ckpt_commit(v->dst, 0, v->sync, err);

	if (rc != -CKPT_E_INCOMPLETE && rc != -CKPT_E_NOTFOUND)
		return rc;
	*err = (struct ckpt_err){ 0 };
	return parts(v, part, err);
}

static int reshard_parts(const struct t_verb *v, struct ckpt_err *err)
{
	return parts(v, reshard_part, err);
}

static int reshard_parts_again(const struct t_verb *v, struct ckpt_err *err)
{
	return parts_again(v, reshard_part, err);
}

static int convert_parts(const struct t_verb *v, struct ckpt_err *err)
{
	return parts(v, convert_part, err);
}

static int convert_parts_again(const struct t_verb *v, struct ckpt_err *err)
{
	return parts_again(v, convert_part, err);
}

static int convert_both(const struct t_verb *v, struct ckpt_err *err)
{
	return both(v, convert_part, err);
}

static int give_up(const struct t_verb *v, struct ckpt_err *err)
{
	const int rc = ckpt_discard(v->dst, err);

	return rc == -CKPT_E_NOTFOUND ? 0 : rc;
}

/* A commit of what was given up must not say that the old file is the result. */
static const char *cannot_be_committed(const struct t_verb *v)
{
	struct t_image *before = t_disk_image(), *after;
	struct ckpt_err err = { 0 };
	const int rc = ckpt_commit(v->dst, 0, v->sync, &err);
	const uint8_t *p, *q;
	size_t n = 0, m = 0;
	bool same;

	after = t_disk_image();
	p = t_image_file(before, v->dst, &n);
	q = t_image_file(after, v->dst, &m);
	same = p && q && n == m && !memcmp(p, q, n);
	t_disk_load(before);
	t_image_free(before);
	t_image_free(after);
	return !rc && same ? "a commit says that the old file is the result" : NULL;
}

static int slim(const struct t_verb *v, struct ckpt_err *err)
{
	struct ckpt *ck = NULL;
	int rc = open_at("/src", NULL, &ck, err);

	if (!rc)
		rc = ckpt_slim(ck, v->dst, v->opts, NULL, err);
	ckpt_close(ck);
	return rc;
}

static int prune(const struct t_verb *v, struct ckpt_err *err)
{
	struct ckpt_pruned done = { 0 };
	const int rc = ckpt_prune(v->dst, v->opts, &done, err);

	ckpt_pruned_free(&done);
	return rc;
}

static int set_latest(const struct t_verb *v, struct ckpt_err *err)
{
	return ckpt_latest_set(v->dst, "global_step9", 0, v->sync, err);
}

static int write_manifest(const struct t_verb *v, struct ckpt_err *err)
{
	struct ckpt_verified said;
	struct ckpt *ck = NULL;
	int rc = open_at(v->dst, NULL, &ck, err);

	if (!rc)
		rc = ckpt_verify(ck, v->opts, &said, err);
	ckpt_close(ck);
	return rc;
}

/* The file is no manifest, or a whole one. */
static const char *verifies(const struct t_verb *v)
{
	const struct ckpt_verify_opts o = { sizeof(o), &run1, CKPT_VERIFY_FULL };
	struct ckpt_verified said;
	struct ckpt_err err = { 0 };
	struct ckpt_finding f;
	struct ckpt *ck = NULL;
	int rc = open_at(v->dst, NULL, &ck, &err);
	bool bad = false;

	if (!rc)
		rc = ckpt_verify(ck, &o, &said, &err);
	for (uint64_t i = 0; !rc && !ckpt_finding_get(ck, i, &f, NULL); i++)
		bad = bad || f.severity == CKPT_ERROR;
	ckpt_close(ck);
	return rc || bad ? "verify says that the step is not whole" : NULL;
}

/* ---- the disks they begin with ---- */

static void put_fixture(struct t_image *im, const char *path, const char *name)
{
	char *below = t_fmt("deepspeed/%s", name), *dir = t_fixture(below);

	if (!t_is_dir(dir))
		t_die("no fixture at %s", dir);
	t_image_put_dir(im, path, dir);
	free(below);
	free(dir);
}

static struct t_image *with_source(const char *fixture)
{
	struct t_image *im = t_image_new();
	char *name = t_fmt("%s/ckpt", fixture);

	put_fixture(im, "/src", name);
	t_image_put(im, "/other", "of somebody else", 16);
	free(name);
	return im;
}

static void put_text(struct t_image *im, const char *path, const char *text)
{
	t_image_put(im, path, text, strlen(text));
}

/* What another verb makes of the disk. */
static struct t_image *after(const struct t_verb *v)
{
	struct ckpt_err err = { 0 };
	struct t_image *im;

	t_disk_load(v->before);
	if (v->run(v, &err))
		t_die("%s: %s: %s", v->name, err.where, err.msg);
	im = t_disk_image();
	return im;
}

static struct t_verb *add(const char *name, struct t_image *before, const char *dst,
			  int (*work)(const struct t_verb *v, struct ckpt_err *err),
			  const void *opts)
{
	struct t_verb *v = &verb[nverbs];

	if (nverbs++ == MAX_VERBS)
		t_die("more than %d verbs", MAX_VERBS);
	*v = (struct t_verb){
		.name = name, .before = before, .dst = dst, .run = work, .opts = opts,
		.staged = true,
	};
	return v;
}

static const char *const z2 = "ds0.19.8-z2-bf16-w2";

static const struct ckpt_convert_opts plain = { .size = sizeof(plain), .run = &run1 };
static const struct ckpt_convert_opts full = { .size = sizeof(full), .run = &run_full };
static const struct ckpt_convert_opts force = {
	.size = sizeof(force), .run = &run1, .flags = CKPT_WRITE_FORCE,
};
static const struct ckpt_convert_opts sharded = {
	.size = sizeof(sharded), .run = &run1, .max_shard_bytes = 8000,
};
static const struct ckpt_convert_opts sharded_force = {
	.size = sizeof(sharded_force), .run = &run1, .max_shard_bytes = 8000,
	.flags = CKPT_WRITE_FORCE | CKPT_CONVERT_DIGEST,
};

static void add_converts(void)
{
	struct t_image *im;
	struct t_verb *v;

	add("convert to a file", with_source(z2), "/out.safetensors", convert, &plain);
	add("convert to a folder that is missing", with_source(z2), "/new/in/out.safetensors",
	    convert, &plain);
	v = add("convert --sync full", with_source(z2), "/out.safetensors", convert, &full);
	v->sync = CKPT_SYNC_FULL;
	im = with_source(z2);
	put_text(im, "/out.pt", "the old bytes");
	add("convert --force over a .pt", im, "/out.pt", convert, &force);
	add("convert to a folder", with_source("ds0.19.8-z3-bf16-w2"), "/out", convert, &sharded);
	for (int renames = 0; renames < 2; renames++) {
		im = with_source(z2);
		put_text(im, "/out/config.json", "{}");
		put_text(im, "/out/notes/read.me", "of the user");
		put_text(im, "/out/model.safetensors", "old weights");
		v = add(renames ? "convert --force over a folder, without exchange" :
			"convert --force over a folder", im, "/out", convert, &sharded_force);
		v->keeps = true;
		v->plain = renames;
	}
}

static const struct ckpt_reshard_opts to3 = {
	.size = sizeof(to3), .run = &run1, .world = 3, .stage = -1, .round_robin = -1,
};
static const struct ckpt_reshard_opts to3_full = {
	.size = sizeof(to3_full), .run = &run_full, .world = 3, .stage = 3, .round_robin = -1,
};
static const struct ckpt_reshard_opts beside = {
	.size = sizeof(beside), .run = &run1, .world = 3, .stage = -1, .round_robin = -1,
	.tag = "global_step9",
};
static const struct ckpt_reshard_opts over = {
	.size = sizeof(over), .run = &run1, .world = 1, .stage = -1, .round_robin = -1,
	.flags = CKPT_WRITE_FORCE,
};
static const struct ckpt_reshard_opts universal = {
	.size = sizeof(universal), .run = &run1, .to = CKPT_TO_UNIVERSAL, .stage = -1,
	.round_robin = -1,
};

static const struct ckpt_reshard_opts native = {
	.size = sizeof(native), .run = &run1, .to = CKPT_TO_NATIVE, .world = 2, .stage = -1,
	.round_robin = -1,
};

/* A source with files beside its step, one of them in a folder that the destination has as well. */
static struct t_image *with_neighbours(void)
{
	struct t_image *im = with_source(z2);

	put_text(im, "/src/trainer_state.json", "{\"step\": 3}");
	put_text(im, "/src/notes/of/run.txt", "a run");
	put_text(im, "/src/notes/more.txt", "more");
	return im;
}

static struct t_image *with_run(const char *fixture)
{
	struct t_image *im = with_neighbours();
	char *name = t_fmt("%s/ckpt", fixture);

	put_fixture(im, "/run", name);
	put_text(im, "/run/notes/theirs.txt", "theirs");
	free(name);
	return im;
}

static void add_reshards(void)
{
	struct t_verb *v;

	add("reshard", with_neighbours(), "/out", reshard, &to3);
	v = add("reshard --sync full", with_source(z2), "/out", reshard, &to3_full);
	v->sync = CKPT_SYNC_FULL;
	v = add("reshard beside other steps", with_run("ds0.19.8-z3-bf16-w2"), "/run", reshard,
		&beside);
	v->step = "global_step9";
	v = add("reshard in the folder of its source", with_run(z2), "/run", reshard_here, &beside);
	v->step = "global_step9";
	for (int renames = 0; renames < 2; renames++) {
		v = add(renames ? "reshard --force over a step, without exchange" :
			"reshard --force over a step", with_run("ds0.19.8-z3-bf16-w2"), "/run",
			reshard, &over);
		v->step = "global_step3";
		v->plain = renames;
	}
	add("universal", with_source(z2), "/out", reshard, &universal);
	add("native", with_source(z2), "/out", reshard, &native);
	v = add("reshard in two parts", with_source(z2), "/out", reshard_parts, &to3);
	v->again = reshard_parts_again;
}

static const char *const frozen_buffers[] = { "pos", "seen", "table", "flag", "norm.ema", NULL };
static const struct ckpt_shard_opts shard_opts = {
	.size = sizeof(shard_opts), .run = &run1, .world = 2, .stage = 2, .round_robin = 0,
	.order_path = "/order", .lr = 1e-3, .first_lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999,
	.eps = 1e-8, .buffers = frozen_buffers,
};

static void put_order(struct t_image *im)
{
	struct ckpt_err err = { 0 };
	struct ckpt *ck = NULL;
	char *text;

	t_disk_load(im);
	if (open_at("/src", NULL, &ck, &err))
		t_die("%s: %s", err.where, err.msg);
	text = t_step_names(ck);
	ckpt_close(ck);
	put_text(im, "/order", text);
	free(text);
}

static void add_shard(void)
{
	static const struct ckpt_select select = { .size = sizeof(select), .tied = CKPT_TIED_DROP };
	static const struct ckpt_convert_opts keep = {
		.size = sizeof(keep), .run = &run1, .dtype = CKPT_KEEP, .select = &select,
	};
	const struct t_verb model = {
		.name = "a model", .before = with_source(z2), .dst = "/model.safetensors",
		.run = convert, .opts = &keep,
	};
	struct t_image *im = after(&model);

	put_order(im);
	add("shard", im, "/out", shard, &shard_opts);
	t_image_free(model.before);
}

static const struct ckpt_verify_opts manifest = {
	sizeof(manifest), &run1, CKPT_VERIFY_WRITE_MANIFEST,
};
static const struct ckpt_verify_opts manifest_again = {
	sizeof(manifest_again), &run1, CKPT_VERIFY_WRITE_MANIFEST | CKPT_VERIFY_FORCE,
};

static void add_others(void)
{
	struct t_image *im = with_source(z2), *two = with_run(z2);
	struct t_verb *v, begun;

	put_text(im, "/out.pt", "the old bytes");
	v = add("convert --force in two parts", im, "/out.pt", convert_parts, &force);
	v->again = convert_parts_again;
	begun = *v;
	begun.run = convert_both;
	v = add("commit --discard", after(&begun), "/out.pt", give_up, NULL);
	v->check = cannot_be_committed;
	v->only_gone = true;
	put_fixture(two, "/run/global_step9", "ds0.19.8-z3-bf16-w2/ckpt/global_step3");
	v = add("set-latest", two, "/run", set_latest, NULL);
	v->staged = false;
	v = add("verify --write-manifest", with_source(z2), "/src", write_manifest, &manifest);
	v->staged = false;
	v->check = verifies;
	im = after(v);
	put_text(im, "/src/global_step3/zckpt-manifest.json", "{}");
	v = add("verify --write-manifest --force", im, "/src", write_manifest, &manifest_again);
	v->staged = false;
}

static const struct ckpt_slim_opts without_moments = {
	.size = sizeof(without_moments), .run = &run1, .what = CKPT_SLIM_MOMENTS,
};
static const struct ckpt_prune_opts last1 = {
	.size = sizeof(last1), .run = &run1, .keep_last = 1, .flags = CKPT_PRUNE_APPLY,
};
static const struct ckpt_prune_opts moments1 = {
	.size = sizeof(moments1), .run = &run1, .moments_last = 1, .flags = CKPT_PRUNE_APPLY,
};

static const struct ckpt_prune_opts link_all = {
	.size = sizeof(link_all), .run = &run1, .flags = CKPT_PRUNE_APPLY | CKPT_PRUNE_LINK,
};

/* Steps of two numbers, of which prune changes the older one. */
static void add_keeping(void)
{
	struct t_image *two = with_run(z2);
	struct t_verb *v;

	add("slim", with_neighbours(), "/out", slim, &without_moments);
	put_fixture(two, "/run/global_step5", "ds0.19.8-z2-fp16-w2-overflow/ckpt/global_step5");
	v = add("prune removes a step", two, "/run", prune, &last1);
	put_text(two, "/run/latest", "global_step5");
	v->staged = false;
	two = t_image_copy(two);
	put_text(two, "/run/global_step3/frozen-0", "the same in both");
	put_text(two, "/run/global_step5/frozen-0", "the same in both");
	v = add("prune links files", two, "/run", prune, &link_all);
	v->staged = false;
	for (int renames = 0; renames < 2; renames++) {
		v = add(renames ? "prune slims a step, without exchange" : "prune slims a step",
			t_image_copy(two), "/run", prune, &moments1);
		v->staged = false;
		v->plain = renames;
	}
}

const struct t_verb *t_power_verbs(size_t *n_out)
{
	add_converts();
	add_reshards();
	add_shard();
	add_others();
	add_keeping();
	*n_out = nverbs;
	return verb;
}

void t_power_verbs_free(void)
{
	for (size_t i = 0; i < nverbs; i++)
		t_image_free(verb[i].before);
	nverbs = 0;
}
