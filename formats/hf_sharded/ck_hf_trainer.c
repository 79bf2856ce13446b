/*
 * ck_hf_trainer.c -- the driver of checkpoint-N of transformers' Trainer: a model folder with an
 * optimizer beside it.  The order in which one is read.
 */
#include "formats/hf_sharded/ck_hf_trainer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/hf_sharded/ck_hf.h"
#include "formats/hf_sharded/ck_hf_pick.h"
#include "formats/torch_pt/ck_pt_scaler.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/naming/ck_peft_name.h"
#include "libckpt/step/ck_step_ds.h"
#include "libckpt/step/ck_step_fact.h"
#include "libckpt/tensor/ck_dtype.h"

static const char *const names[TRN_FILES] = {
	TRN_OPTIMIZER, TRN_SCHEDULER, TRN_OWN, TRN_SCALER, TRN_STATE, "config.json",
};

const char *ck_trn_name(enum trn_file which)
{
	return names[which];
}

const struct ck_val *ck_trn_root(const struct trn *t, enum trn_file which)
{
	return t->pt[which] ? t->pt[which]->doc.root : NULL;
}

struct trn *ck_trn_new(const struct ck_input *in, struct ck_index *ix, struct ck_findings *f)
{
	struct trn *t = ck_alloc(sizeof(*t));

	if (!t)
		return NULL;
	*t = (struct trn){ .in = in, .ix = ix, .f = f, .global_step = -1, .source = CK_NONE };
	t->arena.limit = in->limits.memory_bytes;
	return t;
}

void ck_trn_free(void *of)
{
	struct trn *t = of;

	if (!t)
		return;
	for (int k = 0; k < TRN_TORCH_FILES; k++)
		ck_pt_close(t->pt[k]);
	ck_tree_release(&t->at.tree);
	ck_arena_release(&t->arena);
	ck_free(t);
}

int ck_trn_text(const struct trn *t, enum trn_file which, char **text_out, uint64_t *len_out,
		struct ckpt_err *err)
{
	const uint64_t n = ck_src_size(t->src[which]);
	char *text;
	int rc;

	if (n > t->in->limits.header_bytes)
		return ck_fail_limit(err, t->path[which], CKPT_NO_OFFSET, "header_bytes",
				     t->in->limits.header_bytes, "the file is too large");
	text = ck_alloc(n + 1);
	if (!text)
		return ck_fail_nomem(err, "a text", n);
	rc = ck_src_read(t->src[which], 0, text, n, err);
	if (rc) {
		ck_free(text);
		return rc;
	}
	text[n] = 0;
	*text_out = text;
	*len_out = n;
	return 0;
}

/* ---- files ---- */

/* The index closes the source, whatever is in it. */
static int add_file(struct trn *t, enum trn_file which, struct ckpt_err *err)
{
	const struct ck_tree_entry *e = ck_tree_find(&t->at.tree, names[which]);
	uint32_t source;
	int rc;

	if (!e || e->is_dir || e->is_odd)
		return 0;
	t->path[which] = ck_arena_strdup(&t->arena, e->path);
	if (!t->path[which])
		return ck_fail_nomem(err, "a path", 0);
	rc = ck_src_open(t->in->pool, e->path, &t->src[which], err);
	if (!rc)
		rc = ck_index_add_source(t->ix, e->path, t->src[which], -1, &source, err);
	if (!rc && which == TRN_IN_OPTIMIZER)
		t->source = source;
	return rc;
}

int ck_trn_parse(struct trn *t, struct ckpt_err *err)
{
	int rc = 0;

	for (int k = 0; !rc && k < TRN_TORCH_FILES; k++)
		if (t->src[k])
			rc = ck_pt_open(t->src[k], &t->in->limits, 0, t->f, &t->pt[k], err);
	if (!rc && (!t->src[TRN_IN_OPTIMIZER] || !t->src[TRN_IN_STATE]))
		rc = ck_fail(err, CKPT_E_INCOMPLETE, t->at.where, CKPT_NO_OFFSET,
			     TRN_OPTIMIZER " or " TRN_STATE " is missing");
	if (!rc)
		rc = ck_trn_state_read(t, err);
	return rc ? rc : ck_trn_params_read(t, err);
}

/* ---- the index ---- */

/*
 * The file of an adapter leaves the adapter's name out; steps of other forms have the names of the
 * model that is trained.
 */
