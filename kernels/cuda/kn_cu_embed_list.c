/* kn_cu_embed_list.c -- which rows belong to which token, found on the host. */
#include <stdlib.h>

#include "kernels/include/kn_cuda.h"

static int by_value(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Keys are id and row, so that rows of an id come in order. */
size_t kn_cu_embed_list(const int32_t *ids, size_t rows, int32_t *id, int32_t *begin, int32_t *at,
			uint64_t *work)
{
	size_t n = 0;

	for (size_t r = 0; r < rows; r++)
		work[r] = (uint64_t)(uint32_t)ids[r] << 32 | r;
	if (rows)
		qsort(work, rows, sizeof(*work), by_value);
	for (size_t i = 0; i < rows; i++) {
		const int32_t token = (int32_t)(work[i] >> 32);

		at[i] = (int32_t)(uint32_t)work[i];
		if (!n || id[n - 1] != token) {
			id[n] = token;
			begin[n++] = (int32_t)i;
		}
	}
	begin[n] = (int32_t)rows;
	return n;
}
