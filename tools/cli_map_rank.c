/* cli_map_rank.c -- `zckpt map`: the files of one rank, and the bytes that tensors take. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli_map.h"

#define SHOWN 8	/* ranges of a file */

int map_is_selected(const struct map *map, const char *name, enum ckpt_role role)
{
	for (size_t i = 0; i < map->names.n; i++)
		if (!strcmp(map->names.list[i], name))
			return 1;
	if (map->names.n && !map->args->include.n)
		return 0;
	return cli_is_selected(map->args, map->only, name, role);
}

int map_is_of_rank(const struct map *map, int32_t rank)
{
	return map->rank < 0 || rank < 0 || rank == map->rank;
}

static const char *without(const char *folder, const char *path)
{
	size_t n = strlen(folder);

	while (n > 1 && folder[n - 1] == '/')
		n--;
	if (!strncmp(path, folder, n) && path[n] == '/' && path[n + 1])
		return path + n + 1;
	return path;
}

const char *map_path(const struct map *map, const char *path)
{
	const char *slash = strrchr(path, '/');

	if (slash && !strcmp(path, map->info.path))
		return slash + 1;
	return without(map->info.path, path);
}

/* ---------------------------------------------------------------- ranges */

/* Bytes of a file, or of a member that is deflated. */
struct range {
	const char *path, *member;	/* NULL: of the file */
	uint64_t from, to;
};

struct ranges {
	struct range *list;
	size_t n, cap;
};

#define LATE 8	/* ranges that the next row of one may continue */

static void add_range(struct ranges *r, const struct ckpt_extent_info *e)
{
	const uint64_t run = (e->count * ckpt_dtype_bits(e->dtype) + 7) / 8;
	const char *member = e->flags & CKPT_EXTENT_DEFLATED ? e->member : NULL;
	const uint64_t to = e->offset + (e->runs - 1) * e->src_stride + run;
	struct range *longer;

	for (size_t i = r->n; i > 0 && i + LATE > r->n; i--)
		if (r->list[i - 1].to == e->offset && r->list[i - 1].path == e->path &&
		    r->list[i - 1].member == member) {
			r->list[i - 1].to = to;
			return;
		}
	if (r->n == r->cap) {
		r->cap = r->cap ? 2 * r->cap : 64;
		longer = cli_alloc(r->cap * sizeof(*longer));
		if (r->n)
			memcpy(longer, r->list, r->n * sizeof(*longer));
		cli_free(r->list);
		r->list = longer;
	}
	r->list[r->n++] = (struct range){
		.path = e->path, .member = member, .from = e->offset, .to = to,
	};
}

static int compare_texts(const char *a, const char *b)
{
	return !a || !b ? (a != NULL) - (b != NULL) : strcmp(a, b);
}

static int by_place(const void *p, const void *q)
{
	const struct range *a = p, *b = q;
	int order = strcmp(a->path, b->path);

	if (!order)
		order = compare_texts(a->member, b->member);
	return order ? order : a->from < b->from ? -1 : a->from > b->from;
}

/* Those that touch become one. */
static void join(struct ranges *r)
{
	size_t n = 0;

	if (!r->n)
		return;
	qsort(r->list, r->n, sizeof(*r->list), by_place);
	for (size_t i = 1; i < r->n; i++) {
		struct range *last = &r->list[n], *next = &r->list[i];

		if (!strcmp(last->path, next->path) &&
		    !compare_texts(last->member, next->member) && next->from <= last->to)
			last->to = next->to > last->to ? next->to : last->to;
		else
			r->list[++n] = *next;
	}
	r->n = n + 1;
}

static void add_state(const struct map *map, struct ranges *r, uint64_t tensor, uint32_t k)
{
	struct ckpt_state_info state;
	struct ckpt_extent_info extent;

	if (ckpt_state_get(map->ck, tensor, k, &state, NULL) ||
	    !cli_is_state_selected(map->state, state.name))
		return;
	for (uint64_t i = 0; i < state.nextents; i++)
		if (!ckpt_extent_get(map->ck, tensor, k, i, &extent, NULL) && extent.count &&
		    map_is_of_rank(map, extent.rank))
			add_range(r, &extent);
}

