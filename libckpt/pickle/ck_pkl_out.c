/*
 * ck_pkl_out.c -- pieces of a pickle: the memo, scalars, names and texts of the writer's own.
 */
#include "libckpt/pickle/ck_pkl_out.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/pickle/ck_pkl_vm.h"

#define KEY_BYTES (CK_PKL_NAME_MAX + 64)

struct ckpt_err *ck_pkl_out_err(struct ck_pkl_out *out)
{
	return out->err;
}

int ck_pkl_out_put(struct ck_pkl_out *out, const void *p, size_t n)
{
	return ck_buf_add(&out->buf, p, n, out->err);
}

int ck_pkl_out_op(struct ck_pkl_out *out, uint8_t op)
{
	return ck_pkl_out_put(out, &op, 1);
}

int ck_pkl_out_number(struct ck_pkl_out *out, uint8_t op, unsigned width, uint64_t v)
{
	uint8_t p[9] = { op };

	for (unsigned i = 0; i < width; i++)
		p[1 + i] = (uint8_t)(v >> (8 * i));
	return ck_pkl_out_put(out, p, 1 + width);
}

/* ---- the memo ---- */

static uint64_t slot_of(const struct ck_pkl_out *out, const struct ck_val *v)
{
	uint64_t h = (uint64_t)(uintptr_t)v * UINT64_C(0x9e3779b97f4a7c15);

	return (h >> 20) & (out->nslots - 1);
}

bool ck_pkl_memo_find(const struct ck_pkl_out *out, const struct ck_val *v, uint32_t *memo_out)
{
	if (!out->nslots)
		return false;
	for (uint64_t i = slot_of(out, v);; i = (i + 1) & (out->nslots - 1)) {
		if (!out->seen[i].v)
			return false;
		if (out->seen[i].v == v) {
			*memo_out = out->seen[i].memo;
			return true;
		}
	}
}

static void memo_place(struct ck_pkl_out *out, const struct seen *s)
{
	uint64_t i = slot_of(out, s->v);

	while (out->seen[i].v)
		i = (i + 1) & (out->nslots - 1);
	out->seen[i] = *s;
}

static int memo_grow(struct ck_pkl_out *out)
{
	const uint64_t had = out->nslots;
	struct seen *old = out->seen;
	struct seen *now = ck_zalloc((had ? 2 * had : 256) * sizeof(*now));

	if (!now)
		return ck_fail_nomem(out->err, "a memo", had);
	out->seen = now;
	out->nslots = had ? 2 * had : 256;
	for (uint64_t i = 0; i < had; i++)
		if (old[i].v)
			memo_place(out, &old[i]);
	ck_free(old);
	return 0;
}

/* The next number, to what lies on top of the stack. */
int ck_pkl_out_memo(struct ck_pkl_out *out)
{
	const uint64_t i = out->memo++;

	if (i > UINT32_MAX)
		return ck_fail(out->err, CKPT_E_UNSUPPORTED, NULL, CKPT_NO_OFFSET,
			       "the pickle would have more than 2^32 values");
	return i < 256 ? ck_pkl_out_number(out, 'q', 1, i) : ck_pkl_out_number(out, 'r', 4, i);
}

int ck_pkl_memo_put(struct ck_pkl_out *out, const struct ck_val *v)
{
	const struct seen s = { v, (uint32_t)out->memo };
	int rc = ck_pkl_out_memo(out);

	if (!rc && 4 * (out->nseen + 1) > 3 * out->nslots)
		rc = memo_grow(out);
	if (rc)
		return rc;
	memo_place(out, &s);
	out->nseen++;
	return 0;
}

int ck_pkl_memo_get(struct ck_pkl_out *out, uint32_t i)
{
	return i < 256 ? ck_pkl_out_number(out, 'h', 1, i) : ck_pkl_out_number(out, 'j', 4, i);
}

/* ---- scalars ---- */

int ck_pkl_out_int(struct ck_pkl_out *out, int64_t i)
{
	const uint64_t u = (uint64_t)i;
	uint8_t p[10] = { 0x8a };
	uint8_t n = 8;

	if (i >= 0 && i <= 0xff)
		return ck_pkl_out_number(out, 'K', 1, u);
	if (i >= 0 && i <= 0xffff)
		return ck_pkl_out_number(out, 'M', 2, u);
	if (i >= INT32_MIN && i <= INT32_MAX)
		return ck_pkl_out_number(out, 'J', 4, u);
	ck_put_le64(p + 2, u);
	while (p[1 + n] == (i < 0 ? 0xff : 0) && (p[n] >> 7) == (i < 0))
		n--;
	p[1] = n;
	return ck_pkl_out_put(out, p, 2u + n);
}

int ck_pkl_out_bool(struct ck_pkl_out *out, bool b)
{
	return ck_pkl_out_op(out, b ? 0x88 : 0x89);
}

int ck_pkl_out_too_long(struct ck_pkl_out *out, uint64_t n)
{
	return ck_fail(out->err, CKPT_E_UNSUPPORTED, NULL, CKPT_NO_OFFSET,
		       "a value has %" PRIu64 " bytes, but pickle protocol 2 holds less than 4 "
		       "GiB in one", n);
}

