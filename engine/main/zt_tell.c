/* zt_tell.c -- what ztrain says: settings, beginning, steps, end; on rank 0, and in the log. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/main/zt_program.h"
#include "engine/main/zt_say.h"
#include "libckpt/base/ck_clock.h"

static bool speaks(const struct zt_program *p)
{
	return !p->comm->rank && !p->args.quiet;
}

void zt_tell_config(struct zt_program *p)
{
	const char *const *line;
	size_t n;

	if (!speaks(p) || en_config_screen(&p->config, 0, &line, &n, NULL))
		return;
	for (size_t i = 0; i < n; i++)
		zt_say_line(stdout, line[i]);
	fflush(stdout);		/* before what is printed on stderr */
}

/* ---- the beginning ---- */

/*
 * A run that resumes continues its log; a new one has a new log.  By --resume auto one that was
 * killed before its first save begins again: so does its log.
 */
static int open_log(struct zt_program *p, const struct en_start_report *b, struct ckpt_err *err)
{
	struct en_log_found found;
	int rc;

	if (!p->args.log || p->comm->rank)
		return 0;
	p->resumed = b->resumed;
	rc = en_log_open(&p->log, p->args.log, b->resumed ? b->at.steps :
			 p->find.newest ? 0 : EN_LOG_NEW, &found, err);
	if (!rc && b->resumed && found.last_step < b->at.steps)
		fprintf(stderr,
			"ztrain: %s ends at step %" PRId64 ", the run resumes after step %" PRId64
			": the steps between are missing in the log\n",
			p->args.log, found.last_step, b->at.steps);
	return rc;
}

static uint64_t params_of(const struct en_model *m)
{
	return m->numel;
}

#define RATE 1e9	/* bytes a second and rank, that files are assumed to take */

/* With less memory than the state a save takes from the steps what files take for the rest. */
static void tell_buffer(const struct zt_program *p, const struct en_start_report *b)
{
	const uint64_t buffer = p->args.save_buffer_bytes;
	const double rest = (double)b->save_bytes - (double)buffer;

	if (buffer && rest > 0)
		printf("a save writes %.1f MB per rank through a buffer of %.1f MB: the other %.1f "
		       "MB delay training by up to %.3g s, if each rank writes %.0f GB/s (assumed, "
		       "not measured)\n",
		       (double)b->save_bytes / 1e6, (double)buffer / 1e6, rest / 1e6, rest / RATE,
		       RATE / 1e9);
}

int zt_tell_beginning(void *arg, const struct en_start_report *b, struct ckpt_err *err)
{
	struct zt_program *p = arg;
	const struct en_settings *set = &p->config.set;

	zt_wait_for(&p->wait, "first step");
	/* With --quiet, too: the lines on which this run differs from that of the step. */
	for (uint32_t i = 0; !p->comm->rank && i < b->differ->n; i++)
		zt_say_line(p->args.quiet ? stderr : stdout, b->differ->line[i]);
	if (speaks(p)) {
		printf("%s, %" PRIu64 " parameters, %s, ZeRO-%" PRId64 ", %u rank%s x %" PRId64
		       " thread%s\n", en_arch_name(p->model->config.arch), params_of(p->model),
		       set->precision == EN_BF16 ? "bf16" :
		       set->precision == EN_FP16 ? "fp16" : "fp32", set->stage, p->comm->size,
		       p->comm->size == 1 ? "" : "s", p->args.threads,
		       p->args.threads == 1 ? "" : "s");
		zt_adapt_tell(p);
		if (*p->model->config.noted)
			printf("config.json: unknown keys, ignored since they are off: %s\n",
			       p->model->config.noted);
		printf("%" PRIu64 " row%s of %u tokens%s%s", p->data.rows, zt_plural(p->data.rows),
		       p->data.info.tokens, p->args.data ? " in " : ", synthetic",
		       p->args.data ? p->args.data : p->args.synthetic ? "" : " (no --data)");
		if (p->data.info.packed)
			printf(", packed: attention stops between documents");
		if (p->held_rows)
			printf("; %" PRIu64 " evaluation row%s", p->held_rows,
			       zt_plural(p->held_rows));
		putchar('\n');
		if (p->args.epochs > 0)
			printf("%g epoch%s: %" PRId64 " step%s\n", p->args.epochs,
			       p->args.epochs == 1 ? "" : "s", p->args.steps,
			       p->args.steps == 1 ? "" : "s");
		if (*b->device)
			printf("on %s\n", b->device);
		if (*b->drive)
			printf("masters and moments in %s, by %s\n",
			       set->offload_optimizer.nvme_path, b->drive);
		if (b->resumed)
			printf("resumed at step %" PRId64 " from %s%s%s, %" PRIu64
			       " bytes read by all ranks in %.3f s\n", b->at.steps, p->from,
			       b->tag ? "/" : "", b->tag ? b->tag : "", b->read_bytes,
			       b->read_seconds);
		else if (p->from)
			printf("weights from %s\n", p->from);
		else
			printf("random weights of seed %" PRId64 "\n", p->args.seed);
		if (set->precision == EN_FP16 && !p->as_deepspeed)
			puts("fp16: gradients are divided by all micro-batches before rounding, so "
			     "a step is skipped at a larger loss scale than in DeepSpeed; "
			     "--overflow deepspeed skips the same steps");
		puts(b->bits);
		if (!p->args.save && !p->args.export)
			puts("the result is not kept: neither --save nor --export is given");
		tell_buffer(p, b);
		fflush(stdout);
	}
	return open_log(p, b, err);
}

