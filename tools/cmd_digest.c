/* cmd_digest.c -- `zckpt digest`: hashes that do not depend on the layout. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static struct {
	const char *check;
	struct words state;
} want;

static const struct opt own[] = {
	{ "state", 0, OPT_COMMAS, &want.state, "NAME", "only these states (default: all)", 0 },
	{ "check", 0, OPT_TEXT, &want.check, "FILE",
	  "compare with saved lines; exit 1 if they differ", 0 },
	{ 0 },
};

/* The name as it stands in a line: a JSON string where it would break the line. */
static char *line_name(const char *name)
{
	const unsigned char *s = (const unsigned char *)name;
	char *text = NULL, *copy;
	size_t size;
	FILE *f;

	while (*s > 0x20 && *s != '"' && *s != '\\' && *s != 0x7f)
		s++;
	if (!*s && name[0])
		return cli_strdup(name);
	f = open_memstream(&text, &size);
	if (f) {
		json_quote(f, name);
		fclose(f);
	}
	copy = cli_strdup(text ? text : "?");
	free(text);
	return copy;
}

/* A list, ours or a saved one: what stands behind the hash, and the hash. */
struct entry {
	char *hash;
	char *key;	/* "STATE NAME", or "root" */
	int met;
};

struct list {
	struct entry *entry;
	size_t n, room;
};

static void list_add(struct list *list, char *hash, char *key)
{
	if (list->n == list->room) {
		size_t room = list->room * 2 + 64;
		struct entry *bigger = cli_alloc(room * sizeof(*bigger));

		if (list->n)
			memcpy(bigger, list->entry, list->n * sizeof(*bigger));
		cli_free(list->entry);
		list->entry = bigger;
		list->room = room;
	}
	list->entry[list->n++] = (struct entry){ hash, key, 0 };
}

static int by_key(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->key, ((const struct entry *)b)->key);
}

static struct entry *list_find(const struct list *list, const char *key)
{
	struct entry wanted = { .key = (char *)(uintptr_t)key };

	if (!list->n)
		return NULL;
	return bsearch(&wanted, list->entry, list->n, sizeof(wanted), by_key);
}

static int list_read_line(struct list *list, char *line, const char *path, unsigned number)
{
	size_t n = strspn(line, "0123456789abcdef");

	line[strcspn(line, "\r\n")] = 0;
	if (!line[0] || line[0] == '#')
		return 0;
	if (n != 32 || line[n] != ' ' || !line[n + 1]) {
		cli_say_error("%s: line %u is not 'HASH STATE NAME'; was it made by zckpt digest?",
			out_name(path), number);
		return EXIT_TROUBLE;
	}
	list_add(list, cli_format("%.32s", line), cli_strdup(line + n + 1));
	return 0;
}

static int list_read(struct list *list, const char *path)
{
	FILE *f = strcmp(path, "-") ? fopen(path, "r") : stdin;
	char *line = NULL;
	size_t room = 0;
	unsigned number = 0;
	int status = 0;

	if (!f) {
		cli_say_error("%s: %s", out_name(path), strerror(errno));
		return EXIT_TROUBLE;
	}
	while (!status && getline(&line, &room, f) >= 0)
		status = list_read_line(list, line, path, ++number);
	if (!status && ferror(f)) {
		cli_say_error("%s: %s", out_name(path), strerror(errno));
		status = EXIT_TROUBLE;
	}
	if (!status && !list->n) {
		cli_say_error("%s holds no digest lines; zckpt digest SRC > FILE writes them",
			      out_name(path));
		status = EXIT_TROUBLE;
	}
	free(line);
	if (f != stdin)
		fclose(f);
	if (list->n)
		qsort(list->entry, list->n, sizeof(*list->entry), by_key);
	return status;
}

