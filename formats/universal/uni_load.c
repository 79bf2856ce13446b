/*
 * uni_load.c -- the folder 'zero': listed by the names of parameters that the model file has,
 * read in parallel.
 *
 * A name becomes a path as DeepSpeed makes one, so it is looked at first: none may lead out of
 * the folder.
 */
#include <inttypes.h>
#include <string.h>

#include <ckpt_zero.h>

#include "formats/universal/ck_uni.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_pool.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_mount.h"

/* "zero", or TAG/zero, or a folder in it: below the paths that were given. */
static const char *below(struct uni *u, const char *name)
{
	struct ds_step *ds = &u->ds;

	return ck_arena_printf(&ds->arena, "%s%szero%s%s", ds->at.given_step ? "" : ds->ix->tag,
			       ds->at.given_step ? "" : "/", name ? "/" : "", name ? name : "");
}

static int list(struct uni *u, const char *name, struct ck_tree *tree, struct ckpt_err *err)
{
	const struct ck_input *in = u->ds.in;
	const char *sub = below(u, name);

	if (!sub)
		return ck_fail_nomem(err, "a path", 0);
	return ck_look_list(in->pool, tree, in->path, in->npaths, sub, in->limits.files, err);
}

/* Not one step up, not from the root, no empty part. */
static bool stays_inside(const char *name)
{
	for (const char *p = name;; p++) {
		const size_t n = strcspn(p, "/");

		if (!n || (n <= 2 && !strncmp(p, "..", n)))
			return false;
		p += n;
		if (!*p)
			return true;
	}
}

/* "exp_avg.pt" -> "exp_avg"; NULL for another name. */
static const char *state_of(struct uni *u, const char *name)
{
	const size_t n = strlen(name);

	if (n < 4 || strcmp(name + n - 3, ".pt"))
		return NULL;
	return ck_arena_strndup(&u->ds.arena, name, n - 3);
}

static int add_file(struct uni *u, struct uni_param *p, const struct ck_tree_entry *e,
		    struct ckpt_err *err)
{
	const char *state = e->is_dir || e->is_odd ? NULL : state_of(u, e->name);
	struct uni_file *f = &p->file[p->nfiles];
	struct ck_arena *a = &u->ds.arena;

	if (!state) {
		ck_findings_add(u->ds.f, CK_FINDING_FILE_UNKNOWN, e->path,
				"not part of the checkpoint");
		return 0;
	}
	*f = (struct uni_file){ .of = p, .state = state };
	f->file.path = ck_arena_strdup(a, e->path);
	f->file.name = ck_arena_printf(a, "zero/%s/%s", p->p->name, e->name);
	f->file.bytes = e->bytes;
	if (!f->file.path || !f->file.name)
		return ck_fail_nomem(err, "a path", 0);
	p->nfiles++;
	return 0;
}

/* The master first: an index of a step has it so. */
static void put_master_first(struct uni_param *p)
{
	for (uint32_t i = 1; i < p->nfiles; i++) {
		const struct uni_file one = p->file[i];

		if (strcmp(one.state, "fp32"))
			continue;
		memmove(p->file + 1, p->file, i * sizeof(*p->file));
		p->file[0] = one;
	}
}

static int list_param(struct uni *u, struct uni_param *p, struct ckpt_err *err)
{
	struct ck_tree tree = CK_TREE_INIT;
	int rc;

	if (!stays_inside(p->p->name))
		return ck_fail(err, CKPT_E_UNSAFE, u->ds.at.where, CKPT_NO_OFFSET,
			       "the folder of a parameter called '%s' would be outside this one",
			       p->p->name);
	rc = list(u, p->p->name, &tree, err);
	if (rc == -CKPT_E_NOTFOUND) {
		ck_err_clear(err);	/* ck_uni_load() says what is missing */
		rc = 0;
	}
	if (!rc && tree.n) {
		p->file = ck_arena_zalloc(&u->ds.arena, tree.n * sizeof(*p->file));
		if (!p->file)
			rc = ck_fail_nomem(err, "a list of files", tree.n);
	}
	for (uint64_t i = 0; !rc && i < tree.n; i++)
		rc = add_file(u, p, &tree.entry[i], err);
	for (uint64_t i = 0; i < tree.ndiffering; i++)
		ck_findings_add(u->ds.f, CK_FINDING_OVERLAY_DIFFERS, tree.differing[i],
				"two of the given folders hold this file of %s with different "
				"sizes; the first one's is used", p->p->name);
	put_master_first(p);
	u->nfiles += p->nfiles;
	ck_tree_release(&tree);
	return rc;
}

