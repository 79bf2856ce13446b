/* Checks of a fixture's truth against its case.json, without any program: the
 * comparisons stand on these relations, so a broken fixture must not pass. */
#ifndef T_SELF_H
#define T_SELF_H

#include "tests/lib/t_case.h"
#include "tests/lib/t_want.h"

void t_self_check(const struct t_case *c, const struct t_st *truth,
		  const char *label, struct t_report *r);

/* Counts what kinds of case there were; t_traits_print shows the table. */
void t_traits_add(const struct t_case *c, const struct t_st *truth);
void t_traits_expected(void);
void t_traits_print(void);

#endif
