/*
 * ds_load.c -- read the files of a step: rank 0's model file and the first shard first,
 * since they say what to expect, then all others in parallel.  Of those only slices
 * are kept; their trees are compared with the first ones and let go.
 */
#include <inttypes.h>
#include <stdio.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <ckpt_zero.h>

#include "formats/ds_pt/ds_experts.h"
#include "formats/ds_pt/ds_par.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_pool.h"
#include "libckpt/base/ck_sys.h"

#define COMPARE_DEPTH 200
#define KEPT_SHARE 16	/* trees of ranks take that part of memory_bytes */
#define FIRST_TRIED 4	/* shards that stay open until one is the first */
#define TREE_BYTES ((uint64_t)128 << 10)	/* of a small one, with its archive */

void ck_ds_close_pt(struct ds_file *file)
{
	ck_pt_close(file->pt);
	file->pt = NULL;
}

void ck_ds_keep_pt(struct ds_step *ds, struct ds_file *file)
{
	const uint64_t bytes = file->pt ? file->pt->doc.arena.total + TREE_BYTES : 0;
	bool stays;

	pthread_mutex_lock(&ds->lock);
	stays = ds->in->kept &&
		ds->kept_bytes + bytes <= ds->in->limits.memory_bytes / KEPT_SHARE;
	if (stays)
		ds->kept_bytes += bytes;
	pthread_mutex_unlock(&ds->lock);
	if (!stays)
		ck_ds_close_pt(file);
}

/* The archive remembers the name it was saved under. */
static void check_prefix(struct ds_file *file)
{
	const char *prefix = file->pt->prefix ? file->pt->prefix : "";
	const struct ds_name id = ck_ds_prefix_parse(prefix);

	file->named = id.kind != DS_OTHER;
	file->legacy = file->pt->legacy;
	if (id.kind == DS_OTHER || (id.kind == file->id.kind && id.rank == file->id.rank &&
				    id.mp == file->id.mp && id.layer == file->id.layer))
		return;
	ck_findings_add(&file->notes, CK_FINDING_RANK_FILE_SWAPPED, file->path,
			"it was saved as %s.pt (was a file renamed or copied over another?)",
			prefix);
}

/* Keep what deflated extents need when the file is let go. */
static int keep_deflated(struct ds_file *file, struct ckpt_err *err)
{
	const struct ck_pt *pt = file->pt;
	bool any = false;

	if (file->deflated)
		return 0;	/* opened once more */
	for (uint64_t i = 0; i < pt->nstorages; i++)
		any |= pt->storage[i].deflated;
	if (!any)
		return 0;
	file->deflated = ck_alloc_array(pt->nstorages, sizeof(*file->deflated));
	file->member = ck_alloc_array(pt->nstorages, sizeof(*file->member));
	if (!file->deflated || !file->member)
		return ck_fail_nomem(err, "a list of storages", pt->nstorages);
	memcpy(file->deflated, pt->storage, pt->nstorages * sizeof(*file->deflated));
	for (uint64_t i = 0; i < pt->nstorages; i++)
		file->deflated[i].key = "data";
	memset(file->member, 0xff, pt->nstorages * sizeof(*file->member));
	file->nstorages = pt->nstorages;
	return 0;
}

int ck_ds_open_pt(struct ds_step *ds, struct ds_file *file, struct ckpt_err *err)
{
	int rc = 0;

	if (file->pt)
		return 0;
	if (!file->src)
		rc = ck_src_open(ds->in->pool, file->path, &file->src, err);
	if (!rc)
		rc = ck_pt_open(file->src, &ds->in->limits, 0, &file->notes, &file->pt, err);
	if (rc)
		return rc;
	file->fingerprint = file->pt->fingerprint;
	if (file->pt->doc.root && file->pt->doc.root->kind == CK_VAL_STR) {
		ck_ds_close_pt(file);
		return ck_fail(err, CKPT_E_LAYOUT, file->path, CKPT_NO_OFFSET,
			       "LAYOUT_UNSUPPORTED: this is a placeholder of the Nebula "
			       "checkpoint engine; the data is in Nebula's own store");
	}
	check_prefix(file);
	rc = keep_deflated(file, err);
	if (!rc)
		file->ok = true;
	return rc;
}

