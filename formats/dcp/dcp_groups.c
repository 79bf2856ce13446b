/*
 * dcp_groups.c -- the param groups of the optimizer, from whichever of three forms has them:
 *
 *	param_groups.0.lr		a value of group 0; param_groups.0.params lists its names,
 *					or numbers: dcp_numbers.c
 *	param_groups			all groups as one value, as torch before 2.4 writes them
 *	param_groups.NAME.lr		a value of a parameter: torchtitan; equal ones are a group,
 *					unless "deepspeed" lists the groups
 */
#include <stdio.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/step/ck_step_ds.h"
#include "libckpt/step/ck_step_fact.h"
#include "libckpt/tensor/ck_val_new.h"

#define MOST_GROUPS 100000u
#define DEPTH 8u

/* ---- values ---- */

static struct ck_val *value_of(struct dcp *d, const struct dcp_item *it)
{
	if (it->is_tensor)
		return it->has_number ? ck_val_new_float(&d->fs.arena, it->number) : NULL;
	return (struct ck_val *)ck_dcp_value_of(it);
}

static int grow(struct dcp *d, uint32_t n, struct ckpt_err *err)
{
	struct dcp_group *more;

	if (n <= d->ngroups)
		return 0;
	if (n > MOST_GROUPS)
		return ck_fail(err, CKPT_E_LIMIT, d->fs.at.where, CKPT_NO_OFFSET,
			       "the optimizer has a param group of number %u, %u are possible",
			       n - 1, MOST_GROUPS);
	if (n > d->group_cap) {
		more = ck_arena_zalloc(&d->fs.arena, (uint64_t)n * 2 * sizeof(*more));
		if (!more)
			return ck_fail_nomem(err, "param groups", n);
		if (d->ngroups)
			memcpy(more, d->group, d->ngroups * sizeof(*more));
		d->group = more;
		d->group_cap = n * 2;
	}
	for (; d->ngroups < n; d->ngroups++) {
		d->group[d->ngroups].hyper = ck_val_new_dict(&d->fs.arena);
		if (!d->group[d->ngroups].hyper)
			return ck_fail_nomem(err, "a param group", 0);
	}
	return 0;
}

/* ---- names of a group ---- */

static int put_in_group(struct dcp *d, const char *name, uint32_t g, struct ckpt_err *err)
{
	return ck_map_add(&d->group_of, name, strlen(name), g, NULL, err) < 0 ? -CKPT_E_NOMEM : 0;
}

static int put_list(struct dcp *d, const struct ck_val *params, uint32_t g, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;
	int rc = 0;

	if (!ck_val_seq(params, &item, &n))
		return 0;
	for (uint64_t i = 0; !rc && i < n; i++) {
		const char *name = ck_val_str(item[i]);
		int64_t number;

		if (name)
			name = ck_dcp_name_clean(d, name, strlen(name));
		if (name)
			rc = put_in_group(d, name, g, err);
		else if (ck_val_int(item[i], &number))
			rc = ck_dcp_numbers_add(d, number, g, err);
	}
	return rc;
}

/* ---- the forms ---- */

static int set(struct dcp *d, uint32_t g, const char *key, struct ck_val *v, struct ckpt_err *err)
{
	if (!strcmp(key, "params"))
		return put_list(d, v, g, err);
	if (v && !ck_val_dict_sets(&d->fs.arena, d->group[g].hyper, key, v))
		return ck_fail_nomem(err, "a value of a param group", strlen(key));
	return 0;
}

static int take_whole(struct dcp *d, const struct ck_val *list, struct ckpt_err *err)
{
	struct ck_val *const *group, *const *item;
	uint64_t n, m;
	int rc = 0;

	if (!ck_val_seq(list, &group, &n))
		return 0;
	for (uint64_t g = 0; !rc && g < n && g < MOST_GROUPS; g++) {
		rc = grow(d, (uint32_t)g + 1, err);
		if (rc || !ck_val_pairs(group[g], &item, &m))
			continue;
		for (uint64_t i = 0; !rc && i < m; i++)
			if (ck_val_str(item[2 * i]))
				rc = set(d, (uint32_t)g, ck_val_str(item[2 * i]), item[2 * i + 1],
					 err);
	}
	return rc;
}

/* A parameter's own values, before equal ones are put together. */
struct own {
	const char *name;
	struct ck_val *hyper;
};

struct owns {
	struct own *own;
	uint64_t n, cap;
	struct ck_map by_name;
};

static int take_own(struct dcp *d, struct owns *all, const char *name, const char *key,
		    struct ck_val *v, struct ckpt_err *err)
{
	uint64_t at;
	int rc = ck_map_add(&all->by_name, name, strlen(name), all->n, &at, err);

	if (!rc) {
		rc = ck_grow(&all->own, &all->cap, all->n + 1, sizeof(*all->own), err);
		at = all->n;
		if (!rc)
			all->own[all->n++] = (struct own){ name, ck_val_new_dict(&d->fs.arena) };
	}
	if (rc < 0)
		return rc;
	if (v && !ck_val_dict_sets(&d->fs.arena, all->own[at].hyper, key, v))
		return ck_fail_nomem(err, "a value of a parameter", strlen(key));
	return 0;
}

/* "0.lr" or "NAME.lr". */
static int take_item(struct dcp *d, struct owns *all, const struct dcp_item *it,
		     struct ckpt_err *err)
{
	const char *own = it->flat + strlen(d->optim) + 12, *key;
	struct ck_val *v = value_of(d, it);
	uint32_t g = 0;
	size_t n;
	int rc;

