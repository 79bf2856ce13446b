/*
 * cli_verdict.c -- see cli_verdict.h.
 *
 * Errors of one name are one cause.  The table is in order of rank: a file that is missing explains
 * values that disagree, so that the first name that occurs is the one to say.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli_verdict.h"
#include "cli_view.h"

#define RANGES 6	/* of ranks that are shown */

static const char missing[] = "NOT complete", damaged[] = "DAMAGED", mixed[] = "NOT consistent";

/* 'one': the cause of one finding, %s for the file's name; 'many': of several, %s for how many. */
static const struct cause {
	const char *id, *lead, *one, *many;
} causes[] = {
	{ "LATEST_LIES", missing, "'%s' names a step that is missing", NULL },
	{ "UNFINISHED", missing, "a save of the Trainer that did not finish", NULL },
	{ "NO_PERMISSION", "NOT readable", "no permission to read %s",
	  "no permission to read %s files" },
	{ "PLACEHOLDERS_ONLY", missing, "the weights are empty placeholders of ZeRO-3", NULL },
	{ "FILE_DAMAGED", damaged, "%s is cut short or damaged",
	  "%s files are cut short or damaged" },
	{ "STATE_FILE_MISSING", missing, "%s is missing", "%s files are missing" },
	{ "MANIFEST_FILE_MISSING", missing, "%s is missing", "%s files are missing" },
	{ "CRC_SUM_WRONG", damaged, "the bytes of %s changed", "the bytes of %s files changed" },
	{ "CRC_WRONG", damaged, "the bytes of %s changed", "the bytes of %s files changed" },
	{ "HEADER_SUM_WRONG", damaged, "the header of %s changed",
	  "the headers of %s files changed" },
	{ "SUM_WRONG", damaged, "the bytes of %s changed", "the bytes of %s tensors changed" },
	{ "MANIFEST_HASH_WRONG", damaged, "the bytes of %s changed",
	  "bytes changed in %s places" },
	{ "MANIFEST_SIZE_WRONG", damaged, "%s has another size than the manifest says",
	  "%s files have other sizes than the manifest says" },
	{ "STEP_MIXED", mixed, "files of different steps are in one folder", NULL },
	{ "RANK_FILE_EXTRA", mixed, "%s is of a rank that the step does not have",
	  "%s files are of ranks that the step does not have" },
	{ "RANK_FILE_SWAPPED", mixed, "%s holds another rank's shard",
	  "%s files hold other ranks' shards" },
	{ "RANKS_DISAGREE", mixed, "the ranks' files contradict each other", NULL },
	{ "NAMES_WRONG", mixed, "names and data of %s contradict each other",
	  "names and data of %s files contradict each other" },
	{ "LENGTH_WRONG", mixed, "a partition in %s has the wrong length",
	  "partitions in %s files have the wrong length" },
	{ "OVERLAY_DIFFERS", mixed, "%s differs between the folders",
	  "%s files differ between the folders" },
	{ "TENSOR_DUPLICATE", mixed, "two files hold %s", "two files hold the same tensors (%s)" },
	{ "MASTER_WEIGHT_MISMATCH", mixed, "the fp32 copy and the weight of %s differ",
	  "the fp32 copies and the weights of %s tensors differ" },
	{ "REPLICA_DIFFERS", mixed, "two copies of %s differ", "copies of %s tensors differ" },
	{ "MANIFEST_DAMAGED", damaged, "the manifest is damaged", NULL },
	{ NULL, "NOT usable", NULL, NULL },
};

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

/* ---------------------------------------------------------------- ranks */

struct ranks_set {
	unsigned long *rank;
	size_t n;
};

/* The rank that a shard's name tells, or -1. */
static long rank_of(const char *where)
{
	const char *name = base_of(where), *at = strstr(name, "zero_pp_rank_");

	if (at)
		at += strlen("zero_pp_rank_");
	else if (!strncmp(name, "rank-", 5))
		at = name + 5;
	return at && *at >= '0' && *at <= '9' ? strtol(at, NULL, 10) : -1;
}