static void ranges_fill(const struct map *map, struct ranges *r)
{
	struct ckpt_tensor_info tensor;

	for (uint64_t i = 0; !ckpt_tensor_get(map->ck, i, &tensor, NULL); i++)
		for (uint32_t k = 0; tensor.role != CKPT_ROLE_ALIAS && k < tensor.nstates &&
				     map_is_selected(map, tensor.name, tensor.role); k++)
			add_state(map, r, i, k);
	join(r);
}

/* Bytes and number of the ranges of a file. */
static uint64_t in_file(const struct ranges *r, const char *path, size_t *n_out)
{
	uint64_t bytes = 0;

	*n_out = 0;
	for (size_t i = 0; i < r->n; i++) {
		if (strcmp(r->list[i].path, path))
			continue;
		bytes += r->list[i].to - r->list[i].from;
		++*n_out;
	}
	return bytes;
}

/* ---------------------------------------------------------------- one rank */

static void print_ranges(const struct ranges *r, const char *path, size_t n)
{
	size_t shown = 0;

	for (size_t i = 0; i < r->n && shown < SHOWN; i++) {
		const struct range *g = &r->list[i];

		if (strcmp(g->path, path))
			continue;
		shown++;
		printf("    bytes %" PRIu64 "-%" PRIu64, g->from, g->to - 1);
		if (g->member)
			printf(" of %s, unpacked", out_name(g->member));
		putchar('\n');
	}
	if (n > shown)
		printf("    ... and %s more; --json has all of them\n", out_count(n - shown));
}

void map_rank(const struct map *map)
{
	struct ranges r = { 0 };
	struct ckpt_file_info file;
	uint64_t files = 0, bytes = 0, tensors = 0;
	size_t n;

	ranges_fill(map, &r);
	for (uint64_t i = 0; !ckpt_file_get(map->ck, i, &file, NULL); i++) {
		if (!map_is_of_rank(map, file.rank))
			continue;
		files++;
		bytes += file.bytes;
		tensors += in_file(&r, file.path, &n);
	}
	printf("rank %" PRId64 " of %" PRIu32 ": %s file%s of ", map->rank, map->info.world,
	       out_count(files), out_plural(files));
	printf("%s, %s of them tensors\n%s\n\n", out_size(bytes), out_size(tensors),
	       out_name(map->info.path));
	for (uint64_t i = 0; !ckpt_file_get(map->ck, i, &file, NULL); i++) {
		if (!map_is_of_rank(map, file.rank))
			continue;
		tensors = in_file(&r, file.path, &n);
		printf("%s  %s", out_name(map_path(map, file.path)), out_size(file.bytes));
		printf("%s%s%s\n", file.rank < 0 ? ", of all ranks" : "", n ? "" :
		       ", no tensors of this rank", n ? ":" : "");
		print_ranges(&r, file.path, n);
	}
	cli_free(r.list);
}

void map_rank_json(const struct map *map, struct json *json)
{
	struct ranges r = { 0 };
	struct ckpt_file_info file;

	ranges_fill(map, &r);
	json_int(json, "rank", map->rank);
	json_open(json, "needs", '[');
	for (uint64_t i = 0; !ckpt_file_get(map->ck, i, &file, NULL); i++) {
		if (!map_is_of_rank(map, file.rank))
			continue;
		json_open(json, NULL, '{');
		json_text(json, "path", file.path);
		json_uint(json, "bytes", file.bytes);
		json_known(json, "rank", file.rank);
		json_open(json, "ranges", '[');
		for (size_t k = 0; k < r.n; k++) {
			const struct range *g = &r.list[k];

			if (strcmp(g->path, file.path))
				continue;
			json_open(json, NULL, '{');
			if (g->member)
				json_text(json, "member", g->member);
			json_uint(json, "offset", g->from);
			json_uint(json, "bytes", g->to - g->from);
			json_close(json, '}');
		}
		json_close(json, ']');
		json_close(json, '}');
	}
	json_close(json, ']');
	cli_free(r.list);
}

/* ---------------------------------------------------------------- names */

void map_files(const struct map *map)
{
	struct ckpt_file_info file;
	char *latest = cli_format("%s/latest", map->source);

	if (map->nsources == 1 && !access(latest, R_OK))
		puts("latest");
	for (uint64_t i = 0; !ckpt_file_get(map->ck, i, &file, NULL); i++)
		if (map_is_of_rank(map, file.rank))
			puts(map->nsources == 1 ? without(map->source, file.path) : file.path);
	cli_free(latest);
}
