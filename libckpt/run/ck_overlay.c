/*
 * ck_overlay.c -- see ck_overlay.h.
 *
 * Parts of one step have one tag.  A folder of which nothing was taken, or a step that was given
 * itself under the number of another one, is a checkpoint of its own: a glob names such folders,
 * the oldest first.
 */
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/run/ck_overlay.h"
#include "libckpt/step/ck_step_find.h"

/* What a path is without the others. */
struct alone {
	struct ck_arena *arena;
	bool holds;		/* a step, or weights of a numbered checkpoint */
	bool is_step;		/* the path is the step itself */
	const char *tag;
	bool numbered;
	uint64_t number;	/* of the tag */
};

static bool is_used(const struct ck_index *ix, const char *folder)
{
	size_t n = strlen(folder);

	while (n > 1 && folder[n - 1] == '/')
		n--;
	for (uint64_t i = 0; i < ix->nsources; i++)
		if (!strncmp(ix->source[i].path, folder, n) &&
		    (ix->source[i].path[n] == '/' || folder[n - 1] == '/'))
			return true;
	return false;
}

static bool has_reader(const struct ck_input *in)
{
	for (const struct ck_format *const *p = in->formats->reader; *p; p++)
		if ((*p)->probe(in) > 0)
			return true;
	return false;
}

static int look_at(const struct ck_input *in, void *arg, struct ckpt_err *err)
{
	struct alone *a = arg;
	struct ck_which which = { .path = NULL };
	int rc = ck_step_which(in, a->arena, &which, NULL);

	if (rc == -CKPT_E_NOMEM)
		return ck_fail_nomem(err, "a path", 0);
	a->is_step = !rc && !which.name[0];
	a->holds = !rc;
	a->tag = ck_arena_strdup(a->arena, ck_fs_base(rc ? in->path[0] : which.path));
	if (!a->tag)
		return ck_fail_nomem(err, "a name", 0);
	a->numbered = ck_step_number(a->tag, &a->number);
	if (rc)
		a->holds = a->numbered && has_reader(in);
	return 0;
}

static int look_alone(struct ckpt *ck, size_t i, struct alone *out, struct ckpt_err *err)
{
	const char *path = ck->path[i];
	struct ck_input in = ck_ckpt_input(ck);

	in.path = &path;
	in.npaths = 1;
	in.kept = NULL;
	return ck_format_with_input(&in, look_at, out, err);
}

static int fail_two(const struct ckpt *ck, const struct alone *first, const struct alone *other,
		    size_t i, struct ckpt_err *err)
{
	const bool numbers = first->numbered && other->numbered;
	const bool newer = !numbers || other->number > first->number;
	const char *where = ck->path[newer ? i : 0], *than = ck->path[newer ? 0 : i];

	if (!numbers)
		return ck_fail(err, CKPT_E_USAGE, where, CKPT_NO_OFFSET,
			       "this and %s are two checkpoints, not parts of one", than);
	return ck_fail(err, CKPT_E_USAGE, where, CKPT_NO_OFFSET,
		       "this and %s are two checkpoints (steps %" PRIu64 " and %" PRIu64 "), not "
		       "parts of one", than, newer ? other->number : first->number,
		       newer ? first->number : other->number);
}

/* Without a tag, which would choose among them. */
static int check_others(struct ckpt *ck, struct ck_arena *arena, struct ckpt_err *err)
{
	struct alone first = { .arena = arena }, other, newest = { .number = 0 };
	size_t at = 0;
	int rc = look_alone(ck, 0, &first, err);

	for (size_t i = 1; !rc && first.holds && i < ck->npaths; i++) {
		const bool used = is_used(&ck->ix, ck->path[i]);

		other = (struct alone){ .arena = arena };
		rc = look_alone(ck, i, &other, err);
		if (rc || !other.holds || !strcmp(other.tag, first.tag))
			continue;
		if (used && !(other.is_step && other.numbered && first.is_step && first.numbered))
			continue;
		if (!at || other.number >= newest.number) {
			newest = other;
			at = i;
		}
	}
	return rc || !at ? rc : fail_two(ck, &first, &newest, at, err);
}

static void note_unused(struct ckpt *ck)
{
	for (size_t i = 0; i < ck->npaths; i++)
		if (!is_used(&ck->ix, ck->path[i]))
			ck_findings_add(&ck->findings, CK_FINDING_OVERLAY_UNUSED, ck->path[i],
					"this folder adds no tensor: zckpt reads all given "
					"folders as one checkpoint, %s (to read another "
					"checkpoint, use a command of its own)", ck->ix.path);
}

/* Files of two runs contradict each other in many ways, all for one cause. */
static void fold_two_runs(struct ckpt *ck)
{
	static const enum ck_finding_id follow[] = {
		CK_FINDING_STEP_MIXED, CK_FINDING_RANKS_DISAGREE, CK_FINDING_RANK_FILE_MISSING,
		CK_FINDING_MODEL_FILE_MISSING, CK_FINDING_RANK_FILE_EXTRA,
		CK_FINDING_OVERLAY_DIFFERS,
	};
	struct ck_findings *f = &ck->findings;
	const uint32_t n = f->of_kind[CK_FINDING_OVERLAY_DIFFERS];

	if (!n || (!f->of_kind[CK_FINDING_STEP_MIXED] && !f->of_kind[CK_FINDING_RANKS_DISAGREE]))
		return;
	for (size_t i = 0; i < CK_ARRAY_LEN(follow); i++)
		ck_findings_drop(f, follow[i]);
	ck_findings_add(f, CK_FINDING_OVERLAY_DIFFERS, ck->ix.path,
			"%" PRIu32 " file%s here %s another size in another folder given, and the "
			"files contradict each other: these are parts of two runs", n,
			n == 1 ? "" : "s", n == 1 ? "has" : "have");
}

int ck_overlay_check(struct ckpt *ck, struct ckpt_err *err)
{
	struct ck_arena arena = CK_ARENA_INIT;
	int rc = 0;

	if (ck->npaths < 2)
		return 0;
	if (!ck->tag)
		rc = check_others(ck, &arena, err);
	if (!rc)
		note_unused(ck);
	if (!rc)
		fold_two_runs(ck);
	ck_arena_release(&arena);
	return rc;
}
