/* See t_fsdp.h: what the pickle of one rank's file says. */
#include "tests/lib/mutate/t_fsdp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/mutate/t_graph.h"

/* A file that is open. */
struct rank {
	struct t_fsdp *m;
	struct t_file *file;
	struct t_graph g;
	struct ck_val **item;		/* of its dictionary */
	uint64_t nitems;		/* pairs */
};

static const char *text(struct ck_val *v)
{
	const char *s = ck_val_str(v);
	static char number[24];
	int64_t n = -1;

	if (s)
		return s;
	ck_val_int(v, &n);
	snprintf(number, sizeof(number), "%lld", (long long)n);
	return number;
}

static uint64_t draw(struct rank *r, uint64_t n)
{
	return t_fsdp_draw(r->m, n);
}

static int64_t other_number(struct rank *r, int64_t n)
{
	static const int64_t by[] = { 1, -1, 2, 3, 8, -2, 100, (int64_t)1 << 40 };
	const int64_t k = by[draw(r, sizeof(by) / sizeof(by[0]))];

	return n + k >= 0 ? n + k : n + 1;
}

/* A number of a sequence that hangs in '*slot', which gets a copy of its own. */
static bool change_one(struct rank *r, struct ck_val **slot, const char *what)
{
	int64_t was = 0, is;
	uint64_t n, k;
	struct ck_val **item;

	if (!slot || ck_val_is_none(*slot))
		return false;
	t_graph_own(&r->g, slot);
	item = t_graph_items(*slot, &n);
	if (!n)
		return false;
	k = draw(r, n);
	if (!ck_val_int(item[k], &was))
		return item[k]->kind == CK_VAL_TUPLE && change_one(r, &item[k], what);
	is = other_number(r, was);
	item[k] = t_graph_int(&r->g, is);
	return t_fsdp_say(r->m, "%s: %s of %s, %lld to %lld", r->file->name, what, r->m->what,
			  (long long)was, (long long)is);
}

static bool change_number(struct rank *r, struct ck_val **slot, const char *what)
{
	int64_t was = 0, is;

	if (!slot || !ck_val_int(*slot, &was))
		return false;
	is = other_number(r, was);
	*slot = t_graph_int(&r->g, is);
	return t_fsdp_say(r->m, "%s: %s, %lld to %lld", r->file->name, what, (long long)was,
			  (long long)is);
}

/* ---- finding ---- */

/* The last item of the tree's objects of that class; they may be of any tensor. */
static struct ck_val *draw_object(struct rank *r, const char *class_name)
{
	struct ck_val *found = NULL;
	uint64_t n = 0;

	for (size_t i = 0; i < r->g.n; i++)
		if (t_graph_is(r->g.node[i], class_name) && !draw(r, ++n))
			found = r->g.node[i];
	return found;
}

/* A sharded tensor: arguments of its call (function, class, arguments, state). */
static struct ck_val **draw_sharded(struct rank *r)
{
	struct ck_val *v = draw_object(r, "_rebuild_from_type_v2");
	uint64_t n = 0;
	struct ck_val **arg = v ? t_graph_items(t_graph_own(&r->g, &v->u.obj->args), &n) : NULL;

	return n == 4 ? arg : NULL;
}

/* ---- a sharded tensor ---- */

static bool full_size(struct rank *r)
{
	struct ck_val **arg = draw_sharded(r), **of;
	uint64_t n;

	if (!arg)
		return false;
	of = t_graph_items(arg[2], &n);
	t_fsdp_say(r->m, "a sharded tensor");
	return n > 2 && change_one(r, &of[2], "full size");
}

static bool full_type(struct rank *r)
{
	struct ck_val **arg = draw_sharded(r);
	const char *to = draw(r, 2) ? "float16" : "int32";
	uint64_t n;

	if (!arg)
		return false;
	t_graph_items(arg[2], &n)[1] = t_graph_global(&r->g, "torch", to);
	return t_fsdp_say(r->m, "%s: type to %s", r->file->name, to);
}

/* Of one tensor; specs share their placements. */
static struct ck_val **draw_placements(struct rank *r)
{
	struct ck_val *spec = draw_object(r, "DTensorSpec");
	struct ck_val **slot = t_graph_slot(spec, "placements");

