/*
 * ck_step_find.c -- what a folder holds, by the drivers, and the step that ck_step_choose.c has
 * chosen.
 */
#include <limits.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/step/ck_step.h"
#include "libckpt/step/ck_step_made.h"

/* The highest bid on it. */
static int bid_on(const struct ck_formats *formats, const struct ck_tree *tree,
		  const struct ck_format **kind_out)
{
	int best = 0;

	*kind_out = NULL;
	for (const struct ck_format *const *f = formats->reader; *f; f++) {
		const int bid = (*f)->holds ? (*f)->holds(tree) : 0;

		if (bid > best) {
			best = bid;
			*kind_out = *f;
		}
	}
	return best;
}

const struct ck_format *ck_step_holds(const struct ck_formats *formats,
				      const struct ck_tree *tree)
{
	const struct ck_format *kind;

	return bid_on(formats, tree, &kind) > 1 ? kind : NULL;
}

bool ck_step_is_step(const struct ck_formats *formats, const struct ck_tree *tree)
{
	const struct ck_format *kind;

	return bid_on(formats, tree, &kind) > 0;
}

/* A folder one or two levels down may be a step. */
bool ck_step_may_keep_steps(const struct ck_tree *tree)
{
	for (uint64_t i = 0; i < tree->n; i++) {
		const char *name = tree->entry[i].name;

		if (!tree->entry[i].is_dir)
			continue;
		if (!strncmp(name, "global_step", 11) || ck_step_is_trainers(name))
			return true;
	}
	return false;
}

/* "step-100" of torchtitan and the like. */
static bool is_numbered(const char *name)
{
	static const char *const begin[] = { "step", "epoch", "iter" };

	for (size_t i = 0; i < CK_ARRAY_LEN(begin); i++) {
		const char *rest = name + strlen(begin[i]);

		if (strncmp(name, begin[i], strlen(begin[i])))
			continue;
		rest += *rest == '-' || *rest == '_' || *rest == '=';
		if (*rest >= '0' && *rest <= '9')
			return true;
	}
	return false;
}

bool ck_step_may_be_numbered(const struct ck_tree *tree)
{
	for (uint64_t i = 0; i < tree->n; i++)
		if (tree->entry[i].is_dir && is_numbered(tree->entry[i].name))
			return true;
	return false;
}

bool ck_step_keeps_steps(const struct ck_tree *tree)
{
	return ck_tree_find(tree, "latest") || ck_step_may_keep_steps(tree);
}

/* Some folder in there is a step. */
static bool holds_step(const struct ck_formats *formats, const char *path,
		       const struct ck_tree *tree, uint64_t max)
{
	bool yes = false;

	for (uint64_t i = 0; i < tree->n && !yes; i++) {
		struct ck_tree sub = CK_TREE_INIT;

		if (!tree->entry[i].is_dir || ck_fs_is_aside(tree->entry[i].name))
			continue;
		if (!ck_tree_list(&sub, &path, 1, tree->entry[i].name, max, NULL))
			yes = ck_step_is_step(formats, &sub);
		ck_tree_release(&sub);
	}
	return yes;
}

int ck_step_look(const struct ck_formats *formats, const char *path,
		 const struct ckpt_limits *limits, enum ck_holds *out, struct ckpt_err *err)
{
	struct ck_tree tree = CK_TREE_INIT;
	int rc = ck_tree_list(&tree, &path, 1, NULL, limits->files, err);

	if (!rc && ck_step_is_step(formats, &tree))
		*out = CK_HOLDS_SHARDS;
	else if (!rc && (ck_step_keeps_steps(&tree) || ck_tree_find(&tree, "trainer_state.json") ||
			 ck_tree_find(&tree, "latest_universal") ||
			 ck_tree_find(&tree, "latest_checkpointed_iteration.txt") ||
			 holds_step(formats, path, &tree, limits->files)))
		*out = CK_HOLDS_STEPS;
	else if (!rc)
		*out = CK_HOLDS_OTHER;
	ck_tree_release(&tree);
	return rc;
}

