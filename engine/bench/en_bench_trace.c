/* en_bench_trace.c -- the spans of all ranks in one file; see en_bench.h. */
#include <stdio.h>
#include <string.h>

#include "engine/bench/en_bench.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_small_file.h"

#define MOST_BYTES ((size_t)1 << 30)

/* A span as it travels. */
struct record {
	char what[32];
	double from, to;
	int32_t number;
	uint8_t row, waits, is_there;
};

int en_bench_file_write(const char *path, const char *text, uint64_t len, struct ckpt_err *err)
{
	struct ck_small_file h = { .fd = -1 };
	int rc = ck_small_file_begin(&h, path, ".partial", err);

	if (!rc)
		rc = ck_small_file_write(&h, text, len, err);
	if (!rc)
		rc = ck_small_file_place(&h, true, CKPT_SYNC_NONE, err);
	ck_small_file_drop(&h);
	return rc;
}

static void pack(const struct en_span *s, uint32_t n, struct record *r)
{
	for (uint32_t i = 0; i < n; i++) {
		snprintf(r[i].what, sizeof(r[i].what), "%s", s[i].what);
		r[i].from = s[i].from;
		r[i].to = s[i].to;
		r[i].number = s[i].number;
		r[i].row = (uint8_t)s[i].row;
		r[i].waits = s[i].waits;
		r[i].is_there = 1;
	}
}

/* Of one rank, as long as what is there. */
static int add_rank(struct ck_buf *buf, uint32_t rank, const struct record *r, uint32_t most,
		    struct en_span *span, struct ckpt_err *err)
{
	uint32_t n = 0;

	for (; n < most && r[n].is_there; n++)
		span[n] = (struct en_span){
			.what = r[n].what, .number = r[n].number, .waits = r[n].waits,
			.row = (enum en_trace_row)(r[n].row % EN_TRACE_ROWS),
			.from = r[n].from, .to = r[n].to,
		};
	return en_trace_chrome(buf, rank, span, n, !rank, err);
}

static int write_all(const char *path, uint32_t ranks, const struct record *all, uint32_t most,
		     struct ckpt_err *err)
{
	struct ck_buf buf = CK_BUF_INIT(MOST_BYTES);
	struct en_span *span = ck_alloc_array(most + 1ull, sizeof(*span));
	int rc = span ? ck_buf_adds(&buf, "{\"traceEvents\": [\n", err) :
		 ck_fail_nomem(err, "a timeline", most);

	for (uint32_t i = 0; !rc && i < ranks; i++)
		rc = add_rank(&buf, i, all + (uint64_t)i * most, most, span, err);
	if (!rc)
		rc = ck_buf_adds(&buf, "\n]}\n", err);
	if (!rc)
		rc = en_bench_file_write(path, buf.p, buf.len, err);
	ck_buf_release(&buf);
	ck_free(span);
	return rc;
}

int en_bench_trace_write(const char *path, struct en_comm *comm, const struct en_trace *trace,
			 struct ckpt_err *err)
{
	uint32_t n;
	const struct en_span *span = en_trace_spans(trace, &n);
	struct record *own = NULL, *all = NULL;
	double most = n;
	int rc = en_comm_all_reduce(comm, &most, KN_NUM_F64, 1, EN_COMM_MAX, NULL, err);

	if (rc)
		return rc;
	own = ck_zalloc(((uint64_t)most + 1) * sizeof(*own));
	all = ck_zalloc(((uint64_t)most + 1) * comm->size * sizeof(*all));
	if (!own || !all)
		rc = ck_fail_nomem(err, "a timeline", (uint64_t)most * sizeof(*own));
	if (!rc)
		pack(span, n, own);
	if (!rc)
		rc = en_comm_gather_small(comm, all, own, ((uint64_t)most + 1) * sizeof(*own), NULL,
					  err);
	if (!rc && !comm->rank)
		rc = write_all(path, comm->size, all, (uint32_t)most + 1, err);
	ck_free(own);
	ck_free(all);
	return rc;
}
