/* t_zip.c -- see t_zip.h. Written apart from the library's reader, so that both
 * do not share a mistake. */
#include "tests/lib/archive/t_zip.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"

void t_put16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
}

void t_put32(uint8_t *p, uint32_t v)
{
	t_put16(p, v & 0xffff);
	t_put16(p + 2, v >> 16);
}

static uint8_t *more(struct t_zip *z, size_t n)
{
	z->p = t_grow(z->p, z->n + n + 1);
	memset(z->p + z->n, 0, n);
	z->n += n;
	return z->p + z->n - n;
}

static void add(struct t_zip *z, const char *name, const void *data, size_t n, size_t bytes,
		uint32_t crc, uint16_t method)
{
	const size_t len = strlen(name);
	uint8_t *h;

	if (z->count == T_ZIP_MAX || len >= sizeof(z->entry[0].name))
		t_die("too much for a test archive");
	z->entry[z->count].header = z->n;
	h = more(z, 30 + len);
	memcpy(h, "PK\3\4", 4);
	t_put16(h + 8, method);
	t_put32(h + 14, crc);
	t_put32(h + 18, (uint32_t)n);
	t_put32(h + 22, (uint32_t)bytes);
	t_put16(h + 26, (unsigned)len);
	memcpy(h + 30, name, len);
	z->entry[z->count].data = z->n;
	memcpy(more(z, n), data, n);
	memcpy(z->entry[z->count].name, name, len + 1);
	z->entry[z->count].packed = n;
	z->entry[z->count].bytes = bytes;
	z->entry[z->count].crc = crc;
	z->entry[z->count++].method = method;
}

void t_zip_add(struct t_zip *z, const char *name, const void *data, size_t n)
{
	add(z, name, data, n, n, libdeflate_crc32(0, data, n), 0);
}

void t_zip_deflate(struct t_zip *z, const char *name, const void *data, size_t n)
{
	struct libdeflate_compressor *c = libdeflate_alloc_compressor(9);
	const size_t room = n + 1000;
	uint8_t *packed = t_alloc(room);
	const size_t k = libdeflate_deflate_compress(c, data, n, packed, room);

	add(z, name, packed, k, n, libdeflate_crc32(0, data, n), 8);
	libdeflate_free_compressor(c);
	free(packed);
}

void t_zip_end(struct t_zip *z)
{
	uint8_t *h;

	z->dir = z->n;
	for (size_t i = 0; i < z->count; i++) {
		const size_t len = strlen(z->entry[i].name);

		z->entry[i].central = z->n;
		h = more(z, 46 + len);
		memcpy(h, "PK\1\2", 4);
		t_put16(h + 10, z->entry[i].method);
		t_put32(h + 16, z->entry[i].crc);
		t_put32(h + 20, (uint32_t)z->entry[i].packed);
		t_put32(h + 24, (uint32_t)z->entry[i].bytes);
		t_put16(h + 28, (unsigned)len);
		t_put32(h + 42, (uint32_t)z->entry[i].header);
		memcpy(h + 46, z->entry[i].name, len);
	}
	z->end = z->n;
	h = more(z, 22);
	memcpy(h, "PK\5\6", 4);
	t_put16(h + 8, (unsigned)z->count);
	t_put16(h + 10, (unsigned)z->count);
	t_put32(h + 12, (uint32_t)(z->end - z->dir));
	t_put32(h + 16, (uint32_t)z->dir);
}