/* ---- steps ---- */

static struct en_log_step log_step(const struct en_step_report *s)
{
	return (struct en_log_step){
		.step = s->at.steps, .loss = s->loss, .lr = s->lr, .grad_norm = s->grad_norm,
		.loss_scale = s->loss_scale == 1 ? 0 : s->loss_scale, .skipped = s->skipped,
		.samples = s->at.samples, .rows = (int64_t)s->rows,
		.tokens = (int64_t)s->tokens, .seconds = s->seconds,
		.memory = s->mem->total_peak, .has_eval = s->has_eval, .eval_loss = s->eval_loss,
	};
}

/* Memory of ranks, where it differs from the line before. */
static void add_ranks(struct zt_program *p, const struct en_step_report *s,
		      struct en_log_step *line)
{
	const uint32_t n = p->comm->size;
	const size_t bytes = n * sizeof(double);

	line->ranks = n;
	if (!s->rank_memory)
		return;
	if (!p->logged) {
		p->logged = calloc(2 * (size_t)n, sizeof(double));
		line->rank_memory = s->rank_memory;
		line->rank_device = s->rank_device;
	} else {
		if (memcmp(p->logged, s->rank_memory, bytes) != 0)
			line->rank_memory = s->rank_memory;
		if (s->rank_device && memcmp(p->logged + n, s->rank_device, bytes) != 0)
			line->rank_device = s->rank_device;
	}
	if (p->logged)
		memcpy(p->logged, s->rank_memory, bytes);
	if (p->logged && s->rank_device)
		memcpy(p->logged + n, s->rank_device, bytes);
}

static double wall_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void print_exact(const struct en_step_report *s)
{
	printf("step %" PRId64 "  loss %.17g  lr %.17g  norm %.17g", s->at.steps, s->loss, s->lr,
	       s->grad_norm);
	if (s->loss_scale != 1 || s->skipped)
		printf("  scale %.6g%s", s->loss_scale, s->skipped ? "  skipped" : "");
	if (s->has_eval)
		printf("  eval loss %.17g", s->eval_loss);
	putchar('\n');
}

/* A full disk ends no run: it is said once, and how much is missing at the end. */
static void write_log(struct zt_program *p, const struct en_log_step *line)
{
	struct ckpt_err err = { 0 };

	if (!p->log || !en_log_write(p->log, line, &err))
		return;
	if (!p->unlogged++)
		zt_say("ztrain: ", "%s: %s; the run continues without a log", p->args.log, err.msg);
}

/* Of this call. */
static int64_t last_step(const struct zt_program *p)
{
	const int64_t stop = p->args.stop_at, steps = p->args.steps;

	return stop && stop < steps ? stop : steps;
}

static bool is_printed(const struct zt_program *p, const struct en_step_report *s)
{
	const int64_t every = p->args.print_every ? p->args.print_every : 1;

	return !p->args.quiet &&
	       (s->at.steps % every == 0 || s->has_eval || s->at.steps == last_step(p));
}

void zt_tell_step(void *arg, const struct en_step_report *s)
{
	struct zt_program *p = arg;
	struct en_log_step line = log_step(s);
	char text[EN_LOG_CONSOLE];

	if (p->comm->rank)
		return;
	line.left = en_left_add(&p->left, ck_clock_seconds(), s->at.steps, last_step(p));
	zt_wait_for(&p->wait, "since step %" PRId64, s->at.steps);
	if (p->log)
		add_ranks(p, s, &line);
	line.time = wall_clock();
	line.resumed = p->resumed;
	p->resumed = false;
	write_log(p, &line);
	if (!is_printed(p, s))
		return;
	if (p->args.exact) {
		print_exact(s);
	} else {
		en_log_console(&line, p->args.steps, text);
		puts(text);
	}
	fflush(stdout);
}

