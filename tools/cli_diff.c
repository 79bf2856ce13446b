/* cli_diff.c -- `zckpt diff`: rows summed up by state, and the answer in one line. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli_diff.h"

#define INTEGERS 3	/* names in the answer */

const char *diff_what(enum ckpt_diff_what what)
{
	static const char *const words[] = {
		"same", "within", "tied, only in A", "tied, only in B", "type", "differs",
		"state only in A", "state only in B", "only in A", "only in B", "types", "shape",
	};

	return (unsigned)what < sizeof(words) / sizeof(words[0]) ? words[what] : "?";
}

uint64_t diff_unread(const struct ckpt_diff_result *diff)
{
	return diff->nopaque_a + diff->nopaque_b;
}

int diff_is_numeric(const struct ckpt_diff_row *row)
{
	return row->what == CKPT_DIFF_VALUES || row->what == CKPT_DIFF_DTYPE ||
	       row->what == CKPT_DIFF_TYPES;
}

int diff_is_integer(const struct ckpt_diff_row *row)
{
	switch (row->dtype) {
	case CKPT_BOOL: case CKPT_U8: case CKPT_I8: case CKPT_I16: case CKPT_U16:
	case CKPT_I32: case CKPT_U32: case CKPT_I64: case CKPT_U64:
		return 1;
	default:
		return 0;
	}
}

char *diff_plural(uint64_t n, const char *word)
{
	return cli_format("%s %s%s", out_count(n), word, out_plural(n));
}

/* ---------------------------------------------------------------- states */

const char *diff_state_name(const struct ckpt_diff_row *row)
{
	if (row->flags & CKPT_DIFF_OF_EXPORT)
		return "weight";
	if (!row->state_a || !row->state_b)
		return row->state_a ? row->state_a : row->state_b ? row->state_b : "";
	if (!strcmp(row->state_a, row->state_b))
		return row->state_a;
	return cli_format("%s=%s", row->state_a, row->state_b);
}

static int place_of(const char *state)
{
	return !strcmp(state, "weight") ? 0 : !strncmp(state, "master", 6) ? 1 : 2;
}

static int by_place(const void *p, const void *q)
{
	const struct diff_state *a = p, *b = q;
	const int x = place_of(a->name), y = place_of(b->name);

	if (x != y)
		return x < y ? -1 : 1;
	if (a->worst && b->worst && a->worst != b->worst)	/* rows are sorted */
		return a->worst < b->worst ? -1 : 1;
	if (!a->worst != !b->worst)
		return a->worst ? -1 : 1;
	return strcmp(a->name, b->name);
}

static void count_row(struct diff_state *s, const struct ckpt_diff_row *row)
{
	s->compared++;
	s->within += row->what == CKPT_DIFF_WITHIN;
	if (!diff_is_numeric(row))
		return;
	s->differing++;
	if (!s->worst || (diff_is_integer(s->worst) && !diff_is_integer(row)))
		s->worst = row;
	if (diff_is_integer(row))
		return;
	s->max_abs = row->max_abs > s->max_abs ? row->max_abs : s->max_abs;
	s->rel_l2 = row->rel_l2 > s->rel_l2 ? row->rel_l2 : s->rel_l2;
}

size_t diff_states(const struct ckpt_diff_result *diff, struct diff_state **out)
{
	struct diff_state *list = NULL;
	size_t n = 0, k;

	for (uint64_t i = 0; i < diff->nrows; i++) {
		const struct ckpt_diff_row *row = &diff->rows[i];
		const char *name;

		if (!row->state_a || !row->state_b)
			continue;
		name = diff_state_name(row);
		for (k = 0; k < n && strcmp(list[k].name, name);)
			k++;
		if (k == n) {
			struct diff_state *longer = cli_alloc((n + 1) * sizeof(*longer));

			if (n)
				memcpy(longer, list, n * sizeof(*longer));
			cli_free(list);
			list = longer;
			list[n++] = (struct diff_state){ .name = name };
		}
		count_row(&list[k], row);
	}
	if (n)
		qsort(list, n, sizeof(*list), by_place);
	*out = list;
	return n;
}

/* ---------------------------------------------------------------- the answer */

/* What the parts of a line are joined into. */
struct line {
	char *text;
};

