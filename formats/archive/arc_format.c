/* arc_format.c -- the driver of packs. */
#include "formats/archive/ck_pack.h"
#include "libckpt/format/ck_format.h"

static int probe(const struct ck_input *in)
{
	return !in->is_dir && in->head_len >= 4 && ck_le32(in->head) == 0xFD2FB528u ? 30 : 0;
}

const struct ck_archive_format ck_format_archive = {
	.probe = probe,
	.mount = ck_pack_mount,
	.pack = ck_pack_make,
	.unpack = ck_unpack,
};