int ck_ds_note_damage(struct ds_file *file, int rc, struct ckpt_err *err)
{
	enum ck_finding_id id = rc == -CKPT_E_MISMATCH ? CK_FINDING_NAMES_WRONG :
							 CK_FINDING_FILE_DAMAGED;

	if (rc == -CKPT_E_NOMEM || rc == -CKPT_E_UNSAFE || rc == -CKPT_E_LIMIT ||
	    rc == -CKPT_E_CANCELED || rc == -CKPT_E_LAYOUT)
		return rc;
	if (rc == -CKPT_E_IO && ck_sys.access(file->path, R_OK) && errno == EACCES)
		id = CK_FINDING_NO_PERMISSION;
	ck_findings_add(&file->notes, id, file->path, "%s%s%s", err->msg,
			strcmp(err->where, file->path) ? " at " : "",
			strcmp(err->where, file->path) ? err->where : "");
	file->ok = false;
	ck_err_clear(err);
	return 0;
}

int ck_ds_open_needed(struct ds_step *ds, struct ds_file *file, struct ckpt_err *err)
{
	struct ckpt_err inner = { 0 };
	const int rc = ck_ds_open_pt(ds, file, &inner);

	if (!rc)
		return 0;
	return ck_fail(err, rc == -CKPT_E_FORMAT ? CKPT_E_CORRUPT : -rc, file->path, inner.offset,
		       "%s%s", rc == -CKPT_E_FORMAT || rc == -CKPT_E_CORRUPT ||
		       rc == -CKPT_E_TRUNCATED ? "FILE_DAMAGED: " : "", inner.msg);
}

static bool differs(const struct ck_val *a, const struct ck_val *b, const char *key)
{
	return !ck_val_equal(ck_val_get(a, key), ck_val_get(b, key), COMPARE_DEPTH);
}

/* Compare a rank's model file with rank 0's. */
static void compare_model(struct ds_step *ds, struct ds_file *file)
{
	static const char *const same[] = {
		"module", "buffer_names", "param_shapes", "frozen_param_shapes", "dp_world_size",
		"mp_world_size", "ds_version", "skipped_steps",
	};
	const struct ck_val *root = file->pt->doc.root;
	int64_t a = -1, b = -1;

	if (differs(ds->model, root, "global_steps")) {
		ck_val_int(ck_val_get(ds->model, "global_steps"), &a);
		ck_val_int(ck_val_get(root, "global_steps"), &b);
		ck_findings_add(&file->notes, CK_FINDING_STEP_MIXED, file->path,
				"global_steps is %" PRId64 " here and %" PRId64
				" in %s (files of two saves in one folder?)", b, a,
				ds->model_file->name);
	}
	for (size_t i = 0; i < CK_ARRAY_LEN(same); i++)
		if (differs(ds->model, root, same[i]))
			ck_findings_add(&file->notes, CK_FINDING_RANKS_DISAGREE, file->path,
					"'%s' differs from the value in %s", same[i],
					ds->model_file->name);
}

/* Of 'n' names that 'number' numbers: their tensors in 'dict'. */
static struct ds_slice *take_named(const struct ds_file *file, const struct ck_val *dict,
				   const struct ck_map *number, uint64_t n)
{
	struct ds_slice *s = ck_zalloc(n * sizeof(*s));
	struct ck_val *const *item;
	uint64_t npairs, k;

	if (!s || !ck_val_pairs(dict, &item, &npairs))
		return s;
	for (uint64_t i = 0; i < npairs; i++) {
		const char *name = ck_val_str(item[2 * i]);

		if (name && ck_map_find(number, name, strlen(name), &k))
			ck_ds_slice_of(file->pt, item[2 * i + 1], &s[k]);
	}
	return s;
}

static int take_model(struct ds_step *ds, struct ds_file *file, struct ds_model_rank *m,
		      struct ckpt_err *err)
{
	const struct ck_val *root = file->pt->doc.root;

