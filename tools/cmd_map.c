/* cmd_map.c -- `zckpt map`: where every element of every state lies. */
#include <inttypes.h>
#include <string.h>

#include "cli.h"

static struct {
	struct words state;
} want;

static const struct opt own[] = {
	{ "state", 0, OPT_COMMAS, &want.state, "NAME",
	  "only these states: weight, master, exp_avg, ...", 0 },
	{ 0 },
};

static const struct {
	uint32_t bit;
	const char *name;
} extent_flags[] = {
	{ CKPT_EXTENT_SWAPPED, "swapped" },   { CKPT_EXTENT_CONJ, "conj" },
	{ CKPT_EXTENT_NEG, "neg" },	      { CKPT_EXTENT_DEFLATED, "deflated" },
	{ CKPT_EXTENT_GATHER, "gather" },
};
#define NFLAGS (sizeof(extent_flags) / sizeof(extent_flags[0]))

struct map {
	const struct args *args;
	struct ckpt *ck;
	struct ckpt_info info;
	unsigned only;
	struct json json;
};

/* The path without the folder that was opened. */
static const char *short_path(const struct map *map, const char *path)
{
	size_t n = strlen(map->info.path);

	if (!strncmp(path, map->info.path, n) && path[n] == '/' && path[n + 1])
		return path + n + 1;
	return path;
}

static void print_extent(const struct map *map, const struct ckpt_extent_info *e)
{
	printf("    [%" PRIu64 ", +%" PRIu64 ")", e->first, e->count);
	if (e->runs != 1)
		printf(" x%" PRIu64 " every %" PRIu64, e->runs, e->dst_stride);
	printf("  %s", out_name(short_path(map, e->path)));
	if (e->member)
		printf("!%s", out_name(e->member));
	printf(" @%" PRIu64, e->offset);
	if (e->runs != 1)
		printf(" every %" PRIu64, e->src_stride);
	printf("  %s", ckpt_dtype_name(e->dtype));
	if (e->rank >= 0)
		printf("  rank %" PRId32, e->rank);
	for (size_t i = 0; i < NFLAGS; i++)
		if (e->flags & extent_flags[i].bit)
			printf("  %s", extent_flags[i].name);
	putchar('\n');
}

static void json_extent(struct map *map, const struct ckpt_extent_info *e)
{
	struct json *json = &map->json;

	json_open(json, NULL, '{');
	json_text(json, "path", e->path);
	if (e->member)
		json_text(json, "member", e->member);
	json_uint(json, "offset", e->offset);
	json_uint(json, "first", e->first);
	json_uint(json, "count", e->count);
	json_uint(json, "runs", e->runs);
	if (e->runs != 1) {
		json_uint(json, "src_stride", e->src_stride);
		json_uint(json, "dst_stride", e->dst_stride);
	}
	json_text(json, "dtype", ckpt_dtype_name(e->dtype));
	json_known(json, "rank", e->rank);
	json_open(json, "flags", '[');
	for (size_t i = 0; i < NFLAGS; i++)
		if (e->flags & extent_flags[i].bit)
			json_text(json, NULL, extent_flags[i].name);
	json_close(json, ']');
	json_close(json, '}');
}

static void state_begin(struct map *map, const struct ckpt_state_info *state)
{
	if (!map->args->json) {
		printf("  %s %s%s%s\n", out_name(state->name), ckpt_dtype_name(state->dtype),
		       state->flags & CKPT_STATE_DERIVED ? ", not stored; rounded from" : "",
		       state->flags & CKPT_STATE_PER_RANK ? ", differs over ranks" : "");
		return;
	}
	json_open(&map->json, NULL, '{');
	json_text(&map->json, "name", state->name);
	json_text(&map->json, "dtype", ckpt_dtype_name(state->dtype));
	json_bool(&map->json, "derived", (state->flags & CKPT_STATE_DERIVED) != 0);
	json_bool(&map->json, "per_rank", (state->flags & CKPT_STATE_PER_RANK) != 0);
	json_uint(&map->json, "replicas", state->nreplicas);
	json_open(&map->json, "extents", '[');
}

static void state_end(struct map *map)
{
	if (!map->args->json)
		return;
	json_close(&map->json, ']');
	json_close(&map->json, '}');
}

