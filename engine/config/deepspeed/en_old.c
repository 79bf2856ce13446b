/*
 * en_old.c -- names of zero_optimization that DeepSpeed still takes, and warns of; see
 * en_deepspeed_priv.h.
 */
#include <string.h>

#include "engine/config/deepspeed/en_deepspeed_priv.h"

struct old_key {
	const char *name, *now;		/* in zero_optimization */
	const char *alias;		/* of 'now' */
	enum en_block block;		/* where the value goes */
	const char *key;
	bool is_device;			/* true means "cpu" */
};

static const struct old_key old_keys[] = {
	{ "cpu_offload", "offload_optimizer", NULL, EN_B_OFFLOAD_OPTIMIZER, "device", true },
	{ "cpu_offload_param", "offload_param", NULL, EN_B_OFFLOAD_PARAM, "device", true },
	{ "stage3_gather_fp16_weights_on_model_save", "gather_16bit_weights_on_model_save",
	  "stage3_gather_16bit_weights_on_model_save", EN_B_ZERO,
	  "gather_16bit_weights_on_model_save", false },
};

static const struct old_key *find(const char *name)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(old_keys); i++)
		if (!strcmp(old_keys[i].name, name))
			return &old_keys[i];
	return NULL;
}

static bool is_given(const struct en_node *v)
{
	return v && !en_node_is_auto(v);
}

static void use(struct en_resolve *ev, const struct old_key *o, const struct en_node *v,
		const char *path, bool on)
{
	const size_t number = en_key_number(o->block, o->key);
	uint64_t n;

	ev->given[number].v = v;
	if (o->is_device)
		ev->value[number] = (struct en_value){ .type = EN_INT,
						       .i = on ? EN_DEVICE_CPU : EN_DEVICE_NONE };
	else
		ev->value[number] = (struct en_value){ .type = EN_BOOL, .i = on };
	n = en_rule(ev, EN_USED, path, v, "deprecated: read as \"%s\"%s",
		    o->alias ? o->alias : o->now, !o->is_device ? "" :
		    on ? ": {\"device\": \"cpu\"}" : ": null");
	if (n)
		ev->cfg->verdict[n - 1].deprecated = true;
	ev->given[number].verdict = n;
}

bool en_old_key(struct en_resolve *ev, const struct en_node *dict, const struct en_node *v)
{
	static const struct en_key as_bool = { .type = EN_K_BOOL, .flags = EN_F_NULL };
	const struct old_key *o = find(v->key);
	struct en_value got;
	char why[EN_WHY];
	const char *path;
	bool theirs;

	if (!o)
		return false;
	path = ck_arena_printf(&ev->cfg->arena, "zero_optimization.%s", v->key);
	if (!path) {
		ev->rc = -CKPT_E_NOMEM;
		return true;
	}
	if (en_node_is_auto(v))
		en_rule(ev, EN_IGNORED, path, v, "deprecated; \"auto\" is ignored");
	else if (en_coerce(&as_bool, true, ev->cfg->version, v, &got, &theirs, why))
		en_refuse(ev, theirs, CKPT_E_CORRUPT, path, v, "%s", why);
	else if (is_given(en_node_get(dict, o->now)) ||
		 (o->alias && is_given(en_node_get(dict, o->alias))))
		en_refuse(ev, true, CKPT_E_CORRUPT, path, v,
			  "old name of \"%s\", which is given too; remove one",
			  o->alias ? o->alias : o->now);
	else
		use(ev, o, v, path, got.type == EN_BOOL && got.i);
	return true;
}
