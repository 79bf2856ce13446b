/*
 * rk_tc.c -- the index of torch_checkpointing: which items there are, and whose file each file is.
 *
 *	{'metadata': {ITEM: {'nested_path_to_metadata': {PATH: [entry, ...]}, ...}},
 *	 'world_size': 2, 'version': '2.0'}
 *
 * Callers name the items.  Those that torch_checkpointing does not reshard, such as a step, have
 * files and are not listed.  The optimizer is an item with paths that begin with "state" or
 * "param_groups"; the model is the item "model", else the first other one that has entries.
 */
#include "formats/fsdp_ranks/rk_tc.h"

#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/step/ck_step_ds.h"
#include "libckpt/step/ck_step_fact.h"
#include "libckpt/tensor/ck_val_new.h"

#define COMPARE_DEPTH 20u

bool ck_rk_tc_name(const char *name, size_t *n_out, uint32_t *rank_out)
{
	const char *line = strrchr(name, '_');
	const size_t n = line ? strspn(line + 1, "0123456789") : 0;
	uint32_t rank = 0;

	if (!n || n > 7 || line == name || strcmp(line + 1 + n, ".pt") != 0)
		return false;
	for (size_t i = 1; i <= n; i++)
		rank = rank * 10 + (uint32_t)(line[i] - '0');
	*n_out = (size_t)(line - name);
	*rank_out = rank;
	return true;
}

/* ---- the pickle ---- */

static int load(struct rk *r, struct rk_tc *tc, struct ckpt_err *err)
{
	const struct ckpt_limits *limits = &r->in->limits;
	struct ck_hash128 h;
	uint64_t n;
	uint8_t *p;
	int rc = ck_src_open(r->in->pool, tc->path, &tc->src, err);

	if (rc)
		return rc;
	n = ck_src_size(tc->src);
	if (n > limits->pickle_bytes)
		return ck_fail_limit(err, tc->path, CKPT_NO_OFFSET, "pickle_bytes",
				     limits->pickle_bytes, "the file has %" PRIu64 " bytes", n);
	p = ck_alloc((size_t)n + 1);
	if (!p)
		return ck_fail_nomem(err, "a pickle", n);
	rc = ck_src_read(tc->src, 0, p, (size_t)n, err);
	if (!rc)
		rc = ck_pkl_load(&tc->doc, p, n, limits, 0, tc->path, err);
	if (!rc && tc->doc.used != n)
		rc = ck_fail(err, CKPT_E_CORRUPT, tc->path, tc->doc.used,
			     "%" PRIu64 " bytes follow the pickle", n - tc->doc.used);
	if (!rc && tc->doc.nnames)
		rc = ck_fail(err, CKPT_E_CORRUPT, tc->path, tc->doc.name[0].offset,
			     "it names %.60s.%.60s; the index of torch_checkpointing has only "
			     "values (the file of another program?)", tc->doc.name[0].module,
			     tc->doc.name[0].name);
	h = ck_hash128(p, rc ? 0 : (size_t)n);
	ck_hasher_add(r->ix->fingerprint, &h, sizeof(h));
	ck_free(p);
	return rc;
}

static int bad(const struct rk_tc *tc, const char *what, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_CORRUPT, tc->path, CKPT_NO_OFFSET,
		       "no index of torch_checkpointing: %s", what);
}

static int read_world(struct rk *r, const struct rk_tc *tc, struct ckpt_err *err)
{
	const struct ck_val *root = tc->doc.root;
	const struct ck_val *version = ck_val_get(root, "version");
	int64_t world;

	if (!ck_val_str(version))
		return bad(tc, "it has no version", err);
	if (strcmp(ck_val_str(version), "2.0") != 0)
		return ck_fail(err, CKPT_E_UNSUPPORTED, tc->path, CKPT_NO_OFFSET,
			       "its version is '%.40s'; zckpt reads 2.0", ck_val_str(version));
	if (!ck_val_int(ck_val_get(root, "world_size"), &world) || world < 1 || world > UINT32_MAX)
		return bad(tc, "it has no world_size", err);
	r->world = (uint32_t)world;
	return 0;
}

/* ---- items ---- */

