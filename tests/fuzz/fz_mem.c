/* See fz.h: the allocation table, and bytes with a guard behind them. */
#include "tests/fuzz/fz.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libckpt/base/ck_sys.h"

static size_t held;
static long blocks;

static void *m_realloc(void *p, size_t n)
{
	const size_t old = p ? malloc_usable_size(p) : 0;
	void *q;

	if (n > FZ_MEMORY || held - old + n > FZ_MEMORY)
		fz_die("%zu bytes are asked for while %zu are held", n, held);
	q = realloc(p, n);
	if (!q)
		return NULL;
	held += malloc_usable_size(q) - old;
	blocks += !p;
	return q;
}

static void m_free(void *p)
{
	if (!p)
		return;
	held -= malloc_usable_size(p);
	blocks--;
	free(p);
}

void fz_mem_install(void)
{
	ck_sys.realloc = m_realloc;
	ck_sys.free = m_free;
}

long fz_mem_blocks(void)
{
	return blocks;
}

const uint8_t *fz_mem_guard(const uint8_t *p, size_t n)
{
	static uint8_t *room;
	static size_t size;
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (n > size || !room) {
		if (room)
			munmap(room, size + page);
		size = (n / page + 64) * page;
		room = mmap(NULL, size + page, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (room == MAP_FAILED || mprotect(room + size, page, PROT_NONE))
			fz_die("no room for %zu bytes", n);
	}
	if (n)
		memcpy(room + size - n, p, n);
	return room + size - n;
}
