/* The data of `zckpt report` against the library, for every DeepSpeed fixture: each extent is at
 * the byte that the lanes say, their padding is that of the sizes, and the statistics are those of
 * the elements.  If this fails, a page shows a wrong place or a wrong number and looks right.
 *
 * usage: test_report [FILTER]
 * Environment: ZCKPT_FIXTURES (default build/fixtures), ZCKPT (build/zckpt).
 */
#define _GNU_SOURCE
#include "tests/lib/fixture/t_expected.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/run/t_run.h"

#include <cJSON.h>
#include <ckpt.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job {
	struct ckpt *ck;
	struct ckpt_info info;
	const cJSON *data;
	struct t_report *r;
	long pieces, rows;
};

static const cJSON *get(const cJSON *o, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);

	if (!v)
		t_die("the report has no member %s", key);
	return v;
}

static uint64_t number(const cJSON *list, int i)
{
	return (uint64_t)cJSON_GetArrayItem(list, i)->valuedouble;
}

/* ---------------------------------------------------------------- pieces */

/* Whether the library has exactly this piece. */
static int is_extent(struct job *j, uint64_t tensor, const char *state, int rank, const char *path,
		     uint64_t byte, uint64_t first, uint64_t count)
{
	struct ckpt_extent_info e;
	struct ckpt_state_info s;
	uint32_t k;

	if (ckpt_state_find(j->ck, tensor, state, &k, NULL) ||
	    ckpt_state_get(j->ck, tensor, k, &s, NULL))
		return 0;
	for (uint64_t x = 0; x < s.nextents; x++)
		if (!ckpt_extent_get(j->ck, tensor, k, x, &e, NULL) && e.first == first &&
		    e.count * e.runs == count && e.offset == byte && e.rank == rank &&
		    !strcmp(e.path, path))
			return 1;
	return 0;
}

static uint64_t stored_extents(struct job *j)
{
	struct ckpt_tensor_info t;
	struct ckpt_state_info s;
	uint64_t n = 0;

	for (uint64_t i = 0; !ckpt_tensor_get(j->ck, i, &t, NULL); i++)
		for (uint32_t k = 0; t.role != CKPT_ROLE_ALIAS && k < t.nstates; k++)
			if (!ckpt_state_get(j->ck, i, k, &s, NULL) &&
			    !(s.flags & CKPT_STATE_DERIVED))
				n += t.numel ? s.nextents : 0;
	return n;
}

/* One segment of a lane; the bytes of its padding. */
static uint64_t check_segment(struct job *j, const cJSON *lane, const cJSON *segment,
			      const cJSON *at)
{
	const cJSON *piece = cJSON_GetArrayItem(segment, 2), *rank = get(lane, "rank");
	const uint64_t bits = number(segment, 1);
	const cJSON *file = cJSON_GetArrayItem(get(j->data, "files"), (int)number(at, 0));
	const int r = cJSON_IsNull(rank) ? -1 : rank->valueint;
	const char *state = get(lane, "state")->valuestring;
	uint64_t byte = number(at, 1), padding = 0, value[4];
	unsigned k = 0;

	for (const cJSON *v = piece->child; v; v = v->next) {
		value[k++] = (uint64_t)v->valuedouble;
		if (k < 4)
			continue;
		k = 0;
		if (value[2] && !is_extent(j, value[0], state, r, file->valuestring, byte,
					   value[1], value[2]))
			t_say(j->r, "%s of tensor %" PRIu64 ": no elements %" PRIu64 "+%" PRIu64
			      " at byte %" PRIu64 " of %s", state, value[0], value[1],
			      value[2], byte, file->valuestring);
		j->pieces += value[2] != 0;
		byte += (value[2] + value[3]) * bits / 8;
		padding += value[3] * bits / 8;
	}
	return padding;
}

static int is_parallel(const struct ckpt *ck)
{
	const char *key, *value;

	for (uint64_t i = 0; !ckpt_fact_get(ck, i, &key, &value, NULL); i++)
		if (!strcmp(key, "layout"))
			return 1;
	return 0;
}

