/* Fuzz target: archives. The directory agrees with itself, every member can be read or says why
 * not, and the torch file that it may be is checked as one. */
#include "tests/fuzz/fz.h"

#include <string.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/zip/ck_zip.h"

#define MAX_FIND 512	/* longer names are not looked for */

static void check_entry(const struct ck_zip *zip, const struct ck_zip_entry *e, uint64_t size)
{
	struct ckpt_err err = { 0 };
	uint8_t *data = NULL;
	uint64_t off = 0;

	if (memchr(e->name, 0, e->name_len) || e->name[e->name_len])
		fz_die("a name holds NUL");
	if (e->name_len <= MAX_FIND && ck_zip_entry_find(zip, e->name) != e)
		fz_die("entry \"%s\" is not found by its name", e->name);
	if (fz_ok(ck_zip_data_offset(zip, e, &off, &err), &err, "ck_zip_data_offset") &&
	    (off > size || e->packed > size - off))
		fz_die("\"%s\" lies outside of the archive", e->name);
	err = (struct ckpt_err){ 0 };
	if (fz_ok(ck_zip_read(zip, e, 1 << 20, &data, &err), &err, "ck_zip_read") &&
	    (data[e->bytes] || (e->crc && ck_zip_crc32(0, data, e->bytes) != e->crc)))
		fz_die("\"%s\" is read wrong", e->name);
	ck_free(data);
}

static void look(struct ck_src *src)
{
	struct ckpt_err err = { 0 };
	struct ck_zip *zip = NULL;

	if (!fz_ok(ck_zip_open(src, fz_limits(), &zip, &err), &err, "ck_zip_open"))
		return;
	for (uint64_t i = 0; i < ck_zip_count(zip); i++)
		check_entry(zip, ck_zip_entry_get(zip, i), ck_src_size(src));
	ck_zip_close(zip);
}

void fz_zip(const uint8_t *p, size_t n)
{
	struct ck_src *src = NULL;

	if (!ck_src_mem(p, n, "in.zip", &src, NULL))
		look(src);
	ck_src_close(src);
	if (fz_fs_put(FZ_ROOT "/in.pt", p, n))
		fz_check(FZ_ROOT "/in.pt", NULL);
}
