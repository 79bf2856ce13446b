/* See t_mutation_table.h. */
#include "tests/lib/mutate/t_mutation_table.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/include/ckpt.h"
#include "libckpt/include/ckpt_verify.h"
#include "tests/lib/fs/t_dir.h"

#define SAME "same"
#define CARRIED "carried"
#define OTHER "other"
#define NOT "-"
#define NO_DAMAGE "latest ends with a newline"

/* ---------------------------------------------------------------------------- cells */

/* Why nothing in the files can tell, by what the mutation is called. */
static const struct {
	const char *mutation;	/* how it begins */
	char letter;
	const char *why;
} reasons[] = {
	{ "a bit flips in ", 'a', "no checksum covers this (legacy streams, JSON and safetensors "
	  "of others have none), and nothing else says the same: a moment, a buffer, a name, a "
	  "setting has no second copy, and of a master the weight shows what rounding leaves" },
	{ "a moment has a flipped bit", 'a', NULL },
	{ "two tensors of a shape are swapped in every state", 'b', NULL },
	{ "two tensors of a shape are swapped, all sums right", 'b', NULL },
	{ "two tensors are swapped by", 'b', "all checksums are right, and every copy of the "
	  "tensors, if there is a second one, is swapped alike: a run that had these values would "
	  "have written these files" },
	{ "two tensors of a shape are swapped, CRCs right", 'c', "the archive is of another make "
	  "than torch's since 2.1, which sums the CRC-32s" },
	{ "two tensors of a shape are swapped", 'a', NULL },
	{ "two shards are swapped, and renamed inside", 'd', NULL },
	{ "a shard is a copy of rank 0's, renamed inside", 'd', "but for its archive's prefix, "
	  "which was changed with it, a shard of stage 3 does not say whose it is; stage 3 stores "
	  "no weights to compare masters with" },
	{ "two files of equal length are swapped", 'e', "a file of a universal checkpoint does not "
	  "say which parameter's state it holds, and moments have no second copy" },
};

static char reason_of(const char *mutation)
{
	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		if (!strncmp(mutation, reasons[i].mutation, strlen(reasons[i].mutation)))
			return reasons[i].letter;
	return 0;
}

static bool is_output(const char *say, const char *how)
{
	return t_ends_with(say, how) && (strlen(say) == strlen(how) ||
					 say[strlen(say) - strlen(how) - 1] == ' ');
}

/* Neither verb that writes gives another result: what was changed matters to none. */
static bool is_harmless(const struct t_verdict *v, bool is_step)
{
	return is_output(v->say[T_CONVERT], SAME) &&
	       (!is_step || is_output(v->say[T_RESHARD], SAME) ||
		is_output(v->say[T_RESHARD], CARRIED));
}

static void make_output(const char *say, char letter, char *out, size_t room)
{
	if (!strcmp(say, SAME))
		snprintf(out, room, "harmless");
	else if (!strcmp(say, OTHER) || !strcmp(say, CARRIED))
		snprintf(out, room, "nothing tells (%c)", letter);
	else if (is_output(say, SAME))
		snprintf(out, room, "%.*s; harmless", (int)(strlen(say) - 6), say);
	else if (is_output(say, CARRIED))
		snprintf(out, room, "%.*s; carried", (int)(strlen(say) - 9), say);
	else if (is_output(say, OTHER))
		snprintf(out, room, "%.*s; goes on", (int)(strlen(say) - 7), say);
	else
		snprintf(out, room, "%s", say);
}

const char *t_cells_make(const char *mutation, const struct t_verdict *v, bool is_step,
			 struct t_cells *out)
{
	const bool harmless = is_harmless(v, is_step), told = *v->say[T_FULL] || *v->say[T_QUICK];
	const bool silent = !strcmp(v->say[T_CONVERT], OTHER) ||
			    !strcmp(v->say[T_RESHARD], OTHER) ||
			    !strcmp(v->say[T_RESHARD], CARRIED);
	const char letter = reason_of(mutation);

	for (enum t_mode m = T_QUICK; m <= T_KEPT; m++)
		if (*v->say[m])
			snprintf(out->text[m], sizeof(out->text[0]), "%s", v->say[m]);
		else if (harmless)
			snprintf(out->text[m], sizeof(out->text[0]), "harmless");
		else if (m == T_QUICK && *v->say[T_FULL])
			snprintf(out->text[m], sizeof(out->text[0]), "not read");
		else
			snprintf(out->text[m], sizeof(out->text[0]), "nothing tells (%c)", letter);
	make_output(v->say[T_CONVERT], letter, out->text[T_CONVERT], sizeof(out->text[0]));
	make_output(v->say[T_RESHARD], letter, out->text[T_RESHARD], sizeof(out->text[0]));
	if (!is_step)
		snprintf(out->text[T_RESHARD], sizeof(out->text[0]), NOT);
	if (!*v->say[T_KEPT] && !(harmless && !strcmp(mutation, NO_DAMAGE)))
		return "a manifest does not show it";
	if (silent && told)
		return "another result is written without a word, though verify knows";
	if (silent && !letter)
		return "nothing tells, and no reason is given";
	return NULL;
}

