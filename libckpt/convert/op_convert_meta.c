/*
 * op_convert_meta.c -- __metadata__ of what `convert` writes: what loaders want, second names
 * of tensors, and where it came from.  Nothing depends on the time or the machine.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/convert/op_convert.h"
#include "libckpt/json/ck_json.h"

struct making {
	struct ck_cv *cv;
	struct ck_cv_set *set;
	struct ck_map keys;
};

static bool is_utf8(const char *s)
{
	return ck_utf8_valid(s, strlen(s), NULL);
}

/* The first mention of a key stays.  What is no text cannot be written and is left out. */
static int add(struct making *m, const char *key, const char *value, struct ckpt_err *err)
{
	struct ck_cv_set *set = m->set;
	int rc;

	if (!value || !value[0] || !is_utf8(key) || !is_utf8(value))
		return 0;
	rc = ck_map_add(&m->keys, key, strlen(key), 0, NULL, err);
	if (rc)
		return rc < 0 ? rc : 0;
	rc = ck_grow(&set->meta, &set->meta_cap, set->nmeta + 1, sizeof(*set->meta), err);
	if (!rc)
		set->meta[set->nmeta++] = (struct ck_fact){ .key = key, .value = value };
	return rc;
}

static int add_number(struct making *m, const char *key, int64_t value, struct ckpt_err *err)
{
	const char *text = ck_arena_printf(&m->cv->arena, "%" PRId64, value);

	return text ? add(m, key, text, err) : ck_fail_nomem(err, "metadata", 0);
}

static int add_source(struct making *m, struct ckpt_err *err)
{
	const struct ck_index *ix = &m->cv->ck->ix;
	char hash[33];
	const char *text;
	int rc;

	ck_hash128_print(m->cv->fingerprint, hash);
	text = ck_arena_strdup(&m->cv->arena, hash);
	if (!text)
		return ck_fail_nomem(err, "metadata", sizeof(hash));
	rc = add(m, "zckpt.source.fingerprint", text, err);
	if (!rc)
		rc = add(m, "zckpt.source.format", ix->format, err);
	if (!rc)
		rc = add(m, "zckpt.source.writer", ix->writer, err);
	if (!rc)
		rc = add(m, "zckpt.tag", ix->tag, err);
	if (!rc && ix->stage >= 0)
		rc = add_number(m, "zckpt.stage", ix->stage, err);
	if (!rc && ix->world)
		rc = add_number(m, "zckpt.world", ix->world, err);
	if (!rc && ix->step >= 0)
		rc = add_number(m, "zckpt.global_step", ix->step, err);
	return rc;
}

static int add_aliases(struct making *m, struct ckpt_err *err)
{
	const struct ck_cv *cv = m->cv;
	uint8_t *here = ck_zalloc(cv->ck->ix.ntensors);
	int rc = here ? 0 : ck_fail_nomem(err, "metadata", cv->ck->ix.ntensors);

	for (uint64_t i = 0; !rc && i < m->set->nitems; i++)
		here[m->set->item[i].tensor] = 1;
	for (uint64_t i = 0; !rc && i < cv->sel.naliases; i++)
		if (here[cv->sel.alias[i].tensor])
			rc = add(m, cv->sel.alias[i].name, cv->sel.alias[i].kept, err);
	ck_free(here);
	return rc;
}

/* Hyper-parameters and counters.  A source's own metadata is about another file. */
static int add_facts(struct making *m, struct ckpt_err *err)
{
	static const char other[] = "metadata.";
	const struct ck_index *ix = &m->cv->ck->ix;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < ix->nfacts; i++) {
		const char *key;

		if (!strncmp(ix->fact[i].key, other, sizeof(other) - 1))
			continue;
		key = ck_arena_printf(&m->cv->arena, "zckpt.%s", ix->fact[i].key);
		rc = key ? add(m, key, ix->fact[i].value, err) :
			   ck_fail_nomem(err, "metadata", 0);
	}
	return rc;
}

static int by_key(const void *a, const void *b)
{
	const struct ck_fact *x = a, *y = b;

	return strcmp(x->key, y->key);
}

int ck_cv_make_meta(struct ck_cv *cv, struct ck_cv_set *set, struct ckpt_err *err)
{
	struct making m = { .cv = cv, .set = set, .keys = CK_MAP_INIT };
	int rc = add(&m, "format", "pt", err);

	if (!rc)
		rc = add(&m, "zckpt.version", CKPT_VERSION_STRING, err);
	if (!rc)
		rc = add_source(&m, err);
	if (!rc)
		rc = add_aliases(&m, err);
	if (!rc && cv->opts->states)
		rc = add_facts(&m, err);
	if (!rc)
		qsort(set->meta, set->nmeta, sizeof(*set->meta), by_key);
	ck_map_release(&m.keys);
	return rc;
}