static int rename_adapter(struct trn *t, struct ckpt_err *err)
{
	const char **name = ck_arena_zalloc(&t->arena, (t->ix->ntensors + 1) * sizeof(*name));
	bool ok = name != NULL;

	for (uint64_t i = 0; ok && i < t->ix->ntensors; i++) {
		name[i] = ck_peft_live_name(&t->arena, t->ix->tensor[i].name);
		ok = name[i] != NULL;
	}
	return ok ? ck_index_rename(t->ix, name, err) :
		    ck_fail_nomem(err, "names", t->ix->ntensors);
}

/* Has the folder an adapter of PEFT alone, without the model that it is for? */
static bool is_adapter(const struct ck_index *ix)
{
	struct ck_peft_name part;

	for (uint64_t i = 0; i < ix->ntensors; i++) {
		ck_peft_name_parse(ix->tensor[i].name, &part);
		if (!ck_peft_is_lora(part.part))
			return false;
	}
	return ix->ntensors > 0;
}

/* The driver of model folders reads the weights of this one. */
static int index_weights(struct trn *t, struct ckpt_err *err)
{
	struct ck_input in = *t->in;
	const char *why = t->ix->why;
	int rc;

	in.path = &t->at.where;
	in.npaths = 1;
	in.tree = t->at.tree;
	in.kept = NULL;
	rc = ck_format_hf.index(&in, t->ix, t->f, err);
	t->ix->format = "trainer";
	t->ix->why = why;
	t->adapter = !rc && is_adapter(t->ix);
	return t->adapter ? rename_adapter(t, err) : rc;
}

static int add_alias(struct trn *t, struct ckpt_err *err)
{
	const struct ck_tensor *of = &t->ix->tensor[t->alias_of];
	uint32_t tensor;
	int rc;

	if (!t->alias)
		return 0;
	rc = ck_index_add_tensor(t->ix, t->alias, of->shape, of->ndim, CKPT_ROLE_ALIAS, &tensor,
				 err);
	if (!rc)
		t->ix->tensor[tensor].alias_of = t->alias_of;
	return rc < 0 ? rc : 0;
}

static int add_states(struct trn *t, const struct trn_param *p, struct ckpt_err *err)
{
	const struct ck_tensor *tensor = &t->ix->tensor[p->tensor];
	struct ck_val *const *item;
	uint64_t n = 0;
	int rc = 0;

	ck_val_pairs(p->state, &item, &n);
	for (uint64_t i = 0; !rc && i < n; i++) {
		const char *name = ck_val_str(item[2 * i]);
		const struct ck_tensor_ref *r = ck_val_tensor(item[2 * i + 1]);

		if (!r || !name || !strcmp(name, "step") || !strcmp(name, "weight") ||
		    !strcmp(name, "master") || r->ndim != tensor->ndim ||
		    (r->ndim && memcmp(r->shape, tensor->shape, r->ndim * sizeof(*r->shape))))
			continue;
		rc = ck_pt_add_state(t->pt[TRN_IN_OPTIMIZER], r, p->tensor, name, t->source, t->ix,
				     err);
		tensor = &t->ix->tensor[p->tensor];
	}
	return rc;
}

/* Of a run of DeepSpeed in 16 bits what is here is the master, of which its weight is made. */
static int make_master(struct trn *t, uint32_t tensor, struct ckpt_err *err)
{
	const enum ckpt_dtype dtype = ck_step_ds_type(t->deepspeed, "weight_dtype");
	const uint32_t s = ck_index_state_find(t->ix, tensor, "weight");

	if (s == CK_NONE || !ck_dtype_is_castable(dtype) ||
	    t->ix->state[s].dtype != ck_step_ds_type(t->deepspeed, "master_dtype"))
		return 0;
	t->ix->state[s].name = "master";
	return ck_index_state_derive(t->ix, s, "weight", dtype, err);
}

static int add_trained(struct trn *t, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t g = 0; !rc && g < t->ngroups; g++)
		for (uint64_t i = 0; !rc && i < t->group[g].n; i++) {
			const struct trn_param *p = &t->param[t->order[t->group[g].first + i]];

			if (p->tensor == CK_NONE)
				continue;
			t->ix->tensor[p->tensor].role = CKPT_ROLE_TRAINABLE;
			t->ix->tensor[p->tensor].group = (int32_t)g;
			rc = make_master(t, p->tensor, err);
			if (!rc)
				rc = add_states(t, p, err);
		}
	return rc;
}