static void check_lanes(struct job *j)
{
	uint64_t padding = 0, want = 0;
	struct ckpt_sizes sizes;
	const long before = j->pieces;

	for (const cJSON *lane = get(j->data, "lanes")->child; lane; lane = lane->next) {
		const cJSON *layout = cJSON_GetArrayItem(get(j->data, "layouts"),
							 get(lane, "layout")->valueint);
		const cJSON *at = get(lane, "at")->child;

		for (const cJSON *s = layout->child; s && at; s = s->next, at = at->next) {
			uint64_t n = check_segment(j, lane, s, at);

			/* the padding of weights is unused storage in the sizes */
			padding += strcmp(get(lane, "state")->valuestring, "weight") ? n : 0;
		}
	}
	if ((uint64_t)(j->pieces - before) != stored_extents(j))
		t_say(j->r, "%ld pieces, the library has %" PRIu64, j->pieces - before,
		      stored_extents(j));
	if (ckpt_sizes_get(j->ck, &sizes, NULL))
		return;
	for (uint64_t i = 0; i < sizes.nparts; i++)
		if (sizes.part[i].kind == CKPT_SIZE_PADDING)
			want += sizes.part[i].bytes;
	ckpt_sizes_free(&sizes);
	/* with tensor or pipeline parallelism or experts, lanes have none */
	if (padding != (is_parallel(j->ck) ? 0 : want))
		t_say(j->r, "%" PRIu64 " bytes of padding, the sizes have %" PRIu64, padding, want);
}

/* ---------------------------------------------------------------- statistics */

static void check_real(struct job *j, const char *what, const char *name, double got, double want)
{
	if (fabs(got - want) > 1e-6 * fabs(want) + 1e-12)
		t_say(j->r, "%s of %s: %.9g, expected %.9g", what, name, got, want);
}

/* A floating state of few elements, read whole: its numbers by the plain law. */
static void check_row(struct job *j, const cJSON *row)
{
	const uint64_t tensor = number(row, 0), n = number(row, 3);
	const char *state = cJSON_GetArrayItem(row, 1)->valuestring;
	double least = INFINITY, most = -INFINITY, sum = 0, squares = 0;
	uint64_t zeros = 0, bins = 0;
	struct ckpt_state_info s;
	struct ckpt_tensor_info t;
	double *v;
	uint32_t k;

	if (ckpt_tensor_get(j->ck, tensor, &t, NULL) ||
	    ckpt_state_find(j->ck, tensor, state, &k, NULL) ||
	    ckpt_state_get(j->ck, tensor, k, &s, NULL) || n != t.numel || number(row, 2) != n) {
		t_say(j->r, "a row of statistics is of no whole state: %s", state);
		return;
	}
	if (s.dtype != CKPT_F32 && s.dtype != CKPT_BF16 && s.dtype != CKPT_F16)
		return;
	v = malloc((size_t)n * sizeof(*v));
	if (!v || ckpt_read(j->ck, tensor, k, 0, n, CKPT_F64, v, (size_t)n * sizeof(*v), NULL))
		t_die("cannot read %s of %s", state, t.name);
	for (uint64_t i = 0; i < n; i++) {
		least = fmin(least, v[i]);
		most = fmax(most, v[i]);
		sum += v[i];
		zeros += v[i] == 0;
	}
	for (uint64_t i = 0; i < n; i++)
		squares += (v[i] - sum / (double)n) * (v[i] - sum / (double)n);
	for (const cJSON *b = cJSON_GetArrayItem(row, 11)->child; b; b = b->next)
		bins += (uint64_t)b->valuedouble;
	check_real(j, "min", t.name, cJSON_GetArrayItem(row, 4)->valuedouble, least);
	check_real(j, "max", t.name, cJSON_GetArrayItem(row, 5)->valuedouble, most);
	check_real(j, "mean", t.name, cJSON_GetArrayItem(row, 6)->valuedouble, sum / (double)n);
	check_real(j, "std", t.name, cJSON_GetArrayItem(row, 7)->valuedouble,
		   sqrt(squares / (double)n));
	if (number(row, 8) != zeros || bins != n)
		t_say(j->r, "%s: %" PRIu64 " zeros and %" PRIu64 " in bins, expected %" PRIu64
		      " and %" PRIu64, t.name, number(row, 8), bins, zeros, n);
	free(v);
	j->rows++;
}