	if (!*own)
		return take_whole(d, v, err);
	own++;
	key = strrchr(own, '.');
	if (!key)
		return 0;
	n = (size_t)(key++ - own);
	if (strspn(own, "0123456789") != n || n > 6) {
		const char *name = ck_dcp_name_clean(d, own, n);

		return name ? take_own(d, all, name, key, v, err) :
		       ck_fail_nomem(err, "a name", n);
	}
	for (size_t i = 0; i < n; i++)
		g = g * 10 + (uint32_t)(own[i] - '0');
	rc = grow(d, g + 1, err);
	return rc ? rc : set(d, g, key, v, err);
}

/* Group 'g' of a list of names that zckpt wrote: its values are those of its first parameter. */
static int take_listed(struct dcp *d, const struct owns *all, const struct ck_val *names,
		       uint32_t g, struct ckpt_err *err)
{
	const char *first = ck_val_str(ck_val_at(names, 0));
	uint64_t at;
	int rc = grow(d, g + 1, err);

	if (!rc && first && ck_map_find(&all->by_name, first, strlen(first), &at))
		d->group[g].hyper = all->own[at].hyper;
	return rc ? rc : put_list(d, names, g, err);
}

/* Parameters in the order of '.metadata'; a group for each set of values. */
static int join_equal(struct dcp *d, const struct owns *all, struct ckpt_err *err)
{
	const uint32_t first = d->ngroups;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < all->n; i++) {
		uint32_t g = first;

		while (g < d->ngroups && !ck_val_equal(d->group[g].hyper, all->own[i].hyper, DEPTH))
			g++;
		if (g == d->ngroups) {
			rc = grow(d, g + 1, err);
			if (!rc)
				d->group[g].hyper = all->own[i].hyper;
		}
		if (!rc)
			rc = put_in_group(d, all->own[i].name, g, err);
	}
	return rc;
}

/* ---- steps and facts ---- */

/* A parameter that was unfrozen later has a lower count. */
static void take_step(struct dcp_group *g, double step)
{
	g->least = g->has_step && g->least < step ? g->least : step;
	g->step = g->has_step && g->step > step ? g->step : step;
	g->has_step = true;
}

static void take_steps(struct dcp *d)
{
	for (uint64_t i = 0; i < d->fs.nitems; i++) {
		const struct dcp_item *it = &d->fs.item[i];
		uint64_t g;

		if (it->use != DCP_STATE || strcmp(it->state, "step") || !it->has_number ||
		    !ck_map_find(&d->group_of, it->name, strlen(it->name), &g))
			continue;
		take_step(&d->group[g], it->number);
	}
}

static int add_facts(struct dcp *d, uint32_t g, struct ckpt_err *err)
{
	struct ck_val *const *item;
	char key[128];
	uint64_t n = 0;
	int rc = 0;

	ck_val_pairs(d->group[g].hyper, &item, &n);
	for (uint64_t i = 0; !rc && i < n; i++) {
		const char *name = ck_val_str(item[2 * i]);

		if (!name || !strcmp(name, "step") || !ck_step_ds_has_key(d->deepspeed, g, name))
			continue;
		snprintf(key, sizeof(key), "group.%u.%s", g, name);
		rc = ck_step_add_fact(d->fs.ix, key, item[2 * i + 1], err);
	}
	if (!rc && d->group[g].has_step) {
		snprintf(key, sizeof(key), "group.%u.step", g);
		rc = ck_step_add_number(d->fs.ix, key, d->group[g].step, err);
	}
	return rc;
}

/* What DeepSpeed counts. */
static int add_counts(struct dcp *d, struct ckpt_err *err)
{
	static const char *const counts[] = { "global_steps", "skipped_steps", "global_samples" };
	int rc = 0;

	for (size_t i = 0; !rc && i < CK_ARRAY_LEN(counts); i++)
		if (ck_val_get(d->deepspeed, counts[i]))
			rc = ck_step_add_fact(d->fs.ix, counts[i],
					      ck_val_get(d->deepspeed, counts[i]), err);
	return rc;
}

int ck_dcp_groups_find(struct dcp *d, struct ckpt_err *err)
{
	const struct ck_val *listed = ck_val_get(d->deepspeed, "param_groups");
	struct owns all = { .n = 0 };
	struct ck_val *const *item;
	uint64_t n;
	int rc = 0;

	if (!ck_val_seq(listed, &item, &n))
		listed = NULL;

	for (uint64_t i = 0; !rc && i < d->fs.nitems; i++)
		if (d->fs.item[i].use == DCP_GROUP)
			rc = take_item(d, &all, &d->fs.item[i], err);
	d->by_parameter = all.n != 0 || listed;
	for (uint32_t g = 0; !rc && listed && g < n && g < MOST_GROUPS; g++)
		rc = take_listed(d, &all, item[g], g, err);
	if (!rc && !listed)
		rc = join_equal(d, &all, err);
	if (!rc)
		rc = ck_dcp_numbers_find(d, err);
	if (!rc)
		take_steps(d);
	if (!rc)
		rc = add_counts(d, err);
	for (uint32_t g = 0; !rc && g < d->ngroups; g++)
		rc = add_facts(d, g, err);
	d->fs.ix->ngroups = d->ngroups;
	ck_map_release(&all.by_name);
	ck_free(all.own);
	return rc;
}
