/* zt_bench.c -- ztrain bench: which configurations run, one after the other; see zt_bench.h. */
#include "engine/main/zt_bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TOKENS 64		/* of a row, as in a run */
#define TRACED 3		/* steps */
#define MOST_ON_GPU 4096	/* rows that are tried */
#define MOST_ON_CPU 16
#define NEAR 0.02		/* speeds that are as good as the same, at least */
#define FAR 0.1			/* and at most */

/* ---- the processor ---- */

/*
 * Products of 16-bit numbers summed in fp32, without sparsity, in TFLOP/s: NVIDIA's data sheets
 * (H100 SXM and H200: 989; A100: 312).
 */
static double known_peak(const char *device, enum kn_type type)
{
	if (type == KN_F32)
		return NAN;
	if (strstr(device, "H100") || strstr(device, "H200"))
		return 989e12;
	return strstr(device, "A100") ? 312e12 : NAN;
}

static void note_mfu(struct zt_bench *b, struct zt_measured *m)
{
	const struct en_bench *r = &m->bench;
	const double asked = b->p->args.peak_tflops;

	b->peak = isnan(asked) ? known_peak(r->device, r->zero.type) : asked * 1e12;
	m->mfu = r->tokens_per_s * r->flop_per_token / b->peak;
}

/* ---- what zckpt plan says ---- */

static int open_plan(const struct zt_program *p, struct ckpt_model **out)
{
	char path[ZT_PATH];
	struct stat st;
	const bool dir = !stat(p->args.model, &st) && S_ISDIR(st.st_mode);
	int rc;

	if (p->args.freeze.n)	/* it knows adapters only */
		return -CKPT_E_UNSUPPORTED;
	snprintf(path, sizeof(path), "%s%s", p->args.model, dir ? "/config.json" : "");
	rc = ckpt_model_from_config(path, out, NULL);
	return rc || !p->args.lora ? rc : ckpt_model_lora(*out, p->args.lora, NULL);
}

static struct ckpt_setup setup_of(const struct zt_program *p, const struct en_zero_opts *zo)
{
	return (struct ckpt_setup){
		.size = sizeof(struct ckpt_setup), .engine = CKPT_ENGINE_ZTRAIN, .overhead = 1,
		.stage = zo->stage, .gpus = p->comm->size,
		.offload = (zo->stage && zo->host_optimizer ? CKPT_OFFLOAD_OPTIMIZER : 0) |
			   (zo->stage == 3 && zo->host_params ? CKPT_OFFLOAD_PARAMS : 0),
		.dtype = zo->type == KN_F32 ? CKPT_F32 : zo->type == KN_BF16 ? CKPT_BF16 : CKPT_F16,
		.micro = zo->rows, .sequence = zo->tokens, .accumulation = zo->micro_batches,
		.recompute = zo->recompute,
	};
}

/*
 * Of CPU ranks with one thread that send what they compute with; it has no formulas for others.
 * The buffer of saves is not part of it.
 */
static void make_plan(const struct zt_program *p, const struct en_zero_opts *zo,
		      struct zt_plan *out)
{
	const struct ckpt_setup setup = setup_of(p, zo);
	struct ckpt_estimate *est = calloc(1, sizeof(*est));
	struct ckpt_model *model = NULL;

	if (est && !p->on_gpu && zo->threads == 1 && zo->wire == zo->type &&
	    !open_plan(p, &model) &&
	    !ckpt_estimate(model, &setup, est, NULL)) {
		out->is_there = true;
		for (uint32_t i = 0; i < est->nterms; i++)
			for (int k = 0; k < EN_MEM_KINDS; k++)
				if (k != EN_MEM_SAVE && est->term[i].place == CKPT_PLACE_GPU &&
				    !strcmp(est->term[i].name, en_mem_name((enum en_mem_kind)k)))
					out->bytes[k] += est->term[i].bytes;
		for (int k = 0; k < EN_MEM_KINDS; k++)
			out->total += out->bytes[k];
	}
	ckpt_model_free(model);
	free(est);
}

/* ---- a configuration ---- */

static struct en_bench_opts opts_of(const struct zt_bench *b, const struct en_settings *set,
				    uint32_t rows)
{
	struct zt_program *p = b->p;
	const struct zt_args *a = &p->args;
	struct en_bench_opts o = {
		.model = p->model, .comm = p->comm, .cuda = p->on_gpu ? &p->cuda : NULL,
		.messages = p->comm->size > 1, .clip = set->gradient_clipping,
		.seed = (uint64_t)a->seed, .document = (uint32_t)a->document,
		.warmup = (uint32_t)a->warm, .steps = (uint32_t)a->timed, .traced = TRACED,
	};

	en_run_state_opts(set, b->tokens, (uint32_t)a->threads, a->recompute, &o.zero, &o.rule);
	o.zero.as_deepspeed = p->as_deepspeed;	/* other sums, of other types */
	if (rows)
		o.zero.rows = rows;
	return o;
}

/* The file's, with what was asked for on top. */
static struct en_settings settings_of(const struct zt_bench *b, int stage)
{
	struct en_settings set = b->p->config.set;

	if (stage >= 0)
		set.stage = stage;
	if (b->p->args.offload && set.stage) {
		set.offload_optimizer.device = EN_DEVICE_CPU;
		if (set.stage == 3)
			set.offload_param.device = EN_DEVICE_CPU;
	}
	return set;
}

static int measure(struct zt_bench *b, const struct en_bench_opts *o, struct zt_measured *m,
		   struct en_trace **trace_out, struct ckpt_err *err)
{
	int rc = en_bench_run(o, &m->bench, trace_out, err);

