/*
 * stp_files.c -- the files of a folder: which there are, which are missing, each of them opened.
 *
 * Every rank writes one file for each number that it has a tensor of.  Nothing in the files says
 * how many ranks there were, and the last rank's pieces are the ends of tensors: without them a
 * tensor is shorter and looks whole.  So each number must have files of the same ranks, unless an
 * index of the joined tensors says that nothing is missing.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "formats/dcp_st/stp.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_pool.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"

/* ---- the list ---- */

static int list(struct stp *d, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < d->tree->n; i++) {
		const struct ck_tree_entry *e = &d->tree->entry[i];
		struct ck_st_shard id;

		if (e->is_dir)
			continue;
		if (!ck_st_shard_read(e->name, &id) || !id.rank) {
			if (ck_ends_with(e->name, ".safetensors"))
				ck_findings_add(d->f, CK_FINDING_FILE_UNKNOWN, e->path,
						"it is no rank's file and is not read");
			continue;
		}
		rc = ck_grow(&d->file, &d->file_cap, d->nfiles + 1, sizeof(*d->file), err);
		if (!rc)
			d->file[d->nfiles++] = (struct stp_file){
				.id = id, .name = e->name, .path = e->path,
			};
	}
	return rc;
}

static uint64_t count_of(const struct stp *d, uint64_t of)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < d->nfiles; i++)
		n += d->file[i].id.of == of;
	return n;
}

/* "-of-00002" of most files; files of another save are too many. */
static void choose_of(struct stp *d)
{
	uint64_t most = 0;

	for (uint64_t i = 0; i < d->nfiles; i++) {
		const uint64_t of = d->file[i].id.of;
		uint64_t n;

		if (of == d->of)
			continue;
		n = count_of(d, of);
		if (n > most || (n == most && of > d->of)) {
			most = n;
			d->of = of;
		}
	}
	for (uint64_t i = 0; i < d->nfiles; i++)
		if (d->file[i].id.of != d->of) {
			ck_findings_add(d->f, CK_FINDING_RANK_FILE_EXTRA, d->file[i].path,
					"files of two saves: its name says %" PRIu64 " files a "
					"rank, those of %" PRIu64 " others say %" PRIu64 "; move "
					"the files of the older save away", d->file[i].id.of,
					count_of(d, d->of), d->of);
			break;
		}
}

/* ---- the ranks ---- */

static bool is_read(const struct stp *d, const struct stp_file *file)
{
	return file->id.of == d->of;
}

static int count_ranks(struct stp *d, struct ckpt_err *err)
{
	for (uint64_t i = 0; i < d->nfiles; i++)
		if (is_read(d, &d->file[i]) && d->file[i].id.rank > d->ranks)
			d->ranks = d->file[i].id.rank;
	if (d->ranks > (64 * d->nfiles + 4096) / d->of)
		return ck_fail(err, CKPT_E_LIMIT, d->where, CKPT_NO_OFFSET,
			       "names of files say %" PRIu64 " ranks with %" PRIu64 " files each, "
			       "but there are %" PRIu64 " files", d->ranks, d->of, d->nfiles);
	d->damaged = ck_arena_zalloc(&d->arena, d->of * sizeof(*d->damaged));
	return d->damaged ? 0 : ck_fail_nomem(err, "a list of files", d->of);
}

static void note_missing(struct stp *d, uint64_t rank, uint64_t number, uint64_t n)
{
	const char *path = ck_arena_printf(&d->arena, "%s/shard-%05" PRIu64 "-model-%05" PRIu64
					   "-of-%05" PRIu64 ".safetensors", d->where, rank, number,
					   d->of);

	ck_findings_add(d->f, CK_FINDING_RANK_FILE_MISSING, path ? path : d->where,
			"missing; %" PRIu64 " of %" PRIu64 " ranks have file %" PRIu64 " (was the "
			"copy partial? A rank without tensors of it, as in pipeline stages, or "
			"whose copies another rank saved, has none: --as-warning "
			"RANK_FILE_MISSING)", n, d->ranks, number);
}

