/* ck_step_along.c -- see ck_step_along.h. */
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/step/ck_step_along.h"

/* A kind of file that each rank has one of: random states. */
struct per_rank {
	const char *begin, *end;	/* BEGIN_RANK.END */
	bool bare_for_one;		/* a world of one rank has BEGIN.END */
};

static const struct per_rank per_rank[] = {
	{ "rng_state", ".pth", true },		/* transformers */
	{ "random_states", ".pkl", false },	/* accelerate */
};

#define NKINDS (sizeof(per_rank) / sizeof(per_rank[0]))

struct listing {
	struct ck_step_along *b;
	uint64_t left;		/* entries that may still be looked at */
	const char *const *root;
	size_t nroots;
	const char *from, *to;	/* in front of a name: in the roots, in the result */
	bool in_tag;
};

static const char *rank_name(struct ck_step_along *b, const struct per_rank *kind, uint32_t rank,
			     uint32_t world)
{
	if (kind->bare_for_one && world == 1)
		return ck_arena_printf(&b->arena, "%s%s", kind->begin, kind->end);
	return ck_arena_printf(&b->arena, "%s_%" PRIu32 "%s", kind->begin, rank, kind->end);
}

/* BEGIN.END or BEGIN_DIGITS.END. */
static bool is_rank_file(const struct per_rank *kind, const char *name)
{
	const size_t n = strlen(kind->begin);

	if (strncmp(name, kind->begin, n))
		return false;
	name += n;
	if (*name == '_')
		name += 1 + strspn(name + 1, "0123456789");
	return !strcmp(name, kind->end);
}

/* A file in the tag folder that is read, or describes the source: not carried. */
static bool is_of_step(struct ck_step_along *b, const struct ck_tree_entry *e)
{
	if (!strcmp(e->name, "zckpt-manifest.json") || strstr(e->name, ".zckpt-"))
		return true;
	if (b->step->format->is_part(e->name, false))
		return true;
	if (!b->want->target->is_part(e->name, false))
		return false;
	ck_findings_add(b->step->f, CK_FINDING_NOT_CARRIED, e->path,
			"it is not part of the step and was not copied: a file of the result "
			"may have its name");
	return true;
}

/* Files that are made here, and what is no file. */
static bool is_left_out(const struct listing *c, const struct ck_tree_entry *e, bool top)
{
	if (e->is_dir || e->is_odd)
		return true;
	if (!top)
		return false;
	if (c->in_tag)
		return is_of_step(c->b, e);
	for (size_t i = 0; i < NKINDS; i++)
		if (is_rank_file(&per_rank[i], e->name))
			return true;
	return !strcmp(e->name, "latest") || !strcmp(e->name, "latest_universal");
}

/* Elements of a universal checkpoint. */
static bool is_folder_of_step(const struct listing *c, const char *name, bool top)
{
	return top && c->in_tag && c->b->step->format->is_part(name, true);
}

static int list_file(struct ck_step_along *b, const char *to, const struct ck_tree_entry *e,
		     bool in_tag, struct ckpt_err *err)
{
	struct ck_step_along_file a = { .bytes = e->bytes, .in_tag = in_tag };
	int rc = ck_grow(&b->file, &b->cap, b->nfiles + 1, sizeof(a), err);

	if (rc)
		return rc;
	a.name = to ? ck_arena_strdup(b->step->arena, to) : NULL;
	a.path = ck_arena_strdup(b->step->arena, e->path);
	if (!a.name || !a.path)
		return ck_fail_nomem(err, "a file name", 0);
	b->file[b->nfiles++] = a;
	return 0;
}

static int list_folder(struct listing *c, const char *name, uint32_t depth,
		       struct ckpt_err *err);

/* A folder goes along unless it is a step, or one that steps are kept in. */
static int list_entries(struct listing *c, const struct ck_tree *tree, const char *prefix,
			uint32_t depth, struct ckpt_err *err)
{
	struct ck_step_along *b = c->b;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < tree->n; i++) {
		const struct ck_tree_entry *e = &tree->entry[i];
		const char *name = ck_arena_printf(&b->arena, "%s%s", prefix, e->name);

		if (!name)
			return ck_fail_nomem(err, "a file name", 0);
		if (e->is_dir && !ck_fs_is_aside(e->name) &&
		    !is_folder_of_step(c, e->name, !depth))
			rc = list_folder(c, name, depth + 1, err);
		else if (!is_left_out(c, e, !depth))
			rc = list_file(b, ck_arena_printf(&b->arena, "%s%s", c->to, name), e,
				       c->in_tag, err);
	}
	return rc;
}

static int list_folder(struct listing *c, const char *name, uint32_t depth,
		       struct ckpt_err *err)
{
	const struct ck_step *step = c->b->step;
	struct ck_tree tree = CK_TREE_INIT;
	const uint32_t most = step->in->limits.folder_depth;
	const char *prefix = ck_arena_printf(&c->b->arena, "%s/", name);
	const char *path = ck_arena_printf(&c->b->arena, "%s%s", c->from, name);
	int rc;

