/* ck_stated.c -- see ck_stated.h. */
#include "libckpt/run/ck_stated.h"

#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/io/ck_src.h"
#include "libckpt/run/ck_read.h"
#include "libckpt/run/ck_run.h"
#include "libckpt/sums/ck_crc_check.h"

#define WINDOW ((uint64_t)1 << 20)

static int hash_head(const struct ck_source *source, uint64_t bytes, struct ck_hash128 *out,
		     struct ckpt_err *err)
{
	struct ck_hasher *h = ck_hasher_new();
	uint8_t *buf = ck_alloc(ck_min_u64(bytes, WINDOW));
	int rc = h && buf ? 0 : ck_fail_nomem(err, "a header", bytes);

	for (uint64_t at = 0, n; !rc && at < bytes; at += n) {
		n = ck_min_u64(bytes - at, WINDOW);
		rc = ck_src_read(source->src, at, buf, n, err);
		if (!rc)
			ck_hasher_add(h, buf, n);
	}
	if (!rc)
		*out = ck_hasher_sum(h);
	ck_free(buf);
	ck_hasher_free(h);
	return rc;
}

static int check_heads(const struct ck_index *ix, struct ck_findings *findings,
		       struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < ix->nstated_heads; i++) {
		const struct ck_stated_head *head = &ix->stated_head[i];
		const struct ck_source *source = &ix->source[head->source];
		struct ck_hash128 is;

		rc = hash_head(source, head->bytes, &is, err);
		if (!rc && !ck_hash128_equal(is, head->hash))
			ck_findings_add(findings, CK_FINDING_MANIFEST_HASH_WRONG, source->path,
					"its header (%" PRIu64 " bytes) differs from the "
					"manifest (damage, or a file of another step)",
					head->bytes);
	}
	return rc;
}

int ck_stated_heads(struct ckpt *ck, struct ckpt_err *err)
{
	return check_heads(&ck->ix, &ck->findings, err);
}

/* Archives beside files with heads are small, and few verbs read what is in them. */
static int check_archives(const struct ckpt *ck, struct ck_findings *findings,
			  struct ckpt_err *err)
{
	struct ck_crc_check *seen;
	const struct ck_crc_check_ask ask = { .rest = CK_CRC_CHECK_WHOLE };
	int rc = ck_crc_check_new(&ck->ix, &ck->limits, &seen, err);

	if (rc)
		return rc;
	ck_crc_check_all(seen);
	rc = ck_crc_check_check(seen, &ask, findings, err);
	ck_crc_check_free(seen);
	return rc;
}

static int begin(const struct ckpt *ck, struct ckpt_err *err)
{
	struct ck_findings found = { .as_warning = ck->findings.as_warning };
	const struct ckpt_finding *f;
	int rc = check_heads(&ck->ix, &found, err);

	f = ck_findings_worst(&found, CKPT_ERROR);
	if (!rc && f)
		rc = ck_findings_fail(f, err);
	if (!rc)
		rc = check_archives(ck, &found, err);
	ck_findings_release(&found);
	return rc;
}

/* Of a safetensors file, whose header was compared when it was read. */
static int fail_header(const struct ckpt *ck, struct ckpt_err *err)
{
	const char *id = ck_finding_name(CK_FINDING_HEADER_SUM_WRONG);

	for (uint64_t i = 0; i < ck->findings.n; i++)
		if (ck->findings.list[i].severity == CKPT_ERROR &&
		    !strcmp(ck->findings.list[i].id, id))
			return ck_findings_fail(&ck->findings.list[i], err);
	return 0;
}

int ck_stated_begin(const struct ckpt *ck, struct ckpt_err *err)
{
	int rc = fail_header(ck, err);

	if (rc)
		return rc;
	if (!ck->ix.nstated_heads)
		return 0;
	pthread_mutex_lock(&ck->begun->lock);
	if (!ck->begun->done) {
		rc = begin(ck, err);
		ck->begun->done = !rc;
	}
	pthread_mutex_unlock(&ck->begun->lock);
	return rc;
}

/* ---- files beside the weights ---- */

static int sum_file(struct ckpt *ck, const char *path, struct ck_hash128 *sum_out,
		    struct ckpt_err *err)
{
	struct ck_hash128 sum = { 0 };
	uint8_t *buf = ck_alloc(WINDOW);
	struct ck_src *src = NULL;
	int rc = buf ? ck_src_open(ck->pool, path, &src, err) :
		 ck_fail_nomem(err, "a file", WINDOW);

