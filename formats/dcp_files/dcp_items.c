/*
 * dcp_items.c -- the archives in the data files: each is opened where '.metadata' says, and what it
 * holds is compared with what '.metadata' says of it.
 *
 * Archives are many and small, so threads share them.  Of a tensor only the place of its elements
 * is kept; of a value that is no tensor, the open archive.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "formats/dcp_files/ck_dcp_files.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_pool.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_dtype.h"

#define NUMBER_BYTES 8
#define BEGIN_BYTES 512

struct job {
	uint64_t item, chunk;
};

struct jobs {
	struct dcp_files *fs;
	struct job *job;
	uint64_t n;
	bool small;	/* values and tensors of one element only */
};

/* ---- files ---- */

static const char *where_of(struct dcp_files *fs, const struct dcp_file *file)
{
	const char *path = ck_arena_printf(&fs->arena, "%s/%s", fs->at.where, file->name);

	return path ? path : file->name;
}

static int open_file(struct dcp_files *fs, struct dcp_file *file, struct ckpt_err *err)
{
	int rc;

	if (!file->path) {
		ck_findings_add(fs->f, CK_FINDING_RANK_FILE_MISSING, where_of(fs, file),
				"missing; '.metadata' says that %" PRIu64 " items are in it (was "
				"the copy partial?)", file->items);
		return 0;
	}
	rc = ck_src_open(fs->in->pool, file->path, &file->src, err);
	if (!rc || rc == -CKPT_E_NOMEM || rc == -CKPT_E_CANCELED)
		return rc;
	ck_findings_add(fs->f, rc == -CKPT_E_IO && ck_sys.access(file->path, R_OK) &&
			errno == EACCES ? CK_FINDING_NO_PERMISSION : CK_FINDING_FILE_DAMAGED,
			file->path, "%s", err->msg);
	ck_err_clear(err);
	return 0;
}

/* Data files that no item is in: of a save by more ranks, into the same folder. */
static void look_for_others(struct dcp_files *fs, const struct dcp_part *part)
{
	for (uint64_t i = 0; i < part->tree.n; i++) {
		const struct ck_tree_entry *e = &part->tree.entry[i];
		const size_t n = strlen(e->name);
		const char *name;

		if (e->is_dir || n < 7 || strcmp(e->name + n - 7, ".distcp"))
			continue;
		name = *part->sub ? ck_arena_printf(&fs->arena, "%s/%s", part->sub, e->name) :
		       e->name;
		if (name && !ck_map_find(&fs->by_file, name, strlen(name), NULL) && e->bytes)
			ck_findings_add(fs->f, CK_FINDING_FORMAT_NOTE, e->path,
					"'.metadata' names no item in this file (left over from "
					"another save into the same folder?)");
	}
}

/* ---- an archive ---- */

static int fail_item(const struct dcp_file *file, const struct dcp_chunk *c, struct ckpt_err *err,
		     enum ckpt_code code, const char *what)
{
	return ck_fail(err, code, file->path, c->at.begin, "%s", what);
}

static bool is_contiguous(const struct ck_tensor_ref *t)
{
	uint64_t want = 1;

	for (uint32_t k = t->ndim; k > 0; k--) {
		if (t->shape[k - 1] != 1 && t->stride[k - 1] != want)
			return false;
		want *= t->shape[k - 1];
	}
	return true;
}

/* The tensor that the archive is, as '.metadata' has it. */
static int check_tensor(const struct dcp_item *it, const struct dcp_chunk *c,
			const struct ck_pt *pt, const struct ck_tensor_ref *t,
			const struct dcp_file *file, struct ckpt_err *err)
{
	const struct ck_pt_storage *s;

	if (!t)
		return fail_item(file, c, err, CKPT_E_CORRUPT,
				 "a tensor should be here, another value is");
	if (t->dtype != it->dtype)
		return ck_fail(err, CKPT_E_MISMATCH, file->path, c->at.begin,
			       "'.metadata' says %s, the file has %s",
			       ckpt_dtype_name(it->dtype), ckpt_dtype_name(t->dtype));
	if (t->ndim != it->ndim ||
	    (t->ndim && memcmp(t->shape, c->size, t->ndim * sizeof(*t->shape))))
		return ck_fail(err, CKPT_E_MISMATCH, file->path, c->at.begin,
			       "'.metadata' has another shape for it (%" PRIu64 " elements) "
			       "than the file (%" PRIu64 ")", c->numel, t->numel);
	s = &pt->storage[t->storage];
	if (!is_contiguous(t) || s->deflated || s->absent || pt->swapped || t->conj || t->neg)
		return fail_item(file, c, err, CKPT_E_UNSUPPORTED,
				 "the tensor is not stored as one run of its elements, as "
				 "torch.distributed.checkpoint stores it");
	return 0;
}

