/* See t_fsdp.h: what '.metadata' says. */
#include "tests/lib/mutate/t_fsdp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/mutate/t_graph.h"

/* A '.metadata' that is open. */
struct meta {
	struct t_fsdp *m;
	struct t_file *file;
	struct t_graph g;
	struct ck_val **root_items, **root_places, **root_paths;	/* slots */
	struct ck_val **item, **place, **path;
	uint64_t nitems, nplaces, npaths;	/* pairs */
};

static bool load(struct meta *e, const struct t_file *f)
{
	t_graph_load_file(&e->g, f);
	e->root_items = t_graph_slot(e->g.doc.root, "state_dict_metadata");
	e->root_places = t_graph_slot(e->g.doc.root, "storage_data");
	e->root_paths = t_graph_slot(e->g.doc.root, "planner_data");
	if (!e->root_items || !e->root_places)
		t_die("%s has no items or no places", f->name);
	e->item = t_graph_items(*e->root_items, &e->nitems);
	e->place = t_graph_items(*e->root_places, &e->nplaces);
	e->path = t_graph_items(e->root_paths ? *e->root_paths : NULL, &e->npaths);
	e->nitems /= 2;
	e->nplaces /= 2;
	e->npaths /= 2;
	return true;
}

static const char *text(struct ck_val **slot)
{
	const char *s = slot ? ck_val_str(*slot) : NULL;

	return s ? s : "?";
}

static int64_t number(struct ck_val **slot)
{
	int64_t n = -1;

	return slot && ck_val_int(*slot, &n) ? n : -1;
}

/* ---- what an item is, for all that its archive says ---- */

static void say_sizes(char *out, size_t room, struct ck_val *v)
{
	uint64_t n;
	struct ck_val **item = t_graph_items(v, &n);

	for (uint64_t i = 0; i < n; i++) {
		const size_t k = strlen(out);

		snprintf(out + k, room - k, " %lld", (long long)number(&item[i]));
	}
}

static struct ck_val *item_of(const struct meta *e, const char *name)
{
	for (uint64_t i = 0; i < e->nitems; i++)
		if (ck_val_is_str(e->item[2 * i], name))
			return e->item[2 * i + 1];
	return NULL;
}

static void say_type(char *out, size_t room, struct ck_val *item)
{
	struct ck_val **properties = t_graph_slot(item, "properties");
	const struct ck_val *type = properties && (*properties)->kind == CK_VAL_OBJECT ?
				    ck_val_at((*properties)->u.obj->state, 0) : NULL;

	snprintf(out, room, "%s",
		 type && type->kind == CK_VAL_GLOBAL ? type->u.global.name : "value");
}

/* Type and shape of the block that a place is of. */
static void say_block(const struct meta *e, uint64_t place, char *out, size_t room)
{
	struct ck_val *index = e->place[2 * place], **at = t_graph_slot(index, "offset");
	struct ck_val *item = item_of(e, text(t_graph_slot(index, "fqn")));
	struct ck_val **chunks = t_graph_slot(item, "chunks"), **chunk;
	char want[200] = "", is[200];
	uint64_t n;

	say_type(out, room, item);
	if (!chunks || !at)
		return;
	say_sizes(want, sizeof(want), *at);
	chunk = t_graph_items(*chunks, &n);
	for (uint64_t i = 0; i < n; i++) {
		struct ck_val **offsets = t_graph_slot(chunk[i], "offsets");

		*is = 0;
		say_sizes(is, sizeof(is), *offsets);
		if (!strcmp(is, want))
			say_sizes(out, room, *t_graph_slot(chunk[i], "sizes"));
	}
}