static bool is_optimizer(const struct rk_tc_item *item)
{
	static const char *const begin[] = { "[\"state\",", "[\"param_groups\"," };
	struct ck_val *const *pair;
	uint64_t n, fits = 0;

	if (!ck_val_pairs(item->paths, &pair, &n) || !n)
		return false;
	for (uint64_t i = 0; i < n; i++)
		for (size_t k = 0; k < CK_ARRAY_LEN(begin); k++) {
			const char *path = ck_val_str(pair[2 * i]);

			fits += path && !strncmp(path, begin[k], strlen(begin[k]));
		}
	return fits > 0;
}

static bool has_entries(const struct rk_tc_item *item)
{
	struct ck_val *const *pair;
	uint64_t n;

	return ck_val_pairs(item->paths, &pair, &n) && n;
}

static void note_left_out(struct rk *r, const struct rk_tc_item *item, const char *instead)
{
	ck_findings_add(r->f, CK_FINDING_SUBTREE_CHOICE, item->name,
			"left out: an item with tensors of %s; '%s' is read", r->tc->path, instead);
}

static int give_kinds(struct rk *r, struct rk_tc *tc, struct ckpt_err *err)
{
	struct rk_tc_item *model = NULL, *optim = NULL;

	for (uint64_t i = 0; i < tc->nitems; i++) {
		struct rk_tc_item *item = &tc->item[i];

		item->kind = RK_EXTRA;
		if (is_optimizer(item) && strcmp(item->name, "model") != 0)
			optim = optim ? optim : item;
		else if (!strcmp(item->name, "model") || (!model && has_entries(item)))
			model = item;
	}
	if (!model)
		return bad(tc, "no item has the tensors of a model", err);
	model->kind = RK_MODEL;
	if (optim)
		optim->kind = RK_OPTIM;
	for (uint64_t i = 0; i < tc->nitems; i++)
		if (tc->item[i].kind == RK_EXTRA && has_entries(&tc->item[i]))
			note_left_out(r, &tc->item[i], is_optimizer(&tc->item[i]) && optim ?
				      optim->name : model->name);
	return 0;
}

/* A listed item, or with 'paths' NULL one that has files only. */
static int add_item(struct rk_tc *tc, const char *name, const struct ck_val *paths,
		    struct ckpt_err *err)
{
	int rc = ck_map_add(&tc->by_name, name, strlen(name), tc->nitems, NULL, err);

	if (rc > 0)
		return bad(tc, "it has an item twice", err);
	if (!rc)
		tc->item[tc->nitems++] = (struct rk_tc_item){
			.name = name, .paths = paths, .kind = RK_EXTRA,
		};
	return rc;
}

/* A layout of the caller's own puts an item into other files, or in another format. */
static int check_layout(const struct rk_tc *tc, const char *name, const struct ck_val *item,
			struct ckpt_err *err)
{
	struct ck_val *const *pair;
	uint64_t n;

	if (!ck_val_pairs(ck_val_get(item, "rank_to_layout_info"), &pair, &n))
		return 0;
	for (uint64_t i = 0; i < n; i++)
		if (!ck_val_is_none(pair[2 * i + 1]))
			return ck_fail(err, CKPT_E_UNSUPPORTED, tc->path, CKPT_NO_OFFSET,
				       "the item '%.60s' has a layout of its own, which zckpt does "
				       "not read; save it without checkpoint_layout", name);
	return 0;
}

static int read_items(struct rk *r, struct rk_tc *tc, struct ckpt_err *err)
{
	struct ck_val *const *pair;
	uint64_t n;
	int rc = 0;

	if (!ck_val_pairs(ck_val_get(tc->doc.root, "metadata"), &pair, &n) || !n)
		return bad(tc, "it has no metadata", err);
	tc->item = ck_arena_zalloc(&r->arena, (n + r->nfiles) * sizeof(*tc->item));
	if (!tc->item)
		return ck_fail_nomem(err, "items", n);
	for (uint64_t i = 0; !rc && i < n; i++) {
		const struct ck_val *paths = ck_val_get(pair[2 * i + 1], "nested_path_to_metadata");
		const char *name = ck_val_str(pair[2 * i]);

		if (!name || !paths || paths->kind != CK_VAL_DICT)
			return bad(tc, "an item has no nested_path_to_metadata", err);
		rc = check_layout(tc, name, pair[2 * i + 1], err);
		if (!rc)
			rc = add_item(tc, name, paths, err);
	}
	return rc ? rc : give_kinds(r, tc, err);
}