	if (slot)
		t_graph_own(&r->g, slot);
	return slot;
}

static bool shard_dim(struct rank *r)
{
	struct ck_val **slot = draw_placements(r), **item;
	uint64_t n, k;

	item = slot ? t_graph_items(*slot, &n) : NULL;
	if (!item || !n)
		return false;
	k = draw(r, n);
	return change_number(r, t_graph_slot(item[k], "dim"), "dim of a Shard");
}

static bool split_factor(struct rank *r)
{
	struct ck_val *v = draw_object(r, "_StridedShard");

	return change_number(r, t_graph_slot(v, "split_factor"), "split_factor");
}

/* Shard to Replicate, or two of them exchanged, or one too few. */
static bool placements(struct rank *r)
{
	struct ck_val **slot = draw_placements(r), **item, *v;
	uint64_t n = 0, k;

	item = slot ? t_graph_items(*slot, &n) : NULL;
	if (!n)
		return false;
	k = draw(r, n);
	if (n > 1 && draw(r, 2)) {
		if (ck_val_equal(item[0], item[1], 20))
			return false;
		v = item[0];
		item[0] = item[1];
		item[1] = v;
		return t_fsdp_say(r->m, "%s: placements exchanged", r->file->name);
	}
	if (t_graph_is(item[k], "Replicate") || !draw(r, 3)) {
		t_graph_cut(*slot, k, 1);
		return t_fsdp_say(r->m, "%s: a placement is missing", r->file->name);
	}
	v = item[k]->u.obj->fn;
	item[k]->u.obj->fn = t_graph_global(&r->g, v->u.global.module, "Replicate");
	return t_fsdp_say(r->m, "%s: a Shard is a Replicate", r->file->name);
}

static bool shard_order(struct rank *r)
{
	struct ck_val *v = draw_object(r, "ShardOrderEntry");
	uint64_t n;
	struct ck_val **item = v ? t_graph_items(v->u.obj->args, &n) : NULL;

	t_fsdp_say(r->m, "shard_order");
	return item && n > 1 && change_one(r, &item[1], "axes");
}

/* ---- the mesh ---- */

static bool mesh_own(struct rank *r)
{
	struct ck_val *mesh = draw_object(r, "DeviceMesh");
	struct ck_val **rank = t_graph_slot(mesh, "_rank");

	if (rank && draw(r, 2))
		return change_number(r, rank, "_rank");
	t_fsdp_say(r->m, "the mesh");
	return change_one(r, t_graph_slot(mesh, "_coordinate_on_dim"), "coordinate");
}

/* The layout itself, or those of its axes. */
static bool mesh_layout(struct rank *r, const char *key)
{
	struct ck_val *v = draw_object(r, "_FlatLayout"), **slot;

	if (!v)
		v = draw_object(r, "_MeshLayout");
	slot = t_graph_slot(v, key);
	if (!slot)
		return false;
	t_fsdp_say(r->m, "the mesh");
	return (*slot)->kind == CK_VAL_INT ? change_number(r, slot, key) : change_one(r, slot, key);
}

static bool mesh_shape_or_stride(struct rank *r)
{
	return mesh_layout(r, draw(r, 2) ? "shape" : "stride");
}

/* ---- this rank's part ---- */

static struct ck_val **draw_tensor(struct rank *r, uint64_t *n)
{
	struct ck_val *v = draw_object(r, "_rebuild_tensor_v2");

	*n = 0;
	return v ? t_graph_items(t_graph_own(&r->g, &v->u.obj->args), n) : NULL;
}

/* Of a DTensor: its placements say another one. */
static bool part_size(struct rank *r)
{
	struct ck_val **arg = draw_sharded(r), **slot, **item;
	uint64_t n;

	slot = arg ? t_graph_slot(arg[3], "_local_tensor") : NULL;
	if (!slot || (*slot)->kind != CK_VAL_OBJECT)
		return false;
	t_graph_own(&r->g, slot);
	item = t_graph_items((*slot)->u.obj->args, &n);
	t_fsdp_say(r->m, "this rank's part");
	return n > 3 && change_one(r, &item[2], "size");
}