static void list_make(struct list *list, const struct ckpt_digests *digests)
{
	for (uint64_t i = 0; i < digests->nlines; i++) {
		const struct ckpt_digest_line *line = &digests->lines[i];
		char *name = line_name(line->name);

		list_add(list, cli_strdup(line->hash), cli_format("%s %s", line->state, name));
		cli_free(name);
	}
	list_add(list, cli_strdup(digests->root), cli_strdup("root"));
}

/* ---------------------------------------------------------------- comparing */

#define SHOWN 10	/* differences, without -v */

enum { DIFFERS, ONLY_HERE, ONLY_SAVED, NKINDS };

static const char *const kinds[NKINDS] = {
	"differs", "only in the checkpoint", "only in the list",
};

/* Calls back with each difference.  'root' differs whenever anything does. */
static void compare(const struct list *ours, const struct list *saved,
		    void (*met)(void *arg, unsigned kind, const char *key), void *arg)
{
	for (size_t i = 0; i < ours->n; i++) {
		struct entry *other = list_find(saved, ours->entry[i].key);

		if (other)
			other->met = 1;
		if (!other || strcmp(other->hash, ours->entry[i].hash))
			met(arg, other ? DIFFERS : ONLY_HERE, ours->entry[i].key);
	}
	for (size_t i = 0; i < saved->n; i++)
		if (!saved->entry[i].met)
			met(arg, ONLY_SAVED, saved->entry[i].key);
}

/* For people: how many of each kind, without the root, and what to print of them. */
struct differences {
	uint64_t n[NKINDS], shown, most;
	int print, any;
};

static void count_one(void *arg, unsigned kind, const char *key)
{
	struct differences *d = arg;

	d->any = 1;
	if (!strcmp(key, "root"))
		return;
	d->n[kind]++;
	if (d->print && d->shown++ < d->most)
		printf("%s: %s\n", kinds[kind], key);
}

static uint64_t all_of(const struct differences *d)
{
	return d->n[DIFFERS] + d->n[ONLY_HERE] + d->n[ONLY_SAVED];
}

/* "3 of 96 states differ, 1 only in the list" */
static void print_counts(const struct differences *d, size_t states)
{
	printf("%s of %s state%s differ", out_count(d->n[DIFFERS]), out_count(states),
	       out_plural(states));
	for (unsigned kind = ONLY_HERE; kind < NKINDS; kind++)
		if (d->n[kind])
			printf(", %s %s", out_count(d->n[kind]), kinds[kind]);
	putchar('\n');
}

static int print_check(const struct args *args, const struct list *ours, const struct list *saved)
{
	struct differences d = { .most = args->verbose ? UINT64_MAX : SHOWN };
	const char *src = out_word(args->rest.list[0]);

	compare(ours, saved, count_one, &d);
	if (!d.any) {
		printf("all %s states agree\n", out_count(ours->n - 1));
		return EXIT_DONE;
	}
	print_counts(&d, ours->n - 1);
	d = (struct differences){ .print = 1, .most = d.most };
	compare(ours, saved, count_one, &d);
	if (all_of(&d) > d.most)
		printf("... and %s more; -v shows all\n", out_count(all_of(&d) - d.most));
	if (!args->quiet)
		cli_say("hint: to look for damage: zckpt verify --full %s", src);
	return EXIT_NO;
}

struct json_differences {
	struct json *json;
	uint64_t n;
};

static void json_one(void *arg, unsigned kind, const char *key)
{
	struct json_differences *d = arg;

	d->n++;
	json_open(d->json, NULL, '{');
	json_text(d->json, "what", kinds[kind]);
	json_text(d->json, "entry", key);
	json_close(d->json, '}');
}

