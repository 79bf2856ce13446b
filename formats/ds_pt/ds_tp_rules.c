/* ds_tp_rules.c -- see ds_tp_rules.h: patterns out of values, and which of them a name matches. */
#include "formats/ds_pt/ds_tp_rules.h"

#include <inttypes.h>
#include <string.h>

#include "formats/ds_pt/ds_regex.h"
#include "formats/ds_pt/ds_tp_rules_priv.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_tree.h"
#include "libckpt/json/ck_json_val.h"
#include "libckpt/tensor/ck_index.h"

#define MAX_FILE ((uint64_t)64 << 20)
#define MAX_RULES 4000000u

static const struct {
	const char *key;
	enum ds_tp_kind kind;
} lists[] = {
	{ "tp_replicated_parameter_patterns", DS_TP_REPLICATED },
	{ "parameter_to_average_patterns", DS_TP_AVERAGE },
	{ "parameter_with_2_sub_params_cat_dim_0", DS_TP_TWO_PARTS },
	{ "parameter_with_sub_params", DS_TP_PARTS },
	{ "parameter_with_row_parallelism_patterns", DS_TP_ROW },
	{ "vocabulary_parameter_patterns", DS_TP_VOCABULARY },
};

/* Keys that say nothing about the cut. */
static const char *const others[] = {
	"universal_checkpoint_version", "original_vocab_size", "padded_vocab_size",
	"pipeline_replicated_parameter_patterns", "sub_param_shard_widths", "affine_map",
	"autotp_unsupported_parameter_patterns",
};

static int no_list(const struct ds_tp_rules *rules, const char *key, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_CORRUPT, rules->where, CKPT_NO_OFFSET,
		       "NAMES_WRONG: '%s' is not a list of patterns", key);
}

static int grow(struct ds_tp_rules *rules, struct ds_tp_list *list, uint64_t more,
		struct ckpt_err *err)
{
	struct ds_tp_rule *rule;

	if (more > MAX_RULES || list->n + more > MAX_RULES)
		return ck_fail(err, CKPT_E_LIMIT, rules->where, CKPT_NO_OFFSET,
			       "more than %u patterns", MAX_RULES);
	rule = ck_arena_zalloc(rules->arena, (list->n + more + 1) * sizeof(*rule));
	if (!rule)
		return ck_fail_nomem(err, "patterns", more);
	if (list->n)
		memcpy(rule, list->rule, list->n * sizeof(*rule));
	list->rule = rule;
	return 0;
}

static int add_rule(struct ds_tp_rules *rules, struct ds_tp_list *list,
		    const struct ds_tp_rule *one, struct ckpt_err *err)
{
	struct ds_tp_rule *rule = &list->rule[list->n];
	const char *literal;
	uint64_t first;
	int rc;

	*rule = *one;
	rule->next = CK_NONE;
	rc = ck_ds_regex_make(rules->arena, rule->pattern, rules->where, &rule->re, err);
	if (rc)
		return rc;
	literal = ck_ds_regex_literal(rule->re);
	if (literal) {
		rc = ck_map_add(&list->literal, literal, strlen(literal), list->n, &first, err);
		if (rc < 0)
			return rc;
		while (rc == 1 && list->rule[first].next != CK_NONE)
			first = list->rule[first].next;
		if (rc == 1)
			list->rule[first].next = list->n;
	}
	list->n++;
	return 0;
}

/* A list of patterns; 'parts' as in the rule. */
static int add_patterns(struct ds_tp_rules *rules, const char *key, enum ds_tp_kind kind,
			const struct ck_val *v, const struct ck_val *parts, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;
	int rc;

	if (!ck_val_seq(v, &item, &n))
		return no_list(rules, key, err);
	rc = grow(rules, &rules->list, n, err);
	for (uint64_t i = 0; !rc && i < n; i++) {
		const struct ds_tp_rule one = {
			.kind = kind, .pattern = ck_val_str(item[i]), .parts = parts,
		};

		rc = one.pattern ? add_rule(rules, &rules->list, &one, err) :
				   no_list(rules, key, err);
	}
	return rc;
}

/* A list of dictionaries {patterns, shape, partition_dim}. */
static int add_parts(struct ds_tp_rules *rules, const char *key, const struct ck_val *v,
		     struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;
	int rc = 0;

	if (!ck_val_seq(v, &item, &n))
		return no_list(rules, key, err);
	for (uint64_t i = 0; !rc && i < n; i++)
		rc = ck_val_get(item[i], "patterns") ?
		     add_patterns(rules, key, DS_TP_PARTS, ck_val_get(item[i], "patterns"), item[i],
				  err) :
		     ck_fail(err, CKPT_E_CORRUPT, rules->where, CKPT_NO_OFFSET,
			     "NAMES_WRONG: entry %" PRIu64 " of '%s' has no list 'patterns'", i,
			     key);
	return rc;
}