static void check_stats(struct job *j)
{
	const cJSON *stats = get(j->data, "stats");

	if (get(stats, "done")->valuedouble != get(stats, "states")->valuedouble)
		t_say(j->r, "%g of %g states have statistics", get(stats, "done")->valuedouble,
		      get(stats, "states")->valuedouble);
	for (const cJSON *row = get(stats, "rows")->child; row; row = row->next)
		check_row(j, row);
}

/* ---------------------------------------------------------------- a large tensor */

#define LARGE 300000

/* Numbers whose range grows late: most are below 1, the last thousand up to 1,000. */
static float large_number(uint32_t i)
{
	const float small = (float)(i * 2654435761u >> 8) / 16777216.0f - 0.5f;

	return i < LARGE - 1000 ? small : i % 2 ? -(float)(LARGE - i) : (float)(LARGE - i) / 2;
}

static void write_large(const char *path)
{
	char head[128];
	const int n = snprintf(head, sizeof(head), "{\"w\":{\"dtype\":\"F32\",\"shape\":[%d],"
			       "\"data_offsets\":[0,%d]}}", LARGE, LARGE * 4);
	const uint64_t size = (uint64_t)(n + 7) / 8 * 8;
	FILE *f = fopen(path, "wb");

	if (!f)
		t_die("cannot write %s", path);
	fwrite(&size, 8, 1, f);
	fprintf(f, "%-*s", (int)size, head);
	for (uint32_t i = 0; i < LARGE; i++) {
		const float v = large_number(i);

		fwrite(&v, 4, 1, f);
	}
	if (fclose(f))
		t_die("cannot write %s", path);
}

/* The row of the one tensor; "mean" and the like are exact, bins but for those at their edges. */
static void check_large_row(struct t_report *r, const cJSON *row)
{
	double least = INFINITY, most = -INFINITY, sum = 0, squares = 0;
	uint64_t bins[32] = { 0 }, moved = 0;
	struct job j = { .r = r };
	int b = 0;

	for (uint32_t i = 0; i < LARGE; i++) {
		least = fmin(least, (double)large_number(i));
		most = fmax(most, (double)large_number(i));
		sum += (double)large_number(i);
	}
	for (uint32_t i = 0; i < LARGE; i++) {
		const double v = (double)large_number(i), mean = sum / LARGE;
		const int at = (int)((v - least) / (most - least) * 32);

		squares += (v - mean) * (v - mean);
		bins[at > 31 ? 31 : at]++;
	}
	check_real(&j, "min", "w", cJSON_GetArrayItem(row, 4)->valuedouble, least);
	check_real(&j, "max", "w", cJSON_GetArrayItem(row, 5)->valuedouble, most);
	check_real(&j, "mean", "w", cJSON_GetArrayItem(row, 6)->valuedouble, sum / LARGE);
	check_real(&j, "std", "w", cJSON_GetArrayItem(row, 7)->valuedouble, sqrt(squares / LARGE));
	for (const cJSON *v = cJSON_GetArrayItem(row, 11)->child; v; v = v->next, b++)
		moved += (uint64_t)fabs(v->valuedouble - (double)bins[b]);
	/* a number is at most a fine bin away from its own, and the many are far from an edge */
	if (b != 32 || moved > LARGE / 100)
		t_say(r, "%d bins, %" PRIu64 " of %d numbers in others", b, moved, LARGE);
}