	if (file != ds->model_file)
		compare_model(ds, file);
	ck_ds_note_own_model(ds, file);
	m->frozen = take_named(file, ck_val_get(root, "frozen_param_fragments"),
			       &ds->frozen_no, ds->nfrozen);
	m->buffer = take_named(file, ck_val_get(root, "module"), &ds->buffer_no, ds->nbuffers);
	if (!m->frozen || !m->buffer)
		return ck_fail_nomem(err, "a list of fragments", ds->nfrozen + ds->nbuffers);
	m->file = file;
	return 0;
}

static int load_expert(struct ds_step *ds, struct ds_file *file, struct ckpt_err *err)
{
	const struct ds_experts *x = ds->experts;
	int rc;

	file->done = true;
	if (file->id.kind == DS_EXPERT && (file->id.layer >= x->nlayers ||
					   file->id.rank >= x->layer[file->id.layer].n))
		return 0;	/* an error says so */
	rc = ck_ds_open_pt(ds, file, err);
	if (!rc)
		rc = ck_ds_experts_take(ds, file, err);
	ck_ds_close_pt(file);
	return rc ? ck_ds_note_damage(file, rc, err) : 0;
}

static int load_one(void *arg, uint64_t job, uint32_t worker, struct ckpt_err *err)
{
	struct ds_step *ds = arg;
	struct ds_file *file = &ds->file[job];
	const bool kept = file == ds->model_file || file == ds->optim_file;
	int rc = 0;

	(void)worker;
	if (file->id.kind == DS_EXPERT || file->id.kind == DS_EXPERT_OPTIM)
		return load_expert(ds, file, err);
	if (file->done || file->id.rank >= ds->world || (!kept && file->id.kind == DS_MODEL))
		return 0;
	file->done = true;
	if (!kept)
		rc = ck_ds_open_pt(ds, file, err);
	if (!rc && file->ok && file->id.kind == DS_MODEL_RANK && ds->model_rank)
		rc = take_model(ds, file, &ds->model_rank[file->id.rank], err);
	if (!rc && file->ok && file->id.kind == DS_OPTIM && ds->optim &&
	    file->id.bf16 == ds->optim_file->id.bf16)
		rc = ck_ds_take_optim(ds, file, &ds->optim[file->id.rank], err);
	if (!rc && file->ok && ds->experts && ds->experts->by_mappings &&
	    ds->optim[file->id.rank].file == file)
		rc = ck_ds_experts_take_mappings(ds, file, err);
	if (!kept)
		ck_ds_keep_pt(ds, file);
	return rc ? ck_ds_note_damage(file, rc, err) : 0;
}

/* The first file of a kind, lowest rank first (the listing is sorted by name). */
static struct ds_file *first_of(struct ds_step *ds, enum ds_kind kind)
{
	struct ds_file *best = NULL;

	for (uint64_t i = 0; i < ds->nfiles; i++)
		if (ds->file[i].id.kind == kind &&
		    (!best || ds->file[i].id.rank < best->id.rank))
			best = &ds->file[i];
	return best;
}

static int refuse_model(struct ds_step *ds, const char *what, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_LAYOUT, ds->model_file->path, CKPT_NO_OFFSET,
		       "LAYOUT_UNSUPPORTED: %s; zckpt reads plain data-parallel steps of ZeRO "
		       "stage 0 to 3", what);
}

static void read_version(struct ds_step *ds)
{
	const char *text = ck_val_str(ck_val_get(ds->model, "ds_version"));

	if (!text && ds->experts && ds->optim_file)	/* up to 0.19.2 */
		text = ck_val_str(ck_val_get(ds->zero, "ds_version"));
	if (text)
		sscanf(text, "%u.%u.%u", &ds->version[0], &ds->version[1], &ds->version[2]);
}

