/* zt_data.c -- where the rows of ztrain come from: to train on, and held out. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/main/zt_program.h"

#define SYNTHETIC_ROWS ((uint64_t)1 << 40)
#define TOKENS 64	/* of a row, where neither the data nor the caller says it */

static int fail(struct ckpt_err *err, enum ckpt_code code, const char *where, const char *what)
{
	err->code = code;
	snprintf(err->where, sizeof(err->where), "%.300s", where);
	snprintf(err->msg, sizeof(err->msg), "%s", what);
	return -(int)code;
}

static int too_long(const struct zt_program *p, uint32_t tokens, struct ckpt_err *err)
{
	char what[160];

	snprintf(what, sizeof(what), "rows of %" PRIu32 " tokens; the model's "
		 "max_position_embeddings is %" PRIu32 ": use a smaller --seq%s", tokens,
		 p->model->config.max_positions,
		 p->args.data ? ", and --cut or --pack for longer rows" : "");
	return fail(err, CKPT_E_MISMATCH, p->args.data ? p->args.data : "--seq", what);
}

static struct en_source_opts source_opts(const struct zt_program *p, const char *path)
{
	const struct zt_args *a = &p->args;

	return (struct en_source_opts){
		.kind = path ? (enum en_source_kind)a->data_kind : EN_SOURCE_SYNTHETIC,
		.vocab = p->model->config.vocab, .tokens = (uint32_t)a->seq,
		.overlap = a->overlap, .pack = a->pack, .pack_documents = a->pack_documents,
		.cut = a->cut, .pad_id = (int32_t)a->pad_id,
		.rows = a->synthetic_rows ? (uint64_t)a->synthetic_rows : SYNTHETIC_ROWS,
		.seed = (uint64_t)a->seed,
	};
}

/* Where the kind of data has no longest row, rows have TOKENS. */
static int open_source(const struct zt_program *p, const char *path, uint32_t tokens,
		       struct en_source **out, struct ckpt_err *err)
{
	struct en_source_opts o = source_opts(p, path);
	struct ckpt_err first = { 0 };
	int rc;

	if (tokens)
		o.tokens = tokens;
	if (!path && !o.tokens)
		o.tokens = TOKENS;
	rc = en_source_open(out, path ? path : "synthetic", &o, &first);
	if (rc == -CKPT_E_USAGE && !o.tokens) {
		o.tokens = TOKENS;
		return en_source_open(out, path, &o, err);
	}
	if (rc)
		*err = first;
	return rc;
}

static struct en_samples_opts samples_opts(const struct zt_program *p)
{
	const struct zt_args *a = &p->args;
	const struct en_settings *set = &p->config.set;

	return (struct en_samples_opts){
		.order = a->shuffle ? EN_ORDER_SHUFFLED : (enum en_order_kind)a->order,
		.last = (enum en_last_batch)a->tail, .sampler = (enum en_sampler)a->deal,
		.seed = (uint64_t)a->seed, .micro = (uint64_t)set->micro_batch,
		.accumulation = (uint64_t)set->accumulation, .world = p->comm->size,
	};
}

/* Units of evaluation are those of one rank, whichever rank takes them. */
static int open_held(struct zt_program *p, uint64_t train, struct ckpt_err *err)
{
	const struct zt_args *a = &p->args;
	const struct en_samples_opts order = {
		.order = EN_ORDER_SEQUENTIAL, .last = EN_LAST_SHORT, .sampler = EN_SAMPLER_UNITS,
		.micro = (uint64_t)p->config.set.micro_batch, .accumulation = 1, .world = 1,
	};
	struct en_source_info info;
	int rc = 0;

	if (a->eval)
		rc = open_source(p, a->eval, p->data.info.tokens, &p->eval_source, err);
	if (rc)
		return rc;
	en_source_info_get(a->eval ? p->eval_source : p->source, &info);
	p->held_rows = a->eval_rows ? (uint64_t)a->eval_rows : info.rows;
	if ((a->eval || a->call == ZT_EVAL) && p->held_rows > info.rows)
		p->held_rows = info.rows;
	return en_data_init(&p->held, a->eval ? p->eval_source : p->source, a->eval ? 0 : train,
			    p->held_rows, &order, err);
}

/* Of `ztrain eval`: the rows are held out, and none is trained on. */
static int open_eval(struct zt_program *p, struct ckpt_err *err)
{
	const uint64_t last = (uint64_t)p->args.eval_rows;
	struct en_source_info info;

	en_source_info_get(p->source, &info);
	p->data.info = info;
	return open_held(p, last && last < info.rows ? info.rows - last : 0, err);
}

