/*
 * ck_step_choose.c -- which step is meant: one answer for steps of every form, by names alone.
 *
 * Given may be the step itself, the folder above it, or a trainer's output folder, whose
 * "checkpoint-N" or "checkpoint_N" (accelerate) are such folders (or steps) themselves.  Several
 * paths are laid over each other at the same level.  In this order:
 *
 *	a tag that is asked for; "checkpoint-N" is a tag of the folder above it, and means the
 *	step that checkpoint-N itself would give; a number is that of global_stepN, verl's
 *	global_step_N, Megatron-Core's iter_000000N or checkpoint-N
 *	what 'latest' names, likewise; then 'latest_universal'; then the file with the number of
 *	Megatron-Core ("3" is iter_0000003, "release" itself) and of verl
 *	the name that sorts last among the steps and checkpoints with a step
 *
 * What was passed over is a finding: LATEST_BEHIND, LATEST_ABSENT, STEP_PASSED_OVER.
 */
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/format/ck_foreign.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/step/ck_step_find.h"
#include "libckpt/step/ck_step_near.h"

#define MOST_NAMED 5u

/* A level: folders laid over each other, and what is in them. */
struct level {
	const char *const *root;
	size_t nroots;
	const struct ck_tree *tree;
	bool is_top;	/* checkpoint-N in there may be such a level as well */
};

/* What is in 'sub' of a level. */
struct below {
	struct level level;
	struct ck_tree tree;
	const struct ck_format *kind;
	bool keeps;		/* steps, or 'latest' */
};

/* The folder 'name' of every root that has it. */
static int roots_below(struct ck_step_finder *fd, const struct level *l, const char *name,
		       struct level *out, struct ckpt_err *err)
{
	const char **root = ck_arena_alloc(fd->arena, l->nroots * sizeof(*root));
	size_t n = 0;

	if (!root)
		return ck_fail_nomem(err, "paths", l->nroots);
	for (size_t i = 0; i < l->nroots; i++) {
		enum ck_fs_kind kind;
		int rc;

		root[n] = ck_arena_printf(fd->arena, "%s/%s", l->root[i], name);
		if (!root[n])
			return ck_fail_nomem(err, "a path", 0);
		rc = ck_look_kind(fd->in->pool, root[n], &kind, NULL, err);
		if (rc)
			return rc;
		n += kind == CK_FS_DIR;
	}
	out->root = root;
	out->nroots = n;
	return 0;
}

/*
 * Look into 'sub' below the roots.  A folder that cannot be listed holds nothing, unless its name
 * says that it should be a step: another one must not be taken for it.
 */
static int look_below(struct ck_step_finder *fd, const struct level *l, const char *sub,
		      bool is_named, struct below *b, struct ckpt_err *err)
{
	struct ckpt_err inner = { 0 };
	int rc;

	*b = (struct below){ .tree = CK_TREE_INIT };
	rc = ck_look_list(fd->in->pool, &b->tree, l->root, l->nroots, sub, fd->in->limits.files,
			  &inner);
	if (!rc)
		b->kind = ck_step_holds(fd->in->formats, &b->tree);
	b->level.tree = &b->tree;
	if (!rc && !b->kind && l->is_top && ck_step_is_trainers(sub)) {
		rc = roots_below(fd, l, sub, &b->level, &inner);
		b->keeps = !rc;
	}
	if (rc == -CKPT_E_NOMEM || is_named || !strncmp(sub, "global_step", 11))
		return ck_err_take_system(rc, &inner, err);
	return 0;
}

static int choose_in(struct ck_step_finder *fd, const struct level *l, const char *tag,
		     struct ck_step_choice *out, struct ckpt_err *err);

/* A step that a name means: itself, or what a checkpoint gives.  '*yes' without one is false. */
static int step_of(struct ck_step_finder *fd, const struct level *l, const char *name,
		   bool is_named, struct ck_step_choice *out, bool *yes, struct ckpt_err *err)
{
	struct ckpt_err inner = { 0 };
	struct below b;
	int rc = look_below(fd, l, name, is_named, &b, err);

	*yes = false;
	if (!rc && b.kind && (!b.kind->aside || is_named)) {
		const char *tag = ck_arena_strdup(fd->arena, name);

		*out = (struct ck_step_choice){ .root = l->root, .nroots = l->nroots, .tag = tag,
					   .kind = b.kind, .why = "" };
		*yes = true;
		rc = tag ? 0 : ck_fail_nomem(err, "a name", strlen(name));
	} else if (!rc && b.keeps) {
		rc = choose_in(fd, &b.level, NULL, out, &inner);
		*yes = !rc;
		if (rc == -CKPT_E_NOTFOUND && !inner.code)
			rc = 0;
		else if (rc)
			ck_fail(err, inner.code, inner.where, inner.offset, "%s", inner.msg);
	}
	ck_tree_release(&b.tree);
	return rc;
}

