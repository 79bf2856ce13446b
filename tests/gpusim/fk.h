/*
 * fk.h -- a simulated GPU: CUDA's runtime, NCCL and the kernels of kernels/include/kn_cu*.h
 * on a CPU, so that engine/zero/cuda runs, and is tested, everywhere.
 *
 * What is linked with it in the place of the real ones (build/ztrain-gpusim, tests/gpu) does what a
 * GPU may do and the program should not notice:
 *
 *	late	an operation is queued with a copy of its arguments, and done when somebody waits
 *		for it (or for what comes after it); nothing is done before it must be, unless
 *		chance has it
 *	order	which stream continues next is chance, within what streams and events allow; a wait
 *		that is missing gives other bits
 *	memory	fresh device memory is NaN; ends are guarded; every pointer of a copy or kernel is
 *		looked up; pinned memory is read when the copy is done, pageable memory at the call
 *	waits	memory that two streams touch, one of them writing, needs an order: a wait that is
 *		missing is reported in one sentence, whatever the bits are (fk_race.c)
 *	ranks	NCCL between processes of one host, by shared memory, in the order of ranks
 *
 * The kernels compute by the laws of kernels/include/kn_train.h, in their documented order.  What
 * a program on a real GPU could not survive ends the process with a sentence.
 *
 * Environment:
 *	FAKE_GPU_SEED=N		of chance (default 1); "eager": each operation is done at once
 *	FAKE_GPUS=N		devices to be seen (default 8), of those in CUDA_VISIBLE_DEVICES
 *	FAKE_GPU_BYTES=N[KMG]	memory of a device (default 16G)
 *	FAKE_GPU_RACES=0	do not look for missing waits: the bits will show them
 *	FAKE_GPU_REPORT=FILE	what ends a process is appended to it
 *	FAKE_GPU_DROP_WAIT=K	the K-th wait of a stream for an event is skipped, and reported
 *	FAKE_GPU_STATS=1	print at the end what was done, on stderr
 *	FAKE_NCCL_TIMEOUT=S	seconds until a rank that waits for another gives up (default 120)
 *	FAKE_NCCL_WINDOWS=0	ranks do not reach each other's memory
 */
#ifndef FK_H
#define FK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/gpusim/include/cuda_runtime_api.h"

struct ncclComm;

/* Memory that an operation touches. */
struct fk_use {
	const void *p;		/* NULL or 0 bytes: nothing */
	size_t bytes;
	bool write;
};
#define FK_R(p, bytes) { (p), (bytes), false }
#define FK_W(p, bytes) { (p), (bytes), true }
#define FK_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* "fake GPU: ...", and the end of the process. */
_Noreturn void fk_die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Of the environment: a number with K, M or G, or 'otherwise'. */
uint64_t fk_env(const char *name, uint64_t otherwise);
void *fk_room(size_t bytes);	/* of the host; never NULL */
double fk_now(void);

/* ---- fk_queue.c ---- */
/* What goes wrong is returned, and kept: a kernel that is launched next returns it once more. */
cudaError_t fk_error(cudaError_t rc);
/*
 * Queues 'run', with a copy of 'args' [size]; the memory it uses is looked up now, and must lie on
 * the device.  Returns 0.
 */
int fk_launch(cudaStream_t stream, const char *name, void (*run)(const void *args),
	      const void *args, size_t size, const struct fk_use *use, size_t nuse);
/* The same, of a communicator: in the order of its calls.  With 'any' memory is not looked up. */
int fk_launch_of(struct ncclComm *comm, cudaStream_t stream, const char *name,
		 void (*run)(const void *args), const void *args, size_t size,
		 const struct fk_use *use, size_t nuse, bool any);
/* What was queued of a communicator is done. */
void fk_settle_comm(struct ncclComm *comm);
/* More chance, of a rank. */
void fk_stir(uint64_t by);

/* ---- fk_mem.c ---- */
/* Ends with a sentence where it is not inside one live piece of device memory. */
void fk_look(const char *who, const struct fk_use *use);
/* Device or pinned memory that holds p; bytes from p on, 0 if none does. */
size_t fk_device_left(const void *p);

/* ---- fk_nccl.c: what the queue asks of a communicator ---- */
struct ncclComm *fk_comms(void);	/* the first; under the queue's lock */
struct ncclComm *fk_comm_next(struct ncclComm *comm);
/* A rank waits for this one. */
bool fk_comm_is_wanted(struct ncclComm *comm);
/* All ranks have queued operation number 'n'. */
bool fk_comm_all_have(struct ncclComm *comm, uint64_t n);
void fk_comm_queued(struct ncclComm *comm, uint64_t n);

#endif