/* ---- files ---- */

/* The item of a file, by its name; NULL for one that is none. */
static struct rk_tc_item *item_of(struct rk_tc *tc, const char *name)
{
	uint32_t rank;
	uint64_t at;
	size_t n;

	return ck_rk_tc_name(name, &n, &rank) && ck_map_find(&tc->by_name, name, n, &at) ?
	       &tc->item[at] : NULL;
}

/* Items that are not listed have a file of a rank that there is. */
static int add_unlisted(struct rk *r, struct ckpt_err *err)
{
	uint32_t rank;
	size_t n;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < r->nfiles; i++) {
		const char *name = r->file[i].name;

		if (item_of(r->tc, name) || !ck_rk_tc_name(name, &n, &rank) || rank >= r->world)
			continue;
		name = ck_arena_strndup(&r->arena, name, n);
		rc = name ? add_item(r->tc, name, NULL, err) : ck_fail_nomem(err, "a name", n);
	}
	return rc;
}

static int give_files(struct rk *r, struct ckpt_err *err)
{
	uint64_t n = 0;
	int rc = add_unlisted(r, err);

	for (uint64_t i = 0; !rc && i < r->nfiles; i++) {
		const struct rk_tc_item *item = item_of(r->tc, r->file[i].name);

		if (!item) {
			ck_findings_add(r->f, CK_FINDING_FILE_UNKNOWN, r->file[i].path,
					"no item of %s is called so, and there are %u ranks",
					RK_TC_INDEX, r->world);
			continue;
		}
		r->file[n] = r->file[i];
		r->file[n].id.kind = item->kind;
		/* Only the model and the optimizer are of model 0. */
		r->file[n++].id.model = item->kind == RK_EXTRA ?
					(uint32_t)(item - r->tc->item) + 1 : 0;
	}
	if (!rc)
		r->nfiles = n;
	return rc;
}

int ck_rk_tc_open(struct rk *r, struct ckpt_err *err)
{
	const struct ck_tree_entry *e = ck_tree_find(&r->tree, RK_TC_INDEX);
	struct rk_tc *tc = ck_arena_zalloc(&r->arena, sizeof(*tc));
	int rc;

	if (!tc || !e)
		return ck_fail_nomem(err, "an index", sizeof(*tc));
	r->tc = tc;
	tc->path = ck_arena_strdup(&r->arena, e->path);
	if (!tc->path)
		return ck_fail_nomem(err, "a path", 0);
	rc = load(r, tc, err);
	if (!rc)
		rc = read_world(r, tc, err);
	if (!rc)
		rc = read_items(r, tc, err);
	return rc ? rc : give_files(r, err);
}

static void note_missing(struct rk *r, const struct rk_tc_item *item, uint32_t rank, uint32_t n)
{
	const char *path = ck_arena_printf(&r->arena, "%s/%s_%u.pt", r->where, item->name, rank);

	r->incomplete = true;
	ck_findings_add(r->f, CK_FINDING_RANK_FILE_MISSING, path ? path : r->where,
			"missing; %u of the '%s' files of %u ranks are in the folder (was the copy "
			"partial?)", n, item->name, r->world);
}

static void give_file(struct rk *r, struct rk_file *file)
{
	struct rk_tc_item *item = item_of(r->tc, file->name);

	if (file->id.rank < r->world && !item->of[file->id.rank])
		item->of[file->id.rank] = file;
	else if (file->id.rank >= r->world && item->kind == RK_EXTRA)
		ck_findings_add(r->f, CK_FINDING_RANK_FILE_EXTRA, file->path,
				"the file of rank %u, but there are %u ranks (left over from a "
				"save by more?)", file->id.rank, r->world);
}

