/* cmd_map.c -- `zckpt map`: where every element of every state is; the call and the long list. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli_map.h"
#include "cli_verdict.h"
#include "cli_view.h"

static struct {
	struct words state;
	uint64_t rank;
	int all, files;
} want = { .rank = OPT_UNSET };

static const struct opt own[] = {
	{ "rank", 0, OPT_COUNT, &want.rank, "R",
	  "print the files and bytes of rank R (from 0)", 0 },
	{ "files", 0, OPT_FLAG, &want.files, NULL,
	  "print only the names of the files, relative to SRC, for rsync", 0 },
	{ "all", 0, OPT_FLAG, &want.all, NULL, "list every tensor with all of its extents", 0 },
	{ "state", 0, OPT_COMMAS, &want.state, "NAME",
	  "only these states: weight, master, exp_avg, ...", 0 },
	{ 0 },
};

#define INDENT 4	/* of the extents of a state */

static const struct {
	uint32_t bit;
	const char *name;
} extent_flags[] = {
	{ CKPT_EXTENT_SWAPPED, "swapped" },   { CKPT_EXTENT_CONJ, "conj" },
	{ CKPT_EXTENT_NEG, "neg" },	      { CKPT_EXTENT_DEFLATED, "deflated" },
	{ CKPT_EXTENT_GATHER, "gather" },
};
#define NFLAGS (sizeof(extent_flags) / sizeof(extent_flags[0]))

/* The line as it is, on a narrow terminal cut at its blanks. */
static void print_cut(char *line)
{
	if (line[0] && strlen(line) + INDENT > term_fit(stdout, SIZE_MAX)) {
		char *to = line;

		/* one blank between words */
		for (const char *at = line; *at; at++)
			if (*at != ' ' || at[1] != ' ')
				*to++ = *at;
		*to = 0;
		printf("%*s", INDENT, "");
		opt_wrap(stdout, line, INDENT, INDENT + 4, SIZE_MAX);
	} else {
		printf("%*s%s\n", INDENT, "", line);
	}
	free(line);
}

static void print_extent(const struct map *map, const struct ckpt_extent_info *e)
{
	char *line = NULL;
	size_t size;
	FILE *out = open_memstream(&line, &size);

	if (!out)
		return;
	if (e->count == 1)
		fprintf(out, "element %" PRIu64, e->first);
	else
		fprintf(out, "elements %" PRIu64 "-%" PRIu64, e->first,
			e->first + e->count - !!e->count);
	if (e->runs != 1)
		fprintf(out, " x%" PRIu64 " every %" PRIu64, e->runs, e->dst_stride);
	fprintf(out, "  %s", out_name(map_path(map, e->path)));
	if (e->member)
		fprintf(out, "!%s", out_name(e->member));
	fprintf(out, " at byte %" PRIu64, e->offset);
	if (e->runs != 1)
		fprintf(out, " every %" PRIu64, e->src_stride);
	fprintf(out, "  %s", ckpt_dtype_name(e->dtype));
	if (e->rank >= 0)
		fprintf(out, "  rank %" PRId32, e->rank);
	for (size_t i = 0; i < NFLAGS; i++)
		if (e->flags & extent_flags[i].bit)
			fprintf(out, "  %s", extent_flags[i].name);
	if (!fclose(out))
		print_cut(line);
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
		       state->flags & CKPT_STATE_DERIVED ? ", not stored: rounded from the master" :
		       "", state->flags & CKPT_STATE_PER_RANK ? ", differs over ranks" : "");
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
	    !cli_is_state_selected(map->state, state.name))
		return;
	state_begin(map, &state);
	for (uint64_t i = 0; i < state.nextents; i++) {
		if (ckpt_extent_get(map->ck, tensor, k, i, &extent, NULL))
			break;
		if (!map_is_of_rank(map, extent.rank))
			continue;
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
		if (!map_is_selected(map, tensor.name, stored.role))
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
	if (view_layout(map->ck))
		json_text(json, "layout", view_layout(map->ck));
	json_open(json, "files", '[');
	for (uint64_t i = 0; !ckpt_file_get(map->ck, i, &file, NULL); i++) {
		json_open(json, NULL, '{');
		json_text(json, "path", file.path);
		json_uint(json, "bytes", file.bytes);
		json_known(json, "rank", file.rank);
		json_close(json, '}');
	}
	json_close(json, ']');
	map_summary_json(map, json);
	json_open(json, "tensors", '[');
	map_tensors(map);
	json_close(json, ']');
	json_findings(json, map->ck);
	json_close(json, '}');
}

