/* op_convert_items.c -- which state of which tensor is written, and in which type. */
#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"
#include "libckpt/convert/op_convert.h"
#include "libckpt/naming/ck_language.h"
#include "libckpt/select/ck_states.h"
#include "libckpt/tensor/ck_dtype.h"

static int parse_rule(const struct ckpt_rule *rule, int *dtype_out, struct ckpt_err *err)
{
	enum ckpt_dtype dtype;

	if (rule->value && !strcmp(rule->value, "keep")) {
		*dtype_out = CKPT_KEEP;
		return 0;
	}
	dtype = rule->value ? ckpt_dtype_parse(rule->value) : 0;
	if (!ck_dtype_is_castable(dtype))
		return ck_fail(err, CKPT_E_USAGE, rule->pattern, CKPT_NO_OFFSET,
			       "cannot convert to type \"%.60s\"; expected fp32, bf16, fp16 or "
			       "keep",
			       rule->value ? rule->value : "");
	*dtype_out = (int)dtype;
	return 0;
}

static int check_types(const struct ckpt_convert_opts *opts, struct ckpt_err *err)
{
	int ignored, rc = 0;

	if (opts->dtype != 0 && opts->dtype != CKPT_KEEP &&
	    !ck_dtype_is_castable((enum ckpt_dtype)opts->dtype))
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "cannot convert to element type %d", opts->dtype);
	for (const struct ckpt_rule *r = opts->dtype_rules; !rc && r && r->pattern; r++)
		rc = parse_rule(r, &ignored, err);
	return rc;
}

/*
 * Biases that choose experts change by 0.001 a step, and bf16 would round that away.  transformers
 * loads them in fp32 whatever the model's type is (_keep_in_fp32_modules_strict of its DeepSeek-V3,
 * GLM-4 MoE and others); the second is their name in Megatron-Core.
 */
static bool stays_fp32(const struct ck_index *ix, const struct ck_pick *pick)
{
	const uint32_t s = ck_index_state_find(ix, pick->tensor, "weight");

	return s != CK_NONE && ix->state[s].dtype == CKPT_F32 &&
	       (ck_ends_with(pick->stored, "e_score_correction_bias") ||
		ck_ends_with(pick->stored, "router.expert_bias"));
}

/* What the caller asked for this tensor: 0, CKPT_KEEP or a type. */
static int asked_type(const struct ck_cv *cv, const struct ck_pick *pick)
{
	int dtype = cv->opts->dtype;

	for (const struct ckpt_rule *r = cv->opts->dtype_rules; r && r->pattern; r++)
		if (!fnmatch(r->pattern, pick->stored, 0)) {
			parse_rule(r, &dtype, NULL);
			return dtype;
		}
	return dtype > 0 && stays_fp32(&cv->ck->ix, pick) ? CKPT_KEEP : dtype;
}

static bool is_floating(const struct ck_index *ix, uint32_t state)
{
	return ck_dtype_is_castable((enum ckpt_dtype)ix->state[state].dtype);
}

/* A tensor with neither weight nor master: say so once, and go on. */
static void tell_skipped(struct ck_cv *cv, const struct ck_tensor *t)
{
	struct ck_findings *f = &cv->ck->findings;
	const char *id = ck_finding_name(CK_FINDING_NOT_IN_CHECKPOINT);

	for (uint64_t i = 0; i < f->n; i++)
		if (!strcmp(f->list[i].id, id) && !strcmp(f->list[i].where, t->name))
			return;
	ck_findings_add(f, CK_FINDING_NOT_IN_CHECKPOINT, t->name,
			"the files hold neither a weight nor a master of this tensor; it is "
			"left out");
}

/*
 * Weights: the master where there is one, rounded once; else the weight.  '*taken_out' is
 * false for a tensor that is left out.
 */
static int choose_weight(struct ck_cv *cv, const struct ck_pick *pick, struct ck_item *item,
			 bool *taken_out, struct ckpt_err *err)
{
	const struct ck_index *ix = &cv->ck->ix;
	const uint32_t weight = ck_index_state_find(ix, pick->tensor, "weight");
	const uint32_t master = ck_index_state_find(ix, pick->tensor, "master");
	const int asked = asked_type(cv, pick);
	const uint32_t any = weight != CK_NONE ? weight : master;

	*taken_out = any != CK_NONE;
	if (!*taken_out) {
		tell_skipped(cv, &ix->tensor[pick->tensor]);
		return 0;
	}
	*item = (struct ck_item){ .name = pick->name, .tensor = pick->tensor, .state = any };
	if (asked == CKPT_KEEP && weight == CK_NONE)
		return ck_fail(err, CKPT_E_USAGE, pick->stored, CKPT_NO_OFFSET,
			       "no weight of this tensor was saved, so --dtype keep has "
			       "nothing to write; any other type converts the master");
	item->dtype = ix->state[any].dtype;
	if (asked == CKPT_KEEP || !is_floating(ix, any))
		return 0;
	item->dtype = (uint8_t)(asked ? asked : CKPT_F32);
	if (master != CK_NONE && is_floating(ix, master))
		item->state = master;
	else
		cv->no_master += item->dtype == CKPT_F32 && ix->state[any].dtype != CKPT_F32;
	return 0;
}

