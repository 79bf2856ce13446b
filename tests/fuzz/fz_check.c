/* See fz.h: what must hold of any checkpoint that opens. */
#include "tests/fuzz/fz.h"

#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"

static const struct ckpt_run_opts run_opts = {
	.size = sizeof(run_opts), .threads = 1, .mem_limit = 4 << 20, .sync = CKPT_SYNC_NONE,
};

#define UNIVERSAL 5	/* for a stage: the universal form */
#define DCP 6		/* the same: a folder of torch.distributed.checkpoint */
#define OUT FZ_ROOT "/out"
#define MAX_READ 64u		/* elements of each state */
#define MAX_WORK ((uint64_t)32 << 20)	/* elements of all states, for what moves them */

static struct ckpt *open_path(const char *path, struct ckpt_err *err)
{
	const struct ckpt_open_opts opts = {
		.size = sizeof(opts), .threads = 1, .limits = fz_limits(),
	};
	struct ckpt *ck = NULL;

	if (!fz_ok(ckpt_open(&path, 1, &opts, &ck, err), err, "ckpt_open"))
		return NULL;
	return ck;
}

/* ---- the index ---- */

static void check_extents(const struct ckpt *ck, uint64_t t, uint32_t s, uint64_t numel,
			  uint64_t n)
{
	for (uint64_t e = 0; e < n; e++) {
		struct ckpt_extent_info x;
		uint64_t size;

		if (ckpt_extent_get(ck, t, s, e, &x, NULL))
			fz_die("extent %llu is not there", (unsigned long long)e);
		size = fz_fs_size(x.path);
		if (size == UINT64_MAX && strstr(x.path, ".tar.zst/"))
			size = INT64_MAX;	/* a file in a pack: reading finds its end */
		if (size == UINT64_MAX)
			fz_die("an extent lies in no file: %s", x.path);
		if (x.flags & (CKPT_EXTENT_DEFLATED | CKPT_EXTENT_GATHER))
			continue;
		if (x.count && x.runs && (x.first >= numel || x.count > numel - x.first))
			fz_die("an extent lies outside of its tensor");
		if (x.count && x.runs &&
		    (x.offset > size ||
		     x.count * ckpt_dtype_bits(x.dtype) / 8 > size - x.offset))
			fz_die("an extent lies outside of its file");
	}
}

static void read_some(const struct ckpt *ck, uint64_t t, uint32_t s, uint64_t numel,
		      const struct ckpt_state_info *st)
{
	const uint64_t n = numel < MAX_READ ? numel : MAX_READ;
	const size_t bytes = (size_t)(n * ckpt_dtype_bits(st->dtype) + 7) / 8;
	struct ckpt_err err = { 0 };
	void *buf = t_alloc(bytes + 1);

	fz_ok(ckpt_read(ck, t, s, 0, n, 0, buf, bytes, &err), &err, "ckpt_read");
	err = (struct ckpt_err){ 0 };
	if (numel > n)
		fz_ok(ckpt_read(ck, t, s, numel - n, n, 0, buf, bytes, &err), &err, "ckpt_read");
	free(buf);
}

/* Elements of all states. */
static uint64_t look(const struct ckpt *ck)
{
	struct ckpt_info info;
	uint64_t work = 0;

	ckpt_info_get(ck, &info);
	for (uint64_t t = 0; t < info.ntensors; t++) {
		struct ckpt_tensor_info ti;
		uint64_t found = 0;

		if (ckpt_tensor_get(ck, t, &ti, NULL) ||
		    ckpt_tensor_find(ck, ti.name, &found, NULL) || found != t)
			fz_die("tensor %llu is not found by its name", (unsigned long long)t);
		if (ti.role == CKPT_ROLE_ALIAS && ti.alias_of >= info.ntensors)
			fz_die("%s is an alias of nothing", ti.name);
		for (uint32_t s = 0; s < ti.nstates; s++) {
			struct ckpt_state_info st;

			if (ckpt_state_get(ck, t, s, &st, NULL))
				fz_die("state %u of %s is not there", s, ti.name);
			check_extents(ck, t, s, ti.numel, st.nextents);
			work += ti.numel < MAX_WORK ? ti.numel : MAX_WORK;
			if (work < MAX_WORK)
				read_some(ck, t, s, ti.numel, &st);
		}
	}
	for (uint64_t i = 0; i < info.nfindings; i++) {
		struct ckpt_finding f;

		if (ckpt_finding_get(ck, i, &f, NULL) || !f.id[0] || !f.text[0])
			fz_die("finding %llu says nothing", (unsigned long long)i);
	}
	return work;
}

