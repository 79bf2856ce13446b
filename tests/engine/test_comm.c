/*
 * test_comm.c -- collectives of one rank, the tree, the cutting into chunks, and who is missing.
 *
 * If this fails, a run of one rank trains with other numbers than it was given, sums depend on
 * something else than the ranks' numbers, parts of a buffer are never sent, or the wrong rank is
 * named.  What several ranks do is in test_comm_mpi.sh.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/comm/en_comm_mpi.h"
#include "engine/comm/en_tree.h"
#include "engine/comm/en_watchdog.h"
#include "engine/comm/en_collective.h"
#include "kernels/include/kn_train.h"

static struct en_comm *one(void)
{
	struct ckpt_err err = { 0 };
	struct en_comm *comm;

	assert_int_equal(en_comm_local_open(&comm, &err), 0);
	assert_int_equal(comm->size, 1);
	assert_int_equal(comm->rank, 0);
	return comm;
}

static void test_one_rank(void **state)
{
	struct en_comm *comm = one();
	struct en_collective *work = NULL;
	float full[5000], own[5000];
	uint16_t half[3] = { 0x3f80, 0xc000, 0x7f80 };	/* bf16: 1, -2, infinity */
	double v[2] = { 3, -0.0 }, w[2];

	(void)state;
	for (int i = 0; i < 5000; i++)
		full[i] = (float)i - 7.25f;
	assert_int_equal(en_comm_reduce_scatter(comm, own, full, KN_F32, 5000, 1, &work, NULL), 0);
	assert_null(work);
	assert_memory_equal(own, full, sizeof(full));
	assert_int_equal(en_comm_reduce_scatter(comm, full, full, KN_F32, 5000, 0.5f, NULL, NULL),
			 0);
	for (int i = 0; i < 5000; i++)
		assert_true(full[i] == own[i] * 0.5f);
	assert_int_equal(en_comm_reduce_scatter(comm, own, half, KN_BF16, 3, 1, NULL, NULL), 0);
	assert_true(own[0] == 1 && own[1] == -2 && isinf(own[2]));
	memcpy(w, v, sizeof(v));
	assert_int_equal(en_comm_all_reduce(comm, w, KN_NUM_F64, 2, EN_COMM_SUM, NULL, NULL), 0);
	assert_memory_equal(w, v, sizeof(v));
	assert_int_equal(en_comm_all_gather(comm, w, full, 16, NULL, NULL), 0);
	assert_memory_equal(w, full, 16);
	assert_int_equal(en_comm_gather_small(comm, w, v, 16, NULL, NULL), 0);
	assert_memory_equal(w, v, 16);
	assert_int_equal(en_comm_broadcast(comm, w, 16, 0, NULL, NULL), 0);
	assert_int_equal(en_comm_barrier(comm, &work, NULL), 0);
	assert_int_equal(en_comm_test(comm, &work, NULL), 0);
	assert_int_equal(en_comm_wait(comm, &work, NULL), 0);
	assert_int_equal(en_comm_all_gather(comm, NULL, NULL, 0, NULL, NULL), 0);
	assert_int_equal(en_comm_reduce_scatter(comm, NULL, NULL, KN_F16, 0, 1, NULL, NULL), 0);
	assert_int_equal(comm->counter[EN_COMM_REDUCE].calls, 4);
	assert_int_equal(comm->counter[EN_COMM_GATHER].calls, 2);
	assert_int_equal(comm->counter[EN_COMM_SMALL].calls, 2);
	assert_int_equal(comm->counter[EN_COMM_BARRIER].calls, 1);
	for (int k = 0; k < EN_COMM_KINDS; k++)
		assert_int_equal(comm->counter[k].sent + comm->counter[k].received, 0);
	assert_int_equal(en_comm_close(comm, NULL), 0);
	assert_int_equal(en_comm_close(NULL, NULL), 0);
}

static void refused(int rc, const struct ckpt_err *err, const char *words)
{
	assert_int_equal(rc, -CKPT_E_USAGE);
	assert_int_equal(err->code, CKPT_E_USAGE);
	if (!strstr(err->msg, words))
		fail_msg("'%s' does not say '%s'", err->msg, words);
}

#define REFUSED(call, words)					\
	do {							\
		struct ckpt_err err = { 0 };			\
		const int rc_ = (call);				\
								\
		refused(rc_, &err, words);			\
	} while (0)

