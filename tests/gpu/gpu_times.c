/*
 * gpu_times.c -- what a program ran on a GPU and when: a library that CUDA loads into it.
 *
 *	nvcc -shared -Xcompiler -fPIC -o libgpu_times.so tests/gpu/gpu_times.c -lcupti
 *	CUDA_INJECTION64_PATH=$PWD/libgpu_times.so GPU_TIMES=out.csv build/ztrain-gpu ...
 *	python3 tests/gpu/gpu_times.py out.csv.PID [first-step]
 *
 * A line for each kernel, copy and fill: begin and end in ns, stream, name.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cupti.h>

#define BUFFER ((size_t)8 << 20)

static FILE *out;

static void CUPTIAPI want(uint8_t **buffer, size_t *size, size_t *most)
{
	*size = BUFFER;
	*most = 0;
	*buffer = aligned_alloc(8, BUFFER);
}

static void line(const CUpti_Activity *a)
{
	if (a->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
		const CUpti_ActivityKernel9 *k = (const CUpti_ActivityKernel9 *)a;

		fprintf(out, "%llu,%llu,%u,\"%s\"\n", (unsigned long long)k->start,
			(unsigned long long)k->end, k->streamId, k->name);
	} else if (a->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
		const CUpti_ActivityMemcpy6 *k = (const CUpti_ActivityMemcpy6 *)a;

		fprintf(out, "%llu,%llu,%u,\"copy %u of %llu bytes\"\n",
			(unsigned long long)k->start, (unsigned long long)k->end, k->streamId,
			k->copyKind, (unsigned long long)k->bytes);
	} else if (a->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
		const CUpti_ActivityMemset4 *k = (const CUpti_ActivityMemset4 *)a;

		fprintf(out, "%llu,%llu,%u,\"fill\"\n", (unsigned long long)k->start,
			(unsigned long long)k->end, k->streamId);
	}
}

static void CUPTIAPI full(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
			  size_t valid)
{
	CUpti_Activity *a = NULL;

	(void)context;
	(void)stream;
	(void)size;
	while (out && cuptiActivityGetNextRecord(buffer, valid, &a) == CUPTI_SUCCESS)
		line(a);
	free(buffer);
}

static void end(void)
{
	cuptiActivityFlushAll(1);
	fclose(out);
	out = NULL;
}

int InitializeInjection(void);
int InitializeInjection(void)
{
	const char *path = getenv("GPU_TIMES");
	char name[4096];

	snprintf(name, sizeof(name), "%s.%ld", path ? path : "gpu-times.csv", (long)getpid());
	out = fopen(name, "w");
	if (!out)
		return 1;
	cuptiActivityRegisterCallbacks(want, full);
	cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
	cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY);
	cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET);
	atexit(end);
	return 1;
}