static int list_params(struct uni *u, struct ckpt_err *err)
{
	struct ds_step *ds = &u->ds;
	int rc = 0;

	u->group = ck_arena_zalloc(&ds->arena, (ds->ngroups + 1) * sizeof(*u->group));
	if (!u->group)
		return ck_fail_nomem(err, "groups", ds->ngroups);
	for (uint32_t g = 0; !rc && g < ds->ngroups; g++) {
		const uint32_t n = ds->group[g].nparams;

		u->group[g] = ck_arena_zalloc(&ds->arena, ((uint64_t)n + 1) * sizeof(**u->group));
		if (!u->group[g])
			return ck_fail_nomem(err, "parameters", n);
		u->nparams += n;
		for (uint32_t i = 0; !rc && i < n; i++) {
			u->group[g][i].p = &ds->group[g].param[i];
			u->group[g][i].leads = !i;
			rc = list_param(u, &u->group[g][i], err);
		}
	}
	return rc;
}

/*
 * A folder of a name that the optimizer has not.  DeepSpeed 0.19.8 leaves float copies of
 * everything else in 'module' here; nothing reads them.  States of an unknown name would be lost.
 */
static int look_at_other(struct uni *u, const char *name, struct ckpt_err *err)
{
	struct ck_tree tree = CK_TREE_INIT;
	bool others = false;
	int rc = list(u, name, &tree, err);

	for (uint64_t i = 0; !rc && i < tree.n; i++)
		others |= strcmp(tree.entry[i].name, "fp32.pt") != 0;
	if (!rc && (others || !ck_uni_in_module(u, name)))
		ck_findings_add(u->ds.f, CK_FINDING_NAMES_WRONG, name,
				"'zero' has a folder of this name, but the optimizer has no "
				"such parameter (folders of two models?)");
	ck_tree_release(&tree);
	return rc;
}

/* First parts of the names of parameters, which are the folders that belong here. */
static int map_first_parts(struct uni *u, struct ck_map *map, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t g = 0; rc >= 0 && g < u->ds.ngroups; g++)
		for (uint32_t i = 0; rc >= 0 && i < u->ds.group[g].nparams; i++) {
			const char *name = u->ds.group[g].param[i].name;

			rc = ck_map_add(map, name, strcspn(name, "/"), 0, NULL, err);
		}
	return rc < 0 ? rc : 0;
}

static int look_for_others(struct uni *u, struct ckpt_err *err)
{
	struct ck_tree tree = CK_TREE_INIT;
	struct ck_map known = CK_MAP_INIT;
	int rc = map_first_parts(u, &known, err);

	if (!rc)
		rc = list(u, NULL, &tree, err);
	for (uint64_t i = 0; !rc && i < tree.n; i++) {
		const struct ck_tree_entry *e = &tree.entry[i];

		if (ck_map_find(&known, e->name, strlen(e->name), NULL))
			continue;
		if (e->is_dir)
			rc = look_at_other(u, e->name, err);
		else if (strcmp(e->name, "optimizer_state.pt"))
			ck_findings_add(u->ds.f, CK_FINDING_FILE_UNKNOWN, e->path,
					"not part of the checkpoint");
	}
	ck_map_release(&known);
	ck_tree_release(&tree);
	return rc;
}

/* ---- a file of a parameter ---- */

static bool is_true(const struct ck_val *v)
{
	int64_t n = 0;

	return ck_val_int(v, &n) && n;
}

static int refuse(const struct uni_file *f, const char *what, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_LAYOUT, f->file.path, CKPT_NO_OFFSET,
		       "LAYOUT_UNSUPPORTED: %s", what);
}

