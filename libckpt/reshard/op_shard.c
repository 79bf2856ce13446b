/*
 * op_shard.c -- the verb `shard`: weights to a complete ZeRO step that a run begins with.
 *
 * Says which tensor is what and in which order the optimizer has them (ck_order.h), what the run
 * begins with (ck_recipe.h); the DeepSpeed driver lays the files out.
 */
#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/io/ck_tree.h"
#include "libckpt/json/ck_json.h"
#include "libckpt/naming/ck_naming.h"
#include "libckpt/reshard/ck_recipe.h"
#include "libckpt/reshard/ck_step_out.h"
#include "libckpt/reshard/op_reshard.h"
#include "libckpt/run/ck_read.h"
#include "libckpt/run/ck_stated.h"
#include "libckpt/step/ck_order.h"
#include "libckpt/step/ck_step.h"
#include "libckpt/step/ck_step_check.h"

#define COMPARE_ELEMS ((uint64_t)1 << 16)
#define MOST_TP 4096u
#define MOST_DIVISOR ((uint64_t)1 << 20)

struct sharding {
	struct ckpt *ck;
	const struct ckpt_shard_opts *opts;
	struct ck_arena arena;
	struct ck_shard_want want;
	struct ck_shard_group group[2];
	double weight_decay;
	const char **published;	/* by tensor: its name in the source */
	bool *set_aside;	/* by tensor: frozen, or a buffer */
	struct ck_order order;
	struct ck_plan plan;
};

/* ---- their names ---- */

/* config.json as it was given, or in the folder of the weights; NULL without memory. */
static const char *find_config(struct sharding *s)
{
	const char *path = s->ck->path[0];
	enum ck_fs_kind kind;
	char *dir = NULL;
	const char *config;

	if (s->opts->config_path)
		return s->opts->config_path;
	if (ck_fs_kind(path, &kind, NULL) || kind != CK_FS_DIR)
		dir = ck_fs_parent(path);
	config = ck_arena_printf(&s->arena, "%s/config.json", dir ? dir : path);
	ck_free(dir);
	return config;
}

/* A step has the names of the model's modules; the files of some models have others. */
static int name_modules(struct sharding *s, struct ckpt_err *err)
{
	struct ck_index *ix = &s->ck->ix;
	struct ck_naming naming = CK_NAMING_INIT;
	const char **name = ck_arena_alloc(&s->arena, (ix->ntensors + 1) * sizeof(*name));
	const char **old = ck_arena_alloc(&s->arena, (ix->ntensors + 1) * sizeof(*old));
	const char *config = find_config(s);
	int rc = name && old && config ? ck_naming_choose(s->ck->names, config, ix, s->ck->pool,
							  &naming, err) :
		 ck_fail_nomem(err, "names", ix->ntensors);

	for (uint64_t i = 0; !rc && naming.rule && i < ix->ntensors; i++) {
		old[i] = ix->tensor[i].name;
		name[i] = ck_naming_module(&naming, &s->arena, old[i]);
		if (!name[i])
			rc = ck_fail_nomem(err, "a name", 0);
	}
	if (!rc && naming.rule) {
		s->published = old;
		rc = ck_index_rename(ix, name, err);
	}
	ck_naming_release(&naming);
	return rc;
}

/* ---- what each tensor is ---- */

static int mark(struct sharding *s, const char *const *pattern, enum ckpt_role role,
		struct ckpt_err *err)
{
	struct ck_index *ix = &s->ck->ix;

	for (; pattern && *pattern; pattern++) {
		bool fits = false;

		for (uint32_t i = 0; i < ix->ntensors; i++) {
			if (fnmatch(*pattern, ix->tensor[i].name, 0) &&
			    (!s->published || fnmatch(*pattern, s->published[i], 0)))
				continue;
			fits = true;
			if (ix->tensor[i].role == CKPT_ROLE_ALIAS)
				continue;
			ix->tensor[i].role = (uint8_t)role;
			s->set_aside[i] = true;
		}
		if (!fits)
			return ck_fail(err, CKPT_E_USAGE, ix->path, CKPT_NO_OFFSET,
				       "%s matches none of the %" PRIu64 " tensors", *pattern,
				       ix->ntensors);
	}
	return 0;
}

