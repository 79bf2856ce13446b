/* cli_diff_out.c -- the result of `zckpt diff` for people: the answer, states, tensors, scalars. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli_diff.h"

#define SHOWN 20	/* tensors */
#define NAMED 6		/* names that only one side has */

/* ---------------------------------------------------------------- words */

static char *shape_word(uint32_t ndim, const uint64_t *shape)
{
	struct ckpt_tensor_info tensor = { .ndim = ndim, .shape = shape };

	return cli_strdup(out_shape(&tensor));
}

/* Element 'at' by its indices; a plain number where it is a byte of packed ones. */
static char *place_word(const struct ckpt_diff_row *row, uint64_t at)
{
	char *text = cli_strdup("]"), *longer;

	if (ckpt_dtype_bits(row->dtype) < 8)
		return cli_format("byte %" PRIu64, at);
	for (uint32_t i = row->ndim_a; i--;) {
		longer = cli_format("%s%" PRIu64 "%s", i ? ", " : "", at % row->shape_a[i], text);
		at /= row->shape_a[i];
		cli_free(text);
		text = longer;
	}
	longer = cli_format("[%s", text);
	cli_free(text);
	return longer;
}

static char *types_word(const struct ckpt_diff_row *row)
{
	return cli_format("%s, %s%s%s", ckpt_dtype_name(row->dtype_a),
			  ckpt_dtype_name(row->dtype_b), row->dtype ? " as " : "",
			  row->dtype ? ckpt_dtype_name(row->dtype) : "");
}

/* The last column of a row. */
static char *detail(const struct ckpt_diff_row *row, int verbose)
{
	char *text;

	if (!row->shape_b) {
		text = shape_word(row->ndim_a, row->shape_a);
	} else if (!row->shape_a) {
		text = shape_word(row->ndim_b, row->shape_b);
	} else if (row->what == CKPT_DIFF_SHAPE) {
		text = cli_format("shape %s, %s", shape_word(row->ndim_a, row->shape_a),
				  shape_word(row->ndim_b, row->shape_b));
	} else if (row->what == CKPT_DIFF_TYPES || !row->differ) {
		text = cli_strdup("");
	} else {
		text = cli_format("%s: %s, %s", place_word(row, row->first), row->first_a,
				  row->first_b);
	}
	if (row->dtype_a && row->dtype_b && row->dtype_a != row->dtype_b)
		text = cli_format("%s%s%s", text, text[0] ? "; " : "", types_word(row));
	if (row->nan_a || row->nan_b)
		text = cli_format("%s; NaN only in A %" PRIu64 ", only in B %" PRIu64, text,
				  row->nan_a, row->nan_b);
	if (!verbose)
		return text;
	if (row->flags & (CKPT_DIFF_DERIVED_A | CKPT_DIFF_DERIVED_B))
		text = cli_format("%s; rounded from masters in %s", text,
				  !(row->flags & CKPT_DIFF_DERIVED_B) ? "A" :
				  !(row->flags & CKPT_DIFF_DERIVED_A) ? "B" : "both");
	if (row->flags & CKPT_DIFF_PER_RANK)
		text = cli_format("%s; rank 0's", text);
	if (row->flags & (CKPT_DIFF_TIED_A | CKPT_DIFF_TIED_B))
		text = cli_format("%s; tied in %s only", text,
				  row->flags & CKPT_DIFF_TIED_A ? "A" : "B");
	if (row->flags & CKPT_DIFF_ONE_SOURCE)
		text = cli_format("%s; one file", text);
	return text[0] == ';' ? text + 2 : text;
}

static void print_side(const char *letter, const struct ckpt_info *info)
{
	printf("%s  %s: %s", letter, out_name(info->path), info->format);
	if (info->stage >= 0)
		printf(", stage %" PRId32, info->stage);
	if (info->world)
		printf(", %" PRIu32 " rank%s", info->world, out_plural(info->world));
	if (info->step >= 0)
		printf(", step %" PRId64, info->step);
	putchar('\n');
}

