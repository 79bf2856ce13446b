/* zt_bench_json.c -- what ztrain bench found, as one object. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/en_json.h"
#include "engine/main/zt_bench.h"

#define MOST ((size_t)1 << 20)

/* JSON has no infinity. */
static int add_number(struct ck_buf *buf, const char *name, double v, struct ckpt_err *err)
{
	char text[EN_DOUBLE_TEXT];

	en_double_text(v, text);
	return ck_buf_addf(buf, err, "\"%s\": %s", name, isfinite(v) ? text : "null");
}

static int add_numbers(struct ck_buf *buf, const struct zt_measured *m, struct ckpt_err *err)
{
	const struct en_bench *r = &m->bench;
	const struct {
		const char *name;
		double v;
	} all[] = {
		{ "seconds", r->step.median }, { "seconds_low", r->step.low },
		{ "seconds_high", r->step.high }, { "seconds_least", r->step.least },
		{ "seconds_most", r->step.most }, { "tokens_per_second", r->tokens_per_s },
		{ "flop_per_token", r->flop_per_token }, { "mfu", m->mfu }, { "loss", r->loss },
		{ "traced_seconds", r->traced ? r->traced_step : NAN },
		{ "waited_gathers", r->traced ? r->wait_gather : NAN },
		{ "waited_reductions", r->traced ? r->wait_reduce : NAN },
		{ "waited_else", r->traced ? r->wait_other : NAN },
	};
	int rc = 0;

	for (size_t i = 0; !rc && i < sizeof(all) / sizeof(all[0]); i++) {
		rc = ck_buf_adds(buf, ", ", err);
		if (!rc)
			rc = add_number(buf, all[i].name, all[i].v, err);
	}
	return rc;
}

static int add_memory(struct ck_buf *buf, const char *name, const uint64_t *bytes, uint64_t total,
		      struct ckpt_err *err)
{
	int rc = ck_buf_addf(buf, err, ", \"%s\": {", name);

	for (int k = 0; !rc && k < EN_MEM_KINDS; k++)
		if (bytes[k])
			rc = ck_buf_addf(buf, err, "\"%s\": %" PRIu64 ", ",
					 en_mem_name((enum en_mem_kind)k), bytes[k]);
	return rc ? rc : ck_buf_addf(buf, err, "\"total\": %" PRIu64 "}", total);
}

static int add_sent(struct ck_buf *buf, const struct en_bench *r, struct ckpt_err *err)
{
	int rc = ck_buf_adds(buf, ", \"sent\": {", err);
	const char *comma = "";

	for (int k = 0; !rc && k < EN_COMM_KINDS; k++) {
		rc = ck_buf_addf(buf, err, "%s\"%s\": %" PRIu64, comma,
				 en_comm_kind_name((enum en_comm_kind)k), r->sent[k]);
		comma = ", ";
	}
	return rc ? rc : ck_buf_adds(buf, "}", err);
}

static int add_measured(struct ck_buf *buf, const struct zt_measured *m, struct ckpt_err *err)
{
	const struct en_bench *r = &m->bench;
	int rc = ck_buf_addf(buf, err, ", \"micro_batches\": %u, \"steps\": %u",
			     r->zero.micro_batches, r->steps);

	if (!rc)
		rc = add_numbers(buf, m, err);
	if (!rc)
		rc = add_sent(buf, r, err);
	if (!rc)
		rc = add_memory(buf, "held", r->mem.peak, r->mem.total_peak, err);
	if (!rc)
		rc = add_memory(buf, "expected", r->expected.peak, r->expected.total_peak, err);
	if (!rc && m->plan.is_there)
		rc = add_memory(buf, "plan", m->plan.bytes, m->plan.total, err);
	if (!rc)
		rc = ck_buf_addf(buf, err, ", \"peak_least\": %" PRIu64 ", \"peak_most\": %" PRIu64,
				 r->peak_least, r->peak_most);
	if (!rc && r->has_device)
		rc = ck_buf_addf(buf, err, ", \"device_used\": %" PRIu64 ", \"device_bytes\": %"
				 PRIu64, r->device_used, r->device_all);
	return rc;
}

static int add_run(struct ck_buf *buf, const struct zt_measured *m, struct ckpt_err *err)
{
	int rc = ck_buf_addf(buf, err, "{\"stage\": %u, \"ran\": %s, \"rows\": %u", m->stage,
			     m->ran ? "true" : "false", m->ran ? m->rows : 0);

	if (!rc && m->fit_bytes)
		rc = ck_buf_addf(buf, err, ", \"fit_bytes\": %" PRIu64, m->fit_bytes);
	if (!rc && m->gave_up)
		rc = ck_buf_addf(buf, err, ", \"should_have_fitted\": %u", m->gave_up);
	if (!rc && m->ran)
		rc = add_measured(buf, m, err);
	return rc ? rc : ck_buf_adds(buf, "}", err);
}

static int add_head(struct ck_buf *buf, const struct zt_bench *b, struct ckpt_err *err)
{
	const struct zt_program *p = b->p;
	const char *device = b->run[0].bench.device;
	int rc = ck_buf_addf(buf, err, "{\"model\": \"%s\", \"parameters\": %" PRIu64
			     ", \"ranks\": %u, \"tokens\": %u, \"device\": ",
			     en_arch_name(p->model->config.arch), p->model->numel, p->comm->size,
			     b->tokens);

	if (!rc)
		rc = *device ? ck_buf_add_json(buf, device, strlen(device), err) :
		     ck_buf_adds(buf, "\"cpu\"", err);
	if (!rc)
		rc = ck_buf_adds(buf, ", ", err);
	return rc ? rc : add_number(buf, "peak_flop_per_second", b->peak, err);
}

static int add_advice(struct ck_buf *buf, const struct zt_bench *b, struct ckpt_err *err)
{
	int rc;

	if (!b->p->args.stages)
		return 0;
	rc = ck_buf_addf(buf, err, ", \"limit_bytes\": %" PRIu64 ", \"recommended\": ", b->limit);
	if (!rc && b->best < b->n)
		rc = ck_buf_addf(buf, err, "%u", b->run[b->best].stage);
	else if (!rc)
		rc = ck_buf_adds(buf, "null", err);
	if (!rc)
		rc = ck_buf_adds(buf, ", \"why\": ", err);
	return rc ? rc : ck_buf_add_json(buf, b->advice, strlen(b->advice), err);
}

int zt_bench_json(const struct zt_bench *b, struct ckpt_err *err)
{
	struct ck_buf buf = CK_BUF_INIT(MOST);
	int rc = add_head(&buf, b, err);

	if (!rc)
		rc = ck_buf_adds(&buf, ", \"runs\": [", err);
	for (uint32_t i = 0; !rc && i < b->n; i++) {
		if (i)
			rc = ck_buf_adds(&buf, ", ", err);
		if (!rc)
			rc = add_run(&buf, &b->run[i], err);
	}
	if (!rc)
		rc = ck_buf_adds(&buf, "]", err);
	if (!rc)
		rc = add_advice(&buf, b, err);
	if (!rc)
		rc = ck_buf_adds(&buf, "}", err);
	if (!rc && (puts(buf.p) < 0 || fflush(stdout))) {
		err->code = CKPT_E_IO;
		snprintf(err->where, sizeof(err->where), "standard output");
		snprintf(err->msg, sizeof(err->msg), "%s", strerror(errno));
		rc = -CKPT_E_IO;
	}
	ck_buf_release(&buf);
	return rc;
}
