/*
 * ds_experts.c -- mixture of experts: what the model file says of them (num_experts,
 * ds_autoep_layers), and kinds of it that are refused by name.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <ckpt_zero.h>

#include "formats/ds_pt/ds_experts.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

static int refuse(const struct ds_step *ds, const char *what, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_LAYOUT, ds->model_file->path, CKPT_NO_OFFSET,
		       "LAYOUT_UNSUPPORTED: %s; DeepSpeed itself resumes it with the same "
		       "parallel sizes", what);
}

/* ---- is it such a step ---- */

/* A number or a list of them, of which one is above 1. */
static bool counts_experts(const struct ck_val *v)
{
	struct ck_val *const *item;
	uint64_t n;
	int64_t e;

	if (ck_val_int(v, &e))
		return e > 1;
	if (!ck_val_seq(v, &item, &n))
		return false;
	for (uint64_t i = 0; i < n; i++)
		if (ck_val_int(item[i], &e) && e > 1)
			return true;
	return false;
}

static const struct ck_val *autoep_layers(const struct ds_step *ds)
{
	static const char *const keys[] = { "ds_autoep_layers", "autoep_layers" };
	struct ck_val *const *item;
	uint64_t n;

	for (size_t i = 0; i < CK_ARRAY_LEN(keys); i++) {
		const struct ck_val *v = ck_val_get(ds->model, keys[i]);

		if ((ck_val_seq(v, &item, &n) || ck_val_pairs(v, &item, &n)) && n)
			return v;
	}
	return NULL;
}

static bool has_expert_files(const struct ds_step *ds)
{
	for (uint64_t i = 0; i < ds->nfiles; i++)
		if (ds->file[i].id.kind == DS_EXPERT || ds->file[i].id.kind == DS_EXPERT_OPTIM)
			return true;
	return false;
}

static int check_kind(const struct ds_step *ds, const struct ck_val *counts,
		      const struct ck_val *autoep, struct ckpt_err *err)
{
	struct ck_val *const *item;
	int64_t mp = 1;
	uint64_t n;

	for (uint64_t i = 0; i < ds->nfiles; i++)
		if (ds->file[i].id.mp && (ds->file[i].id.kind == DS_EXPERT ||
					  ds->file[i].id.kind == DS_EXPERT_OPTIM))
			return refuse(ds, "mixture of experts together with tensor parallelism",
				      err);
	ck_val_int(ck_val_get(ds->model, "mp_world_size"), &mp);
	if (mp > 1)
		return refuse(ds, "mixture of experts together with tensor or pipeline "
			      "parallelism (mp_world_size is above 1)", err);
	if (ds->model_file->id.kind == DS_MODEL_RANK)
		return refuse(ds, autoep ? "mixture of experts by AutoEP at stage 3" :
			      "mixture of experts at stage 3", err);
	if (!ck_val_seq(counts, &item, &n) || !n)
		return refuse(ds, "mixture of experts without a list num_experts in the model "
			      "file (DeepSpeed before 0.6?)", err);
	if (ds->no_shards && !autoep)
		return refuse(ds, "mixture of experts in a universal checkpoint without "
			      "ds_autoep_layers", err);
	if (autoep && !ck_val_is_none(ck_val_get(ds->model, "folding")) &&
	    ck_val_get(ds->model, "folding"))
		return refuse(ds, "mixture of experts by AutoEP folded with tensor parallelism",
			      err);
	return 0;
}

/* ---- layers ---- */

static int read_counts(struct ds_step *ds, const struct ck_val *counts, struct ckpt_err *err)
{
	struct ds_experts *x = ds->experts;
	struct ck_val *const *item;
	uint64_t n;

	ck_val_seq(counts, &item, &n);
	if (n > ds->in->limits.groups)
		return ck_fail_limit(err, ds->model_file->path, CKPT_NO_OFFSET, "groups",
				     ds->in->limits.groups, "num_experts lists %" PRIu64 " layers",
				     n);
	x->layer = ck_arena_zalloc(&ds->arena, (n + 1) * sizeof(*x->layer));
	if (!x->layer)
		return ck_fail_nomem(err, "layers of experts", n);
	x->nlayers = (uint32_t)n;
	for (uint64_t i = 0; i < n; i++) {
		int64_t experts;

		if (!ck_val_int(item[i], &experts) || experts < 1 || experts > 999999)
			return ck_fail(err, CKPT_E_CORRUPT, ds->model_file->path, CKPT_NO_OFFSET,
				       "entry %" PRIu64 " of num_experts is no number from 1 to "
				       "999999", i);
		x->layer[i].n = (uint32_t)experts;
	}
	return 0;
}