/* Places of a data file: "OFFSET LENGTH TYPE SHAPE" of each, in the order of offsets. */
static int compare_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static char *plan_of(const struct t_files *files, const char *data)
{
	const char *slash = strrchr(data, '/');
	char *name = t_fmt("%.*s.metadata", slash ? (int)(slash - data + 1) : 0, data);
	const struct t_file *f = t_files_find(files, name);
	char **line, *all = t_fmt("%s", "");
	struct meta e;
	size_t n = 0;

	free(name);
	if (!f) {
		free(all);
		return NULL;
	}
	load(&e, f);
	line = t_alloc((e.nplaces + 1) * sizeof(*line));
	for (uint64_t i = 0; i < e.nplaces; i++) {
		struct ck_val *info = e.place[2 * i + 1];
		char block[300];

		if (strcmp(text(t_graph_slot(info, "relative_path")), slash ? slash + 1 : data))
			continue;
		say_block(&e, i, block, sizeof(block));
		line[n++] = t_fmt("%012lld %lld %s",
				  (long long)number(t_graph_slot(info, "offset")),
				  (long long)number(t_graph_slot(info, "length")), block);
	}
	qsort(line, n, sizeof(*line), compare_text);
	for (size_t i = 0; i < n; i++) {
		char *more = t_fmt("%s%s\n", all, line[i]);

		free(all);
		free(line[i]);
		all = more;
	}
	free(line);
	t_graph_free(&e.g);
	return all;
}

bool t_fsdp_same_plan(const struct t_files *of_a, const char *a, const struct t_files *of_b,
		      const char *b)
{
	char *x = plan_of(of_a, a), *y = plan_of(of_b, b);
	const bool same = x && y && !strcmp(x, y);

	free(x);
	free(y);
	return same;
}

/* ---- places ---- */

static int64_t other_number(struct t_fsdp *m, int64_t n)
{
	static const int64_t by[] = { 1, -1, 2, 8, 64, 512, -8, -64, 1000000, (int64_t)1 << 40 };
	const int64_t k = by[t_fsdp_draw(m, sizeof(by) / sizeof(by[0]))];

	return n + k >= 0 ? n + k : n + 1;
}

static bool place_number(struct meta *e, const char *key)
{
	const uint64_t i = t_fsdp_draw(e->m, e->nplaces), k = t_fsdp_draw(e->m, e->nplaces);
	struct ck_val **slot = t_graph_slot(e->place[2 * i + 1], key);
	const int64_t was = number(slot);
	int64_t is = number(t_graph_slot(e->place[2 * k + 1], key));

	if (!slot)
		return false;
	if (is == was || t_fsdp_draw(e->m, 2))
		is = other_number(e->m, was);
	*slot = t_graph_int(&e->g, is);
	return t_fsdp_say(e->m, "%s of %s: %lld to %lld", key,
			  text(t_graph_slot(e->place[2 * i], "fqn")), (long long)was,
			  (long long)is);
}

static bool place_offset(struct meta *e)
{
	return place_number(e, "offset");
}

static bool place_length(struct meta *e)
{
	return place_number(e, "length");
}

static bool place_path(struct meta *e)
{
	static const char *const odd[] = { "nothing.distcp", "", "..", ".metadata", "/etc/passwd" };
	const uint64_t i = t_fsdp_draw(e->m, e->nplaces), k = t_fsdp_draw(e->m, e->nplaces);
	struct ck_val **slot = t_graph_slot(e->place[2 * i + 1], "relative_path");
	struct ck_val **from = t_graph_slot(e->place[2 * k + 1], "relative_path");

	if (!slot || !from)
		return false;
	t_fsdp_say(e->m, "%s to %s", text(slot), text(from));
	if (!strcmp(text(slot), text(from)))
		*slot = t_graph_str(&e->g, odd[t_fsdp_draw(e->m, sizeof(odd) / sizeof(odd[0]))]);
	else
		*slot = *from;
	return true;
}

static bool place_swap(struct meta *e)
{
	const uint64_t i = t_fsdp_draw(e->m, e->nplaces), k = t_fsdp_draw(e->m, e->nplaces);
	struct ck_val *v = e->place[2 * i + 1];
	char a[300], b[300];

	say_block(e, i, a, sizeof(a));
	say_block(e, k, b, sizeof(b));
	if (!strcmp(a, b))
		return false;
	e->place[2 * i + 1] = e->place[2 * k + 1];
	e->place[2 * k + 1] = v;
	return t_fsdp_say(e->m, "%s (%s) and %s (%s)",
			  text(t_graph_slot(e->place[2 * i], "fqn")), a,
			  text(t_graph_slot(e->place[2 * k], "fqn")), b);
}

static bool place_drop(struct meta *e)
{
	const uint64_t i = t_fsdp_draw(e->m, e->nplaces);

	t_fsdp_say(e->m, "%s", text(t_graph_slot(e->place[2 * i], "fqn")));
	t_graph_cut(*e->root_places, 2 * i, 2);
	return true;
}