	for (uint64_t at = 0, n; !rc && at < ck_src_size(src); at += n) {
		n = ck_min_u64(ck_src_size(src) - at, WINDOW);
		rc = ck_src_read(src, at, buf, n, err);
		if (!rc)
			sum = ck_hash128_add(sum, ck_digest_blocks(buf, n, at / CK_DIGEST_BLOCK));
	}
	if (!rc)
		*sum_out = sum;
	ck_src_close(src);
	ck_free(buf);
	return rc;
}

static int check_file(struct ckpt *ck, const struct ck_stated_file *f, const char *path,
		      struct ckpt_err *err)
{
	const bool said = f->bytes != UINT64_MAX;
	struct ck_hash128 is;
	enum ck_fs_kind kind;
	uint64_t bytes = 0;
	int rc = ck_look_kind(ck->pool, path, &kind, &bytes, err);

	if (!rc && kind == CK_FS_FILE && (!said || bytes == f->bytes))
		rc = sum_file(ck, path, &is, err);
	if (rc)
		return rc;
	if (kind != CK_FS_FILE)
		ck_findings_add(&ck->findings, CK_FINDING_BESIDE_CHANGED, path,
				"missing; it was written with the weights");
	else if (said && bytes != f->bytes)
		ck_findings_add(&ck->findings, CK_FINDING_BESIDE_CHANGED, path,
				"it has %" PRIu64 " bytes, but had %" PRIu64 " when it was "
				"written with the weights: it was edited since, or is damaged",
				bytes,
				f->bytes);
	else if (!ck_hash128_equal(is, f->sum))
		ck_findings_add(&ck->findings, CK_FINDING_BESIDE_CHANGED, path,
				"it differs from the file that was written with the weights: it "
				"was edited since, or is damaged");
	return 0;
}

int ck_stated_files(struct ckpt *ck, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < ck->ix.nstated_files; i++) {
		const struct ck_stated_file *f = &ck->ix.stated_file[i];
		char *path;

		if (f->compared)
			continue;
		path = ck_fs_join(f->dir, f->name);
		rc = path ? check_file(ck, f, path, err) : ck_fail_nomem(err, "a file name", 0);
		ck_free(path);
	}
	return rc;
}

/* ---- */

static int add_piece(const struct ckpt *ck, const struct ck_stated_sum *s, struct ck_plan *plan,
		     struct ckpt_err *err)
{
	const struct ck_state *state = &ck->ix.state[s->state];
	const struct ck_slot slot = { .name = "", .state = "", .fill = UINT64_MAX, .whole = 1 };
	uint64_t first, count;
	uint32_t number;
	int rc = ck_plan_slot(plan, &slot, &number, err);

	if (rc || !ck_stated_blocks(&ck->ix, s, &first, &count))
		return rc;
	return ck_plan_state(plan, &ck->ix, s->state, (enum ckpt_dtype)state->dtype, first, count,
			     number, err);
}

/* Slot 0 is the whole of all pieces, which nobody asks for; slot i + 1 is piece i. */
static int make_plan(const struct ckpt *ck, const bool *done, struct ck_plan *plan,
		     struct ckpt_err *err)
{
	const struct ck_slot all = {
		.name = "", .state = "", .dtype = CKPT_U8, .fill = UINT64_MAX,
	};
	uint32_t number;
	int rc = ck_plan_file(plan, "sums", err);

	if (!rc)
		rc = ck_plan_slot(plan, &all, &number, err);
	for (uint64_t i = 0; !rc && i < ck->ix.nstated_sums; i++)
		if (!done[i])
			rc = add_piece(ck, &ck->ix.stated_sum[i], plan, err);
	return rc ? rc : ck_plan_finish(plan, err);
}

/* ---- the ends of pieces that cut blocks ---- */

struct ends {
	struct ckpt *ck;
	struct ck_reader *reader;
	struct ck_hasher *hash;
	uint8_t block[CK_DIGEST_BLOCK];
	uint8_t *scratch;
};

static int add_run(struct ends *e, const struct ck_stated_sum *s, uint64_t from, uint64_t to,
		   struct ckpt_err *err)
{
	const struct ck_state *state = &e->ck->ix.state[s->state];
	const enum ckpt_dtype dtype = (enum ckpt_dtype)state->dtype;
	int rc = 0;

	if (to > from)
		rc = ck_reader_read(e->reader, state, from, to - from, dtype, e->block, e->scratch,
				    NULL, err);
	if (!rc && to > from)
		ck_hasher_add(e->hash, e->block, (to - from) * (ckpt_dtype_bits(dtype) / 8));
	return rc;
}