static bool is_number(const struct ck_val *v, uint64_t want)
{
	int64_t n;

	return ck_val_int(v, &n) && n >= 0 && (uint64_t)n == want;
}

/* Expert rank r has experts r * local to r * local + local - 1; another order is refused. */
static bool in_order(const struct ck_val *layer, uint32_t ep, uint32_t local)
{
	const struct ck_val *ranks = ck_val_get(ck_val_get(layer, "expert_placement"), "ranks");
	struct ck_val *const *item, *const *expert;
	uint64_t n, m;

	if (!ranks)
		return true;
	if (!ck_val_seq(ranks, &item, &n) || n != ep)
		return false;
	for (uint64_t r = 0; r < n; r++) {
		if (!is_number(ck_val_get(item[r], "rank"), r) ||
		    !ck_val_seq(ck_val_get(item[r], "experts"), &expert, &m) || m != local)
			return false;
		for (uint64_t i = 0; i < m; i++)
			if (!is_number(expert[i], r * local + i))
				return false;
	}
	return true;
}

static int read_autoep_layer(struct ds_step *ds, const struct ck_val *v, struct ckpt_err *err)
{
	const char *prefix = ck_val_str(ck_val_get(v, "expert_key_prefix"));
	const struct ck_val *form = ck_val_get(v, "checkpoint_format");
	struct ds_experts *x = ds->experts;
	struct ds_expert_layer *layer;
	int64_t id, ep, local = 0;
	int rc;

	if (ck_val_is_str(form, "zero3_partitioned"))
		return refuse(ds, "mixture of experts by AutoEP at stage 3 (checkpoint_format "
			      "zero3_partitioned)", err);
	if (form && !ck_val_is_none(form) && !ck_val_is_str(form, "per_expert_files"))
		return refuse(ds, "mixture of experts by AutoEP with an unknown checkpoint_format",
			      err);
	if (!prefix || !ck_val_int(ck_val_get(v, "moe_layer_id"), &id) || id < 0 ||
	    id >= (int64_t)x->nlayers || !ck_val_int(ck_val_get(v, "ep_size"), &ep) || ep < 1 ||
	    ep > CKPT_ZERO_MAX_WORLD)
		return ck_fail(err, CKPT_E_MISMATCH, ds->model_file->path, CKPT_NO_OFFSET,
			       "NAMES_WRONG: an entry of ds_autoep_layers names no layer of the %u "
			       "in num_experts, no ep_size or no expert_key_prefix", x->nlayers);
	layer = &x->layer[id];
	ck_val_int(ck_val_get(v, "num_local_experts"), &local);
	if (!is_number(ck_val_get(v, "num_experts"), layer->n) || layer->autoep ||
	    local * ep != (int64_t)layer->n)
		return ck_fail(err, CKPT_E_MISMATCH, ds->model_file->path, CKPT_NO_OFFSET,
			       "NAMES_WRONG: ds_autoep_layers and num_experts give layer %" PRId64
			       " other numbers of experts", id);
	if (!in_order(v, (uint32_t)ep, (uint32_t)local))
		return refuse(ds, "mixture of experts by AutoEP with experts in another order than "
			      "their ranks (expert_placement)", err);
	layer->autoep = true;
	layer->ep = (uint32_t)ep;
	layer->prefix = prefix;
	rc = ck_map_add(&x->by_prefix, prefix, strlen(prefix), (uint64_t)id, NULL, err);
	if (rc == 1)
		return ck_fail(err, CKPT_E_MISMATCH, ds->model_file->path, CKPT_NO_OFFSET,
			       "NAMES_WRONG: two layers have the expert_key_prefix %.100s", prefix);
	return rc;
}

static int read_autoep(struct ds_step *ds, const struct ck_val *autoep, struct ckpt_err *err)
{
	struct ds_experts *x = ds->experts;
	struct ck_val *const *item;
	uint64_t n = 0;
	int rc = 0;

	if (autoep && (!ck_val_seq(autoep, &item, &n) || n != x->nlayers))
		return ck_fail(err, CKPT_E_MISMATCH, ds->model_file->path, CKPT_NO_OFFSET,
			       "NAMES_WRONG: ds_autoep_layers has %" PRIu64 " layers, num_experts "
			       "%u", n, x->nlayers);
	for (uint64_t i = 0; !rc && i < n; i++)
		rc = read_autoep_layer(ds, item[i], err);
	return rc;
}