static bool place_twice(struct meta *e)
{
	const uint64_t i = t_fsdp_draw(e->m, e->nplaces), k = t_fsdp_draw(e->m, e->nplaces);

	if (i == k)
		return false;
	e->place[2 * i + 1] = e->place[2 * k + 1];
	return t_fsdp_say(e->m, "%s is where %s is", text(t_graph_slot(e->place[2 * i], "fqn")),
			  text(t_graph_slot(e->place[2 * k], "fqn")));
}

static bool place_name(struct meta *e)
{
	const uint64_t i = t_fsdp_draw(e->m, e->nplaces), k = t_fsdp_draw(e->m, e->nplaces);
	struct ck_val **slot = t_graph_slot(e->place[2 * i], "fqn");
	const char *to = text(t_graph_slot(e->place[2 * k], "fqn"));

	if (!slot || !strcmp(text(slot), to))
		to = "another.name";
	t_fsdp_say(e->m, "%s to %s", text(slot), to);
	t_graph_own(&e->g, &e->place[2 * i]);
	*t_graph_slot(e->place[2 * i], "fqn") = t_graph_str(&e->g, to);
	return true;
}

/* One number of a torch.Size that hangs in '*slot', or one more. */
static bool change_size(struct meta *e, struct ck_val **slot, const char *what, const char *of)
{
	uint64_t n, k;
	struct ck_val **item;
	int64_t was, is;

	if (!slot)
		return false;
	t_graph_own(&e->g, slot);
	item = t_graph_items(*slot, &n);
	if (!n)
		return false;
	k = t_fsdp_draw(e->m, n);
	was = number(&item[k]);
	is = t_fsdp_draw(e->m, 2) ? other_number(e->m, was) : was / 2;
	if (is == was)
		is++;
	item[k] = t_graph_int(&e->g, is);
	return t_fsdp_say(e->m, "%s of %s: %lld to %lld", what, of, (long long)was, (long long)is);
}

static bool place_block(struct meta *e)
{
	const uint64_t i = t_fsdp_draw(e->m, e->nplaces);
	struct ck_val *key = t_graph_own(&e->g, &e->place[2 * i]);
	struct ck_val **slot = t_graph_slot(key, "offset");

	return slot && !ck_val_is_none(*slot) &&
	       change_size(e, slot, "offset", text(t_graph_slot(key, "fqn")));
}

/* ---- items ---- */

static uint64_t draw_tensor(struct meta *e)
{
	uint64_t found = e->nitems, n = 0;

	for (uint64_t i = 0; i < e->nitems; i++)
		if (t_graph_slot(e->item[2 * i + 1], "chunks") && !t_fsdp_draw(e->m, ++n))
			found = i;
	return found;
}

static bool item_size(struct meta *e)
{
	const uint64_t i = draw_tensor(e);

	return i < e->nitems && change_size(e, t_graph_slot(e->item[2 * i + 1], "size"), "size",
					    ck_val_str(e->item[2 * i]));
}

static bool item_type(struct meta *e)
{
	static const char *const types[] = { "float16", "bfloat16", "float32", "int32", "int64",
					     "float64", "uint8", "no_such_type" };
	const uint64_t i = draw_tensor(e);
	const char *to = types[t_fsdp_draw(e->m, sizeof(types) / sizeof(types[0]))];
	struct ck_val **properties, **type;
	uint64_t n;

	if (i == e->nitems)
		return false;
	properties = t_graph_slot(e->item[2 * i + 1], "properties");
	t_graph_own(&e->g, properties);
	type = t_graph_items((*properties)->u.obj->state, &n);
	if (!n || type[0]->kind != CK_VAL_GLOBAL || !strcmp(type[0]->u.global.name, to))
		return false;
	t_fsdp_say(e->m, "%s: %s to %s", ck_val_str(e->item[2 * i]), type[0]->u.global.name, to);
	type[0] = t_graph_global(&e->g, "torch", to);
	return true;
}

static struct ck_val *draw_chunks(struct meta *e, uint64_t *item, struct ck_val ***chunk,
				  uint64_t *n)
{
	struct ck_val **chunks;

	*item = draw_tensor(e);
	chunks = *item < e->nitems ? t_graph_slot(e->item[2 * *item + 1], "chunks") : NULL;
	*chunk = chunks ? t_graph_items(*chunks, n) : NULL;
	return *chunk && *n ? *chunks : NULL;
}

