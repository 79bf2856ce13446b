/* See t_spans.h. */
#include "tests/lib/mutate/t_spans.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/archive/t_arch.h"
#include "tests/lib/fs/t_dir.h"

const char *const t_region_names[T_REGIONS] = {
	"a member's local header", "the filler before aligned data", "a member's descriptor",
	"a pickle", "a small record", "data of tensors", "the archive's directory",
	"the archive's end records", "a storage's count", "the header's length",
	"the JSON header", "a text",
};

static void mark(struct t_spans *marks, enum t_region region, size_t off, size_t n, size_t flips,
		 const char *fmt, ...) __attribute__((format(printf, 6, 7)));

static void mark(struct t_spans *marks, enum t_region region, size_t off, size_t n, size_t flips,
		 const char *fmt, ...)
{
	struct t_span *m;
	va_list ap;

	marks->m = t_grow(marks->m, (marks->n + 1) * sizeof(*marks->m));
	m = &marks->m[marks->n++];
	*m = (struct t_span){ .region = region, .off = off, .n = n, .flips = flips };
	va_start(ap, fmt);
	vsnprintf(m->what, sizeof(m->what), fmt, ap);
	va_end(ap);
}

void t_spans_free(struct t_spans *marks)
{
	free(marks->m);
	*marks = (struct t_spans){ 0 };
}

struct field {
	const char *name;
	size_t off, n;
};

static void mark_fields(struct t_spans *marks, enum t_region region, const struct field *f,
			size_t at, const char *of)
{
	for (; f->name; f++)
		mark(marks, region, at + f->off, f->n, f->n > 4 ? 2 : 1, "%s: %s", of, f->name);
}

/* ------------------------------------------------------------------------- archives */

static const struct field local_fields[] = {
	{ "signature", 0, 4 }, { "version needed", 4, 2 }, { "flags", 6, 2 }, { "method", 8, 2 },
	{ "time", 10, 2 }, { "date", 12, 2 }, { "CRC", 14, 4 }, { "packed size", 18, 4 },
	{ "size", 22, 4 }, { "length of the name", 26, 2 }, { "length of the extra area", 28, 2 },
	{ NULL, 0, 0 },
}, central_fields[] = {
	{ "signature", 0, 4 }, { "version made by", 4, 2 }, { "version needed", 6, 2 },
	{ "flags", 8, 2 }, { "method", 10, 2 }, { "time", 12, 2 }, { "date", 14, 2 },
	{ "CRC", 16, 4 }, { "packed size", 20, 4 }, { "size", 24, 4 },
	{ "length of the name", 28, 2 }, { "length of the extra area", 30, 2 },
	{ "length of the comment", 32, 2 }, { "volume", 34, 2 }, { "internal attributes", 36, 2 },
	{ "external attributes", 38, 4 }, { "offset", 42, 4 }, { NULL, 0, 0 },
}, descriptor_fields[] = {
	{ "signature", 0, 4 }, { "CRC", 4, 4 }, { "packed size", 8, 4 }, { "size", 12, 4 },
	{ NULL, 0, 0 },
}, end64_fields[] = {
	{ "signature", 0, 4 }, { "size", 4, 8 }, { "version made by", 12, 2 },
	{ "version needed", 14, 2 }, { "volume", 16, 4 }, { "volume of the directory", 20, 4 },
	{ "entries here", 24, 8 }, { "entries", 32, 8 }, { "bytes", 40, 8 }, { "offset", 48, 8 },
	{ NULL, 0, 0 },
}, locator_fields[] = {
	{ "signature", 0, 4 }, { "volume", 4, 4 }, { "offset", 8, 8 }, { "volumes", 16, 4 },
	{ NULL, 0, 0 },
}, end_fields[] = {
	{ "signature", 0, 4 }, { "volume", 4, 2 }, { "volume of the directory", 6, 2 },
	{ "entries here", 8, 2 }, { "entries", 10, 2 }, { "bytes", 12, 4 }, { "offset", 16, 4 },
	{ "length of the comment", 20, 2 }, { NULL, 0, 0 },
};

/* Members of which every field is flipped: of storages the first and the last that has bytes. */
static int is_chosen(const struct t_arch *a, size_t i)
{
	const struct t_arch_member *m = &a->m[i];
	size_t first = a->count, last = 0;

	if (strncmp(m->rest, "data/", 5))
		return 1;
	for (size_t k = 0; k < a->count; k++)
		if (!strncmp(a->m[k].rest, "data/", 5) && a->m[k].n) {
			first = k < first ? k : first;
			last = k;
		}
	return i == first || i == last;
}

