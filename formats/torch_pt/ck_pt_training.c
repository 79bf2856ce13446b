/*
 * ck_pt_training.c -- see ck_pt_training.h.
 *
 * Which entries of the root are the model, its optimizer and its scheduler.
 */
#include "formats/torch_pt/ck_pt_training.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/torch_pt/ck_pt_priv.h"
#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"

#define LISTED 6	/* entries that a sentence names */

static const char *const model_keys[] = {
	"model_state_dict", "state_dict", "model", "module", NULL,
};
static const char *const optimizer_keys[] = {
	"optimizer", "optimizer_state_dict", "optimizer_states", "optim", "optim_state_dict", NULL,
};
static const char *const scheduler_keys[] = {
	"lr_scheduler", "scheduler", "lr_scheduler_state_dict", "scheduler_state_dict",
	"lr_schedulers", NULL,
};

static bool is_one_of(const char *key, const char *const *list)
{
	while (key && *list && strcmp(key, *list))
		list++;
	return key && *list;
}

/* ---------------------------------------------------------------- what is what */

static bool is_plain(const struct ck_val *v)
{
	return v->kind < CK_VAL_TUPLE;
}

/* Names and tensors, and what modules keep beside them (_extra_state); no further level. */
static bool is_state_dict(const struct ck_val *v)
{
	struct ck_val *const *item;
	uint64_t n, tensors = 0;

	if (!v || ck_pt_call_of(v) != CK_PT_NONE || !ck_val_pairs(v, &item, &n))
		return false;
	for (uint64_t i = 0; i < n; i++) {
		const char *key = ck_val_str(item[2 * i]);
		const struct ck_val *value = item[2 * i + 1];

		if (!key)
			return false;
		if (ck_pt_call_of(value) != CK_PT_NONE)
			tensors++;
		else if (!is_plain(value) && !ck_ends_with(key, "_extra_state"))
			return false;
	}
	return tensors > 0;
}

/*
 * A search for tensors.  Values may be shared, and a few levels of shared lists have more paths
 * than can be walked: each value is entered once.
 */
struct search {
	uint32_t *entered;	/* by serial: the number of the last search that was there */
	uint32_t number;
};

static int search_init(struct search *s, const struct ck_pt *pt, struct ckpt_err *err)
{
	*s = (struct search){
		.entered = ck_zalloc(((uint64_t)pt->doc.nodes + 1) * sizeof(*s->entered)),
	};
	return s->entered ? 0 : ck_fail_nomem(err, "marks of values", pt->doc.nodes);
}

/* Losses and random states do not count: they are integers, bytes or of no dimension. */
static bool is_counted(const struct ck_val *v)
{
	const struct ck_tensor_ref *t = ck_val_tensor(v);

	return !t || (t->ndim && ck_dtype_is_castable(t->dtype) && t->dtype != CKPT_U8 &&
		      t->dtype != CKPT_I64);
}

static uint64_t count_below(struct search *s, const struct ck_val *v, bool all)
{
	struct ck_val *const *item;
	uint64_t n, sum = 0;

	if (!v || s->entered[v->serial] == s->number)
		return 0;
	s->entered[v->serial] = s->number;
	if (ck_pt_call_of(v) != CK_PT_NONE)
		return all || is_counted(v);
	if (ck_val_pairs(v, &item, &n)) {
		for (uint64_t i = 0; i < n; i++)
			sum += count_below(s, item[2 * i + 1], all);
	} else if (ck_val_seq(v, &item, &n)) {
		for (uint64_t i = 0; i < n; i++)
			sum += count_below(s, item[i], all);
	}
	return sum;
}

/* Floating tensors of one dimension at least. */
static uint64_t count_tensors(struct search *s, const struct ck_val *v)
{
	s->number++;
	return count_below(s, v, false);
}

static bool holds_tensors(struct search *s, const struct ck_val *v)
{
	s->number++;
	return count_below(s, v, true) != 0;
}

/* ---------------------------------------------------------------- the choice */

/* One step down: a key of a dict, or a number of a list. */
static struct ck_val *step_into(const struct ck_val *v, const char *key, size_t len)
{
	char name[256];
	uint64_t i = 0;

	if (!len || len >= sizeof(name))
		return NULL;
	memcpy(name, key, len);
	name[len] = 0;
	if (ck_val_get(v, name))
		return ck_val_get(v, name);
	for (size_t k = 0; k < len; k++) {
		if (name[k] < '0' || name[k] > '9' || i > UINT32_MAX)
			return NULL;
		i = 10 * i + (uint64_t)(name[k] - '0');
	}
	return ck_val_at(v, i);
}