/* A state by name: as stored, unless a type is asked and it is floating. */
static int choose_state(struct ck_cv *cv, const struct ck_pick *pick, const char *state,
			struct ck_item *item, bool *taken_out)
{
	const struct ck_index *ix = &cv->ck->ix;
	const uint32_t s = ck_index_state_find(ix, pick->tensor, state);
	const int asked = asked_type(cv, pick);

	*taken_out = s != CK_NONE;
	if (!*taken_out)
		return 0;
	*item = (struct ck_item){
		.name = pick->name, .tensor = pick->tensor, .state = s,
		.dtype = ix->state[s].dtype,
	};
	if (asked > 0 && is_floating(ix, s))
		item->dtype = (uint8_t)asked;
	return 0;
}

static int fill_set(struct ck_cv *cv, struct ck_cv_set *set, struct ckpt_err *err)
{
	int rc = 0;

	set->item = ck_arena_alloc(&cv->arena, cv->sel.npicks * sizeof(*set->item));
	if (!set->item)
		return ck_fail_nomem(err, "a list of tensors", cv->sel.npicks);
	for (uint64_t i = 0; !rc && i < cv->sel.npicks; i++) {
		const struct ck_pick *pick = &cv->sel.pick[i];
		bool taken = false;

		if (cv->opts->states)
			rc = choose_state(cv, pick, set->state, &set->item[set->nitems], &taken);
		else
			rc = choose_weight(cv, pick, &set->item[set->nitems], &taken, err);
		set->nitems += !rc && taken;
	}
	return rc;
}

/* Names of states come from files and become file names. */
static int check_state_name(const struct ck_cv *cv, const char *name, struct ckpt_err *err)
{
	const unsigned char *s = (const unsigned char *)name;

	while (*s > 0x20 && *s != '/' && *s != '\\' && *s != 0x7f)
		s++;
	if (cv->to != CKPT_DST_FOLDER || (!*s && name[0] && name[0] != '.' && strlen(name) < 200))
		return 0;
	return ck_fail(err, CKPT_E_UNSUPPORTED, cv->ck->ix.path, CKPT_NO_OFFSET,
		       "the name of the state \"%.80s\" cannot be a file's name", name);
}

static int list_sets(struct ck_cv *cv, const char ***names_out, uint64_t *n_out,
		     struct ckpt_err *err)
{
	static const char *weight[] = { "weight" };
	int rc;

	*names_out = weight;
	*n_out = 1;
	if (!cv->opts->states)
		return 0;
	rc = ck_states_check(&cv->ck->ix, cv->opts->states, err);
	if (!rc)
		rc = ck_states_list(&cv->ck->ix, cv->opts->states, &cv->arena, names_out, n_out,
				    err);
	for (uint64_t i = 0; !rc && i < *n_out; i++)
		rc = check_state_name(cv, (*names_out)[i], err);
	return rc;
}

static int check_sets(const struct ck_cv *cv, struct ckpt_err *err)
{
	if (!cv->ntensors)
		return ck_select_fail_empty(&cv->ck->ix, err);
	if (cv->to != CKPT_DST_FOLDER && cv->nsets > 1)
		return ck_fail(err, CKPT_E_USAGE, cv->dst, CKPT_NO_OFFSET,
			       "this is one file, but each of %" PRIu64 " states gets a file of "
			       "its own; give a folder", cv->nsets);
	return 0;
}

static void tell_unused(struct ck_cv *cv)
{
	struct ck_findings *f = &cv->ck->findings;

	ck_select_tell_unused(&cv->ck->ix, cv->opts->select, &cv->sel, f);
	for (const struct ckpt_rule *r = cv->opts->dtype_rules; r && r->pattern; r++)
		ck_select_tell_pattern(&cv->ck->ix, "--dtype", r->pattern, f);
}

static const char *stored_as(const struct ck_selection *sel, const struct ck_pick_alias *a)
{
	for (uint64_t i = 0; i < sel->npicks; i++)
		if (sel->pick[i].tensor == a->tensor)
			return sel->pick[i].stored;
	return a->name;
}

/* Second names that cannot be keys get bytes of their own. */
static int copy_taken(struct ck_cv *cv, struct ckpt_err *err)
{
	struct ck_selection *sel = &cv->sel;
	uint64_t kept = 0;
	int rc = 0;

	for (uint64_t i = 0; !rc && cv->to != CKPT_DST_TORCH && i < sel->naliases; i++) {
		const struct ck_pick_alias a = sel->alias[i];

		sel->alias[kept] = a;
		kept += !ck_plan_is_taken_key(a.name);
		if (!ck_plan_is_taken_key(a.name))
			continue;
		rc = ck_grow(&sel->pick, &sel->pick_cap, sel->npicks + 1, sizeof(*sel->pick), err);
		if (!rc)
			sel->pick[sel->npicks++] = (struct ck_pick){
				.name = a.name, .stored = stored_as(sel, &a), .tensor = a.tensor,
			};
		sel->nshared--;
	}
	if (cv->to != CKPT_DST_TORCH)
		sel->naliases = kept;
	return rc;
}

