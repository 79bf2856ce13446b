/* See t_pkl.h. Written apart from the library's pickle code. */
#define _GNU_SOURCE
#include "tests/lib/archive/t_pkl.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/archive/t_zip.h"
#include "tests/lib/fixture/t_cast.h"
#include "tests/lib/fs/t_dir.h"

struct maker {
	struct t_zip zip;
	char *prefix;
	struct t_pkl pickle;
	int storages;
	int legacy;
	struct t_pkl data;	/* legacy: each storage, its count of elements in front */
};

void t_pkl_put(struct t_pkl *b, const void *bytes, size_t n)
{
	b->p = t_grow(b->p, b->n + n);
	memcpy(b->p + b->n, bytes, n);
	b->n += n;
}

void t_pkl_str(struct t_pkl *b, const char *s, size_t n)
{
	uint8_t head[5] = { 'X' };

	t_put32(head + 1, (uint32_t)n);
	t_pkl_put(b, head, 5);
	t_pkl_put(b, s, n);
}

static void puts_op(struct maker *m, const char *ops)
{
	t_pkl_put(&m->pickle, ops, strlen(ops));
}

static void put_int(struct maker *m, long long v)
{
	uint8_t b[10] = { 0x8a, 8 };	/* LONG1 */

	for (int i = 0; i < 8; i++)
		b[2 + i] = (uint8_t)((unsigned long long)v >> 8 * i);
	t_pkl_put(&m->pickle, b, 10);
}

static void put_float(struct maker *m, double v)
{
	uint64_t bits;
	uint8_t b[9] = { 'G' };

	memcpy(&bits, &v, 8);
	for (int i = 0; i < 8; i++)
		b[1 + i] = (uint8_t)(bits >> 8 * (7 - i));
	t_pkl_put(&m->pickle, b, 9);
}

/* What "f32 2 3 @10>" says. */
struct tensor {
	char type[8];
	long long dim[8], stride[8], n, first, again, offset;
	int ndim, nstrides, neg, alike;
};

/* One element, little endian; its size. */
static size_t element(const char *type, uint8_t *p, long long v)
{
	const float f = (float)v;

	if (!strcmp(type, "f32")) {
		memcpy(p, &f, 4);
		return 4;
	}
	if (!strcmp(type, "bf16")) {
		t_put16(p, t_f32_to_bf16(f));
		return 2;
	}
	if (!strcmp(type, "i64")) {
		memcpy(p, &v, 8);
		return 8;
	}
	if (!strcmp(type, "i8")) {
		*p = (uint8_t)v;
		return 1;
	}
	t_die("no element type %s", type);
}

/* Storage number 'again' once more, or (-1) a new one. */
static void put_storage(struct maker *m, const struct tensor *t)
{
	const char *type = t->type;
	const char *cls = !strcmp(type, "f32") ? "Float" : !strcmp(type, "bf16") ? "BFloat16" :
			  !strcmp(type, "i64") ? "Long" : "Char";
	const long long n = t->n, again = t->again;
	char *key = t_fmt("%lld", again < 0 ? m->storages++ : again);
	char *member = t_fmt("%s/data/%s", m->prefix, key);
	uint8_t *data = t_alloc((size_t)n * 8);
	char *name = t_fmt("ctorch\n%sStorage\n", cls);
	size_t bytes = 0;

	for (long long i = 0; i < n; i++)
		bytes += element(type, data + bytes, t->alike ? t->first : t->first + i);
	if (again < 0 && m->legacy) {
		t_pkl_put(&m->data, &n, 8);
		t_pkl_put(&m->data, data, bytes);
	} else if (again < 0) {
		t_zip_add(&m->zip, member, data, bytes);
	}
	puts_op(m, "(");
	t_pkl_str(&m->pickle, "storage", 7);
	puts_op(m, name);
	t_pkl_str(&m->pickle, key, strlen(key));
	t_pkl_str(&m->pickle, "cpu", 3);
	put_int(m, n);
	puts_op(m, m->legacy ? "NtQ" : "tQ");
	free(key);
	free(member);
	free(data);
	free(name);
}

/* One word of it; how many characters, or 0. */
static int tensor_word(struct tensor *t, const char *s)
{
	int used = 0;

	t->alike |= !strncmp(s, " !", 2);
	if (sscanf(s, " @%lld%n", &t->first, &used) == 1 ||
	    sscanf(s, " !%lld%n", &t->first, &used) == 1 ||
	    sscanf(s, " =%lld%n", &t->again, &used) == 1 ||
	    sscanf(s, " +%lld%n", &t->offset, &used) == 1)
		return used;
	if (t->nstrides < 8 && sscanf(s, " *%lld%n", &t->stride[t->nstrides], &used) == 1) {
		t->nstrides++;
		return used;
	}
	if (t->ndim < 8 && sscanf(s, " %lld%n", &t->dim[t->ndim], &used) == 1) {
		t->n *= t->dim[t->ndim++];
		return used;
	}
	used = strncmp(s, " neg", 4) ? 0 : 4;
	t->neg |= used != 0;
	return used;
}