static void test_wrong_arguments(void **state)
{
	struct en_comm *comm = one();
	float f[64] = { 0 };
	uint8_t *b = (uint8_t *)f;

	(void)state;
	REFUSED(en_comm_all_gather(comm, b, b + 1, 8, NULL, &err), "overlaps");
	REFUSED(en_comm_all_gather(comm, b, NULL, 8, NULL, &err), "no buffer");
	REFUSED(en_comm_all_gather(comm, b, b, UINT64_MAX, NULL, &err), "address space");
	REFUSED(en_comm_reduce_scatter(comm, f + 1, f, KN_F32, 8, 1, NULL, &err), "overlaps");
	REFUSED(en_comm_reduce_scatter(comm, f, f, KN_BF16, 8, 1, NULL, &err), "overlaps");
	REFUSED(en_comm_reduce_scatter(comm, f, f, KN_F64, 8, 1, NULL, &err), "neither fp32");
	REFUSED(en_comm_reduce_scatter(comm, f, f, KN_F32, UINT64_MAX / 3, 1, NULL, &err),
		"address space");
	REFUSED(en_comm_reduce_scatter(comm, f, NULL, KN_F32, 8, 1, NULL, &err), "no buffer");
	REFUSED(en_comm_all_reduce(comm, f, KN_NUM_BF16, 8, EN_COMM_SUM, NULL, &err), "neither");
	REFUSED(en_comm_all_reduce(comm, f, KN_NUM_F32, 8, 0, NULL, &err), "neither a sum");
	REFUSED(en_comm_all_reduce(comm, NULL, KN_NUM_F32, 8, EN_COMM_SUM, NULL, &err),
		"no buffer");
	REFUSED(en_comm_all_reduce(comm, f, KN_NUM_F32, UINT64_MAX, EN_COMM_SUM, NULL, &err),
		"address space");
	REFUSED(en_comm_broadcast(comm, f, 8, 1, NULL, &err), "from rank 1 of 1");
	REFUSED(en_comm_broadcast(comm, NULL, 8, 0, NULL, &err), "no buffer");
	for (int k = 0; k < EN_COMM_KINDS; k++)
		assert_int_equal(comm->counter[k].calls, 0);
	en_comm_close(comm, NULL);
}

/* Once broken, everything says the same. */
static void test_broken(void **state)
{
	struct en_comm *comm = one();
	struct en_collective *work = NULL;
	struct ckpt_err err = { 0 };
	uint64_t v = 1;

	(void)state;
	comm->broken = (struct ckpt_err){ .code = CKPT_E_IO, .msg = "rank 9 is silent" };
	assert_int_equal(en_comm_barrier(comm, NULL, &err), -CKPT_E_IO);
	assert_string_equal(err.msg, "rank 9 is silent");
	assert_int_equal(en_comm_all_gather(comm, &v, &v, 8, NULL, NULL), -CKPT_E_IO);
	assert_int_equal(en_comm_all_reduce(comm, &v, KN_NUM_U64, 1, EN_COMM_SUM, NULL, NULL),
			 -CKPT_E_IO);
	assert_int_equal(en_comm_reduce_scatter(comm, NULL, NULL, KN_F32, 0, 1, NULL, NULL),
			 -CKPT_E_IO);
	assert_int_equal(en_comm_broadcast(comm, &v, 8, 0, NULL, NULL), -CKPT_E_IO);
	assert_int_equal(en_comm_wait(comm, &work, NULL), -CKPT_E_IO);
	assert_int_equal(en_comm_test(comm, &work, NULL), -CKPT_E_IO);
	assert_int_equal(en_comm_close(comm, NULL), -CKPT_E_IO);
	comm->broken.code = CKPT_OK;
	en_comm_close(comm, NULL);
}

static void test_without_mpi(void **state)
{
	struct ckpt_err err = { 0 };
	struct en_comm *comm = NULL;

	(void)state;
	assert_false(en_comm_mpi_is_built());
	assert_int_equal(en_comm_mpi_open(1, &comm, &err), -CKPT_E_UNSUPPORTED);
	assert_non_null(strstr(err.msg, "without MPI"));
	assert_null(comm);
}

/* ---------------------------------------------------------------- the tree */

#define PIECES 33
#define N 5000u		/* two blocks and a part */

static double level_by_level(double *v, uint32_t n, int as_float)
{
	while (n > 1) {
		uint32_t m = 0;

		for (uint32_t i = 0; i < n; i += 2)
			v[m++] = i + 1 == n ? v[i] :
				 as_float ? (double)((float)v[i] + (float)v[i + 1]) :
					    v[i] + v[i + 1];
		n = m;
	}
	return v[0];
}

