/*
 * test_gpusim.c -- the simulated GPU (tests/gpusim) does what it is for: what is queued
 * is late, orders are chance, and mistakes end the process.
 *
 * If this fails, tests on it prove less than they say.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/include/kn_cuda.h"
#include "tests/gpusim/fk.h"
#include "tests/gpusim/include/nccl.h"

#define N 1000

static int failed, passed;

static void check(bool good, const char *what)
{
	if (good) {
		passed++;
		return;
	}
	failed++;
	printf("FAILED %s\n", what);
}

/* In a process of its own: what it says last on stderr, and how it ended (0 = well). */
static int apart(void (*fn)(void), char *said, size_t room)
{
	int fd[2], status;
	ssize_t n, at = 0;
	pid_t pid;

	fflush(stdout);
	if (pipe(fd))
		return -1;
	pid = fork();
	if (!pid) {
		dup2(fd[1], 2);
		close(fd[0]);
		fn();
		_exit(0);
	}
	close(fd[1]);
	while ((n = read(fd[0], said + at, room - 1 - (size_t)at)) > 0)
		at += n;
	said[at] = 0;
	close(fd[0]);
	waitpid(pid, &status, 0);
	return status;
}

static void ends(void (*fn)(void), const char *text)
{
	char said[4000];
	const int status = apart(fn, said, sizeof(said));

	check(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(said, text), text);
	if (!strstr(said, text))
		printf("    it said: %s", said);
}

static void lasts(void (*fn)(void), const char *what)
{
	char said[4000];

	check(apart(fn, said, sizeof(said)) == 0, what);
	if (*said)
		printf("    it said: %s", said);
}

static void is(bool good, int line)
{
	if (!good) {
		fprintf(stderr, "line %d\n", line);
		_exit(1);
	}
}
#define IS(x) is((x), __LINE__)

struct two {
	cudaStream_t a, b;
	cudaEvent_t e;
	float *x, *y, *host;
};

static struct two begin(void)
{
	struct two t;

	cudaStreamCreateWithFlags(&t.a, cudaStreamNonBlocking);
	cudaStreamCreateWithFlags(&t.b, cudaStreamNonBlocking);
	cudaEventCreate(&t.e);
	IS(!cudaMalloc((void **)&t.x, N * sizeof(float)));
	IS(!cudaMalloc((void **)&t.y, N * sizeof(float)));
	IS(!cudaMallocHost((void **)&t.host, N * sizeof(float)));
	return t;
}

/* ---- what lasts ---- */

static void late(void)
{
	struct two t = begin();
	float pageable = 1;
	int early = 0;

	IS(isnan(t.x[0]) && isnan(t.x[N - 1]));
	for (int i = 0; i < 100; i++) {
		t.host[0] = 1;
		cudaMemcpyAsync(t.x, t.host, sizeof(float), cudaMemcpyHostToDevice, t.a);
		t.host[0] = 2;		/* pinned memory is read when it is done */
		cudaStreamSynchronize(t.a);
		early += t.x[0] == 1;
	}
	IS(early < 50);
	cudaMemcpyAsync(t.x, &pageable, sizeof(float), cudaMemcpyHostToDevice, t.a);
	pageable = 2;			/* pageable memory at the call */
	cudaStreamSynchronize(t.a);
	IS(t.x[0] == 1);
	cudaMemcpyAsync(&pageable, t.x, sizeof(float), cudaMemcpyDeviceToHost, t.a);
	IS(pageable == 1);		/* and back it has come */
}

/* b waits for the record that was the last when it was asked, and for none if there was none. */
static void in_order(void)
{
	struct two t = begin();
	float ms = -1;

	cudaStreamWaitEvent(t.b, t.e, 0);
	for (int i = 0; i < 300; i++) {
		kn_cu_fill(t.x, KN_F32, (float)i, N, t.a);
		cudaEventRecord(t.e, t.a);
		cudaStreamWaitEvent(t.b, t.e, 0);
		kn_cu_cast(t.y, KN_F32, t.x, KN_F32, N, t.b);
		cudaEventRecord(t.e, t.b);
		cudaStreamWaitEvent(t.a, t.e, 0);
		if (i % 7)
			continue;
		cudaStreamSynchronize(t.b);
		IS(t.y[N - 1] == (float)i);
	}
	IS(cudaEventSynchronize(t.e) == cudaSuccess && cudaEventQuery(t.e) == cudaSuccess);
	IS(cudaEventElapsedTime(&ms, t.e, t.e) == cudaSuccess && ms == 0);
	IS(!cudaStreamDestroy(t.a) && !cudaStreamDestroy(t.b) && !cudaEventDestroy(t.e));
	IS(!cudaFree(t.x) && !cudaFree(t.y) && !cudaFreeHost(t.host));
}

/* Without a wait, and unseen, chance gives both orders. */
static void by_chance(void)
{
	struct two t = begin();
	int first = 0;

	for (int i = 0; i < 200; i++) {
		kn_cu_fill(t.x, KN_F32, 1, 1, t.a);
		kn_cu_fill(t.x, KN_F32, 2, 1, t.b);
		cudaDeviceSynchronize();
		first += t.x[0] == 1;
	}
	IS(first > 20 && first < 180);
}

