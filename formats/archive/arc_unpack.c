/* arc_unpack.c -- `unpack`: a pack by its index, on several threads; others in arc_plain.c. */
#include <string.h>

#include "formats/archive/arc_dest.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

static int write_piece(void *arg, uint64_t entry, uint64_t off, const void *p, size_t n,
		       struct ckpt_err *err)
{
	const struct arc_dest *d = arg;

	return ck_stage_write(d->stage, d->number[entry], off, p, n, err);
}

static struct arc_dest_file *list_files(const struct ck_pack_index *ix)
{
	struct arc_dest_file *file = ck_alloc_array(ix->n + 1, sizeof(*file));

	for (uint64_t i = 0; file && i < ix->n; i++)
		file[i] = (struct arc_dest_file){
			.name = ix->entry[i].name, .bytes = ix->entry[i].bytes,
			.hash = &ix->entry[i].hash,
		};
	return file;
}

static int unpack_pack(const struct ck_unpack_want *want, struct ck_pack *pack,
		       struct ck_pack_done *done_out, struct ckpt_err *err)
{
	const struct ck_pack_index *ix = ck_pack_index(pack);
	struct ck_pack_done done = { .files = ix->n, .kind = "pack" };
	struct arc_dest_file *file = list_files(ix);
	struct arc_dest d = { .want = want };
	bool settled = false;
	int rc = file ? ck_arc_dest_init(&d, want, file, ix->n, err) :
		 ck_fail_nomem(err, "a list of files", ix->n);

	if (!rc)
		rc = ck_arc_dest_begin(&d, &settled, err);
	if (!rc && !settled && !(want->flags & CKPT_WRITE_DRY_RUN)) {
		rc = ck_pack_walk(pack, want->run, want->limits->zip_dir_bytes, write_piece, &d,
				  err);
		if (!rc)
			rc = ck_arc_dest_commit(&d, err);
	}
	done.free = d.free;
	ck_arc_dest_release(&d, rc);
	for (uint64_t i = 0; i < ix->n; i++)
		done.bytes += ix->entry[i].bytes;
	ck_free(file);
	if (!rc)
		*done_out = done;
	return rc;
}

int ck_unpack(const struct ck_unpack_want *want, struct ck_pack_done *done_out,
	      struct ckpt_err *err)
{
	const bool dry = want->flags & CKPT_WRITE_DRY_RUN;
	struct ck_pack *pack = NULL;
	struct ck_src *src = NULL;
	int rc = ck_src_open(want->pool, want->path, &src, err);

	if (!rc)
		rc = ck_pack_open(src, want->limits, &pack, err);
	ck_fdpool_set_drop(want->pool, pack != NULL);	/* others are read twice */
	if (!rc)
		rc = pack ? unpack_pack(want, pack, done_out, err) :
		     ck_unpack_plain(want, src, done_out, err);
	if (rc)
		rc = ck_fdpool_check(want->pool, rc, err);
	if (!rc) {
		done_out->archive = ck_src_size(src);
		done_out->to_write = dry ? done_out->bytes : 0;
		/* one that has no index is looked through first */
		done_out->to_read = dry ? done_out->archive * (pack ? 1 : 2) : 0;
		done_out->threads = pack ? want->run->threads : 1;
	}
	ck_pack_close(pack);
	ck_src_close(src);
	return rc;
}