/* ---------------------------------------------------------------- states */

/* A line each, where there are several and one differs. */
static void print_states(const struct two *two)
{
	static const char *const heads[] = {
		"state", "compared", "differ", "max abs", "rel L2", "worst tensor",
	};
	struct table table = { .align = "lrrrrl", .heading = 1 };
	struct diff_state *state;
	const size_t n = diff_states(&two->diff, &state);
	size_t differing = 0;

	for (size_t i = 0; i < n; i++)
		differing += state[i].differing != 0;
	if (differing && n > 1) {
		table_add(&table, heads);
		for (size_t i = 0; i < n; i++) {
			const struct diff_state *s = &state[i];
			const int numbers = s->worst && s->max_abs > 0;

			table_add(&table, (const char *const[]){
				s->name, out_count(s->compared), out_count(s->differing),
				numbers ? cli_format("%.3g", s->max_abs) : "",
				numbers ? cli_format("%.2g", s->rel_l2) : "",
				s->worst ? out_name(s->worst->name) : "" });
		}
		putchar('\n');
		table_print(&table, stdout, "");
	}
	cli_free(state);
}

/* ---------------------------------------------------------------- tensors */

/* A row of numbers, or of a shape; absences are lines of their own. */
static int is_shown(const struct two *two, const struct ckpt_diff_row *row)
{
	return two->args->verbose || diff_is_numeric(row) || row->what == CKPT_DIFF_SHAPE;
}

static int place_of(const struct ckpt_diff_row *row)
{
	const char *state = diff_state_name(row);

	if (row->what == CKPT_DIFF_SAME || row->what == CKPT_DIFF_WITHIN)
		return 6;
	if (!diff_is_numeric(row))
		return row->what == CKPT_DIFF_SHAPE ? 0 : 5;
	if (diff_is_integer(row))
		return 4;
	return !strcmp(state, "weight") ? 1 : !strncmp(state, "master", 6) ? 2 : 3;
}

/* Other shapes, weights, masters, moments, integers; each with the worst first, as the rows are. */
static int by_place(const void *p, const void *q)
{
	const struct ckpt_diff_row *a = *(const struct ckpt_diff_row *const *)p;
	const struct ckpt_diff_row *b = *(const struct ckpt_diff_row *const *)q;
	const int x = place_of(a), y = place_of(b);

	return x != y ? x - y : a < b ? -1 : a > b;
}

static void add_row(struct table *table, const struct two *two, const struct ckpt_diff_row *row)
{
	const int verbose = two->args->verbose;
	const int compared = row->dtype && row->differ;
	const int numbers = compared && !(row->flags & CKPT_DIFF_BYTES);
	const char *cells[8];
	size_t n = 0;

	cells[n++] = out_name(row->name);
	cells[n++] = diff_state_name(row);
	if (verbose)
		cells[n++] = diff_what(row->what);
	cells[n++] = compared ? cli_format("%s of %s",
					   out_count(two->tolerance ? row->beyond : row->differ),
					   out_count(row->numel)) : "";
	cells[n++] = numbers ? cli_format("%.3g", row->max_abs) : "";
	cells[n++] = numbers ? cli_format("%.2g", row->rel_l2) : "";
	if (verbose)
		cells[n++] = numbers ? out_count(row->max_ulps) : "";
	cells[n] = detail(row, verbose);
	table_add(table, cells);
}

static void print_ulps(const struct ckpt_diff_row *row)
{
	if (!row->ulps)
		return;
	printf("%s %s, ULPs:", out_name(row->name), diff_state_name(row));
	for (unsigned i = 0; i < CKPT_DIFF_ULPS; i++)
		if (row->ulps[i])
			printf("  %s%u: %" PRIu64, i < 2 ? "" : "2^", i < 2 ? i : i - 1,
			       row->ulps[i]);
	putchar('\n');
}

