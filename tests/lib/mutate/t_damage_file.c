/* Damage done to copies of checkpoints. */
#define _GNU_SOURCE
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/mutate/t_damage_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint8_t *must_read(const char *path, size_t *n)
{
	uint8_t *b = t_file_read(path, n);

	if (!b)
		t_die("cannot read %s", path);
	return b;
}

void t_damage_truncate(const char *path, long size)
{
	size_t n;
	uint8_t *b = must_read(path, &n);

	if (size < 0)
		size += (long)n;
	if (size < 0 || (size_t)size >= n)
		t_die("%s has %zu bytes, cannot be cut to %ld", path, n, size);
	if (truncate(path, size) < 0)
		t_die("cannot cut %s: %s", path, strerror(errno));
	free(b);
}

void t_damage_flip(const char *path, size_t offset, uint8_t mask)
{
	size_t n;
	uint8_t *b = must_read(path, &n);

	if (offset >= n || !mask)
		t_die("%s has no byte %zu to flip", path, offset);
	b[offset] ^= mask;
	t_file_write(path, b, n);
	free(b);
}

void t_damage_delete(const char *path)
{
	if (unlink(path) < 0)
		t_die("cannot remove %s: %s", path, strerror(errno));
}

void t_damage_rename(const char *from, const char *to)
{
	if (rename(from, to) < 0)
		t_die("cannot rename %s to %s: %s", from, to, strerror(errno));
}

void t_damage_swap(const char *a, const char *b)
{
	char *mid = t_fmt("%s.swap", a);

	t_damage_rename(a, mid);
	t_damage_rename(b, a);
	t_damage_rename(mid, b);
	free(mid);
}

long t_damage_find(const char *path, const void *bytes, size_t n, int nth)
{
	size_t size;
	uint8_t *b = must_read(path, &size), *at = b;
	long found = -1;

	while (at && found < 0) {
		at = memmem(at, size - (size_t)(at - b), bytes, n);
		if (at && nth-- == 0)
			found = at - b;
		else if (at)
			at++;
	}
	free(b);
	return found;
}

void t_damage_patch(const char *path, size_t offset, const void *bytes, size_t n)
{
	size_t size;
	uint8_t *b = must_read(path, &size);

	if (n > size || offset > size - n)
		t_die("%s ends before byte %zu", path, offset + n);
	if (!memcmp(b + offset, bytes, n))
		t_die("%s: the patch at %zu changes nothing", path, offset);
	memcpy(b + offset, bytes, n);
	t_file_write(path, b, size);
	free(b);
}

static uint32_t le(const uint8_t *p, int n)
{
	uint32_t v = 0;

	while (n--)
		v = v << 8 | p[n];
	return v;
}

static uint32_t crc32_of(const uint8_t *p, size_t n)
{
	uint32_t c = 0xffffffff;

	while (n--) {
		c ^= *p++;
		for (int i = 0; i < 8; i++)
			c = c >> 1 ^ (c & 1 ? 0xedb88320 : 0);
	}
	return ~c;
}

/* The central directory's entry of the member that ends in data.pkl. */
static size_t find_entry(const char *path, const uint8_t *b, size_t n)
{
	static const uint8_t end_mark[4] = { 'P', 'K', 5, 6 };
	static const char tail[] = "/data.pkl";
	const uint8_t *end = NULL;
	size_t at;

	for (size_t i = n < 22 ? 0 : n - 21; i-- > 0 && !end; )
		if (!memcmp(b + i, end_mark, 4))
			end = b + i;
	if (!end)
		t_die("%s is no zip file", path);
	at = le(end + 16, 4);
	while (at + 46 <= n && !memcmp(b + at, "PK\1\2", 4)) {
		size_t len = le(b + at + 28, 2);

		if (len >= 9 && !memcmp(b + at + 46 + len - 9, tail, 9))
			return at;
		at += 46 + len + le(b + at + 30, 2) + le(b + at + 32, 2);
	}
	t_die("%s has no data.pkl", path);
}

static void pickle_at(const char *path, const uint8_t *b, size_t n,
		      size_t *entry, size_t *offset, size_t *size)
{
	size_t local;

	*entry = find_entry(path, b, n);
	local = le(b + *entry + 42, 4);
	*size = le(b + *entry + 24, 4);
	if (le(b + *entry + 10, 2) || local + 30 > n)
		t_die("%s: data.pkl is not stored plainly", path);
	*offset = local + 30 + le(b + local + 26, 2) + le(b + local + 28, 2);
	if (*offset + *size > n)
		t_die("%s: data.pkl leaves the file", path);
}

void t_damage_pickle_at(const char *path, size_t *offset_out, size_t *n_out)
{
	size_t n, entry;
	uint8_t *b = must_read(path, &n);

	pickle_at(path, b, n, &entry, offset_out, n_out);
	free(b);
}

/* Local header, data descriptor (where there is one) and central entry. */
static void set_crc(uint8_t *b, size_t n, size_t entry, size_t at, size_t size)
{
	uint32_t crc = crc32_of(b + at, size);
	uint8_t bytes[4] = { crc & 255, crc >> 8 & 255, crc >> 16 & 255, crc >> 24 };
	size_t local = le(b + entry + 42, 4);

	memcpy(b + entry + 16, bytes, 4);
	if (le(b + local + 14, 4))
		memcpy(b + local + 14, bytes, 4);
	if (at + size + 8 <= n && !memcmp(b + at + size, "PK\7\10", 4))
		memcpy(b + at + size + 4, bytes, 4);
}

void t_damage_pickle(const char *path, const char *after, const void *old,
		     const void *new_bytes, size_t n)
{
	size_t size, entry, at, len;
	uint8_t *b = must_read(path, &size), *place;

	pickle_at(path, b, size, &entry, &at, &len);
	if (crc32_of(b + at, len) != le(b + entry + 16, 4))
		t_die("%s: the CRC of data.pkl is wrong before the damage", path);
	place = memmem(b + at, len, after, strlen(after));
	if (place)
		place = memmem(place, len - (size_t)(place - b - (long)at), old, n);
	if (!place)
		t_die("%s: nothing to damage after %s", path, after);
	memcpy(place, new_bytes, n);
	set_crc(b, size, entry, at, len);
	t_file_write(path, b, size);
	free(b);
}