static int print_json(const struct ckpt *ck, const struct ckpt_digests *digests,
		      const struct list *ours, const struct list *saved)
{
	struct ckpt_info info;
	struct json json;
	struct json_differences d = { &json, 0 };
	uint64_t n = 0;

	ckpt_info_get(ck, &info);
	json_begin(&json, stdout, "digest");
	json_text(&json, "path", info.path);
	json_open(&json, "lines", '[');
	for (uint64_t i = 0; i < digests->nlines; i++) {
		json_open(&json, NULL, '{');
		json_text(&json, "hash", digests->lines[i].hash);
		json_text(&json, "state", digests->lines[i].state);
		json_text(&json, "name", digests->lines[i].name);
		json_close(&json, '}');
	}
	json_close(&json, ']');
	json_text(&json, "root", digests->root);
	json_uint(&json, "read_bytes", digests->read_bytes);
	if (saved) {
		json_open(&json, "differences", '[');
		compare(ours, saved, json_one, &d);
		n = d.n;
		json_close(&json, ']');
		json_bool(&json, "ok", !n);
	}
	json_findings(&json, ck);
	json_close(&json, '}');
	return n ? EXIT_NO : EXIT_DONE;
}

static void print_lines(const struct list *list)
{
	for (size_t i = 0; i < list->n; i++)
		printf("%s %s\n", list->entry[i].hash, list->entry[i].key);
}

static int is_all(const struct words *states)
{
	for (size_t i = 0; i < states->n; i++)
		if (!strcmp(states->list[i], "all"))
			return 1;
	return !states->n;
}

/* Hashes, with progress; 0 or the exit status. */
static int hash(const struct args *args, struct ckpt *ck, const struct ckpt_select *select,
		struct ckpt_digests *digests)
{
	struct ckpt_digest_opts opts = { .size = sizeof(opts), .select = select };
	struct progress progress;
	struct ckpt_run_opts run;
	struct ckpt_err err = { 0 };
	int rc;

	cli_run_begin(args, &progress, &run);
	opts.run = &run;
	opts.states = is_all(&want.state) ? NULL : want.state.list;
	rc = ckpt_digest(ck, &opts, digests, &err);
	progress_end(&progress);
	out_findings_asked(args, ck);
	return rc ? cli_fail(args->json ? "digest" : NULL, ck, &err) : 0;
}

static int run(struct args *args)
{
	struct ckpt_err err = { 0 };
	struct ckpt_digests digests = { 0 };
	struct list saved = { 0 }, ours = { 0 };
	struct ckpt_select select;
	struct ckpt *ck = NULL;
	int status;

	if (!args->rest.n)
		return cli_wrong(&cmd_digest, "digest needs a checkpoint");
	args->find_states |= cli_is_beyond_weight(&want.state);
	status = cli_select(&cmd_digest, args, &select);
	if (!status && want.check)
		status = list_read(&saved, want.check);
	if (!status)
		status = cli_open(args, "digest", &args->rest, &ck, &err);
	if (!status)
		status = hash(args, ck, &select, &digests);
	if (ck)
		cli_say_nearest(args, (const struct ckpt *const[]){ ck }, 1);
	if (status)
		goto out;
	list_make(&ours, &digests);
	if (args->json)
		status = print_json(ck, &digests, &ours, want.check ? &saved : NULL);
	else if (want.check)
		status = print_check(args, &ours, &saved);
	else
		print_lines(&ours);
out:
	ckpt_digests_free(&digests);
	ckpt_close(ck);
	return status;
}

const struct command cmd_digest = {
	.name = "digest",
	.run = run,
	.ranks = RANKS_EACH,
	.gist = "hash tensors, independent of ranks, stage and format",
	.synopsis = "SRC...",
	.about = "Prints a line 'HASH STATE NAME' for every state of every tensor, then one for "
		 "all of them. The same state has the same hash, however many ranks hold it and in "
		 "whatever format; padding and second names are not hashed.",
	.examples = "zckpt digest run > run.digest\n"
		    "zckpt digest --check run.digest run-on-4\n",
	.notes = "Save the lines, and compare later: zckpt digest A > list; zckpt digest B "
		 "--check list",
	.tables = { own, opts_select, opts_source, opts_run, opts_talk, NULL },
};
