/*
 * The table of mutations, as text: tests/cli/mutations.md.  A row is what all mutants of some
 * numbers have in common.
 */
#ifndef T_MUTATION_TABLE_H
#define T_MUTATION_TABLE_H

#include <stdio.h>

#include "tests/lib/mutate/t_verdict.h"

/* What is said of one mutant, as it is in the table. */
struct t_cells {
	char text[T_MODES][72];
};

struct t_row {
	char *format, *mutation;
	size_t *number;		/* ascending, from 1 */
	size_t n;
	struct t_cells cells;
};

struct t_table {
	struct t_row *row;
	size_t n;
};

/* NULL if it may be there; else a sentence: what must never be. */
const char *t_cells_make(const char *mutation, const struct t_verdict *v, bool is_step,
			 struct t_cells *out);

void t_table_add(struct t_table *t, const char *format, const char *mutation, size_t number,
		 const struct t_cells *cells);
/* The row that has it, or NULL. */
const struct t_row *t_table_find(const struct t_table *t, const char *format,
				 const char *mutation, size_t number);
void t_table_free(struct t_table *t);

void t_table_print(const struct t_table *t, FILE *out);
/* Rows of what t_table_print() wrote; it ends the program if there is none. */
void t_table_read(struct t_table *t, const char *path);

#endif