static bool is_float(enum ckpt_dtype dtype)
{
	return dtype == CKPT_F16 || dtype == CKPT_BF16 || dtype == CKPT_F32 || dtype == CKPT_F64;
}

/* The state that holds a tensor's elements, and whether it can be trained. */
static int check_trainable(const struct ck_index *ix, uint32_t tensor, struct ckpt_err *err)
{
	const uint32_t s = ck_index_state_find(ix, tensor, "weight");
	const enum ckpt_dtype dtype = s == CK_NONE ? CKPT_F32 :
				      (enum ckpt_dtype)ix->state[s].dtype;

	if (s == CK_NONE)
		return ck_fail(err, CKPT_E_INCOMPLETE, ix->tensor[tensor].name, CKPT_NO_OFFSET,
			       "the source lacks its weight");
	if (is_float(dtype))
		return 0;
	return ck_fail(err, CKPT_E_UNSUPPORTED, ix->tensor[tensor].name, CKPT_NO_OFFSET,
		       "elements of type %s cannot be trained; if it is not a parameter, "
		       "name it with --buffer", ckpt_dtype_name(dtype));
}

/* A step says what is frozen and what is a buffer; a file of weights does not. */
static void take_role(struct sharding *s, uint32_t i)
{
	struct ck_tensor *t = &s->ck->ix.tensor[i];

	s->set_aside[i] = t->role == CKPT_ROLE_FROZEN || t->role == CKPT_ROLE_BUFFER;
	if (!s->set_aside[i] && t->role != CKPT_ROLE_ALIAS)
		t->role = CKPT_ROLE_TRAINABLE;
}

static int choose_roles(struct sharding *s, struct ckpt_err *err)
{
	struct ck_index *ix = &s->ck->ix;
	int rc;

	s->set_aside = ck_arena_zalloc(&s->arena, ix->ntensors + 1);
	if (!s->set_aside)
		return ck_fail_nomem(err, "names", ix->ntensors);
	for (uint32_t i = 0; i < ix->ntensors; i++)
		take_role(s, i);
	rc = mark(s, s->opts->frozen, CKPT_ROLE_FROZEN, err);
	return rc ? rc : mark(s, s->opts->buffers, CKPT_ROLE_BUFFER, err);
}

static int check_types(const struct ck_index *ix, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < ix->ntensors; i++)
		if (ix->tensor[i].role == CKPT_ROLE_TRAINABLE)
			rc = check_trainable(ix, i, err);
	return rc;
}

/* ---- their order ---- */

/* A frozen or tied part is no hole in the order. */
static int choose_order(struct sharding *s, struct ckpt_err *err)
{
	const struct ck_index *ix = &s->ck->ix;
	const char *config = find_config(s);
	enum ck_fs_kind kind;

	if (s->opts->order_path)
		return ck_order_by_list(ix, s->opts->order_path, &s->ck->limits, s->set_aside,
					&s->order, err);
	if (!config)
		return ck_fail_nomem(err, "a path", 0);
	if (!s->opts->config_path && !ck_fs_kind(config, &kind, NULL) && kind == CK_FS_NOTHING)
		return ck_fail(err, CKPT_E_NOTFOUND, config, CKPT_NO_OFFSET,
			       "missing; it determines the order of the model's parameters; "
			       "give it with --config, or the order with --order FILE");
	return ck_order_by_config(ix, config, &s->ck->limits, s->set_aside, &s->order, err);
}