/* The whole text as one key, or cut at the first dot that leads somewhere. */
static struct ck_val *find_path(struct ck_val *v, const char *path, unsigned depth)
{
	struct ck_val *found = step_into(v, path, strlen(path));

	for (const char *dot = strchr(path, '.'); !found && dot && depth;
	     dot = strchr(dot + 1, '.')) {
		struct ck_val *below = step_into(v, path, (size_t)(dot - path));

		if (below)
			found = find_path(below, dot + 1, depth - 1);
	}
	return found;
}

/* "model, optimizer, epoch": the keys of the root, for a message. */
static void list_keys(const struct ck_val *root, char *out, size_t size)
{
	struct ck_val *const *item;
	uint64_t n, listed = 0;
	size_t at = 0;

	out[0] = 0;
	if (!ck_val_pairs(root, &item, &n))
		return;
	for (uint64_t i = 0; i < n && at < size; i++) {
		const char *key = ck_val_str(item[2 * i]);

		if (!key || is_plain(item[2 * i + 1]) || listed > LISTED)
			continue;
		at += (size_t)snprintf(out + at, size - at, "%s%.60s", listed ? ", " : "",
				       listed == LISTED ? "..." : key);
		listed++;
	}
}

static int take_stated(const struct ck_pt *pt, const char *subtree, struct ck_pt_training *out,
		       struct ckpt_err *err)
{
	char keys[512];

	out->model = find_path(pt->doc.root, subtree, 8);
	out->key = subtree;
	if (out->model)
		return 0;
	list_keys(pt->doc.root, keys, sizeof(keys));
	return ck_fail(err, CKPT_E_USAGE, ck_src_name(pt->src), CKPT_NO_OFFSET,
		       "it has no entry '%.100s' (entries: %s)", subtree,
		       keys[0] ? keys : "none");
}

/* Entries of the root that are state dicts: of known names, and in all. */
struct entries {
	struct ck_val *known, *ema;
	const char *known_key, *ema_key;
	uint64_t nknown, nall;
};

static void find_entries(const struct ck_val *root, struct entries *e)
{
	struct ck_val *const *item;
	uint64_t n;

	memset(e, 0, sizeof(*e));
	if (!ck_val_pairs(root, &item, &n) || is_state_dict(root))
		return;
	for (uint64_t i = 0; i < n; i++) {
		const char *key = ck_val_str(item[2 * i]);
		struct ck_val *v = item[2 * i + 1];

		if (!key || !is_state_dict(v))
			continue;
		e->nall++;
		if (is_one_of(key, model_keys)) {
			e->nknown += v != e->known;
			e->known = v;
			e->known_key = key;
		} else if (!strcmp(key, "ema")) {
			e->ema = v;
			e->ema_key = key;
		}
	}
}

/* What the file has beside the model that somebody could miss. */
static void tell_left(const struct ck_pt *pt, const struct ck_pt_training *t,
		      struct search *search, struct ck_findings *f)
{
	struct ck_val *const *item;
	uint64_t n;

	if (!f || !ck_val_pairs(pt->doc.root, &item, &n))
		return;
	for (uint64_t i = 0; i < n; i++) {
		const char *key = ck_val_str(item[2 * i]);
		const struct ck_val *v = item[2 * i + 1];
		const uint64_t tensors = v == t->model || v == t->optimizer ? 0 :
					 count_tensors(search, v);

		if (tensors && (!key || !is_one_of(key, optimizer_keys)))
			ck_findings_add(f, CK_FINDING_SUBTREE_CHOICE, ck_src_name(pt->src),
					"the model is the entry '%s' of this training file; the "
					"%" PRIu64 " tensor%s of the entry '%.100s' %s left out "
					"(--subtree takes another entry)", t->key, tensors,
					tensors == 1 ? "" : "s", key ? key : "?",
					tensors == 1 ? "is" : "are");
	}
}

static const struct ck_val *find_optimizer(const struct ck_val *root)
{
	for (size_t i = 0; optimizer_keys[i]; i++) {
		const struct ck_val *v = ck_val_get(root, optimizer_keys[i]);

		if (v && ck_val_at(v, 0) && !ck_val_at(v, 1))
			v = ck_val_at(v, 0);	/* Lightning: a list, of one as a rule */
		if (v)
			return v;
	}
	return NULL;
}

