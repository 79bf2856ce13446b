/*
 * gen_zip.h - writes the zip archive of torch.save (torch 2.7 and later):
 * stored members, payloads at multiples of 64 by an 'FB' extra field, data
 * descriptors, zip64 fields where a size or an offset needs them, zip64 end
 * records always. A payload can be a hole: then it costs no blocks and its
 * CRC is 0, which is what torch.serialization.skip_data writes.
 */
#ifndef GEN_ZIP_H
#define GEN_ZIP_H

#include <errno.h>
#include <fcntl.h>
#include <libdeflate.h>
#include <unistd.h>

#include "tests/bench/gen_pickle.h"

#define ZW_BUF ((size_t)1 << 20)
#define ZW_ALIGN 64

struct zw {
	const char *path;
	int fd;
	int bad;		/* errno of the first failure */
	uint64_t off;		/* bytes already given to the kernel */
	uint8_t *buf;		/* ZW_BUF bytes, n of them waiting */
	size_t n;
	char prefix[64];
	struct pk dir;		/* the central directory, growing */
	uint64_t entries;
};

static void zw_flush(struct zw *z)
{
	size_t done = 0;

	while (done < z->n && !z->bad) {
		ssize_t r = pwrite(z->fd, z->buf + done, z->n - done,
				   (off_t)(z->off + done));
		if (r < 0 && errno != EINTR)
			z->bad = errno;
		if (r > 0)
			done += (size_t)r;
	}
	z->off += z->n;
	z->n = 0;
}

static uint64_t zw_pos(const struct zw *z)
{
	return z->off + z->n;
}

/* Room for n bytes, at most ZW_BUF, behind what waits. */
static uint8_t *zw_room(struct zw *z, size_t n)
{
	if (ZW_BUF - z->n < n)
		zw_flush(z);
	return z->buf + z->n;
}

static void zw_raw(struct zw *z, const void *p, size_t n)
{
	const uint8_t *s = p;

	while (n) {
		size_t room = n < ZW_BUF ? n : ZW_BUF;

		memcpy(zw_room(z, room), s, room);
		z->n += room;
		s += room;
		n -= room;
	}
}

static void zw_hole(struct zw *z, uint64_t n)
{
	zw_flush(z);
	z->off += n;
}

static int zw_open(struct zw *z, const char *path, const char *prefix)
{
	memset(z, 0, sizeof *z);
	z->path = path;
	z->buf = gen_alloc(NULL, ZW_BUF);
	snprintf(z->prefix, sizeof z->prefix, "%s", prefix);
	z->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (z->fd < 0)
		z->bad = errno;
	return z->bad ? -1 : 0;
}

/* Local header of member name; the payload starts where this ends. */
static void zw_begin(struct zw *z, const char *name, uint64_t size,
		     uint64_t *head)
{
	uint64_t at = zw_pos(z), start;
	int big = size >= UINT32_MAX || at >= UINT32_MAX;
	size_t len = strlen(z->prefix) + 1 + strlen(name);
	struct pk h = { 0 }, x = { 0 };

	*head = at;
	if (big) {
		pk_le(&x, 1, 2);
		pk_le(&x, (size >= UINT32_MAX ? 16 : 0) +
			  (at >= UINT32_MAX ? 8 : 0), 2);
		if (size >= UINT32_MAX) {
			pk_le(&x, size, 8);
			pk_le(&x, 0, 8);
		}
		if (at >= UINT32_MAX)
			pk_le(&x, at, 8);
	}
	start = at + 30 + len + x.n + 4;
	start = (ZW_ALIGN - start % ZW_ALIGN) % ZW_ALIGN;
	pk_raw(&x, "FB", 2);
	pk_le(&x, start, 2);
	while (start--)
		pk_op(&x, 'Z');
	pk_raw(&h, "PK\3\4\0\0", 6);
	pk_le(&h, size ? 0x0808 : 0x0800, 2);
	pk_le(&h, 0, 8);	/* method, time, date, low half of the CRC */
	pk_le(&h, 0, 8);	/* the rest of it, compressed, half a size */
	pk_le(&h, 0, 2);
	pk_le(&h, len, 2);
	pk_le(&h, x.n, 2);
	zw_raw(z, h.b, h.n);
	zw_raw(z, z->prefix, strlen(z->prefix));
	zw_raw(z, "/", 1);
	zw_raw(z, name, strlen(name));
	zw_raw(z, x.b, x.n);
	pk_free(&h);
	pk_free(&x);
}