static int check_large(struct t_report *r)
{
	static const char *const modes[] = { "all", "sample", "none" };
	char *dir = t_dir_new(), *path = t_fmt("%s/large.safetensors", dir);

	write_large(path);
	for (unsigned m = 0; m < 3; m++) {
		const cJSON *rows;
		cJSON *data;
		struct t_run run;

		t_run_zckpt(&run, "report", "--json", "--stats", modes[m], path, NULL);
		data = cJSON_ParseWithLength(run.out, run.out_n);
		rows = data ? get(get(data, "stats"), "rows") : NULL;
		if (!rows || cJSON_GetArraySize(rows) != (m < 2))
			t_say(r, "--stats %s: %d rows", modes[m], cJSON_GetArraySize(rows));
		else if (m < 2 && number(rows->child, 2) != (m ? 4096 : LARGE))
			t_say(r, "--stats %s: %" PRIu64 " elements", modes[m],
			      number(rows->child, 2));
		else if (m == 0)
			check_large_row(r, rows->child);
		cJSON_Delete(data);
		t_run_free(&run);
	}
	t_dir_end(dir);
	free(path);
	return r->bad != 0;
}

/* ---------------------------------------------------------------- cases */

/* 1 where the case was checked; a layout that is not read is left to others. */
static int check_case(const char *root, struct t_report *r, long *pieces, long *rows)
{
	struct ckpt_open_opts opts = { .size = sizeof(opts) };
	struct job j = { .r = r };
	cJSON *data;
	struct t_run run;

	if (ckpt_open(&root, 1, &opts, &j.ck, NULL))
		return 0;
	ckpt_info_get(j.ck, &j.info);
	t_run_zckpt(&run, "report", "--json", root, NULL);
	data = cJSON_ParseWithLength(run.out, run.out_n);
	j.data = data;
	if (run.exit || !data) {
		t_say(r, "report ended with exit %d: %s", run.exit, run.err);
	} else {
		check_lanes(&j);
		check_stats(&j);
	}
	*pieces += j.pieces;
	*rows += j.rows;
	cJSON_Delete(data);
	t_run_free(&run);
	ckpt_close(j.ck);
	return 1;
}

/* A native step interleaves states, and what is between its pieces is no padding. */
static int check_native(const char *base, struct t_report *r, long *pieces, long *rows)
{
	char *dir = t_dir_new(), *to = t_fmt("%s/N", dir);
	char *from = t_fmt("%s/ds0.19.8-z3-bf16-w2-frozen/ckpt", base);
	struct t_run run;

	t_run_zckpt(&run, "reshard", "-q", "--world", "3", "--to", "native", from, to, NULL);
	if (run.exit || !check_case(to, r, pieces, rows))
		t_say(r, "no native step: %s", run.err);
	t_run_free(&run);
	free(from);
	free(to);
	t_dir_end(dir);
	return r->bad != 0;
}

int main(int argc, char **argv)
{
	const char *fixtures = getenv("ZCKPT_FIXTURES"), *filter = argc > 1 ? argv[1] : NULL;
	int passed = 0, failed = 0;
	long pieces = 0, rows = 0;
	char *base, **names;

	base = t_fmt("%s/deepspeed", fixtures && *fixtures ? fixtures : "build/fixtures");
	names = t_dir_list(base, NULL);
	if (!names[0])
		t_die("no fixtures in %s; set ZCKPT_FIXTURES", base);
	for (size_t i = 0; names[i]; i++) {
		char *root = t_fmt("%s/%s/ckpt", base, names[i]);
		struct t_report r = { 0 };

		if ((!filter || strstr(names[i], filter)) && t_exists(root) &&
		    check_case(root, &r, &pieces, &rows)) {
			if (r.bad)
				printf("%s:\n%s", names[i], r.text);
			failed += r.bad != 0;
			passed += r.bad == 0;
		}
		free(r.text);
		free(root);
	}
	t_list_free(names);
	for (int native = 0; native < 2 && !filter; native++) {
		struct t_report r = { 0 };

		if (native ? check_native(base, &r, &pieces, &rows) : check_large(&r))
			printf("%s:\n%s", native ? "a native step" : "a large tensor", r.text);
		failed += r.bad != 0;
		passed += r.bad == 0;
		free(r.text);
	}
	free(base);
	printf("%ld pieces at their bytes, statistics of %ld states\n", pieces, rows);
	printf("[  PASSED  ] %d test(s).\n", passed);
	if (failed)
		printf("[  FAILED  ] %d test(s).\n", failed);
	printf("%d passed, %d failed, 0 skipped\n", passed, failed);
	return failed || !passed || !pieces || !rows;
}
