/* kn_diff.c -- the comparison of kn.h, which has one form. */
#include "kernels/include/kn_ref.h"

int kn_diff(enum kn_num type, const struct kn_diff_how *how, const void *a, const void *b,
	    size_t n, struct kn_diff *out)
{
	return kn_ref_diff(type, how, a, b, n, out);
}
