/*
 * dcp_names.c -- what each item is: of the model, of the optimizer, of the client.
 *
 * The optimizer's items begin with some prefix, then "state.NAME.STATE" or "param_groups.".  Of
 * what else there is, the model is the box with the names that the optimizer has, or, without
 * one, with the most elements.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"

#define MOST_NAMED 3u
#define LITTLE 8u	/* a box with less than this part of the model's elements is the client's */

/* What wrappers of modules put into names. */
static const char *const wrappers[] = {
	"_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.",
};

/* ---- names ---- */

static size_t wrapper_at(const char *p)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(wrappers); i++)
		if (!strncmp(p, wrappers[i], strlen(wrappers[i])))
			return strlen(wrappers[i]);
	return 0;
}

/* 'n' bytes of a name, without wrappers. */
const char *ck_dcp_name_clean(struct dcp *d, const char *name, size_t n)
{
	char *out = ck_arena_strndup(&d->fs.arena, name, n), *to = out;

	if (!out)
		return NULL;
	for (const char *p = out; *p;) {
		const size_t skip = p == out || p[-1] == '.' ? wrapper_at(p) : 0;

		if (skip)
			p += skip;
		else
			*to++ = *p++;
	}
	*to = 0;
	return *out ? out : ck_arena_strndup(&d->fs.arena, name, n);
}

/* ---- the optimizer ---- */

/* Where "word." begins in a name, at the beginning of a step of it; NULL = nowhere. */
static const char *step_in(const char *name, const char *word)
{
	const size_t n = strlen(word);

	for (const char *p = name; (p = strstr(p, word)) != NULL; p++)
		if ((p == name || p[-1] == '.') && p[n] == '.')
			return p;
	return NULL;
}

static bool is_moment(const char *name)
{
	return ck_ends_with(name, ".exp_avg") || ck_ends_with(name, ".exp_avg_sq") ||
	       ck_ends_with(name, ".momentum_buffer");
}

/* Where the optimizer's own names begin in one of its items; NULL: it is none that shows it. */
static const char *optimizer_in(const struct dcp *d, const struct dcp_item *it)
{
	const char *p = step_in(it->flat, "param_groups");

	if (!p && !strncmp(d->fs.part[it->part].sub, "optimizer_", 10))
		p = step_in(it->flat, "state");
	if (!p && it->is_tensor && is_moment(it->flat))
		p = step_in(it->flat, "state");
	return p;
}

/* torch 2.1 keeps the list as one value. */
static const char *whole_groups_in(const struct dcp_item *it)
{
	return !it->is_tensor && ck_ends_with(it->flat, "param_groups") &&
	       (strlen(it->flat) == 12 || it->flat[strlen(it->flat) - 13] == '.') ?
	       it->flat + strlen(it->flat) - 12 : NULL;
}

static int find_optimizer(struct dcp *d, struct ckpt_err *err)
{
	for (uint64_t i = 0; i < d->fs.nitems && !d->optim; i++) {
		const struct dcp_item *it = &d->fs.item[i];
		const char *p = optimizer_in(d, it);

		if (!p)
			p = whole_groups_in(it);
		if (!p)
			continue;
		d->optim = ck_arena_strndup(&d->fs.arena, it->flat, (size_t)(p - it->flat));
		if (!d->optim)
			return ck_fail_nomem(err, "a name", strlen(it->flat));
	}
	return 0;
}

static int name_optimizer(struct dcp *d, struct dcp_item *it, struct ckpt_err *err)
{
	const char *own = it->flat + strlen(d->optim), *last;

	if (!strncmp(own, "param_groups", 12) && (!own[12] || own[12] == '.')) {
		it->use = DCP_GROUP;
		return 0;
	}
	if (strncmp(own, "state.", 6) || !it->is_tensor)
		return 0;
	own += 6;
	last = strrchr(own, '.');
	if (!last || last == own || !last[1])
		return 0;
	it->use = DCP_STATE;
	it->state = last + 1;
	it->name = ck_dcp_name_clean(d, own, (size_t)(last - own));
	return it->name ? 0 : ck_fail_nomem(err, "a name", strlen(own));
}