/* What the optimizer does not have: frozen, or a buffer. */
static void set_roles(struct trn *t)
{
	for (uint32_t i = 0; !t->unproven && i < t->ix->ntensors; i++) {
		struct ck_tensor *tensor = &t->ix->tensor[i];
		const uint32_t s = tensor->first_state;

		if (tensor->role != CKPT_ROLE_PLAIN || s == CK_NONE)
			continue;
		tensor->role = ck_dtype_info((enum ckpt_dtype)t->ix->state[s].dtype)->cls ==
			       CK_CLASS_FLOAT ? CKPT_ROLE_FROZEN : CKPT_ROLE_BUFFER;
	}
}

/* ---- findings and facts ---- */

static void note(struct trn *t)
{
	const char *where = t->path[TRN_IN_OPTIMIZER];
	const struct ck_val *scaler;
	struct ck_val *const *item;
	uint64_t n;

	if (ck_step_number(t->ix->tag, &n) && n != (uint64_t)t->global_step)
		ck_findings_add(t->f, CK_FINDING_TAG_STEP_DIFFERS, t->ix->tag,
				"the folder's name says step %" PRIu64 ", and global_step of "
				TRN_STATE " is %" PRId64 " (a copy of another step?)", n,
				t->global_step);
	if (!t->src[TRN_IN_SCHEDULER])
		ck_findings_add(t->f, CK_FINDING_FORMAT_NOTE, t->at.where,
				TRN_SCHEDULER " is missing: the Trainer then loads no optimizer "
				"either, and begins with new moments without a message");
	scaler = ck_trn_root(t, TRN_IN_SCALER);
	if (scaler && !ck_pt_scaler_is_grad(scaler) &&
	    !(ck_val_pairs(scaler, &item, &n) && !n))
		ck_findings_add(t->f, CK_FINDING_NOT_IN_CHECKPOINT, t->path[TRN_IN_SCALER],
				"its values are not those of torch's GradScaler (scale, "
				"growth_factor, backoff_factor, growth_interval, _growth_tracker), "
				"so it is left out");
	if (t->unproven)
		ck_findings_add(t->f, CK_FINDING_STATES_UNNAMED, where,
				"the states of the optimizer %s: they are left out", t->unproven);
	if (t->odd)
		ck_findings_add(t->f, CK_FINDING_NOT_IN_CHECKPOINT, where,
				"the optimizer's state %.60s of %.200s is not of its shape, so it "
				"is left out (Adafactor, or an optimizer in 8 bits?)", t->odd,
				t->odd_of);
	for (uint32_t g = 0; g < t->ngroups; g++)
		if (t->group[g].has_step && t->group[g].step != (double)t->global_step) {
			ck_findings_add(t->f, CK_FINDING_OPTIMIZER_STEP_DIFFERS, where,
					"the optimizer was updated %.17g times, and global_step of "
					TRN_STATE " is %" PRId64 " (steps that fp16 skipped, or "
					"files of two saves?)", t->group[g].step, t->global_step);
			break;
		}
}

static int add_group_facts(struct trn *t, uint32_t g, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n = 0;
	char key[128];
	int rc = 0;

	ck_val_pairs(t->group[g].hyper, &item, &n);
	for (uint64_t i = 0; !rc && i < n; i++) {
		const char *name = ck_val_str(item[2 * i]);

		if (!ck_trn_is_hyper(t, g, name, item[2 * i + 1]))
			continue;
		snprintf(key, sizeof(key), "group.%" PRIu32 ".%s", g, name);
		rc = ck_step_add_fact(t->ix, key, item[2 * i + 1], err);
	}
	if (!rc && t->group[g].has_step) {
		snprintf(key, sizeof(key), "group.%" PRIu32 ".step", g);
		rc = ck_step_add_number(t->ix, key, t->group[g].step, err);
	}
	return rc;
}

static int add_facts(struct trn *t, struct ckpt_err *err)
{
	static const char *const counts[] = { "skipped_steps", "global_samples" };
	int rc = ck_index_add_fact(t->ix, err, "global_steps", "%" PRId64, t->global_step);

	for (size_t i = 0; !rc && i < CK_ARRAY_LEN(counts); i++)
		if (ck_val_get(t->deepspeed, counts[i]))
			rc = ck_step_add_fact(t->ix, counts[i],
					      ck_val_get(t->deepspeed, counts[i]), err);
	for (uint32_t g = 0; !rc && g < t->ngroups; g++)
		rc = add_group_facts(t, g, err);
	return rc;
}

