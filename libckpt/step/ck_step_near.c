/* ck_step_near.c -- see ck_step_near.h. */
#include "libckpt/step/ck_step_near.h"

#include <string.h>

#define LONGEST 63u	/* letters of a name that is compared */

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* Letters to insert, remove or replace; LONGEST and more = not alike. */
static unsigned distance(const char *a, const char *b)
{
	const size_t na = strlen(a), nb = strlen(b);
	unsigned row[LONGEST + 1];

	if (na > LONGEST || nb > LONGEST)
		return LONGEST;
	for (size_t j = 0; j <= nb; j++)
		row[j] = (unsigned)j;
	for (size_t i = 1; i <= na; i++) {
		unsigned above_left = row[0];

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= nb; j++) {
			const unsigned replaced = above_left + (a[i - 1] != b[j - 1]);

			above_left = row[j];
			row[j] = least(replaced, least(row[j], row[j - 1]) + 1);
		}
	}
	return row[nb];
}

/* Only the numbers differ: that is another step, and no slip of the keys. */
static int is_other_number(const char *a, const char *b)
{
	const size_t n = strcspn(a, "0123456789");

	return a[n] && n == strcspn(b, "0123456789") && !strncmp(a, b, n);
}

const char *ck_step_near(const char *word, const struct ck_step_names *names)
{
	const size_t n = strlen(word);
	const unsigned most = n < 4 ? 0 : n < 8 ? 2 : 3;
	unsigned seen = most + 1;
	const char *near = NULL;

	for (size_t i = 0; i < names->n; i++) {
		const unsigned d = distance(word, names->name[i]);

		if ((d < seen || (near && d == seen && strcmp(names->name[i], near) < 0)) &&
		    !is_other_number(word, names->name[i])) {
			seen = d;
			near = names->name[i];
		}
	}
	return near;
}
