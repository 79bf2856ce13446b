/*
 * mg_out_args.c -- common.pt: what load_checkpoint() of Megatron-LM reads before any tensor.
 *
 * Its args say that there is no optimizer and no random state, and how large the model is: with
 * --use-checkpoint-args a run takes them.  Most come from the table of names, which says what the
 * arguments of such a model are.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/megatron/mg_out.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_val_new.h"

/* What Python would print as 'text'. */
static struct ck_val *value_of(struct ck_arena *a, const char *text)
{
	char *end;
	const double number = strtod(text, &end);

	if (!strcmp(text, "None"))
		return ck_val_new_none(a);
	if (!strcmp(text, "True") || !strcmp(text, "False"))
		return ck_val_new_bool(a, *text == 'T');
	if (*text && !*end)
		return strchr(text, '.') ? ck_val_new_float(a, number) :
					   ck_val_new_int(a, (int64_t)number);
	return ck_val_new_str(a, text);
}

static struct ck_val *set_int(struct ck_arena *a, struct ck_val *d, const char *key, uint64_t n)
{
	return ck_val_dict_sets(a, d, key, ck_val_new_int(a, (int64_t)n));
}

static struct ck_val *set_bool(struct ck_arena *a, struct ck_val *d, const char *key, bool yes)
{
	return ck_val_dict_sets(a, d, key, ck_val_new_bool(a, yes));
}

/* A number of config.json, as it is there, or in the object 'in' of it. */
static struct ck_val *number_of(const struct mg_out *o, const char *in, const char *key)
{
	const struct ck_json *doc = &o->config.doc;
	const uint64_t from = in ? ck_json_given(doc, 0, in) : 0;
	const uint64_t tok = from == UINT64_MAX ? from : ck_json_given(doc, from, key);
	struct ck_val *v;
	int64_t n;

	if (tok == UINT64_MAX || doc->tok[tok].type != CK_JSON_NUMBER)
		return NULL;
	v = ck_val_new_float(o->arena, strtod(doc->text + doc->tok[tok].off, NULL));
	/* 10000.0 is 10000, which is what --rotary-base takes */
	return v && ck_val_int(v, &n) ? ck_val_new_int(o->arena, n) : v;
}

static struct ck_val *add_number(const struct mg_out *o, struct ck_val *d, const char *arg,
				 const char *in, const char *key)
{
	struct ck_val *v = number_of(o, in, key);

	return v ? ck_val_dict_sets(o->arena, d, arg, v) : d;
}

/* What such a run is started with, by the table: values, then sizes, then flags. */
static struct ck_val *add_table(const struct mg_out *o, struct ck_val *d)
{
	const struct mg_map *map = &o->map;
	struct ck_arena *a = o->arena;

	for (uint64_t i = 0; i < map->nneeds; i++)
		d = ck_val_dict_sets(a, d, map->need[i].arg, value_of(a, map->need[i].value));
	for (uint64_t i = 0; i < map->nsizes; i++)
		if (map->size[i].arg && o->sizes.known[i])
			d = set_int(a, d, map->size[i].arg, o->sizes.value[i]);
	for (uint64_t i = 0; i < map->nflags; i++)
		if (map->flag[i].arg)
			d = set_bool(a, d, map->flag[i].arg,
				     o->sizes.flag[i] != map->flag[i].arg_inverted);
	return d;
}

/* One number where all layers are alike, else 0 or 1 for each. */
static struct ck_val *layer_freq(const struct mg_out *o)
{
	struct ck_val *list = ck_val_new_list(o->arena);

	if (o->stacked)
		return ck_val_new_int(o->arena, 1);
	for (uint64_t l = 0; list && l < o->sizes.layers; l++)
		list = ck_val_list_add(o->arena, list,
				       ck_val_new_int(o->arena, o->sizes.has_experts[l]));
	return list;
}

static struct ck_val *add_sizes(const struct mg_out *o, struct ck_val *d)
{
	const struct ck_val *heads, *groups;
	struct ck_arena *a = o->arena;

