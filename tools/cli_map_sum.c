/* cli_map_sum.c -- `zckpt map`: bytes of each rank and state, on a screen at most. */
#include <inttypes.h>
#include <string.h>

#include "cli_map.h"
#include "cli_view.h"

#define STATES 32	/* that are counted one by one; the last one counts the others */
#define COLUMNS 6	/* of them on a screen */
#define LINES 16

/* What one rank has, or one file. */
struct share {
	int32_t rank;			/* -1 = of no rank */
	const char *path;		/* of a file, else NULL */
	uint64_t bytes[STATES], total, files, file_bytes;
	int used;
};

struct sums {
	const char *state[STATES];
	size_t nstates;
	struct share *share;		/* rank r is number r + 1 */
	size_t n;
	int by_file;
};

static uint64_t extent_bytes(const struct ckpt_extent_info *e)
{
	return (e->count * e->runs * ckpt_dtype_bits(e->dtype) + 7) / 8;
}

static size_t state_number(struct sums *sums, const char *name)
{
	size_t k = 0;

	while (k < sums->nstates && strcmp(sums->state[k], name))
		k++;
	if (k < sums->nstates)
		return k;
	if (k == STATES)
		return STATES - 1;
	sums->state[sums->nstates++] = k == STATES - 1 ? "other" : name;
	return k;
}

static struct share *share_of(struct sums *sums, const struct ckpt_extent_info *e)
{
	if (!sums->by_file)
		return &sums->share[(size_t)(e->rank + 1) < sums->n ?
				    (size_t)(e->rank + 1) : 0];
	for (size_t i = 0; i < sums->n; i++)
		if (!strcmp(sums->share[i].path, e->path))
			return &sums->share[i];
	return &sums->share[0];
}

static void add_state(const struct map *map, struct sums *sums, uint64_t tensor, uint32_t k)
{
	struct ckpt_state_info state;
	struct ckpt_extent_info extent;

	if (ckpt_state_get(map->ck, tensor, k, &state, NULL) ||
	    !cli_is_state_selected(map->state, state.name) || state.flags & CKPT_STATE_DERIVED)
		return;
	for (uint64_t i = 0; i < state.nextents; i++) {
		struct share *share;
		uint64_t bytes;

		if (ckpt_extent_get(map->ck, tensor, k, i, &extent, NULL))
			break;
		share = share_of(sums, &extent);
		bytes = extent_bytes(&extent);
		share->bytes[state_number(sums, state.name)] += bytes;
		share->total += bytes;
		share->used = 1;
	}
}

static void add_tensors(const struct map *map, struct sums *sums)
{
	struct ckpt_tensor_info tensor;

	if (cli_is_state_selected(map->state, "weight"))
		state_number(sums, "weight");	/* the first column */
	for (uint64_t i = 0; !ckpt_tensor_get(map->ck, i, &tensor, NULL); i++) {
		if (tensor.role == CKPT_ROLE_ALIAS ||
		    !map_is_selected(map, tensor.name, tensor.role))
			continue;
		for (uint32_t k = 0; k < tensor.nstates; k++)
			add_state(map, sums, i, k);
	}
}

static void sums_fill(const struct map *map, struct sums *sums)
{
	struct ckpt_file_info file;
	size_t n = 0;

	while (!ckpt_file_get(map->ck, n, &file, NULL))
		n++;
	sums->by_file = !map->info.world;
	sums->n = sums->by_file ? n + !n : (size_t)map->info.world + 1;
	sums->share = cli_alloc(sums->n * sizeof(*sums->share));
	memset(sums->share, 0, sums->n * sizeof(*sums->share));
	for (size_t i = 0; i < sums->n; i++)
		sums->share[i].rank = sums->by_file ? -1 : (int32_t)i - 1;
	for (uint64_t i = 0; !ckpt_file_get(map->ck, i, &file, NULL); i++) {
		struct share *share = &sums->share[sums->by_file ? i :
			(size_t)(file.rank + 1) < sums->n ? (size_t)(file.rank + 1) : 0];

		share->path = sums->by_file ? file.path : NULL;
		share->files++;
		share->file_bytes += file.bytes;
		share->used = 1;
	}
	add_tensors(map, sums);
}

/* ---------------------------------------------------------------- for people */

/* A line: the shares from 'first' to 'last', which are equal. */
static void add_line(const struct map *map, struct table *table, const struct sums *sums,
		     size_t first, size_t last)
{
	const struct share *s = &sums->share[first];
	const char *cells[COLUMNS + 4];
	size_t n = 0, columns = strlen(table->align) - (sums->by_file ? 2 : 3);

	cells[n++] = sums->by_file ? out_name(map_path(map, s->path)) : s->rank < 0 ? "any" :
		     first == last ? cli_format("%" PRId32, s->rank) :
		     cli_format("%" PRId32 "-%" PRId32, s->rank, sums->share[last].rank);
	for (size_t k = 0; k < columns; k++) {
		uint64_t bytes = s->bytes[k];

		for (size_t i = k + 1; k + 1 == columns && i < sums->nstates; i++)
			bytes += s->bytes[i];
		cells[n++] = bytes ? out_size(bytes) : "-";
		cells[n - 1] = cli_strdup(cells[n - 1]);
	}
	cells[n++] = cli_strdup(out_size(s->total));
	if (!sums->by_file)
		cells[n++] = cli_strdup(out_count(s->files));
	table_add(table, cells);
}