static void mark_member(struct t_spans *marks, const struct t_arch *a, size_t i)
{
	const struct t_arch_member *m = &a->m[i];
	const size_t k = strlen(m->name), bare = m->header + 30 + k;
	const enum t_region region = !strcmp(m->rest, "data.pkl") ? T_PICKLE :
				     !strncmp(m->rest, "data/", 5) ? T_DATA : T_RECORD;

	if (m->n)
		mark(marks, region, m->data, m->n, region == T_PICKLE ? 24 : m->n > 2 ? 3 : m->n,
		     "%s", m->rest);
	if (!is_chosen(a, i))
		return;
	mark_fields(marks, T_LOCAL, local_fields, m->header, m->rest);
	mark(marks, T_LOCAL, m->header + 30, k, 2, "%s: name", m->rest);
	if (m->data > bare)
		mark(marks, T_FILLER, bare, m->data - bare, 4, "%s: filler", m->rest);
	if (m->descriptor)
		mark_fields(marks, T_DESCRIPTOR, descriptor_fields, m->data + m->n, m->rest);
	mark_fields(marks, T_DIRECTORY, central_fields, m->central, m->rest);
	mark(marks, T_DIRECTORY, m->central + 46, k, 2, "%s: name", m->rest);
}

static void mark_archive(struct t_spans *marks, const struct t_arch *a)
{
	for (size_t i = 0; i < a->count; i++)
		mark_member(marks, a, i);
	if (a->end64) {
		mark_fields(marks, T_END, end64_fields, a->end64, "zip64 end record");
		mark_fields(marks, T_END, locator_fields, a->locator, "zip64 locator");
	}
	mark_fields(marks, T_END, end_fields, a->end, "end record");
}

static void cut_archive(struct t_spans *marks, const struct t_arch *a)
{
	for (size_t i = 0; i < a->count; i++) {
		const struct t_arch_member *m = &a->m[i];
		const enum t_region of = !strncmp(m->rest, "data/", 5) ? T_DATA :
					 !strcmp(m->rest, "data.pkl") ? T_PICKLE : T_RECORD;

		if (m->header)
			mark(marks, T_LOCAL, m->header, 0, 1, "before the header of %s", m->rest);
		mark(marks, of, m->data, 0, 1, "before the data of %s", m->rest);
		if (m->descriptor)
			mark(marks, T_DESCRIPTOR, m->data + m->n, 0, 1, "behind the data of %s",
			     m->rest);
		mark(marks, T_DIRECTORY, m->central, 0, 1, "before the entry of %s", m->rest);
	}
	if (a->end64) {
		mark(marks, T_END, a->end64, 0, 1, "before the zip64 end record");
		mark(marks, T_END, a->end64 + 28, 0, 1, "in the zip64 end record");
		mark(marks, T_END, a->locator, 0, 1, "before the zip64 locator");
		mark(marks, T_END, a->locator + 10, 0, 1, "in the zip64 locator");
	}
	mark(marks, T_END, a->end, 0, 1, "before the end record");
	mark(marks, T_END, a->end + 11, 0, 1, "in the end record");
}

/* -------------------------------------------------------------------- legacy streams */

static size_t line(const uint8_t *p, size_t n, size_t at)
{
	while (at < n && p[at] != '\n')
		at++;
	return at + 1;
}

static size_t number(const uint8_t *p, int n)
{
	size_t v = 0;

	while (n--)
		v = v << 8 | p[n];
	return v;
}

/* Behind the pickle that begins at 'at', 0 if there is none; the strings in it. */
static size_t pickle_end(const uint8_t *p, size_t n, size_t at, size_t *strings)
{
	*strings = 0;
	while (at < n) {
		const uint8_t op = p[at++];

		switch (op) {
		case '.':
			return at;
		case 'X': case 'T': case 'B':
			*strings += op == 'X';
			at += at + 4 <= n ? 4 + number(p + at, 4) : n;
			break;
		case 'U': case 'C': case 0x8a:
			*strings += op == 'U';
			at += at < n ? 1 + (size_t)p[at] : n;
			break;
		case 'c':
			at = line(p, n, line(p, n, at));
			break;
		case 'G':
			at += 8;
			break;
		case 'J': case 'r': case 'j':
			at += 4;
			break;
		case 'M':
			at += 2;
			break;
		case 'K': case 'q': case 'h': case 0x80:
			at += 1;
			break;
		default:
			break;
		}
	}
	return 0;
}

/* Storages follow each other up to the end: the sizes of their elements that make it so. */
static int walk_storages(const uint8_t *p, size_t n, size_t at, size_t left, size_t *place)
{
	static const size_t sizes[] = { 4, 2, 8, 1, 16 };

	if (!left)
		return at == n;
	if (at + 8 > n || number(p + at, 8) > n)
		return 0;
	*place = at;
	for (size_t i = 0; i < 5; i++)
		if (walk_storages(p, n, at + 8 + number(p + at, 8) * sizes[i], left - 1,
				  place + 1))
			return 1;
	return 0;
}

static const char *const pickle_name[] = {
	"magic number", "protocol", "machine", "object", "keys of storages",
};

