/* cmd_diff.c -- `zckpt diff`: two checkpoints compared, the worst first. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

#define SHOWN 20

static struct {
	const char *strip_prefix, *tag2, *tolerance;
	struct words state;
	int all, scalars;
} want = { .scalars = -1 };

static const struct opt own[] = {
	{ "tag2", 0, OPT_TEXT, &want.tag2, "NAME",
	  "step of the second one; alone, a second step of the first", 0 },
	{ "state", 0, OPT_COMMAS, &want.state, "NAME",
	  "only these; master=weight: A's masters against B's weights", 0 },
	{ "tolerance", 0, OPT_TEXT, &want.tolerance, "TOL",
	  "how far numbers may be apart: 1e-6, rel:1e-3, or both", 0 },
	{ "scalars", 0, OPT_FLAG, &want.scalars, NULL,
	  "step, hyper-parameters, loss scale too (default: unless tensors are chosen)",
	  OPT_NEGATABLE },
	{ "strip-prefix", 0, OPT_TEXT, &want.strip_prefix, "TEXT", "cut it off names", OPT_RARE },
	{ "all", 0, OPT_FLAG, &want.all, NULL, "all that differ, not the worst 20", 0 },
	{ 0 },
};

struct two {
	const struct args *args;
	struct ckpt *a, *b;
	struct ckpt_info info_a, info_b;
	struct ckpt_diff_result diff;
};

/* ---------------------------------------------------------------- words */

static const char *what_word(enum ckpt_diff_what what)
{
	static const char *const words[] = {
		"same", "within", "tied, only in A", "tied, only in B", "type", "differs",
		"state only in A", "state only in B", "only in A", "only in B", "types", "shape",
	};

	return (unsigned)what < sizeof(words) / sizeof(words[0]) ? words[what] : "?";
}

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

static const char *state_word(const struct ckpt_diff_row *row)
{
	if (!row->state_a || !row->state_b)
		return row->state_a ? row->state_a : row->state_b ? row->state_b : "";
	if (!strcmp(row->state_a, row->state_b))
		return row->state_a;
	return cli_format("%s=%s", row->state_a, row->state_b);
}

