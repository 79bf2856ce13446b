/* ck_mem.c -- see ck_mem.h.  Blocks of 64 KiB; larger requests get their own. */
#include "libckpt/base/ck_mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define BLOCK_BYTES ((size_t)64 << 10)

struct ck_arena_block {
	struct ck_arena_block *next;
	size_t size;
	_Alignas(16) unsigned char bytes[];
};

static struct ck_arena_block *block_new(size_t n)
{
	struct ck_arena_block *b = ck_alloc(sizeof(*b) + n);

	if (b)
		b->size = n;
	return b;
}

/* A big request goes behind the head, so that the head's free tail stays in use. */
static void *alloc_big(struct ck_arena *arena, size_t n)
{
	struct ck_arena_block *b = block_new(n);

	if (!b)
		return NULL;
	if (arena->head) {
		b->next = arena->head->next;
		arena->head->next = b;
	} else {
		b->next = NULL;
		arena->head = b;
		arena->used = n;
	}
	return b->bytes;
}

void *ck_arena_alloc(struct ck_arena *arena, uint64_t n)
{
	struct ck_arena_block *b;

	if (n > SIZE_MAX / 4)
		return NULL;
	n = (n + 15) & ~(uint64_t)15;
	if (arena->limit && (n > arena->limit || arena->total > arena->limit - n)) {
		arena->limited = true;
		return NULL;
	}
	if (n > BLOCK_BYTES / 4) {
		void *p = alloc_big(arena, n);

		arena->total += p ? n : 0;
		return p;
	}
	if (!arena->head || arena->head->size - arena->used < n) {
		b = block_new(BLOCK_BYTES);
		if (!b)
			return NULL;
		b->next = arena->head;
		arena->head = b;
		arena->used = 0;
	}
	arena->used += n;
	arena->total += n;
	return arena->head->bytes + arena->used - n;
}

void *ck_arena_zalloc(struct ck_arena *arena, uint64_t n)
{
	void *p = ck_arena_alloc(arena, n);

	if (p)
		memset(p, 0, n);
	return p;
}

char *ck_arena_strndup(struct ck_arena *arena, const char *s, size_t n)
{
	char *p = ck_arena_alloc(arena, (uint64_t)n + 1);

	if (p) {
		if (n)
			memcpy(p, s, n);
		p[n] = 0;
	}
	return p;
}

char *ck_arena_strdup(struct ck_arena *arena, const char *s)
{
	return ck_arena_strndup(arena, s, strlen(s));
}

char *ck_arena_vprintf(struct ck_arena *arena, const char *fmt, va_list ap)
{
	va_list again;
	char *p = NULL;
	int n;

	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, ap);
	if (n >= 0)
		p = ck_arena_alloc(arena, (uint64_t)n + 1);
	if (p)
		vsnprintf(p, (size_t)n + 1, fmt, again);
	va_end(again);
	return p;
}

char *ck_arena_printf(struct ck_arena *arena, const char *fmt, ...)
{
	va_list ap;
	char *p;

	va_start(ap, fmt);
	p = ck_arena_vprintf(arena, fmt, ap);
	va_end(ap);
	return p;
}

int ck_arena_why(const struct ck_arena *arena, int rc, const char *where, struct ckpt_err *err)
{
	if (rc != -CKPT_E_NOMEM || !arena->limited)
		return rc;
	ck_err_clear(err);
	return ck_fail_limit(err, where, CKPT_NO_OFFSET, "memory_bytes", arena->limit,
			     "reading this takes too much memory");
}

void ck_arena_release(struct ck_arena *arena)
{
	struct ck_arena_block *b = arena->head;

	while (b) {
		struct ck_arena_block *next = b->next;

		ck_free(b);
		b = next;
	}
	arena->head = NULL;
	arena->used = 0;
	arena->total = 0;
	arena->limited = false;
}

void ck_arena_free(struct ck_arena *arena)
{
	if (arena)
		ck_arena_release(arena);
	ck_free(arena);
}
