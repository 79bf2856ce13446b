/*
 * arc_make.c -- `pack`: frames are read and compressed by several threads; where each goes is
 * known when those before it are compressed, so threads take turns with that.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <zstd.h>

#include "formats/archive/arc_layout.h"
#include "formats/archive/arc_turn.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_pool.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_commit.h"
#include "libckpt/commit/ck_stage.h"
#include "libckpt/io/ck_mount.h"

struct worker {
	ZSTD_CCtx *ctx;
	ZSTD_DCtx *again;	/* to a stream: what was compressed is decoded at once */
	uint8_t *content, *p, *check;
};

struct making {
	const struct ck_pack_want *want;
	struct arc_layout l;
	struct ck_stage *stage;	/* NULL = to want->fd */
	uint32_t file;
	struct worker *worker;
	uint32_t threads;
	size_t room;		/* of a compressed frame */
	struct arc_turn turn;
	struct ck_hasher *hash;	/* of the file that the turn stands in, as below */
	uint64_t entry;
	uint64_t off;		/* behind the last frame */
	uint64_t done;		/* bytes of content */
};

static int write_fd(int fd, const uint8_t *p, size_t n, struct ckpt_err *err)
{
	while (n) {
		const ssize_t k = ck_sys.write(fd, p, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return ck_fail_sys(err, k ? errno : EIO, "write", "the output stream");
		p += k;
		n -= (size_t)k;
	}
	return 0;
}

/* The turn is ours: what of the frame belongs to files goes to their hashes. */
static void hash_files(struct making *m, const struct ck_pack_frame *f, const uint8_t *p)
{
	const uint64_t end = f->at + f->content;

	for (; m->entry < m->l.ix.n; m->entry++) {
		struct ck_pack_entry *e = &m->l.ix.entry[m->entry];
		const uint64_t from = ck_max_u64(e->at, f->at);
		const uint64_t to = ck_min_u64(e->at + e->bytes, end);

		if (from < to)
			ck_hasher_add(m->hash, p + (from - f->at), to - from);
		if (e->at + e->bytes > end)
			return;
		e->hash = ck_hasher_sum(m->hash);
		ck_hasher_reset(m->hash);
	}
}

static int compress(struct making *m, struct worker *w, const struct ck_pack_frame *f,
		    size_t *n_out, struct ckpt_err *err)
{
	const size_t n = ZSTD_compress2(w->ctx, w->p, m->room - CK_PACK_TRAILER, w->content,
					f->content);
	size_t back;

	if (ZSTD_isError(n))
		return ck_fail(err, CKPT_E_NOMEM, NULL, CKPT_NO_OFFSET, "zstd: %s",
			       ZSTD_getErrorName(n));
	ck_pack_trailer_put(w->p + n, w->p, n);
	*n_out = n + CK_PACK_TRAILER;
	if (!w->again)
		return 0;
	back = ZSTD_decompressDCtx(w->again, w->check, f->content, w->p, n);
	if (ZSTD_isError(back) || back != f->content || memcmp(w->check, w->content, back))
		return ck_fail(err, CKPT_E_CORRUPT, "the pack to be", CKPT_NO_OFFSET,
			       "a compressed frame does not decompress to the same bytes; "
			       "is this machine's memory faulty?");
	return 0;
}

static int in_turn(struct making *m, struct worker *w, struct ck_pack_frame *f,
		   struct ckpt_err *err)
{
	const struct ckpt_run_opts *run = m->want->run;
	int rc = 0;

	if (run->cancel && *run->cancel)
		return ck_fail(err, CKPT_E_CANCELED, NULL, CKPT_NO_OFFSET, "canceled");
	f->off = m->off;
	m->off += f->bytes;
	hash_files(m, f, w->content);
	if (!m->stage)
		rc = write_fd(m->want->fd, w->p, f->bytes, err);
	m->done += f->content;
	if (!rc && run->progress) {
		const struct ckpt_progress now = { m->done, m->l.ix.content };

		run->progress(run->progress_arg, &now);
	}
	return rc;
}

static int make_frame(void *arg, uint64_t job, uint32_t worker, struct ckpt_err *err)
{
	struct making *m = arg;
	struct worker *w = &m->worker[worker];
	struct ck_pack_frame *f = &m->l.ix.frame[job];
	size_t n = 0;
	int rc;

	f->at = job * CK_PACK_FRAME;
	f->content = (uint32_t)ck_min_u64(CK_PACK_FRAME, m->l.ix.content - f->at);
	rc = ck_arc_layout_read(&m->l, f->at, w->content, f->content, err);
	if (!rc)
		rc = compress(m, w, f, &n, err);
	if (!rc) {
		f->bytes = (uint32_t)n;
		f->hash = ck_hash64(w->content, f->content);
		if (!ck_arc_turn_wait(&m->turn, job))
			return 0;	/* another one failed, and says so */
		rc = in_turn(m, w, f, err);
	}
	if (rc) {
		ck_arc_turn_fail(&m->turn);
		return rc;
	}
	ck_arc_turn_next(&m->turn);
	if (m->stage)
		rc = ck_stage_write(m->stage, m->file, f->off, w->p, f->bytes, err);
	if (rc)
		ck_arc_turn_fail(&m->turn);
	return rc;
}

/* ------------------------------------------------------------------------ threads */

/* What a thread holds, about: two buffers of a frame and zstd's tables. */
static uint64_t bytes_each(const struct making *m)
{
	const int level = m->want->level;

	return 2 * CK_PACK_FRAME + m->room +
	       ((uint64_t)(level > 15 ? 20 : level > 5 ? 12 : 4) << 20);
}

static int make_worker(const struct making *m, struct worker *w, struct ckpt_err *err)
{
	w->ctx = ZSTD_createCCtx();
	w->content = ck_alloc(CK_PACK_FRAME);
	w->p = ck_alloc(m->room);
	if (!m->stage) {
		w->again = ZSTD_createDCtx();
		w->check = ck_alloc(CK_PACK_FRAME);
	}
	if (!w->ctx || !w->content || !w->p || (!m->stage && (!w->again || !w->check)))
		return ck_fail_nomem(err, "compressing", bytes_each(m));
	if (ZSTD_isError(ZSTD_CCtx_setParameter(w->ctx, ZSTD_c_compressionLevel,
						m->want->level)) ||
	    ZSTD_isError(ZSTD_CCtx_setParameter(w->ctx, ZSTD_c_checksumFlag, 1)))
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "zstd has no level %d", m->want->level);
	return 0;
}