	heads = ck_val_get(d, "num_attention_heads");
	groups = ck_val_get(d, "num_query_groups");
	d = set_bool(a, d, "group_query_attention",
		     heads && groups && !ck_val_equal(heads, groups, 1));
	d = set_int(a, d, "padded_vocab_size", o->padded_vocab);
	d = set_int(a, d, "make_vocab_size_divisible_by", o->want->vocab_divisor);
	d = add_number(o, d, "max_position_embeddings", NULL, "max_position_embeddings");
	d = add_number(o, d, "seq_length", NULL, "max_position_embeddings");
	d = add_number(o, d, "norm_epsilon", NULL, "rms_norm_eps");
	d = add_number(o, d, "rotary_base", "rope_parameters", "rope_theta");
	d = add_number(o, d, "rotary_base", NULL, "rope_theta");
	if (o->sizes.experts) {
		d = add_number(o, d, "moe_router_topk", NULL, "num_experts_per_tok");
		d = ck_val_dict_sets(a, d, "moe_layer_freq", layer_freq(o));
	}
	return d;
}

static struct ck_val *add_run(const struct mg_out *o, struct ck_val *d, enum ckpt_dtype dtype)
{
	struct ck_arena *a = o->arena;

	d = set_int(a, d, "tensor_model_parallel_size", o->want->tp);
	d = set_int(a, d, "pipeline_model_parallel_size", 1);
	d = set_int(a, d, "expert_model_parallel_size", 1);
	d = set_int(a, d, "context_parallel_size", 1);
	d = set_int(a, d, "world_size", o->want->tp);
	d = set_int(a, d, "data_parallel_size", 1);
	d = ck_val_dict_sets(a, d, "params_dtype",
			     ck_val_new_global(a, "torch", ck_dtype_info(dtype)->torch));
	d = set_bool(a, d, "bf16", dtype == CKPT_BF16);
	d = set_bool(a, d, "fp16", dtype == CKPT_F16);
	d = ck_val_dict_sets(a, d, "ckpt_format", ck_val_new_str(a, "torch_dist"));
	d = set_bool(a, d, "no_save_optim", true);
	d = set_bool(a, d, "no_save_rng", true);
	d = set_int(a, d, "iteration", 0);
	d = set_int(a, d, "consumed_train_samples", 0);
	return set_int(a, d, "consumed_valid_samples", 0);
}

/* One switch of Megatron's cannot be two things. */
static int check_switches(const struct mg_out *o, struct ckpt_err *err)
{
	const struct mg_map *map = &o->map;

	for (uint64_t i = 0; i < map->nflags; i++)
		for (uint64_t k = 0; k < i; k++)
			if (map->flag[i].arg && map->flag[k].arg &&
			    !strcmp(map->flag[i].arg, map->flag[k].arg) &&
			    o->sizes.flag[i] != o->sizes.flag[k])
				return ck_fail(err, CKPT_E_UNSUPPORTED, o->sizes.where,
					       CKPT_NO_OFFSET, "%s and %s differ, and "
					       "Megatron-Core has one argument for both, %s",
					       map->flag[k].key, map->flag[i].key,
					       map->flag[i].arg);
	return 0;
}

int ck_mg_out_common(struct mg_out *o, struct ck_val **out, struct ckpt_err *err)
{
	struct ck_arena *a = o->arena;
	struct ck_val *args = ck_val_new_dict(a), *d = ck_val_new_dict(a), *object;
	int rc = check_switches(o, err);

	if (rc)
		return rc;
	args = add_table(o, args);
	args = add_sizes(o, args);
	args = add_run(o, args, o->n ? (enum ckpt_dtype)o->tensor[0].dtype : CKPT_F32);
	object = ck_val_new_object(a, CK_HOW_NEWOBJ, ck_val_new_global(a, "argparse", "Namespace"),
				   ck_val_new_tuple(a, NULL, 0));
	if (object)
		object->u.obj->state = args;
	d = ck_val_dict_sets(a, d, "args", args ? object : NULL);
	d = ck_val_dict_sets(a, d, "checkpoint_version", ck_val_new_float(a, 3.0));
	d = set_int(a, d, "iteration", 0);
	d = set_int(a, d, "num_floating_point_operations_so_far", 0);
	*out = d;
	return d ? 0 : ck_fail_nomem(err, "arguments", 0);
}
