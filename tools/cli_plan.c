/* cli_plan.c -- `zckpt plan`: which stages fit, and which changes would make one fit. */
#include <inttypes.h>
#include <string.h>

#include "cli_plan.h"

#define MAX_GPUS 4096

static int estimate(const struct planning *p, const struct ckpt_setup *setup,
		    struct ckpt_estimate *out)
{
	return ckpt_estimate(p->model, setup, out, NULL);
}

int plan_fits(const struct planning *p, const struct ckpt_estimate *est)
{
	return (!p->gpu_mem || est->gpu_bytes <= p->gpu_mem) &&
	       (!p->host_mem || est->host_bytes <= p->host_mem);
}

const char *plan_offload(unsigned offload)
{
	return offload & CKPT_OFFLOAD_PARAMS ? "params" :
	       offload & CKPT_OFFLOAD_OPTIMIZER ? "optimizer" : "none";
}

int plan_is_ztrain(const struct planning *p)
{
	return p->setup.engine == CKPT_ENGINE_ZTRAIN;
}

int plan_is_split(const struct planning *p)
{
	return p->setup.tp > 1 || p->setup.pp > 1 || p->setup.ep > 1;
}

char *plan_layout(const struct planning *p)
{
	const struct ckpt_share *w = &p->est.share;
	const struct {
		const char *name;
		uint32_t n;
	} all[] = { { "tp", w->tp }, { "pp", w->pp }, { "ep", w->ep }, { "dp", w->dp } };
	char *text = cli_strdup("");

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		char *longer;

		if (all[i].n == 1)
			continue;
		longer = cli_format("%s%s%s %" PRIu32, text, text[0] ? " x " : "", all[i].name,
				    all[i].n);
		cli_free(text);
		text = longer;
	}
	return text;
}

size_t plan_rows(const struct planning *p, struct plan_row *row)
{
	static const struct {
		uint32_t stage;
		unsigned offload;
	} all[PLAN_ROWS] = {
		{ 0, 0 }, { 1, 0 }, { 2, 0 }, { 3, 0 }, { 1, CKPT_OFFLOAD_OPTIMIZER },
		{ 2, CKPT_OFFLOAD_OPTIMIZER }, { 3, CKPT_OFFLOAD_OPTIMIZER },
		{ 3, CKPT_OFFLOAD_OPTIMIZER | CKPT_OFFLOAD_PARAMS },
	};
	struct ckpt_estimate *est = cli_alloc(sizeof(*est));
	size_t n = 0;

	for (size_t i = 0; i < PLAN_ROWS; i++) {
		struct ckpt_setup setup = p->setup;

		if (plan_is_ztrain(p) && all[i].offload)
			continue;	/* a rank has one memory */
		setup.stage = all[i].stage;
		setup.offload = all[i].offload;
		if (estimate(p, &setup, est))
			continue;
		row[n++] = (struct plan_row){ all[i].stage, all[i].offload, est->gpu_bytes,
					      est->host_bytes, plan_fits(p, est) };
	}
	cli_free(est);
	return n;
}

/* ---------------------------------------------------------------- changes */

struct search {
	const struct planning *p;
	struct plan_change *change;
	struct ckpt_estimate *est;
	size_t n;
};

/* The options that lead from the setup that was asked for to this one. */
static void describe(const struct search *s, const struct ckpt_setup *to, char *out, size_t size)
{
	const struct ckpt_setup *from = &s->p->setup;
	size_t n = 0;

#define ADD(when, ...) \
	do { \
		if ((when) && n < size) \
			n += (size_t)snprintf(out + n, size - n, __VA_ARGS__); \
	} while (0)
	out[0] = 0;
	ADD(to->gpus != from->gpus, " --gpus %" PRIu32, to->gpus);
	ADD(to->stage != from->stage, " --stage %" PRIu32, to->stage);
	ADD(to->offload != from->offload, " --offload %s", plan_offload(to->offload));
	ADD(to->recompute != from->recompute, " --recompute");
	ADD(to->micro != from->micro, " --micro %" PRIu64 " --accumulation %" PRIu64, to->micro,
	    to->accumulation);
	ADD(to->sequence != from->sequence, " --seq %" PRIu64, to->sequence);
#undef ADD
	memmove(out, out + (n > 0), strlen(out + (n > 0)) + 1);
}

static int is_known(const struct search *s, const struct plan_change *c)
{
	for (size_t i = 0; i < s->n; i++)
		if (!strcmp(s->change[i].option, c->option) ||
		    (s->change[i].gpu == c->gpu && s->change[i].host == c->host))
			return 1;
	return 0;
}

/* Tries a setup, and keeps it unless it is none or equal to another one. 1 if it fits. */
static int try(struct search *s, const struct ckpt_setup *setup)
{
	struct plan_change *c = &s->change[s->n];

	if (s->n == PLAN_CHANGES || estimate(s->p, setup, s->est))
		return 0;
	describe(s, setup, c->option, sizeof(c->option));
	c->gpu = s->est->gpu_bytes;
	c->host = s->est->host_bytes;
	c->fits = plan_fits(s->p, s->est);
	if (c->option[0] && !is_known(s, c))
		s->n++;
	return c->fits;
}

static int fits(struct search *s, const struct ckpt_setup *setup)
{
	return !estimate(s->p, setup, s->est) && plan_fits(s->p, s->est);
}