/* ---- the same again ---- */

struct digests {
	struct ckpt_digests d;
	bool ok;
};

static struct digests digest(struct ckpt *ck)
{
	const struct ckpt_digest_opts opts = { .size = sizeof(opts), .run = &run_opts };
	struct digests out = { .ok = false };
	struct ckpt_err err = { 0 };

	out.ok = fz_ok(ckpt_digest(ck, &opts, &out.d, &err), &err, "ckpt_digest");
	return out;
}

/* A reader of torch files writes control characters of a name as \xNN. */
static bool is_odd(const char *name)
{
	for (; *name; name++)
		if ((unsigned char)*name < 32 || *name == 127 || (unsigned char)*name == 0xc2)
			return true;
	return false;
}

enum found { NOT_THERE, ANOTHER, SAME };

static enum found find(const struct ckpt_digests *d, const struct ckpt_digest_line *line)
{
	const bool odd = is_odd(line->name);
	enum found found = NOT_THERE;

	for (uint64_t i = 0; i < d->nlines && found != SAME; i++) {
		const struct ckpt_digest_line *l = &d->lines[i];
		const bool same = !strcmp(l->hash, line->hash);

		if (!strcmp(l->state, line->state) &&
		    (odd ? same : !strcmp(l->name, line->name)))
			found = same ? SAME : ANOTHER;
	}
	return found;
}

/* Every line of A (of the state, if one is given) is in B; 'some' need not be there. */
static void expect_in(const struct ckpt_digests *a, const struct ckpt_digests *b,
		      const char *state, bool some, const char *what)
{
	for (uint64_t i = 0; i < a->nlines; i++) {
		const struct ckpt_digest_line *l = &a->lines[i];
		const enum found found = state && strcmp(l->state, state) ? SAME : find(b, l);

		if (found == ANOTHER || (found == NOT_THERE && !some))
			fz_die("%s: %s of \"%s\" is %s", what, l->state, l->name,
			       found == ANOTHER ? "another one" : "lost");
	}
}

static void read_back(const char *path, const struct digests *was, const char *state, bool some)
{
	struct ckpt_err err = { 0 };
	struct ckpt *ck = open_path(path, &err);
	struct digests now;

	if (!ck)
		fz_die("%s was written and does not open: %s: %s", path, err.where, err.msg);
	now = digest(ck);
	if (!now.ok)
		fz_die("%s was written and cannot be read", path);
	expect_in(&was->d, &now.d, state, some, path);
	if (!state)
		expect_in(&now.d, &was->d, state, some, path);
	ckpt_digests_free(&now.d);
	ckpt_close(ck);
}

/* A run that failed leaves nothing, one that worked its result alone. */
static void check_left(size_t before, bool ok, const char *path)
{
	if (!ok && fz_fs_count() != before)
		fz_die("%s: a run that failed left something", path);
	fz_fs_remove(path);
	if (fz_fs_count() != before)
		fz_die("%s: a run left something beside its result", path);
}

/* To one file, to a folder of small shards, or (WAS = NULL) all states to a file each. */
static void convert(struct ckpt *ck, const char *dst, const struct digests *was)
{
	static const char *const all[] = { "all", NULL };
	const struct ckpt_convert_opts opts = {
		.size = sizeof(opts), .run = &run_opts, .dtype = was ? CKPT_KEEP : 0,
		.max_shard_bytes = 500, .states = was ? NULL : all,
		.aux_dir = fz_fs_is_dir(FZ_ROOT "/in") ? FZ_ROOT "/in" : NULL,
		.flags = was ? 0 : CKPT_CONVERT_DIGEST,
	};
	const size_t before = fz_fs_count();
	struct ckpt_report report = { 0 };
	struct ckpt_err err = { 0 };
	const bool ok = fz_ok(ckpt_convert(ck, dst, &opts, &report, &err), &err, "ckpt_convert");

	if (ok) {
		ckpt_report_free(&report);
		if (was && was->ok)
			read_back(dst, was, "weight", false);
	}
	check_left(before, ok, dst);
}