static void add(struct line *line, const char *between, char *part)
{
	char *longer = cli_format("%s%s%s", line->text ? line->text : "",
				  line->text ? between : "", part);

	cli_free(line->text);
	cli_free(part);
	line->text = longer;
}

static uint64_t count(const struct ckpt_diff_result *d, enum ckpt_diff_what what)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < d->nrows; i++)
		n += d->rows[i].what == what;
	return n;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* How many tensors the compared states belong to. */
static uint64_t count_tensors(const struct ckpt_diff_result *d)
{
	const char **name = cli_alloc((d->nrows + 1) * sizeof(*name));
	uint64_t n = 0, differ = 0;

	for (uint64_t i = 0; i < d->nrows; i++)
		if (d->rows[i].dtype)
			name[n++] = d->rows[i].name;
	if (n)
		qsort(name, n, sizeof(*name), by_name);
	for (uint64_t i = 0; i < n; i++)
		differ += !i || strcmp(name[i], name[i - 1]) != 0;
	cli_free(name);
	return differ;
}

/* -1: A holds weights that were made of B; 1: B of A; 0: neither. */
static int which_is_export(const struct two *two)
{
	const struct ckpt_diff_result *d = &two->diff;
	int is_one = 0;

	for (uint64_t i = 0; i < d->nrows; i++) {
		const struct ckpt_diff_row *row = &d->rows[i];

		if (!(row->flags & CKPT_DIFF_OF_EXPORT))
			continue;
		is_one = 1;
		if (row->flags & CKPT_DIFF_EXPORTED_A || strcmp(row->state_a, "weight"))
			return 1;
		if (row->flags & CKPT_DIFF_EXPORTED_B || strcmp(row->state_b, "weight"))
			return -1;
	}
	return !is_one ? 0 : two->info_b.stage < 0 ? 1 : -1;
}

/* "the same: 24 tensors, 81 states". */
static void say_same(const struct two *two, struct line *line)
{
	const struct ckpt_diff_result *d = &two->diff;
	const uint64_t tensors = count_tensors(d), within = count(d, CKPT_DIFF_WITHIN);
	const struct args *args = two->args;
	const int chosen = args->include.n || args->exclude.n || args->only.n;
	const int export = chosen || two->tolerance ? 0 : which_is_export(two);

	if (two->tolerance)
		add(line, "", cli_format("the same within %s", two->tolerance));
	else
		add(line, "", cli_strdup("the same"));
	add(line, ": ", diff_plural(tensors, export ? "weight" : "tensor"));
	if (export)
		add(line, ", ", cli_format("%s is a correct export of %s", export < 0 ? "A" : "B",
					   export < 0 ? "B" : "A"));
	else if (d->nstates > tensors)
		add(line, ", ", diff_plural(d->nstates, "state"));
	if (within)
		add(line, "; ", cli_format("%s differ%s by less than the tolerance",
					   diff_plural(within, "state"), within == 1 ? "s" : ""));
}

/* "integer buffers differ: seen, pos": counters, whose difference says nothing about weights. */
static void say_integers(const struct ckpt_diff_result *d, struct line *line)
{
	struct line names = { 0 };
	uint64_t n = 0;

	for (uint64_t i = 0; i < d->nrows; i++) {
		const struct ckpt_diff_row *row = &d->rows[i];

		if (diff_is_numeric(row) && diff_is_integer(row) && n++ < INTEGERS)
			add(&names, ", ", cli_strdup(out_name(row->name)));
	}
	if (n > INTEGERS)
		add(&names, " ", cli_format("and %s more", out_count(n - INTEGERS)));
	if (n)
		add(line, "; ", cli_format("integer tensor%s differ%s: %s", out_plural(n),
					   n == 1 ? "s" : "", names.text));
	cli_free(names.text);
}