int ck_pkl_out_bigint(struct ck_pkl_out *out, const struct ck_val *v)
{
	const uint64_t n = v->u.str.len;
	int rc;

	if (n > INT32_MAX)
		return ck_pkl_out_too_long(out, n);
	rc = n < 256 ? ck_pkl_out_number(out, 0x8a, 1, n) : ck_pkl_out_number(out, 0x8b, 4, n);
	return rc ? rc : ck_pkl_out_put(out, v->u.str.p, n);
}

int ck_pkl_out_float(struct ck_pkl_out *out, double f)
{
	uint8_t p[9] = { 'G' };
	uint64_t u;

	memcpy(&u, &f, sizeof(u));
	for (int i = 0; i < 8; i++)
		p[1 + i] = (uint8_t)(u >> (56 - 8 * i));
	return ck_pkl_out_put(out, p, sizeof(p));
}

int ck_pkl_out_str(struct ck_pkl_out *out, const char *p, uint64_t n)
{
	int rc = n > UINT32_MAX ? ck_pkl_out_too_long(out, n) : ck_pkl_out_number(out, 'X', 4, n);

	return rc ? rc : ck_pkl_out_put(out, p, n);
}

/* ---- names, and texts of the writer's own ---- */

/* Python 3 -> 2, as its pickler does below protocol 3.  name NULL: the whole module. */
static const struct {
	const char *module, *name, *old_module, *old_name;
} old_names[] = {
	{ "builtins", "range", "__builtin__", "xrange" },
	{ "builtins", "chr", "__builtin__", "unichr" },
	{ "builtins", "str", "__builtin__", "unicode" },
	{ "builtins", "int", "__builtin__", "long" },
	{ "builtins", "zip", "itertools", "izip" },
	{ "builtins", "map", "itertools", "imap" },
	{ "builtins", "filter", "itertools", "ifilter" },
	{ "collections", "UserDict", "UserDict", "IterableUserDict" },
	{ "collections", "UserList", "UserList", "UserList" },
	{ "collections", "UserString", "UserString", "UserString" },
	{ "builtins", NULL, "__builtin__", NULL }, { "copyreg", NULL, "copy_reg", NULL },
	{ "queue", NULL, "Queue", NULL }, { "configparser", NULL, "ConfigParser", NULL },
	{ "reprlib", NULL, "repr", NULL },
};

static void rename3to2(const char **module, const char **name)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(old_names); i++) {
		if (strcmp(*module, old_names[i].module) ||
		    (old_names[i].name && strcmp(*name, old_names[i].name)))
			continue;
		*module = old_names[i].old_module;
		if (old_names[i].name)
			*name = old_names[i].old_name;
		return;
	}
}

/* 1: it was written before, and a reference to it now; 0: it is new, with the next number. */
static int intern(struct ck_pkl_out *out, const char *key)
{
	uint64_t old = 0;
	char *copy;
	int rc;

	if (ck_map_find(&out->names, key, strlen(key), &old)) {
		rc = ck_pkl_memo_get(out, (uint32_t)old);
		return rc ? rc : 1;
	}
	copy = ck_arena_strdup(&out->keys, key);
	if (!copy)
		return ck_fail_nomem(out->err, "names", strlen(key));
	rc = ck_map_add(&out->names, copy, strlen(copy), out->memo, NULL, out->err);
	return rc < 0 ? rc : 0;
}

int ck_pkl_out_text(struct ck_pkl_out *out, const char *s)
{
	char key[KEY_BYTES];
	int rc = snprintf(key, sizeof(key), "\n%s", s);

	if (rc < 0 || (size_t)rc >= sizeof(key))
		return ck_fail(out->err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "a text of %zu bytes is too long to be written once and used "
			       "twice", strlen(s));
	rc = intern(out, key);
	if (rc)
		return rc < 0 ? rc : 0;
	rc = ck_pkl_out_str(out, s, strlen(s));
	return rc ? rc : ck_pkl_out_memo(out);
}

static int check_name(struct ck_pkl_out *out, const char *module, const char *name)
{
	if (ck_pkl_class_of(module, name) == CK_PKL_REFUSED)
		return ck_fail(out->err, CKPT_E_UNSAFE, NULL, CKPT_NO_OFFSET,
			       "zckpt does not write %.120s.%.120s into a pickle: no checkpoint "
			       "needs it, and loading it would run it", module, name);
	if (strchr(name, '.'))
		return ck_fail(out->err, CKPT_E_UNSUPPORTED, NULL, CKPT_NO_OFFSET,
			       "%.120s.%.120s is inside a class, which pickle protocol 2 "
			       "(torch's) cannot name", module, name);
	return 0;
}

/* module and name as protocol 2 spells them */
static int put_global(struct ck_pkl_out *out, const char *module, const char *name)
{
	char key[KEY_BYTES];
	int rc;

	rename3to2(&module, &name);
	/* It fits: a longer name is of the refused set. */
	snprintf(key, sizeof(key), "%s\n%s\n", module, name);
	rc = intern(out, key);
	if (rc)
		return rc < 0 ? rc : 0;
	rc = ck_pkl_out_op(out, 'c');
	if (!rc)
		rc = ck_pkl_out_put(out, key, strlen(key));
	return rc ? rc : ck_pkl_out_memo(out);
}

int ck_pkl_out_global(struct ck_pkl_out *out, const char *module, const char *name)
{
	int rc = check_name(out, module, name);

	return rc ? rc : put_global(out, module, name);
}

int ck_pkl_out_getattr(struct ck_pkl_out *out)
{
	return put_global(out, "builtins", "getattr");
}
