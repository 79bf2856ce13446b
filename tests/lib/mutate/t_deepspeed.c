/*
 * See t_fsdp.h: what DeepSpeed's files say of experts, tensor and pipeline parallelism.
 *
 * Left out besides is a rule of universal_checkpoint_info that is another one: nothing else says
 * how slices are joined.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/mutate/t_fsdp.h"
#include "tests/lib/mutate/t_graph.h"

/* A file that is open. */
struct open {
	struct t_fsdp *m;
	struct t_file *file;
	struct t_graph g;
};

static bool load(struct open *o, struct t_fsdp *m, const char *part)
{
	*o = (struct open){ .m = m, .file = t_fsdp_pick(m, part, ".pt") };
	if (!o->file)
		return false;
	t_graph_load_file(&o->g, o->file);
	return true;
}

static bool end(struct open *o, bool made)
{
	if (made)
		t_graph_put(&o->g, o->m->files, o->file);
	if (o->file)
		t_graph_free(&o->g);
	return made;
}

static int64_t other_number(struct t_fsdp *m, int64_t n)
{
	static const int64_t by[] = { 1, -1, 2, 4, 7, -2, 1000 };
	const int64_t k = by[t_fsdp_draw(m, sizeof(by) / sizeof(by[0]))];

	return n + k >= 0 ? n + k : n + 1;
}

/* An integer in '*slot', or one of the list that is there. */
static bool change_number(struct open *o, struct ck_val **slot, const char *what)
{
	struct ck_val **item;
	int64_t was, is;
	uint64_t n;

	if (!slot)
		return false;
	t_graph_own(&o->g, slot);
	item = t_graph_items(*slot, &n);
	if (item && n)
		slot = &item[t_fsdp_draw(o->m, n)];
	if (!ck_val_int(*slot, &was))
		return false;
	is = other_number(o->m, was);
	*slot = t_graph_int(&o->g, is);
	return t_fsdp_say(o->m, "%s of %s: %lld to %lld", what, o->file->name, (long long)was,
			  (long long)is);
}

static bool model_number(struct t_fsdp *m)
{
	static const char *const keys[] = { "mp_world_size", "dp_world_size", "num_experts" };
	const char *key = keys[t_fsdp_draw(m, sizeof(keys) / sizeof(keys[0]))];
	struct open o;

	return end(&o, load(&o, m, "mp_rank") && !strstr(o.file->name, "optim") &&
		       change_number(&o, t_graph_slot(o.g.doc.root, key), key));
}

static struct ck_val *zero_of(struct open *o)
{
	struct ck_val **zero = t_graph_slot(o->g.doc.root, "optimizer_state_dict");

	return zero ? *zero : NULL;
}

static bool partition_count(struct t_fsdp *m)
{
	struct open o;
	const bool is_open = load(&o, m, "optim_states");
	struct ck_val *zero = is_open ? zero_of(&o) : NULL;

	return end(&o, zero && change_number(&o, t_graph_slot(zero, "partition_count"),
					     "partition_count"));
}

/* Of a dict, two keys exchanged, or one that is another or missing. */
static bool change_keys(struct open *o, struct ck_val *dict, const char *what)
{
	uint64_t n, i, k;
	struct ck_val **pair = t_graph_items(dict, &n), *key;
	char *to;

	if (!pair || n < 4)
		return false;
	i = t_fsdp_draw(o->m, n / 2);
	k = t_fsdp_draw(o->m, n / 2);
	key = pair[2 * i];
	if (!ck_val_str(key) || !ck_val_str(pair[2 * k]))
		return false;
	switch (t_fsdp_draw(o->m, 3)) {
	case 0:
		if (i == k)
			return false;
		t_fsdp_say(o->m, "%s of %s: %s and %s exchanged", what, o->file->name,
			   ck_val_str(key), ck_val_str(pair[2 * k]));
		pair[2 * i] = pair[2 * k];
		pair[2 * k] = key;
		return true;
	case 1:
		to = t_fmt("%s.x", ck_val_str(key));
		t_fsdp_say(o->m, "%s of %s: %s to %s", what, o->file->name, ck_val_str(key), to);
		pair[2 * i] = t_graph_str(&o->g, to);
		free(to);
		return true;
	default:
		t_fsdp_say(o->m, "%s of %s: without %s", what, o->file->name, ck_val_str(key));
		t_graph_cut(dict, 2 * i, 2);
		return true;
	}
}