static int check_ends(struct ends *e, const struct ck_stated_sum *s, struct ckpt_err *err)
{
	uint64_t first, count, end = s->first + s->count;
	const bool some = ck_stated_blocks(&e->ck->ix, s, &first, &count);
	int rc;

	ck_hasher_reset(e->hash);
	/* without a whole block there are at most two that it cuts, one behind the other */
	rc = add_run(e, s, s->first, ck_min_u64(first, end), err);
	if (!rc)
		rc = add_run(e, s, some ? first + count : ck_min_u64(first, end), end, err);
	if (!rc && !ck_hash128_equal(ck_hasher_sum(e->hash), s->ends))
		ck_stated_wrong(&e->ck->findings, &e->ck->ix, s);
	return rc;
}

static int check_all_ends(struct ckpt *ck, const bool *done, struct ckpt_err *err)
{
	struct ends e = { .ck = ck, .hash = ck_hasher_new(), .scratch = ck_alloc(CK_READ_SCRATCH) };
	int rc = e.hash && e.scratch ? ck_reader_new(&ck->ix, &ck->limits, 0, &e.reader, err) :
		 ck_fail_nomem(err, "a hash", CK_READ_SCRATCH);

	for (uint64_t i = 0; !rc && i < ck->ix.nstated_sums; i++)
		if (!done[i] && ck->ix.stated_sum[i].has_ends)
			rc = check_ends(&e, &ck->ix.stated_sum[i], err);
	ck_reader_free(e.reader);
	ck_hasher_free(e.hash);
	ck_free(e.scratch);
	return rc;
}

/* Those that cannot be compared as they pass: strided, of another byte order. */
static int check_others(struct ckpt *ck, const bool *done, const struct ckpt_run_opts *run,
			struct ckpt_err *err)
{
	struct ck_plan plan = CK_PLAN_INIT;
	struct ck_run_stats stats = { 0 };
	const struct ck_run_job job = {
		.ix = &ck->ix, .plan = &plan, .limits = &ck->limits, .opts = run,
		.to = CK_RUN_NOWHERE, .nparts = 1, .fd = -1,
	};
	int rc = make_plan(ck, done, &plan, err);

	if (!rc)
		rc = ck_run(&job, &stats, err);
	for (uint64_t i = 0; !rc && i < ck->ix.nstated_sums; i++)
		if (!done[i] &&
		    !ck_stated_is(&ck->ix, &ck->ix.stated_sum[i], stats.digest[i + 1]))
			ck_stated_wrong(&ck->findings, &ck->ix, &ck->ix.stated_sum[i]);
	ck_free(stats.digest);
	ck_plan_release(&plan);
	return rc ? rc : check_all_ends(ck, done, err);
}

struct compared {
	const struct ck_index *ix;
	bool *done, *bad;	/* of each sum */
};

static int note_piece(void *arg, const struct ck_sum_check_piece *piece, struct ckpt_err *err)
{
	const struct compared *c = arg;
	const uint64_t i = (uint64_t)(piece->says - c->ix->stated_sum);

	(void)err;
	c->done[i] = true;
	c->bad[i] = !piece->good;
	return 0;
}

static int compare(struct ckpt *ck, struct ck_sum_check *passed, const struct ckpt_run_opts *run,
		   const struct compared *c, struct ckpt_err *err)
{
	const uint64_t n = ck->ix.nstated_sums;
	const struct ck_sum_check_ask ask = {
		.rest = CK_REST_WANTED, .threads = run->threads, .cancel = run->cancel,
	};
	uint64_t left = 0;
	int rc;

	for (uint32_t i = 0; i < ck->ix.nsources; i++)
		ck_sum_check_want_source(passed, i);
	rc = ck_sum_check_each(passed, &ask, note_piece, (void *)c, err);
	for (uint64_t i = 0; !rc && i < n; i++) {
		left += !c->done[i];
		if (c->bad[i])
			ck_stated_wrong(&ck->findings, &ck->ix, &ck->ix.stated_sum[i]);
	}
	return rc || !left ? rc : check_others(ck, c->done, run, err);
}

int ck_stated_sums(struct ckpt *ck, struct ck_sum_check *passed, const struct ckpt_run_opts *run,
		   struct ckpt_err *err)
{
	const uint64_t n = ck->ix.nstated_sums;
	struct compared c = { .ix = &ck->ix };
	int rc;

	if (!n)
		return 0;
	c.done = ck_zalloc(n * sizeof(*c.done));
	c.bad = ck_zalloc(n * sizeof(*c.bad));
	rc = c.done && c.bad ? compare(ck, passed, run, &c, err) :
	     ck_fail_nomem(err, "sums of pieces", n);
	ck_free(c.done);
	ck_free(c.bad);
	return rc;
}