/* Is there a step by that name?  For messages only, without findings. */
static bool has_step(struct ck_step_finder *fd, const struct level *l, const char *name)
{
	struct ck_findings unheard = { .n = 0 }, *f = fd->f;
	struct ck_step_choice c;
	bool yes;

	fd->f = &unheard;
	yes = !step_of(fd, l, name, false, &c, &yes, NULL) && yes;
	fd->f = f;
	ck_findings_release(&unheard);
	return yes;
}

/* Names of the steps that are there, the last first; false: no memory. */
static bool steps_of(struct ck_step_finder *fd, const struct level *l, struct ck_step_names *out)
{
	const char **name = ck_arena_zalloc(fd->arena, (l->tree->n + 1) * sizeof(*name));
	size_t n = 0;

	for (uint64_t i = l->tree->n; name && i > 0; i--) {
		const struct ck_tree_entry *e = &l->tree->entry[i - 1];

		if (e->is_dir && !ck_fs_is_aside(e->name) && has_step(fd, l, e->name))
			name[n++] = e->name;
	}
	*out = (struct ck_step_names){ name, n };
	return name;
}

/* The same for a message. */
static const char *list_steps(struct ck_step_finder *fd, const struct level *l)
{
	struct ck_step_names steps;
	char *text = NULL;

	if (!steps_of(fd, l, &steps))
		return "none";
	for (size_t i = 0; i < steps.n && i < MOST_NAMED; i++)
		text = ck_arena_printf(fd->arena, "%s%s%s", text ? text : "", text ? ", " : "",
				       steps.name[i]);
	return text ? text : "none";
}

/* "'latest' names it", or "'latest' names checkpoint-2; in it, 'latest' names it". */
static int say_why(struct ck_step_finder *fd, struct ck_step_choice *c, const char *why,
		   const char *name, struct ckpt_err *err)
{
	c->named |= why[0] == '\'';	/* 'latest', 'latest_universal' */
	c->why = c->why[0] ? ck_arena_printf(fd->arena, "%s %s; in it, %s", why, name, c->why) :
		 ck_arena_printf(fd->arena, "%s it", why);
	return c->why ? 0 : ck_fail_nomem(err, "a sentence", 0);
}

/* ---- 'latest' ---- */

/*
 * There is a step with a higher number: its save was cut short, or 'latest' is an old one.  A
 * tag without a number says nothing.
 */
static void check_newest(struct ck_step_finder *fd, const struct level *l, const char *file,
			 const char *tag)
{
	const char *newest = NULL;
	uint64_t mine, other = 0;

	if (!ck_step_number(tag, &mine))
		return;
	for (uint64_t i = 0; i < l->tree->n; i++) {
		const struct ck_tree_entry *e = &l->tree->entry[i];
		uint64_t n;

		if (e->is_dir && ck_step_number(e->name, &n) && n > mine && n > other &&
		    !strncmp(e->name, tag, strcspn(tag, "0123456789")) &&
		    has_step(fd, l, e->name)) {
			other = n;
			newest = e->name;
		}
	}
	if (newest)
		ck_findings_add(fd->f, CK_FINDING_LATEST_BEHIND, l->root[0],
				"'%s' names %s, but %s is newer (was its save cut short, or is "
				"'%s' old?)", file, tag, newest, file);
}

static int fail_outside(const struct level *l, const char *file, const char *tag,
			struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_UNSAFE, l->root[0], CKPT_NO_OFFSET,
		       "LATEST_LIES: '%s' names %s, which is outside this folder; to read it, "
		       "give that folder itself", file, tag);
}