static void print_rows(const struct two *two)
{
	const int verbose = two->args->verbose;
	const char *const heads[] = {
		"tensor", "state", two->tolerance ? "beyond" : "differ", "max abs", "rel L2",
		"first difference: A, B",
	};
	const char *const all_heads[] = {
		"tensor", "state", "what", two->tolerance ? "beyond" : "differ", "max abs",
		"rel L2", "ULPs", "first difference: A, B",
	};
	struct table table = { .align = verbose ? "lllrrrrl" : "llrrrl", .heading = 1 };
	const uint64_t most = two->all || verbose ? UINT64_MAX : SHOWN;
	const struct ckpt_diff_row **row = cli_alloc((two->diff.nrows + 1) * sizeof(*row));
	uint64_t n = 0;

	for (uint64_t i = 0; i < two->diff.nrows; i++)
		if (is_shown(two, &two->diff.rows[i]))
			row[n++] = &two->diff.rows[i];
	if (n) {
		qsort(row, n, sizeof(*row), by_place);
		table_add(&table, verbose ? all_heads : heads);
		for (uint64_t i = 0; i < n && i < most; i++)
			add_row(&table, two, row[i]);
		putchar('\n');
		table_print(&table, stdout, "");
	}
	if (n > most)
		printf("... and %s more; --all shows them\n", out_count(n - most));
	for (uint64_t i = 0; verbose && i < n; i++)
		print_ulps(row[i]);
	cli_free(row);
}

/* ---------------------------------------------------------------- absences */

/* A state that only one side has, of how many tensors. */
struct absence {
	const char *state, *tensor;
	uint64_t tensors;
	int printed;
};

static size_t absent_states(const struct ckpt_diff_result *d, enum ckpt_diff_what what,
			    struct absence *out)
{
	size_t n = 0, k;

	for (uint64_t i = 0; i < d->nrows; i++) {
		const char *state = diff_state_name(&d->rows[i]);

		if (d->rows[i].what != what)
			continue;
		for (k = 0; k < n && strcmp(out[k].state, state);)
			k++;
		if (k == n)
			out[n++] = (struct absence){ state, d->rows[i].name, 0, 0 };
		out[k].tensors++;
	}
	return n;
}

/* States of as many tensors share a line. */
static void print_states_only(const struct ckpt_diff_result *d, enum ckpt_diff_what what,
			      const char *side)
{
	struct absence *list = cli_alloc((d->nrows + 1) * sizeof(*list));
	const size_t n = absent_states(d, what, list);

	for (size_t i = 0; i < n; i++) {
		int several = 0;

		if (list[i].printed)
			continue;
		printf("only in %s: %s", side, list[i].state);
		for (size_t k = i + 1; k < n; k++) {
			if (list[k].tensors != list[i].tensors)
				continue;
			printf(", %s", list[k].state);
			several = list[k].printed = 1;
		}
		if (list[i].tensors == 1)
			printf(" (%s)\n", out_name(list[i].tensor));
		else
			printf(" (%s tensors%s)\n", out_count(list[i].tensors),
			       several ? " each" : "");
	}
	cli_free(list);
}

static void print_names_only(const struct two *two, enum ckpt_diff_what what, const char *side)
{
	const struct ckpt_diff_result *d = &two->diff;
	const uint64_t most = two->all || two->args->verbose ? UINT64_MAX : NAMED;
	uint64_t n = 0;

	for (uint64_t i = 0; i < d->nrows; i++) {
		if (d->rows[i].what != what)
			continue;
		if (n++ < most)
			printf("%s%s", n == 1 ? cli_format("only in %s: ", side) : ", ",
			       out_name(d->rows[i].name));
	}
	if (n > most)
		printf(" and %s more", out_count(n - most));
	if (n)
		putchar('\n');
}

/* "module." where 'longer' is that and 'name'; NULL if it is not. */
static char *prefix_of(const char *longer, const char *name)
{
	const size_t n = strlen(longer), m = strlen(name);

	return n > m + 1 && longer[n - m - 1] == '.' && !strcmp(longer + n - m, name) ?
	       cli_format("%.*s", (int)(n - m), longer) : NULL;
}

