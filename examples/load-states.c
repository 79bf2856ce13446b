/*
 * load-states.c -- what one rank of a job loads when it resumes: its share of the fp32 masters and
 * of Adam's moments of every trainable tensor, whatever number of ranks saved them.
 *
 *	load-states CKPT RANK WORLD OUT
 *
 * Writes the share as raw floats to OUT: for each tensor its masters, then exp_avg, exp_avg_sq.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <ckpt.h>

static const char *const states[] = { "master", "exp_avg", "exp_avg_sq" };
#define NSTATES (sizeof(states) / sizeof(states[0]))

/*
 * The ranges of this rank: of each tensor, elements [n * rank / world, n * (rank + 1) / world).
 * Returns how many elements they have; 'range' is room for NSTATES ranges a tensor, or NULL.
 */
static uint64_t my_share(const struct ckpt *ck, uint64_t rank, uint64_t world, float *memory,
			 struct ckpt_load_range *range, size_t *nranges)
{
	struct ckpt_tensor_info t;
	uint64_t used = 0;

	*nranges = 0;
	for (uint64_t i = 0; !ckpt_tensor_get(ck, i, &t, NULL); i++) {
		const uint64_t first = t.numel * rank / world;
		const uint64_t count = t.numel * (rank + 1) / world - first;

		if (t.role != CKPT_ROLE_TRAINABLE)
			continue;
		for (size_t s = 0; s < NSTATES; s++, used += count, (*nranges)++)
			if (range)
				range[*nranges] = (struct ckpt_load_range){
					.tensor = i, .state = states[s], .first = first,
					.count = count, .dtype = CKPT_F32, .dst = memory + used,
				};
	}
	return used;
}

static int load(const struct ckpt *ck, uint64_t rank, uint64_t world, const char *path,
		struct ckpt_err *err)
{
	/* compare the bytes with the sums in the files */
	const struct ckpt_load_opts opts = { .size = sizeof(opts), .flags = CKPT_LOAD_CHECK };
	struct ckpt_loaded loaded;
	size_t n;
	const uint64_t elements = my_share(ck, rank, world, NULL, NULL, &n);
	float *memory = malloc(elements * sizeof(*memory) + 1);
	struct ckpt_load_range *range = malloc(n * sizeof(*range) + 1);
	FILE *out = NULL;
	int rc = -CKPT_E_NOMEM;

	if (memory && range) {
		my_share(ck, rank, world, memory, range, &n);
		rc = ckpt_load(ck, range, n, &opts, &loaded, err);
	}
	if (!rc) {
		printf("rank %" PRIu64 " of %" PRIu64 ": %" PRIu64 " ranges, %" PRIu64 " bytes\n",
		       rank, world, loaded.ranges, loaded.bytes_made);
		out = fopen(path, "wb");
		if (!out || fwrite(memory, sizeof(*memory), elements, out) != elements)
			rc = -CKPT_E_IO;
	}
	if (out && fclose(out))
		rc = -CKPT_E_IO;
	free(memory);
	free(range);
	return rc;
}

int main(int argc, char **argv)
{
	const char *path = argc > 1 ? argv[1] : "";
	const uint64_t rank = argc > 3 ? strtoull(argv[2], NULL, 10) : 0;
	const uint64_t world = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
	struct ckpt *ck = NULL;
	struct ckpt_err err = { 0 };
	int rc;

	if (argc != 5 || rank >= world) {
		fprintf(stderr, "usage: load-states CKPT RANK WORLD OUT\n");
		return 2;
	}
	rc = ckpt_open(&path, 1, NULL, &ck, &err);
	if (!rc)
		rc = load(ck, rank, world, argv[4], &err);
	if (rc)
		fprintf(stderr, "load-states: %s: %s\n", err.where,
			err.msg[0] ? err.msg : ckpt_code_name((enum ckpt_code)-rc));
	ckpt_close(ck);
	return rc ? 1 : 0;
}