static int by_number(const void *a, const void *b)
{
	const unsigned long x = *(const unsigned long *)a, y = *(const unsigned long *)b;

	return x < y ? -1 : x > y;
}

/* "ranks 0-2, 5"; NULL if there are none.  Sorts the set. */
static char *ranks_text(struct ranks_set *set)
{
	char *text = NULL, *longer;
	size_t shown = 0, more = 0;

	if (set->n)
		qsort(set->rank, set->n, sizeof(*set->rank), by_number);
	for (size_t i = 0, end; i < set->n; i = end) {
		for (end = i + 1; end < set->n && set->rank[end] <= set->rank[end - 1] + 1;)
			end++;
		if (shown++ >= RANGES) {
			more += set->rank[end - 1] - set->rank[i] + 1;
			continue;
		}
		longer = cli_format("%s%s%lu", text ? text : "", text ? ", " : "", set->rank[i]);
		cli_free(text);
		text = longer;
		if (set->rank[end - 1] == set->rank[i])
			continue;
		longer = cli_format("%s-%lu", text, set->rank[end - 1]);
		cli_free(text);
		text = longer;
	}
	if (!text)
		return NULL;
	longer = cli_format("rank%s %s", strpbrk(text, ",-") ? "s" : "", text);
	cli_free(text);
	if (!more)
		return longer;
	text = cli_format("%s and %zu more", longer, more);
	cli_free(longer);
	return text;
}

/* ---------------------------------------------------------------- findings */

struct errors {
	const struct ckpt *ck;
	const struct ckpt_finding *lone;
};

static int get(const struct errors *e, uint64_t i, struct ckpt_finding *out)
{
	if (e->ck)
		return !ckpt_finding_get(e->ck, i, out, NULL);
	if (e->lone && !i)
		*out = *e->lone;
	return e->lone && !i;
}

/* Numbers after pp_rank_ are of one tensor rank and stage, and no ranks of the run. */
static int is_positioned(const struct errors *e)
{
	const char *layout = e->ck ? view_layout(e->ck) : NULL;

	return layout && (strstr(layout, "tp ") || strstr(layout, "pp "));
}

/* Errors of that name, at how many places, and the first of them; with 'set' their ranks. */
static uint64_t count(const struct errors *e, const char *id, struct ckpt_finding *first_out,
		      struct ranks_set *set)
{
	struct ckpt_finding f, last = { 0 };
	uint64_t n = 0;

	for (uint64_t i = 0; get(e, i, &f); i++) {
		if (f.severity != CKPT_ERROR || strcmp(f.id, id))
			continue;
		if (!n)
			*first_out = f;
		n += !n || strcmp(last.where, f.where);
		last = f;
		if (set && !is_positioned(e) && rank_of(f.where) >= 0)
			set->rank[set->n++] = (unsigned long)rank_of(f.where);
	}
	return n;
}

static struct ranks_set set_for(const struct errors *e)
{
	struct ckpt_finding f;
	uint64_t n = 0;

	while (get(e, n, &f))
		n++;
	return (struct ranks_set){ cli_alloc((2 * n + 1) * sizeof(unsigned long)), 0 };
}

/* Files of ranks, or of the step as a whole. */
static char *missing_files(const struct errors *e)
{
	struct ranks_set shards = set_for(e), models = set_for(e);
	struct ckpt_finding first = { 0 };
	struct ckpt_info info = { 0 };
	const uint64_t nshards = count(e, "RANK_FILE_MISSING", &first, &shards);
	const uint64_t nmodels = count(e, "MODEL_FILE_MISSING", &first, &models);
	char *s = ranks_text(&shards), *m = ranks_text(&models), *of, *text = NULL;

	if (e->ck)
		ckpt_info_get(e->ck, &info);
	of = info.world ? cli_format(" of %" PRIu32, info.world) : cli_strdup("");
	if (s && m && !strcmp(s, m))
		text = cli_format("%s%s missing", s, of);
	else if (s && m)
		text = cli_format("optimizer files of %s, model files of %s missing", s, m);
	else if (s || m)
		text = cli_format("%s files of %s%s missing", s ? "optimizer" : "model",
				  s ? s : m, of);
	else if (nshards + nmodels == 1 && strchr(base_of(first.where), '.'))
		text = cli_format("%s is missing", out_name(base_of(first.where)));
	else if (nshards + nmodels)
		text = cli_format("%s files are missing", nmodels ? "model" : "optimizer");
	cli_free(of);
	cli_free(s);
	cli_free(m);
	cli_free(shards.rank);
	cli_free(models.rank);
	return text;
}