static bool chunk_number(struct meta *e, const char *key)
{
	uint64_t i, n;
	struct ck_val **chunk;

	if (!draw_chunks(e, &i, &chunk, &n))
		return false;
	chunk += t_fsdp_draw(e->m, n);
	t_graph_own(&e->g, chunk);
	return change_size(e, t_graph_slot(*chunk, key), key, ck_val_str(e->item[2 * i]));
}

static bool chunk_offsets(struct meta *e)
{
	return chunk_number(e, "offsets");
}

static bool chunk_sizes(struct meta *e)
{
	return chunk_number(e, "sizes");
}

static bool chunk_drop(struct meta *e)
{
	uint64_t i, n, k;
	struct ck_val **chunk, *list = draw_chunks(e, &i, &chunk, &n);
	struct ck_val **sizes;

	if (!list)
		return false;
	k = t_fsdp_draw(e->m, n);
	sizes = t_graph_slot(chunk[k], "sizes");
	t_fsdp_say(e->m, "of %s, %llu of %llu", ck_val_str(e->item[2 * i]), (unsigned long long)k,
		   (unsigned long long)n);
	if (sizes)
		say_sizes(e->m->what, sizeof(e->m->what), *sizes);
	t_graph_cut(list, k, 1);
	return true;
}

static bool chunk_twice(struct meta *e)
{
	uint64_t i, n;
	struct ck_val **chunk, *list = draw_chunks(e, &i, &chunk, &n);

	if (!list)
		return false;
	t_graph_add(&e->g, list, chunk[t_fsdp_draw(e->m, n)], NULL);
	return t_fsdp_say(e->m, "of %s", ck_val_str(e->item[2 * i]));
}

static bool item_drop(struct meta *e)
{
	const uint64_t i = t_fsdp_draw(e->m, e->nitems);

	t_fsdp_say(e->m, "%s", ck_val_str(e->item[2 * i]));
	t_graph_cut(*e->root_items, 2 * i, 2);
	return true;
}

static bool item_name(struct meta *e)
{
	const uint64_t i = t_fsdp_draw(e->m, e->nitems), k = t_fsdp_draw(e->m, e->nitems);
	char *to = t_fmt("%s%s", ck_val_str(e->item[2 * k]), i == k ? "x" : "");

	t_fsdp_say(e->m, "%s to %s", ck_val_str(e->item[2 * i]), to);
	e->item[2 * i] = t_graph_str(&e->g, to);
	free(to);
	return true;
}

/* In the items and their places, not in the paths. */
static bool item_name_and_place(struct meta *e)
{
	const uint64_t i = t_fsdp_draw(e->m, e->nitems);
	const char *was = ck_val_str(e->item[2 * i]);
	char *to = t_fmt("%s.x", was);

	if (!e->npaths) {
		free(to);
		return false;
	}
	for (uint64_t k = 0; k < e->nplaces; k++)
		if (!strcmp(text(t_graph_slot(e->place[2 * k], "fqn")), was)) {
			t_graph_own(&e->g, &e->place[2 * k]);
			*t_graph_slot(e->place[2 * k], "fqn") = t_graph_str(&e->g, to);
		}
	t_fsdp_say(e->m, "%s to %s", was, to);
	e->item[2 * i] = t_graph_str(&e->g, to);
	free(to);
	return true;
}

static bool item_swap(struct meta *e)
{
	const uint64_t i = t_fsdp_draw(e->m, e->nitems), k = t_fsdp_draw(e->m, e->nitems);
	struct ck_val *v = e->item[2 * i + 1], *w = e->item[2 * k + 1];
	char a[300], b[300];

	say_type(a, sizeof(a), v);
	say_type(b, sizeof(b), w);
	if (t_graph_slot(v, "size"))
		say_sizes(a, sizeof(a), *t_graph_slot(v, "size"));
	if (t_graph_slot(w, "size"))
		say_sizes(b, sizeof(b), *t_graph_slot(w, "size"));
	if (!strcmp(a, b))
		return false;
	e->item[2 * i + 1] = w;
	e->item[2 * k + 1] = v;
	return t_fsdp_say(e->m, "%s (%s) and %s (%s)", ck_val_str(e->item[2 * i]), a,
			  ck_val_str(e->item[2 * k]), b);
}