static int fail_latest(struct ck_step_finder *fd, const struct level *l, const char *file,
		       const char *tag, struct ckpt_err *err)
{
	const char *steps = list_steps(fd, l);

	if (!strcmp(steps, "none"))
		return ck_fail(err, CKPT_E_NOTFOUND, l->root[0], CKPT_NO_OFFSET,
			       "LATEST_LIES: '%s' names the step %s, which is missing or has "
			       "no shards, and no other step is here", file, tag);
	return ck_fail(err, CKPT_E_NOTFOUND, l->root[0], CKPT_NO_OFFSET,
		       "LATEST_LIES: '%s' names the step %s, which is missing or has no "
		       "shards (steps here: %s); --tag names another one", file, tag, steps);
}

static int take_latest(struct ck_step_finder *fd, const struct level *l, const char *tag,
		       struct ck_step_choice *out, struct ckpt_err *err)
{
	bool yes;
	int rc;

	if (ck_step_leads_outside(tag))
		return fail_outside(l, "latest", tag, err);
	rc = step_of(fd, l, tag, true, out, &yes, err);
	if (!rc && (!yes || out->kind->aside))
		return fail_latest(fd, l, "latest", tag, err);
	if (rc)
		return rc;
	check_newest(fd, l, "latest", tag);
	return say_why(fd, out, "'latest' names", tag, err);
}

static int take_universal(struct ck_step_finder *fd, const struct level *l, const char *tag,
			  struct ck_step_choice *out, struct ckpt_err *err)
{
	bool yes;
	int rc;

	if (!tag)
		return ck_fail(err, CKPT_E_NOTFOUND, l->root[0], CKPT_NO_OFFSET,
			       "LATEST_LIES: the file 'latest_universal' is empty or not "
			       "text (was the disk full?); --tag names a folder");
	if (ck_step_leads_outside(tag))
		return fail_outside(l, "latest_universal", tag, err);
	rc = step_of(fd, l, tag, true, out, &yes, err);
	if (!rc && (!yes || !out->kind->aside))
		return ck_fail(err, CKPT_E_NOTFOUND, l->root[0], CKPT_NO_OFFSET,
			       "LATEST_LIES: 'latest_universal' names %s, which is missing or "
			       "not a universal checkpoint (a folder 'zero' beside "
			       "*_model_states.pt)", tag);
	return rc ? rc : say_why(fd, out, "'latest_universal' names", tag, err);
}

/* What the text in 'latest_checkpointed_iteration.txt' means; NULL = no folder that is known. */
static int name_of_iteration(struct ck_step_finder *fd, const struct level *l, const char *text,
			     const char **out, struct ckpt_err *err)
{
	const char *verl, *megatron;

	*out = NULL;
	if (!strcmp(text, "release")) {
		if (ck_tree_find(l->tree, text) || ck_step_keeps_iterations(l->tree))
			*out = text;
		return 0;
	}
	if (text[strspn(text, "0123456789")] || strlen(text) > 18)
		return 0;
	verl = ck_arena_printf(fd->arena, "global_step_%s", text);
	megatron = ck_step_iteration(fd->arena, text);
	if (!verl || !megatron)
		return ck_fail_nomem(err, "a name", strlen(text));
	if (ck_tree_find(l->tree, verl))
		*out = verl;
	else if (ck_step_keeps_iterations(l->tree) || ck_tree_find(l->tree, "release"))
		*out = megatron;
	return 0;
}

/* Megatron-Core and verl write the number of the last step.  '*yes': it is here. */
static int take_iteration(struct ck_step_finder *fd, const struct level *l,
			  struct ck_step_choice *out, bool *yes, struct ckpt_err *err)
{
	static const char file[] = "latest_checkpointed_iteration.txt";
	const char *name = NULL;
	char *text = NULL;
	int rc = ck_step_latest(fd, l->tree, file, &text, err);

	*yes = false;
	if (!rc && text)
		rc = name_of_iteration(fd, l, text, &name, err);
	if (rc || !name)
		return rc;
	rc = step_of(fd, l, name, true, out, yes, err);
	if (!rc && !*yes && strncmp(name, "global_step_", 12) && !ck_tree_find(l->tree, name))
		return fail_latest(fd, l, file, name, err);
	if (rc || !*yes)
		return rc;
	check_newest(fd, l, file, name);
	return say_why(fd, out, "'latest_checkpointed_iteration.txt' names", name, err);
}

/* ---- without it ---- */