/* Each rank once, of each number. */
static int give_slots(struct stp *d, struct ckpt_err *err)
{
	d->slot = ck_arena_zalloc(&d->arena, d->ranks * d->of * sizeof(*d->slot));
	if (!d->slot)
		return ck_fail_nomem(err, "a list of ranks", d->ranks * d->of);
	for (uint64_t i = 0; i < d->nfiles; i++) {
		struct stp_file *file = &d->file[i];
		const uint64_t at = (file->id.number - 1) * d->ranks + file->id.rank - 1;

		if (!is_read(d, file))
			continue;
		if (d->slot[at])
			ck_findings_add(d->f, CK_FINDING_RANK_FILE_EXTRA, file->path,
					"a second file %" PRIu64 " of rank %" PRIu64 "; the first "
					"is %s", file->id.number, file->id.rank, d->slot[at]->name);
		else
			d->slot[at] = file;
	}
	return 0;
}

void ck_stp_files_missing(struct stp *d)
{
	for (uint64_t k = 0; k < d->of; k++) {
		struct stp_file *const *slot = d->slot + k * d->ranks;
		uint64_t n = 0;

		for (uint64_t i = 0; i < d->ranks; i++)
			n += slot[i] != NULL;
		for (uint64_t i = 0; n < d->ranks && i < d->ranks; i++)
			if (!slot[i])
				note_missing(d, i + 1, k + 1, n);
	}
}

/* ---- opening ---- */

static int note_damage(struct stp_file *file, int rc, struct ckpt_err *err)
{
	enum ck_finding_id id = CK_FINDING_FILE_DAMAGED;

	if (rc == -CKPT_E_NOMEM || rc == -CKPT_E_LIMIT || rc == -CKPT_E_UNSUPPORTED ||
	    rc == -CKPT_E_CANCELED)
		return rc;
	if (rc == -CKPT_E_IO && ck_sys.access(file->path, R_OK) && errno == EACCES)
		id = CK_FINDING_NO_PERMISSION;
	ck_findings_add(&file->notes, id, file->path, "%s", err->msg);
	ck_err_clear(err);
	return 0;
}

static int open_one(void *arg, uint64_t job, uint32_t worker, struct ckpt_err *err)
{
	struct stp *d = arg;
	struct stp_file *file = &d->file[job];
	int rc;

	(void)worker;
	if (!is_read(d, file))
		return 0;
	rc = ck_src_open(d->in->pool, file->path, &file->src, err);
	if (!rc)
		rc = ck_st_open(file->src, &d->in->limits, &file->st, err);
	if (!rc && !file->st->is_piece) {
		rc = ck_fail(err, CKPT_E_CORRUPT, file->path, 8,
			     "it has no DCP_SHARDING_INFO, so it does not say where its tensors "
			     "belong in the full ones");
		ck_st_close(file->st);
		file->st = NULL;
	}
	if (!rc)
		ck_st_note(file->st, &file->notes);
	return rc ? note_damage(file, rc, err) : 0;
}

int ck_stp_files_open(struct stp *d, struct ckpt_err *err)
{
	int rc = list(d, err);

	if (rc)
		return rc;
	choose_of(d);
	rc = count_ranks(d, err);
	if (!rc)
		rc = give_slots(d, err);
	if (!rc)
		rc = ck_pool_run(d->in->threads, d->nfiles, open_one, d, err);
	for (uint64_t i = 0; !rc && i < d->nfiles; i++) {
		ck_findings_merge(d->f, &d->file[i].notes, CK_FINDING_COUNT);
		if (is_read(d, &d->file[i]) && !d->file[i].st)
			d->damaged[d->file[i].id.number - 1] = true;
	}
	return rc;
}

int ck_stp_files_add(struct stp *d, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < d->nfiles; i++) {
		struct stp_file *file = &d->file[i];

		if (!file->st)
			continue;
		ck_hasher_add(d->ix->fingerprint, file->name, strlen(file->name) + 1);
		ck_hasher_add(d->ix->fingerprint, &file->st->fingerprint,
			      sizeof(file->st->fingerprint));
		rc = ck_index_add_source(d->ix, file->path, file->src, (int32_t)file->id.rank - 1,
					 &file->source, err);
		file->src = NULL;
	}
	return rc;
}