	if (!prefix || !path)
		return ck_fail_nomem(err, "a file name", 0);
	if (depth > most)
		return ck_fail_limit(err, name, CKPT_NO_OFFSET, "folder_depth", most,
				     "folders beside the step are nested too deeply (does a "
				     "link lead back?)");
	rc = ck_look_list(step->in->pool, &tree, c->root, c->nroots, path, step->in->limits.files,
			  err);
	if (!rc && tree.n > c->left)
		rc = ck_fail_limit(err, name, CKPT_NO_OFFSET, "files", step->in->limits.files,
				   "the folders beside the step have too many files");
	if (!rc) {
		c->left -= tree.n;
		if (!ck_step_is_step(step->in->formats, &tree) && !ck_step_keeps_steps(&tree))
			rc = list_entries(c, &tree, prefix, depth, err);
	}
	ck_tree_release(&tree);
	return rc;
}

/* Rank r takes what source rank r mod N had. */
static int list_ranks(struct ck_step_along *b, const struct ck_tree *root,
		      const struct per_rank *kind, struct ckpt_err *err)
{
	const uint32_t n = b->step->world;
	int rc = 0;

	for (uint32_t r = 0; !rc && n && r < b->want->world; r++) {
		const char *from = rank_name(b, kind, r % n, n);
		const struct ck_tree_entry *e = from ? ck_tree_find(root, from) : NULL;

		/* one rank that was started as one of several */
		if (from && !e && n == 1)
			from = ck_arena_printf(&b->arena, "%s_0%s", kind->begin, kind->end);
		if (from && !e && n == 1)
			e = ck_tree_find(root, from);
		if (!from)
			return ck_fail_nomem(err, "a file name", 0);
		if (e && !e->is_dir && !e->is_odd)
			rc = list_file(b, rank_name(b, kind, r, b->want->world), e, false, err);
	}
	return rc;
}

static int list_beside(struct ck_step_along *b, struct ckpt_err *err)
{
	struct listing c = {
		.b = b, .left = b->step->in->limits.files, .root = b->step->at.root,
		.nroots = b->step->at.nroots, .from = "", .to = "",
	};
	struct ck_tree root = CK_TREE_INIT;
	int rc = ck_look_list(b->step->in->pool, &root, c.root, c.nroots, NULL, c.left, err);

	if (!rc && !b->want->in_place)
		rc = list_entries(&c, &root, "", 0, err);
	for (size_t i = 0; !rc && i < NKINDS; i++)
		rc = list_ranks(b, &root, &per_rank[i], err);
	ck_tree_release(&root);
	return rc;
}

/* The name of the source's folder: a step read of another program's has DeepSpeed's for its tag. */
static const char *folder_of(const struct ck_step *step)
{
	const char *name = step->at.where ? strrchr(step->at.where, '/') : NULL;

	return name && name[1] ? name + 1 : step->at.where ? step->at.where : step->tag;
}

/* What somebody put into the tag folder beside the step's files. */
static int list_inside(struct ck_step_along *b, struct ckpt_err *err)
{
	const struct ck_step *step = b->step;
	struct listing c = {
		.b = b, .left = step->in->limits.files, .in_tag = true,
		.root = step->at.root, .nroots = step->at.nroots,
		.from = step->at.given_step ? "" :
			ck_arena_printf(&b->arena, "%s/", folder_of(step)),
		.to = ck_arena_printf(&b->arena, "%s/", b->tag),
	};

	if (!c.from || !c.to)
		return ck_fail_nomem(err, "a file name", 0);
	return list_entries(&c, &step->at.tree, "", 0, err);
}

int ck_step_along_list(struct ck_step_along *b, struct ckpt_err *err)
{
	int rc = b->step->at.given_step || !b->step->at.nroots ? 0 : list_beside(b, err);

	if (!rc && b->step->format)
		rc = list_inside(b, err);
	for (uint64_t i = 0; i < b->nfiles; i++)
		if (b->file[i].in_tag)
			ck_findings_add(b->step->f, CK_FINDING_CARRIED, b->file[i].path,
					"not part of the step; copied unchanged");
	ck_arena_release(&b->arena);
	return rc;
}

static int copy_file(struct ck_plan *plan, const struct ck_step_along_file *a,
		     struct ckpt_err *err)
{
	int rc = ck_plan_file(plan, a->name, err);

	if (!rc)
		rc = ck_plan_copy(plan, a->path, 0, a->bytes, err);
	return rc ? rc : ck_plan_sum_file(plan, err);
}

int ck_step_along_plan(struct ck_step_along *b, struct ck_plan *plan, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < b->nfiles; i++)
		rc = copy_file(plan, &b->file[i], err);
	if (rc || !b->want->target->latest)
		return rc;
	rc = ck_plan_file(plan, b->want->target->latest, err);
	return rc ? rc : ck_plan_literal(plan, b->tag, strlen(b->tag), err);
}

/* A universal checkpoint is the step's tag with an ending, as its converter is usually called. */
const char *ck_step_tag(struct ck_step *step, const struct ck_reshard_want *want)
{
	static const char ending[] = "_universal";
	const char *tag = step->tag;
	const size_t n = strlen(tag), end = sizeof(ending) - 1;
	const bool has = n > end && !strcmp(tag + n - end, ending);

	if (want->tag)
		return want->tag;
	if (want->target->aside && !has)
		return ck_arena_printf(step->arena, "%s%s", tag, ending);
	if (!want->target->aside && has && step->format && step->format->aside)
		return ck_arena_strndup(step->arena, tag, n - end);
	return tag;
}

void ck_step_along_release(struct ck_step_along *b)
{
	ck_free(b->file);
	ck_arena_release(&b->arena);
}