/* What stands behind the numbers of a row. */
static char *detail(const struct ckpt_diff_row *row, int verbose)
{
	char *text;

	if (!row->shape_b) {
		text = shape_word(row->ndim_a, row->shape_a);
	} else if (!row->shape_a) {
		text = shape_word(row->ndim_b, row->shape_b);
	} else if (row->what == CKPT_DIFF_SHAPE) {
		text = cli_format("%s, %s", shape_word(row->ndim_a, row->shape_a),
				  shape_word(row->ndim_b, row->shape_b));
	} else if (row->what == CKPT_DIFF_TYPES || !row->differ) {
		text = cli_strdup("");
	} else {
		text = cli_format("%s: %s, %s", place_word(row, row->first), row->first_a,
				  row->first_b);
	}
	if (row->dtype_a && row->dtype_b && row->dtype_a != row->dtype_b)
		text = cli_format("%s%s%s, %s%s%s", text, text[0] ? "; " : "",
				  ckpt_dtype_name(row->dtype_a), ckpt_dtype_name(row->dtype_b),
				  row->dtype ? " as " : "",
				  row->dtype ? ckpt_dtype_name(row->dtype) : "");
	if (row->nan_a || row->nan_b)
		text = cli_format("%s; NaN only in A %" PRIu64 ", only in B %" PRIu64, text,
				  row->nan_a, row->nan_b);
	if (!verbose)
		return text;
	if (row->flags & (CKPT_DIFF_DERIVED_A | CKPT_DIFF_DERIVED_B))
		text = cli_format("%s; made from masters in %s", text,
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

/* ---------------------------------------------------------------- for people */

static void print_side(const char *letter, const struct ckpt_info *info)
{
	printf("%s  %s: %s", letter, out_name(info->path), info->format);
	if (info->stage >= 0)
		printf(", stage %" PRId32, info->stage);
	if (info->world)
		printf(", %" PRIu32 " rank%s", info->world, info->world == 1 ? "" : "s");
	if (info->step >= 0)
		printf(", step %" PRId64, info->step);
	putchar('\n');
}

static void add_row(struct table *table, const struct ckpt_diff_row *row, int verbose)
{
	int compared = row->dtype && row->differ, numbers = compared &&
		       !(row->flags & CKPT_DIFF_BYTES);
	const char *cells[8];

	cells[0] = out_name(row->name);
	cells[1] = state_word(row);
	cells[2] = what_word(row->what);
	cells[3] = compared ? cli_format("%s of %s", out_count(row->differ),
					 out_count(row->numel)) : "";
	cells[4] = numbers ? cli_format("%.3g", row->max_abs) : "";
	cells[5] = numbers ? cli_format("%.2g", row->rel_l2) : "";
	cells[6] = numbers ? out_count(row->max_ulps) : "";
	cells[7] = detail(row, verbose);
	table_add(table, cells);
}

static void print_ulps(const struct ckpt_diff_row *row)
{
	if (!row->ulps)
		return;
	printf("%s %s, ULPs:", out_name(row->name), state_word(row));
	for (unsigned i = 0; i < CKPT_DIFF_ULPS; i++)
		if (row->ulps[i])
			printf("  %s%u: %" PRIu64, i < 2 ? "" : "2^", i < 2 ? i : i - 1,
			       row->ulps[i]);
	putchar('\n');
}

/* The rows that are shown: all, or what is not the same. */
static uint64_t count_shown(const struct two *two)
{
	uint64_t n = 0;

	while (n < two->diff.nrows &&
	       (two->args->verbose || two->diff.rows[n].what != CKPT_DIFF_SAME))
		n++;
	return n;
}

/* What is not shown: differences, and what the tolerance covers, which is none. */
static void print_rest(const struct two *two, uint64_t shown, uint64_t n)
{
	uint64_t covered = 0;

	for (uint64_t i = shown; i < n; i++)
		covered += two->diff.rows[i].what == CKPT_DIFF_WITHIN;
	printf("... ");
	if (n - shown > covered)
		printf("and %" PRIu64 " more", n - shown - covered);
	if (covered)
		printf("%s%" PRIu64 " within the tolerance", n - shown > covered ? ", " : "and ",
		       covered);
	printf("; --all shows them\n");
}

static void print_rows(const struct two *two)
{
	static const char *const heads[] = {
		"tensor", "state", "what", "differ", "max abs", "rel L2", "ULPs", "first",
	};
	struct table table = { .align = "lllrrrrl" };
	uint64_t n = count_shown(two), most = n;

	if (!n)
		return;
	if (!want.all && !two->args->verbose && n > SHOWN)
		most = SHOWN;
	table_add(&table, heads);
	for (uint64_t i = 0; i < most; i++)
		add_row(&table, &two->diff.rows[i], two->args->verbose);
	table_print(&table, stdout, "");
	if (most < n)
		print_rest(two, most, n);
	for (uint64_t i = 0; two->args->verbose && i < n; i++)
		print_ulps(&two->diff.rows[i]);
}

static int is_shown(const struct two *two, const struct ckpt_diff_scalar *s)
{
	return s->differs || (two->args->verbose && (!s->a || !s->b || strcmp(s->a, s->b)));
}

static void print_scalars(const struct two *two)
{
	const char *cells[3] = { "scalar", "A", "B" };
	struct table table = { .align = "lll" };

	for (uint64_t i = 0; i < two->diff.nscalars; i++) {
		const struct ckpt_diff_scalar *s = &two->diff.scalars[i];

		if (!is_shown(two, s))
			continue;
		if (!table.cells)
			table_add(&table, cells);
		table_add(&table, (const char *const[]){ out_name(s->key),
							 s->a ? out_name(s->a) : "-",
							 s->b ? out_name(s->b) : "-" });
	}
	if (table.cells)
		table_print(&table, stdout, "");
}

static const char *plural(uint64_t n, const char *word)
{
	return cli_format("%s %s%s", out_count(n), word, n == 1 ? "" : "s");
}

static void print_part(const char **between, const char *text, uint64_t n)
{
	if (!n)
		return;
	printf("%s %s", *between, text);
	*between = ",";
}

/* Of kinds that no driver reads. */
static uint64_t unread(const struct ckpt_diff_result *d)
{
	return d->nopaque_a + d->nopaque_b;
}

static void print_summary(const struct two *two)
{
	const struct ckpt_diff_result *d = &two->diff;
	uint64_t rows = 0, names = 0, states = 0, within = 0, tied = 0, scalars = 0;
	const char *between = ":";

	for (uint64_t i = 0; i < d->nrows; i++) {
		enum ckpt_diff_what what = d->rows[i].what;

		within += what == CKPT_DIFF_WITHIN;
		tied += what == CKPT_DIFF_TIED_ONLY_A || what == CKPT_DIFF_TIED_ONLY_B;
		if (what < CKPT_DIFF_DTYPE)
			continue;
		names += what == CKPT_DIFF_ONLY_A || what == CKPT_DIFF_ONLY_B;
		states += what == CKPT_DIFF_STATE_A || what == CKPT_DIFF_STATE_B;
		rows++;
	}
	for (uint64_t i = 0; i < d->nscalars; i++)
		scalars += d->scalars[i].differs != 0;
	printf("%s compared", plural(d->nstates, "state"));
	if (d->nderived)
		printf(", %s made from masters left out", plural(d->nderived, "weight"));
	if (d->nbeside)
		printf(", %s left out that an export does not have",
		       plural(d->nbeside, "state"));
	if (!d->ndiffering && !unread(d))
		print_part(&between, "all the same", 1);
	print_part(&between, cli_format("%s differ", out_count(rows - names - states)),
		   rows - names - states);
	print_part(&between, cli_format("%s within the tolerance", out_count(within)), within);
	print_part(&between, cli_format("%s in one only", plural(names, "name")), names);
	print_part(&between, cli_format("%s in one only", plural(states, "state")), states);
	print_part(&between, cli_format("%s of tied tensors in one only", plural(tied, "name")),
		   tied);
	print_part(&between, plural(scalars, "scalar"), scalars);
	putchar('\n');
}

static void print_text(const struct two *two)
{
	if (two->args->quiet)
		return;
	print_side("A", &two->info_a);
	print_side("B", &two->info_b);
	print_rows(two);
	print_scalars(two);
	print_summary(two);
}

/* ---------------------------------------------------------------- JSON */

static void json_side(struct json *json, const char *key, const struct ckpt_info *info,
		      const struct ckpt *ck)
{
	json_open(json, key, '{');
	json_text(json, "path", info->path);
	json_text(json, "format", info->format);
	json_known(json, "stage", info->stage);
	json_uint(json, "world", info->world);
	json_known(json, "step", info->step);
	json_findings(json, ck);
	json_close(json, '}');
}

static void json_dims(struct json *json, const char *key, uint32_t ndim, const uint64_t *shape)
{
	json_open(json, key, '[');
	for (uint32_t i = 0; i < ndim; i++)
		json_uint(json, NULL, shape[i]);
	json_close(json, ']');
}

static void json_numbers(struct json *json, const struct ckpt_diff_row *row)
{
	json_text(json, "compared_as", ckpt_dtype_name(row->dtype));
	json_uint(json, "elements", row->numel);
	json_uint(json, "differ", row->differ);
	json_uint(json, "beyond", row->beyond);
	if (!row->differ)
		return;
	json_uint(json, "first", row->first);
	json_text(json, "first_a", row->first_a);
	json_text(json, "first_b", row->first_b);
	if (row->flags & CKPT_DIFF_BYTES)
		return;
	json_real(json, "max_abs", row->max_abs);
	json_uint(json, "max_at", row->max_at);
	json_real(json, "rel_l2", row->rel_l2);
	json_uint(json, "nan_a", row->nan_a);
	json_uint(json, "nan_b", row->nan_b);
	json_uint(json, "nan_both", row->nan_both);
	json_uint(json, "max_ulps", row->max_ulps);
	json_open(json, "ulps", '[');
	for (unsigned i = 0; row->ulps && i < CKPT_DIFF_ULPS; i++) {
		if (!row->ulps[i])
			continue;
		json_open(json, NULL, '{');
		json_uint(json, "from", i ? UINT64_C(1) << (i - 1) : 0);
		json_uint(json, "count", row->ulps[i]);
		json_close(json, '}');
	}
	json_close(json, ']');
}

static void json_flags(struct json *json, const struct ckpt_diff_row *row)
{
	static const struct {
		unsigned bit;
		const char *name;
	} flags[] = {
		{ CKPT_DIFF_DERIVED_A, "derived_a" },	{ CKPT_DIFF_DERIVED_B, "derived_b" },
		{ CKPT_DIFF_PER_RANK, "per_rank" },	{ CKPT_DIFF_ONE_SOURCE, "one_source" },
		{ CKPT_DIFF_TIED_A, "tied_a" },		{ CKPT_DIFF_TIED_B, "tied_b" },
		{ CKPT_DIFF_BYTES, "bytes" },
		{ CKPT_DIFF_EXPORTED_A, "exported_a" },
		{ CKPT_DIFF_EXPORTED_B, "exported_b" },
	};

	json_open(json, "flags", '[');
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		if (row->flags & flags[i].bit)
			json_text(json, NULL, flags[i].name);
	json_close(json, ']');
}

static void json_row(struct json *json, const struct ckpt_diff_row *row)
{
	json_open(json, NULL, '{');
	json_text(json, "name", row->name);
	if (row->state_a)
		json_text(json, "state_a", row->state_a);
	if (row->state_b)
		json_text(json, "state_b", row->state_b);
	json_text(json, "what", what_word(row->what));
	if (row->shape_a)
		json_dims(json, "shape_a", row->ndim_a, row->shape_a);
	if (row->shape_b)
		json_dims(json, "shape_b", row->ndim_b, row->shape_b);
	if (row->dtype_a)
		json_text(json, "dtype_a", ckpt_dtype_name(row->dtype_a));
	if (row->dtype_b)
		json_text(json, "dtype_b", ckpt_dtype_name(row->dtype_b));
	if (row->dtype)
		json_numbers(json, row);
	json_flags(json, row);
	json_close(json, '}');
}

static void print_json(const struct two *two)
{
	const struct ckpt_diff_result *d = &two->diff;
	uint64_t n = count_shown(two);
	struct json json;

	json_begin(&json, stdout, "diff");
	json_bool(&json, "equal", !d->ndiffering && !unread(d));
	json_side(&json, "a", &two->info_a, two->a);
	json_side(&json, "b", &two->info_b, two->b);
	json_uint(&json, "states", d->nstates);
	json_uint(&json, "derived_left_out", d->nderived);
	if (d->nbeside)
		json_uint(&json, "beside_left_out", d->nbeside);
	if (unread(d))
		json_uint(&json, "not_read", unread(d));
	json_uint(&json, "differing", d->ndiffering);
	json_uint(&json, "read_bytes", d->read_bytes);
	json_open(&json, "rows", '[');
	for (uint64_t i = 0; i < n; i++)
		json_row(&json, &d->rows[i]);
	json_close(&json, ']');
	json_open(&json, "scalars", '[');
	for (uint64_t i = 0; i < d->nscalars; i++) {
		const struct ckpt_diff_scalar *s = &d->scalars[i];

		if (!s->differs && s->a && s->b && !strcmp(s->a, s->b))
			continue;
		json_open(&json, NULL, '{');
		json_text(&json, "key", s->key);
		if (s->a)
			json_text(&json, "a", s->a);
		if (s->b)
			json_text(&json, "b", s->b);
		json_bool(&json, "differs", s->differs);
		json_close(&json, '}');
	}
	json_close(&json, ']');
	json_close(&json, '}');
}

/* ---------------------------------------------------------------- the call */

/* A number from 0 on, of 'n' letters. */
static int number(const char *text, size_t n, double *out)
{
	char *copy = cli_format("%.*s", (int)n, text), *end;

	*out = strtod(copy, &end);
	return n && !*end && copy[0] != ' ' && *out >= 0 && !isinf(*out) ? 0 : -1;
}

static int parse_tolerance(struct ckpt_diff_opts *opts)
{
	const char *text = want.tolerance;

	if (!text)
		return 0;
	opts->flags |= CKPT_DIFF_TOLERANCE;
	for (;;) {
		size_t n = strcspn(text, ",");
		int rel = !strncmp(text, "rel:", 4), bad;

		bad = rel ? number(text + 4, n < 4 ? 0 : n - 4, &opts->rel_tolerance) :
			    number(text, n, &opts->abs_tolerance);
		if (bad)
			return cli_wrong(&cmd_diff, "--tolerance: %s is none; it is a number, "
					 "rel:NUMBER, or both with a comma",
					 out_name(want.tolerance));
		if (!text[n])
			return 0;
		text += n + 1;
	}
}

static int is_torch(const char *path)
{
	struct ckpt_open_opts opts = { .size = sizeof(opts) };
	struct ckpt_info info;
	struct ckpt *ck = NULL;
	int yes;

	if (ckpt_open(&path, 1, &opts, &ck, NULL))
		return 1;	/* what is wrong with it is said where it is used */
	ckpt_info_get(ck, &info);
	yes = !strcmp(info.format, "torch");
	ckpt_close(ck);
	return yes;
}

static int open_both(struct two *two)
{
	const struct args *args = two->args;
	struct args first = *args, second = *args;
	struct words a = { 0 }, b = { 0 };
	struct ckpt_err err = { 0 };
	int status;

	words_add(&a, args->rest.list[0]);
	words_add(&b, args->rest.list[args->rest.n - 1]);
	second.tag = want.tag2;
	/* A subtree is of the torch files among the two. */
	if (args->subtree && !is_torch(b.list[0]))
		second.subtree = NULL;
	else if (args->subtree && !is_torch(a.list[0]))
		first.subtree = NULL;
	status = cli_open(&first, "diff", &a, &two->a, &err);
	if (!status)
		status = cli_open(&second, "diff", &b, &two->b, &err);
	return status;
}

static int compare(struct two *two, const struct ckpt_select *select, struct ckpt_diff_opts *opts)
{
	const struct args *args = two->args;
	int chosen = want.state.n || args->include.n || args->exclude.n || args->only.n;
	struct progress progress;
	struct ckpt_run_opts run;
	struct ckpt_err err = { 0 };
	int rc;

	cli_run_begin(args, &progress, &run);
	opts->run = &run;
	opts->select = select;
	opts->states = want.state.list;
	if (want.scalars == 0 || (want.scalars < 0 && chosen))
		opts->flags |= CKPT_DIFF_NO_SCALARS;
	rc = ckpt_diff(two->a, two->b, opts, &two->diff, &err);
	progress_end(&progress);
	out_findings_asked(args, two->a);
	out_findings_asked(args, two->b);
	return rc ? cli_fail(args->json ? "diff" : NULL, two->a, &err) : 0;
}

static int run(struct args *args)
{
	struct ckpt_diff_opts opts = { .size = sizeof(opts) };
	struct two two = { .args = args };
	struct ckpt_select select;
	int status;

	if (args->rest.n != 2 && !(args->rest.n == 1 && want.tag2))
		return cli_wrong(&cmd_diff, "diff needs two checkpoints, or one and --tag2");
	status = cli_select(&cmd_diff, args, &select);
	select.strip_prefix = want.strip_prefix;
	if (!status)
		status = parse_tolerance(&opts);
	if (!status)
		status = open_both(&two);
	if (!status)
		status = compare(&two, &select, &opts);
	if (!status) {
		ckpt_info_get(two.a, &two.info_a);
		ckpt_info_get(two.b, &two.info_b);
		if (args->json)
			print_json(&two);
		else
			print_text(&two);
		status = two.diff.ndiffering ? EXIT_NO : EXIT_DONE;
		if (unread(&two.diff) && status == EXIT_DONE) {
			cli_say("%s of A and %" PRIu64 " of B are of kinds that are not read "
				"(TENSOR_OPAQUE): whether they are the same is not known; "
				"--exclude leaves them out",
				plural(two.diff.nopaque_a, "tensor"), two.diff.nopaque_b);
			status = EXIT_TROUBLE;
		}
	}
	ckpt_diff_free(&two.diff);
	ckpt_close(two.b);
	ckpt_close(two.a);
	return status;
}

const struct command cmd_diff = {
	.name = "diff",
	.run = run,
	.ranks = RANKS_EACH,
	.gist = "two checkpoints compared, of any format, stage and number of ranks",
	.synopsis = "A B",
	.about = "Compares the tensors of two checkpoints by name, state by state, and their "
		 "scalars: what only one has, shapes, types, how many elements differ and by how "
		 "much. The worst comes first. Exit status 0 if they are the same, 1 if not.",
	.examples = "zckpt diff run model.safetensors\n"
		    "zckpt diff --tag global_step200 --tag2 global_step300 run\n",
	.notes = "Without --tolerance equal bits are the same, and nothing else; with it (0 will "
		 "do) equal numbers of any type: -0 is 0, and NaN is NaN, but no other number's "
		 "neighbour.\nTOL: |a - b| <= ABS + REL * max(|a|, |b|) for every element.",
	.tables = { own, opts_select, opts_source, opts_run, opts_talk, NULL },
};