static void check_tree(enum kn_num type, uint32_t n)
{
	const struct en_tree tree = { .type = type, .op = EN_COMM_SUM, .scale = 1 };
	const size_t size = kn_num_size(type);
	const void *piece[PIECES];
	void *work = malloc(en_tree_work(n)), *out = malloc(N * 8);
	uint64_t seed = n;

	for (uint32_t r = 0; r < n; r++) {
		float *v = malloc(N * 4);
		void *p = malloc(N * size);

		kn_random_normal(v, N, seed, r, 0, 0, 3);
		kn_cast(p, (enum kn_type)type, v, KN_F32, N, NULL);
		if (type == KN_NUM_F64)	/* more digits than fp32 has */
			for (uint32_t i = 0; i < N; i++)
				((double *)p)[i] += v[N - 1 - i] * 1e-9;
		free(v);
		piece[r] = p;
	}
	en_tree_join(&tree, piece, n, N, out, work);
	for (uint32_t i = 0; i < N; i++) {
		double v[PIECES], want, have;

		for (uint32_t r = 0; r < n; r++)
			v[r] = kn_num_value(type, (const uint8_t *)piece[r] + i * size);
		want = level_by_level(v, n, size < 8);
		have = size < 8 ? (double)((float *)out)[i] : ((double *)out)[i];
		assert_true(want == have);
	}
	/* in place of any of them, where the type stays */
	if (size >= 4) {
		void *at = (void *)(uintptr_t)piece[n / 2];

		en_tree_join(&tree, piece, n, N, at, work);
		assert_memory_equal(at, out, N * size);
	}
	for (uint32_t r = 0; r < n; r++)
		free((void *)(uintptr_t)piece[r]);
	free(out);
	free(work);
}

static void test_tree(void **state)
{
	(void)state;
	for (uint32_t n = 1; n <= PIECES; n++) {
		check_tree(KN_NUM_F32, n);
		check_tree(KN_NUM_F64, n);
		check_tree(KN_NUM_BF16, n);
		check_tree(KN_NUM_F16, n);
	}
}

static void test_extremes(void **state)
{
	const float a[] = { 1, NAN, 3, -INFINITY, -0.0f }, b[] = { 2, 5, NAN, 7, 0.0f };
	const uint64_t x[] = { 1, UINT64_MAX }, y[] = { 2, 3 };
	const void *f[] = { a, b }, *u[] = { x, y };
	struct en_tree tree = { .type = KN_NUM_F32, .op = EN_COMM_MAX, .scale = 1 };
	void *work = malloc(en_tree_work(2));
	uint64_t out64[2];
	float out[5];

	(void)state;
	en_tree_join(&tree, f, 2, 5, out, work);
	assert_true(out[0] == 2 && isnan(out[1]) && isnan(out[2]) && out[3] == 7 && out[4] == 0);
	tree.op = EN_COMM_MIN;
	en_tree_join(&tree, f, 2, 5, out, work);
	assert_true(out[0] == 1 && isnan(out[1]) && isnan(out[2]) && out[3] == -INFINITY);
	tree.type = KN_NUM_U64;
	en_tree_join(&tree, u, 2, 2, out64, work);
	assert_true(out64[0] == 1 && out64[1] == 3);
	tree.op = EN_COMM_SUM;
	en_tree_join(&tree, u, 2, 2, out64, work);
	assert_true(out64[0] == 3 && out64[1] == 2);
	free(work);
}

/* ---------------------------------------------------------------- chunks */

static void check_cut(uint32_t size, uint64_t bytes, bool joined)
{
	static uint8_t out;
	struct en_collective w = {
		.kind = joined ? EN_COMM_REDUCE : EN_COMM_GATHER,
		.rank = size / 2,
		.size = size,
		.root = EN_COLLECTIVE_ALL,
		.bytes = bytes,
		.out = joined ? &out : NULL,
	};
	const uint64_t scratch = en_collective_cut(&w);
	uint64_t sum = 0;

	for (uint64_t c = 0; c < w.nchunks; c++) {
		const uint64_t n = en_collective_bytes(&w, c);

		assert_true(n > 0 && n <= EN_COLLECTIVE_CHUNK);
		sum += n;
	}
	assert_true(sum == bytes);
	assert_int_equal(w.chunk % 8, 0);
	assert_true(scratch <= (!joined ? 0 : size <= 4096 ? CK_ZT_SCRATCH : 8192u * size));
	if (joined && bytes)
		assert_true(scratch >= w.chunk * (size - 1));
	if (joined)
		assert_int_equal(scratch, ck_zt_scratch(size, bytes));
}

static void test_chunks(void **state)
{
	static const uint32_t sizes[] = { 1, 2, 3, 7, 8, 64, 1000, 4096, 5000 };
	static const uint64_t bytes[] = { 0, 4, 4096, 4100, 4 << 20, (4 << 20) + 4, 50000000 };

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (size_t k = 0; k < sizeof(bytes) / sizeof(bytes[0]); k++) {
			check_cut(sizes[i], bytes[k], false);
			check_cut(sizes[i], bytes[k], true);
		}
}