static void say_passed(struct ck_step_finder *fd, const struct level *l, const char *passed,
		       uint32_t n, const char *taken)
{
	ck_findings_add(fd->f, CK_FINDING_STEP_PASSED_OVER, l->root[0],
			"%s %s a higher number than %s, which is used, but hold%s no step "
			"(weights alone, or was a save cut short?)", passed,
			n > 1 ? "have" : "has", taken, n > 1 ? "" : "s");
}

/* Entries are sorted, runs of digits as numbers. */
static int take_last(struct ck_step_finder *fd, const struct level *l, struct ck_step_choice *out,
		     struct ckpt_err *err)
{
	const char *passed = NULL;
	uint32_t npassed = 0;
	uint64_t number;

	for (uint64_t i = l->tree->n; i > 0; i--) {
		const struct ck_tree_entry *e = &l->tree->entry[i - 1];
		bool yes = false, trainer;
		int rc = 0;

		if (!e->is_dir || ck_fs_is_aside(e->name))
			continue;
		rc = step_of(fd, l, e->name, false, out, &yes, err);
		if (rc)
			return rc;
		trainer = yes && out->why[0];
		if (yes && !trainer) {
			const bool counted = ck_step_number(e->name, &number);
			const bool is_iteration = counted && !out->kind->latest &&
						  !strncmp(e->name, "iter_", 5);

			if (out->kind->latest)	/* programs that write it keep such a file */
				ck_findings_add(fd->f, CK_FINDING_LATEST_ABSENT, l->root[0],
						"no 'latest' file; using %s, %s", e->name, counted ?
						"the highest number" : "whose name sorts last");
			out->why = is_iteration ? "the highest number; there is no "
				   "'latest_checkpointed_iteration.txt'" :
				   counted ? "the highest number; there is no 'latest'" :
				   "its name sorts last; there is no 'latest'";
		}
		if (yes && npassed)
			say_passed(fd, l, passed, npassed, e->name);
		if (yes)
			return !trainer ? 0 :
			       say_why(fd, out, npassed ? "the highest checkpoint with a step is" :
				       "the highest checkpoint is", e->name, err);
		if (l->is_top && ck_step_is_trainers(e->name) && npassed++ < MOST_NAMED)
			passed = ck_arena_printf(fd->arena, "%s%s%s", passed ? passed : "",
						 passed ? ", " : "", e->name);
		if (npassed && !passed)
			return ck_fail_nomem(err, "names", npassed);
	}
	return -CKPT_E_NOTFOUND;
}

static int take_newest(struct ck_step_finder *fd, const struct level *l,
		       struct ck_step_choice *out, struct ckpt_err *err)
{
	bool yes;
	const int rc = take_iteration(fd, l, out, &yes, err);

	return rc || yes ? rc : take_last(fd, l, out, err);
}

static int fail_tag(struct ck_step_finder *fd, const struct level *l, const char *tag,
		    struct ckpt_err *err)
{
	struct ck_step_names steps = { .n = 0 };
	const char *near;

	if (!steps_of(fd, l, &steps))
		return ck_fail_nomem(err, "names of steps", l->tree->n);
	near = ck_step_near(tag, &steps);
	if (!steps.n)
		return ck_fail(err, CKPT_E_NOTFOUND, l->root[0], CKPT_NO_OFFSET,
			       "there is no step %s here, and no other step", tag);
	return ck_fail(err, CKPT_E_NOTFOUND, l->root[0], CKPT_NO_OFFSET,
		       "there is no step %s here%s%s%s (%zu step%s here: %s%s)", tag,
		       near ? "; did you mean " : "", near ? near : "", near ? "?" : "", steps.n,
		       steps.n == 1 ? "" : "s", list_steps(fd, l),
		       steps.n > MOST_NAMED ? ", ..." : "");
}

