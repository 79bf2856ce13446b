/*
 * op_convert_peft.c -- `convert --to peft`: which tensors are of the adapter, and under which
 * names.  docs/formats/peft.md.
 */
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/naming/ck_peft_name.h"
#include "libckpt/convert/op_convert.h"

#define MOST_ADAPTERS 64

bool ck_cv_peft_is_output(const char *name, const struct ck_tree *fresh)
{
	(void)fresh;
	return !strcmp(name, "adapter_model.safetensors") || !strcmp(name, "adapter_model.bin");
}

/* ------------------------------------------------------------------- which one */

static bool is_adapter(const struct ck_peft_name *p, const char *adapter)
{
	return strlen(adapter) == p->adapter_len && !memcmp(p->adapter, adapter, p->adapter_len);
}

static int fail_method(const char *name, const struct ck_peft_name *p, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_UNSUPPORTED, name, CKPT_NO_OFFSET,
		       "this tensor is of %s, and zckpt knows PEFT's LoRA alone; save and merge "
		       "this adapter with the program that trained it (--only trainable writes "
		       "its tensors)", p->method);
}

/* "default, style" */
static const char *list_names(struct ck_arena *arena, const char *const *name, size_t n)
{
	const char *text = n ? name[0] : "";

	for (size_t i = 1; text && i < n; i++)
		text = ck_arena_printf(arena, "%s, %s", text, name[i]);
	return text ? text : "";
}

/* The names of all adapters, in the order of the index; of PEFT's file one, "". */
static int list_adapters(const struct ckpt *ck, struct ck_arena *arena, const char **name,
			 size_t *n_out, struct ckpt_err *err)
{
	size_t n = 0;

	for (uint64_t i = 0; i < ck->ix.ntensors; i++) {
		struct ck_peft_name p;
		size_t k = 0;

		ck_peft_name_parse(ck->ix.tensor[i].name, &p);
		if (p.part == CK_PEFT_OTHER)
			return fail_method(ck->ix.tensor[i].name, &p, err);
		if (!ck_peft_is_lora(p.part))
			continue;
		while (k < n && !is_adapter(&p, name[k]))
			k++;
		if (k < n)
			continue;
		if (n == MOST_ADAPTERS)
			return ck_fail(err, CKPT_E_UNSUPPORTED, ck->ix.path, CKPT_NO_OFFSET,
				       "it has more than %d adapters", MOST_ADAPTERS);
		name[n] = ck_arena_strndup(arena, p.adapter, p.adapter_len);
		if (!name[n++])
			return ck_fail_nomem(err, "a name", p.adapter_len);
	}
	*n_out = n;
	return 0;
}

int ck_cv_peft_choose(const struct ckpt *ck, const char *asked, struct ck_arena *arena,
		      const char **out, struct ckpt_err *err)
{
	const char *name[MOST_ADAPTERS];
	size_t n = 0;
	int rc = list_adapters(ck, arena, name, &n, err);

	if (rc)
		return rc;
	if (!n)
		return ck_fail(err, CKPT_E_USAGE, ck->ix.path, CKPT_NO_OFFSET,
			       "no tensor here is of a LoRA adapter: none is called "
			       "*.lora_A.NAME.weight as PEFT calls them");
	if (n == 1 && (!asked || !*name[0])) {
		*out = name[0];
		return 0;
	}
	for (size_t i = 0; asked && i < n; i++)
		if (!strcmp(asked, name[i])) {
			*out = name[i];
			return 0;
		}
	if (asked)
		return ck_fail(err, CKPT_E_USAGE, ck->ix.path, CKPT_NO_OFFSET,
			       "there is no adapter \"%.60s\", but %.200s", asked,
			       list_names(arena, name, n));
	return ck_fail(err, CKPT_E_USAGE, ck->ix.path, CKPT_NO_OFFSET,
		       "the model has %zu adapters (%.200s); --adapter NAME chooses one", n,
		       list_names(arena, name, n));
}

/* ------------------------------------------------------------------ its tensors */

static bool ends_in_bias(const char *name)
{
	const size_t n = strlen(name);

	return n > 5 && !strcmp(name + n - 5, ".bias");
}

/* One of the model itself: in PEFT's file it is the adapter's, in a step if it was trained. */
static int takes_plain(const struct ck_cv *cv, const struct ck_pick *pick, bool *take_out,
		       struct ckpt_err *err)
{
	const struct ck_tensor *t = &cv->ck->ix.tensor[pick->tensor];

	*take_out = !*cv->adapter || t->role == CKPT_ROLE_TRAINABLE;
	if (*cv->adapter && *take_out && !ends_in_bias(pick->stored))
		return ck_fail(err, CKPT_E_UNSUPPORTED, pick->stored, CKPT_NO_OFFSET,
			       "this parameter was trained, but is neither of the adapter nor in a "
			       "module of modules_to_save, so PEFT's file has no place for it; "
			       "--exclude leaves it out");
	return 0;
}

static int takes(const struct ck_cv *cv, const struct ck_pick *pick, bool *take_out,
		 struct ckpt_err *err)
{
	struct ck_peft_name p;

	*take_out = false;
	ck_peft_name_parse(pick->stored, &p);
	switch (p.part) {
	case CK_PEFT_NONE:
		return takes_plain(cv, pick, take_out, err);
	case CK_PEFT_OTHER:
		return fail_method(pick->stored, &p, err);
	case CK_PEFT_ORIGINAL:
		return 0;
	case CK_PEFT_A:
	case CK_PEFT_B:
	case CK_PEFT_EMBED_A:
	case CK_PEFT_EMBED_B:
	case CK_PEFT_MAGNITUDE:
	case CK_PEFT_B_BIAS:
	case CK_PEFT_SAVED:
		break;
	}
	*take_out = is_adapter(&p, cv->adapter);
	return 0;
}

int ck_cv_peft_pick(struct ck_cv *cv, struct ckpt_err *err)
{
	const struct ckpt_peft_opts *o = cv->opts->peft;
	struct ck_selection *sel = &cv->sel;
	uint64_t kept = 0;
	int rc = 0;

	if (cv->to != CKPT_DST_FOLDER)
		return ck_fail(err, CKPT_E_USAGE, cv->dst, CKPT_NO_OFFSET,
			       "an adapter of PEFT is a folder with two files; give a folder");
	if (cv->opts->states)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "an adapter of PEFT holds weights, and no states of an optimizer");
	rc = ck_cv_peft_choose(cv->ck, o->adapter, &cv->arena, &cv->adapter, err);
	if (!rc)
		rc = ck_peft_config_read(cv->ck, o->config_path, o->adapter ? o->adapter :
					 cv->adapter, &cv->peft_config, err);
	for (uint64_t i = 0; !rc && i < sel->npicks; i++) {
		struct ck_pick pick = sel->pick[i];
		bool take;

		rc = takes(cv, &pick, &take, err);
		if (rc || !take)
			continue;
		if (pick.name == pick.stored || !strcmp(pick.name, pick.stored))
			pick.name = ck_peft_file_name(&cv->arena, pick.stored);
		if (!pick.name)
			rc = ck_fail_nomem(err, "a name", strlen(pick.stored));
		sel->pick[kept++] = pick;
	}
	sel->npicks = kept;
	sel->naliases = sel->nshared = 0;
	return rc;
}