/* The entry of a model's name that holds no tensors, beside an optimizer's states; or NULL. */
static const char *find_empty_model(const struct ck_val *root, struct search *search)
{
	struct ck_val *const *item;
	const char *empty = NULL;
	uint64_t n;

	for (size_t i = 0; model_keys[i]; i++) {
		const struct ck_val *v = ck_val_get(root, model_keys[i]);

		if (!v)
			continue;
		if (!ck_val_pairs(v, &item, &n) || holds_tensors(search, v))
			return NULL;
		empty = empty ? empty : model_keys[i];
	}
	return empty && holds_tensors(search, find_optimizer(root)) ? empty : NULL;
}

/* Moments are no weights: what is left of a file without its model is nothing to convert. */
static void report_empty_model(const struct ck_pt *pt, const char *key, struct ck_findings *f)
{
	char keys[512];

	list_keys(pt->doc.root, keys, sizeof(keys));
	ck_findings_add(f, CK_FINDING_PLACEHOLDERS_ONLY, ck_src_name(pt->src),
			"the model, the entry '%s' of this training file, holds no tensors, "
			"and optimizer states are not weights: there is nothing to convert "
			"(--subtree KEY takes another entry; entries: %s)", key, keys);
}

/* Without a key from the user. */
static void choose(const struct ck_pt *pt, struct search *search, struct ck_findings *f,
		   struct ck_pt_training *t)
{
	const char *empty;
	struct entries e;
	char keys[512];

	find_entries(pt->doc.root, &e);
	empty = e.nall ? NULL : find_empty_model(pt->doc.root, search);
	if (empty && f) {
		report_empty_model(pt, empty, f);
	} else if (e.nknown == 1 || (!e.nknown && e.ema && e.nall == 1)) {
		t->model = e.known ? e.known : e.ema;
		t->key = e.known ? e.known_key : e.ema_key;
		t->optimizer = e.known ? find_optimizer(pt->doc.root) : NULL;
		tell_left(pt, t, search, f);
	} else if (e.nall && f) {
		list_keys(pt->doc.root, keys, sizeof(keys));
		ck_findings_add(f, CK_FINDING_SUBTREE_CHOICE, ck_src_name(pt->src),
				"%" PRIu64 " of its entries %s; the names here are paths through "
				"all of them (--subtree KEY takes one; entries: %s)", e.nall,
				e.nall == 1 ? "is a state dict" : "are state dicts", keys);
	}
}

int ck_pt_training_choose(const struct ck_pt *pt, const char *subtree, struct ck_findings *f,
			  struct ck_pt_training *out, struct ckpt_err *err)
{
	struct ck_pt_training t = { .model = pt->doc.root };
	struct search search;
	int rc;

	if (subtree) {
		rc = take_stated(pt, subtree, &t, err);
		if (!rc && is_one_of(subtree, model_keys))
			t.optimizer = find_optimizer(pt->doc.root);
	} else {
		rc = search_init(&search, pt, err);
		if (!rc)
			choose(pt, &search, f, &t);
		ck_free(search.entered);
	}
	if (!rc)
		*out = t;
	return rc;
}

/* ---------------------------------------------------------------- optimizers */

bool ck_pt_training_is_optimizer(const struct ck_val *v)
{
	struct ck_val *const *item;
	uint64_t n;

	return ck_val_pairs(ck_val_get(v, "state"), &item, &n) &&
	       ck_val_seq(ck_val_get(v, "param_groups"), &item, &n);
}

int ck_pt_training_has_states(const struct ck_pt *pt, const struct ck_val *optimizer, bool *has_out,
			      struct ckpt_err *err)
{
	struct search search;
	int rc = search_init(&search, pt, err);

	if (!rc)
		*has_out = count_tensors(&search, optimizer) != 0;
	ck_free(search.entered);
	return rc;
}

const struct ck_val *ck_pt_training_scheduler(const struct ck_val *root)
{
	for (size_t i = 0; scheduler_keys[i]; i++) {
		const struct ck_val *v = ck_val_get(root, scheduler_keys[i]);

		if (v && ck_val_at(v, 0) && !ck_val_at(v, 1))
			v = ck_val_at(v, 0);	/* Lightning: a list, of one as a rule */
		if (v)
			return v;
	}
	return NULL;
}

bool ck_pt_training_is_client(const struct ck_pt_training *t, const char *key,
			      const struct ck_val *v)
{
	return key && v != t->model && !is_one_of(key, model_keys) &&
	       !is_one_of(key, optimizer_keys) && !is_one_of(key, scheduler_keys);
}