static void test_scratch(void **state)
{
	struct en_comm *comm = one();
	struct en_scratch *list = NULL, *a, *b;

	(void)state;
	a = en_scratch_take(comm, &list, 1000);
	b = en_scratch_take(comm, &list, 500);
	assert_true(a && b && a != b);
	assert_int_equal(comm->scratch_bytes, 1500);
	a->used = false;
	assert_ptr_equal(en_scratch_take(comm, &list, 900), a);
	a->used = b->used = false;
	a = en_scratch_take(comm, &list, 2000);	/* neither is large enough, both go */
	assert_int_equal(comm->scratch_bytes, 2000);
	assert_int_equal(comm->scratch_peak, 2000);
	en_scratch_free(comm, &list);
	assert_int_equal(comm->scratch_bytes, 0);
	assert_null(list);
	en_comm_close(comm, NULL);
}

/* ---------------------------------------------------------------- who is missing */

static void test_missing(void **state)
{
	struct en_peer peer[9];
	bool missing[9] = { false };
	char text[400];
	pid_t child = fork();
	int status;

	(void)state;
	if (!child) {
		raise(SIGSTOP);
		_exit(0);
	}
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, WUNTRACED), child);
	for (int p = 0; p < 9; p++)
		en_peer_self(&peer[p]);
	peer[2].pid = child;
	missing[2] = true;
	en_peer_list(peer, 9, 0, missing, text, sizeof(text));
	assert_non_null(strstr(text, "rank 2 (pid "));
	assert_non_null(strstr(text, ", stopped)"));
	assert_int_equal(en_peer_lost(peer, 9, 0, missing), 1);
	assert_true(missing[2] && !missing[1]);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	en_peer_list(peer, 9, 0, missing, text, sizeof(text));
	assert_non_null(strstr(text, ", gone)"));
	assert_int_equal(en_peer_lost(peer, 9, 2, missing), 0);	/* not itself */
	snprintf(peer[3].host, sizeof(peer[3].host), "elsewhere");
	missing[2] = false;
	missing[3] = missing[4] = true;
	peer[3].pid = 17;
	assert_int_equal(en_peer_lost(peer, 9, 0, (bool[9]){ false }), 1);	/* not elsewhere */
	en_peer_list(peer, 9, 0, missing, text, sizeof(text));
	assert_non_null(strstr(text, "ranks 3 (pid 17 on elsewhere), 4 (pid "));
	assert_non_null(strstr(text, ", running)"));
	memset(missing, 1, sizeof(missing));
	en_peer_list(peer, 9, 0, missing, text, sizeof(text));
	assert_non_null(strstr(text, " and 3 more"));
	en_peer_list(peer, 9, 0, missing, text, 20);	/* cut, not overrun */
	assert_int_equal(strlen(text), 19);
}

/* A turn that took long because this process was stopped counts a second. */
static void test_patience(void **state)
{
	struct en_watchdog p;

	(void)state;
	en_watchdog_begin(&p, NULL, NULL);
	p.last -= 5000000000;
	en_watchdog_rest(&p, false);
	assert_true(p.silent == 1000000000);
	for (int i = 0; i < 15; i++)	/* naps */
		en_watchdog_rest(&p, false);
	assert_true(p.silent > 1000000000 + 15 * 50000 && p.nap == 1000000);
	en_watchdog_rest(&p, true);
	assert_true(p.silent == 0 && p.nap == 50000);
}

static void test_launched(void **state)
{
	static const char *const names[] = {
		"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "PMI_SIZE",
		"PMI_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID",
	};
	int32_t rank = 5;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
	assert_int_equal(en_comm_launched(&rank), 1);
	assert_int_equal(rank, -1);
	setenv("SLURM_STEP_NUM_TASKS", "4", 1);
	setenv("SLURM_PROCID", "3", 1);
	assert_int_equal(en_comm_launched(&rank), 4);
	assert_int_equal(rank, 3);
	setenv("PMI_SIZE", "nonsense", 1);
	assert_int_equal(en_comm_launched(&rank), 4);
	setenv("OMPI_COMM_WORLD_SIZE", "8", 1);
	assert_int_equal(en_comm_launched(&rank), 8);
	assert_int_equal(rank, -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_rank),
		cmocka_unit_test(test_wrong_arguments),
		cmocka_unit_test(test_broken),
		cmocka_unit_test(test_without_mpi),
		cmocka_unit_test(test_tree),
		cmocka_unit_test(test_extremes),
		cmocka_unit_test(test_chunks),
		cmocka_unit_test(test_scratch),
		cmocka_unit_test(test_missing),
		cmocka_unit_test(test_patience),
		cmocka_unit_test(test_launched),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
