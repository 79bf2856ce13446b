/*
 * rep_tensors.c -- the tensors of a report, as columns: names, shapes, roles, states, ranks.
 *
 * Most tensors have the states and the ranks of many others, so that a number stands for each set:
 * 100,000 tensors are some megabytes, mostly names.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rep_data.h"

struct columns {
	struct rep *rep;
	struct rep_dict states, ranks;
	unsigned char *has;		/* of the ranks: whether the tensor at hand is there */
	uint32_t world;
};

/* [["weight","BF16",0,16],...]: the name, the type, 1 of what is not stored, bits. */
static size_t state_set(struct columns *c, uint64_t i, const struct ckpt_tensor_info *tensor)
{
	struct ckpt_state_info state;
	char *text;
	size_t size;
	FILE *out = rep_text_open(&text, &size);

	fputc('[', out);
	for (uint32_t k = 0; tensor->role != CKPT_ROLE_ALIAS && k < tensor->nstates; k++) {
		if (ckpt_state_get(c->rep->ck, i, k, &state, NULL))
			break;
		fputs(k ? ",[" : "[", out);
		json_quote(out, state.name);
		fprintf(out, ",\"%s\",%d,%" PRIu32 "]", ckpt_dtype_name(state.dtype),
			(state.flags & CKPT_STATE_DERIVED) != 0, ckpt_dtype_bits(state.dtype));
	}
	fputc(']', out);
	fclose(out);
	return rep_dict_take(&c->states, text);
}

static void mark_ranks(struct columns *c, uint64_t i, const struct ckpt_tensor_info *tensor)
{
	struct ckpt_state_info state;
	struct ckpt_extent_info e;

	memset(c->has, 0, c->world);
	for (uint32_t k = 0; k < tensor->nstates; k++)
		for (uint64_t x = 0; !ckpt_state_get(c->rep->ck, i, k, &state, NULL) &&
				     x < state.nextents; x++)
			if (!ckpt_extent_get(c->rep->ck, i, k, x, &e, NULL) && e.rank >= 0 &&
			    (uint32_t)e.rank < c->world)
				c->has[e.rank] = 1;
}

/* "0-3, 6"; "" where no rank is known. */
static size_t rank_set(struct columns *c, uint64_t i, const struct ckpt_tensor_info *tensor)
{
	char *text;
	size_t size;
	FILE *out = rep_text_open(&text, &size);
	const char *between = "";

	fputc('"', out);
	if (c->world && tensor->role != CKPT_ROLE_ALIAS)
		mark_ranks(c, i, tensor);
	for (uint32_t r = 0; tensor->role != CKPT_ROLE_ALIAS && r < c->world; r++) {
		uint32_t last = r;

		if (!c->has[r])
			continue;
		while (last + 1 < c->world && c->has[last + 1])
			last++;
		fprintf(out, "%s%" PRIu32, between, r);
		if (last > r)
			fprintf(out, "-%" PRIu32, last);
		between = ", ";
		r = last;
	}
	fputc('"', out);
	fclose(out);
	return rep_dict_take(&c->ranks, text);
}

/* A column: what 'put' writes of each tensor. */
static void column(struct columns *c, const char *key,
		   void (*put)(struct columns *c, uint64_t i, const struct ckpt_tensor_info *t))
{
	struct json *json = c->rep->json;
	struct ckpt_tensor_info tensor;

	json_open(json, key, '[');
	for (uint64_t i = 0; !ckpt_tensor_get(c->rep->ck, i, &tensor, NULL); i++) {
		if (i)
			fputc(',', json->out);
		put(c, i, &tensor);
	}
	json_close(json, ']');
}

static void put_name(struct columns *c, uint64_t i, const struct ckpt_tensor_info *t)
{
	(void)i;
	json_quote(c->rep->json->out, t->name);
}

static void put_shape(struct columns *c, uint64_t i, const struct ckpt_tensor_info *t)
{
	FILE *out = c->rep->json->out;

	(void)i;
	fputc('[', out);
	for (uint32_t k = 0; k < t->ndim; k++)
		fprintf(out, "%s%" PRIu64, k ? "," : "", t->shape[k]);
	fputc(']', out);
}

static void put_role(struct columns *c, uint64_t i, const struct ckpt_tensor_info *t)
{
	(void)i;
	fprintf(c->rep->json->out, "%d", (int)t->role);
}

static void put_group(struct columns *c, uint64_t i, const struct ckpt_tensor_info *t)
{
	(void)i;
	fprintf(c->rep->json->out, "%" PRId32, t->group);
}

static void put_states(struct columns *c, uint64_t i, const struct ckpt_tensor_info *t)
{
	fprintf(c->rep->json->out, "%zu", state_set(c, i, t));
}

static void put_ranks(struct columns *c, uint64_t i, const struct ckpt_tensor_info *t)
{
	fprintf(c->rep->json->out, "%zu", rank_set(c, i, t));
}

/* Pairs of numbers: a second name, and the tensor that it names. */
static void put_aliases(struct columns *c)
{
	struct json *json = c->rep->json;
	struct ckpt_tensor_info t;
	int any = 0;

	json_open(json, "alias", '[');
	for (uint64_t i = 0; !ckpt_tensor_get(c->rep->ck, i, &t, NULL); i++)
		if (t.role == CKPT_ROLE_ALIAS)
			fprintf(json->out, "%s[%" PRIu64 ",%" PRIu64 "]", any++ ? "," : "", i,
				t.alias_of);
	json_close(json, ']');
}

static void put_roles(struct json *json)
{
	json_open(json, "roles", '[');
	for (unsigned role = 0; role < NROLES; role++)
		json_text(json, NULL, role ? out_role((enum ckpt_role)role) : "");
	json_close(json, ']');
}

void rep_tensors(struct rep *rep)
{
	struct columns c = { .rep = rep, .world = rep->info.world };
	struct json *json = rep->json;

	c.has = cli_alloc(c.world + 1);
	json_open(json, "tensors", '{');
	column(&c, "name", put_name);
	column(&c, "shape", put_shape);
	column(&c, "role", put_role);
	column(&c, "group", put_group);
	column(&c, "states", put_states);
	column(&c, "ranks", put_ranks);
	put_aliases(&c);
	put_roles(json);
	rep_dict_json(&c.states, json, "state_sets");
	rep_dict_json(&c.ranks, json, "rank_sets");
	json_close(json, '}');
	rep_dict_release(&c.states);
	rep_dict_release(&c.ranks);
	cli_free(c.has);
}