int ck_ds_experts_begin(struct ds_step *ds, struct ckpt_err *err)
{
	const struct ck_val *counts = ck_val_get(ds->model, "num_experts");
	const struct ck_val *autoep = autoep_layers(ds);
	int rc;

	if (!has_expert_files(ds) && !counts_experts(counts) && !autoep)
		return 0;
	rc = check_kind(ds, counts, autoep, err);
	if (rc)
		return rc;
	ds->experts = ck_arena_zalloc(&ds->arena, sizeof(*ds->experts));
	if (!ds->experts)
		return ck_fail_nomem(err, "experts", sizeof(*ds->experts));
	ds->experts->autoep = autoep != NULL;
	ds->experts->of_file = ck_arena_zalloc(&ds->arena, (ds->nfiles + 1) *
					       sizeof(*ds->experts->of_file));
	if (!ds->experts->of_file)
		return ck_fail_nomem(err, "a list of experts", ds->nfiles);
	rc = read_counts(ds, counts, err);
	return rc ? rc : read_autoep(ds, autoep, err);
}

void ck_ds_experts_release(struct ds_step *ds)
{
	if (!ds->experts)
		return;
	ck_map_release(&ds->experts->by_prefix);
	ck_map_release(&ds->experts->in_files);
}

/* ---- what the rest of the step asks ---- */

int64_t ck_ds_experts_world(const struct ds_step *ds, int64_t partition_count)
{
	int64_t n;

	return ck_val_int(ck_val_get(ds->model, "dp_world_size"), &n) ? n : partition_count;
}

bool ck_ds_experts_is_used(const struct ds_step *ds, const struct ds_file *file)
{
	const struct ds_experts *x = ds->experts;

	return file->id.kind == DS_EXPERT && file->id.layer < x->nlayers &&
	       file->id.rank < x->layer[file->id.layer].n;
}

const struct ck_val *ck_ds_experts_config(const struct ds_step *ds)
{
	const struct ck_val *config = ck_val_get(ds->model, "ds_config");

	if (!config && ds->optim_file)
		config = ck_val_get(ds->optim_file->pt->doc.root, "ds_config");
	return config;
}

/* Groups of the optimizer at stage 0 as well. */
static const struct ck_val *groups_of(const struct ds_step *ds)
{
	const struct ck_val *opt = ck_val_get(ds->model, "optimizer");
	const struct ck_val *inner = ck_val_get(opt, "optimizer_state_dict");

	return ds->param_groups ? ds->param_groups :
	       ck_val_get(inner ? inner : opt, "param_groups");
}

/* "ep_size_4" -> 4; 0 = the group has another name. */
static uint32_t ep_of_name(const struct ck_val *group)
{
	const char *name = ck_val_str(ck_val_get(group, "name"));
	unsigned ep;
	char end;

	if (!name || sscanf(name, "ep_size_%u%c", &ep, &end) != 1 || ep > CKPT_ZERO_MAX_WORLD)
		return 0;
	return ep;
}

uint32_t ck_ds_experts_named(const struct ck_val *groups)
{
	struct ck_val *const *group;
	uint32_t most = 0;
	uint64_t n;

	if (!ck_val_seq(groups, &group, &n))
		return 0;
	for (uint64_t g = 0; g < n; g++)
		most = (uint32_t)ck_max_u64(most, ep_of_name(group[g]));
	return most;
}

/* ---- files of expert ranks ---- */

/* What an expp_rank file says of the run, compared with the step; 'ranks' may be 0, not known. */
static void check_optim_file(struct ds_step *ds, const struct ds_file *file, uint32_t ranks)
{
	const struct ds_expert *expert = &ds->experts->of_file[file - ds->file];

	if (ranks && file->id.rank >= ranks)
		ck_findings_add(ds->f, CK_FINDING_RANK_FILE_EXTRA, file->path,
				"this is the optimizer of expert rank %u, but the step has %u of "
				"them (left over from a run with more?)", file->id.rank, ranks);
	else if (ranks && expert->ep && expert->ep != ranks)
		ck_findings_add(ds->f, CK_FINDING_RANKS_DISAGREE, file->path,
				"its param groups are those of %u expert ranks, but the step has "
				"%u (a file of another run?)", expert->ep, ranks);
	else if (expert->optim_there && ds->optim_file)
		ck_findings_add(ds->f, CK_FINDING_RANKS_DISAGREE, file->path,
				"it has an optimizer, as stage 0 saves it, but the step has "
				"stage %d (a file of another run?)", ds->stage);
	else if (expert->optim_none && ck_ds_has_optimizer(ds) && !ds->optim_file)
		ck_findings_add(ds->f, CK_FINDING_RANKS_DISAGREE, file->path,
				"it has no optimizer (None), as ZeRO saves it, but the step has "
				"stage 0 (a file of another run?)");
}