static void set(void *data)
{
	__atomic_store_n((int *)data, 1, __ATOMIC_SEQ_CST);
}

/* A host that waits for something of its own: the device continues. */
static void alone(void)
{
	struct two t = begin();
	int flag = 0;

	for (int i = 0; i < 20; i++)
		cudaLaunchHostFunc(t.a, set, &flag);
	for (int i = 0; i < 300 && !__atomic_load_n(&flag, __ATOMIC_SEQ_CST); i++)
		usleep(10000);
	IS(flag);
	for (int i = 0; i < 1000 && cudaStreamQuery(t.a) == cudaErrorNotReady; i++)
		;
	IS(cudaStreamQuery(t.a) == cudaSuccess);
}

static void *other_thread(void *arg)
{
	const struct two *t = arg;

	for (int i = 0; i < 300; i++) {
		kn_cu_fill(t->y, KN_F32, (float)i, N, t->b);
		cudaStreamSynchronize(t->b);
		IS(t->y[N - 1] == (float)i);
	}
	return NULL;
}

static void threads(void)
{
	struct two t = begin();
	pthread_t thread;

	IS(!pthread_create(&thread, NULL, other_thread, &t));
	for (int i = 0; i < 300; i++) {
		kn_cu_fill(t.x, KN_F32, (float)i, N, t.a);
		cudaStreamSynchronize(t.a);
		IS(t.x[0] == (float)i);
	}
	pthread_join(thread, NULL);
}

static void memory(void)
{
	size_t left, all;
	struct two t;
	void *p;

	setenv("FAKE_GPU_BYTES", "1M", 1);
	t = begin();
	IS(!cudaMemGetInfo(&left, &all) && all == 1 << 20);
	IS(left == all - 2 * N * sizeof(float));
	IS(cudaMalloc(&p, left + 1) == cudaErrorMemoryAllocation && !p);
	IS(!cudaMalloc(&p, left) && !cudaFree(p) && !cudaFree(t.x));
	IS(!cudaMemGetInfo(&left, &all) && left == all - N * sizeof(float));
	IS(!cudaHostRegister(&left, sizeof(left), 0));
	IS(cudaHostRegister(&left, sizeof(left), 0) == cudaErrorHostMemoryAlreadyRegistered);
	IS(!cudaHostUnregister(&left));
}

static void devices(void)
{
	char id[2][20];
	int n;

	setenv("FAKE_GPUS", "4", 1);
	setenv("CUDA_VISIBLE_DEVICES", "3,1,7,0", 1);
	IS(!cudaGetDeviceCount(&n) && n == 2);		/* there is no 7 */
	IS(!cudaDeviceGetPCIBusId(id[0], 20, 0) && !cudaDeviceGetPCIBusId(id[1], 20, 1));
	IS(strcmp(id[0], id[1]) && cudaSetDevice(2) == cudaErrorInvalidDevice);
	setenv("FAKE_GPUS", "0", 1);
	IS(cudaGetDeviceCount(&n) == cudaErrorNoDevice && !n);
}

/* ---- ranks ---- */

static ncclUniqueId id;

/* Three processes; this is one of them. */
static void rank(int r, struct two *t, ncclComm_t *c)
{
	cudaSetDevice(r);
	*t = begin();
	IS(ncclCommInitRank(c, 3, id, r) == ncclSuccess);
}

static void collectives(int r)
{
	static float got[N];
	struct two t;
	ncclComm_t c;

	rank(r, &t, &c);
	for (int i = 0; i < N; i++)
		t.host[i] = (float)(r + 1);
	cudaMemcpyAsync(t.x, t.host, N * sizeof(float), cudaMemcpyHostToDevice, t.a);
	IS(!ncclReduceScatter(t.x, t.y, N / 3, ncclFloat32, ncclSum, c, t.a));
	cudaMemcpyAsync(got, t.y, N / 3 * sizeof(float), cudaMemcpyDeviceToHost, t.a);
	IS(got[0] == 6 && got[N / 3 - 1] == 6);
	IS(!ncclAllGather(t.x + 1, t.y, 300, ncclFloat32, c, t.a));
	cudaMemcpyAsync(got, t.y, 900 * sizeof(float), cudaMemcpyDeviceToHost, t.a);
	IS(got[0] == 1 && got[300] == 2 && got[899] == 3);
	IS(!ncclBroadcast(t.x, t.y, N, ncclFloat32, 2, c, t.a));
	IS(!ncclAllReduce(t.y, t.y, N, ncclFloat32, ncclMax, c, t.a));
	cudaMemcpyAsync(got, t.y, N * sizeof(float), cudaMemcpyDeviceToHost, t.a);
	IS(got[0] == 3 && got[N - 1] == 3);
	ncclGroupStart();		/* round a ring, and to oneself */
	IS(!ncclSend(t.x, N, ncclFloat32, (r + 1) % 3, c, t.a));
	IS(!ncclRecv(t.y, N, ncclFloat32, (r + 2) % 3, c, t.a));
	IS(!ncclGroupEnd());
	cudaMemcpyAsync(got, t.y, N * sizeof(float), cudaMemcpyDeviceToHost, t.a);
	IS(got[0] == (float)((r + 2) % 3 + 1));
	IS(!ncclAlltoAll(t.x, t.y, 100, ncclFloat32, c, t.a));
	cudaMemcpyAsync(got, t.y, 300 * sizeof(float), cudaMemcpyDeviceToHost, t.a);
	IS(got[0] == 1 && got[100] == 2 && got[299] == 3);
	IS(!ncclCommDestroy(c));
}

