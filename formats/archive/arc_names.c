/* arc_names.c -- which names of an archive become files: those that stay below a folder. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/archive/ck_pack.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_search.h"
#include "libckpt/base/ck_sys.h"

#define MAX_NAME 4096u
#define MAX_COMPONENT 255u

/* Bytes of the UTF-8 sequence at p, 0 = there is none (overlong forms and surrogates are none). */
static size_t utf8_len(const uint8_t *p, size_t n)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	const size_t k = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 :
			 p[0] < 0xf5 ? 4 : 0;
	uint32_t v = k > 1 ? p[0] & (0x7fu >> k) : p[0];

	if (!k || k > n)
		return 0;
	for (size_t i = 1; i < k; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		v = v << 6 | (p[i] & 0x3f);
	}
	return v < least[k] || v > 0x10ffff || (v >= 0xd800 && v < 0xe000) ? 0 : k;
}

static const char *bad_bytes(const char *name, size_t n)
{
	for (size_t i = 0; i < n;) {
		const uint8_t c = (uint8_t)name[i];
		const size_t k = utf8_len((const uint8_t *)name + i, n - i);

		if (!k)
			return "has bytes that are not UTF-8";
		if (c < 0x20 || c == 0x7f)
			return "has a control character";
		i += k;
	}
	return NULL;
}

static const char *bad_parts(const char *name, size_t n)
{
	for (size_t i = 0; i <= n;) {
		const char *part = name + i, *slash = memchr(part, '/', n - i);
		const size_t k = slash ? (size_t)(slash - part) : n - i;

		if (!k)
			return i ? "has an empty component" : "is absolute, or empty";
		if (k == 2 && !memcmp(part, "..", 2))
			return "leads out of its folder (..)";
		if (k == 1 && part[0] == '.')
			return "has a component '.'";
		if (k > MAX_COMPONENT)
			return "has a component of more than 255 bytes";
		i += k + 1;
	}
	return NULL;
}

int ck_arc_name_check(const char *name, size_t n, const char *where, struct ckpt_err *err)
{
	const char *bad = n > MAX_NAME ? "has more than 4096 bytes" : bad_parts(name, n);

	if (!bad)
		bad = bad_bytes(name, n);
	if (!bad)
		return 0;
	return ck_fail(err, CKPT_E_UNSAFE, where, CKPT_NO_OFFSET,
		       "refused: the archive has a file whose name %s: %.*s", bad,
		       (int)ck_min_u64(n, 120), name);
}

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Is the folder of this length a file as well? */
static bool is_file(const char *const *sorted, uint64_t n, const char *name, size_t len)
{
	uint64_t i;

	CK_LOWER_BOUND(i, n, strncmp(sorted[i], name, len) < 0);
	return i < n && !strncmp(sorted[i], name, len) && !sorted[i][len];
}

static int check_sorted(const char *const *sorted, uint64_t n, const char *where,
			struct ckpt_err *err)
{
	for (uint64_t i = 0; i < n; i++) {
		const char *name = sorted[i], *slash = strchr(name, '/');

		if (i && !strcmp(name, sorted[i - 1]))
			return ck_fail(err, CKPT_E_UNSAFE, where, CKPT_NO_OFFSET,
				       "refused: the archive holds two files of the same name: "
				       "%.120s", name);
		for (; slash; slash = strchr(slash + 1, '/'))
			if (is_file(sorted, n, name, (size_t)(slash - name)))
				return ck_fail(err, CKPT_E_UNSAFE, where, CKPT_NO_OFFSET,
					       "refused: the archive holds %.120s, and its "
					       "folder is also a file in the archive", name);
	}
	return 0;
}

int ck_arc_names_check(const char *const *name, uint64_t n, const char *where,
		       struct ckpt_err *err)
{
	const char **sorted = ck_alloc_array(n + 1, sizeof(*sorted));
	int rc;

	if (!sorted)
		return ck_fail_nomem(err, "names", n);
	if (n) {
		memcpy(sorted, name, n * sizeof(*sorted));
		qsort(sorted, n, sizeof(*sorted), by_bytes);
	}
	rc = check_sorted(sorted, n, where, err);
	ck_free(sorted);
	return rc;
}
