/* cli_findings.c -- see cli_findings.h. */
#include "cli_findings.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define RANGES_SHOWN 8

/* ---------------------------------------------------------------- files of ranks */

enum rank_kind { NO_RANK, RANK_OPTIM, RANK_MODEL };

struct rank_file {
	enum rank_kind kind;
	uint32_t rank;
	size_t dir;	/* length of the path of its folder */
};

/*
 * "DIR/bf16_zero_pp_rank_4_mp_rank_00_optim_states.pt"; with another number after mp_rank_ 4 is no
 * rank of the run.
 */
static struct rank_file rank_file(const char *path)
{
	static const char mark[] = "zero_pp_rank_", mp[] = "_mp_rank_",
			  optim[] = "_optim_states.pt",
			  model[] = "_model_states.pt";
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *end;
	struct rank_file file = { NO_RANK, 0, slash ? (size_t)(slash - path) : 0 };
	char *digits;

	name = strstr(name, mark);
	if (!name || !isdigit((unsigned char)name[sizeof(mark) - 1]))
		return file;
	file.rank = (uint32_t)strtoul(name + sizeof(mark) - 1, &digits, 10);
	if (!strncmp(digits, mp, strlen(mp)) && strtoul(digits + strlen(mp), NULL, 10))
		return file;
	end = strrchr(digits, '_');
	end = end ? end - strlen("_optim") : digits;
	if (end >= digits && !strcmp(end, optim))
		file.kind = RANK_OPTIM;
	if (end >= digits && !strcmp(end, model))
		file.kind = RANK_MODEL;
	return file;
}

static int by_number(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* "4-7", "0, 3-5, 9"; sorts. */
static char *say_ranks(uint32_t *rank, size_t n)
{
	char *text = cli_strdup("");
	size_t ranges = 0;

	qsort(rank, n, sizeof(*rank), by_number);
	for (size_t i = 0, end; i < n; i = end) {
		char *longer;

		for (end = i + 1; end < n && rank[end] <= rank[end - 1] + 1;)
			end++;
		if (++ranges > RANGES_SHOWN) {
			longer = cli_format("%s, ... %" PRIu32, text, rank[n - 1]);
			end = n;
		} else if (rank[end - 1] == rank[i]) {
			longer = cli_format("%s%s%" PRIu32, text, i ? ", " : "", rank[i]);
		} else {
			longer = cli_format("%s%s%" PRIu32 "-%" PRIu32, text, i ? ", " : "",
					    rank[i], rank[end - 1]);
		}
		cli_free(text);
		text = longer;
	}
	return text;
}

/* "ranks 4-7", "rank 4" */
static char *say_rank_list(uint32_t *rank, size_t n)
{
	char *list = say_ranks(rank, n);
	char *text = cli_format("rank%s %s", strspn(list, "0123456789") == strlen(list) ? "" : "s",
				list);

	cli_free(list);
	return text;
}

/* ---------------------------------------------------------------- folding */

struct fold {
	const struct ckpt_finding *in;
	struct rank_file *file;
	char *done;
	size_t n;
	uint32_t world;
	struct folded *out;
	size_t nout;
};

static int is_missing(const char *id)
{
	return !strcmp(id, "RANK_FILE_MISSING") || !strcmp(id, "MODEL_FILE_MISSING");
}

static int same_folder(const struct fold *fold, size_t a, size_t b)
{
	return fold->file[a].dir == fold->file[b].dir &&
	       !strncmp(fold->in[a].where, fold->in[b].where, fold->file[a].dir);
}

/* Whether two texts are the same but for their numbers. */
static int is_like(const char *a, const char *b)
{
	while (*a && *b) {
		if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
			a += strspn(a, "0123456789");
			b += strspn(b, "0123456789");
		} else if (*a++ != *b++) {
			return 0;
		}
	}
	return *a == *b;
}

static void put(struct fold *fold, size_t first, size_t n, char *where, char *text)
{
	struct folded *line = &fold->out[fold->nout++];

	*line = (struct folded){ .f = fold->in[first], .first = first, .n = n };
	line->f.where = where;
	line->f.text = text;
}

static char *folder_of(const struct fold *fold, size_t i)
{
	return cli_format("%.*s", (int)fold->file[i].dir, fold->in[i].where);
}

/* Those of 'from' and later for which 'fits' holds; all are done then. */
static size_t gather(struct fold *fold, size_t from,
		     int (*fits)(const struct fold *fold, size_t a, size_t b), enum rank_kind kind,
		     uint32_t *rank)
{
	size_t n = 0;

	for (size_t i = from; i < fold->n; i++)
		if (!fold->done[i] && fold->file[i].kind == kind && fits(fold, from, i))
			rank[n++] = fold->file[i].rank;
	return n;
}

static int is_missing_too(const struct fold *fold, size_t a, size_t b)
{
	return is_missing(fold->in[b].id) && fold->in[a].severity == fold->in[b].severity &&
	       same_folder(fold, a, b);
}