static int name_states(struct dcp *d, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && d->optim && i < d->fs.nitems; i++)
		if (!strncmp(d->fs.item[i].flat, d->optim, strlen(d->optim)))
			rc = name_optimizer(d, &d->fs.item[i], err);
	return rc;
}

/* ---- the model ---- */

struct box {
	const char *name;
	uint64_t elements, tensors;
	uint64_t known;		/* of its names, those that the optimizer has */
};

struct boxes {
	struct box *box;
	uint64_t n, cap;
};

static bool may_be_model(const struct dcp_item *it)
{
	return it->is_tensor && it->use == DCP_OTHER;
}

static int collect(struct dcp *d, const struct ck_map *names, struct boxes *all,
		   struct ckpt_err *err)
{
	struct ck_map by_name = CK_MAP_INIT;
	int rc = 0;

	for (uint64_t i = 0; rc >= 0 && i < d->fs.nitems; i++) {
		const struct dcp_item *it = &d->fs.item[i];
		const char *name;
		uint64_t at = all->n;

		if (!may_be_model(it))
			continue;
		rc = ck_map_add(&by_name, it->box, strlen(it->box), all->n, &at, err);
		if (!rc) {
			rc = ck_grow(&all->box, &all->cap, all->n + 1, sizeof(*all->box), err);
			at = all->n;
			if (!rc)
				all->box[all->n++] = (struct box){ .name = it->box };
		}
		if (rc < 0)
			break;
		name = ck_dcp_name_clean(d, it->key, strlen(it->key));
		all->box[at].elements += it->numel;
		all->box[at].tensors++;
		all->box[at].known += name && ck_map_find(names, name, strlen(name), NULL);
	}
	ck_map_release(&by_name);
	return rc < 0 ? rc : 0;
}

/* Names of parameters that the optimizer has states of. */
static int names_of_states(const struct dcp *d, struct ck_map *names, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; rc >= 0 && i < d->fs.nitems; i++)
		if (d->fs.item[i].use == DCP_STATE)
			rc = ck_map_add(names, d->fs.item[i].name,
					strlen(d->fs.item[i].name), i, NULL, err);
	return rc < 0 ? rc : 0;
}

static const struct box *best_of(const struct boxes *all)
{
	const struct box *best = NULL;

	for (uint64_t i = 0; i < all->n; i++) {
		const struct box *b = &all->box[i];

		if (!best || b->known > best->known ||
		    (b->known == best->known && b->elements > best->elements))
			best = b;
	}
	return best;
}

/* Boxes that are large, and not read. */
static void tell_others(struct dcp *d, const struct boxes *all, const struct box *best)
{
	for (uint64_t i = 0; i < all->n; i++) {
		const struct box *b = &all->box[i];

		if (b != best && b->elements >= best->elements / LITTLE && b->elements > 1)
			ck_findings_add(d->fs.f, CK_FINDING_SUBTREE_CHOICE, d->fs.at.where,
					"%" PRIu64 " tensors of '%s' (%" PRIu64 " elements) are "
					"left out: the model is read from '%s'", b->tensors,
					*b->name ? b->name : "the root", b->elements,
					*best->name ? best->name : "the root");
	}
}

static int name_model(struct dcp *d, struct ckpt_err *err)
{
	for (uint64_t i = 0; i < d->fs.nitems; i++) {
		struct dcp_item *it = &d->fs.item[i];

		if (!may_be_model(it) || strcmp(it->box, d->box))
			continue;
		it->use = DCP_MODEL;
		it->name = ck_dcp_name_clean(d, it->key, strlen(it->key));
		if (!it->name)
			return ck_fail_nomem(err, "a name", strlen(it->key));
	}
	return 0;
}

int ck_dcp_names_find(struct dcp *d, struct ckpt_err *err)
{
	struct ck_map names = CK_MAP_INIT;
	struct boxes all = { .n = 0 };
	const struct box *best;
	int rc = find_optimizer(d, err);

	if (!rc)
		rc = name_states(d, err);
	if (!rc)
		rc = names_of_states(d, &names, err);
	if (!rc)
		rc = collect(d, &names, &all, err);
	best = best_of(&all);
	if (!rc && best) {
		d->box = best->name;
		tell_others(d, &all, best);
		rc = name_model(d, err);
	}
	ck_map_release(&names);
	ck_free(all.box);
	return rc;
}
