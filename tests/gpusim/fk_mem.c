/* fk_mem.c -- memory of the device and pinned memory, what is where, and copies. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpusim/fk.h"

#define GUARD 256u		/* bytes at both ends; also the alignment */
#define GUARD_BYTE 0xa5
#define FRESH 0xff		/* NaN in all types */

enum kind { NOTHING, DEVICE, PINNED, REGISTERED };

struct piece {
	uint8_t *p;
	size_t bytes;
	enum kind kind;
	void *raw;
};

static struct {
	pthread_mutex_t lock;
	struct piece *piece;	/* in order of p */
	size_t n, room;
	uint64_t used;		/* on the device */
} m = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- the list ---- */

/* How many begin at or before p. */
static size_t before(const void *p)
{
	size_t low = 0, high = m.n;

	while (low < high) {
		const size_t mid = (low + high) / 2;

		if ((const uint8_t *)p < m.piece[mid].p)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

/* That holds p, or ends there; under the lock. */
static struct piece *find(const void *p)
{
	const size_t i = before(p);
	struct piece *x = i ? &m.piece[i - 1] : NULL;

	return x && (const uint8_t *)p <= x->p + x->bytes ? x : NULL;
}

static void add(struct piece x)
{
	size_t i;

	pthread_mutex_lock(&m.lock);
	if (m.n == m.room) {
		m.room = m.room ? 2 * m.room : 256;
		m.piece = realloc(m.piece, m.room * sizeof(*m.piece));
		if (!m.piece)
			fk_die("no host memory for a list");
	}
	i = before(x.p);
	memmove(m.piece + i + 1, m.piece + i, (m.n - i) * sizeof(*m.piece));
	m.piece[i] = x;
	m.n++;
	if (x.kind == DEVICE)
		m.used += x.bytes;
	pthread_mutex_unlock(&m.lock);
}

/* Takes the piece that begins at p out; of kind NOTHING if there is none. */
static struct piece take(const void *p, enum kind kind)
{
	struct piece x = { .kind = NOTHING };
	size_t i;

	pthread_mutex_lock(&m.lock);
	i = before(p);
	if (i && m.piece[i - 1].p == p && m.piece[i - 1].kind == kind) {
		x = m.piece[i - 1];
		memmove(m.piece + i - 1, m.piece + i, (m.n - i) * sizeof(*m.piece));
		m.n--;
		if (kind == DEVICE)
			m.used -= x.bytes;
	}
	pthread_mutex_unlock(&m.lock);
	return x;
}

static enum kind kind_of(const void *p)
{
	enum kind k;
	struct piece *x;

	pthread_mutex_lock(&m.lock);
	x = find(p);
	k = x && (const uint8_t *)p < x->p + x->bytes ? x->kind : NOTHING;
	pthread_mutex_unlock(&m.lock);
	return k;
}

static bool is_device(const void *p)
{
	return kind_of(p) == DEVICE;
}

/* Kernels reach pinned memory as well. */
void fk_look(const char *who, const struct fk_use *use)
{
	struct piece *x, was = { .kind = NOTHING };

	if (!use->p || !use->bytes)
		return;
	pthread_mutex_lock(&m.lock);
	x = find(use->p);
	if (x)
		was = *x;
	pthread_mutex_unlock(&m.lock);
	if (!x || (const uint8_t *)use->p == was.p + was.bytes)
		fk_die("%s %s %zu bytes at %p, which is no memory of the device", who,
		       use->write ? "writes" : "reads", use->bytes, use->p);
	if (use->bytes > (size_t)(was.p + was.bytes - (const uint8_t *)use->p))
		fk_die("%s %s %zu bytes at %zu of a piece of %zu bytes: %zu too many", who,
		       use->write ? "writes" : "reads", use->bytes,
		       (size_t)((const uint8_t *)use->p - was.p), was.bytes,
		       (size_t)((const uint8_t *)use->p - was.p) + use->bytes - was.bytes);
}

size_t fk_device_left(const void *p)
{
	size_t left = 0;
	struct piece *x;

	pthread_mutex_lock(&m.lock);
	x = find(p);
	if (x)
		left = (size_t)(x->p + x->bytes - (const uint8_t *)p);
	pthread_mutex_unlock(&m.lock);
	return left;
}

/* ---- pieces ---- */

static void *new_piece(size_t bytes, enum kind kind)
{
	const size_t all = (bytes + 3 * GUARD - 1) / GUARD * GUARD;
	uint8_t *raw = aligned_alloc(GUARD, all);

	if (!raw)
		return NULL;
	memset(raw, GUARD_BYTE, GUARD);
	memset(raw + GUARD, FRESH, bytes);
	memset(raw + GUARD + bytes, GUARD_BYTE, all - GUARD - bytes);
	add((struct piece){ raw + GUARD, bytes, kind, raw });
	return raw + GUARD;
}

static void free_piece(const struct piece *x)
{
	const size_t all = (x->bytes + 3 * GUARD - 1) / GUARD * GUARD;
	const uint8_t *raw = x->raw;

	for (size_t i = 0; i < GUARD; i++)
		if (raw[i] != GUARD_BYTE)
			fk_die("an allocation of %zu bytes was written %zu bytes before its start",
			       x->bytes,
			       GUARD - i);
	for (size_t i = GUARD + x->bytes; i < all; i++)
		if (raw[i] != GUARD_BYTE)
			fk_die("an allocation of %zu bytes was written %zu bytes after its end",
			       x->bytes,
			       i - GUARD - x->bytes);
	free(x->raw);
}

static uint64_t device_bytes(void)
{
	return fk_env("FAKE_GPU_BYTES", (uint64_t)16 << 30);
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
	uint64_t used;

	*p = NULL;
	if (!bytes)
		return cudaSuccess;
	pthread_mutex_lock(&m.lock);
	used = m.used;
	pthread_mutex_unlock(&m.lock);
	if (bytes > device_bytes() || used > device_bytes() - bytes)
		return fk_error(cudaErrorMemoryAllocation);
	*p = new_piece(bytes, DEVICE);
	return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}

/* As CUDA's, it waits for the device. */
cudaError_t cudaFree(void *p)
{
	struct piece x;

	if (!p)
		return cudaSuccess;
	cudaDeviceSynchronize();
	x = take(p, DEVICE);
	if (!x.kind)
		fk_die("cudaFree(%p), where no device memory begins", p);
	free_piece(&x);
	return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
	(void)flags;
	*p = NULL;
	if (!bytes)
		return cudaSuccess;
	*p = new_piece(bytes, PINNED);
	return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaMallocHost(void **p, size_t bytes)
{
	return cudaHostAlloc(p, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *p)
{
	struct piece x;

	if (!p)
		return cudaSuccess;
	cudaDeviceSynchronize();
	x = take(p, PINNED);
	if (!x.kind)
		fk_die("cudaFreeHost(%p), where no pinned memory begins", p);
	free_piece(&x);
	return cudaSuccess;
}

cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags)
{
	(void)flags;
	if (!p || !bytes)
		return fk_error(cudaErrorInvalidValue);
	if (kind_of(p) || kind_of((uint8_t *)p + bytes - 1))
		return fk_error(cudaErrorHostMemoryAlreadyRegistered);
	add((struct piece){ p, bytes, REGISTERED, NULL });
	return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *p)
{
	cudaDeviceSynchronize();
	return take(p, REGISTERED).kind ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags)
{
	(void)flags;
	if (kind_of(host) < PINNED)
		return fk_error(cudaErrorInvalidValue);
	*device = host;
	return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all)
{
	*all = device_bytes();
	pthread_mutex_lock(&m.lock);
	*free_bytes = *all > m.used ? *all - m.used : 0;
	pthread_mutex_unlock(&m.lock);
	return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
	const enum kind k = kind_of(p);

	memset(a, 0, sizeof(*a));
	a->type = k == DEVICE ? cudaMemoryTypeDevice : k ? cudaMemoryTypeHost :
		  cudaMemoryTypeUnregistered;
	cudaGetDevice(&a->device);
	a->devicePointer = k ? (void *)p : NULL;
	a->hostPointer = k == DEVICE ? NULL : (void *)p;
	return cudaSuccess;
}

/* ---- copies ---- */

struct copy {
	uint8_t *to;
	const uint8_t *from;
	size_t to_pitch, from_pitch, width, height;
	uint8_t *stage;		/* of pageable memory: what it held at the call */
};

static void run_copy(const void *args)
{
	const struct copy *c = args;

	for (size_t i = 0; i < c->height; i++)
		memmove(c->to + i * c->to_pitch, c->from + i * c->from_pitch, c->width);
	free(c->stage);
}

static size_t extent(size_t pitch, size_t width, size_t height)
{
	return width && height ? (height - 1) * pitch + width : 0;
}

/* Whether the direction is what the pointers are. */
static bool fits(enum cudaMemcpyKind kind, bool to_device, bool from_device)
{
	return kind == cudaMemcpyDefault ||
	       kind == (to_device ? from_device ? cudaMemcpyDeviceToDevice :
			cudaMemcpyHostToDevice : from_device ? cudaMemcpyDeviceToHost :
			cudaMemcpyHostToHost);
}

/* Copies a host's bytes now, as they are now. */
static void stage(struct copy *c)
{
	c->stage = fk_room(c->width * c->height);
	for (size_t i = 0; i < c->height; i++)
		memcpy(c->stage + i * c->width, c->from + i * c->from_pitch, c->width);
	c->from = c->stage;
	c->from_pitch = c->width;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
			      size_t width, size_t height, enum cudaMemcpyKind kind,
			      cudaStream_t stream)
{
	struct copy c = { to, from, to_pitch, from_pitch, width, height, NULL };
	const struct fk_use use[] = {
		FK_W(to, extent(to_pitch, width, height)),
		FK_R(from, extent(from_pitch, width, height)),
	};
	enum kind a, b;

	if (!width || !height)
		return cudaSuccess;
	a = kind_of(to);
	b = kind_of(from);
	if (!fits(kind, a == DEVICE, b == DEVICE))
		fk_die("a copy of kind %d, to memory %s the device from memory %s it", (int)kind,
		       a == DEVICE ? "of" : "not of", b == DEVICE ? "of" : "not of");
	if (a)
		fk_look("a copy", &use[0]);
	if (b)
		fk_look("a copy", &use[1]);
	else
		stage(&c);
	fk_launch_of(NULL, stream, "a copy", run_copy, &c, sizeof(c), use, FK_LEN(use), true);
	return a ? cudaSuccess : cudaStreamSynchronize(stream);	/* pageable: it is there */
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
			    cudaStream_t stream)
{
	return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, stream);
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
			 size_t width, size_t height, enum cudaMemcpyKind kind)
{
	cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, NULL);
	return is_device(to) && is_device(from) ? cudaSuccess : cudaStreamSynchronize(NULL);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
	return cudaMemcpy2D(to, bytes, from, bytes, bytes, 1, kind);
}

struct set {
	void *p;
	int value;
	size_t bytes;
};

static void run_set(const void *args)
{
	const struct set *s = args;

	memset(s->p, s->value, s->bytes);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream)
{
	const struct set s = { p, value, bytes };
	const struct fk_use use = FK_W(p, bytes);

	if (!bytes)
		return cudaSuccess;
	return (cudaError_t)fk_launch(stream, "a fill", run_set, &s, sizeof(s), &use, 1);
}

cudaError_t cudaMemset(void *p, int value, size_t bytes)
{
	return cudaMemsetAsync(p, value, bytes, NULL);
}