static bool has_optim_file(const struct ds_step *ds, uint32_t rank, bool any)
{
	for (uint64_t i = 0; i < ds->nfiles; i++)
		if (ds->file[i].id.kind == DS_EXPERT_OPTIM && (any || ds->file[i].id.rank == rank))
			return true;
	return false;
}

static void miss_optim_file(struct ds_step *ds, uint32_t rank, uint32_t ranks)
{
	const char *path = ck_arena_printf(&ds->arena, "%s/expp_rank_%u_mp_rank_00_optim_states.pt",
					   ds->at.where, rank);

	ck_findings_add(ds->f, CK_FINDING_RANK_FILE_MISSING, path ? path : ds->at.where,
			"missing; the step has %u expert ranks (was the save interrupted, or the "
			"copy partial?)", ranks);
}

void ck_ds_experts_check_optim(struct ds_step *ds)
{
	uint32_t ranks = ck_ds_experts_named(groups_of(ds));
	const bool any = has_optim_file(ds, 0, true);

	for (uint32_t g = 0; g < ds->ngroups; g++)
		ranks = (uint32_t)ck_max_u64(ranks, ds->group[g].ep);
	for (uint64_t i = 0; i < ds->nfiles; i++)
		if (ds->file[i].id.kind == DS_EXPERT_OPTIM)
			check_optim_file(ds, &ds->file[i], ranks);
	if (!any && ranks && ck_ds_has_optimizer(ds) && !ds->optim_file && !ds->no_shards)
		ck_findings_add(ds->f, CK_FINDING_RANK_FILE_MISSING, ds->at.where,
				"all expp_rank_*_mp_rank_00_optim_states.pt are missing; stage 0 "
				"keeps the optimizer of each of %u expert ranks in one (was only a "
				"part of the step copied?)", ranks);
	for (uint32_t e = 0; any && e < ranks; e++)
		if (!has_optim_file(ds, e, false))
			miss_optim_file(ds, e, ranks);
}

/* ---- the fact "layout" ---- */

/* Sizes above 1, each once, in rising order. */
static int list_sizes(struct ds_step *ds, bool *has, struct ckpt_err *err)
{
	struct ck_val *const *group;
	char text[256] = "";
	uint64_t n, len = 0;

	for (uint32_t g = 0; g < ds->ngroups; g++)
		has[ck_min_u64(ds->group[g].ep, CKPT_ZERO_MAX_WORLD)] = true;
	for (uint32_t l = 0; l < ds->experts->nlayers; l++)
		has[ds->experts->layer[l].ep] = true;
	if (!ds->ngroups && ck_val_seq(groups_of(ds), &group, &n))
		for (uint64_t g = 0; g < n; g++)
			has[ep_of_name(group[g])] = true;
	for (uint32_t ep = 2; ep <= CKPT_ZERO_MAX_WORLD && len < sizeof(text) - 16; ep++)
		if (has[ep])
			len += (uint64_t)snprintf(text + len, sizeof(text) - len, "%s%u",
						  len ? "," : "ep ", ep);
	return ck_index_add_fact(ds->ix, err, "layout", "%s%sdp %u", text, len ? " x " : "",
				 ds->world);
}

int ck_ds_experts_add_fact(struct ds_step *ds, struct ckpt_err *err)
{
	bool *has = ck_zalloc((CKPT_ZERO_MAX_WORLD + 1) * sizeof(*has));
	int rc;

	if (!has)
		return ck_fail_nomem(err, "a list of sizes", CKPT_ZERO_MAX_WORLD);
	rc = list_sizes(ds, has, err);
	ck_free(has);
	return rc;
}

bool ck_ds_experts_by_data(const struct ds_step *ds)
{
	return ds->experts && ds->experts->by_data;
}

bool ck_ds_experts_judge(struct ds_step *ds)
{
	const struct ds_experts *x = ds->experts;

	if (!x)
		return false;
	if (!ds->ngroups && !x->optim_there && x->optim_none) {
		ck_findings_add(ds->f, CK_FINDING_RANK_FILE_MISSING, ds->at.where,
				"all *zero_pp_rank_*_optim_states.pt are missing; the "
				"run had ZeRO, "
				"as its expp_rank files have no optimizer (was only a part of the "
				"step copied?)");
		return true;
	}
	if (!x->optim_there && !ck_ds_has_optimizer(ds))
		return false;
	ck_findings_add(ds->f, CK_FINDING_NOT_IN_CHECKPOINT, ds->at.where,
			"stage 0 stores optimizer states without names, and with experts each rank "
			"has others: master, exp_avg and all other states are left out");
	return true;
}