/* ---------------------------------------------------------------- the call */

static int no_tensor(const struct map *map, const char *name)
{
	const char *near = cli_nearest_tensor(map->ck, name);

	return cli_wrong(&cmd_map, "%s is neither a file or folder nor a tensor of %s%s%s",
			 out_name(name), out_name(map->info.path), near ? "; did you mean " : "",
			 near ? out_name(near) : "");
}

/* What follows the first source and is no path is the name of a tensor, or a pattern. */
static void split_words(struct args *args, struct words *sources, struct words *names)
{
	for (size_t i = 0; i < args->rest.n; i++)
		words_add(i && access(args->rest.list[i], F_OK) ? names : sources,
			  args->rest.list[i]);
}

static int find_names(struct map *map, struct args *args, const struct words *words)
{
	uint64_t tensor;

	for (size_t i = 0; i < words->n; i++) {
		if (!ckpt_tensor_find(map->ck, words->list[i], &tensor, NULL))
			words_add(&map->names, words->list[i]);
		else if (strpbrk(words->list[i], "*?["))
			words_add(&args->include, words->list[i]);
		else
			return no_tensor(map, words->list[i]);
	}
	return 0;
}

static int check_rank(const struct map *map)
{
	if (map->rank < 0)
		return 0;
	if (!map->info.world)
		return cli_wrong(&cmd_map, "--rank %" PRId64 ": %s is of format %s, which has "
				 "no ranks", map->rank, out_name(map->info.path), map->info.format);
	if (map->rank >= (int64_t)map->info.world)
		return cli_wrong(&cmd_map, "--rank %" PRId64 ": %s has ranks 0 to %" PRIu32,
				 map->rank, out_name(map->info.path), map->info.world - 1);
	return 0;
}

static void show(struct map *map)
{
	const struct args *args = map->args;

	if (args->json)
		map_json(map);
	else if (want.files)
		map_files(map);
	if (args->json || want.files || args->quiet)
		return;
	if (map->why)
		printf("incomplete: %s; of what is readable:\n", out_text(map->why));
	if (want.all || args->verbose || map->names.n || args->include.n)
		map_tensors(map);
	else if (map->rank >= 0)
		map_rank(map);
	else
		map_summary(map);
}

static int run(struct args *args)
{
	struct map map = { .args = args, .state = &want.state,
			   .rank = want.rank == OPT_UNSET ? -1 : (int64_t)want.rank };
	struct words sources = { 0 }, words = { 0 };
	struct ckpt_err err = { 0 };
	struct ckpt_select select;
	int status;

	if (!args->rest.n)
		return cli_wrong(&cmd_map, "map needs a checkpoint");
	split_words(args, &sources, &words);
	status = cli_select(&cmd_map, args, &select);
	if (!status)
		status = cli_open(args, "map", &sources, &map.ck, &err);
	if (status)
		return status;
	map.only = select.only;
	map.source = sources.list[0];
	map.nsources = sources.n;
	ckpt_info_get(map.ck, &map.info);
	map.why = verdict_of(map.ck, NULL, 0);
	status = find_names(&map, args, &words);
	if (!status)
		status = check_rank(&map);
	if (!status) {
		show(&map);
		cli_say_nearest(args, (const struct ckpt *const[]){ map.ck }, 1);
		out_findings_asked(args, map.ck);
	}
	cli_free(map.why);
	ckpt_close(map.ck);
	return status;
}

const struct command cmd_map = {
	.name = "map",
	.run = run,
	.ranks = RANKS_EACH,
	.gist = "show which bytes of which file hold a tensor or a rank",
	.synopsis = "SRC... [TENSOR...]",
	.about = "Prints how many bytes of each state each rank has. With --rank, the files and "
		 "ranges of bytes of one rank. With names of tensors, where their elements are: "
		 "file, archive member, byte. Reads no tensor data.",
	.examples = "zckpt map run\n"
		    "zckpt map run model.embed_tokens.weight\n"
		    "zckpt map --rank 1 --files run\n",
	.notes = "A line 'elements FIRST-LAST  FILE at byte N  TYPE  rank R' says that these "
		 "elements, row-major, begin at byte N of FILE.\n"
		 "Copy what one rank needs: zckpt map --rank 3 --files RUN | "
		 "rsync -a --files-from=- RUN/ node3:RUN/",
	.tables = { own, opts_select, opts_source, opts_talk, NULL },
};