/* Layouts that the model file tells. */
static int check_model(struct ds_step *ds, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;
	int64_t mp = 1;
	int rc;

	if (!ck_val_pairs(ds->model, &item, &n))
		return ck_fail(err, CKPT_E_FORMAT, ds->model_file->path, CKPT_NO_OFFSET,
			       "this file holds no dictionary, so it is not a DeepSpeed "
			       "model file");
	rc = ck_ds_experts_begin(ds, err);
	if (rc)
		return rc;
	if (ds->par && ds->experts)
		return refuse_model(ds, "mixture of experts with tensor or pipeline parallelism",
				    err);
	if (!ds->par && ck_val_int(ck_val_get(ds->model, "mp_world_size"), &mp) && mp > 1)
		return ck_fail(err, CKPT_E_INCOMPLETE, ds->at.where, CKPT_NO_OFFSET,
			       "MODEL_FILE_MISSING: mp_world_size is %" PRId64 ", but %s is the "
			       "only mp_rank file (was the copy partial?)", mp,
			       ds->model_file->name);
	ds->module = ck_val_get(ds->model, "module");
	if (ck_val_is_none(ds->module) && ds->par)
		return ck_ds_pipe_module(ds, err);
	if (ck_val_is_none(ds->module))
		return ck_fail(err, CKPT_E_INCOMPLETE, ds->model_file->path, CKPT_NO_OFFSET,
			       "MODEL_FILE_MISSING: 'module' is None, so the weights are in files "
			       "of layers, and this folder has none");
	if (!ck_val_pairs(ds->module, &item, &n))
		return ck_fail(err, CKPT_E_FORMAT, ds->model_file->path, CKPT_NO_OFFSET,
			       "'module' is missing or not a dictionary of tensors");
	return 0;
}

/* Names as keys of 'module', each once. */
static int map_module(struct ds_step *ds, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;
	int rc = 0;

	ck_val_pairs(ds->module, &item, &n);
	for (uint64_t i = 0; rc >= 0 && i < n; i++) {
		const char *name = ck_val_str(item[2 * i]);

		if (!name) {
			ck_findings_add(ds->f, CK_FINDING_NAME_ODD, ds->model_file->path,
					"entry %" PRIu64 " of 'module' has a key that is "
					"not a plain string; it is left out", i);
			continue;
		}
		rc = ck_map_add(&ds->in_module, name, strlen(name), i, NULL, err);
		if (rc == 1)
			ck_findings_add(ds->f, CK_FINDING_NAMES_WRONG, name,
					"'module' has this name twice");
	}
	return rc < 0 ? rc : 0;
}

/* Without the model file there are no names: its damage ends the reading. */
static int fail_model(const struct ds_file *file, int rc, const struct ckpt_err *inner,
		      struct ckpt_err *err)
{
	if (rc == -CKPT_E_TRUNCATED || rc == -CKPT_E_CORRUPT || rc == -CKPT_E_FORMAT)
		return ck_fail(err, rc == -CKPT_E_FORMAT ? CKPT_E_CORRUPT : inner->code,
			       file->path, inner->offset, "FILE_DAMAGED: %s", inner->msg);
	if (err && !err->code)
		*err = *inner;
	return rc;
}

static int load_model(struct ds_step *ds, struct ckpt_err *err)
{
	struct ds_file *plain = first_of(ds, DS_MODEL), *ranked = first_of(ds, DS_MODEL_RANK);
	struct ckpt_err inner = { 0 };
	int rc;

	if (!plain && !ranked)
		return ck_fail(err, CKPT_E_INCOMPLETE, ds->at.where, CKPT_NO_OFFSET,
			       "MODEL_FILE_MISSING: no *_model_states.pt here; only such a "
			       "file has the names of the tensors");
	if (plain && ranked)
		ck_findings_add(ds->f, CK_FINDING_STEP_MIXED, ds->at.where,
				"model files of stage 3 and of another stage in one folder "
				"(files of two saves in one folder?)");
	ds->model_file = plain ? plain : ranked;
	rc = ck_ds_open_pt(ds, ds->model_file, &inner);
	if (rc)
		return fail_model(ds->model_file, rc, &inner, err);
	ds->model = ds->model_file->pt->doc.root;
	rc = check_model(ds, err);
	if (!rc)
		rc = map_module(ds, err);
	read_version(ds);
	return rc;
}

