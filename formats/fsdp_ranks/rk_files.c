/*
 * rk_files.c -- the rank files of a folder: which there are, which are missing, and each of them
 * opened.
 *
 * verl's names say the world; of accelerate's it is the number of files.  An archive remembers the
 * name it was saved under, so a file that was renamed or copied over another is seen.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/fsdp_ranks/rk_tc.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_pool.h"
#include "libckpt/base/ck_sys.h"

#define MOST_RANKS 1000000u

static const char *const kinds[RK_KINDS] = { "model", "optimizer", "extra state" };

/* ---- the list ---- */

static int list(struct rk *r, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < r->tree.n; i++) {
		const struct ck_tree_entry *e = &r->tree.entry[i];
		struct rk_name id;

		if (e->is_dir || !ck_rk_name_read(e->name, &id) || id.naming != r->naming)
			continue;
		rc = ck_grow(&r->file, &r->file_cap, r->nfiles + 1, sizeof(*r->file), err);
		if (!rc)
			r->file[r->nfiles++] = (struct rk_file){
				.id = id, .name = ck_arena_strdup(&r->arena, e->name),
				.path = ck_arena_strdup(&r->arena, e->path), .bytes = e->bytes,
			};
		if (!rc && (!r->file[r->nfiles - 1].name || !r->file[r->nfiles - 1].path))
			rc = ck_fail_nomem(err, "a path", 0);
	}
	return rc;
}

/* Files of a kind that are of this world and model. */
static uint64_t count(const struct rk *r, uint8_t kind, uint32_t world, uint32_t model)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < r->nfiles; i++)
		n += r->file[i].id.kind == kind && r->file[i].id.world == world &&
		     r->file[i].id.model == model;
	return n;
}

/* The model that is read: the one with the lowest number; another is left out. */
static uint32_t choose_model(struct rk *r)
{
	uint32_t least = UINT32_MAX;

	for (uint64_t i = 0; i < r->nfiles; i++)
		if (r->file[i].id.kind == RK_MODEL && r->file[i].id.model < least)
			least = r->file[i].id.model;
	for (uint64_t i = 0; i < r->nfiles; i++)
		if (r->file[i].id.kind == RK_MODEL && r->file[i].id.model != least)
			ck_findings_add(r->f, CK_FINDING_SUBTREE_CHOICE, r->file[i].path,
					"left out: model %u of the run; model %u is read",
					r->file[i].id.model, least);
	return least == UINT32_MAX ? 0 : least;
}

/* Of several worlds the one with the most files of its ranks; the files of others are too many. */
static uint32_t choose_world(struct rk *r)
{
	uint32_t best = 0;
	uint64_t most = 0, other;

	for (uint64_t i = 0; i < r->nfiles; i++) {
		const uint32_t world = r->file[i].id.world;
		const uint64_t n = count(r, RK_MODEL, world, 0);

		if (!best || (n == world && (most != best || world > best))) {
			best = world;
			most = n;
		}
	}
	for (uint64_t i = 0; i < r->nfiles; i++) {
		const uint32_t world = r->file[i].id.world;

		if (r->file[i].id.kind != RK_MODEL || world == best)
			continue;
		other = count(r, RK_MODEL, world, 0);
		ck_findings_add(r->f, CK_FINDING_RANK_FILE_EXTRA, r->where,
				"files of two saves: %" PRIu64 " models of a save by %u ranks, %"
				PRIu64 " of one by %u; move the files of the older save away",
				count(r, RK_MODEL, best, 0), best, other, world);
		break;
	}
	return best;
}

/* ---- the ranks ---- */

static const char *name_for(struct rk *r, uint8_t kind, uint32_t model, uint32_t rank)
{
	static const char *const verl[RK_KINDS] = { "model", "optim", "extra_state" };
	const char *stem = kind == RK_MODEL ? "pytorch_model_fsdp" : "optimizer";
	const char *name;

	if (r->naming == RK_VERL)
		name = ck_arena_printf(&r->arena, "%s/%s_world_size_%u_rank_%u.pt", r->where,
				       verl[kind], r->world, rank);
	else
		name = ck_arena_printf(&r->arena, "%s/%s_%u_rank%u.bin", r->where, stem, model,
				       rank);
	return name ? name : r->where;
}

