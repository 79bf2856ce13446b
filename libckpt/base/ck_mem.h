/*
 * ck_mem.h -- an arena: many small things with one lifetime, freed at once.
 *
 * Memory got from an arena is 16-byte aligned and is not zeroed unless the name
 * says so.  One thread at a time.  The arena counts what it handed out, so a
 * caller can bound it.
 */
#ifndef CK_MEM_H
#define CK_MEM_H

#include <stdarg.h>

#include "libckpt/base/ck_base.h"

struct ck_arena {
	struct ck_arena_block *head;
	size_t used;		/* in the head block */
	uint64_t total;		/* bytes handed out */
	uint64_t limit;		/* 0 = none; handing out more fails */
	bool limited;		/* it did: the limit, not the memory, was the reason */
};

#define CK_ARENA_INIT { 0 }

/* NULL when there is no memory or the limit is reached. */
void *ck_arena_alloc(struct ck_arena *arena, uint64_t n);
void *ck_arena_zalloc(struct ck_arena *arena, uint64_t n);
char *ck_arena_strndup(struct ck_arena *arena, const char *s, size_t n);
char *ck_arena_strdup(struct ck_arena *arena, const char *s);
char *ck_arena_printf(struct ck_arena *arena, const char *fmt, ...) CK_PRINTF(2, 3);
char *ck_arena_vprintf(struct ck_arena *arena, const char *fmt, va_list ap) CK_PRINTF(2, 0);
/*
 * What a failure 'rc' was: where it is CKPT_E_NOMEM and the arena's limit was the reason,
 * '*err' says that 'where' takes more than memory_bytes, and the result is CKPT_E_LIMIT.
 */
int ck_arena_why(const struct ck_arena *arena, int rc, const char *where, struct ckpt_err *err);
/* As CK_ARENA_INIT left it, but for the limit. */
void ck_arena_release(struct ck_arena *arena);
/* Release an arena that came from ck_alloc(), and the struct.  NULL is allowed. */
void ck_arena_free(struct ck_arena *arena);

#endif