/* Counters and such. */
static int take_number(struct dcp_item *it, const struct ck_pt *pt, const struct ck_tensor_ref *t,
		       struct ckpt_err *err)
{
	uint8_t *p;
	int rc = ck_pt_tensor_bytes(pt, t, NUMBER_BYTES, &p, err);

	if (rc)
		return rc;
	it->has_number = p && ck_dtype_number(t->dtype, p, &it->number);
	if (it->has_number && t->dtype == CKPT_I64)
		it->whole = (int64_t)ck_le64(p);
	else if (it->has_number && t->dtype == CKPT_I32)
		it->whole = (int32_t)ck_le32(p);
	ck_free(p);
	return 0;
}

/* Matrices of one value, say zeros, are equal without being tied. */
static int look_at_begin(struct dcp_chunk *c, const struct dcp_file *file, uint64_t es,
			 struct ckpt_err *err)
{
	uint8_t p[BEGIN_BYTES];
	const uint64_t n = es > sizeof(p) ? 0 : ck_min_u64(c->numel, sizeof(p) / es) * es;
	int rc;

	if (n < 2 * es || !es)
		return 0;
	rc = ck_src_read(file->src, c->data, p, (size_t)n, err);
	c->is_varied = !rc && memcmp(p, p + es, (size_t)(n - es)) != 0;
	return rc;
}

static int take_tensor(struct dcp_item *it, struct dcp_chunk *c, const struct dcp_file *file,
		       const struct ck_pt *pt, struct ckpt_err *err)
{
	const struct ck_tensor_ref *t = ck_val_tensor(pt->doc.root);
	uint64_t bytes;
	int rc = check_tensor(it, c, pt, t, file, err);

	if (rc)
		return rc;
	rc = ck_dtype_bytes(t->dtype, 1, &bytes, err);
	if (rc)
		return rc;
	c->data = c->at.begin + pt->storage[t->storage].off + t->offset * bytes;
	/* Of a storage that is this block and nothing else. */
	c->crc = t->offset || pt->storage[t->storage].numel != t->numel ? 0 :
		 pt->storage[t->storage].crc;
	c->is_read = true;
	rc = t->ndim > 1 ? look_at_begin(c, file, bytes, err) : 0;
	if (rc)
		return rc;
	return it->numel == 1 && ckpt_dtype_bits(t->dtype) >= 8 ? take_number(it, pt, t, err) : 0;
}

static int open_value(const struct dcp_files *fs, const struct dcp_chunk *c, struct dcp_value *out,
		      struct ckpt_err *err)
{
	const struct dcp_file *file = &fs->file[c->at.file];
	int rc;

	*out = (struct dcp_value){
		.bytes = { file->src, c->at.begin, c->at.begin + c->at.bytes },
	};
	if (c->at.bytes > file->bytes || c->at.begin > file->bytes - c->at.bytes)
		return ck_fail(err, CKPT_E_TRUNCATED, file->path, c->at.begin,
			       "an item of %" PRIu64 " bytes should begin here, the file has "
			       "%" PRIu64, c->at.bytes, file->bytes);
	rc = ck_zip_part(&out->bytes, &out->src, err);
	return rc ? rc : ck_pt_open(out->src, &fs->in->limits, 0, NULL, &out->pt, err);
}

void ck_dcp_value_close(struct dcp_value *v)
{
	if (!v)
		return;
	ck_pt_close(v->pt);
	ck_src_close(v->src);
	v->pt = NULL;
	v->src = NULL;
}

const struct ck_val *ck_dcp_value_of(const struct dcp_item *it)
{
	return it->value && it->value->pt ? it->value->pt->doc.root : NULL;
}

