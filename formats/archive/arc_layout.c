/* arc_layout.c -- where everything of a pack to be lies in its tar stream; see arc_layout.h. */
#include "formats/archive/arc_layout.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_search.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_mount.h"

static int64_t mtime_of(const struct stat *st)
{
	return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

/* Bytes that another file gives, or that were made. */
static int open_source(const struct ck_pack_want *want, uint64_t i, struct arc_layout *l,
		       struct ckpt_err *err)
{
	const struct ck_pack_file *f = &want->file[i];
	struct arc_source *s = &l->source[i];
	const bool own = f->path && !ck_mount_holds(ck_fdpool_mount(want->pool), f->path);
	struct stat st;
	int rc;

	if (!f->path) {
		rc = ck_src_mem(f->text, strlen(f->text), f->name, &s->src, err);
	} else {
		if (own && ck_sys.stat(f->path, &st))
			return ck_fail_sys(err, errno, "stat", f->path);
		if (own && !S_ISREG(st.st_mode))
			return ck_fail(err, CKPT_E_UNSUPPORTED, f->path, CKPT_NO_OFFSET,
				       "only regular files go into a pack");
		rc = ck_src_open(want->pool, f->path, &s->src, err);
	}
	if (rc || !own)
		return rc;
	s->mtime_ns = mtime_of(&st);
	s->executable = st.st_mode & S_IXUSR;
	return 0;
}

static int add_file(const struct ck_pack_want *want, uint64_t i, uint64_t *at,
		    struct arc_layout *l, struct ckpt_err *err)
{
	struct ck_pack_entry *e = &l->ix.entry[i];
	const char *name = want->file[i].name;
	struct ck_tar_file tar = { .name = name };
	int rc = ck_arc_name_check(name, strlen(name), want->file[i].path, err);

	if (!rc)
		rc = open_source(want, i, l, err);
	if (rc)
		return rc;
	tar.bytes = ck_src_size(l->source[i].src);
	tar.mtime_ns = l->source[i].mtime_ns;
	tar.executable = l->source[i].executable;
	l->head_at[i] = *at;
	l->head_pos[i] = l->heads.len;
	rc = ck_tar_header(&tar, &l->heads, err);
	if (rc)
		return rc;
	*e = (struct ck_pack_entry){
		.name = ck_arena_strdup(&l->ix.arena, name), .bytes = tar.bytes,
		.mtime_ns = tar.mtime_ns, .at = *at + (l->heads.len - l->head_pos[i]),
	};
	if (!e->name)
		return ck_fail_nomem(err, "a name", strlen(name));
	*at = e->at + e->bytes + ck_tar_pad(e->bytes);
	return 0;
}

static int check_names(const struct arc_layout *l, struct ckpt_err *err)
{
	const char **list = ck_alloc_array(l->ix.n + 1, sizeof(*list));
	int rc;

	if (!list)
		return ck_fail_nomem(err, "names", l->ix.n);
	for (uint64_t i = 0; i < l->ix.n; i++)
		list[i] = l->ix.entry[i].name;
	rc = ck_arc_names_check(list, l->ix.n, "the pack to be", err);
	ck_free(list);
	return rc;
}

static int lay_out(const struct ck_pack_want *want, struct arc_layout *l, struct ckpt_err *err)
{
	uint64_t at = 0;
	int rc = 0;

	l->source = ck_zalloc((want->n + 1) * sizeof(*l->source));
	l->head_at = ck_alloc_array(want->n + 1, sizeof(*l->head_at));
	l->head_pos = ck_alloc_array(want->n + 1, sizeof(*l->head_pos));
	l->ix.entry = ck_alloc_array(want->n + 1, sizeof(*l->ix.entry));
	if (!l->source || !l->head_at || !l->head_pos || !l->ix.entry)
		return ck_fail_nomem(err, "a list of files", want->n);
	for (; !rc && l->ix.n < want->n; l->ix.n++)
		rc = add_file(want, l->ix.n, &at, l, err);
	if (rc)
		return rc;
	l->head_at[want->n] = at;
	l->head_pos[want->n] = l->heads.len;
	l->ix.content = at + CK_TAR_END;
	l->ix.nframes = (l->ix.content + CK_PACK_FRAME - 1) / CK_PACK_FRAME;
	l->ix.frame = ck_zalloc((l->ix.nframes + 1) * sizeof(*l->ix.frame));
	return l->ix.frame ? check_names(l, err) : ck_fail_nomem(err, "frames", l->ix.nframes);
}

int ck_arc_layout_init(struct arc_layout *l, const struct ck_pack_want *want, struct ckpt_err *err)
{
	int rc;

	*l = (struct arc_layout){ .want = want, .heads = CK_BUF_INIT(want->limits->zip_dir_bytes) };
	rc = lay_out(want, l, err);
	if (rc)
		ck_arc_layout_release(l);
	return rc;
}

void ck_arc_layout_release(struct arc_layout *l)
{
	for (uint64_t i = 0; l->source && i <= l->ix.n; i++)
		ck_src_close(l->source[i].src);
	ck_free(l->source);
	ck_free(l->head_at);
	ck_free(l->head_pos);
	ck_buf_release(&l->heads);
	ck_pack_index_release(&l->ix);
	memset(l, 0, sizeof(*l));
}

struct ck_hash128 ck_arc_layout_hash(const struct arc_layout *l)
{
	struct ck_hash128 sum = ck_hash128(l->heads.p, l->heads.len);

	for (uint64_t i = 0; i < l->ix.n; i++) {
		const uint64_t part[2] = { (uint64_t)l->source[i].mtime_ns, i };

		sum = ck_hash128_add(sum, ck_hash128(part, sizeof(part)));
	}
	return sum;
}

/* The last file whose header begins at or before 'at'. */
static uint64_t file_at(const struct arc_layout *l, uint64_t at)
{
	uint64_t i;

	CK_LOWER_BOUND(i, l->ix.n + 1, l->head_at[i] <= at);
	return i ? i - 1 : 0;
}

int ck_arc_layout_read(const struct arc_layout *l, uint64_t at, uint8_t *p, uint64_t n,
		    struct ckpt_err *err)
{
	const uint64_t end = at + n;
	int rc = 0;

	for (uint64_t i = file_at(l, at); !rc && at < end; i++) {
		const struct ck_pack_entry *e = &l->ix.entry[i];
		uint64_t k;

		if (i == l->ix.n) {
			memset(p, 0, end - at);
			break;
		}
		if (at < e->at) {
			k = ck_min_u64(e->at, end) - at;
			memcpy(p, l->heads.p + l->head_pos[i] + (at - l->head_at[i]), k);
			at += k;
			p += k;
		}
		if (at < end && at < e->at + e->bytes) {
			k = ck_min_u64(e->at + e->bytes, end) - at;
			rc = ck_src_read(l->source[i].src, at - e->at, p, k, err);
			if (!rc && l->want->saw)
				rc = l->want->saw(l->want->arg, i, at - e->at, p, k, err);
			at += k;
			p += k;
		}
		if (at < end && at < l->head_at[i + 1]) {
			k = ck_min_u64(l->head_at[i + 1], end) - at;
			memset(p, 0, k);
			at += k;
			p += k;
		}
	}
	return rc;
}