/* To the end of its storage, or beyond. */
static bool part_offset(struct rank *r)
{
	uint64_t n, k;
	struct ck_val **arg = draw_tensor(r, &n), **id;
	int64_t size = 0;

	if (n < 4 || arg[0]->kind != CK_VAL_PERSID)
		return false;
	id = t_graph_items(arg[0]->u.pid, &k);
	if (k < 5 || !ck_val_int(id[4], &size) || !size)
		return false;
	arg[1] = t_graph_int(&r->g, size + (int64_t)draw(r, 100));
	return t_fsdp_say(r->m, "%s: a tensor begins after the %lld elements of its storage",
			  r->file->name, (long long)size);
}

static bool storage_size(struct rank *r)
{
	uint64_t n, k;
	struct ck_val **arg = draw_tensor(r, &n), **id;
	int64_t size = 0;

	if (n < 4 || arg[0]->kind != CK_VAL_PERSID)
		return false;
	id = t_graph_items(t_graph_own(&r->g, &arg[0]->u.pid), &k);
	if (k < 5 || !ck_val_int(id[4], &size) || !size)
		return false;
	size = draw(r, 2) ? size / 2 : size * 2 + 1;
	id[4] = t_graph_int(&r->g, size);
	return t_fsdp_say(r->m, "%s: a storage of %lld elements", r->file->name, (long long)size);
}

/* ---- ShardedTensor ---- */

static bool shard_place(struct rank *r, const char *key)
{
	struct ck_val *v = draw_object(r, "Shard");
	struct ck_val **meta = t_graph_slot(v, "metadata"), **slot;

	slot = meta ? t_graph_slot(*meta, key) : NULL;
	t_fsdp_say(r->m, "a shard");
	return change_one(r, slot, key);
}

static bool shard_offsets(struct rank *r)
{
	return shard_place(r, "shard_offsets");
}

static bool shard_sizes(struct rank *r)
{
	return shard_place(r, "shard_sizes");
}

static bool shard_group(struct rank *r)
{
	struct ck_val **found = NULL;
	uint64_t n = 0;

	for (size_t i = 0; i < r->g.n; i++) {
		struct ck_val *v = r->g.node[i];
		struct ck_val **slot =
			v->kind == CK_VAL_OBJECT ?
			t_graph_slot(v, i & 1 ? "global_rank" : "global_world_size") : NULL;

		if (slot && !draw(r, ++n))
			found = slot;
	}
	return change_number(r, found, "rank or world of the process group");
}

/* ---- the dictionary ---- */

static bool is_model(const struct rank *r)
{
	return strstr(r->file->name, "model_") != NULL;
}

static bool name_drop(struct rank *r)
{
	const uint64_t i = draw(r, r->nitems);

	if (!is_model(r) || !r->nitems)
		return false;
	t_fsdp_say(r->m, "%s: %s", r->file->name, text(r->item[2 * i]));
	t_graph_cut(r->g.doc.root, 2 * i, 2);
	return true;
}

static bool name_other(struct rank *r)
{
	const uint64_t i = draw(r, r->nitems), k = draw(r, r->nitems);
	char *to;

	if (!is_model(r) || !r->nitems)
		return false;
	to = t_fmt("%s%s", text(r->item[2 * k]), i == k ? "x" : "");
	t_fsdp_say(r->m, "%s: %s to %s", r->file->name, text(r->item[2 * i]), to);
	r->item[2 * i] = t_graph_str(&r->g, to);
	free(to);
	return true;
}

static bool name_twice(struct rank *r)
{
	const uint64_t i = draw(r, r->nitems), k = draw(r, r->nitems);

	if (!is_model(r) || i == k)
		return false;
	t_graph_add(&r->g, r->g.doc.root, r->item[2 * i], r->item[2 * k + 1]);
	return t_fsdp_say(r->m, "%s: %s", r->file->name, text(r->item[2 * i]));
}