/* The step whose number 'tag' is, if there is one of them; NULL, also where two have it. */
static int find_number(struct ck_step_finder *fd, const struct level *l, const char *tag,
		       const char **out, struct ckpt_err *err)
{
	const char *deepspeed, *verl, *megatron, *trainer, *accelerate;
	bool first, second;

	*out = NULL;
	if (!*tag || tag[strspn(tag, "0123456789")])
		return 0;
	deepspeed = ck_arena_printf(fd->arena, "global_step%s", tag);
	verl = ck_arena_printf(fd->arena, "global_step_%s", tag);
	megatron = ck_step_iteration(fd->arena, tag);
	trainer = ck_arena_printf(fd->arena, "checkpoint-%s", tag);
	accelerate = ck_arena_printf(fd->arena, "checkpoint_%s", tag);
	if (!deepspeed || !verl || !megatron || !trainer || !accelerate)
		return ck_fail_nomem(err, "a name", strlen(tag));
	if (!has_step(fd, l, deepspeed))
		deepspeed = has_step(fd, l, verl) ? verl : megatron;
	first = has_step(fd, l, deepspeed);
	if (!has_step(fd, l, trainer))
		trainer = accelerate;
	second = has_step(fd, l, trainer);
	if (first && second)
		return ck_fail(err, CKPT_E_USAGE, l->root[0], CKPT_NO_OFFSET,
			       "--tag %s can mean %s or %s; name one of them", tag, deepspeed,
			       trainer);
	*out = first ? deepspeed : second ? trainer : NULL;
	return 0;
}

/* "global_step2" of a Trainer's folder is in its checkpoint-2. */
static int find_in_trainer(struct ck_step_finder *fd, const struct level *l, const char *tag,
			   const char **out, struct ckpt_err *err)
{
	const char *name, *inside;
	uint64_t n;

	if (ck_step_is_trainers(tag) || !ck_step_number(tag, &n))
		return 0;
	name = ck_arena_printf(fd->arena, "checkpoint-%" PRIu64, n);
	inside = ck_arena_printf(fd->arena, "checkpoint-%" PRIu64 "/%s", n, tag);
	if (!name || !inside)
		return ck_fail_nomem(err, "a name", strlen(tag));
	if (has_step(fd, l, name) && has_step(fd, l, inside))
		*out = name;
	return 0;
}

static int take_tag(struct ck_step_finder *fd, const struct level *l, const char *tag,
		    struct ck_step_choice *out, struct ckpt_err *err)
{
	const char *meant, *why;
	bool yes;
	int rc = step_of(fd, l, tag, true, out, &yes, err);

	if (rc || yes)
		return rc ? rc : say_why(fd, out, "--tag names", tag, err);
	rc = find_number(fd, l, tag, &meant, err);
	if (!rc && !meant)
		rc = find_in_trainer(fd, l, tag, &meant, err);
	if (!rc && !meant)
		rc = fail_tag(fd, l, tag, err);
	if (!rc)
		rc = step_of(fd, l, meant, true, out, &yes, err);
	if (!rc && !yes)
		rc = fail_tag(fd, l, tag, err);
	if (rc)
		return rc;
	if (!out->why[0]) {
		out->why = ck_arena_printf(fd->arena, "chosen by --tag %s", tag);
		return out->why ? 0 : ck_fail_nomem(err, "a sentence", strlen(tag));
	}
	why = ck_arena_printf(fd->arena, "--tag %s means", tag);
	return why ? say_why(fd, out, why, meant, err) :
	       ck_fail_nomem(err, "a sentence", strlen(tag));
}

/* -CKPT_E_NOTFOUND without a message: nothing says that there should be a step. */
static int choose_in(struct ck_step_finder *fd, const struct level *l, const char *tag,
		     struct ck_step_choice *out, struct ckpt_err *err)
{
	char *named = NULL, *universal = NULL;
	int rc = ck_step_latest(fd, l->tree, "latest_universal", &universal, err);

	if (tag && !strcmp(tag, "latest") && !has_step(fd, l, tag))
		tag = NULL;	/* the step that 'latest' names, as without a tag */

	if (!rc && !tag)
		rc = ck_step_latest(fd, l->tree, "latest", &named, err);
	if (rc)
		return rc;
	if (tag)
		rc = take_tag(fd, l, tag, out, err);
	else if (named)
		rc = take_latest(fd, l, named, out, err);
	else if (ck_tree_find(l->tree, "latest"))
		return ck_fail(err, CKPT_E_NOTFOUND, l->root[0], CKPT_NO_OFFSET,
			       "LATEST_LIES: the file 'latest' is empty or not text (was "
			       "the disk full?); "
			       "--tag names a step (steps here: %s)", list_steps(fd, l));
	else if (ck_tree_find(l->tree, "latest_universal"))
		rc = take_universal(fd, l, universal, out, err);
	else
		rc = take_newest(fd, l, out, err);
	if (!rc && universal && !out->kind->aside)
		out->universal = universal;
	return rc;
}