static int make_workers(struct making *m, struct ckpt_err *err)
{
	const struct ckpt_run_opts *run = m->want->run;
	const uint64_t most = ck_max_u64(1, run->mem_limit / bytes_each(m));
	int rc = 0;

	m->threads = (uint32_t)ck_min_u64(ck_min_u64(run->threads ? run->threads : 1, most), 256);
	m->threads = (uint32_t)ck_min_u64(m->threads, m->l.ix.nframes);
	m->worker = ck_zalloc(m->threads * sizeof(*m->worker));
	m->hash = ck_hasher_new();
	if (!m->worker || !m->hash)
		return ck_fail_nomem(err, "threads", m->threads);
	for (uint32_t i = 0; !rc && i < m->threads; i++)
		rc = make_worker(m, &m->worker[i], err);
	return rc;
}

static void release(struct making *m)
{
	for (uint32_t i = 0; m->worker && i < m->threads; i++) {
		ZSTD_freeCCtx(m->worker[i].ctx);
		ZSTD_freeDCtx(m->worker[i].again);
		ck_free(m->worker[i].content);
		ck_free(m->worker[i].p);
		ck_free(m->worker[i].check);
	}
	ck_free(m->worker);
	ck_hasher_free(m->hash);
	ck_arc_turn_release(&m->turn);
	ck_arc_layout_release(&m->l);
}

/* ------------------------------------------------------------------------ the whole */

static int write_index(struct making *m, struct ckpt_err *err)
{
	struct ck_buf out = CK_BUF_INIT(SIZE_MAX / 2);
	int rc = ck_pack_index_write(&m->l.ix, &out, err);

	if (!rc)
		rc = m->stage ? ck_stage_write(m->stage, m->file, m->off, out.p, out.len, err) :
		     write_fd(m->want->fd, (const uint8_t *)out.p, out.len, err);
	m->off += out.len;
	ck_buf_release(&out);
	return rc;
}

static int write_all(struct making *m, struct ckpt_err *err)
{
	int rc = make_workers(m, err);

	if (!rc)
		rc = ck_pool_run(m->threads, m->l.ix.nframes, make_frame, m, err);
	if (!rc && m->want->check)
		rc = m->want->check(m->want->arg, err);
	if (!rc)
		rc = write_index(m, err);
	return ck_fdpool_check(m->want->pool, rc, err);
}

static int read_stage(void *arg, uint64_t off, void *buf, size_t n, struct ckpt_err *err)
{
	const struct making *m = arg;

	return ck_stage_read(m->stage, m->file, off, buf, n, err);
}

