/*
 * kn_cu_gemm_text.c -- the choices of matrix products as text.
 *
 * The first line says by whom they were made: "gemm 1, cublasLt VERSION, sm_NN, N SMs, NAME".
 * Then a line a shape: "m n k lda ldb ldc ldd flags type out align" in decimal (the alignment in
 * bytes of all four addresses), the 8 words of cuBLASLt's algorithm in hexadecimal, and words for
 * people that are not read back.
 */
#include "kernels/include/kn_cuda_gemm.h"

#include <cublasLt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/kn_cu_gemm_impl.h"

#define TEXT_LINE 512u

static int config(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t what,
		  size_t bytes)
{
	uint32_t v = 0;
	size_t got;

	if (cublasLtMatmulAlgoConfigGetAttribute(algo, what, &v, bytes, &got))
		return -1;
	return (int)v;
}

static int line_write(const struct kn_cu_gemm_plan *p, char *line, size_t bytes)
{
	const struct kn_cu_gemm_key *k = &p->key;
	const uint64_t *w = p->algo.data;

	return snprintf(
		line, bytes,
		"%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
		" %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIx64 " %" PRIx64 " %" PRIx64
		" %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64
		" algorithm %d tile %d stages %d split-k %d reduction %d swizzle %d custom %d"
		" inner %d cluster %d seconds %.3g\n",
		k->m, k->n, k->k, k->lda, k->ldb, k->ldc, k->ldd, k->flags, k->type, k->out,
		k->align, w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7],
		config(&p->algo, CUBLASLT_ALGO_CONFIG_ID, 4),
		config(&p->algo, CUBLASLT_ALGO_CONFIG_TILE_ID, 4),
		config(&p->algo, CUBLASLT_ALGO_CONFIG_STAGES_ID, 4),
		config(&p->algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4),
		config(&p->algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4),
		config(&p->algo, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4),
		config(&p->algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4),
		config(&p->algo, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2),
		config(&p->algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2), p->seconds);
}

size_t kn_cu_gemm_write(const struct kn_cu_gemm *g, char *text, size_t bytes)
{
	char line[TEXT_LINE];
	size_t need = strlen(g->head) + 2;

	for (size_t i = 0; i < g->count; i++)
		need += (size_t)line_write(&g->plan[i], line, sizeof(line));
	if (need > bytes)
		return need;
	text += snprintf(text, bytes, "%s\n", g->head);
	for (size_t i = 0; i < g->count; i++) {
		const int n = line_write(&g->plan[i], line, sizeof(line));

		memcpy(text, line, (size_t)n + 1);
		text += n;
	}
	return need;
}

/* Fills *p (released by the caller on success only) from a line of text. */
static int line_read(struct kn_cu_gemm *g, const char *line, struct kn_cu_gemm_plan *p)
{
	cublasLtMatmulHeuristicResult_t found;
	cublasLtMatmulAlgo_t algo;
	uint64_t *w = algo.data;
	struct kn_cu_gemm_key k = {0};
	cublasStatus_t st;
	int rc;

	if (sscanf(line,
		   "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
		   " %" SCNu64 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNx64
		   " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64
		   " %" SCNx64,
		   &k.m, &k.n, &k.k, &k.lda, &k.ldb, &k.ldc, &k.ldd, &k.flags, &k.type, &k.out,
		   &k.align, &w[0], &w[1], &w[2], &w[3], &w[4], &w[5], &w[6], &w[7]) != 19)
		return kn_cu_gemm_fail(g, "an unreadable line in the list of matrix products",
				       line);
	if (!kn_cu_gemm_type((enum kn_type)k.type) || (k.out != k.type && k.out != KN_F32) ||
	    !k.m || !k.n || !k.k)
		return kn_cu_gemm_fail(g, "an invalid shape in the list of matrix products", line);
	rc = kn_cu_gemm_plan_init(g, p, &k);
	if (rc)
		return rc;
	st = cublasLtMatmulAlgoCheck(g->lt, p->desc, p->b, p->a, p->c, p->d, &algo, &found);
	if (!st && found.workspaceSize <= g->bytes) {
		p->algo = algo;
		return 0;
	}
	kn_cu_gemm_plan_release(p);
	return kn_cu_gemm_fail_shape(g, &k, st ? st : CUBLAS_STATUS_ALLOC_FAILED);
}

static int head_check(struct kn_cu_gemm *g, const char *text, const char **after_out)
{
	const size_t n = strlen(g->head);
	const char *end = strchr(text, '\n');

	if (end && (size_t)(end - text) == n && !memcmp(text, g->head, n)) {
		*after_out = end + 1;
		return 0;
	}
	snprintf(g->why, sizeof(g->why),
		 "the list of matrix products is from '%.*s', this is '%.*s'",
		 (int)(end && end - text < 90 ? end - text : 90), text, 110, g->head);
	return KN_CU_GEMM_LIB;
}

int kn_cu_gemm_read(struct kn_cu_gemm *g, const char *text)
{
	struct kn_cu_gemm_plan *list = NULL, *kept;
	size_t count = 0, lines = 0;
	int rc = head_check(g, text, &text);

	for (const char *s = text; !rc && (s = strchr(s, '\n')); s++)
		lines++;
	if (!rc && lines) {
		list = calloc(lines, sizeof(*list));
		rc = list ? 0 : kn_cu_gemm_fail(g, "kn_cu_gemm_read", "no memory");
	}
	for (; !rc && count < lines; text = strchr(text, '\n') + 1) {
		char line[TEXT_LINE];
		const size_t n = (size_t)(strchr(text, '\n') - text);

		if (n >= sizeof(line)) {
			rc = kn_cu_gemm_fail(g, "kn_cu_gemm_read", "a line that is too long");
			break;
		}
		memcpy(line, text, n);
		line[n] = 0;
		rc = line_read(g, line, &list[count]);
		count += !rc;
	}
	for (size_t i = 0; i < count; i++) {
		if (!rc)
			rc = kn_cu_gemm_plan_keep(g, &list[i], &kept);
		kn_cu_gemm_plan_release(&list[i]);
	}
	free(list);
	return rc;
}