static int is_one_text(const struct fold *fold, size_t a, size_t b)
{
	return !strcmp(fold->in[a].id, fold->in[b].id) && same_folder(fold, a, b) &&
	       fold->in[a].severity == fold->in[b].severity &&
	       is_like(fold->in[a].text, fold->in[b].text);
}

static int is_like_elsewhere(const struct fold *fold, size_t a, size_t b)
{
	return !strcmp(fold->in[a].id, fold->in[b].id) &&
	       fold->in[a].severity == fold->in[b].severity &&
	       is_like(fold->in[a].text, fold->in[b].text);
}

static void set_done(struct fold *fold, size_t from,
		     int (*fits)(const struct fold *fold, size_t a, size_t b), int ranks_only)
{
	for (size_t i = fold->n; i-- > from;)
		if ((!ranks_only || fold->file[i].kind != NO_RANK) && fits(fold, from, i))
			fold->done[i] = 1;
}

static void put_missing(struct fold *fold, size_t first, uint32_t *rank, size_t n,
			const char *files, size_t nfindings)
{
	char *ranks = say_ranks(rank, n);
	char *of = fold->world ? cli_format(" of %" PRIu32, fold->world) : cli_strdup("");
	char *text;

	if (strstr(ranks, "..."))
		text = cli_format("%zu%s ranks are missing: %s (%s)", n, of, ranks, files);
	else
		text = cli_format("rank%s %s%s %s missing (%s)", out_plural(n), ranks, of,
				  n == 1 ? "is" : "are", files);
	put(fold, first, nfindings, folder_of(fold, first), text);
	cli_free(of);
	cli_free(ranks);
}

static size_t first_of(const struct fold *fold, size_t from, enum rank_kind kind)
{
	size_t i = from;

	while (fold->file[i].kind != kind || !is_missing_too(fold, from, i))
		i++;
	return i;
}

/* Missing files of ranks: one line, or two if other ranks lack the other kind. */
static void fold_missing(struct fold *fold, size_t first)
{
	uint32_t *optim = cli_alloc(2 * fold->n * sizeof(*optim)), *model = optim + fold->n;
	size_t n = gather(fold, first, is_missing_too, RANK_OPTIM, optim);
	size_t m = gather(fold, first, is_missing_too, RANK_MODEL, model);

	qsort(optim, n, sizeof(*optim), by_number);
	qsort(model, m, sizeof(*model), by_number);
	if (n == m && !memcmp(optim, model, n * sizeof(*optim))) {
		put_missing(fold, first, optim, n, "optimizer and model files", n + m);
	} else {
		if (n)
			put_missing(fold, first_of(fold, first, RANK_OPTIM), optim, n,
				    "optimizer files", n);
		if (m)
			put_missing(fold, first_of(fold, first, RANK_MODEL), model, m,
				    "model files", m);
	}
	set_done(fold, first, is_missing_too, 1);
	cli_free(optim);
}

/* One text about files of several ranks: the first one's, and which ranks have it too. */
static void fold_ranks(struct fold *fold, size_t first)
{
	const enum rank_kind kind = fold->file[first].kind;
	uint32_t *rank = cli_alloc(fold->n * sizeof(*rank));
	size_t n = gather(fold, first, is_one_text, kind, rank);
	char *others = say_rank_list(rank + 1, n - 1);

	for (size_t i = first; i < fold->n; i++)
		if (fold->file[i].kind == kind && is_one_text(fold, first, i) && i != first)
			fold->done[i] = 1;
	fold->done[first] = 1;
	put(fold, first, n, cli_strdup(fold->in[first].where),
	    cli_format("%s; the same for %s", fold->in[first].text, others));
	cli_free(others);
	cli_free(rank);
}

/* One text about several places: their names, if they are few and short. */
static void fold_like(struct fold *fold, size_t first, size_t n)
{
	char *where = cli_strdup(fold->in[first].where), *longer;
	int listed = 1;

	for (size_t i = first + 1; i < fold->n; i++) {
		if (fold->done[i] || !is_like_elsewhere(fold, first, i))
			continue;
		longer = cli_format("%s, %s", where, fold->in[i].where);
		cli_free(where);
		where = longer;
		listed &= !strcmp(fold->in[i].text, fold->in[first].text) &&
			  strcmp(fold->in[i].where, fold->in[first].where) && strlen(where) < 72;
	}
	if (listed)
		put(fold, first, n, where, cli_strdup(fold->in[first].text));
	else
		put(fold, first, n, cli_strdup(fold->in[first].where),
		    cli_format("%s; %zu more like it", fold->in[first].text, n - 1));
	set_done(fold, first, is_like_elsewhere, 0);
}

static void fold_one(struct fold *fold, size_t first)
{
	const struct ckpt_finding *f = &fold->in[first];
	size_t ranks = 0, like = 0, missing = 0;

	for (size_t i = first; i < fold->n; i++) {
		const int ranked = fold->file[i].kind != NO_RANK;

		ranks += !fold->done[i] && fold->file[i].kind == fold->file[first].kind && ranked &&
			 is_one_text(fold, first, i);
		missing += !fold->done[i] && ranked && is_missing_too(fold, first, i);
		like += !fold->done[i] && is_like_elsewhere(fold, first, i);
	}
	if (is_missing(f->id) && fold->file[first].kind != NO_RANK && missing > 1) {
		fold_missing(fold, first);
	} else if (ranks > 1) {
		fold_ranks(fold, first);
	} else if (like > 2) {
		fold_like(fold, first, like);
	} else {
		put(fold, first, 1, cli_strdup(f->where), cli_strdup(f->text));
		fold->done[first] = 1;
	}
}