/* Shards with and without the bf16_ prefix are of two saves: the more frequent ones count. */
static struct ds_file *choose_optim(struct ds_step *ds)
{
	struct ds_file *first[2] = { NULL, NULL };
	uint64_t n[2] = { 0, 0 };

	for (uint64_t i = 0; i < ds->nfiles; i++) {
		struct ds_file *file = &ds->file[i];

		if (file->id.kind != DS_OPTIM)
			continue;
		n[file->id.bf16]++;
		if (!first[file->id.bf16] || file->id.rank < first[file->id.bf16]->id.rank)
			first[file->id.bf16] = file;
	}
	if (n[0] && n[1])
		ck_findings_add(ds->f, CK_FINDING_RANK_FILE_EXTRA, ds->at.where,
				"%" PRIu64 " shards with the prefix bf16_ and %" PRIu64 " without "
				"in one folder (a stale save?)", n[1], n[0]);
	return n[1] >= n[0] ? first[1] : first[0];
}

static int64_t dp_world(const struct ds_step *ds)
{
	int64_t n = 0;

	if (!ck_val_int(ck_val_get(ds->model, "dp_world_size"), &n) || n < 1 ||
	    n > CKPT_ZERO_MAX_WORLD)
		return 0;
	return n;
}

static int take_first(struct ds_step *ds, struct ds_file *file, struct ckpt_err *err)
{
	int rc;

	ds->optim_file = file;
	rc = ck_ds_read_zero_dict(ds, err);
	if (!rc)
		read_version(ds);
	return rc;
}

/*
 * The first shard that can be read is the one the others are compared with, unless the model file
 * speaks for another one: a shard of another run must not have the rest of them blamed.
 */
static int load_first_optim(struct ds_step *ds, struct ckpt_err *err)
{
	struct ds_file *first = ds->no_shards ? NULL : choose_optim(ds), *other = NULL;
	unsigned tried = 0;
	int rc = 0;

	/* the lowest rank, then all in the order of the listing */
	for (uint64_t i = 0; first && i <= ds->nfiles; i++) {
		struct ds_file *file = i ? &ds->file[i - 1] : first;

		if (file->id.kind != DS_OPTIM || file->id.bf16 != first->id.bf16 || file->done)
			continue;
		rc = ck_ds_open_pt(ds, file, err);
		if (!rc && ck_ds_fits_model(ds, file, dp_world(ds)))
			return take_first(ds, file, err);
		if (!rc) {
			other = other ? other : file;
			if (++tried == FIRST_TRIED)
				break;
			continue;
		}
		file->done = true;
		rc = ck_ds_note_damage(file, rc, err);
		if (rc)
			return rc;
	}
	return other ? take_first(ds, other, err) : 0;
}

static int list_named(struct ds_step *ds, const struct ck_val *names, const struct ck_val *shapes,
		      struct ds_named **out, uint64_t *n_out, struct ckpt_err *err)
{
	struct ck_val *const *item = NULL;
	uint64_t n = 0, kept = 0;
	const bool pairs = shapes && ck_val_pairs(shapes, &item, &n);
	struct ds_named *d;

	if (!pairs && !ck_val_seq(names, &item, &n))
		n = 0;
	d = ck_arena_zalloc(&ds->arena, (n + 1) * sizeof(*d));
	if (!d)
		return ck_fail_nomem(err, "a list of names", n);
	for (uint64_t i = 0; i < n; i++) {
		struct ds_named *one = &d[kept];

		one->name = ck_val_str(item[pairs ? 2 * i : i]);
		if (!one->name) {
			ck_findings_add(ds->f, CK_FINDING_NAMES_WRONG, ds->model_file->path,
					"entry %" PRIu64 " of %s is not a plain string", i,
					pairs ? "frozen_param_shapes" : "buffer_names");
			continue;
		}
		if (pairs && !ck_ds_shape_of(ds, item[2 * i + 1], &one->shape, &one->ndim,
					  &one->numel)) {
			ck_findings_add(ds->f, CK_FINDING_NAMES_WRONG, one->name,
					"frozen_param_shapes does not give its shape");
			continue;
		}
		kept++;
	}
	*out = d;
	*n_out = kept;
	return 0;
}