/* ---- paths, and all of it ---- */

static bool path_drop(struct meta *e)
{
	const uint64_t i = t_fsdp_draw(e->m, e->npaths);

	if (!e->npaths)
		return false;
	t_fsdp_say(e->m, "%s", ck_val_str(e->path[2 * i]));
	t_graph_cut(*e->root_paths, 2 * i, 2);
	return true;
}

static bool path_swap(struct meta *e)
{
	const uint64_t i = t_fsdp_draw(e->m, e->npaths), k = t_fsdp_draw(e->m, e->npaths);
	struct ck_val *v = i < e->npaths ? e->path[2 * i + 1] : NULL;

	if (i == k || !e->npaths)
		return false;
	e->path[2 * i + 1] = e->path[2 * k + 1];
	e->path[2 * k + 1] = v;
	return t_fsdp_say(e->m, "%s and %s", ck_val_str(e->path[2 * i]),
			  ck_val_str(e->path[2 * k]));
}

static bool path_step(struct meta *e)
{
	const uint64_t i = t_fsdp_draw(e->m, e->npaths);
	struct ck_val **step;
	uint64_t n, k;

	if (!e->npaths)
		return false;
	t_graph_own(&e->g, &e->path[2 * i + 1]);
	step = t_graph_items(e->path[2 * i + 1], &n);
	if (!n)
		return false;
	k = t_fsdp_draw(e->m, n);
	step[k] = t_graph_str(&e->g, "other");
	return t_fsdp_say(e->m, "step %llu of %s", (unsigned long long)k,
			  ck_val_str(e->path[2 * i]));
}

static bool part_none(struct meta *e)
{
	struct ck_val **slot = t_fsdp_draw(e->m, 2) ? e->root_items : e->root_places;

	*slot = t_graph_none(&e->g);
	return t_fsdp_say(e->m, "%s", slot == e->root_items ? "items" : "places");
}

static bool nothing(struct meta *e)
{
	return t_fsdp_say(e->m, "written again");
}

/* ---- */

static bool change(struct t_fsdp *m, bool (*how)(struct meta *))
{
	struct meta e = { .m = m, .file = t_fsdp_pick(m, ".metadata", ".metadata") };
	bool made = e.file && load(&e, e.file) && how(&e);

	if (made)
		t_graph_put(&e.g, m->files, e.file);
	t_graph_free(&e.g);
	return made;
}

#define KINDS(X) \
	X(nothing, ".metadata: nothing") \
	X(place_offset, "place: offset in the file") \
	X(place_length, "place: length") \
	X(place_path, "place: relative_path") \
	X(place_swap, "place: two of other shapes exchanged") \
	X(place_drop, "place: one missing") \
	X(place_twice, "place: two items at one") \
	X(place_name, "place: name") \
	X(place_block, "place: offset of the block") \
	X(item_size, "item: size") \
	X(item_type, "item: type") \
	X(item_drop, "item: one missing") \
	X(item_name, "item: name") \
	X(item_swap, "item: two of other shapes exchanged") \
	X(chunk_offsets, "block: offsets") \
	X(chunk_sizes, "block: sizes") \
	X(chunk_drop, "block: one missing") \
	X(chunk_twice, "block: one twice") \
	X(part_none, ".metadata: a part of it is None")

/* Of folders with paths. */
#define PATHS(X) \
	X(item_name_and_place, "item: name, with its places") \
	X(path_drop, "path: one missing") \
	X(path_swap, "path: two exchanged") \
	X(path_step, "path: a step of one")

#define MAKE(how, name) \
	static bool make_##how(struct t_fsdp *m) \
	{ \
		return change(m, how); \
	}
KINDS(MAKE)
PATHS(MAKE)

#define ROW(how, name) { name, make_##how, T_FSDP_DCP | T_MEGATRON },
#define ROW_OF_PATHS(how, name) { name, make_##how, T_FSDP_DCP },
const struct t_fsdp_kind t_fsdp_meta[] = {
	KINDS(ROW) PATHS(ROW_OF_PATHS) { NULL, NULL, 0 },
};