size_t findings_fold(const struct ckpt_finding *in, size_t n, uint32_t world, struct folded **out)
{
	struct fold fold = { .in = in, .n = n, .world = world };

	fold.file = cli_alloc((n + 1) * sizeof(*fold.file));
	fold.done = cli_alloc(n + 1);
	fold.out = cli_alloc((n + 1) * sizeof(*fold.out));
	for (size_t i = 0; i < n; i++)
		fold.file[i] = rank_file(in[i].where);
	for (size_t i = 0; i < n; i++)
		if (!fold.done[i])
			fold_one(&fold, i);
	cli_free(fold.file);
	cli_free(fold.done);
	*out = fold.out;
	return fold.nout;
}

/* ---------------------------------------------------------------- printing */

const char *out_id(const char *id)
{
	static char *kept;

	cli_free(kept);
	kept = strncmp(id, "CKPT_E_", 7) ? cli_format("%s: ", id) : cli_strdup("");
	return kept;
}

size_t findings_list(const struct ckpt *ck, enum ckpt_severity least, struct ckpt_finding **out)
{
	struct ckpt_finding f;
	size_t n = 0;

	for (uint64_t i = 0; !ckpt_finding_get(ck, i, &f, NULL); i++)
		n += f.severity >= least;
	*out = cli_alloc((n + 1) * sizeof(**out));
	n = 0;
	for (uint64_t i = 0; !ckpt_finding_get(ck, i, &f, NULL); i++)
		if (f.severity >= least)
			(*out)[n++] = f;
	return n;
}

/* The most severe first, so that what is left out matters least. */
static int by_severity(const void *a, const void *b)
{
	const struct folded *x = a, *y = b;

	if (x->f.severity != y->f.severity)
		return x->f.severity > y->f.severity ? -1 : 1;
	return x->first < y->first ? -1 : x->first > y->first;
}

size_t findings_lines(const struct ckpt *ck, enum ckpt_severity least, int all,
		      struct folded **out)
{
	struct ckpt_finding *list;
	const size_t n = findings_list(ck, least, &list);
	struct ckpt_info info;
	size_t nlines;

	ckpt_info_get(ck, &info);
	if (!all) {
		nlines = findings_fold(list, n, info.world, out);
		if (nlines > FINDINGS_SHOWN)
			qsort(*out, nlines, sizeof(**out), by_severity);
		return nlines;
	}
	*out = cli_alloc((n + 1) * sizeof(**out));
	for (size_t i = 0; i < n; i++)
		(*out)[i] = (struct folded){ list[i], i, 1 };
	return n;
}

static struct words said;	/* names of errors */

int out_finding_is_said(const char *id, size_t n)
{
	for (size_t i = 0; i < said.n; i++)
		if (strlen(said.list[i]) == n && !strncmp(said.list[i], id, n))
			return 1;
	return 0;
}

static void print_lines(const struct args *args, const struct ckpt *ck)
{
	struct folded *line;
	size_t n = findings_lines(ck, args->verbose ? CKPT_INFO : CKPT_WARN, args->verbose, &line);

	for (size_t i = 0; i < n; i++) {
		const struct ckpt_finding *f = &line[i].f;

		/* the line about the step has it */
		if (cli_args.step_said && !args->verbose && !args->strict &&
		    !strcmp(f->id, "LATEST_ABSENT"))
			continue;
		if (!args->verbose && i == FINDINGS_SHOWN) {
			cli_say("%zu more findings; -v lists them", n - i);
			return;
		}
		cli_say("%s: %s: %s%s%s", out_severity(f->severity), f->id, out_name(f->where),
			f->where[0] ? ": " : "", out_name(f->text));
		if (f->severity == CKPT_ERROR)
			words_add(&said, cli_strdup(f->id));
	}
}

void out_findings_asked(const struct args *args, const struct ckpt *ck)
{
	struct ckpt_info info;

	print_lines(args, ck);
	ckpt_info_get(ck, &info);
	if (cli_lone_shard(info.path))
		cli_say("hint: %s", cli_lone_shard(info.path));
}

uint64_t out_findings_count(const struct ckpt *ck, enum ckpt_severity severity)
{
	struct ckpt_finding f;
	uint64_t n = 0;

	for (uint64_t i = 0; !ckpt_finding_get(ck, i, &f, NULL); i++)
		n += f.severity == severity;
	return n;
}

uint64_t out_findings_named(const struct ckpt *ck, const char *id)
{
	struct ckpt_finding f;
	uint64_t n = 0;

	for (uint64_t i = 0; !ckpt_finding_get(ck, i, &f, NULL); i++)
		n += !strcmp(f.id, id);
	return n;
}