/* What DeepSpeed strips; a NUL is no blank. */
static bool is_blank(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

int ck_step_latest(struct ck_step_finder *fd, const struct ck_tree *tree, const char *file,
		   char **tag_out, struct ckpt_err *err)
{
	const struct ck_tree_entry *e = ck_tree_find(tree, file);
	struct ckpt_err inner = { 0 };
	uint64_t len = 0, begin = 0;
	char *text = NULL;
	int rc;

	*tag_out = NULL;
	if (!e || e->is_dir)
		return 0;
	rc = ck_look_read(fd->in->pool, e->path, 4096, &text, &len, &inner);
	if (rc == -CKPT_E_CORRUPT)	/* it lies in an archive */
		return ck_fail(err, inner.code, inner.where, inner.offset, "%s", inner.msg);
	if (rc)
		return ck_err_take_system(rc, &inner, err);
	while (begin < len && is_blank(text[begin]))
		begin++;
	while (len > begin && is_blank(text[len - 1]))
		len--;
	if (len > begin && !memchr(text + begin, 0, len - begin)) {
		*tag_out = ck_arena_strndup(fd->arena, text + begin, len - begin);
		rc = *tag_out ? 0 : ck_fail_nomem(err, "the name of a step", len);
	}
	ck_free(text);
	return rc;
}

/* All of 'p' is a number. */
static bool is_number(const char *p, uint64_t *out)
{
	uint64_t n = 0;

	if (!*p || strlen(p) > 18 || p[strspn(p, "0123456789")])
		return false;
	for (; *p; p++)
		n = n * 10 + (uint64_t)(*p - '0');
	*out = n;
	return true;
}

bool ck_step_of_tag(const char *tag, uint64_t *step_out)
{
	return !strncmp(tag, "global_step", 11) && is_number(tag + 11 + (tag[11] == '_'), step_out);
}

bool ck_step_is_trainers(const char *name)
{
	return !strncmp(name, "checkpoint-", 11) || !strncmp(name, "checkpoint_", 11);
}

bool ck_step_number(const char *name, uint64_t *step_out)
{
	return ck_step_is_trainers(name) ? is_number(name + 11, step_out) :
	       !strncmp(name, "iter_", 5) ? is_number(name + 5, step_out) :
	       ck_step_of_tag(name, step_out);
}

bool ck_step_keeps_iterations(const struct ck_tree *tree)
{
	for (uint64_t i = 0; i < tree->n; i++)
		if (tree->entry[i].is_dir && !strncmp(tree->entry[i].name, "iter_", 5))
			return true;
	return false;
}

const char *ck_step_iteration(struct ck_arena *a, const char *number)
{
	static const char zeros[] = "0000000";
	const size_t n = strlen(number);

	return ck_arena_printf(a, "iter_%s%s", n < 7 ? zeros + n : "", number);
}

bool ck_step_leads_outside(const char *tag)
{
	const char *p = tag;

	for (;;) {
		if (*p == '/' || !strcmp(p, "..") || !strncmp(p, "../", 3))
			return true;
		p = strchr(p, '/');
		if (!p)
			return false;
		p++;
	}
}

/* The place outlives the input, whose paths the roots may be. */
static int copy_roots(struct ck_step_finder *fd, const struct ck_step_choice *c,
		      struct ck_step_place *out, struct ckpt_err *err)
{
	const char **root = ck_arena_alloc(fd->arena, (c->nroots + 1) * sizeof(*root));

	for (size_t i = 0; root && i < c->nroots; i++) {
		root[i] = ck_arena_strdup(fd->arena, c->root[i]);
		if (!root[i])
			root = NULL;
	}
	out->root = root;
	out->nroots = c->nroots;
	return root ? 0 : ck_fail_nomem(err, "paths", c->nroots);
}

/* A folder of the path, as it is on the disk, is one that a Trainer has not renamed yet. */
static bool is_in_unfinished(const char *path)
{
	static const char begin[] = "tmp-checkpoint-";
	char real[PATH_MAX];
	const char *at = ck_sys.realpath(path, real) ? real : path;

	for (; (at = strstr(at, begin)) != NULL; at++)
		if (at[sizeof(begin) - 1] >= '0' && at[sizeof(begin) - 1] <= '9' &&
		    (at == path || at[-1] == '/'))
			return true;
	return false;
}

/* Fill the place and what the index says of it. */
static int take_step(struct ck_step_finder *fd, const struct ck_step_choice *c,
		     struct ck_index *ix, struct ck_step_place *out, struct ckpt_err *err)
{
	int rc = ck_look_list(fd->in->pool, &out->tree, c->root, c->nroots, c->tag,
			      fd->in->limits.files, err);

	if (rc)
		return rc;
	ix->path = c->tag ? ck_arena_printf(&ix->arena, "%s/%s", c->root[0], c->tag) :
		   ck_arena_strdup(&ix->arena, c->root[0]);
	ix->tag = ck_arena_strdup(&ix->arena, c->tag ? c->tag : ck_fs_base(c->root[0]));
	ix->why = ck_arena_strdup(&ix->arena, c->why);
	if (!ix->path || !ix->tag || !ix->why)
		return ck_fail_nomem(err, "a path", 0);
	out->where = ix->path;
	if (is_in_unfinished(ix->path))
		ck_findings_add(fd->f, CK_FINDING_UNFINISHED, ix->path,
				"a save of the Trainer that did not finish: it renames the folder "
				"tmp-checkpoint-N once all ranks have saved");
	out->given_step = !c->tag;
	if (strchr(ix->tag, '[') || strchr(ix->tag, ']'))
		ck_findings_add(fd->f, CK_FINDING_TAG_UNLOADABLE, ix->tag,
				"the tag has brackets, so DeepSpeed's loader finds no file: it "
				"takes them as a pattern");
	return copy_roots(fd, c, out, err);
}

int ck_step_find(struct ck_step_finder *fd, struct ck_index *ix, struct ck_step_place *out,
		 struct ckpt_err *err)
{
	struct ck_step_choice c;
	int rc = ck_step_choose(fd, &c, err);

	if (rc)
		return rc;
	if (c.universal)	/* beside the steps: opened when it is asked for */
		rc = ck_index_add_fact(ix, err, "universal", "%s", c.universal);
	return rc ? rc : take_step(fd, &c, ix, out, err);
}

/* No error was met the first time: a file has changed, or could not be read again. */
static int read_again(const struct ck_format *source, const struct ck_input *in,
		      struct ck_index *ix, struct ck_findings *f, struct ckpt_err *err)
{
	const struct ckpt_finding *bad;
	int rc = ck_index_init(ix, in->limits.memory_bytes, err);

	if (!rc)
		rc = source->index(in, ix, f, err);
	bad = ck_findings_worst(f, CKPT_ERROR);
	if (!bad || rc == -CKPT_E_NOMEM)
		return rc;
	ck_err_clear(err);
	return ck_findings_fail(bad, err);
}

int ck_step_convert(const struct ck_format *source, const struct ck_input *in,
		    const struct ck_index *ix, const struct ck_reshard_want *want,
		    struct ck_plan *plan, struct ck_findings *f, struct ckpt_err *err)
{
	struct ck_findings again = { .as_warning = f->as_warning };
	struct ck_index own = { .format = NULL };
	struct ck_step step = { .release = NULL };
	int rc = in->kept->of ? 0 : read_again(source, in, &own, &again, err);

	if (!rc)
		rc = source->read_step(in, ix, f, &step, err);
	if (!rc && want->weight_dtype)
		step.weight_dtype = want->weight_dtype;
	if (!rc && want->weight_dtype && step.half_scaler)
		rc = ck_step_made_scaler_of(step.arena, &step, want->weight_dtype, err);
	if (!rc && step.parallel &&
	    (want->whole || step.only_whole ||
	     (want->target != source && !want->target->takes_parallel)))
		rc = step.make_whole(&step, want, err);
	if (!rc && want->target != source)
		ck_findings_merge(f, &step.for_others, CK_FINDING_COUNT);
	if (!rc)
		rc = want->target->write_step(&step, ix, want, plan, err);
	ck_findings_release(&step.for_others);
	if (step.release)
		step.release(&step);
	ck_kept_release(in->kept);
	ck_index_release(&own);
	ck_findings_release(&again);
	return rc;
}

int ck_step_bid(const struct ck_input *in, const struct ck_format *format, int sure, int chosen)
{
	const struct ck_format *kind;
	bool named;
	int rc;

	if (!in->is_dir)
		return 0;
	if (format->holds(&in->tree))
		return sure;
	rc = ck_step_chosen_kind(in, &kind, &named);
	return rc ? rc : kind == format ? chosen : 0;
}