/* Both copies of a tied weight must be the same, or one of them would silently be lost. */
static int compare_copies(struct sharding *s, uint32_t a, uint32_t b, struct ckpt_err *err)
{
	const struct ck_index *ix = &s->ck->ix;
	const uint32_t x = ck_index_state_find(ix, a, "weight");
	const uint32_t y = ck_index_state_find(ix, b, "weight");
	const uint64_t n = ix->tensor[a].numel;
	struct ck_reader *reader = NULL;
	double *p = ck_alloc_array(2 * COMPARE_ELEMS, sizeof(*p));
	void *scratch = ck_alloc(CK_READ_SCRATCH);
	int rc = p && scratch ? ck_reader_new(ix, &s->ck->limits, 0, &reader, err) :
		 ck_fail_nomem(err, "a comparison", COMPARE_ELEMS);

	if (!rc && y == CK_NONE)
		rc = ck_fail(err, CKPT_E_INCOMPLETE, ix->tensor[b].name, CKPT_NO_OFFSET,
			     "the source lacks its weight");
	if (!rc && n != ix->tensor[b].numel)
		rc = ck_fail(err, CKPT_E_MISMATCH, ix->tensor[b].name, CKPT_NO_OFFSET,
			     "the config ties it to %s, but it has %" PRIu64 " elements and "
			     "that one %" PRIu64, ix->tensor[a].name, ix->tensor[b].numel, n);
	for (uint64_t i = 0; !rc && i < n; i += COMPARE_ELEMS) {
		const uint64_t count = ck_min_u64(COMPARE_ELEMS, n - i);

		rc = ck_reader_read(reader, &ix->state[x], i, count, CKPT_F64, p, scratch, NULL,
				    err);
		if (!rc)
			rc = ck_reader_read(reader, &ix->state[y], i, count, CKPT_F64,
					    p + COMPARE_ELEMS, scratch, NULL, err);
		if (!rc && memcmp(p, p + COMPARE_ELEMS, count * sizeof(*p)))
			rc = ck_fail(err, CKPT_E_MISMATCH, ix->tensor[b].name, CKPT_NO_OFFSET,
				     "the config ties it to %s, but its stored values differ; "
				     "set tie_word_embeddings to false to keep both",
				     ix->tensor[a].name);
	}
	ck_reader_free(reader);
	ck_free(scratch);
	ck_free(p);
	return rc;
}

static int add_alias(struct sharding *s, struct ckpt_err *err)
{
	struct ck_index *ix = &s->ck->ix;
	const uint32_t kept = s->order.embedding;
	uint32_t alias;
	int rc;

	if (!s->order.alias || !s->order.n)
		return 0;
	rc = ck_index_add_tensor(ix, s->order.alias, ix->tensor[kept].shape,
				 ix->tensor[kept].ndim, CKPT_ROLE_ALIAS, &alias, err);
	if (rc == 1 && ix->tensor[alias].role != CKPT_ROLE_ALIAS)
		rc = compare_copies(s, kept, alias, err);
	if (rc < 0)
		return rc;
	ix->tensor[alias].role = CKPT_ROLE_ALIAS;
	ix->tensor[alias].alias_of = kept;
	return 0;
}

/* One group, or two: those with weight decay first. */
static int make_groups(struct sharding *s, struct ckpt_err *err)
{
	const bool two = s->opts->groups == CKPT_GROUPS_DECAY;
	const struct ck_index *ix = &s->ck->ix;
	uint64_t at = 0, first;
	uint32_t *list = ck_arena_alloc(&s->arena, (s->order.n + 1) * sizeof(*list));

	if (!list)
		return ck_fail_nomem(err, "groups", s->order.n);
	for (int undecayed = 0; undecayed < (two ? 2 : 1); undecayed++) {
		first = at;
		for (uint64_t i = 0; i < s->order.n; i++)
			if (!two || ck_order_is_undecayed(ix->tensor[s->order.tensor[i]].name) ==
				    undecayed)
				list[at++] = s->order.tensor[i];
		s->group[s->want.ngroups++] = (struct ck_shard_group){
			.tensor = list + first, .n = at - first,
			.weight_decay = undecayed ? 0 : s->weight_decay,
		};
		if (at == first)
			return ck_fail(err, CKPT_E_USAGE, ix->path, CKPT_NO_OFFSET,
				       "a param group would be empty: all parameters are %s",
				       undecayed ? "decayed" : two ? "biases and norms" :
				       "frozen or buffers");
	}
	s->want.group = s->group;
	return 0;
}

/* ---- files beside the weights ---- */

/*
 * config.json and the tokenizer go into the step's folder, where convert looks for them: without
 * them the weights that come out of the run are no model.
 */