	m->stage = o->zero.stage;
	m->rows = o->zero.rows;
	m->ran = !rc;
	if (rc)
		return rc;
	note_mfu(b, m);
	make_plan(b->p, &o->zero, &m->plan);
	return 0;
}

static int table(struct zt_bench *b, struct ckpt_err *err)
{
	const struct zt_args *a = &b->p->args;
	const struct en_settings set = settings_of(b, -1);
	const struct en_bench_opts o = opts_of(b, &set, (uint32_t)a->rows);
	struct en_trace *trace = NULL;
	int rc = measure(b, &o, &b->run[0], a->trace ? &trace : NULL, err);

	b->n = 1;
	if (!rc && a->trace)
		rc = en_bench_trace_write(a->trace, b->p->comm, trace, err);
	en_trace_free(trace);
	if (rc || b->p->comm->rank)
		return rc;
	if (a->json)
		return zt_bench_json(b, err);
	zt_bench_tell_table(b);
	return 0;
}

/* ---- stages ---- */

/*
 * What should fit may not: libraries take memory of their own.  Some rows less, then: a sixteenth,
 * at least one.
 */
static int try_rows(struct zt_bench *b, struct en_bench_opts *o, uint32_t rows,
		    struct zt_measured *m, struct ckpt_err *err)
{
	int rc = -CKPT_E_NOMEM;

	for (; rc == -CKPT_E_NOMEM && rows; rows -= rows < 16 ? 1 : rows / 16) {
		memset(err, 0, sizeof(*err));
		o->zero.rows = rows;
		rc = measure(b, o, m, NULL, err);
		if (rc == -CKPT_E_NOMEM && !m->gave_up)
			m->gave_up = rows;
	}
	if (rc != -CKPT_E_NOMEM)
		return rc;
	memset(err, 0, sizeof(*err));
	m->ran = false;
	return 0;
}

static int one_stage(struct zt_bench *b, uint32_t stage, struct zt_measured *m,
		     struct ckpt_err *err)
{
	const struct en_settings set = settings_of(b, (int)stage);
	struct en_bench_opts o = opts_of(b, &set, 0);
	uint32_t rows = 0;
	int rc = en_bench_fit(&o, b->limit, b->most, &rows, &m->fit_bytes, err);

	m->stage = stage;
	if (!rc && rows)
		rc = try_rows(b, &o, rows, m, err);
	if (!rc && !b->p->comm->rank && !b->p->args.json)
		zt_bench_tell_try(b, m);
	return rc;
}

/* What the model's state takes, whatever the micro-batch. */
static uint64_t states_of(const struct en_mem *mem, bool on_gpu)
{
	return en_bench_held(mem, on_gpu) - mem->peak[EN_MEM_ACTIVATIONS] - mem->peak[EN_MEM_WORK];
}

/* Steps differ; stages that differ no more than half of them do are as good as each other. */
static double near_of(const struct zt_bench *b)
{
	double near = NEAR;

	for (uint32_t i = 0; i < b->n; i++) {
		const struct en_bench_times *t = &b->run[i].bench.step;

		if (b->run[i].ran)
			near = fmax(near, (t->high - t->low) / (2 * t->median));
	}
	return fmin(near, FAR);
}

static void advise(struct zt_bench *b)
{
	struct en_bench_stage s[4];

	for (uint32_t i = 0; i < b->n; i++)
		s[i] = (struct en_bench_stage){
			.stage = b->run[i].stage, .ran = b->run[i].ran,
			.tokens_per_s = b->run[i].bench.tokens_per_s, .rows = b->run[i].rows,
			.states = states_of(&b->run[i].bench.mem, b->p->on_gpu),
		};
	en_bench_advise(s, b->n, near_of(b), &b->best, b->advice);
}

static int stages(struct zt_bench *b, struct ckpt_err *err)
{
	struct zt_program *p = b->p;
	const struct zt_args *a = &p->args;
	int rc = 0;

	b->most = a->rows ? (uint32_t)a->rows : p->on_gpu ? MOST_ON_GPU : MOST_ON_CPU;
	b->limit = (uint64_t)a->memory;
	if (!b->limit)
		rc = en_bench_free(p->comm, p->on_gpu ? &p->cuda : NULL, &b->limit, err);
	for (uint32_t i = 0; !rc && i < a->nstages; i++) {
		rc = one_stage(b, a->stage[i], &b->run[i], err);
		b->n += !rc;
	}
	if (rc || p->comm->rank)
		return rc;
	advise(b);
	if (a->json)
		rc = zt_bench_json(b, err);
	else
		zt_bench_tell_stages(b);
	if (!rc && a->plot)
		rc = zt_bench_plot(b, err);
	return rc;
}

int zt_bench(struct zt_program *p, struct ckpt_err *err)
{
	struct zt_bench *b = calloc(1, sizeof(*b));
	const uint32_t most = p->model->config.max_positions;
	int rc;

	if (!b) {
		err->code = CKPT_E_NOMEM;
		return -CKPT_E_NOMEM;
	}
	b->p = p;
	b->peak = NAN;
	b->tokens = p->args.seq ? (uint32_t)p->args.seq : TOKENS;
	if (most && b->tokens > most) {
		err->code = CKPT_E_MISMATCH;
		snprintf(err->where, sizeof(err->where), "--seq %u", b->tokens);
		snprintf(err->msg, sizeof(err->msg), "the model's max_position_embeddings is %u: "
			 "use a smaller --seq", most);
		rc = -CKPT_E_MISMATCH;
	} else {
		rc = p->args.stages ? stages(b, err) : table(b, err);
	}
	free(b);
	return rc;
}