/* The file that names a step is in the text: "'latest' names ..." */
static char *pointer_in(const char *text)
{
	const char *at = strchr(text, '\'');

	return at ? cli_format("%.*s", (int)strcspn(at + 1, "'"), at + 1) : cli_strdup("latest");
}

/* "4 files are damaged (ranks 1-3, 5)"; NULL if there is no such error. */
static char *cause_text(const struct errors *e, const struct cause *cause)
{
	struct ranks_set set = set_for(e);
	struct ckpt_finding first = { 0 };
	const uint64_t n = count(e, cause->id, &first, &set);
	const char *format = n > 1 && cause->many ? cause->many : cause->one;
	const char *what = format == cause->many ? out_count(n) :
			   n && !strcmp(cause->id, "LATEST_LIES") ? pointer_in(first.text) :
			   first.where && first.where[0] ? out_name(base_of(first.where)) :
			   "a file";
	const char *at = strstr(format, "%s");
	char *text = NULL, *ranks;

	if (n) {
		ranks = format == cause->many ? ranks_text(&set) : NULL;
		text = cli_format("%.*s%s%s%s%s%s", at ? (int)(at - format) : 0, format,
				  at ? what : format, at ? at + 2 : "", ranks ? " (" : "",
				  ranks ? ranks : "", ranks ? ")" : "");
		cli_free(ranks);
	}
	cli_free(set.rank);
	return text;
}

/* A name that the table lacks: the finding's own text. */
static char *other_text(const struct errors *e)
{
	struct ckpt_finding f;

	for (uint64_t i = 0; get(e, i, &f); i++)
		if (f.severity == CKPT_ERROR)
			return cli_format("%s%s%s", out_name(base_of(f.where)),
					  f.where[0] ? ": " : "", out_name(f.text));
	return NULL;
}

/* What is there besides may be damaged: that ranks are missing does not explain it. */
static char *missing_and_damaged(const struct errors *e)
{
	struct ranks_set set = set_for(e);
	struct ckpt_finding first = { 0 };
	const uint64_t n = count(e, "FILE_DAMAGED", &first, &set);
	char *text = missing_files(e), *all, *ranks;

	if (text && n) {
		ranks = set.n == n ? ranks_text(&set) : NULL;
		all = ranks ? cli_format("%s; files of %s cut short or damaged", text, ranks) :
		      cli_format("%s; %s file%s cut short or damaged", text, out_count(n),
				 out_plural(n));
		cli_free(ranks);
		cli_free(text);
		text = all;
	}
	cli_free(set.rank);
	return text;
}

static char *errors_text(const struct errors *e, int lead)
{
	const char *word = missing;
	char *text = missing_and_damaged(e), *all;
	const struct cause *c = causes;

	for (; !text && c->id; c++) {
		text = cause_text(e, c);
		word = c->lead;
	}
	if (!text) {
		text = other_text(e);
		word = c->lead;
	}
	if (!text || !lead)
		return text;
	all = cli_format("%s: %s", word, text);
	cli_free(text);
	return all;
}

char *verdict_of(const struct ckpt *ck, const struct ckpt_finding *lone, int lead)
{
	return errors_text(&(const struct errors){ ck, lone }, lead);
}

char *verdict_of_id(const char *id, const char *where, const char *text)
{
	const struct ckpt_finding f = { .id = id, .severity = CKPT_ERROR, .where = where,
					.text = text };

	return verdict_of(NULL, &f, 0);
}