/* Stages 1 and 2: a dict around a tensor of the parameter's own shape. */
static int check_dict(const struct ds_step *ds, struct uni_file *f, const struct ck_val *root,
		      const struct ck_tensor_ref *t, struct ckpt_err *err)
{
	const struct ds_param *p = f->of->p;

	int64_t experts;

	if (is_true(ck_val_get(root, "is_expert_param")) &&
	    (!ck_val_int(ck_val_get(root, "ep_num_experts"), &experts) || !p->ndim ||
	     experts < 1 || (uint64_t)experts != p->shape[0] ||
	     !ck_ds_experts_is_stack(ds, p->name)))
		return refuse(f, "experts that the model file's ds_autoep_layers do not list", err);
	if (is_true(ck_val_get(root, "vocab_tensor")) && t->numel != p->numel)
		return refuse(f, "a vocabulary whose padding was stripped", err);
	if (t->numel == p->numel && p->ndim && !ck_val_get(root, "sub_param_shape") &&
	    (t->ndim != p->ndim || memcmp(t->shape, p->shape, p->ndim * sizeof(*p->shape))))
		ck_findings_add(&f->file.notes, CK_FINDING_NAMES_WRONG, f->file.path,
				"this tensor (%u dimensions) has another shape than the model "
				"file gives for %s", t->ndim, p->name);
	return 0;
}

/*
 * Stage 3 without tensor parallelism: the flat tensor itself.  DeepSpeed 0.14.5 to 0.19.2 leave
 * padding behind it when ranks had none of the parameter's elements.
 */
static void check_length(struct uni_file *f, bool bare)
{
	const struct ds_param *p = f->of->p;
	const uint64_t have = f->slice.numel;

	if (have == p->numel)
		return;
	if (bare && have > p->numel && have - p->numel < CKPT_ZERO_MAX_WORLD) {
		ck_findings_add(&f->file.notes, CK_FINDING_FORMAT_NOTE, f->file.path,
				"%" PRIu64 " elements, the last %" PRIu64 " of them padding "
				"that DeepSpeed's converter should have cut off; its loader "
				"shifts the parameters after them", have, have - p->numel);
		f->slice.numel = p->numel;
		return;
	}
	ck_findings_add(&f->file.notes, CK_FINDING_LENGTH_WRONG, f->file.path,
			"the file has %" PRIu64 " elements, but %s has %" PRIu64 " (a file of "
			"another run?)", have, p->name, p->numel);
	f->slice.dtype = 0;
}

static int take_state(const struct ds_step *ds, struct uni_file *f, struct ckpt_err *err)
{
	const struct ck_val *root = f->file.pt->doc.root;
	const struct ck_val *param = ck_val_get(root, "param");
	const struct ck_val *v = param ? param : root;
	const struct ck_tensor_ref *t = ck_val_tensor(v);

	if (!t || !ck_ds_slice_of(f->file.pt, v, &f->slice))
		return ck_fail(err, CKPT_E_CORRUPT, f->file.path, CKPT_NO_OFFSET,
			       "expected a contiguous tensor, or a dictionary with one as "
			       "'param'");
	if (param) {
		const int rc = check_dict(ds, f, root, t, err);

		if (rc)
			return rc;
	}
	check_length(f, !param);
	return 0;
}

static int load_one(void *arg, uint64_t job, uint32_t worker, struct ckpt_err *err)
{
	struct uni *u = arg;
	struct uni_file *f = &u->file[job];
	int rc = ck_ds_open_pt(&u->ds, &f->file, err);

	(void)worker;
	if (!rc && !strcmp(f->state, "step"))
		rc = ck_ds_number_of(&f->file, f->file.pt->doc.root, &f->has_step, &f->step, err);
	else if (!rc)
		rc = take_state(&u->ds, f, err);
	if (!rc && !strcmp(f->state, "step") && !f->has_step)
		rc = ck_fail(err, CKPT_E_CORRUPT, f->file.path, CKPT_NO_OFFSET,
			     "expected a number, or a tensor of one element");
	if (f->of->leads && !strcmp(f->state, "step"))
		ck_ds_keep_pt(&u->ds, &f->file);
	else
		ck_ds_close_pt(&f->file);
	return rc ? ck_ds_note_damage(&f->file, rc, err) : 0;
}