/* A table that was given and changes nothing is of another model. */
static int check_names(const struct ck_cv *cv, struct ckpt_err *err)
{
	const char *which = cv->ck->names;

	if (!cv->naming.rule || cv->sel.npublished || !which || !strcmp(which, "hf"))
		return 0;
	return ck_fail(err, CKPT_E_MISMATCH, which, CKPT_NO_OFFSET,
		       "none of the %" PRIu64 " chosen names matches one of its %" PRIu64 " rules, "
		       "which begin with names of modules such as %.200s", cv->sel.npicks,
		       cv->naming.nrules, cv->naming.rule->pattern);
}

/* What the language model alone is, without the tower: the caller's patterns and those. */
static int choose_language(struct ck_cv *cv, struct ckpt_select *select, struct ckpt_err *err)
{
	const char *const *others = ck_language_others();
	const char *const *given = select->exclude;
	const char **exclude;
	size_t n = 0, m = 0;

	while (given && given[n])
		n++;
	while (others[m])
		m++;
	exclude = ck_arena_zalloc(&cv->arena, (n + m + 1) * sizeof(*exclude));
	if (!exclude)
		return ck_fail_nomem(err, "patterns", n + m);
	for (size_t i = 0; i < n; i++)
		exclude[i] = given[i];
	for (size_t i = 0; i < m; i++)
		exclude[n + i] = others[i];
	select->exclude = exclude;
	return 0;
}

/* It is of a model with a tower, and nothing is neither of it nor of the tower. */
static int check_language(const struct ck_cv *cv, struct ckpt_err *err)
{
	const struct ckpt_select tower = { .size = sizeof(tower), .include = ck_language_others() };
	const struct ck_index *ix = &cv->ck->ix;
	uint64_t n = 0;

	if (!(cv->opts->flags & CKPT_CONVERT_LANGUAGE))
		return 0;
	for (uint64_t i = 0; i < ix->ntensors; i++)
		n += ck_select_takes(&tower, ix->tensor[i].name);
	if (!n)
		return ck_fail(err, CKPT_E_USAGE, ix->path, CKPT_NO_OFFSET,
			       "none of the %" PRIu64 " tensors is of a vision tower: this is no "
			       "vision-language model that zckpt knows", ix->ntensors);
	for (uint64_t i = 0; i < cv->sel.npicks; i++)
		if (!ck_language_has(cv->sel.pick[i].name))
			return ck_fail(err, CKPT_E_MISMATCH, cv->sel.pick[i].stored,
				       CKPT_NO_OFFSET, "it is neither of the language model nor of "
				       "a vision tower that zckpt knows; --exclude leaves it out");
	return 0;
}

/*
 * A folder and safetensors get the names that transformers' own files have; a state dict is loaded
 * into the modules, and keeps theirs.
 */
static int choose_names(struct ck_cv *cv, struct ckpt_err *err)
{
	const char *which = cv->ck->names;

	if (!strcmp(cv->ck->driver->name, "megatron"))
		return 0;	/* its names were chosen when it was opened */
	if (!which && cv->to == CKPT_DST_TORCH)
		return 0;
	return ck_naming_choose(which, cv->config, &cv->ck->ix, cv->ck->pool, &cv->naming, err);
}

int ck_cv_choose_items(struct ck_cv *cv, struct ckpt_err *err)
{
	const bool language = cv->opts->flags & CKPT_CONVERT_LANGUAGE;
	struct ckpt_select select = { .size = sizeof(select) };
	const char **names = NULL;
	uint64_t n = 0;
	int rc = check_types(cv->opts, err);

	if (cv->opts->select)
		select = *cv->opts->select;
	if (!rc)
		rc = language ? choose_language(cv, &select, err) : choose_names(cv, err);
	if (!rc)
		rc = ck_select_published(&cv->ck->ix, &select, language ? ck_language_rules() :
					 cv->naming.rule, &cv->sel, err);
	if (!rc)
		rc = check_language(cv, err);
	if (!rc)
		rc = check_names(cv, err);
	if (!rc && cv->opts->peft)
		rc = cv->opts->peft->merge ? ck_cv_merge_pick(cv, err) : ck_cv_peft_pick(cv, err);
	if (!rc)
		rc = copy_taken(cv, err);
	if (!rc)
		rc = list_sets(cv, &names, &n, err);
	if (rc)
		return rc;
	tell_unused(cv);
	cv->set = ck_arena_zalloc(&cv->arena, n * sizeof(*cv->set));
	if (!cv->set)
		return ck_fail_nomem(err, "states", n);
	for (uint64_t i = 0; !rc && i < n; i++) {
		struct ck_cv_set *set = &cv->set[cv->nsets];

		*set = (struct ck_cv_set){ .state = names[i] };
		rc = fill_set(cv, set, err);
		cv->ntensors += set->nitems;
		cv->nsets += set->nitems > 0;	/* what nothing has is not written */
	}
	return rc ? rc : check_sets(cv, err);
}
