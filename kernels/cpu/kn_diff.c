/* kn_diff.c -- the comparison of kn.h. */
#include "kernels/cpu/kn_ops.h"
#include "kernels/include/kn.h"

int kn_diff(enum kn_num type, const struct kn_diff_how *how, const void *a, const void *b,
	    size_t n, struct kn_diff *out)
{
	return kn_ops_get()->diff(type, how, a, b, n, out);
}