/* DCP and stage 0 have no masters beside weights of the same type. */
static bool is_other_form(const struct fz_wish *wish, int stage, const struct ckpt_info *info)
{
	return stage == 0 || info->stage == 0 || wish->stage == DCP ||
	       strstr(info->writer, "torch.distributed");
}

static void reshard(struct ckpt *ck, const struct fz_wish *wish, const struct digests *was)
{
	static const char *const versions[] = { NULL, "0.9.5", "0.14.5", "0.16.9", "0.19.8" };
	const int stage = wish->stage >= 0 && wish->stage <= 4 ? wish->stage : -1;
	const struct ckpt_reshard_opts opts = {
		.size = sizeof(opts), .run = &run_opts, .world = wish->world % 9, .stage = stage,
		.round_robin = wish->flags & FZ_ROBIN ? 1 : -1,
		.sub_group_size = wish->flags & FZ_SUBS ? 50 : 0,
		.flags = wish->flags & FZ_RESET ? CKPT_RESHARD_RESET : 0,
		.to = wish->stage == UNIVERSAL ? CKPT_TO_UNIVERSAL :
		      wish->stage == DCP ? CKPT_TO_DCP : CKPT_TO_DEEPSPEED,
		.ds_version = versions[wish->version % 5],
	};
	const size_t before = fz_fs_count();
	struct ckpt_report report = { 0 };
	struct ckpt_err err = { 0 };
	struct ckpt_info info;
	const bool ok = fz_ok(ckpt_reshard(ck, OUT, &opts, &report, &err), &err, "ckpt_reshard");

	ckpt_info_get(ck, &info);
	if (ok) {
		ckpt_report_free(&report);
		if (was->ok && !opts.flags)
			read_back(OUT, was, NULL, is_other_form(wish, stage, &info));
	}
	check_left(before, ok, OUT);
}

/* ---- verify, and its manifest ---- */

static struct ckpt_verified verify_once(const char *path, unsigned flags, uint64_t *errors)
{
	const struct ckpt_verify_opts opts = {
		.size = sizeof(opts), .run = &run_opts, .flags = flags,
	};
	struct ckpt_verified out = { .manifest = 0 };
	struct ckpt_err err = { 0 };
	struct ckpt *ck = open_path(path, &err);
	struct ckpt_finding f;

	if (!ck)
		return out;
	*errors = 0;
	err = (struct ckpt_err){ 0 };
	if (!fz_ok(ckpt_verify(ck, &opts, &out, &err), &err, "ckpt_verify"))
		out.manifest = 0;
	for (uint64_t i = 0; !ckpt_finding_get(ck, i, &f, NULL); i++)
		*errors += f.severity == CKPT_ERROR;
	ckpt_close(ck);
	return out;
}

/* A manifest that was just written agrees with what it was made of. */
static void verify(const char *path)
{
	const size_t before = fz_fs_count();
	uint64_t errors = 0;
	struct ckpt_verified v, again;

	v = verify_once(path, CKPT_VERIFY_FULL | CKPT_VERIFY_WRITE_MANIFEST, &errors);
	if (v.manifest == 2) {
		again = verify_once(path, CKPT_VERIFY_FULL, &errors);
		if (again.manifest != 1 || errors)
			fz_die("%s: %s does not agree with it", path, v.manifest_path);
		if (fz_fs_count() > before)
			fz_fs_remove(v.manifest_path);
	}
	if (fz_fs_count() != before)
		fz_die("%s: verify left something", path);
}

void fz_check(const char *path, const struct fz_wish *wish)
{
	struct ckpt_err err = { 0 };
	struct ckpt *ck = open_path(path, &err);
	struct digests was;

	if (!ck)
		return;
	if (look(ck) < MAX_WORK) {
		was = digest(ck);
		if (!wish || !wish->world || was.d.nlines < 2) {
			convert(ck, OUT ".pt", &was);
			convert(ck, OUT ".safetensors", &was);
			convert(ck, OUT, &was);
			if (wish)
				convert(ck, OUT, NULL);
		}
		if (wish && (wish->world || wish->stage >= UNIVERSAL))
			reshard(ck, wish, &was);
		if (was.ok)
			ckpt_digests_free(&was.d);
		verify(path);
	}
	ckpt_close(ck);
}