/* Of two tensors of other shapes or types. */
static bool value_swap(struct rank *r)
{
	const uint64_t i = draw(r, r->nitems), k = draw(r, r->nitems);
	struct ck_val *v, **a, **b;
	uint64_t n, m;

	if (!is_model(r) || !r->nitems ||
	    !t_graph_is(r->item[2 * i + 1], "_rebuild_from_type_v2") ||
	    !t_graph_is(r->item[2 * k + 1], "_rebuild_from_type_v2"))
		return false;
	a = t_graph_items(r->item[2 * i + 1]->u.obj->args, &n);
	b = t_graph_items(r->item[2 * k + 1]->u.obj->args, &m);
	if (n != 4 || m != 4 || ck_val_equal(ck_val_at(a[2], 2), ck_val_at(b[2], 2), 20))
		return false;
	v = r->item[2 * i + 1];
	r->item[2 * i + 1] = r->item[2 * k + 1];
	r->item[2 * k + 1] = v;
	return t_fsdp_say(r->m, "%s: %s and %s", r->file->name, text(r->item[2 * i]),
			  text(r->item[2 * k]));
}

/* ---- the optimizer ---- */

static struct ck_val *draw_group(struct rank *r)
{
	struct ck_val **groups = is_model(r) ? NULL : t_graph_slot(r->g.doc.root, "param_groups");
	uint64_t n = 0;
	struct ck_val **group = groups ? t_graph_items(*groups, &n) : NULL;

	return n ? group[draw(r, n)] : NULL;
}

static bool group_params(struct rank *r)
{
	struct ck_val *group = draw_group(r), **slot = t_graph_slot(group, "params");
	uint64_t n = 0;

	if (slot)
		t_graph_items(*slot, &n);
	if (!n)
		return false;
	t_fsdp_say(r->m, "%s: of %llu", r->file->name, (unsigned long long)n);
	t_graph_cut(*slot, draw(r, n), 1);
	return true;
}

static bool group_value(struct rank *r)
{
	struct ck_val *group = draw_group(r), **slot = t_graph_slot(group, "lr");

	if (!slot)
		return false;
	*slot = t_graph_int(&r->g, 7);
	return t_fsdp_say(r->m, "%s: lr", r->file->name);
}

static struct ck_val **draw_states(struct rank *r, struct ck_val **dict, uint64_t *n)
{
	struct ck_val **slot = is_model(r) ? NULL : t_graph_slot(r->g.doc.root, "state");
	struct ck_val **item = slot ? t_graph_items(*slot, n) : NULL;

	*n = item ? *n / 2 : 0;
	*dict = slot ? *slot : NULL;
	return item;
}

/* Has another rank's file states under that key, a name or a number? */
static bool is_on_others(struct rank *r, struct ck_val *key)
{
	bool found = false;

	for (size_t i = 0; i < r->m->files->n && !found; i++) {
		const struct t_file *f = &r->m->files->f[i];
		struct ck_val **slot, **item;
		struct t_graph g;
		uint64_t n = 0;

		if (f == r->file || !strstr(f->name, "optim"))
			continue;
		t_graph_load_file(&g, f);
		slot = t_graph_slot(g.doc.root, "state");
		item = slot ? t_graph_items(*slot, &n) : NULL;
		for (uint64_t k = 0; k < n; k += 2)
			found |= ck_val_equal(item[k], key, 2);
		t_graph_free(&g);
	}
	return found;
}

static bool states_drop(struct rank *r)
{
	struct ck_val *dict, **item;
	uint64_t n = 0, i;

	item = draw_states(r, &dict, &n);
	if (!n)
		return false;
	i = draw(r, n);
	if (!is_on_others(r, item[2 * i]))
		return false;
	t_fsdp_say(r->m, "%s: states of %s", r->file->name, text(item[2 * i]));
	t_graph_cut(dict, 2 * i, 2);
	return true;
}

static void say_size(const struct ck_val *tensor, char *out, size_t room)
{
	const struct ck_val *args = tensor && tensor->kind == CK_VAL_OBJECT ? tensor->u.obj->args :
				    NULL;
	const struct ck_val *size = t_graph_is(tensor, "_rebuild_tensor_v2") ? ck_val_at(args, 2) :
				    ck_val_at(ck_val_at(args, 2), 2);
	struct ck_val *const *item;
	uint64_t n = 0;

	*out = 0;
	if (!ck_val_seq(size, &item, &n))
		return;
	for (uint64_t i = 0; i < n; i++) {
		int64_t k = -1;

		ck_val_int(item[i], &k);
		snprintf(out + strlen(out), room - strlen(out), " %lld", (long long)k);
	}
}

