/* zt_prompt.h -- tokens that the caller gives. */
#ifndef ZT_PROMPT_H
#define ZT_PROMPT_H

#include <stdbool.h>
#include <stdint.h>

#include <ckpt.h>

struct zt_ids {
	int32_t *id;
	uint64_t n;
};

/*
 * Whole numbers from 0 on with commas, spaces or line ends between them, at least one.  'where'
 * names the text.  CKPT_E_USAGE, CKPT_E_NOMEM.
 */
int zt_ids_parse(const char *text, const char *where, struct zt_ids *out, struct ckpt_err *err);
/* Each byte is one. */
int zt_ids_bytes(const char *text, struct zt_ids *out, struct ckpt_err *err);
/* The same of a file of at most 64 MiB; "-" is standard input.  Also CKPT_E_IO, CKPT_E_LIMIT. */
int zt_ids_read(const char *path, bool bytes, struct zt_ids *out, struct ckpt_err *err);
void zt_ids_release(struct zt_ids *ids);

#endif