static int plan_beside(struct sharding *s, const char *step, struct ckpt_err *err)
{
	const struct ck_format *driver = s->ck->formats->folder;
	const char *path = s->opts->config_path ? s->opts->config_path : s->ck->ix.path, *dir;
	struct ck_tree tree = CK_TREE_INIT;
	enum ck_fs_kind kind = CK_FS_DIR;
	char *parent = NULL;
	int rc = ck_look_kind(s->ck->pool, path, &kind, NULL, err);

	if (rc)
		return rc;
	parent = kind == CK_FS_DIR ? NULL : ck_fs_parent(path);
	dir = kind == CK_FS_DIR ? path : parent;
	rc = dir ? ck_look_list(s->ck->pool, &tree, &dir, 1, NULL, s->ck->limits.files, err) :
		   ck_fail_nomem(err, "a path", strlen(path));
	for (uint64_t i = 0; !rc && driver && driver->is_aux && i < tree.n; i++) {
		const struct ck_tree_entry *e = &tree.entry[i];
		const char *name;

		if (e->is_dir || e->is_odd || !driver->is_aux(e->name))
			continue;
		name = ck_arena_printf(&s->arena, "%s/%s", step, e->name);
		rc = name ? ck_plan_file(&s->plan, name, err) : ck_fail_nomem(err, "a name", 0);
		if (!rc)
			rc = ck_plan_copy(&s->plan, e->path, 0, e->bytes, err);
	}
	ck_tree_release(&tree);
	ck_free(parent);
	return rc;
}

/* ---- the whole ---- */

static enum ckpt_dtype stored_dtype(const struct ck_index *ix)
{
	for (uint32_t i = 0; i < ix->ntensors; i++) {
		const uint32_t s = ck_index_state_find(ix, i, "weight");

		if (ix->tensor[i].role == CKPT_ROLE_TRAINABLE && s != CK_NONE &&
		    is_float((enum ckpt_dtype)ix->state[s].dtype))
			return (enum ckpt_dtype)ix->state[s].dtype;
	}
	return CKPT_F32;
}

static int make_plan(struct sharding *s, struct ckpt_err *err)
{
	const struct ck_format *driver = s->ck->formats->step;
	int rc = strcmp(s->ck->driver->name, "megatron") == 0 ? 0 : name_modules(s, err);

	if (!rc)
		rc = choose_roles(s, err);
	if (!rc)
		rc = ck_recipe_make(s->opts, &s->ck->limits, stored_dtype(&s->ck->ix), &s->arena,
				    &s->want, &s->weight_decay, err);
	if (!rc)
		rc = check_types(&s->ck->ix, err);
	if (!rc)
		rc = choose_order(s, err);
	if (!rc)
		rc = add_alias(s, err);
	if (!rc)
		rc = make_groups(s, err);
	s->want.limits = &s->ck->limits;
	s->want.step.target = driver;
	if (!rc)
		rc = driver ? ck_step_shard(&s->ck->ix, &s->want, &s->plan, err) :
		     ck_fail(err, CKPT_E_UNSUPPORTED, NULL, CKPT_NO_OFFSET,
			     "this build cannot write DeepSpeed steps");
	if (!rc)
		rc = plan_beside(s, s->want.step.tag, err);
	return rc ? rc : ck_plan_finish(&s->plan, err);
}

/* ---- for Megatron-Core ---- */

/* With --buffer: not of the model. */
static int mark_buffers(struct sharding *s, struct ckpt_err *err)
{
	s->set_aside = ck_arena_zalloc(&s->arena, s->ck->ix.ntensors + 1);
	if (!s->set_aside)
		return ck_fail_nomem(err, "names", s->ck->ix.ntensors);
	return mark(s, s->opts->buffers, CKPT_ROLE_BUFFER, err);
}

/* A head that config.json ties to the embedding, and that is stored all the same, must be it. */
static int drop_tied_head(struct sharding *s, const char *config, struct ckpt_err *err)
{
	struct ck_index *ix = &s->ck->ix;
	struct ck_json doc = CK_JSON_INIT;
	char *text = NULL;
	uint64_t len, tied;
	uint32_t head, embedding;
	int rc;

	if (!ck_index_find(ix, "lm_head.weight", &head) ||
	    ix->tensor[head].role == CKPT_ROLE_ALIAS ||
	    !ck_index_find(ix, "model.embed_tokens.weight", &embedding))
		return 0;
	rc = ck_file_read(config, s->ck->limits.header_bytes, &text, &len, err);
	if (!rc)
		rc = ck_json_parse(&doc, text, len, &s->ck->limits, 0, config, err);
	tied = rc ? UINT64_MAX : ck_json_given(&doc, 0, "tie_word_embeddings");
	if (tied != UINT64_MAX && doc.tok[tied].type == CK_JSON_TRUE) {
		rc = compare_copies(s, embedding, head, err);
		ix->tensor[head].role = CKPT_ROLE_ALIAS;
		ix->tensor[head].alias_of = embedding;
	}
	ck_json_release(&doc);
	ck_free(text);
	return rc;
}