/* Whether two sizes look the same on a screen. */
static int is_near(uint64_t a, uint64_t b)
{
	return a == b || !strcmp(out_size(a), out_size(b));
}

static int is_equal(const struct share *a, const struct share *b)
{
	for (size_t k = 0; k < STATES; k++)
		if (!is_near(a->bytes[k], b->bytes[k]))
			return 0;
	return a->rank >= 0 && a->used && b->used && is_near(a->total, b->total) &&
	       a->files == b->files;
}

/* The end of the run of equal shares from 'first' on. */
static size_t run_end(const struct sums *sums, size_t first)
{
	size_t last = first;

	while (last + 1 < sums->n && is_equal(&sums->share[first], &sums->share[last + 1]))
		last++;
	return last;
}

static size_t count_lines(const struct sums *sums)
{
	size_t n = 0;

	for (size_t i = 0; i < sums->n; i = run_end(sums, i) + 1)
		n += sums->share[i].used;
	return n;
}

static void print_total(const struct map *map, const struct sums *sums)
{
	uint64_t tensors = 0, most = 0, files = 0, bytes = 0;

	for (size_t i = 0; i < sums->n; i++) {
		tensors += sums->share[i].total;
		files += sums->share[i].files;
		bytes += sums->share[i].file_bytes;
		if (sums->share[i].rank >= 0 && sums->share[i].total > most)
			most = sums->share[i].total;
	}
	if (map->info.world)
		printf("%" PRIu32 " rank%s: ", map->info.world, out_plural(map->info.world));
	printf("%s of tensors in ", out_size(tensors));
	printf("%s file%s", out_count(files), out_plural(files));
	printf(" of %s", out_size(bytes));
	if (map->info.world > 1 && most && !map->why)
		printf("; a rank has %s at most", out_size(most));
	printf("\n%s: %s", out_name(map->info.path), map->info.format);
	if (view_layout(map->ck))
		printf(", %s", out_name(view_layout(map->ck)));
	if (map->info.stage >= 0)
		printf(", stage %" PRId32, map->info.stage);
	if (map->info.step >= 0)
		printf(", step %" PRId64, map->info.step);
	putchar('\n');
}

static void print_table(const struct map *map, const struct sums *sums)
{
	static const char aligns[] = "lrrrrrrrrr";
	const size_t columns = sums->nstates < COLUMNS ? sums->nstates : COLUMNS;
	const size_t lines = count_lines(sums), all = columns + (sums->by_file ? 2 : 3);
	const char *heads[COLUMNS + 3] = { sums->by_file ? "file" : "rank" };
	char align[sizeof(aligns)];
	struct table table = { .align = align, .heading = 1 };
	size_t line = 0, hidden = 0;

	snprintf(align, sizeof(align), "l%.*s", (int)(all - 1), aligns + 1);
	for (size_t k = 0; k < columns; k++)
		heads[k + 1] = k + 1 == columns && sums->nstates > columns ? "other" :
			       sums->state[k];
	heads[columns + 1] = "total";
	if (!sums->by_file)
		heads[columns + 2] = "files";
	table_add(&table, heads);
	for (size_t i = 0; i < sums->n; i = run_end(sums, i) + 1) {
		if (!sums->share[i].used)
			continue;
		line++;
		if (lines > LINES && line > LINES - 2 && line < lines)
			hidden++;
		else
			add_line(map, &table, sums, i, run_end(sums, i));
	}
	table_print(&table, stdout, "");
	if (hidden)
		printf("%s lines between the last two are left out; --json has all of them\n",
		       out_count(hidden));
}

void map_summary(const struct map *map)
{
	struct sums sums = { 0 };

	sums_fill(map, &sums);
	print_total(map, &sums);
	putchar('\n');
	print_table(map, &sums);
	if (sums.share[0].used && !sums.by_file)
		printf("any: files of no single rank, which every rank reads\n");
	cli_free(sums.share);
}

/* ---------------------------------------------------------------- for scripts */

void map_summary_json(const struct map *map, struct json *json)
{
	struct sums sums = { 0 };

	sums_fill(map, &sums);
	json_open(json, sums.by_file ? "by_file" : "by_rank", '[');
	for (size_t i = 0; i < sums.n; i++) {
		const struct share *s = &sums.share[i];

		if (!s->used)
			continue;
		json_open(json, NULL, '{');
		if (s->path)
			json_text(json, "path", s->path);
		json_known(json, "rank", s->rank);
		json_uint(json, "bytes", s->total);
		json_uint(json, "files", s->files);
		json_open(json, "states", '{');
		for (size_t k = 0; k < sums.nstates; k++)
			if (s->bytes[k])
				json_uint(json, sums.state[k], s->bytes[k]);
		json_close(json, '}');
		json_close(json, '}');
	}
	json_close(json, ']');
	cli_free(sums.share);
	if (map->rank >= 0)
		map_rank_json(map, json);
}
