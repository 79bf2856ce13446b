/*
 * gen_pickle.h - writes protocol 2 pickles the way CPython's pickler does:
 * every memoizable object gets the next memo number, a string or a global
 * met again is fetched from the memo, dicts and lists are filled in batches
 * of 1000. Used by gen_zero.c only; running out of memory ends the program.
 */
#ifndef GEN_PICKLE_H
#define GEN_PICKLE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pk_seen {
	char *key;		/* kind letter, then the text */
	uint32_t id;
};

struct pk {
	uint8_t *b;
	size_t n, cap;
	uint32_t memo;
	struct pk_seen *seen;
	size_t n_seen, cap_seen;	/* cap_seen is 0 or a power of two */
};

/* A dict or list being filled: n entries in all, i of them begun. */
struct pk_fill {
	size_t n, i;
	int is_list;
};

static void *gen_alloc(void *old, size_t n)
{
	void *p = realloc(old, n ? n : 1);

	if (!p) {
		fprintf(stderr, "gen_zero: out of memory for %zu bytes\n", n);
		exit(3);
	}
	return p;
}

static void pk_raw(struct pk *k, const void *p, size_t n)
{
	if (k->cap - k->n < n) {
		k->cap = (k->cap + n) * 2;
		k->b = gen_alloc(k->b, k->cap);
	}
	memcpy(k->b + k->n, p, n);
	k->n += n;
}

static void pk_op(struct pk *k, int op)
{
	uint8_t c = (uint8_t)op;

	pk_raw(k, &c, 1);
}

static void pk_le(struct pk *k, uint64_t v, size_t n)
{
	uint8_t b[8];

	for (size_t i = 0; i < n; i++)
		b[i] = (uint8_t)(v >> 8 * i);
	pk_raw(k, b, n);
}

/* An operation with a one-byte or a four-byte number behind it. */
static void pk_memo_op(struct pk *k, int small, int large, uint32_t id)
{
	pk_op(k, id < 256 ? small : large);
	pk_le(k, id, id < 256 ? 1 : 4);
}

static uint32_t pk_put(struct pk *k)
{
	pk_memo_op(k, 'q', 'r', k->memo);
	return k->memo++;
}

static size_t pk_slot(const struct pk *k, const char *key)
{
	uint64_t h = 1469598103934665603u;

	for (const char *s = key; *s; s++)
		h = (h ^ (uint8_t)*s) * 1099511628211u;
	for (size_t i = (size_t)h & (k->cap_seen - 1);;
	     i = (i + 1) & (k->cap_seen - 1))
		if (!k->seen[i].key || !strcmp(k->seen[i].key, key))
			return i;
}

static void pk_seen_grow(struct pk *k)
{
	struct pk_seen *old = k->seen;
	size_t n = k->cap_seen;

	k->cap_seen = n ? n * 2 : 1024;
	k->seen = gen_alloc(NULL, k->cap_seen * sizeof *k->seen);
	memset(k->seen, 0, k->cap_seen * sizeof *k->seen);
	for (size_t i = 0; i < n; i++)
		if (old[i].key)
			k->seen[pk_slot(k, old[i].key)] = old[i];
	free(old);
}

/* Fetches key from the memo (returns 1), or makes room for it at *slot. */
static int pk_again(struct pk *k, const char *key, size_t *slot)
{
	size_t i;

	if (k->n_seen * 2 >= k->cap_seen)
		pk_seen_grow(k);
	i = pk_slot(k, key);
	*slot = i;
	if (!k->seen[i].key)
		return 0;
	pk_memo_op(k, 'h', 'j', k->seen[i].id);
	return 1;
}

static void pk_remember(struct pk *k, const char *key, size_t slot)
{
	size_t n = strlen(key) + 1;

	k->seen[slot].key = gen_alloc(NULL, n);
	memcpy(k->seen[slot].key, key, n);
	k->seen[slot].id = pk_put(k);
	k->n_seen++;
}

static void pk_str(struct pk *k, const char *s)
{
	char key[256];
	size_t slot;

	snprintf(key, sizeof key, "u%s", s);
	if (pk_again(k, key, &slot))
		return;
	pk_op(k, 'X');
	pk_le(k, strlen(s), 4);
	pk_raw(k, s, strlen(s));
	pk_remember(k, key, slot);
}

static void pk_global(struct pk *k, const char *module, const char *name)
{
	char key[256];
	size_t slot;
	int n = snprintf(key, sizeof key, "c%s\n%s\n", module, name);

	if (pk_again(k, key, &slot))
		return;
	pk_raw(k, key, (size_t)n);
	pk_remember(k, key, slot);
}

static void pk_int(struct pk *k, uint64_t v)
{
	uint8_t len = 1;

	if (v < 256) {
		pk_op(k, 'K');
		pk_le(k, v, 1);
	} else if (v < 65536) {
		pk_op(k, 'M');
		pk_le(k, v, 2);
	} else if (v <= INT32_MAX) {
		pk_op(k, 'J');
		pk_le(k, v, 4);
	} else {
		while (len < 8 && v >> (8 * len - 1))
			len++;
		pk_op(k, 0x8a);
		pk_op(k, len);
		pk_le(k, v, len);
	}
}

