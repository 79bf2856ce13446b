/* zt_bench_tell.c -- what ztrain bench found: a table, a table of stages. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/main/zt_bench.h"
#include "engine/main/zt_say.h"

#define WIDE 32

/* 1234567 as "1,234,567". */
static const char *commas(uint64_t n, char out[WIDE])
{
	char digits[WIDE];
	const int len = snprintf(digits, sizeof(digits), "%" PRIu64, n);
	char *to = out;

	for (int i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			*to++ = ',';
		*to++ = digits[i];
	}
	*to = 0;
	return out;
}

static const char *precision(const struct en_zero_opts *z)
{
	return z->type == KN_F32 ? "fp32" : z->type == KN_BF16 ? "bf16" : "fp16";
}

static void print_head(const struct zt_bench *b, const struct en_zero_opts *z)
{
	const struct zt_program *p = b->p;
	char n[WIDE];

	printf("%s, %s parameters, %s, %u rank%s x %u thread%s, rows of %u tokens",
	       en_arch_name(p->model->config.arch), commas(p->model->numel, n), precision(z),
	       p->comm->size, p->comm->size == 1 ? "" : "s", z->threads,
	       z->threads == 1 ? "" : "s", b->tokens);
	printf("%s\n", z->recompute ? ", recomputed" : "");
	if (p->on_gpu && *b->run[0].bench.device)
		printf("on %s\n", b->run[0].bench.device);
}

/* ---- one configuration ---- */

static void print_times(const struct zt_measured *m)
{
	const struct en_bench *r = &m->bench;
	const struct en_bench_times *t = &r->step;

	printf("ZeRO-%u, %u row%s x %u micro-batch%s: %u step%s\n\n", r->zero.stage, r->zero.rows,
	       r->zero.rows == 1 ? "" : "s", r->zero.micro_batches,
	       r->zero.micro_batches == 1 ? "" : "es", r->steps, zt_plural(r->steps));
	printf("%-22s %.6f s median, quartiles %.6f to %.6f, all %.6f to %.6f\n", "a step",
	       t->median, t->low, t->high, t->least, t->most);
	printf("%-22s %.1f of a rank, %.1f of all\n", "tokens/s", r->tokens_per_s,
	       r->tokens_per_s * r->world);
	if (!isnan(m->mfu))
		printf("%-22s %.2f %% of %.4g TFLOP/s, %.6g GFLOP a token (6 N + 12 L A S)\n",
		       "MFU", 100 * m->mfu, r->tokens_per_s * r->flop_per_token / m->mfu / 1e12,
		       r->flop_per_token / 1e9);
	if (!isfinite(r->loss))
		printf("%-22s %f: not a finite loss; the timings are still valid\n", "loss",
		       r->loss);
}

static void print_waits(const struct en_bench *r)
{
	const double all = r->wait_gather + r->wait_reduce + r->wait_other;
	char n[WIDE];

	if (r->traced)
		printf("%-22s %.6f s of a step (%.1f %% of %.6f s, traced): gathers %.6f, "
		       "reductions %.6f, other %.6f\n", "waited", all,
		       r->traced_step > 0 ? 100 * all / r->traced_step : 0, r->traced_step,
		       r->wait_gather, r->wait_reduce, r->wait_other);
	if (r->lost)
		printf("%-22s %" PRIu64 " span%s not recorded: the value above is too low\n", "",
		       r->lost, zt_plural(r->lost));
	for (int k = 0; k < EN_COMM_KINDS; k++)
		if (r->sent[k])
			printf("%-22s %s bytes of a step, by %s\n", "sent", commas(r->sent[k], n),
			       en_comm_kind_name((enum en_comm_kind)k));
}

static void print_row(const char *name, uint64_t held, uint64_t expected, const struct zt_plan *p,
		      uint64_t planned)
{
	char a[WIDE], b[WIDE], c[WIDE];

	printf("%-22s %20s %20s", name, commas(held, a), commas(expected, b));
	if (p->is_there)
		printf(" %20s", commas(planned, c));
	if (held != expected || (p->is_there && planned != expected))
		printf("  not equal");
	putchar('\n');
}