int ck_rk_tc_ranks(struct rk *r, struct ckpt_err *err)
{
	struct rk_tc *tc = r->tc;

	if (tc->nitems > (64 * r->nfiles + 4096) / r->world)
		return ck_fail(err, CKPT_E_LIMIT, tc->path, CKPT_NO_OFFSET,
			       "%" PRIu64 " items of %u ranks, but there are %" PRIu64 " files",
			       tc->nitems, r->world, r->nfiles);
	for (uint64_t k = 0; k < tc->nitems; k++) {
		tc->item[k].of = ck_arena_zalloc(&r->arena, r->world * sizeof(struct rk_file *));
		if (!tc->item[k].of)
			return ck_fail_nomem(err, "a list of ranks", r->world);
	}
	for (uint64_t i = 0; i < r->nfiles; i++)
		give_file(r, &r->file[i]);
	for (uint64_t k = 0; k < tc->nitems; k++) {
		uint32_t n = 0;

		for (uint32_t i = 0; i < r->world; i++)
			n += tc->item[k].of[i] != NULL;
		for (uint32_t i = 0; n < r->world && i < r->world; i++)
			if (!tc->item[k].of[i])
				note_missing(r, &tc->item[k], i, n);
	}
	return 0;
}

/* ---- values ---- */

static const struct rk_tc_item *find_item(const struct rk *r, const char *name)
{
	uint64_t at;

	return ck_map_find(&r->tc->by_name, name, strlen(name), &at) &&
	       r->tc->item[at].kind == RK_EXTRA ? &r->tc->item[at] : NULL;
}

static const struct ck_val *root_of(const struct rk_file *file)
{
	return file && file->ok && file->pt ? file->pt->doc.root : NULL;
}

int64_t ck_rk_tc_step(struct rk *r)
{
	const struct rk_tc_item *item = find_item(r, "step");
	int64_t step = -1, other;

	for (uint32_t i = 0; item && i < r->world; i++) {
		const struct ck_val *v = root_of(item->of[i]);

		if (!v || !ck_val_int(v, &other) || other < 0)
			continue;
		if (step >= 0 && step != other)
			ck_findings_add(r->f, CK_FINDING_STEP_MIXED, item->of[i]->path,
					"its step is %" PRId64 ", rank 0's %" PRId64 " (files of "
					"two saves in one folder?)", other, step);
		step = step < 0 ? other : step;
	}
	return step;
}

int ck_rk_tc_facts(struct rk *r, struct ckpt_err *err)
{
	const struct rk_tc_item *item = find_item(r, "lr_scheduler");
	struct ck_val *const *pair;
	uint64_t n;
	int rc = 0;

	if (!item || !ck_val_pairs(root_of(item->of[0]), &pair, &n))
		return 0;
	for (uint32_t i = 1; i < r->world; i++)
		if (root_of(item->of[i]) && !ck_val_equal(root_of(item->of[i]),
							  root_of(item->of[0]), COMPARE_DEPTH))
			ck_findings_add(r->f, CK_FINDING_RANKS_DISAGREE, item->of[i]->path,
					"its values differ from those of rank 0 (files of two "
					"saves in one folder?)");
	for (uint64_t i = 0; !rc && i < n; i++) {
		const char *key = ck_val_str(pair[2 * i]);
		const char *fact = key ? ck_arena_printf(&r->arena, "scheduler.%s", key) : NULL;

		if (fact)
			rc = ck_step_add_fact(r->ix, fact, pair[2 * i + 1], err);
	}
	return rc;
}

int ck_rk_tc_fill(struct rk *r, struct ck_step *step, struct ckpt_err *err)
{
	for (uint64_t i = 0; i < r->tc->nitems; i++) {
		const struct rk_tc_item *item = &r->tc->item[i];
		const struct ck_val *v = root_of(item->of[0]);

		if (item->kind != RK_EXTRA || !strcmp(item->name, "step"))
			continue;
		if (!strcmp(item->name, "lr_scheduler") && v && ck_step_ds_is_plain(v)) {
			if (!ck_val_dict_sets(&r->arena, step->model, item->name,
					      (struct ck_val *)v))
				return ck_fail_nomem(err, "a scheduler", 0);
			continue;
		}
		ck_findings_add(&step->for_others, CK_FINDING_NOT_CARRIED, r->tc->path,
				"what was saved as '%.60s': only the model, the optimizer, "
				"the scheduler and the count of steps are carried", item->name);
	}
	return 0;
}

void ck_rk_tc_release(struct rk_tc *tc)
{
	if (!tc)
		return;
	ck_src_close(tc->src);
	ck_pkl_release(&tc->doc);
	ck_map_release(&tc->by_name);
}
