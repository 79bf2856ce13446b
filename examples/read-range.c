/*
 * read-range.c -- numbers of one tensor, without reading the rest of the checkpoint.
 *
 *	read-range CKPT TENSOR STATE FIRST COUNT
 *	read-range RUN emb.weight exp_avg 0 8
 *
 * STATE is weight, master, exp_avg, ...; FIRST counts elements in row-major order.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <ckpt.h>

#define CHUNK 65536	/* elements that are read at once */

static int print_range(const struct ckpt *ck, uint64_t tensor, uint32_t state, uint64_t first,
		       uint64_t count, struct ckpt_err *err)
{
	float *x = malloc(CHUNK * sizeof(*x));
	int rc = x ? 0 : -CKPT_E_NOMEM;

	while (!rc && count) {
		const uint64_t n = count < CHUNK ? count : CHUNK;

		/* CKPT_F32: whatever the file has, as float */
		rc = ckpt_read(ck, tensor, state, first, n, CKPT_F32, x, n * sizeof(*x), err);
		for (uint64_t i = 0; !rc && i < n; i++)
			printf("%.9g\n", x[i]);
		first += n;
		count -= n;
	}
	free(x);
	return rc;
}

int main(int argc, char **argv)
{
	const char *path = argc > 1 ? argv[1] : "";
	struct ckpt *ck = NULL;
	struct ckpt_err err = { 0 };
	uint64_t tensor;
	uint32_t state;
	int rc;

	if (argc != 6) {
		fprintf(stderr, "usage: read-range CKPT TENSOR STATE FIRST COUNT\n");
		return 2;
	}
	rc = ckpt_open(&path, 1, NULL, &ck, &err);
	if (!rc)
		rc = ckpt_tensor_find(ck, argv[2], &tensor, &err);
	if (!rc)
		rc = ckpt_state_find(ck, tensor, argv[3], &state, &err);
	if (!rc)
		rc = print_range(ck, tensor, state, strtoull(argv[4], NULL, 10),
				 strtoull(argv[5], NULL, 10), &err);
	if (rc)
		fprintf(stderr, "read-range: %s: %s\n", err.where, err.msg);
	ckpt_close(ck);
	return rc ? 1 : 0;
}