/* Rank 1's host never waits: its device continues when it is asked to. */
static void one_is_busy(int r)
{
	struct two t;
	ncclComm_t c;

	rank(r, &t, &c);
	kn_cu_fill(t.x, KN_F32, 1, N, t.a);
	IS(!ncclAllReduce(t.x, t.x, N, ncclFloat32, ncclSum, c, t.a));
	if (r == 1) {
		sleep(1);
		IS(t.x[0] == 3);
	} else {
		cudaStreamSynchronize(t.a);
		IS(t.x[0] == 3);
	}
}

static void differ(int r)
{
	struct two t;
	ncclComm_t c;

	rank(r, &t, &c);
	ncclAllReduce(t.x, t.x, r ? 10 : 11, ncclFloat32, ncclSum, c, t.a);
	cudaStreamSynchronize(t.a);
}

static void three(void (*fn)(int rank))
{
	pid_t pid[3];
	int status, bad = 0;

	IS(ncclGetUniqueId(&id) == ncclSuccess);
	setenv("FAKE_NCCL_TIMEOUT", "10", 0);
	for (int r = 0; r < 3; r++) {
		pid[r] = fork();
		if (!pid[r]) {
			fn(r);
			_exit(0);
		}
	}
	for (int r = 0; r < 3; r++) {
		waitpid(pid[r], &status, 0);
		bad |= status;
	}
	unlink(id.internal);
	if (bad)
		WIFSIGNALED(bad) ? abort() : _exit(1);
}

static void all_collectives(void)
{
	three(collectives);
}
static void busy(void)
{
	three(one_is_busy);
}
static void all_differ(void)
{
	setenv("FAKE_NCCL_TIMEOUT", "1", 1);
	three(differ);
}

/* ---- what ends ---- */

static void too_far(void)
{
	struct two t = begin();

	kn_cu_fill(t.x + 1, KN_F32, 0, N, t.a);
}

static void no_device_memory(void)
{
	struct two t = begin();
	float x[4];

	kn_cu_fill(x, KN_F32, 0, 4, t.a);
}

static void behind(void)
{
	struct two t = begin();

	t.x[N] = 0;
	cudaFree(t.x);
}

static void wrong_way(void)
{
	struct two t = begin();
	float x = 0;

	cudaMemcpyAsync(&x, t.x, sizeof(x), cudaMemcpyHostToDevice, t.a);
}

static void twice(void)
{
	struct two t = begin();

	cudaFree(t.x);
	cudaFree(t.x);
}

static void no_wait(void)
{
	struct two t = begin();

	kn_cu_fill(t.x, KN_F32, 1, N, t.a);
	kn_cu_cast(t.y, KN_F32, t.x, KN_F32, N, t.b);
}

/* Eight bytes are in common, and the other stream only reads. */
static void overwritten(void)
{
	struct two t = begin();

	kn_cu_fill(t.x, KN_F32, 1, N, t.a);
	cudaEventRecord(t.e, t.a);
	cudaStreamWaitEvent(t.b, t.e, 0);
	kn_cu_cast(t.y, KN_F32, t.x + 10, KN_F32, 2, t.b);
	kn_cu_fill(t.x + 11, KN_F32, 2, 5, t.a);
}

int main(void)
{
	lasts(late, "what is queued is late; pinned memory too");
	lasts(in_order, "streams and events order");
	setenv("FAKE_GPU_SEED", "eager", 1);
	lasts(in_order, "at once as well");
	unsetenv("FAKE_GPU_SEED");
	setenv("FAKE_GPU_RACES", "0", 1);
	lasts(by_chance, "what nothing orders is in both orders");
	unsetenv("FAKE_GPU_RACES");
	lasts(alone, "a device continues when the host waits for something else");
	lasts(threads, "two threads");
	lasts(memory, "memory is counted and limited");
	lasts(devices, "devices that are visible");
	lasts(all_collectives, "collectives of three ranks");
	lasts(busy, "a rank whose host is busy");
	ends(all_differ, "ncclAllReduce number 1 takes");
	ends(too_far, "4 too many");
	ends(no_device_memory, "no memory of the device");
	ends(behind, "written 0 bytes after its end");
	ends(wrong_way, "a copy of kind 1");
	ends(twice, "where no device memory begins");
	ends(no_wait, "a wait is missing: kn_cu_fill");
	ends(overwritten, "a wait is missing: kn_cu_cast");
	printf("%d passed, %d failed\n", passed, failed);
	return failed != 0;
}