static void pk_float(struct pk *k, double d)
{
	uint64_t v;

	memcpy(&v, &d, 8);
	pk_op(k, 'G');
	for (int i = 7; i >= 0; i--)
		pk_op(k, (int)(v >> 8 * i & 255));
}

static void pk_bool(struct pk *k, int v)
{
	pk_op(k, v ? 0x88 : 0x89);
}

static void pk_none(struct pk *k)
{
	pk_op(k, 'N');
}

/* Ends a tuple of n items; '(' must stand before them if n is above 3. */
static void pk_tuple(struct pk *k, size_t n)
{
	if (!n) {
		pk_op(k, ')');
		return;
	}
	pk_op(k, n <= 3 ? (int)(0x84 + n) : 't');
	pk_put(k);
}

/* A tuple of integers, as of a shape or of strides. */
static void pk_ints(struct pk *k, const uint64_t *v, size_t n)
{
	if (n > 3)
		pk_op(k, '(');
	for (size_t i = 0; i < n; i++)
		pk_int(k, v[i]);
	pk_tuple(k, n);
}

static void pk_reduce(struct pk *k)
{
	pk_op(k, 'R');
	pk_put(k);
}

static void pk_odict_empty(struct pk *k)
{
	pk_global(k, "collections", "OrderedDict");
	pk_op(k, ')');
	pk_reduce(k);
}

static struct pk_fill pk_dict(struct pk *k, size_t n)
{
	struct pk_fill f = { n, 0, 0 };

	pk_op(k, '}');
	pk_put(k);
	return f;
}

static struct pk_fill pk_odict(struct pk *k, size_t n)
{
	struct pk_fill f = { n, 0, 0 };

	pk_odict_empty(k);
	return f;
}

static struct pk_fill pk_list(struct pk *k, size_t n)
{
	struct pk_fill f = { n, 0, 1 };

	pk_op(k, ']');
	pk_put(k);
	return f;
}

/* How many entries the batch holds that entry i of f is in. */
static size_t pk_batch(const struct pk_fill *f, size_t i)
{
	size_t rest = f->n - i / 1000 * 1000;

	return rest < 1000 ? rest : 1000;
}

/* Before each entry of a dict or list. */
static void pk_entry(struct pk *k, struct pk_fill *f)
{
	if (f->i++ % 1000 == 0 && pk_batch(f, f->i - 1) > 1)
		pk_op(k, '(');
}

/* After each entry; closes the batch where it ends. */
static void pk_entry_end(struct pk *k, const struct pk_fill *f)
{
	size_t in_batch = pk_batch(f, f->i - 1);

	if ((f->i - 1) % 1000 + 1 < in_batch)
		return;
	if (f->is_list)
		pk_op(k, in_batch == 1 ? 'a' : 'e');
	else
		pk_op(k, in_batch == 1 ? 's' : 'u');
}

/* A dict entry with a text key: call, write the value, pk_entry_end. */
static void pk_key(struct pk *k, struct pk_fill *f, const char *key)
{
	pk_entry(k, f);
	pk_str(k, key);
}

static void pk_kv_int(struct pk *k, struct pk_fill *f, const char *key,
		      uint64_t v)
{
	pk_key(k, f, key);
	pk_int(k, v);
	pk_entry_end(k, f);
}

static void pk_kv_bool(struct pk *k, struct pk_fill *f, const char *key, int v)
{
	pk_key(k, f, key);
	pk_bool(k, v);
	pk_entry_end(k, f);
}

static void pk_kv_float(struct pk *k, struct pk_fill *f, const char *key,
			double v)
{
	pk_key(k, f, key);
	pk_float(k, v);
	pk_entry_end(k, f);
}

static void pk_kv_none(struct pk *k, struct pk_fill *f, const char *key)
{
	pk_key(k, f, key);
	pk_none(k);
	pk_entry_end(k, f);
}

static void pk_kv_str(struct pk *k, struct pk_fill *f, const char *key,
		      const char *v)
{
	pk_key(k, f, key);
	pk_str(k, v);
	pk_entry_end(k, f);
}

static void pk_item_int(struct pk *k, struct pk_fill *f, uint64_t v)
{
	pk_entry(k, f);
	pk_int(k, v);
	pk_entry_end(k, f);
}

static void pk_start(struct pk *k)
{
	memset(k, 0, sizeof *k);
	pk_raw(k, "\x80\x02", 2);
}

static void pk_free(struct pk *k)
{
	for (size_t i = 0; i < k->cap_seen; i++)
		free(k->seen[i].key);
	free(k->seen);
	free(k->b);
	memset(k, 0, sizeof *k);
}

#endif