static int find_model_config(struct sharding *s, const char **out, struct ckpt_err *err)
{
	enum ck_fs_kind kind;
	int rc;

	*out = find_config(s);
	if (!*out)
		return ck_fail_nomem(err, "a path", 0);
	rc = ck_fs_kind(*out, &kind, err);
	return rc || kind != CK_FS_NOTHING ? rc :
	       ck_fail(err, CKPT_E_NOTFOUND, *out, CKPT_NO_OFFSET,
		       "missing; it says which model this is and how large; give it with --config");
}

static int make_model_plan(struct sharding *s, struct ckpt_err *err)
{
	const struct ck_format *driver = s->ck->formats->megatron;
	struct ck_model_want want = {
		.tp = s->opts->tp ? s->opts->tp : 1, .dtype = s->opts->dtype,
		.vocab_divisor = s->opts->vocab_divisor ? s->opts->vocab_divisor : 128,
		.limits = &s->ck->limits,
	};
	int rc = driver ? find_model_config(s, &want.config_path, err) :
		 ck_fail(err, CKPT_E_UNSUPPORTED, NULL, CKPT_NO_OFFSET,
			 "this build cannot write checkpoints of Megatron-Core");

	if (!rc)
		rc = mark_buffers(s, err);
	if (!rc)
		rc = drop_tied_head(s, want.config_path, err);
	if (!rc)
		rc = driver->write_model(&s->ck->ix, &want, &s->plan, err);
	if (!rc) {
		const char *first = s->plan.file[0].name;
		const char *step = ck_arena_strndup(&s->arena, first, strcspn(first, "/"));

		rc = step ? plan_beside(s, step, err) : ck_fail_nomem(err, "a name", 0);
	}
	return rc ? rc : ck_plan_finish(&s->plan, err);
}

/* What the options of each form must be like. */
static int check_form(const struct ckpt_shard_opts *opts, struct ckpt_err *err)
{
	if (opts->to != CKPT_SHARD_MEGATRON)
		return ck_step_check_world(opts->world, err);
	if (opts->tp > MOST_TP || opts->vocab_divisor > MOST_DIVISOR)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "a tensor-parallel size of %" PRIu32 " and a vocabulary in steps of "
			       "%" PRIu64 "; at most %u and %" PRIu64 " are possible", opts->tp,
			       opts->vocab_divisor, MOST_TP, MOST_DIVISOR);
	return 0;
}

int ck_shard(struct ckpt *ck, const char *dst, const struct ckpt_shard_opts *opts,
	     struct ckpt_report *report_out, struct ckpt_err *err)
{
	struct sharding s = { .ck = ck, .opts = opts, .plan = CK_PLAN_INIT };
	const struct ck_step_out out = {
		.ck = ck, .plan = &s.plan, .dst = dst, .flags = opts->flags, .run = opts->run,
		.part = opts->part, .nparts = opts->nparts,
		.step_is_fixed = opts->to == CKPT_SHARD_MEGATRON,
	};
	const struct ckpt_finding *f = ck_findings_worst(&ck->findings,
							 opts->flags & CKPT_WRITE_STRICT ?
							 CKPT_WARN : CKPT_ERROR);
	int rc = f ? ck_findings_fail(f, err) : check_form(opts, err);

	if (!rc && opts->tag)
		rc = ck_step_check_tag(opts->tag, err);
	if (!rc)
		rc = ck_stated_begin(ck, err);
	if (!rc)
		rc = opts->to == CKPT_SHARD_MEGATRON ? make_model_plan(&s, err) :
		     make_plan(&s, err);
	if (!rc)
		rc = ck_step_deliver(&out, report_out, err);
	ck_order_release(&s.order);
	ck_plan_release(&s.plan);
	ck_arena_release(&s.arena);
	return rc;
}