/* As any reader would, from what is in the file. */
static int read_back(struct making *m, struct ckpt_err *err)
{
	struct ckpt_run_opts run = *m->want->run;
	struct ck_pack *pack = NULL;
	struct ck_src *src;
	int rc = ck_src_made(read_stage, m, m->off, m->want->dst, &src, err);

	if (rc)
		return rc;
	run.progress = NULL;
	rc = ck_pack_open(src, m->want->limits, &pack, err);
	if (!rc && !pack)
		rc = ck_fail(err, CKPT_E_CORRUPT, m->want->dst, CKPT_NO_OFFSET,
			     "the written file does not read back as a pack");
	if (!rc)
		rc = ck_pack_walk(pack, &run, m->want->limits->zip_dir_bytes, NULL, NULL, err);
	ck_pack_close(pack);
	ck_src_close(src);
	return rc;
}

static int to_stage(struct making *m, struct ckpt_err *err)
{
	const struct ck_pack_want *want = m->want;
	const struct ck_stage_opts so = {
		.dst = want->dst, .force = want->flags & CKPT_WRITE_FORCE,
		.restart = want->flags & CKPT_WRITE_RESTART, .sync = want->run->sync,
		.nparts = 1, .plan = ck_arc_layout_hash(&m->l), .sources = want->pool,
		.fingerprint = { (uint64_t)want->level, m->l.ix.content },
	};
	enum ck_fs_kind kind;
	int rc = ck_stage_begin(&so, &m->stage, err);

	if (rc)
		return rc;
	if (ck_stage_is_done(m->stage)) {	/* by a run that was killed then */
		rc = ck_look_kind(NULL, want->dst, &kind, &m->off, err);
	} else {
		rc = ck_stage_file(m->stage, ck_fs_base(want->dst), 0, &m->file, err);
		if (!rc)
			rc = write_all(m, err);
		if (!rc)
			rc = read_back(m, err);
		if (!rc)
			rc = ck_stage_end(m->stage, err);
		if (!rc)
			rc = ck_stage_commit(m->stage, 0, err);
	}
	if (rc)
		ck_stage_abort(m->stage);
	else
		ck_stage_close(m->stage);
	return rc;
}

/* If nothing can be compressed: every frame at zstd's bound, and the index. */
static int most_bytes(const struct making *m, uint64_t *bytes_out, struct ckpt_err *err)
{
	struct ck_buf index = CK_BUF_INIT(SIZE_MAX / 2);
	int rc = ck_pack_index_write(&m->l.ix, &index, err);

	*bytes_out = m->l.ix.content / CK_PACK_FRAME * m->room +
		     ZSTD_compressBound(m->l.ix.content % CK_PACK_FRAME) + index.len;
	ck_buf_release(&index);
	return rc;
}

static int check_dst(const struct ck_pack_want *want, struct ckpt_err *err)
{
	enum ck_fs_kind kind = CK_FS_NOTHING;
	int rc = want->dst ? ck_fs_kind(want->dst, &kind, err) : 0;

	if (rc || kind == CK_FS_NOTHING || (kind == CK_FS_FILE && want->flags & CKPT_WRITE_FORCE))
		return rc;
	return ck_fail(err, CKPT_E_EXISTS, want->dst, CKPT_NO_OFFSET,
		       kind == CK_FS_FILE ?
		       "the destination exists; --force replaces it" :
		       "the destination exists and is not a file");
}

/* Room for the most it can take is not asked for: most packs take less. */
static int make_dry(const struct making *m, struct ck_pack_done *done, struct ckpt_err *err)
{
	const struct ck_pack_want *want = m->want;
	int rc = check_dst(want, err);

	if (!rc && want->dst)
		rc = ck_commit_room(want->dst, false, 0, &done->free, err);
	for (uint64_t i = 0; i < want->n; i++)
		done->to_read += want->file[i].path ? m->l.ix.entry[i].bytes : 0;
	return rc ? rc : most_bytes(m, &done->to_write, err);
}

int ck_pack_make(const struct ck_pack_want *want, struct ck_pack_done *done_out,
		 struct ckpt_err *err)
{
	struct making m = { .want = want, .room = ZSTD_compressBound(CK_PACK_FRAME) +
					       CK_PACK_TRAILER };
	struct ck_pack_done done = { .kind = "pack" };
	int rc;

	ck_arc_turn_init(&m.turn);
	rc = ck_arc_layout_init(&m.l, want, err);
	if (!rc && want->flags & CKPT_WRITE_DRY_RUN)
		rc = make_dry(&m, &done, err);
	else if (!rc)
		rc = want->dst ? to_stage(&m, err) : write_all(&m, err);
	if (!rc) {
		done.files = m.l.ix.n;
		done.archive = m.off;
		done.threads = m.threads;
		for (uint64_t i = 0; i < m.l.ix.n; i++)
			done.bytes += m.l.ix.entry[i].bytes;
		*done_out = done;
	}
	release(&m);
	return rc;
}