/* The first name of A that is alone, and one of B, apart by a prefix? */
static void print_prefix(const struct ckpt_diff_result *d)
{
	const struct ckpt_diff_row *a = NULL;
	char *prefix = NULL;

	for (uint64_t i = 0; i < d->nrows && !a; i++)
		a = d->rows[i].what == CKPT_DIFF_ONLY_A ? &d->rows[i] : NULL;
	for (uint64_t i = 0; a && i < d->nrows && !prefix; i++) {
		if (d->rows[i].what != CKPT_DIFF_ONLY_B)
			continue;
		prefix = prefix_of(a->name, d->rows[i].name);
		if (!prefix)
			prefix = prefix_of(d->rows[i].name, a->name);
	}
	if (prefix)
		printf("names differ by a prefix: --strip-prefix %s compares them\n",
		       out_word(prefix));
}

static void print_absences(const struct two *two)
{
	const struct ckpt_diff_result *d = &two->diff;
	uint64_t n = 0;

	for (uint64_t i = 0; i < d->nrows; i++)
		n += d->rows[i].what >= CKPT_DIFF_STATE_A && d->rows[i].what <= CKPT_DIFF_ONLY_B;
	if (!n)
		return;
	putchar('\n');
	print_names_only(two, CKPT_DIFF_ONLY_A, "A");
	print_names_only(two, CKPT_DIFF_ONLY_B, "B");
	print_prefix(d);
	print_states_only(d, CKPT_DIFF_STATE_A, "A");
	print_states_only(d, CKPT_DIFF_STATE_B, "B");
}

/* ---------------------------------------------------------------- scalars */

static void print_scalars(const struct two *two)
{
	struct table table = { .align = "lll", .heading = 1 };

	for (uint64_t i = 0; i < two->diff.nscalars; i++) {
		const struct ckpt_diff_scalar *s = &two->diff.scalars[i];

		if (!s->differs && (!two->args->verbose || (s->a && s->b && !strcmp(s->a, s->b))))
			continue;
		if (!table.cells)
			table_add(&table, (const char *const[]){ "scalar", "A", "B" });
		table_add(&table, (const char *const[]){ out_name(s->key),
							 s->a ? out_name(s->a) : "-",
							 s->b ? out_name(s->b) : "-" });
	}
	if (table.cells) {
		putchar('\n');
		table_print(&table, stdout, "");
	}
}

/* The same weights in a shorter type differ by the rounding. */
static void print_rounding(const struct two *two)
{
	const struct ckpt_diff_result *d = &two->diff;
	const char *tolerance = NULL;
	double most = 0, bound = 0;

	if (two->tolerance)
		return;
	for (uint64_t i = 0; i < d->nrows; i++) {
		const struct ckpt_diff_row *row = &d->rows[i];
		const int bf16 = row->dtype_a == CKPT_BF16 || row->dtype_b == CKPT_BF16;
		const int fp16 = row->dtype_a == CKPT_F16 || row->dtype_b == CKPT_F16;

		if (row->what != CKPT_DIFF_VALUES)
			continue;
		if (row->dtype_a == row->dtype_b || !(bf16 || fp16))
			return;
		tolerance = bf16 ? "rel:0.004" : tolerance ? tolerance : "6e-8,rel:5e-4";
		bound = bf16 ? 0.004 : bound > 0 ? bound : 5e-4;
		most = row->rel_l2 > most ? row->rel_l2 : most;
	}
	if (tolerance && most <= bound)
		printf("\nthe types differ; --tolerance %s allows for the rounding\n", tolerance);
}

void diff_print(const struct two *two)
{
	if (two->args->quiet)
		return;
	puts(diff_answer(two));
	print_side("A", &two->info_a);
	print_side("B", &two->info_b);
	print_states(two);
	print_rows(two);
	print_absences(two);
	print_scalars(two);
	print_rounding(two);
}
