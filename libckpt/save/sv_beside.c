/*
 * sv_beside.c -- config.json and the tokenizer go into a step's folder, where convert looks for
 * them.  Rank 0 alone has them in its plan, so the ranks need not see the same folder.
 */
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/io/ck_tree.h"
#include "libckpt/save/ck_save.h"

#define CONFIG "config.json"

static int add_file(struct sv_spec *s, const char *base, struct ckpt_err *err)
{
	const char *name = ck_arena_printf(&s->arena, "%s/%s", s->tag, base);

	return name ? ck_plan_file(&s->plan, name, err) : ck_fail_nomem(err, "a file name", 0);
}

static int add_config(struct sv_spec *s, const char *text, struct ckpt_err *err)
{
	const char *copy = ck_arena_strdup(&s->arena, text);
	int rc = copy ? add_file(s, CONFIG, err) : ck_fail_nomem(err, "a text", strlen(text));

	return rc ? rc : ck_plan_literal(&s->plan, copy, strlen(copy), err);
}

static int add_copies(struct sv_spec *s, const char *dir, bool has_config, struct ckpt_err *err)
{
	const struct ck_format *driver = ck_format_by_name("huggingface");
	struct ck_tree tree = CK_TREE_INIT;
	int rc = ck_tree_list(&tree, &dir, 1, NULL, s->limits.files, err);

	for (uint64_t i = 0; !rc && driver && driver->is_aux && i < tree.n; i++) {
		const struct ck_tree_entry *e = &tree.entry[i];

		if (e->is_dir || e->is_odd || !driver->is_aux(e->name) ||
		    (has_config && !strcmp(e->name, CONFIG)))
			continue;
		rc = add_file(s, e->name, err);
		if (!rc)
			rc = ck_plan_copy(&s->plan, e->path, 0, e->bytes, err);
	}
	ck_tree_release(&tree);
	return rc;
}

int ck_sv_beside(struct sv_spec *s, uint32_t rank, const struct ckpt_save_step *step,
		 struct ckpt_err *err)
{
	enum ck_fs_kind kind = CK_FS_NOTHING;
	int rc = 0;

	s->nshared = s->plan.nfiles;
	if (s->hf.wanted || rank)
		return 0;
	if (step->config_json)
		rc = add_config(s, step->config_json, err);
	/* the model's folder may be gone by now: that is no reason to lose a step */
	if (!rc && step->aux_dir && ck_fs_kind(step->aux_dir, &kind, NULL))
		kind = CK_FS_NOTHING;
	return rc || kind != CK_FS_DIR ? rc :
	       add_copies(s, step->aux_dir, step->config_json != NULL, err);
}