/* Both ways: marks, or cuts. */
static void mark_legacy(struct t_spans *marks, const uint8_t *p, size_t n, int cuts)
{
	size_t at = 0, strings = 0, place[T_ARCH_MOST];

	for (size_t i = 0; i < 5; i++) {
		const size_t end = pickle_end(p, n, at, &strings);

		if (!end)
			t_die("a legacy stream that cannot be read");
		if (cuts)
			mark(marks, T_PICKLE, end, 0, 1, "behind the %s", pickle_name[i]);
		else
			mark(marks, T_PICKLE, at, end - at, i == 3 ? 24 : i == 4 ? 4 : 3, "%s",
			     pickle_name[i]);
		at = end;
	}
	if (strings >= T_ARCH_MOST || !walk_storages(p, n, at, strings, place))
		t_die("storages of a legacy stream that cannot be told");
	place[strings] = n;
	for (size_t i = 0; i < strings; i++) {
		const size_t data = place[i] + 8, bytes = place[i + 1] - data;

		if (cuts) {
			mark(marks, T_COUNT, data, 0, 1, "behind the count of storage %zu", i);
			mark(marks, T_DATA, data + bytes / 2, 0, 1, "in storage %zu", i);
			continue;
		}
		mark(marks, T_COUNT, place[i], 8, 2, "count of storage %zu", i);
		if (bytes)
			mark(marks, T_DATA, data, bytes, bytes > 2 ? 3 : bytes, "storage %zu", i);
	}
}

/* ----------------------------------------------------------------------- safetensors */

static void mark_safetensors(struct t_spans *marks, const uint8_t *p, size_t n, int cuts)
{
	static const char key[] = "\"data_offsets\":[";
	const size_t data = 8 + number(p, 8);
	const uint8_t *at = p + 8;
	size_t i = 0;

	if (cuts) {
		mark(marks, T_LENGTH, 4, 0, 1, "in the length");
		mark(marks, T_LENGTH, 8, 0, 1, "behind the length");
		mark(marks, T_HEADER, data / 2, 0, 1, "in the header");
		mark(marks, T_HEADER, data, 0, 1, "behind the header");
	} else {
		mark(marks, T_LENGTH, 0, 8, 8, "length");
		mark(marks, T_HEADER, 8, data - 8, 64, "header");
	}
	while ((at = memmem(at, data - (size_t)(at - p), key, sizeof(key) - 1))) {
		char *end;
		size_t a, b;

		at += sizeof(key) - 1;
		a = strtoul((const char *)at, &end, 10);
		b = strtoul(end + 1, NULL, 10);
		if (cuts && data + b < n)
			mark(marks, T_DATA, data + b, 0, 1, "behind tensor %zu", i);
		else if (!cuts && b > a)
			mark(marks, T_DATA, data + a, b - a, b - a > 2 ? 3 : b - a,
			     "tensor %zu", i);
		i++;
	}
}

/* ------------------------------------------------------------------------------- all */

enum kind {
	ARCHIVE, LEGACY, SAFETENSORS, TEXT, NOTHING,
};

static enum kind kind_of(struct t_arch *a, uint8_t *p, size_t n)
{
	static const uint8_t magic[] = { 0x80, 2, 0x8a, 10, 0x6c };

	if (t_arch_parse(a, p, n))
		return ARCHIVE;
	if (n > sizeof(magic) && !memcmp(p, magic, sizeof(magic)))
		return LEGACY;
	if (n > 10 && number(p, 8) <= n - 8 && p[8] == '{')
		return SAFETENSORS;
	for (size_t i = 0; i < n; i++)
		if (p[i] < ' ' && p[i] != '\n' && p[i] != '\t')
			return NOTHING;
	return TEXT;
}

void t_spans_to_flip(struct t_spans *marks, uint8_t *p, size_t n)
{
	struct t_arch *a = t_alloc(sizeof(*a));
	const enum kind kind = kind_of(a, p, n);

	*marks = (struct t_spans){ 0 };
	if (kind == ARCHIVE)
		mark_archive(marks, a);
	else if (kind == LEGACY)
		mark_legacy(marks, p, n, 0);
	else if (kind == SAFETENSORS)
		mark_safetensors(marks, p, n, 0);
	else if (kind == TEXT && n)
		mark(marks, T_TEXT, 0, n, n < 16 ? n : 24, "text");
	free(a);
}

void t_spans_to_cut(struct t_spans *marks, uint8_t *p, size_t n)
{
	struct t_arch *a = t_alloc(sizeof(*a));
	const enum kind kind = kind_of(a, p, n);

	*marks = (struct t_spans){ 0 };
	if (kind == ARCHIVE)
		cut_archive(marks, a);
	else if (kind == LEGACY)
		mark_legacy(marks, p, n, 1);
	else if (kind == SAFETENSORS)
		mark_safetensors(marks, p, n, 1);
	else if (kind == TEXT && n > 2)
		mark(marks, T_TEXT, n / 2, 0, 1, "in the middle");
	free(a);
}