/* A dictionary of pattern -> value. */
static int add_pairs(struct ds_tp_rules *rules, struct ds_tp_list *list, const struct ck_val *v,
		     struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;
	int rc;

	if (!ck_val_pairs(v, &item, &n))
		return 0;
	rc = grow(rules, list, n, err);
	for (uint64_t i = 0; !rc && i < n; i++) {
		const struct ds_tp_rule one = {
			.pattern = ck_val_str(item[2 * i]), .value = item[2 * i + 1],
		};

		if (one.pattern)
			rc = add_rule(rules, list, &one, err);
	}
	return rc;
}

/* What is no dictionary would be read as an empty one. */
static int check_dicts(const struct ds_tp_rules *rules, const struct ck_val *info,
		       struct ckpt_err *err)
{
	static const char *const keys[] = {
		"sub_param_shard_widths", "affine_map", "autotp_unsupported_parameter_patterns",
	};
	const struct ck_val *version = ck_val_get(info, "universal_checkpoint_version");
	struct ck_val *const *item;
	double number;
	uint64_t n;

	for (size_t i = 0; i < CK_ARRAY_LEN(keys); i++) {
		const struct ck_val *v = ck_val_get(info, keys[i]);

		if (v && !ck_val_is_none(v) && !ck_val_pairs(v, &item, &n))
			return ck_fail(err, CKPT_E_CORRUPT, rules->where, CKPT_NO_OFFSET,
				       "NAMES_WRONG: '%s' is not a dictionary (in JSON an object)",
				       keys[i]);
	}
	if (version && !ck_val_is_none(version) && !ck_val_num(version, &number))
		return ck_fail(err, CKPT_E_CORRUPT, rules->where, CKPT_NO_OFFSET,
			       "NAMES_WRONG: 'universal_checkpoint_version' is not a number");
	return 0;
}

static int read_affine(struct ds_tp_rules *rules, const struct ck_val *map, struct ckpt_err *err)
{
	double version = 1;

	if (!map || ck_val_is_none(map))
		return 0;
	if (ck_val_num(ck_val_get(map, "version"), &version) && version > 1)
		return ck_fail(err, CKPT_E_LAYOUT, rules->where, CKPT_NO_OFFSET,
			       "LAYOUT_UNSUPPORTED: affine_map has version %g; zckpt reads version "
			       "1", version);
	return add_pairs(rules, &rules->affine, ck_val_get(map, "params"), err);
}

int ck_ds_tp_rules_read(struct ds_tp_rules *rules, const struct ck_val *info,
			struct ckpt_err *err)
{
	int rc = check_dicts(rules, info, err);

	for (size_t i = 0; !rc && i < CK_ARRAY_LEN(lists); i++) {
		const struct ck_val *v = ck_val_get(info, lists[i].key);

		if (!v || ck_val_is_none(v))
			continue;
		rc = lists[i].kind == DS_TP_PARTS ? add_parts(rules, lists[i].key, v, err) :
		     add_patterns(rules, lists[i].key, lists[i].kind, v, NULL, err);
	}
	rules->widths = ck_val_get(info, "sub_param_shard_widths");
	if (!ck_val_num(ck_val_get(info, "universal_checkpoint_version"), &rules->version))
		rules->version = rules->widths ? 0.4 : 0.2;
	if (!rc)
		rc = read_affine(rules, ck_val_get(info, "affine_map"), err);
	return rc ? rc : add_pairs(rules, &rules->unsupported,
				   ck_val_get(info, "autotp_unsupported_parameter_patterns"), err);
}

/* A key that is misspelt would be a rule that is missing. */
static int check_keys(const struct ds_tp_rules *rules, const struct ck_val *info,
		      struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_pairs(info, &item, &n))
		return ck_fail(err, CKPT_E_CORRUPT, rules->where, CKPT_NO_OFFSET,
			       "the rules must be one JSON object with the keys of "
			       "universal_checkpoint_info");
	for (uint64_t i = 0; i < n; i++) {
		bool known = false;

		for (size_t k = 0; k < CK_ARRAY_LEN(lists); k++)
			known |= ck_val_is_str(item[2 * i], lists[k].key);
		for (size_t k = 0; k < CK_ARRAY_LEN(others); k++)
			known |= ck_val_is_str(item[2 * i], others[k]);
		if (!known)
			return ck_fail(err, CKPT_E_MISMATCH, rules->where, CKPT_NO_OFFSET,
				       "'%.60s' is no key of universal_checkpoint_info; "
				       "tp_replicated_parameter_patterns is one",
				       ck_val_str(item[2 * i]) ? ck_val_str(item[2 * i]) : "?");
	}
	return 0;
}