/* States of two parameters whose first ones have other shapes. */
static bool states_swap(struct rank *r)
{
	struct ck_val *dict, **item, *v, **a, **b;
	uint64_t n = 0, i, k;
	char x[100], y[100];

	item = draw_states(r, &dict, &n);
	if (n < 2)
		return false;
	i = draw(r, n);
	k = draw(r, n);
	a = t_graph_slot(item[2 * i + 1], "exp_avg");
	b = t_graph_slot(item[2 * k + 1], "exp_avg");
	if (!a || !b)
		return false;
	say_size(*a, x, sizeof(x));
	say_size(*b, y, sizeof(y));
	if (!strcmp(x, y))
		return false;
	v = item[2 * i + 1];
	item[2 * i + 1] = item[2 * k + 1];
	item[2 * k + 1] = v;
	t_fsdp_say(r->m, "%s:%s and%s", r->file->name, x, y);
	return true;
}

static bool state_name(struct rank *r)
{
	struct ck_val *dict, **item, **state;
	uint64_t n = 0, k, at;

	item = draw_states(r, &dict, &n);
	at = n ? draw(r, n) : 0;
	if (!n || !is_on_others(r, item[2 * at]))
		return false;
	state = t_graph_items(item[2 * at + 1], &k);
	for (uint64_t i = 0; i < k; i += 2)
		if (ck_val_is_str(state[i], "exp_avg")) {
			state[i] = t_graph_str(&r->g, "momentum");
			return t_fsdp_say(r->m, "%s: exp_avg to momentum", r->file->name);
		}
	return false;
}

static bool nothing(struct rank *r)
{
	return t_fsdp_say(r->m, "%s written again", r->file->name);
}

/* ---- */

static bool change(struct t_fsdp *m, bool (*how)(struct rank *))
{
	struct rank r = { .m = m, .file = t_fsdp_pick(m, "", "") };
	bool made;

	if (!r.file || t_ends_with(r.file->name, "fsdp.bin") ||
	    t_ends_with(r.file->name, "optimizer.bin"))
		return false;
	t_graph_load_file(&r.g, r.file);
	r.item = t_graph_items(r.g.doc.root, &r.nitems);
	r.nitems /= 2;
	made = how(&r);
	if (made)
		t_graph_put(&r.g, m->files, r.file);
	t_graph_free(&r.g);
	return made;
}

#define KINDS(X) \
	X(nothing, "rank: nothing") \
	X(full_size, "tensor: full size") \
	X(full_type, "tensor: type") \
	X(shard_dim, "tensor: dimension of a Shard") \
	X(split_factor, "tensor: split_factor") \
	X(placements, "tensor: placements") \
	X(shard_order, "tensor: shard_order") \
	X(mesh_own, "mesh: the rank's own place") \
	X(mesh_shape_or_stride, "mesh: shape or stride") \
	X(part_size, "part: size") \
	X(part_offset, "part: offset after its storage") \
	X(storage_size, "part: size of its storage") \
	X(shard_offsets, "shard: offsets") \
	X(shard_sizes, "shard: sizes") \
	X(shard_group, "shard: process group") \
	X(name_drop, "model: a name is missing") \
	X(name_other, "model: another name") \
	X(name_twice, "model: a name twice") \
	X(value_swap, "model: two of other shapes exchanged") \
	X(group_params, "groups: a parameter is missing") \
	X(group_value, "groups: another value") \
	X(states_drop, "states: of a parameter, missing") \
	X(states_swap, "states: two of other shapes exchanged") \
	X(state_name, "states: another name")

#define MAKE(how, name) \
	static bool make_##how(struct t_fsdp *m) \
	{ \
		return change(m, how); \
	}
KINDS(MAKE)

#define ROW(how, name) { name, make_##how, T_FSDP_RANKS },
const struct t_fsdp_kind t_fsdp_ranks[] = { KINDS(ROW) { NULL, NULL, 0 } };