static void map_state(struct map *map, uint64_t tensor, uint32_t k)
{
	struct ckpt_state_info state;
	struct ckpt_extent_info extent;

	if (ckpt_state_get(map->ck, tensor, k, &state, NULL) ||
	    !cli_is_state_selected(&want.state, state.name))
		return;
	state_begin(map, &state);
	for (uint64_t i = 0; i < state.nextents; i++) {
		if (ckpt_extent_get(map->ck, tensor, k, i, &extent, NULL))
			break;
		if (map->args->json)
			json_extent(map, &extent);
		else
			print_extent(map, &extent);
	}
	state_end(map);
}

static void tensor_begin(struct map *map, const struct ckpt_tensor_info *tensor)
{
	struct ckpt_tensor_info kept = { 0 };
	int alias = tensor->role == CKPT_ROLE_ALIAS &&
		    !ckpt_tensor_get(map->ck, tensor->alias_of, &kept, NULL);

	if (!map->args->json) {
		printf("%s  %s  %s%s%s\n", out_name(tensor->name), out_shape(tensor),
		       out_role(tensor->role), alias ? " of " : "",
		       alias ? out_name(kept.name) : "");
		return;
	}
	json_open(&map->json, NULL, '{');
	json_text(&map->json, "name", tensor->name);
	json_text(&map->json, "role", out_role(tensor->role));
	json_shape(&map->json, tensor);
	if (alias)
		json_text(&map->json, "alias_of", kept.name);
	json_open(&map->json, "states", '[');
}

static void map_tensors(struct map *map)
{
	struct ckpt_tensor_info tensor, stored;

	for (uint64_t i = 0; !ckpt_tensor_get(map->ck, i, &tensor, NULL); i++) {
		stored = tensor;
		if (tensor.role == CKPT_ROLE_ALIAS)
			ckpt_tensor_get(map->ck, tensor.alias_of, &stored, NULL);
		if (!cli_is_selected(map->args, map->only, tensor.name, stored.role))
			continue;
		tensor_begin(map, &tensor);
		for (uint32_t k = 0; tensor.role != CKPT_ROLE_ALIAS && k < tensor.nstates; k++)
			map_state(map, i, k);
		if (!map->args->json)
			continue;
		json_close(&map->json, ']');
		json_close(&map->json, '}');
	}
}

static void map_json(struct map *map)
{
	struct ckpt_file_info file;
	struct json *json = &map->json;

	json_begin(json, stdout, "map");
	json_text(json, "path", map->info.path);
	json_text(json, "fingerprint", map->info.fingerprint);
	json_open(json, "files", '[');
	for (uint64_t i = 0; !ckpt_file_get(map->ck, i, &file, NULL); i++) {
		json_open(json, NULL, '{');
		json_text(json, "path", file.path);
		json_uint(json, "bytes", file.bytes);
		json_known(json, "rank", file.rank);
		json_close(json, '}');
	}
	json_close(json, ']');
	json_open(json, "tensors", '[');
	map_tensors(map);
	json_close(json, ']');
	json_findings(json, map->ck);
	json_close(json, '}');
}

static int run(struct args *args)
{
	struct ckpt_err err = { 0 };
	struct map map = { .args = args };
	struct ckpt_select select;
	int status;

	if (!args->rest.n)
		return cli_wrong(&cmd_map, "map needs a checkpoint");
	status = cli_select(&cmd_map, args, &select);
	if (!status)
		status = cli_open(args, "map", &args->rest, &map.ck, &err);
	if (status)
		return status;
	map.only = select.only;
	ckpt_info_get(map.ck, &map.info);
	if (args->json)
		map_json(&map);
	else
		map_tensors(&map);
	out_findings_asked(args, map.ck);
	ckpt_close(map.ck);
	return EXIT_DONE;
}

const struct command cmd_map = {
	.name = "map",
	.run = run,
	.ranks = RANKS_EACH,
	.gist = "where the bytes of every tensor and state lie",
	.synopsis = "SRC...",
	.about = "Lists every tensor, its states, and for each the extents: which elements lie in "
		 "which file (and archive member) at which byte. Reads no tensor data.",
	.examples = "zckpt map run\n"
		    "zckpt map --include 'model.layers.0.*' run\n",
	.notes = "A line '[FIRST, +COUNT)  FILE @BYTE  TYPE  rank R' says that COUNT "
		 "elements from FIRST on, row-major, begin at BYTE of FILE.",
	.tables = { own, opts_select, opts_source, opts_talk, NULL },
};