/* What values take in memory stays there; '.metadata' may name more of them than there is. */
static int count_value(struct dcp_files *fs, const struct dcp_item *it, struct ckpt_err *err)
{
	uint64_t held;

	pthread_mutex_lock(&fs->lock);
	fs->held += it->value->pt->doc.arena.total + sizeof(*it->value->pt);
	held = fs->held;
	pthread_mutex_unlock(&fs->lock);
	if (held <= fs->in->limits.memory_bytes || !fs->in->limits.memory_bytes)
		return 0;
	return ck_fail_limit(err, fs->at.where, CKPT_NO_OFFSET, "memory_bytes",
			     fs->in->limits.memory_bytes,
			     "the values that are no tensors take %" PRIu64 " bytes", held);
}

/* Damage is a finding: what else there is can be read. */
static int note(struct dcp_files *fs, const struct dcp_item *it, const struct dcp_file *file,
		int rc, struct ckpt_err *err)
{
	const enum ck_finding_id id = rc == -CKPT_E_MISMATCH ? CK_FINDING_NAMES_WRONG :
							       CK_FINDING_FILE_DAMAGED;

	if (rc == -CKPT_E_NOMEM || rc == -CKPT_E_UNSAFE || rc == -CKPT_E_LIMIT ||
	    rc == -CKPT_E_CANCELED)
		return rc;
	pthread_mutex_lock(&fs->lock);
	ck_findings_add(fs->f, id, file->path, "'%s' at byte %" PRIu64 ": %s", it->flat,
			err->offset == CKPT_NO_OFFSET ? 0 : err->offset, err->msg);
	pthread_mutex_unlock(&fs->lock);
	ck_err_clear(err);
	return 0;
}

static int read_one(void *arg, uint64_t number, uint32_t worker, struct ckpt_err *err)
{
	const struct jobs *jobs = arg;
	struct dcp_files *fs = jobs->fs;
	struct dcp_item *it = &fs->item[jobs->job[number].item];
	struct dcp_chunk *c = &it->chunk[jobs->job[number].chunk];
	const struct dcp_file *file = &fs->file[c->at.file];
	struct dcp_value own, *v = it->is_tensor ? &own : it->value;
	int rc = open_value(fs, c, v, err);

	(void)worker;
	if (!rc && it->is_tensor)
		rc = take_tensor(it, c, file, v->pt, err);
	else if (!rc)
		rc = count_value(fs, it, err);
	if (rc || it->is_tensor)
		ck_dcp_value_close(v);
	return rc ? note(fs, it, file, rc, err) : 0;
}

static int list_jobs(struct dcp_files *fs, struct jobs *jobs, struct ckpt_err *err)
{
	uint64_t most = 1;

	for (uint64_t i = 0; i < fs->nitems; i++)
		most += fs->item[i].nchunks;
	jobs->job = ck_alloc_array(most, sizeof(*jobs->job));
	if (!jobs->job)
		return ck_fail_nomem(err, "a list of items", most);
	for (uint64_t i = 0; i < fs->nitems; i++) {
		struct dcp_item *it = &fs->item[i];

		if (!it->is_tensor)
			it->value = ck_arena_zalloc(&fs->arena, sizeof(*it->value));
		if (!it->is_tensor && !it->value)
			return ck_fail_nomem(err, "a value", 0);
		if (jobs->small && it->is_tensor && it->numel != 1)
			continue;
		for (uint64_t k = 0; k < it->nchunks; k++) {
			const struct dcp_chunk *c = &it->chunk[k];

			if (c->at.file != CK_NONE && fs->file[c->at.file].src &&
			    (c->numel || !it->is_tensor))
				jobs->job[jobs->n++] = (struct job){ i, k };
		}
	}
	return 0;
}

static int read_listed(struct jobs *jobs, struct ckpt_err *err)
{
	int rc = list_jobs(jobs->fs, jobs, err);

	if (!rc)
		rc = ck_pool_run(jobs->fs->in->threads, jobs->n, read_one, jobs, err);
	ck_free(jobs->job);
	return rc;
}

int ck_dcp_items_read(struct dcp_files *fs, struct ckpt_err *err)
{
	struct jobs jobs = { .fs = fs };
	int rc = 0;

	for (uint64_t i = 0; !rc && i < fs->nfiles; i++)
		rc = open_file(fs, &fs->file[i], err);
	for (uint32_t i = 0; !rc && i < fs->nparts; i++)
		look_for_others(fs, &fs->part[i]);
	return rc ? rc : read_listed(&jobs, err);
}

int ck_dcp_values_read(struct dcp_files *fs, struct ckpt_err *err)
{
	struct jobs jobs = { .fs = fs, .small = true };

	return read_listed(&jobs, err);
}