/* "f32 2 3 @10>"; returns what follows. */
static const char *put_tensor(struct maker *m, const char *s)
{
	struct tensor t = { .n = 1, .again = -1 };
	int used;

	if (sscanf(s, "%7[a-z0-9]%n", t.type, &used) != 1)
		t_die("no tensor: %s", s);
	for (s += used; *s != '>'; s += used) {
		used = tensor_word(&t, s);
		if (!used)
			t_die("no tensor: %s", s);
	}
	puts_op(m, "ctorch._utils\n_rebuild_tensor_v2\n(");
	put_storage(m, &t);
	put_int(m, t.offset);
	puts_op(m, "(");
	for (int i = 0; i < t.ndim; i++)
		put_int(m, t.dim[i]);
	puts_op(m, "t(");
	for (int i = 0; i < t.ndim; i++) {
		long long stride = 1;

		for (int k = i + 1; k < t.ndim; k++)
			stride *= t.dim[k];
		put_int(m, t.nstrides ? t.stride[i] : stride);
	}
	puts_op(m, "t\x89" "ccollections\nOrderedDict\n)R");
	if (t.neg) {
		puts_op(m, "}");
		t_pkl_str(&m->pickle, "neg", 3);
		puts_op(m, "\x88s");
	}
	puts_op(m, "tR");
	return s + 1;
}

static const char *put_scalar(struct maker *m, const char *s)
{
	const size_t n = strcspn(s, " ]})");
	char *end;

	if (!strncmp(s, "None", n))
		puts_op(m, "N");
	else if (memchr(s, '.', n))
		put_float(m, strtod(s, &end));
	else
		put_int(m, strtoll(s, &end, 10));
	return s + n;
}

static const char *put_token(struct maker *m, const char *s)
{
	static const char text[] = "{}[]()";
	static const char *const ops[] = { "}(", "u", "](", "e", "(", "t" };
	const char *at = strchr(text, *s);

	if (at) {
		puts_op(m, ops[at - text]);
		return s + 1;
	}
	if (*s == '\'') {
		const char *end = strchr(s + 1, '\'');

		t_pkl_str(&m->pickle, s + 1, (size_t)(end - s - 1));
		return end + 1;
	}
	return *s == '<' ? put_tensor(m, s + 1) : put_scalar(m, s);
}

static void add_member(struct maker *m, const char *name, const void *data, size_t n)
{
	char *full = t_fmt("%s/%s", m->prefix, name);

	t_zip_add(&m->zip, full, data, n);
	free(full);
}

static void put_text(struct maker *m, const char *text)
{
	puts_op(m, "\x80\x02");
	for (const char *s = text; *s;)
		s = isspace((unsigned char)*s) ? s + 1 : put_token(m, s);
	puts_op(m, ".");
}

void t_pkl_save(const char *path, const char *text)
{
	const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	struct maker m = { .prefix = t_fmt("%.*s", (int)strlen(base) - 3, base) };

	put_text(&m, text);
	add_member(&m, "data.pkl", m.pickle.p, m.pickle.n);
	add_member(&m, "version", "3\n", 2);
	t_zip_end(&m.zip);
	t_file_write(path, m.zip.p, m.zip.n);
	free(m.zip.p);
	free(m.pickle.p);
	free(m.prefix);
}

void t_pkl_save_legacy(const char *path, const char *text)
{
	struct maker m = { .prefix = t_fmt("legacy"), .legacy = 1 };

	/* magic number, protocol, what machine it was */
	T_PKL_PUT(&m.pickle, "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.");
	T_PKL_PUT(&m.pickle, "\x80\x02M\xe9\x03.\x80\x02}(");
	t_pkl_str(&m.pickle, "protocol_version", 16);
	T_PKL_PUT(&m.pickle, "M\xe9\x03");
	t_pkl_str(&m.pickle, "little_endian", 13);
	T_PKL_PUT(&m.pickle, "\x88u.");
	put_text(&m, text);
	T_PKL_PUT(&m.pickle, "\x80\x02](");
	for (int i = 0; i < m.storages; i++) {
		char *key = t_fmt("%d", i);

		t_pkl_str(&m.pickle, key, strlen(key));
		free(key);
	}
	T_PKL_PUT(&m.pickle, "e.");
	t_pkl_put(&m.pickle, m.data.p, m.data.n);
	t_file_write(path, m.pickle.p, m.pickle.n);
	free(m.data.p);
	free(m.pickle.p);
	free(m.prefix);
}

static uint32_t le(const uint8_t *p, int n)
{
	uint32_t v = 0;

	while (n--)
		v = v << 8 | p[n];
	return v;
}

void t_pkl_deflate(const char *path)
{
	struct t_zip z = { 0 };
	size_t n, end, at;
	uint8_t *b = t_file_read(path, &n);

	if (!b || n < 22)
		t_die("no archive at %s", path);
	end = n - 22;
	while (end && memcmp(b + end, "PK\5\6", 4))
		end--;
	at = le(b + end + 16, 4);
	for (uint32_t i = le(b + end + 10, 2); i > 0; i--) {
		const uint32_t len = le(b + at + 28, 2), size = le(b + at + 24, 4);
		const size_t local = le(b + at + 42, 4);
		char *name = t_fmt("%.*s", (int)len, b + at + 46);

		t_zip_deflate(&z, name, b + local + 30 + le(b + local + 26, 2) +
			      le(b + local + 28, 2), size);
		at += 46 + len + le(b + at + 30, 2) + le(b + at + 32, 2);
		free(name);
	}
	t_zip_end(&z);
	t_file_write(path, z.p, z.n);
	free(z.p);
	free(b);
}