int ck_step_choose(struct ck_step_finder *fd, struct ck_step_choice *out, struct ckpt_err *err)
{
	const struct ck_input *in = fd->in;
	const struct level top = { in->path, in->npaths, &in->tree, true };
	const struct ck_format *kind = ck_step_holds(in->formats, &in->tree);
	int rc;

	*out = (struct ck_step_choice){ .root = in->path, .nroots = in->npaths, .kind = kind };
	if (kind && in->tag && strcmp(in->tag, ck_fs_base(in->path[0])))
		return ck_fail(err, CKPT_E_USAGE, in->path[0], CKPT_NO_OFFSET,
			       "this folder is itself the %s %s; to use --tag %s, give the "
			       "folder above it", kind->aside ? "checkpoint" : "step",
			       ck_fs_base(in->path[0]), in->tag);
	if (kind) {
		out->why = ck_arena_printf(fd->arena, "the folder given is a %s", kind->noun);
		return out->why ? 0 : ck_fail_nomem(err, "a sentence", 0);
	}
	rc = choose_in(fd, &top, in->tag, out, err);
	if (rc != -CKPT_E_NOTFOUND || (err && err->code))
		return rc;
	rc = ck_foreign_folder(in, err);
	if (!rc)
		rc = ck_fail(err, CKPT_E_NOTFOUND, in->path[0], CKPT_NO_OFFSET,
			     "no folder in it holds a step of DeepSpeed (*_model_states.pt, "
			     "*_optim_states.pt), FSDP or Megatron-Core (.metadata)");
	return rc;
}

int ck_step_which(const struct ck_input *in, struct ck_arena *arena, struct ck_which *out,
		  struct ckpt_err *err)
{
	struct ck_findings f = { .n = 0 };
	struct ck_arena own = CK_ARENA_INIT;
	struct ck_step_finder fd = { in, &f, &own };
	struct ck_step_choice c;
	int rc = ck_step_choose(&fd, &c, err);

	if (!rc) {
		const char *path = c.tag ? ck_arena_printf(arena, "%s/%s", c.root[0], c.tag) :
				   ck_arena_strdup(arena, c.root[0]);
		const size_t above = strlen(in->path[0]);
		const char *name = path && strlen(path) > above ? path + above + 1 : "";

		*out = (struct ck_which){
			.path = path, .name = ck_arena_strndup(arena, name, strcspn(name, "/")),
			.why = ck_arena_strdup(arena, c.why), .named = c.named,
		};
		if (!out->path || !out->name || !out->why)
			rc = ck_fail_nomem(err, "a path", above);
	}
	ck_findings_release(&f);
	ck_arena_release(&own);
	return rc;
}

/* Drivers ask one after the other of one input; each look lists the folder of the step. */
int ck_step_chosen_kind(const struct ck_input *in, const struct ck_format **kind_out,
			bool *named_out)
{
	struct ck_findings f = { .n = 0 };
	struct ck_arena own = CK_ARENA_INIT;
	struct ck_step_finder fd = { in, &f, &own };
	struct ckpt_err err = { 0 };
	struct ck_step_choice c = { .kind = NULL };
	int rc = 0;

	*named_out = in->tag || ck_tree_find(&in->tree, "latest") ||
		     ck_tree_find(&in->tree, "latest_checkpointed_iteration.txt");
	*kind_out = in->chosen ? in->chosen->kind : NULL;
	if (in->chosen && in->chosen->is_known)
		return 0;
	if (in->tag || ck_step_keeps_steps(&in->tree) || ck_step_may_be_numbered(&in->tree) ||
	    ck_tree_find(&in->tree, "latest_universal") ||
	    ck_tree_find(&in->tree, "latest_checkpointed_iteration.txt"))
		rc = ck_step_choose(&fd, &c, &err);
	if (!rc)
		*kind_out = c.kind;
	if (in->chosen && rc != -CKPT_E_NOMEM)
		*in->chosen = (struct ck_chosen){ *kind_out, true };
	ck_findings_release(&f);
	ck_arena_release(&own);
	return rc == -CKPT_E_NOMEM ? rc : 0;
}