/* One array over all parameters, which jobs number. */
static int gather(struct uni *u, struct ckpt_err *err)
{
	uint64_t at = 0;

	u->file = ck_arena_zalloc(&u->ds.arena, (u->nfiles + 1) * sizeof(*u->file));
	if (!u->file)
		return ck_fail_nomem(err, "a list of files", u->nfiles);
	for (uint32_t g = 0; g < u->ds.ngroups; g++)
		for (uint32_t i = 0; i < u->ds.group[g].nparams; i++) {
			struct uni_param *p = &u->group[g][i];

			if (p->nfiles)
				memcpy(u->file + at, p->file, p->nfiles * sizeof(*p->file));
			p->file = u->file + at;
			at += p->nfiles;
		}
	return 0;
}

/* ---- zero/optimizer_state.pt ---- */

int ck_uni_open_optimizer(struct uni *u, struct ckpt_err *err)
{
	struct ck_tree tree = CK_TREE_INIT;
	struct ds_step *ds = &u->ds;
	const struct ck_tree_entry *e;
	int rc = list(u, NULL, &tree, err);

	if (rc)
		return rc;
	e = ck_tree_find(&tree, "optimizer_state.pt");
	u->optim.name = "zero/optimizer_state.pt";
	u->optim.path = ck_arena_printf(&ds->arena, "%s/%s", ds->at.where, u->optim.name);
	if (e)
		u->optim.path = ck_arena_strdup(&ds->arena, e->path);
	if (!u->optim.path)
		rc = ck_fail_nomem(err, "a path", 0);
	if (!rc && e) {
		u->optim.bytes = e->bytes;
		rc = ck_ds_open_pt(ds, &u->optim, err);
		if (!rc)
			u->optim_root = u->optim.pt->doc.root;
		else
			rc = ck_ds_note_damage(&u->optim, rc, err);
	} else if (!rc) {
		ck_findings_add(ds->f, CK_FINDING_STATE_FILE_MISSING, u->optim.path,
				"missing; it holds the hyper-parameters, groups and loss scale "
				"(was the copy interrupted?)");
	}
	ck_tree_release(&tree);
	return rc;
}

struct uni_file *ck_uni_file(const struct uni_param *p, const char *state)
{
	for (uint32_t i = 0; i < p->nfiles; i++)
		if (!strcmp(p->file[i].state, state))
			return &p->file[i];
	return NULL;
}

static void collect_notes(struct uni *u)
{
	uint64_t unsummed = 0;

	ck_findings_merge(u->ds.f, &u->optim.notes, CK_FINDING_COUNT);
	for (uint64_t i = 0; i < u->nfiles; i++) {
		unsummed += u->file[i].file.notes.of_kind[CK_FINDING_CRC_NOT_COMPUTED] != 0;
		ck_findings_merge(u->ds.f, &u->file[i].file.notes, CK_FINDING_CRC_NOT_COMPUTED);
	}
	if (unsummed)
		ck_findings_add(u->ds.f, CK_FINDING_CRC_NOT_COMPUTED, u->ds.at.where,
				"%" PRIu64 " of %" PRIu64 " files were written without checksums "
				"of their tensors", unsummed, u->nfiles);
}

int ck_uni_load(struct uni *u, struct ckpt_err *err)
{
	int rc = list_params(u, err);

	if (!rc)
		rc = look_for_others(u, err);
	if (!rc)
		rc = gather(u, err);
	if (!rc)
		rc = ck_pool_run(u->ds.in->threads, u->nfiles, load_one, u, err);
	if (u->file)
		collect_notes(u);
	return rc;
}

static void release(struct ds_file *file)
{
	ck_ds_close_pt(file);
	ck_src_close(file->src);
	ck_free(file->deflated);
	ck_free(file->member);
	ck_findings_release(&file->notes);
}

void ck_uni_release(struct uni *u)
{
	release(&u->optim);
	for (uint64_t i = 0; u->file && i < u->nfiles; i++)
		release(&u->file[i].file);
}
