/* en_mem.c -- see en_mem.h. */
#include "engine/zero/en_mem.h"

#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define ALIGN 64u

/* In front of what is handed out, in a line of its own. */
struct head {
	void *raw;
	uint64_t bytes;
};

const char *en_mem_name(enum en_mem_kind kind)
{
	static const char *const name[EN_MEM_KINDS] = {
		"parameters", "gathered", "gradients", "optimizer", "activations",
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

int en_mem_new(struct en_mem *mem, enum en_mem_kind kind, uint64_t bytes, void *p_out,
	       struct ckpt_err *err)
{
	uint64_t all;
	uint8_t *raw, *p;
	struct head h;

	if (ck_add_over(bytes, 2 * ALIGN, &all) || all > SIZE_MAX)
		return ck_fail_nomem(err, en_mem_name(kind), bytes);
	raw = ck_zalloc(all);
	if (!raw)
		return ck_fail_nomem(err, en_mem_name(kind), bytes);
	p = raw + 2 * ALIGN - (uintptr_t)raw % ALIGN;
	if ((size_t)(p - raw) + bytes > all)
		p -= ALIGN;
	h = (struct head){ raw, bytes };
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
	ck_free(h.raw);
}