/* One random state for each rank, or one file without a number. */
static uint32_t world_of(const struct trn *t)
{
	uint32_t n = 0;

	for (uint64_t i = 0; i < t->at.tree.n; i++)
		n += !strncmp(t->at.tree.entry[i].name, "rng_state_", 10);
	return n ? n : 1;
}

static void describe(struct trn *t)
{
	t->ix->step = t->global_step;
	t->ix->world = world_of(t);
	t->ix->ngroups = t->ngroups;
	t->ix->optimizer = "whole";
	t->ix->writer = t->pt[TRN_IN_OWN] ? "zckpt, a Trainer's folder" : "transformers' Trainer";
}

static int index_all(struct trn *t, struct ckpt_err *err)
{
	int rc = ck_trn_params_find(t, t->ix, err);

	if (!rc)
		rc = add_alias(t, err);
	if (!rc)
		rc = add_trained(t, err);
	if (rc)
		return rc;
	set_roles(t);
	note(t);
	describe(t);
	return add_facts(t, err);
}

/* Weights of a folder whose optimizer cannot be read are of use, so it is a finding. */
static int read_optimizer(struct trn *t, struct ckpt_err *err)
{
	struct ckpt_err why = { 0 };
	int rc = 0;

	for (int k = 0; !rc && k < TRN_FILES; k++)
		rc = add_file(t, (enum trn_file)k, err);
	if (rc)
		return rc;
	rc = ck_trn_parse(t, &why);
	if (rc == -CKPT_E_CORRUPT || rc == -CKPT_E_TRUNCATED || rc == -CKPT_E_FORMAT) {
		ck_findings_add(t->f, CK_FINDING_FILE_DAMAGED, why.where, "%s", why.msg);
		t->ngroups = 0;
		t->nparams = 0;
		t->damaged = true;
		describe(t);
		return 0;
	}
	if (rc)
		return ck_fail(err, why.code, why.where, why.offset, "%s", why.msg);
	return index_all(t, err);
}

static int read_all(struct trn *t, struct ckpt_err *err)
{
	struct ck_step_finder fd = { t->in, t->f, &t->arena };
	int rc = ck_step_find(&fd, t->ix, &t->at, err);

	t->ix->format = "trainer";
	if (!rc)
		rc = index_weights(t, err);
	return rc ? rc : read_optimizer(t, err);
}

static int trn_index(const struct ck_input *in, struct ck_index *ix, struct ck_findings *f,
		     struct ckpt_err *err)
{
	struct trn *t = ck_trn_new(in, ix, f);
	struct ckpt_err mine = { 0 };
	int rc;

	if (!t)
		return ck_fail_nomem(err, "a step", sizeof(*t));
	if (!err)
		err = &mine;	/* findings are made of it */
	rc = read_all(t, err);
	rc = ck_arena_why(&t->arena, rc, in->path[0], err);
	ck_kept_give(in->kept, rc, t, ck_trn_free);
	return rc;
}

/* ---- the driver ---- */

static bool has_file(const struct ck_tree *tree, const char *name)
{
	const struct ck_tree_entry *e = ck_tree_find(tree, name);

	return e && !e->is_dir;
}

static int holds(const struct ck_tree *tree)
{
	return has_file(tree, TRN_OPTIMIZER) && has_file(tree, TRN_STATE) &&
	       ck_hf_best(tree) ? 63 : 0;
}

static bool is_part(const char *name, bool is_dir)
{
	return !is_dir && (ck_hf_is_model_output(name) || !strncmp(name, "adapter_model.", 14) ||
			   !strcmp(name, TRN_OPTIMIZER) ||
			   !strcmp(name, TRN_SCHEDULER) || !strcmp(name, TRN_STATE) ||
			   !strcmp(name, TRN_OWN) || !strcmp(name, TRN_SCALER));
}

static int probe(const struct ck_input *in)
{
	return ck_step_bid(in, &ck_format_trainer, 63, 59);
}

const struct ck_format ck_format_trainer = {
	.name = "trainer",
	.noun = "checkpoint of transformers' Trainer",
	.is_model = true,
	.is_step = true,
	.has_untyped_steps = true,
	.has_order = true,
	.probe = probe,
	.index = trn_index,
	.holds = holds,
	.is_part = is_part,
	.read_step = ck_trn_read_step,
	.write_step = ck_trn_write_step,
	.values = ck_trn_values,
};
