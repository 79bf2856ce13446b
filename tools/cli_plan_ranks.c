/* cli_plan_ranks.c -- `zckpt plan --ranks`: which rank has which part of the model, by rule. */
#include <inttypes.h>

#include "cli_plan.h"

/* "0-15", "3"; nothing is "-". */
static char *range(uint64_t first, uint64_t n)
{
	if (!n)
		return cli_strdup("-");
	return n == 1 ? cli_format("%" PRIu64, first) :
			cli_format("%" PRIu64 "-%" PRIu64, first, first + n - 1);
}

/* DeepSpeed's name of the file that has the rank's states; at stage 0 ranks share it. */
static char *file_of(const struct planning *p, const struct ckpt_rank_share *r)
{
	const uint32_t mm = r->pp * p->est.share.tp + r->tp;

	if (!p->setup.stage && p->est.share.ep > 1)
		return cli_format("expp_rank_%" PRIu32 "_mp_rank_%02" PRIu32 "_optim_states.pt",
				  r->ep, mm);
	if (!p->setup.stage)
		return cli_format("mp_rank_%02" PRIu32 "_model_states.pt", mm);
	return cli_format("%szero_pp_rank_%" PRIu32 "_mp_rank_%02" PRIu32 "_optim_states.pt",
			  p->setup.dtype && p->setup.dtype != CKPT_BF16 ? "" : "bf16_", r->dp, mm);
}

static void add_row(const struct planning *p, struct table *table, uint32_t rank,
		    const struct ckpt_rank_share *r)
{
	char *number = cli_format("%" PRIu32, rank), *pp = cli_format("%" PRIu32, r->pp);
	char *tp = cli_format("%" PRIu32, r->tp), *dp = cli_format("%" PRIu32, r->dp);
	char *ep = r->experts ? cli_format("%" PRIu32, r->ep) : cli_strdup("-");
	char *layers = range(r->first_layer, r->layers);
	char *experts = range(r->first_expert, r->experts), *file = file_of(p, r);
	char *params = cli_strdup(out_count(r->params)), *states = cli_strdup(out_count(r->states));

	table_add(table, (const char *const[]){ number, pp, tp, dp, ep, layers, experts, params,
						states, file });
	cli_free(file);
	cli_free(states);
	cli_free(params);
	cli_free(experts);
	cli_free(layers);
	cli_free(ep);
	cli_free(dp);
	cli_free(tp);
	cli_free(pp);
	cli_free(number);
}

static void json_rank(const struct planning *p, struct json *json, uint32_t rank,
		      const struct ckpt_rank_share *r)
{
	char *file = file_of(p, r);

	json_open(json, NULL, '{');
	json_uint(json, "rank", rank);
	json_uint(json, "pp", r->pp);
	json_uint(json, "tp", r->tp);
	json_uint(json, "dp", r->dp);
	json_uint(json, "ep", r->ep);
	json_uint(json, "expert_dp", r->edp);
	json_uint(json, "first_layer", r->first_layer);
	json_uint(json, "layers", r->layers);
	json_uint(json, "first_expert", r->first_expert);
	json_uint(json, "experts", r->experts);
	json_uint(json, "params", r->params);
	json_uint(json, "expert_params", r->expert_params);
	json_uint(json, "states", r->states);
	json_text(json, "file", file);
	json_close(json, '}');
	cli_free(file);
}

int plan_ranks(struct planning *p)
{
	struct table table = { .align = "rrrrrllrrl" };
	struct ckpt_rank_share r;
	struct json json;

	/* the first rank fails, or none does */
	if (ckpt_rank_share(p->model, &p->setup, 0, &r, &p->err))
		return 1;
	if (p->args->json) {
		json_begin(&json, stdout, "plan");
		json_open(&json, "ranks", '[');
	} else {
		table_add(&table, (const char *const[]){ "RANK", "PP", "TP", "DP", "EP", "LAYERS",
							 "EXPERTS", "PARAMETERS", "STATES",
							 "FILE OF THE STATES" });
	}
	for (uint32_t i = 0; i < p->setup.gpus; i++) {
		if (ckpt_rank_share(p->model, &p->setup, i, &r, &p->err))
			break;
		if (p->args->json)
			json_rank(p, &json, i, &r);
		else
			add_row(p, &table, i, &r);
	}
	if (p->args->json) {
		json_close(&json, ']');
		json_close(&json, '}');
	} else {
		table_print(&table, stdout, "");
	}
	return p->err.code != 0;
}