static void print_memory(const struct zt_measured *m, bool offload)
{
	const struct en_bench *r = &m->bench;
	uint64_t peak, now;
	char n[WIDE], k[WIDE];

	printf("\n%-22s %20s %20s%s\n", "bytes of rank 0", "held", "expected",
	       m->plan.is_there ? "           zckpt plan" : "");
	for (int i = 0; i < EN_MEM_KINDS; i++)
		if (r->mem.peak[i] || r->expected.peak[i] || m->plan.bytes[i])
			print_row(en_mem_name((enum en_mem_kind)i), r->mem.peak[i],
				  r->expected.peak[i], &m->plan, m->plan.bytes[i]);
	print_row("total", r->mem.total_peak, r->expected.total_peak, &m->plan, m->plan.total);
	if (offload && !r->mem.peak[EN_MEM_HOST_OPTIMIZER])
		printf("%-22s has no effect: the optimizer state did not move\n", "offload");
	if (r->world > 1)
		printf("%-22s %s to %s over ranks\n", "", commas(r->peak_least, n),
		       commas(r->peak_most, k));
	if (r->has_device)
		printf("%-22s %20s of the GPU's %s in use, by the driver\n", "driver",
		       commas(r->device_used, n), commas(r->device_all, k));
	else if (en_mem_resident(&peak, &now))
		printf("%-22s %20s peak of host memory (VmHWM)\n", "resident", commas(peak, n));
}

void zt_bench_tell_table(const struct zt_bench *b)
{
	const struct zt_measured *m = &b->run[0];

	print_head(b, &m->bench.zero);
	print_times(m);
	print_waits(&m->bench);
	print_memory(m, b->p->args.offload);
	if (b->p->args.trace)
		printf("\ntimeline of %u step%s: %s\n", m->bench.traced,
		       zt_plural(m->bench.traced), b->p->args.trace);
}

/* ---- stages ---- */

/* Printed one by one: each may take a while. */
void zt_bench_tell_try(const struct zt_bench *b, const struct zt_measured *m)
{
	char one[EN_BENCH_SIZE], most[EN_BENCH_SIZE];

	en_bench_size(b->limit, most);
	if (m->gave_up && m->ran)
		printf("stage %u: %u rows were expected to fit and did not; %u did\n", m->stage,
		       m->gave_up, m->rows);
	else if (m->gave_up)
		printf("stage %u: %u row%s expected to fit and did not, nor did fewer\n", m->stage,
		       m->gave_up, m->gave_up == 1 ? "" : "s");
	else if (m->ran && m->rows == b->most)
		printf("stage %u: %u row%s, the largest number tried (--rows)\n", m->stage, m->rows,
		       m->rows == 1 ? "" : "s");
	else if (m->ran)
		printf("stage %u: %u row%s fit in %s\n", m->stage, m->rows,
		       m->rows == 1 ? "" : "s", most);
	else
		printf("stage %u: a row needs %s, and %s are free\n", m->stage,
		       en_bench_size(m->fit_bytes, one), most);
	fflush(stdout);
}

static void print_stage(const struct zt_bench *b, const struct zt_measured *m)
{
	const struct en_bench *r = &m->bench;
	char peak[EN_BENCH_SIZE], gather[EN_BENCH_SIZE], reduce[EN_BENCH_SIZE];

	if (!m->ran) {
		printf("%5u  %6s\n", m->stage, "none");
		return;
	}
	printf("%5u  %6u  %10s  %10.6f  %12.1f", m->stage, m->rows,
	       en_bench_size(r->peak_most, peak), r->step.median, r->tokens_per_s);
	if (!isnan(b->peak))
		printf("  %5.1f", 100 * m->mfu);
	printf("  %10s  %10s  %8.1f\n", en_bench_size(r->sent[EN_COMM_GATHER], gather),
	       en_bench_size(r->sent[EN_COMM_REDUCE], reduce),
	       r->traced_step > 0 ? 100 * (r->wait_gather + r->wait_reduce + r->wait_other) /
	       r->traced_step : 0);
}

void zt_bench_tell_stages(const struct zt_bench *b)
{
	for (uint32_t i = 0; i < b->n; i++)
		if (b->run[i].ran) {
			putchar('\n');
			print_head(b, &b->run[i].bench.zero);
			break;
		}
	printf("\n%5s  %6s  %10s  %10s  %12s", "stage", "rows", "held", "s a step", "tokens/s");
	if (!isnan(b->peak))
		printf("  %5s", "MFU %");
	printf("  %10s  %10s  %8s\n", "gathered", "reduced", "waited %");
	for (uint32_t i = 0; i < b->n; i++)
		print_stage(b, &b->run[i]);
	printf("\n%s%s\n", b->best < b->n ? "recommended: " : "", b->advice);
}
