/*
 * sv_beside.c -- config.json, the tokenizer and an adapter's configuration go into a step's folder,
 * where convert looks for them.  Rank 0 alone has them in its plan, so the ranks need not see the
 * same folder.
 */
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/io/ck_tree.h"
#include "libckpt/save/ck_save.h"

#define CONFIG "config.json"
#define ADAPTER "adapter_config.json"

static int add(struct sv_spec *s, const char *base, const char *path, const char *text,
	       uint64_t bytes, struct ckpt_err *err)
{
	struct sv_along a = { .bytes = bytes };
	int rc = ck_grow(&s->along, &s->along_cap, s->nalong + 1, sizeof(a), err);

	if (rc)
		return rc;
	a.name = ck_arena_printf(&s->arena, "%s/%s", s->tag, base);
	a.path = path ? ck_arena_strdup(&s->arena, path) : NULL;
	a.text = text ? ck_arena_strdup(&s->arena, text) : NULL;
	if (!a.name || (!a.path && !a.text))
		return ck_fail_nomem(err, "a file that goes along", bytes);
	s->along[s->nalong++] = a;
	return 0;
}

static int add_copies(struct sv_spec *s, const char *dir, bool has_config, struct ckpt_err *err)
{
	const struct ck_format *driver = s->formats->folder;
	struct ck_tree tree = CK_TREE_INIT;
	int rc = ck_tree_list(&tree, &dir, 1, NULL, s->limits.files, err);

	for (uint64_t i = 0; !rc && driver && driver->is_aux && i < tree.n; i++) {
		const struct ck_tree_entry *e = &tree.entry[i];

		if (e->is_dir || e->is_odd || !driver->is_aux(e->name) ||
		    (has_config && !strcmp(e->name, CONFIG)))
			continue;
		rc = add(s, e->name, e->path, NULL, e->bytes, err);
	}
	ck_tree_release(&tree);
	return rc;
}

/* For the manifest of a native step. */
static int want_sums(struct sv_spec *s, struct ckpt_err *err)
{
	struct ck_along *list = ck_arena_alloc(&s->arena, (s->nalong + 1) * sizeof(*list));

	if (!list)
		return ck_fail_nomem(err, "a list of files", s->nalong);
	for (uint64_t i = 0; i < s->nalong; i++)
		list[i] = (struct ck_along){
			ck_sv_spec_local(s, s->along[i].name), s->along[i].bytes,
		};
	s->want.step.along = list;
	s->want.step.nalong = s->nalong;
	return 0;
}

int ck_sv_beside_list(struct sv_spec *s, uint32_t rank, const struct ckpt_save_step *step,
		      struct ckpt_err *err)
{
	enum ck_fs_kind kind = CK_FS_NOTHING;
	int rc = 0;

	if (s->hf.wanted || rank)
		return 0;
	if (step->config_json)
		rc = add(s, CONFIG, NULL, step->config_json, strlen(step->config_json), err);
	/* the model's folder may be gone by now: that is no reason to lose a step */
	if (!rc && step->aux_dir && ck_fs_kind(step->aux_dir, &kind, NULL))
		kind = CK_FS_NOTHING;
	if (!rc && kind == CK_FS_DIR)
		rc = add_copies(s, step->aux_dir, step->config_json != NULL, err);
	if (!rc && step->adapter_json)
		rc = add(s, ADAPTER, NULL, step->adapter_json, strlen(step->adapter_json), err);
	return rc || s->want.step.target != s->formats->native ? rc : want_sums(s, err);
}

int ck_sv_beside_plan(const struct sv_spec *s, struct ck_plan *plan, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < s->nalong; i++) {
		const struct sv_along *a = &s->along[i];

		rc = ck_plan_file(plan, a->name, err);
		if (!rc)
			rc = a->text ? ck_plan_literal(plan, a->text, a->bytes, err) :
			     ck_plan_copy(plan, a->path, 0, a->bytes, err);
		if (!rc)
			rc = ck_plan_sum_file(plan, err);
	}
	return rc;
}