static bool module_names(struct t_fsdp *m)
{
	struct open o;
	const bool is_open = load(&o, m, "_model_states");
	struct ck_val **module = is_open ? t_graph_slot(o.g.doc.root, "module") : NULL;
	struct ck_val *dict = module && !ck_val_is_none(*module) ? *module :
			      is_open && strstr(o.file->name, "layer_") ? o.g.doc.root : NULL;

	return end(&o, dict && change_keys(&o, dict, "names"));
}

static bool shape_names(struct t_fsdp *m)
{
	struct open o;
	const bool is_open = load(&o, m, "mp_rank");
	struct ck_val **shapes = is_open ? t_graph_slot(o.g.doc.root, "param_shapes") : NULL;
	struct ck_val **group;
	uint64_t n = 0;

	group = shapes ? t_graph_items(*shapes, &n) : NULL;
	return end(&o, n && change_keys(&o, group[t_fsdp_draw(m, n)], "param_shapes"));
}

/* The number of an expert in its keys, or the name of a layer's file. */
static bool expert_number(struct t_fsdp *m)
{
	struct t_file *f = t_fsdp_pick(m, "_expert_", ".pt"), *g;

	g = t_fsdp_pick(m, "_expert_", ".pt");
	if (!f || f == g)
		return false;
	t_files_swap(f, g);
	return t_fsdp_say(m, "%s and %s", f->name, g->name);
}

static bool layer_number(struct t_fsdp *m)
{
	struct t_file *f = t_fsdp_pick(m, "layer_0", ".pt"), *g;

	g = t_fsdp_pick(m, "layer_0", ".pt");
	if (!f || f == g || strstr(f->name, "expert"))
		return false;
	t_files_swap(f, g);
	return t_fsdp_say(m, "%s and %s", f->name, g->name);
}

static bool group_name(struct t_fsdp *m)
{
	struct open o;
	const bool is_open = load(&o, m, "optim_states");
	struct ck_val *zero = is_open ? zero_of(&o) : NULL;
	struct ck_val **base = t_graph_slot(zero, "base_optimizer_state");
	struct ck_val **groups = base ? t_graph_slot(*base, "param_groups") : NULL, **name, **item;
	uint64_t n = 0;

	item = groups ? t_graph_items(*groups, &n) : NULL;
	name = n ? t_graph_slot(item[t_fsdp_draw(m, n)], "name") : NULL;
	if (!name || !ck_val_str(*name) || strncmp(ck_val_str(*name), "ep_size_", 8))
		return end(&o, false);
	t_fsdp_say(m, "%s of %s", ck_val_str(*name), o.file->name);
	*name = t_graph_str(&o.g, strcmp(ck_val_str(*name), "ep_size_2") ? "ep_size_2" :
			    "ep_size_4");
	return end(&o, true);
}

const struct t_fsdp_kind t_deepspeed[] = {
	{ "model: a number of the layout", model_number, T_DEEPSPEED },
	{ "model: names", module_names, T_DEEPSPEED },
	{ "model: names of param_shapes", shape_names, T_DEEPSPEED },
	{ "optimizer: partition_count", partition_count, T_DEEPSPEED },
	{ "optimizer: ep_size of a group", group_name, T_DEEPSPEED },
	{ "experts: two files exchanged", expert_number, T_DEEPSPEED },
	{ "layers: two files exchanged", layer_number, T_DEEPSPEED },
	{ NULL, NULL, 0 },
};