int zt_data_source(struct zt_program *p, struct ckpt_err *err)
{
	return p->source ? 0 : open_source(p, p->args.data, 0, &p->source, err);
}

/* As transformers counts them: whole steps of an epoch, times the epochs, rounded up. */
int zt_data_steps(struct zt_program *p, uint64_t batch, int64_t *out, struct ckpt_err *err)
{
	const struct zt_args *a = &p->args;
	struct en_source_info info;
	uint64_t rows;
	double steps;
	int rc = zt_data_source(p, err);

	if (rc)
		return rc;
	en_source_info_get(p->source, &info);
	rows = info.rows;
	if (a->eval_rows && !a->eval)
		rc = en_data_split(info.rows, (uint64_t)a->eval_rows, &rows, err);
	if (rc)
		return rc;
	steps = (double)rows / (double)batch;
	if (a->tail == EN_LAST_DROP)
		steps = floor(steps);
	else if (a->tail == EN_LAST_FILL)
		steps = ceil(steps);
	steps = ceil(a->epochs * steps);
	if (steps > (double)((int64_t)1 << 40))
		return fail(err, CKPT_E_LIMIT, "--epochs", "more than 2^40 steps");
	*out = steps < 1 ? 1 : (int64_t)steps;
	return 0;
}

int zt_data_open(struct zt_program *p, struct ckpt_err *err)
{
	const struct zt_args *a = &p->args;
	const struct en_samples_opts order = samples_opts(p);
	const bool split = a->eval_rows && !a->eval;
	struct en_source_info info;
	uint64_t train = 0;
	int rc = zt_data_source(p, err);

	if (rc)
		return rc;
	en_source_info_get(p->source, &info);
	if (p->model->config.max_positions && info.tokens > p->model->config.max_positions)
		return too_long(p, info.tokens, err);
	if (a->call == ZT_EVAL)
		return open_eval(p, err);
	if (split)
		rc = en_data_split(info.rows, (uint64_t)a->eval_rows, &train, err);
	if (rc)
		snprintf(err->where, sizeof(err->where), "--eval-rows");
	if (!rc)
		rc = en_data_init(&p->data, p->source, 0, train, &order, err);
	if (!rc && (a->eval || split))
		rc = open_held(p, train, err);
	return rc;
}

void zt_data_close(struct zt_program *p)
{
	if (p->source && p->data.rows)
		en_data_release(&p->data);
	if (p->held_rows)
		en_data_release(&p->held);
	en_source_close(p->source);
	en_source_close(p->eval_source);
}

/* ---- as a run asks for them ---- */

static int take_rows(void *arg, uint64_t start, uint64_t unit, int32_t *ids, int32_t *labels,
		     int32_t *starts, struct ckpt_err *err)
{
	struct zt_program *p = arg;
	struct en_unit u;

	return en_data_rows(&p->data, start, unit, ids, labels, starts, &u, err);
}

static int data_state(void *arg, uint64_t samples, struct ck_buf *buf, struct ckpt_err *err)
{
	struct zt_program *p = arg;

	return en_data_state(&p->data, samples, buf, err);
}

static int data_resume(void *arg, const char *state, uint64_t len, uint64_t *samples_out,
		       struct ckpt_err *err)
{
	struct zt_program *p = arg;

	return en_data_resume(&p->data, state, len, samples_out, err);
}

struct en_data_loader zt_data_loader(struct zt_program *p)
{
	return (struct en_data_loader){ p, take_rows, data_state, data_resume };
}

static int held_rows(void *arg, uint64_t unit, int32_t *ids, int32_t *labels,
		     int32_t *starts, uint32_t *rows_out, struct ckpt_err *err)
{
	struct zt_program *p = arg;
	struct en_unit u;
	const uint64_t micro = (uint64_t)p->config.set.micro_batch;
	int rc = en_data_rows(&p->held, unit * micro, 0, ids, labels, starts, &u, err);

	*rows_out = rc ? 0 : (uint32_t)u.rows;
	return rc;
}

struct en_eval_loader zt_data_eval_loader(struct zt_program *p)
{
	const uint64_t micro = (uint64_t)p->config.set.micro_batch;

	return (struct en_eval_loader){ p, (p->held_rows + micro - 1) / micro, held_rows,
					p->held_rows && p->held.info.packed };
}