static int give_ranks(struct rk *r, uint8_t kind, uint32_t model, struct rk_file ***out,
		      struct ckpt_err *err)
{
	struct rk_file **of = ck_arena_zalloc(&r->arena, r->world * sizeof(struct rk_file *));

	if (!of)
		return ck_fail_nomem(err, "a list of ranks", r->world);
	for (uint64_t i = 0; i < r->nfiles; i++) {
		const struct rk_name *id = &r->file[i].id;

		if (id->kind != kind || id->model != model ||
		    (r->naming == RK_VERL && id->world != r->world))
			continue;
		if (id->rank >= r->world)
			ck_findings_add(r->f, CK_FINDING_RANK_FILE_EXTRA, r->file[i].path,
					"the %s file of rank %u, but there are %u ranks (left over "
					"from a save by more?)", kinds[kind], id->rank, r->world);
		else if (of[id->rank])
			ck_findings_add(r->f, CK_FINDING_RANK_FILE_EXTRA, r->file[i].path,
					"a second %s file of rank %u; the first is %s (files of "
					"two saves in one folder?)", kinds[kind], id->rank,
					of[id->rank]->name);
		else
			of[id->rank] = &r->file[i];
	}
	*out = of;
	return 0;
}

/* Every rank must have its file; without any, the run has not saved its optimizer. */
static void check_ranks(struct rk *r, uint8_t kind, uint32_t model, struct rk_file **of)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < r->world; i++)
		n += of[i] != NULL;
	for (uint32_t i = 0; (n || kind == RK_MODEL) && i < r->world; i++)
		if (!of[i]) {
			r->incomplete = true;
			ck_findings_add(r->f, CK_FINDING_RANK_FILE_MISSING,
					name_for(r, kind, model, i),
					"missing; %u of the %s files of %u ranks are in the folder "
					"(was the copy partial?)", n, kinds[kind], r->world);
		}
}

static int find_world(struct rk *r, uint32_t model, struct ckpt_err *err)
{
	uint32_t last = 0;

	for (uint64_t i = 0; i < r->nfiles; i++)
		if (r->file[i].id.kind != RK_EXTRA && r->file[i].id.model == model &&
		    r->file[i].id.rank > last)
			last = r->file[i].id.rank;
	if (r->naming != RK_TC)
		r->world = r->naming == RK_VERL ? choose_world(r) : last + 1;
	if (r->world > MOST_RANKS || (r->world > 64 && r->world / 64 > r->nfiles))
		return ck_fail(err, CKPT_E_LIMIT, r->where, CKPT_NO_OFFSET,
			       "names of files say %u ranks, but there are %" PRIu64 " files "
			       "of ranks", r->world, r->nfiles);
	return 0;
}

/* ---- opening ---- */

static int note_damage(struct rk_file *file, int rc, struct ckpt_err *err)
{
	enum ck_finding_id id = CK_FINDING_FILE_DAMAGED;

	if (rc == -CKPT_E_NOMEM || rc == -CKPT_E_UNSAFE || rc == -CKPT_E_LIMIT ||
	    rc == -CKPT_E_CANCELED)
		return rc;
	if (rc == -CKPT_E_IO && ck_sys.access(file->path, R_OK) && errno == EACCES)
		id = CK_FINDING_NO_PERMISSION;
	ck_findings_add(&file->notes, id, file->path, "%s", err->msg);
	file->ok = false;
	ck_err_clear(err);
	return 0;
}