static uint64_t zw_min32(uint64_t v)
{
	return v < UINT32_MAX ? v : UINT32_MAX;
}

static void zw_dir_entry(struct zw *z, const char *name, uint64_t head,
			 uint64_t size, uint32_t crc)
{
	size_t ext = (size >= UINT32_MAX ? 16 : 0) + (head >= UINT32_MAX ? 8 : 0);
	struct pk *d = &z->dir;

	pk_raw(d, "PK\1\2\0\0\0\0", 8);
	pk_le(d, size ? 0x0808 : 0x0800, 2);
	pk_le(d, 0, 6);
	pk_le(d, crc, 4);
	pk_le(d, zw_min32(size), 4);
	pk_le(d, zw_min32(size), 4);
	pk_le(d, strlen(z->prefix) + 1 + strlen(name), 2);
	pk_le(d, ext ? ext + 4 : 0, 2);
	pk_le(d, 0, 8);		/* comment, disk, attributes */
	pk_le(d, 0, 2);
	pk_le(d, zw_min32(head), 4);
	pk_raw(d, z->prefix, strlen(z->prefix));
	pk_raw(d, "/", 1);
	pk_raw(d, name, strlen(name));
	if (ext) {
		pk_le(d, 1, 2);
		pk_le(d, ext, 2);
	}
	if (size >= UINT32_MAX) {
		pk_le(d, size, 8);
		pk_le(d, size, 8);
	}
	if (head >= UINT32_MAX)
		pk_le(d, head, 8);
	z->entries++;
}

/* Data descriptor and directory entry, after the payload. */
static void zw_end(struct zw *z, const char *name, uint64_t head,
		   uint64_t size, uint32_t crc)
{
	int big = size >= UINT32_MAX || head >= UINT32_MAX;
	struct pk h = { 0 };

	if (size) {
		pk_raw(&h, "PK\7\10", 4);
		pk_le(&h, crc, 4);
		pk_le(&h, size, big ? 8 : 4);
		pk_le(&h, size, big ? 8 : 4);
		zw_raw(z, h.b, h.n);
		pk_free(&h);
	}
	zw_dir_entry(z, name, head, size, crc);
}

static void zw_member(struct zw *z, const char *name, const void *p, size_t n)
{
	uint64_t head;

	zw_begin(z, name, n, &head);
	zw_raw(z, p, n);
	zw_end(z, name, head, n, libdeflate_crc32(0, p, n));
}

/* Directory and end records; returns 0, or -1 with z->bad set. */
static int zw_close(struct zw *z)
{
	uint64_t at = zw_pos(z), len = z->dir.n;
	struct pk e = { 0 };

	zw_raw(z, z->dir.b, z->dir.n);
	pk_raw(&e, "PK\6\6", 4);
	pk_le(&e, 44, 8);
	pk_le(&e, 0x031e, 2);
	pk_le(&e, 0x002d, 2);
	pk_le(&e, 0, 8);
	pk_le(&e, z->entries, 8);
	pk_le(&e, z->entries, 8);
	pk_le(&e, len, 8);
	pk_le(&e, at, 8);
	pk_raw(&e, "PK\6\7", 4);
	pk_le(&e, 0, 4);
	pk_le(&e, at + len, 8);
	pk_le(&e, 1, 4);
	pk_raw(&e, "PK\5\6", 4);
	pk_le(&e, 0, 4);
	pk_le(&e, z->entries < 0xffff ? z->entries : 0xffff, 2);
	pk_le(&e, z->entries < 0xffff ? z->entries : 0xffff, 2);
	pk_le(&e, zw_min32(len), 4);
	pk_le(&e, zw_min32(at), 4);
	pk_le(&e, 0, 2);
	zw_raw(z, e.b, e.n);
	zw_flush(z);
	if (z->fd >= 0 && close(z->fd) && !z->bad)
		z->bad = errno;
	pk_free(&e);
	pk_free(&z->dir);
	free(z->buf);
	return z->bad ? -1 : 0;
}

#endif
