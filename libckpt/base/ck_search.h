/*
 * ck_search.h -- binary search over what is in order.
 *
 * A macro, since a callback would take the array, the key and a function at every place, and a
 * call at every step: here the question is an expression, as in a loop over 'i'.
 */
#ifndef CK_SEARCH_H
#define CK_SEARCH_H

#include <stdint.h>

/*
 * Sets 'i', a uint64_t variable, to the first number below 'n' for which the expression
 * 'is_before' of 'i' is false, or to 'n'.  'is_before' is true up to there and false from there
 * on; it is evaluated about log2(n) times.  The first that is not less than x:
 *	CK_LOWER_BOUND(i, n, a[i] < x);
 */
#define CK_LOWER_BOUND(i, n, is_before)                                                           \
	for (uint64_t from_ = 0, to_ = (n); (i) = from_ + (to_ - from_) / 2, from_ < to_;)        \
		if (is_before)                                                                    \
			from_ = (i) + 1;                                                          \
		else                                                                              \
			to_ = (i)

#endif