/* ---- the end ---- */

/* What was counted, kind by kind, and what the system saw. */
static void tell_memory(uint32_t rank, const struct en_mem *mem)
{
	uint64_t peak, now;

	for (uint32_t k = 0; k < EN_MEM_KINDS; k++)
		if (mem->peak[k])
			printf("rank %u  held  %-14s %" PRIu64 " bytes\n", rank,
			       en_mem_name((enum en_mem_kind)k), mem->peak[k]);
	printf("rank %u  held  %-14s %" PRIu64 " bytes\n", rank, "total", mem->total_peak);
	if (en_mem_resident(&peak, &now))
		printf("rank %u  resident peak  %" PRIu64 " bytes (VmHWM)\n", rank, peak);
}

void zt_tell_counters(const struct zt_program *p, const struct en_mem *mem)
{
	const struct en_comm *c = p->comm;

	for (uint32_t k = 0; k < EN_COMM_KINDS; k++)
		if (c->counter[k].calls)
			printf("rank %u  sent  %-14s %" PRIu64 " bytes in %" PRIu64 " message%s\n",
			       c->rank, en_comm_kind_name((enum en_comm_kind)k),
			       c->counter[k].sent, c->counter[k].messages,
			       zt_plural(c->counter[k].messages));
	tell_memory(c->rank, mem);
}

/* The lowest evaluation, where it decides something. */
static void tell_best(const struct zt_program *p, const struct en_ran *ran)
{
	if (ran->gave_up)
		printf("ended after step %" PRId64 ": %" PRId64 " evaluation%s in a row not lower "
		       "(--patience)\n", ran->at.steps, ran->best.unfallen,
		       zt_plural((uint64_t)ran->best.unfallen));
	if ((p->args.keep_best || p->args.patience) && ran->best.step)
		printf(p->args.exact ? "lowest eval loss %.17g after step %" PRId64 "%s%s%s\n" :
				       "lowest eval loss %.4f after step %" PRId64 "%s%s%s\n",
		       ran->best.loss, ran->best.step, p->args.keep_best ? ", named by " : "",
		       p->args.keep_best ? p->args.save : "", p->args.keep_best ? "/best" : "");
}

static void tell_over(const struct zt_program *p, const struct en_ran *ran)
{
	printf("no steps left to train after step %" PRId64, ran->at.steps);
	if (ran->has_eval)
		printf(p->args.exact ? "; eval loss %.17g" : "; eval loss %.4f", ran->eval_loss);
	putchar('\n');
}

void zt_tell_end(struct zt_program *p, const struct en_ran *ran)
{
	struct ckpt_err err = { 0 };

	zt_wait_end(&p->wait);
	if (!p->comm->rank && ran->was_over && (ran->has_eval || !p->args.quiet))
		tell_over(p, ran);
	if (en_log_close(p->log, &err))
		zt_say("ztrain: ", "%s: %s", p->args.log, err.msg);
	p->log = NULL;
	if (p->unlogged)
		fprintf(stderr, "ztrain: %" PRIu64 " step%s could not be written to %s\n",
			p->unlogged, zt_plural(p->unlogged), p->args.log);
	if (speaks(p) && ran->saves)
		printf("%" PRIu64 " save%s delayed training by %.3f s; %s %" PRIu64
		       " bytes to %s in %.3f s\n",
		       ran->saves, ran->saves == 1 ? "" : "s", ran->save_seconds,
		       ran->saves == 1 ? "it wrote" : "the last one wrote", ran->saved.file_bytes,
		       p->args.save, ran->last_save_seconds);
	if (speaks(p))
		tell_best(p, ran);
	if (speaks(p) && ran->stopped)
		printf("stopped by a signal after step %" PRId64 "%s\n", ran->at.steps,
		       p->args.save ? ", saved" : "");
	if (speaks(p))
		zt_export_tell(p, ran);
	if (p->args.counters)
		zt_tell_counters(p, &ran->mem);
	if (p->args.counters && ran->exported)
		printf("rank %u  wrote %-14s %" PRIu64 " bytes\n", p->comm->rank, "weights",
		       ran->export.written_bytes);
}
