/* en_mem.c -- see en_mem.h. */
#include "engine/zero/en_mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define ALIGN 64u
#define OWN_PAGES ((uint64_t)1 << 20)	/* from here on */
#define HUGE_PAGES ((uint64_t)4 << 20)

/* In front of what is handed out, in a line of its own. */
struct head {
	void *raw;
	uint64_t bytes;
	uint64_t mapped;	/* bytes from 'raw'; 0: it is the heap's */
};

const char *en_mem_name(enum en_mem_kind kind)
{
	static const char *const name[EN_MEM_KINDS] = {
		[EN_MEM_PARAMS] = "parameters", [EN_MEM_GATHERED] = "gathered",
		[EN_MEM_GRADS] = "gradients", [EN_MEM_OPTIMIZER] = "optimizer",
		[EN_MEM_ACTIVATIONS] = "activations", [EN_MEM_WORK] = "work",
		[EN_MEM_COLLECTIVES] = "collectives", [EN_MEM_SAVE] = "save buffer",
		[EN_MEM_HOST_PARAMS] = "host parameters",
		[EN_MEM_HOST_OPTIMIZER] = "host optimizer",
	};

	return (unsigned)kind < EN_MEM_KINDS ? name[kind] : "?";
}

void en_mem_note(struct en_mem *mem, enum en_mem_kind kind, int64_t bytes)
{
	mem->now[kind] += (uint64_t)bytes;
	mem->total += (uint64_t)bytes;
	if (mem->now[kind] > mem->peak[kind])
		mem->peak[kind] = mem->now[kind];
	if (mem->total > mem->total_peak)
		mem->total_peak = mem->total;
}

/* Pages of its own: what the heap keeps of freed memory would never be given back. */
static void *map(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (bytes >= HUGE_PAGES)
		(void)madvise(p, bytes, MADV_HUGEPAGE);	/* a wish */
	return p;
}

int en_mem_new(struct en_mem *mem, enum en_mem_kind kind, uint64_t bytes, void *p_out,
	       struct ckpt_err *err)
{
	uint64_t all;
	uint8_t *raw, *p;
	struct head h;

	if (ck_add_over(bytes, 2 * ALIGN, &all) || all > SIZE_MAX)
		return ck_fail_nomem(err, en_mem_name(kind), bytes);
	raw = bytes >= OWN_PAGES ? map(all) : ck_zalloc(all);
	if (!raw)
		return ck_fail_nomem(err, en_mem_name(kind), bytes);
	p = raw + 2 * ALIGN - (uintptr_t)raw % ALIGN;
	if ((size_t)(p - raw) + bytes > all)
		p -= ALIGN;
	h = (struct head){ raw, bytes, bytes >= OWN_PAGES ? all : 0 };
	memcpy(p - sizeof(h), &h, sizeof(h));
	en_mem_note(mem, kind, (int64_t)bytes);
	*(void **)p_out = p;
	return 0;
}

void en_mem_free(struct en_mem *mem, enum en_mem_kind kind, void *p)
{
	struct head h;

	if (!p)
		return;
	memcpy(&h, (uint8_t *)p - sizeof(h), sizeof(h));
	en_mem_note(mem, kind, -(int64_t)h.bytes);
	if (h.mapped)
		munmap(h.raw, h.mapped);
	else
		ck_free(h.raw);
}

uint64_t en_mem_peaks(const struct en_mem *mem, bool on_gpu)
{
	uint64_t n = 0;

	for (int k = 0; k < EN_MEM_KINDS; k++)
		if (!on_gpu || (k != EN_MEM_HOST_PARAMS && k != EN_MEM_HOST_OPTIMIZER &&
				k != EN_MEM_SAVE))
			n += mem->peak[k];
	return n;
}

bool en_mem_resident(uint64_t *peak_out, uint64_t *now_out)
{
	FILE *f = fopen("/proc/self/status", "r");
	uint64_t peak = 0, now = 0;
	char line[256];

	while (f && fgets(line, sizeof(line), f)) {
		sscanf(line, "VmHWM: %" SCNu64 " kB", &peak);
		sscanf(line, "VmRSS: %" SCNu64 " kB", &now);
	}
	if (f)
		fclose(f);
	if (!peak || !now)
		return false;
	*peak_out = peak * 1024;
	*now_out = now * 1024;
	return true;
}