/* ----------------------------------------------------------------------------- rows */

static bool is_of(const struct t_row *r, const char *format, const char *mutation)
{
	return !strcmp(r->mutation, mutation) && !strcmp(r->format, format);
}

static bool same_cells(const struct t_cells *a, const struct t_cells *b)
{
	for (enum t_mode m = 0; m < T_MODES; m++)
		if (strcmp(a->text[m], b->text[m]))
			return false;
	return true;
}

void t_table_add(struct t_table *t, const char *format, const char *mutation, size_t number,
		 const struct t_cells *cells)
{
	struct t_row *r = NULL;

	for (size_t i = t->n; !r && i-- > 0; )
		if (is_of(&t->row[i], format, mutation) && same_cells(&t->row[i].cells, cells))
			r = &t->row[i];
	if (!r) {
		t->row = t_grow(t->row, (t->n + 1) * sizeof(*t->row));
		r = &t->row[t->n++];
		*r = (struct t_row){ .format = t_fmt("%s", format),
				     .mutation = t_fmt("%s", mutation), .cells = *cells };
	}
	r->number = t_grow(r->number, (r->n + 1) * sizeof(*r->number));
	r->number[r->n++] = number;
}

const struct t_row *t_table_find(const struct t_table *t, const char *format,
				 const char *mutation, size_t number)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct t_row *r = &t->row[i];

		for (size_t k = 0; is_of(r, format, mutation) && k < r->n; k++)
			if (r->number[k] == number)
				return r;
	}
	return NULL;
}

void t_table_free(struct t_table *t)
{
	for (size_t i = 0; i < t->n; i++) {
		free(t->row[i].format);
		free(t->row[i].mutation);
		free(t->row[i].number);
	}
	free(t->row);
	*t = (struct t_table){ 0 };
}

/* ------------------------------------------------------------------------- printing */

static size_t all_of(const struct t_table *t, const struct t_row *of)
{
	size_t n = 0;

	for (size_t i = 0; i < t->n; i++)
		if (is_of(&t->row[i], of->format, of->mutation))
			n += t->row[i].n;
	return n;
}

static void print_which(const struct t_table *t, const struct t_row *r, FILE *out)
{
	const size_t all = all_of(t, r);

	if (all == r->n) {
		fprintf(out, "all %zu", all);
		return;
	}
	fprintf(out, "%zu of %zu:", r->n, all);
	for (size_t i = 0, k; i < r->n; i = k) {
		for (k = i + 1; k < r->n && r->number[k] == r->number[k - 1] + 1; k++)
			;
		fprintf(out, k - i > 1 ? " %zu-%zu" : " %zu", r->number[i], r->number[k - 1]);
	}
}

static void print_row(const struct t_table *t, const struct t_row *r, const char *said, FILE *out)
{
	fprintf(out, "| %s | ", strcmp(said, r->mutation) ? r->mutation : "");
	print_which(t, r, out);
	for (enum t_mode m = 0; m < T_MODES; m++)
		fprintf(out, " | %s", m && m != T_RESHARD &&
			!strcmp(r->cells.text[m], r->cells.text[m - 1]) ? "\"" : r->cells.text[m]);
	fprintf(out, " |\n");
}

/* How often each thing is said. */
static void print_sums(const struct t_table *t, FILE *out)
{
	char (*said)[72] = t_alloc((t->n * T_MODES + 1) * sizeof(*said));
	size_t (*times)[T_MODES] = t_alloc((t->n * T_MODES + 1) * sizeof(*times)), n = 0;

	for (size_t i = 0; i < t->n; i++)
		for (enum t_mode m = 0; m < T_MODES; m++) {
			size_t k = 0;

			while (k < n && strcmp(said[k], t->row[i].cells.text[m]))
				k++;
			if (k == n)
				memcpy(said[n++], t->row[i].cells.text[m], sizeof(said[0]));
			times[k][m] += t->row[i].n;
		}
	fprintf(out, "\n## Sums\n\n| | quick | --full | with a manifest | convert | reshard |\n"
		"| --- | --- | --- | --- | --- | --- |\n");
	for (int done = 0; !done; ) {	/* by name */
		size_t next = n;

		for (size_t k = 0; k < n; k++)
			if (*said[k] && (next == n || strcmp(said[k], said[next]) < 0))
				next = k;
		done = next == n;
		if (done)
			break;
		fprintf(out, "| %s", said[next]);
		for (enum t_mode m = 0; m < T_MODES; m++)
			fprintf(out, " | %zu", times[next][m]);
		fprintf(out, " |\n");
		*said[next] = 0;
	}
	free(said);
	free(times);
}