/* The name that the archive was saved under. */
static void check_prefix(struct rk_file *file)
{
	struct rk_name id;
	char name[128];

	/* torch_checkpointing's is "archive". */
	if (!file->pt->prefix || strlen(file->pt->prefix) > 100 ||
	    file->id.naming == RK_TC)
		return;
	snprintf(name, sizeof(name), "%s%s", file->pt->prefix,
		 file->id.naming == RK_VERL ? ".pt" : ".bin");
	if (!ck_rk_name_read(name, &id) || id.naming == RK_TC ||
	    (id.kind == file->id.kind && id.rank == file->id.rank && id.world == file->id.world))
		return;
	file->swapped = true;
	ck_findings_add(&file->notes, CK_FINDING_RANK_FILE_SWAPPED, file->path,
			"it was saved as %s (was a file renamed or copied over another?)", name);
}

static int open_one(void *arg, uint64_t job, uint32_t worker, struct ckpt_err *err)
{
	struct rk *r = arg;
	struct rk_file *file = &r->file[job];
	int rc;

	(void)worker;
	if (file->id.rank >= r->world ||
	    (r->naming == RK_VERL && file->id.world != r->world) ||
	    (r->naming != RK_TC && file != r->model[file->id.rank] &&
	     file != r->optim[file->id.rank] &&
	     file != r->extra[file->id.rank]))
		return 0;
	rc = ck_src_open(r->in->pool, file->path, &file->src, err);
	if (!rc && (file->id.kind != RK_EXTRA || r->naming == RK_TC))
		rc = ck_pt_open(file->src, &r->in->limits, 0, &file->notes, &file->pt, err);
	file->ok = !rc;
	if (!rc && file->pt)
		check_prefix(file);
	return rc ? note_damage(file, rc, err) : 0;
}

int ck_rk_files_open(struct rk *r, struct ckpt_err *err)
{
	uint32_t model = 0;
	int rc = list(r, err);

	if (!rc && r->naming == RK_TC)
		rc = ck_rk_tc_open(r, err);
	if (!rc) {
		model = choose_model(r);
		rc = find_world(r, model, err);
	}
	if (!rc)
		rc = give_ranks(r, RK_MODEL, model, &r->model, err);
	if (!rc)
		rc = give_ranks(r, RK_OPTIM, model, &r->optim, err);
	if (!rc)
		rc = give_ranks(r, RK_EXTRA, model, &r->extra, err);
	if (!rc && r->naming == RK_TC)
		rc = ck_rk_tc_ranks(r, err);
	if (rc)
		return rc;
	if (r->naming != RK_TC) {
		check_ranks(r, RK_MODEL, model, r->model);
		check_ranks(r, RK_OPTIM, model, r->optim);
	}
	rc = ck_pool_run(r->in->threads, r->nfiles, open_one, r, err);
	for (uint64_t i = 0; i < r->nfiles; i++) {
		ck_findings_merge(r->f, &r->file[i].notes, CK_FINDING_COUNT);
		r->incomplete |= r->file[i].src && !r->file[i].ok;
	}
	return rc;
}

int ck_rk_files_add(struct rk *r, struct ckpt_err *err)
{
	uint32_t source;
	int rc = 0;

	if (r->tc) {
		rc = ck_index_add_source(r->ix, r->tc->path, r->tc->src, -1, &source, err);
		r->tc->src = NULL;
	}
	for (uint64_t i = 0; !rc && i < r->nfiles; i++) {
		struct rk_file *file = &r->file[i];
		uint8_t tail[24] = { 0 };

		if (!file->src)
			continue;
		ck_put_le64(tail, file->bytes);
		if (file->pt) {
			ck_put_le64(tail + 8, file->pt->fingerprint.lo);
			ck_put_le64(tail + 16, file->pt->fingerprint.hi);
		}
		ck_hasher_add(r->ix->fingerprint, file->name, strlen(file->name) + 1);
		ck_hasher_add(r->ix->fingerprint, tail, sizeof(tail));
		/* The open archive still reads it: the index closes it. */
		rc = ck_index_add_source(r->ix, file->path, file->src,
					 r->naming == RK_WHOLE ? -1 : (int32_t)file->id.rank,
					 &file->source, err);
		file->src = NULL;
	}
	return rc;
}
