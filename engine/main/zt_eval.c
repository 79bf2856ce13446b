/* zt_eval.c -- ztrain eval: the loss of a step or a model, by the run that would train it. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/en_json.h"
#include "engine/main/zt_program.h"
#include "engine/main/zt_say.h"

/* config.json of the step, beside it, or of the model. */
static int find_config(struct zt_program *p, const char *tag, struct ckpt_err *err)
{
	static char path[ZT_PATH];	/* lent to p->args.model */
	const char *of = p->args.eval_of;

	if (p->args.model)
		return 0;
	for (int inner = tag != NULL; inner >= 0; inner--) {
		snprintf(path, sizeof(path), "%s%s%s/config.json", of, inner ? "/" : "",
			 inner ? tag : "");
		if (!access(path, R_OK)) {
			p->args.model = path;
			return 0;
		}
	}
	err->code = CKPT_E_NOTFOUND;
	snprintf(err->where, sizeof(err->where), "%.300s", of);
	snprintf(err->msg, sizeof(err->msg), "no config.json in it: give the model's folder by "
		 "--model");
	return -CKPT_E_NOTFOUND;
}

/* What the run trained: its adapters are part of the model. */
static void take_trained(struct zt_program *p)
{
	struct zt_args *a = &p->args;

	if (a->lora || a->lora_from || a->freeze.n)
		return;
	if (*p->step.lora)
		a->lora = p->step.lora;
	for (char *pattern = strtok(p->step.freeze, " "); pattern; pattern = strtok(NULL, " "))
		words_add(&a->freeze, pattern);
}

/* What neither an option nor --config says is as in the run that saved the step. */
static void take_settings(struct zt_program *p)
{
	struct zt_args *a = &p->args;

	take_trained(p);
	if (!a->seq)
		a->seq = p->step.tokens;
	if (!a->config && !a->micro_batch)
		a->micro_batch = p->step.rows;
	if (!a->config && !a->precision)
		a->precision = p->step.precision;
	if (a->config)
		p->step.stage = 0;
}

static const char *precision_of(const struct zt_program *p)
{
	return p->config.set.precision == EN_BF16 ? "bf16" :
	       p->config.set.precision == EN_FP16 ? "fp16" : "fp32";
}

/* JSON has no infinities and no NaN: they are written in quotes, as in a log. */
static const char *number(double v, char out[EN_DOUBLE_TEXT + 2])
{
	char text[EN_DOUBLE_TEXT];

	en_double_text(v, text);
	snprintf(out, EN_DOUBLE_TEXT + 2, isfinite(v) ? "%s" : "\"%s\"", text);
	return out;
}

static void print_text(const char *s)
{
	putchar('"');
	for (const unsigned char *c = (const unsigned char *)s; *c; c++)
		if (*c == '"' || *c == '\\')
			printf("\\%c", *c);
		else if (*c < 0x20)
			printf("\\u%04x", *c);
		else
			putchar(*c);
	putchar('"');
}

static void print_json(const struct zt_program *p, const struct en_ran *ran)
{
	char loss[EN_DOUBLE_TEXT + 2], exponent[EN_DOUBLE_TEXT + 2], time[EN_DOUBLE_TEXT + 2];

	printf("{\"of\": ");
	print_text(p->args.eval_of);
	if (ran->tag) {
		printf(", \"tag\": ");
		print_text(ran->tag);
	}
	if (ran->at.steps)
		printf(", \"step\": %" PRId64, ran->at.steps);
	printf(", \"data\": ");
	print_text(p->args.data);
	printf(", \"loss\": %s, \"perplexity\": %s, \"tokens\": %" PRIu64 ", \"rows\": %" PRIu64
	       ", \"row_tokens\": %" PRIu32 ", \"micro_batch\": %" PRId64
	       ", \"precision\": \"%s\", \"ranks\": %" PRIu32 ", \"seconds\": %s}\n",
	       number(ran->eval_loss, loss), number(exp(ran->eval_loss), exponent),
	       ran->eval_tokens, p->held_rows, p->data.info.tokens, p->config.set.micro_batch,
	       precision_of(p), p->comm->size, number(ran->eval_seconds, time));
}

static void print_result(const struct zt_program *p, const struct en_ran *ran)
{
	char line[ZT_PATH + 64];

	if (!p->args.quiet) {
		snprintf(line, sizeof(line), "%s%s%s", p->args.eval_of, ran->tag ? "/" : "",
			 ran->tag ? ran->tag : "");
		zt_say_line(stdout, line);
		if (ran->at.steps)
			printf("step %" PRId64 ", ", ran->at.steps);
		printf("%s, %" PRIu64 " row%s of %" PRIu32 " tokens in %s, micro-batches of %"
		       PRId64 ", %" PRIu32 " rank%s, %.3g s\n", precision_of(p), p->held_rows,
		       zt_plural(p->held_rows), p->data.info.tokens, p->args.data,
		       p->config.set.micro_batch, p->comm->size, zt_plural(p->comm->size),
		       ran->eval_seconds);
	}
	printf(p->args.exact ? "eval loss %.17g  perplexity %.17g" :
			       "eval loss %.4f  perplexity %.4g",
	       ran->eval_loss, exp(ran->eval_loss));
	printf("  %" PRIu64 " tokens\n", ran->eval_tokens);
}

static int evaluate(struct zt_program *p, struct ckpt_err *err)
{
	struct en_run_opts o = zt_run_opts(p);
	struct en_ran ran;
	int rc;

	o.eval_only = true;
	o.on_start = NULL;
	o.on_step = NULL;
	o.rank_memory = false;
	rc = en_run(&o, &ran, err);
	if (rc)
		return rc;
	if (!p->comm->rank && p->args.json)
		print_json(p, &ran);
	else if (!p->comm->rank)
		print_result(p, &ran);
	if (p->args.counters)
		zt_tell_counters(p, &ran.mem);
	return 0;
}

int zt_eval(struct zt_program *p, struct ckpt_err *err)
{
	const bool quiet = p->args.quiet;
	const char *tag;
	int rc = zt_find_beginning(p, err);

	if (rc)
		return rc;
	tag = p->found.n ? p->found.tag[0] : NULL;
	rc = find_config(p, tag, err);
	if (!rc)
		rc = en_step_settings_read(p->from, tag, &p->step, err);
	if (rc)
		return rc;
	take_settings(p);
	rc = zt_open_model(p, err);
	p->args.quiet = true;	/* the screen of a configuration is of a run */
	if (!rc)
		rc = zt_config_read(p, err);
	p->args.quiet = quiet;
	if (!rc)
		en_model_hold(p->model);
	if (!rc)
		rc = zt_choose_threads(p, err);
	if (!rc)
		rc = zt_data_open(p, err);
	p->runs = !rc;
	return rc ? rc : evaluate(p, err);
}
