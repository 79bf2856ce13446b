/* Fuzz target: packs, and archives of others. What opens is a checkpoint; what is unpacked stays
 * in its folder, or nothing is there. */
#include "tests/fuzz/fz.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_base.h"
#include "libckpt/base/ck_hash.h"

#define IN FZ_ROOT "/in.tar.zst"
#define OUT FZ_ROOT "/out"

/* The hash of the index, if there is one, made right, or no change of it would be looked at. */
static void set_sum(uint8_t *p, size_t n)
{
	struct ck_hash128 sum;
	uint64_t table, index;

	if (n < 17 || ck_le32(p + n - 4) != 0x8F92EAB1u)
		return;
	table = 17 + (uint64_t)ck_le32(p + n - 9) * 8;
	if (table > n || table < 25)
		return;
	index = ck_le32(p + n - 17);
	if (index > n - table || index < 8 + 16)
		return;
	p += n - table - index + 8;
	index -= 8;
	sum = ck_hash128(p, index - 16);
	ck_put_le64(p + index - 16, sum.lo);
	ck_put_le64(p + index - 8, sum.hi);
}

static void unpack(void)
{
	const struct ckpt_run_opts run = { .size = sizeof(run), .threads = 1,
					   .sync = CKPT_SYNC_NONE };
	const struct ckpt_unpack_opts opts = { .size = sizeof(opts), .run = &run,
					       .limits = fz_limits() };
	const size_t before = fz_fs_count();
	struct ckpt_packed done = { .files = 0 };
	struct ckpt_err err = { 0 };

	if (fz_ok(ckpt_unpack(IN, OUT, &opts, &done, &err), &err, "ckpt_unpack")) {
		if (!done.files || !fz_fs_is_dir(OUT))
			fz_die("unpacked, and nothing is there");
		fz_fs_remove(OUT);
	}
	if (fz_fs_count() != before)
		fz_die("unpacking left something outside of its folder");
}

void fz_pack(const uint8_t *p, size_t n)
{
	uint8_t *copy = malloc(n + 1);

	if (!copy)
		return;
	memcpy(copy, p, n);
	set_sum(copy, n);
	if (fz_fs_put(IN, copy, n)) {
		unpack();
		fz_check(IN, NULL);
	}
	free(copy);
}