/* The next smaller micro-batch that accumulation brings to the same batch; 0 if there is none. */
static int less_micro(const struct search *s, struct ckpt_setup *setup)
{
	const uint64_t batch = s->p->setup.micro * s->p->setup.accumulation;

	if (setup->micro <= 1)
		return 0;
	do
		setup->micro--;
	while (setup->micro > 1 && batch % setup->micro);
	setup->accumulation = batch / setup->micro;
	return 1;
}

static void try_micro(struct search *s)
{
	struct ckpt_setup setup = s->p->setup;

	while (less_micro(s, &setup) && !fits(s, &setup))
		;
	try(s, &setup);
}

static void try_stage(struct search *s)
{
	struct ckpt_setup setup = s->p->setup;

	while (setup.stage < 3) {
		setup.stage++;
		if (fits(s, &setup))
			break;
	}
	try(s, &setup);
}

static void try_recompute(struct search *s)
{
	struct ckpt_setup setup = s->p->setup;

	if (!s->p->info.arch.layers)
		return;
	setup.recompute = 1;
	try(s, &setup);
}

static void try_offload(struct search *s)
{
	struct ckpt_setup setup = s->p->setup;

	if (plan_is_ztrain(s->p))
		return;
	setup.stage = setup.stage ? setup.stage : 1;
	if (!setup.offload) {
		setup.offload = CKPT_OFFLOAD_OPTIMIZER;
		if (try(s, &setup))
			return;
	}
	if (setup.stage == 3) {
		setup.offload |= CKPT_OFFLOAD_PARAMS;
		try(s, &setup);
	}
}

/* Where the host is too small. */
static void try_no_offload(struct search *s)
{
	struct ckpt_setup setup = s->p->setup;

	if (!setup.offload || !s->p->host_mem)
		return;
	setup.offload = 0;
	try(s, &setup);
}

/* The fewest GPUs that are whole nodes, or the largest number there is. */
static uint32_t fewest_gpus(struct search *s, struct ckpt_setup *setup)
{
	const uint32_t node = setup->gpus_per_node ? setup->gpus_per_node : 8;
	uint32_t gpus = setup->gpus;

	/* whole nodes, but fewer GPUs than one has */
	while (gpus < MAX_GPUS) {
		gpus = gpus < node ? gpus + 1 : (gpus / node + 1) * node;
		setup->gpus = gpus > MAX_GPUS ? MAX_GPUS : gpus;
		if (fits(s, setup))
			return setup->gpus;
	}
	return 0;
}

static void try_gpus(struct search *s)
{
	struct ckpt_setup setup = s->p->setup;

	if (fewest_gpus(s, &setup))
		try(s, &setup);
}

/* Layers recomputed, then the largest micro-batch at the lowest stage that fits. 1 if one does. */
static int try_all(struct search *s, unsigned offload)
{
	struct ckpt_setup setup = s->p->setup;
	const uint32_t first = offload & CKPT_OFFLOAD_PARAMS ? 3 :
			       offload && !setup.stage ? 1 : setup.stage;

	setup.offload |= plan_is_ztrain(s->p) ? 0 : offload;
	setup.recompute = setup.recompute || s->p->info.arch.layers;
	do {
		for (setup.stage = first; setup.stage <= 3; setup.stage++)
			if (fits(s, &setup))
				return try(s, &setup);
	} while (less_micro(s, &setup));
	return 0;
}

/* Everything that costs only speed; then more GPUs, then fewer tokens: halved, and halved again. */
static void try_most(struct search *s)
{
	struct ckpt_setup setup = s->p->setup;

	setup.stage = 3;
	setup.recompute = setup.recompute || s->p->info.arch.layers;
	while (less_micro(s, &setup))
		;
	if (fewest_gpus(s, &setup))
		try(s, &setup);
	setup.gpus = s->p->setup.gpus;
	if (!plan_is_ztrain(s->p))
		setup.offload = CKPT_OFFLOAD_OPTIMIZER | CKPT_OFFLOAD_PARAMS;
	if (try(s, &setup))
		return;
	while (setup.sequence > 1) {
		setup.sequence /= 2;
		if (fits(s, &setup)) {
			try(s, &setup);
			return;
		}
	}
}

size_t plan_changes(const struct planning *p, struct plan_change *change)
{
	struct search s = { .p = p, .change = change, .est = cli_alloc(sizeof(*s.est)) };
	int any = 0;

	try_no_offload(&s);
	try_stage(&s);
	try_micro(&s);
	try_recompute(&s);
	try_offload(&s);
	try_gpus(&s);
	for (size_t i = 0; i < s.n; i++)
		any |= change[i].fits;
	if (!any) {
		any = try_all(&s, 0);
		any |= try_all(&s, CKPT_OFFLOAD_OPTIMIZER);
		if (!any)
			try_most(&s);
	}
	cli_free(s.est);
	return s.n;
}

/* Which of the parameters are trained, and which of a vision tower. */
void plan_print_parts(const struct planning *p)
{
	if (p->info.tower)
		printf("%-8s %s of them in the vision tower and its projector, whose activations "
		       "are not counted\n", "", out_count(p->info.tower));
	if (p->info.trainable != p->info.params)
		printf("%-8s %s of them are trained\n", "", out_count(p->info.trainable));
}

void plan_json_parts(struct json *json, const struct planning *p)
{
	json_uint(json, "trainable", p->info.trainable);
	if (p->info.tower)
		json_uint(json, "tower", p->info.tower);
}