int ck_ds_tp_rules_open(struct ds_tp_rules *rules, const char *path,
			const struct ckpt_limits *limits, struct ckpt_err *err)
{
	struct ck_json doc = CK_JSON_INIT;
	const struct ck_val *info = NULL;
	char *text = NULL;
	uint64_t len;
	int rc = ck_file_read(path, MAX_FILE, &text, &len, err);

	rules->where = path;
	rules->given = true;
	if (!rc)
		rc = ck_json_parse(&doc, text, len, limits, 0, path, err);
	if (!rc) {
		info = ck_json_val(&doc, 0, rules->arena);
		rc = info ? check_keys(rules, info, err) : ck_fail_nomem(err, "rules", len);
	}
	if (!rc)
		rc = ck_ds_tp_rules_read(rules, info, err);
	ck_json_release(&doc);
	ck_free(text);
	return rc;
}

void ck_ds_tp_rules_release(struct ds_tp_rules *rules)
{
	ck_map_release(&rules->list.literal);
	ck_map_release(&rules->affine.literal);
	ck_map_release(&rules->unsupported.literal);
}

const char *ck_ds_tp_key(enum ds_tp_kind kind)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(lists); i++)
		if (lists[i].kind == kind)
			return lists[i].key;
	return "no key";
}

/* Does the map of plain names say all of this rule and this name? */
static bool is_literal(const struct ds_tp_rule *rule, const char *name)
{
	const size_t n = strlen(name);

	return ck_ds_regex_literal(rule->re) && (!n || name[n - 1] != '\n');
}

bool ck_ds_tp_knows(const struct ds_tp_list *list, const char *name, const char **pattern_out)
{
	for (uint32_t i = 0; i < list->n; i++)
		if (!ck_ds_regex_knows(list->rule[i].re, name)) {
			*pattern_out = list->rule[i].pattern;
			return false;
		}
	return true;
}

struct ds_tp_rule *ck_ds_tp_find(const struct ds_tp_list *list, const char *name,
				 struct ds_tp_rule **other_out)
{
	struct ds_tp_rule *best = NULL;
	uint64_t at;
	bool more = ck_map_find(&list->literal, name, strlen(name), &at);

	if (other_out)
		*other_out = NULL;
	for (; more; more = at != CK_NONE) {
		if (!best)
			best = &list->rule[at];
		else if (other_out && list->rule[at].kind != best->kind)
			*other_out = &list->rule[at];
		at = list->rule[at].next;
	}
	for (uint32_t i = 0; i < list->n; i++) {
		struct ds_tp_rule *rule = &list->rule[i];

		if (is_literal(rule, name) || !ck_ds_regex_match(rule->re, name))
			continue;
		if (best && other_out && rule->kind != best->kind)
			*other_out = rule < best ? best : rule;
		if (!best || rule < best)
			best = rule;
	}
	return best;
}

bool ck_ds_tp_is_vocabulary(const struct ds_tp_rules *rules, const char *name)
{
	const struct ds_tp_list *list = &rules->list;
	uint64_t at;
	bool more = ck_map_find(&list->literal, name, strlen(name), &at);

	for (; more; more = at != CK_NONE) {
		if (list->rule[at].kind == DS_TP_VOCABULARY)
			return true;
		at = list->rule[at].next;
	}
	for (uint32_t i = 0; i < list->n; i++) {
		const struct ds_tp_rule *rule = &list->rule[i];

		if (rule->kind == DS_TP_VOCABULARY && !is_literal(rule, name) &&
		    ck_ds_regex_match(rule->re, name))
			return true;
	}
	return false;
}

bool ck_ds_tp_is_affine(const struct ds_tp_rules *rules, const char *name)
{
	return ck_ds_tp_find(&rules->affine, name, NULL) != NULL;
}

void ck_ds_tp_rules_check(const struct ds_tp_rules *rules, struct ck_findings *f)
{
	for (uint32_t i = 0; rules->given && i < rules->list.n; i++)
		if (!rules->list.rule[i].used)
			ck_findings_add(f, CK_FINDING_PATTERN_UNUSED, rules->where,
					"pattern '%.100s' matches no tensor that is on several "
					"tensor ranks", rules->list.rule[i].pattern);
}