static int number_named(struct ck_map *map, const struct ds_named *d, uint64_t n,
			struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; rc >= 0 && i < n; i++)
		rc = ck_map_add(map, d[i].name, strlen(d[i].name), i, NULL, err);
	return rc < 0 ? rc : 0;
}

/* Frozen parameters and buffers, numbered. */
static int read_named(struct ds_step *ds, struct ckpt_err *err)
{
	int rc = list_named(ds, NULL, ck_val_get(ds->model, "frozen_param_shapes"), &ds->frozen,
			    &ds->nfrozen, err);

	if (!rc)
		rc = list_named(ds, ck_val_get(ds->model, "buffer_names"), NULL, &ds->buffer,
				&ds->nbuffers, err);
	if (!rc)
		rc = number_named(&ds->frozen_no, ds->frozen, ds->nfrozen, err);
	if (!rc)
		rc = number_named(&ds->buffer_no, ds->buffer, ds->nbuffers, err);
	return rc;
}

static int make_rank_tables(struct ds_step *ds, struct ckpt_err *err)
{
	if (!ds->world)
		ds->world = (uint32_t)ck_max_u64(1, (uint64_t)dp_world(ds));
	/* BF16_Optimizer at stage 0 */
	ds->nameless = ds->par && ds->optim_file && !ds->ngroups;
	if (ds->optim_file && !ds->nameless) {
		ds->optim = ck_arena_zalloc(&ds->arena, ds->world * sizeof(*ds->optim));
		if (!ds->optim)
			return ck_fail_nomem(err, "a table of ranks", ds->world);
	}
	if (ds->model_file->id.kind == DS_MODEL_RANK) {
		if (!ds->optim_file)
			ds->stage = 3;
		ds->model_rank = ck_arena_zalloc(&ds->arena,
						 ds->world * sizeof(*ds->model_rank));
		if (!ds->model_rank)
			return ck_fail_nomem(err, "a table of ranks", ds->world);
	}
	return 0;
}

/* Findings of threads, in the order of the files, so that every run says the same. */
static void collect_notes(struct ds_step *ds)
{
	uint64_t unsummed = 0;

	for (uint64_t i = 0; i < ds->nfiles; i++) {
		struct ck_findings *notes = &ds->file[i].notes;

		unsummed += notes->of_kind[CK_FINDING_CRC_NOT_COMPUTED] != 0;
		ck_findings_merge(ds->f, notes, CK_FINDING_CRC_NOT_COMPUTED);
	}
	if (unsummed)
		ck_findings_add(ds->f, CK_FINDING_CRC_NOT_COMPUTED, ds->at.where,
				"%" PRIu64 " of %" PRIu64 " files were written without checksums "
				"of their tensors", unsummed, ds->nfiles);
}

int ck_ds_load(struct ds_step *ds, struct ckpt_err *err)
{
	int rc = load_model(ds, err);

	if (!rc)
		rc = load_first_optim(ds, err);
	if (!rc)
		rc = read_named(ds, err);
	if (!rc)
		rc = ck_ds_read_shapes(ds, err);
	if (!rc)
		rc = make_rank_tables(ds, err);
	if (!rc && ds->experts && !ds->ngroups)
		rc = ck_ds_experts_count_groups(ds, err);
	if (!rc && ds->optim_file)	/* alone: it names the states for all others */
		rc = load_one(ds, (uint64_t)(ds->optim_file - ds->file), 0, err);
	if (!rc)
		rc = ck_pool_run(ds->in->threads, ds->nfiles, load_one, ds, err);
	if (!rc && ds->experts)
		rc = ck_ds_experts_gather(ds, err);
	if (!rc && ds->experts)
		rc = ck_ds_experts_place(ds, err);
	if (!rc && ds->experts)
		ck_ds_experts_check_optim(ds);
	collect_notes(ds);
	return rc;
}
