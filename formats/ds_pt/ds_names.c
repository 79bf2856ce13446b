/* ds_names.c -- the grammar of DeepSpeed's file names (docs/formats/deepspeed.md, 1). */
#include <string.h>

#include "formats/ds_pt/ck_ds.h"

/* Step over 'text'; false if it is not there. */
static bool skip(const char **p, const char *text)
{
	const size_t n = strlen(text);

	if (strncmp(*p, text, n))
		return false;
	*p += n;
	return true;
}

/* A decimal number of at most six digits. */
static bool number(const char **p, uint32_t *out)
{
	uint32_t v = 0, n = 0;

	while (**p >= '0' && **p <= '9' && n < 6) {
		v = v * 10 + (uint32_t)(**p - '0');
		(*p)++;
		n++;
	}
	*out = v;
	return n > 0;
}

static bool rank_file(const char *p, struct ds_name *out)
{
	out->bf16 = skip(&p, "bf16_");
	if (!out->bf16)
		skip(&p, "fp16_");
	if (!skip(&p, "zero_pp_rank_") || !number(&p, &out->rank) || !skip(&p, "_mp_rank_") ||
	    !number(&p, &out->mp))
		return false;
	if (skip(&p, "_model_states")) {
		out->kind = DS_MODEL_RANK;
		return !*p;
	}
	skip(&p, "_");
	out->kind = DS_OPTIM;
	return skip(&p, "optim_states") && !*p;
}

static bool model_file(const char *p, struct ds_name *out)
{
	out->kind = DS_MODEL;
	return skip(&p, "mp_rank_") && number(&p, &out->mp) && skip(&p, "_model_states") &&
	       !*p;
}

static bool layer_file(const char *p, struct ds_name *out)
{
	uint32_t n, tp = 0;

	if (!skip(&p, "layer_") || !number(&p, &n))
		return false;
	out->kind = DS_LAYER;
	out->rank = n;
	if (!strncmp(p, "-model_states", 13))	/* of the only tensor rank */
		return true;
	if (skip(&p, "-model_"))
		number(&p, &tp);
	out->mp = tp;
	return strstr(p, "model_states");
}

static bool expert_file(const char *p, struct ds_name *out)
{
	const bool optim = skip(&p, "expp_rank_");

	out->kind = optim ? DS_EXPERT_OPTIM : DS_EXPERT;
	out->layer = CK_NONE;
	if (!optim && skip(&p, "layer_") && (!number(&p, &out->layer) || !skip(&p, "_")))
		return false;
	return (optim || skip(&p, "expert_")) && number(&p, &out->rank) &&
	       skip(&p, "_mp_rank_") && number(&p, &out->mp) &&
	       skip(&p, optim ? "_optim_states" : "_model_states") && !*p;
}

/* "NAME.pt-3.0": a piece of a file that the FAST writer spread over ranks. */
static bool piece_file(const char *p)
{
	const char *dot = strstr(p, "_states.pt-");
	uint32_t n;

	if (!dot)
		return false;
	dot += strlen("_states.pt-");
	return number(&dot, &n) && *dot == '.';
}

struct ds_name ck_ds_prefix_parse(const char *name)
{
	struct ds_name out = { 0 };

	if (rank_file(name, &out))
		return out;
	out = (struct ds_name){ 0 };
	if (model_file(name, &out))
		return out;
	out = (struct ds_name){ 0 };
	if (expert_file(name, &out))
		return out;
	out = (struct ds_name){ 0 };
	if (layer_file(name, &out))
		return out;
	return (struct ds_name){ 0 };
}

struct ds_name ck_ds_name_parse(const char *name)
{
	const size_t len = strlen(name);
	char stem[256];

	if (piece_file(name))
		return (struct ds_name){ .kind = DS_PIECE };
	if (len < 3 || len - 3 >= sizeof(stem) || strcmp(name + len - 3, ".pt"))
		return (struct ds_name){ 0 };
	memcpy(stem, name, len - 3);
	stem[len - 3] = 0;
	return ck_ds_prefix_parse(stem);
}
