/*
 * td_device.h -- what tests on a GPU share: memory there, random numbers of a type, comparing.
 *
 * A call that fails ends the program: these tests need no cleaning up.
 */
#ifndef TD_DEVICE_H
#define TD_DEVICE_H

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/include/kn_train.h"

static int td_failed;

#define TD_CU(call) td_cu((int)(call), #call, __LINE__)

static inline void td_cu(int rc, const char *call, int line)
{
	if (!rc)
		return;
	printf("line %d: %s: %d, %s\n", line, call, rc,
	       rc > 0 ? cudaGetErrorString((cudaError_t)rc) : "the library refused");
	exit(1);
}

/* Ends with 77 where there is no GPU. */
static inline void td_begin(void)
{
	struct cudaDeviceProp prop;
	int n = 0;
	const cudaError_t rc = cudaGetDeviceCount(&n);

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (rc || !n) {
		printf("skipped: no GPU (%s)\n", cudaGetErrorString(rc));
		exit(77);
	}
	TD_CU(cudaGetDeviceProperties(&prop, 0));
	printf("# %s, sm_%d%d, %d SMs\n", prop.name, prop.major, prop.minor,
	       prop.multiProcessorCount);
}

static inline int td_end(void)
{
	printf(td_failed ? "FAILED: %d\n" : "all passed\n", td_failed);
	return !!td_failed;
}

static inline void *td_host(size_t bytes)
{
	void *p = malloc(bytes ? bytes : 1);

	if (!p) {
		printf("no memory for %zu bytes\n", bytes);
		exit(1);
	}
	return p;
}

/* Device memory full of 0xff: NaN in all three types. */
static inline void *td_alloc(size_t bytes)
{
	void *p = NULL;

	TD_CU(cudaMalloc(&p, bytes ? bytes : 1));
	TD_CU(cudaMemset(p, 0xff, bytes ? bytes : 1));
	return p;
}

static inline size_t td_bytes(size_t n, enum kn_type type)
{
	return n * kn_type_size(type);
}

/* More numbers than these are the same again: making them takes longer than the kernels. */
#define TD_UNIQUE ((size_t)4194301)

/* Normal numbers of this type at 'device'; what they are, as double (to be freed). */
static inline double *td_random(void *device, enum kn_type type, size_t n, uint64_t stream,
				double std)
{
	const size_t unique = n < TD_UNIQUE ? n : TD_UNIQUE, e = kn_type_size(type);
	float *f = td_host(unique * sizeof(*f));
	double *d = td_host(n * sizeof(*d));
	char *t = td_host(n * e);

	kn_random_normal(f, unique, 17, stream, 0, 0, std);
	kn_cast(t, type, f, KN_F32, unique, NULL);
	for (size_t at = unique; at < n; at += unique)
		memcpy(t + at * e, t, (n - at < unique ? n - at : unique) * e);
	kn_cast(d, KN_F64, t, type, n, NULL);
	TD_CU(cudaMemcpy(device, t, n * e, cudaMemcpyHostToDevice));
	free(f);
	free(t);
	return d;
}

static inline double *td_fetch(const void *device, enum kn_type type, size_t n)
{
	double *d = td_host(n * sizeof(*d));
	void *t = td_host(td_bytes(n, type));

	TD_CU(cudaMemcpy(t, device, td_bytes(n, type), cudaMemcpyDeviceToHost));
	kn_cast(d, KN_F64, t, type, n, NULL);
	free(t);
	return d;
}

/* The bytes themselves, for comparing two runs. */
static inline void *td_raw(const void *device, size_t bytes)
{
	void *t = td_host(bytes);

	TD_CU(cudaMemcpy(t, device, bytes, cudaMemcpyDeviceToHost));
	return t;
}

/* Seconds of one of 'runs' calls of fn(arg), after two to warm up. */
static inline double td_time(void (*fn)(void *), void *arg, int runs)
{
	cudaEvent_t begin, end;
	float ms = 0;

	TD_CU(cudaEventCreate(&begin));
	TD_CU(cudaEventCreate(&end));
	fn(arg);
	fn(arg);
	TD_CU(cudaEventRecord(begin, NULL));
	for (int i = 0; i < runs; i++)
		fn(arg);
	TD_CU(cudaEventRecord(end, NULL));
	TD_CU(cudaEventSynchronize(end));
	TD_CU(cudaEventElapsedTime(&ms, begin, end));
	TD_CU(cudaEventDestroy(begin));
	TD_CU(cudaEventDestroy(end));
	return ms * 1e-3 / runs;
}

/* A small generator for shapes. */
static inline uint32_t td_pick(uint64_t *state, uint32_t n)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33) % n;
}

#endif
