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
	int combined;
};

/* Tries a setup; keeps it under its options. 1 if it fits. */
static int try(struct search *s, const struct ckpt_setup *setup, const char *option)
{
	struct plan_change *c = &s->change[s->n];

	if (s->n == PLAN_CHANGES || estimate(s->p, setup, s->est))
		return 0;
	snprintf(c->option, sizeof(c->option), "%s", option);
	c->gpu = s->est->gpu_bytes;
	c->host = s->est->host_bytes;
	c->fits = plan_fits(s->p, s->est);
	c->combined = s->combined;
	s->n++;
	return c->fits;
}

static int fits(struct search *s, const struct ckpt_setup *setup)
{
	return !estimate(s->p, setup, s->est) && plan_fits(s->p, s->est);
}

/* The largest micro-batch that fits, else 1; accumulation keeps the batch of a step. */
static void try_micro(struct search *s)
{
	struct ckpt_setup setup = s->p->setup;
	const uint64_t batch = setup.micro * setup.accumulation;
	char option[96];

	if (setup.micro <= 1)
		return;
	do {
		setup.micro--;
		while (setup.micro > 1 && batch % setup.micro)
			setup.micro--;
		setup.accumulation = batch / setup.micro;
	} while (setup.micro > 1 && !fits(s, &setup));
	snprintf(option, sizeof(option), "--micro %" PRIu64 " --accumulation %" PRIu64,
		 setup.micro, setup.accumulation);
	try(s, &setup, option);
}

static void try_stage(struct search *s)
{
	struct ckpt_setup setup = s->p->setup;
	char option[96];

	if (setup.stage == 3)
		return;
	do
		setup.stage++;
	while (setup.stage < 3 && !fits(s, &setup));
	snprintf(option, sizeof(option), "--stage %" PRIu32, setup.stage);
	try(s, &setup, option);
}

static void try_offload(struct search *s)
{
	struct ckpt_setup setup = s->p->setup;
	char option[96];

	if (plan_is_ztrain(s->p))
		return;
	if (!setup.stage)
		setup.stage = 1;
	if (!setup.offload) {
		setup.offload = CKPT_OFFLOAD_OPTIMIZER;
		snprintf(option, sizeof(option), "--stage %" PRIu32 " --offload optimizer",
			 setup.stage);
		if (try(s, &setup, option + (setup.stage == s->p->setup.stage ? 10 : 0)))
			return;
	}
	if (setup.stage == 3 && !(setup.offload & CKPT_OFFLOAD_PARAMS)) {
		setup.offload |= CKPT_OFFLOAD_PARAMS;
		try(s, &setup, "--offload params");
	}
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
	char option[96];

	if (!fewest_gpus(s, &setup))
		return;
	snprintf(option, sizeof(option), "--gpus %" PRIu32, setup.gpus);
	try(s, &setup, option);
}

/* Everything that costs only speed, with this offload on top. 1 if it fits. */
static int try_all(struct search *s, struct ckpt_setup *setup, unsigned offload, int anyway)
{
	char option[96];

	if (plan_is_ztrain(s->p))
		offload = 0;
	setup->offload = offload;
	if (!anyway && !fits(s, setup))
		return 0;
	snprintf(option, sizeof(option), "--stage 3 --recompute --micro 1 --accumulation %" PRIu64
		 "%s%s", setup->accumulation, offload ? " --offload " : "",
		 offload ? plan_offload(offload) : "");
	return try(s, setup, option);
}

/* Half the tokens, and half of that, ... */
static void try_shorter(struct search *s, struct ckpt_setup *setup)
{
	char option[96];

	while (setup->sequence > 1) {
		setup->sequence /= 2;
		if (!fits(s, setup))
			continue;
		snprintf(option, sizeof(option), "the same with --seq %" PRIu64, setup->sequence);
		try(s, setup, option);
		return;
	}
}

/* Offloads then, GPUs then, and shorter samples if nothing else is left. */
static void try_together(struct search *s)
{
	const unsigned most = CKPT_OFFLOAD_OPTIMIZER | CKPT_OFFLOAD_PARAMS;
	struct ckpt_setup setup = s->p->setup;
	char option[96];

	s->combined = 1;
	setup.recompute = !!s->p->info.arch.layers;
	setup.stage = 3;
	setup.accumulation *= setup.micro;
	setup.micro = 1;
	if (try_all(s, &setup, 0, 0) || try_all(s, &setup, CKPT_OFFLOAD_OPTIMIZER, 0))
		return;
	setup.offload = 0;
	if (fewest_gpus(s, &setup)) {
		snprintf(option, sizeof(option), "--gpus %" PRIu32 " --stage 3 --recompute "
			 "--micro 1 --accumulation %" PRIu64, setup.gpus, setup.accumulation);
		try(s, &setup, option);
	}
	setup.gpus = s->p->setup.gpus;
	if (!try_all(s, &setup, most, 1))
		try_shorter(s, &setup);
}

size_t plan_changes(const struct planning *p, struct plan_change *change)
{
	struct search s = { .p = p, .change = change, .est = cli_alloc(sizeof(*s.est)) };
	struct ckpt_setup setup = p->setup;
	int any = 0;

	if (!setup.recompute && p->info.arch.layers) {
		setup.recompute = 1;
		try(&s, &setup, "--recompute");
	}
	try_micro(&s);
	try_stage(&s);
	try_offload(&s);
	try_gpus(&s);
	for (size_t i = 0; i < s.n; i++)
		any |= change[i].fits;
	if (!any)
		try_together(&s);
	cli_free(s.est);
	return s.n;
}