static const char head[] =
"# Mutations\n\n"
"Written by `tests/cli/test_mutations --update`, held against what the library does by the same\n"
"program. Checkpoints of the fixtures are damaged and mixed up in every way that\n"
"`tests/lib/mutate/t_mutate*.c` can, %zu in all, and each is looked at by `verify`,\n"
"`verify --full`, `verify --full` beside a manifest from before, `convert` and `reshard`.\n\n"
"A cell names the finding, or the error, that is said first among the worst; a verb that writes\n"
"leaves nothing then. `\"` is what stands left of it. Else:\n\n"
"* *harmless*: what is written is what the checkpoint as it was gives, to the byte (of a\n"
"  safetensors file: all tensors).\n"
"* *not read*: `verify` without `--full` does not look there.\n"
"* *carried*: said as a note: a file that is no part of the step goes along, byte for byte; all\n"
"  else that is written is the same.\n"
"* *goes on*: said as a warning or note, and another result is written.\n"
"* *nothing tells*: nothing in the files can, since\n";

static const char tail[] =
"\nWith a manifest every mutation is found. A result that is another without a word is written\n"
"only where nothing tells.\n\n"
"*which*: numbers of mutants of a kind; `test_mutations --list FORMAT MUTATION` says what each\n"
"is. `make check` tries a sample, `ZCKPT_LONG=1` all.\n";

void t_table_print(const struct t_table *t, FILE *out)
{
	const char *format = "", *mutation = "";
	size_t all = 0;

	for (size_t i = 0; i < t->n; i++)
		all += t->row[i].n;
	fprintf(out, head, all);
	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		for (char c = 'a'; reasons[i].why && c <= 'z'; c++)
			if (c == reasons[i].letter)
				fprintf(out, "  * (%c) %s;\n", c, reasons[i].why);
	fputs(tail, out);
	for (size_t i = 0; i < t->n; i++) {
		const struct t_row *r = &t->row[i];

		if (strcmp(format, r->format)) {
			fprintf(out, "\n## %s\n\n| mutation | which | quick | --full | with a "
				"manifest | convert | reshard |\n| --- | --- | --- | --- | --- | "
				"--- | --- |\n", r->format);
			mutation = "";
		}
		print_row(t, r, mutation, out);
		format = r->format;
		mutation = r->mutation;
	}
	print_sums(t, out);
}

/* -------------------------------------------------------------------------- reading */

static size_t take_which(const char *which, size_t *number, size_t most)
{
	size_t n = 0, a, b, k;
	int used;

	if (sscanf(which, "all %zu", &k) == 1) {
		for (n = 0; n < k && n < most; n++)
			number[n] = n + 1;
		return n;
	}
	which = strchr(which, ':');
	for (which += which != NULL; which && *which; which += used) {
		if (sscanf(which, " %zu-%zu%n", &a, &b, &used) < 2) {
			if (sscanf(which, " %zu%n", &a, &used) < 1)
				break;
			b = a;
		}
		for (; a <= b && n < most; a++)
			number[n++] = a;
	}
	return n;
}

static void take_line(struct t_table *t, char *line, const char *format, char *mutation)
{
	static size_t number[20000];
	char *cell[2 + T_MODES], *p = line + 2;
	struct t_cells cells;
	size_t n;

	for (size_t i = 0; i < 2 + T_MODES; i++) {
		cell[i] = p;
		p = strstr(p, " |");
		if (!p)
			return;
		*p = 0;
		p += 3;
	}
	if (*cell[0])
		snprintf(mutation, 200, "%s", cell[0]);
	for (enum t_mode m = 0; m < T_MODES; m++)
		snprintf(cells.text[m], sizeof(cells.text[0]), "%s", strcmp(cell[2 + m], "\"") ?
			 cell[2 + m] : cells.text[m - 1]);
	n = take_which(cell[1], number, sizeof(number) / sizeof(number[0]));
	for (size_t i = 0; i < n; i++)
		t_table_add(t, format, mutation, number[i], &cells);
}

void t_table_read(struct t_table *t, const char *path)
{
	char format[200] = "", mutation[200] = "", *text, *line, *save = NULL;
	size_t n;

	*t = (struct t_table){ 0 };
	text = (char *)t_file_read(path, &n);
	for (line = text ? strtok_r(text, "\n", &save) : NULL; line;
	     line = strtok_r(NULL, "\n", &save)) {
		if (!strncmp(line, "## ", 3)) {
			snprintf(format, sizeof(format), "%s", line + 3);
			*mutation = 0;
		} else if (line[0] == '|' && *format && strncmp(line, "| mut", 5) &&
			   strncmp(line, "| ---", 5) && strcmp(format, "Sums")) {
			take_line(t, line, format, mutation);
		}
	}
	free(text);
	if (!t->n)
		t_die("%s has no table", path);
}