/* "19 of 24 weights differ, max 0.0234; also exp_avg, exp_avg_sq; integer tensor differs: seen". */
static void say_numbers(const struct ckpt_diff_result *d, struct line *line)
{
	struct diff_state *state;
	const size_t n = diff_states(d, &state);
	struct line others = { 0 };
	int first = 1;

	for (size_t i = 0; i < n; i++) {
		const struct diff_state *s = &state[i];
		const int plain = place_of(s->name) < 2 && !strchr(s->name, '=');

		if (!s->differing)
			continue;
		if (!first) {
			add(&others, ", ", cli_strdup(s->name));
			continue;
		}
		first = 0;
		add(line, "; ", cli_format("%s of %s %s%s differ%s", out_count(s->differing),
					   out_count(s->compared), s->name,
					   plain ? out_plural(s->compared) : "",
					   s->differing == 1 ? "s" : ""));
		if (s->worst->nan_a || s->worst->nan_b)
			add(line, ", ", cli_strdup("NaN on one side"));
		else if (s->max_abs > 0)
			add(line, ", ", cli_format("max %.3g", s->max_abs));
		else if (s->worst->what == CKPT_DIFF_DTYPE)
			add(line, " ", cli_strdup("in type only"));
	}
	if (others.text)
		add(line, "; also ", others.text);
	say_integers(d, line);
	cli_free(state);
}

/* "exp_avg, master are only in A". */
static void say_states(const struct ckpt_diff_result *d, enum ckpt_diff_what what,
		       const char *side, struct line *line)
{
	struct line names = { 0 };
	struct words seen = { 0 };

	for (uint64_t i = 0; i < d->nrows; i++) {
		const char *name = diff_state_name(&d->rows[i]);
		size_t k = 0;

		if (d->rows[i].what != what)
			continue;
		while (k < seen.n && strcmp(seen.list[k], name))
			k++;
		if (k < seen.n)
			continue;
		words_add(&seen, name);
		add(&names, ", ", cli_strdup(name));
	}
	if (names.text)
		add(line, "; ", cli_format("%s only in %s", names.text, side));
	cli_free(names.text);
}

/* Where only one side has more: first that the rest agrees. */
static void say_rest(const struct two *two, struct line *line)
{
	struct diff_state *state;
	const size_t n = diff_states(&two->diff, &state);
	uint64_t most = 0;

	for (size_t i = 0; i < n; i++)
		most = state[i].compared > most ? state[i].compared : most;
	if (most)
		add(line, "", cli_format("the %s that both have %s %s", diff_plural(most, "tensor"),
					 most == 1 ? "is" : "are",
					 two->tolerance ? "within the tolerance" : "the same"));
	cli_free(state);
}

static void say_different(const struct two *two, struct line *line)
{
	const struct ckpt_diff_result *d = &two->diff;
	const uint64_t shapes = count(d, CKPT_DIFF_SHAPE);
	const uint64_t a = count(d, CKPT_DIFF_ONLY_A), b = count(d, CKPT_DIFF_ONLY_B);
	uint64_t scalars = 0;

	for (uint64_t i = 0; i < d->nscalars; i++)
		scalars += d->scalars[i].differs != 0;
	say_numbers(d, line);
	if (!line->text && !shapes && (a || b))
		say_rest(two, line);
	if (shapes)
		add(line, "; ", cli_format("%s of another shape", diff_plural(shapes, "tensor")));
	if (a)
		add(line, "; ", cli_format("%s only in A", diff_plural(a, "tensor")));
	if (b)
		add(line, "; ", cli_format("%s only in B", diff_plural(b, "tensor")));
	say_states(d, CKPT_DIFF_STATE_A, "A", line);
	say_states(d, CKPT_DIFF_STATE_B, "B", line);
	if (scalars)
		add(line, "; ", cli_format("%s differ%s", diff_plural(scalars, "scalar"),
					   scalars == 1 ? "s" : ""));
}

const char *diff_answer(const struct two *two)
{
	static struct line line;
	const struct ckpt_diff_result *d = &two->diff;

	cli_free(line.text);
	line.text = NULL;
	if (d->ndiffering) {
		say_different(two, &line);
	} else if (diff_unread(d)) {
		add(&line, "", cli_format("not known: zckpt cannot read %s of A and %" PRIu64
					  " of B", diff_plural(d->nopaque_a, "tensor"),
					  d->nopaque_b));
		add(&line, "; ", cli_format("nothing else differs (%s)",
					    diff_plural(d->nstates, "state")));
	} else {
		say_same(two, &line);
	}
	return line.text;
}
