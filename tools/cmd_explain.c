/*
 * cmd_explain.c -- `zckpt explain`: what a finding means, what causes it, and what to do.
 *
 * The texts are those of docs/findings.md, built into the program, so that a message can be looked
 * up on a machine that has the program alone.
 */
#include <ctype.h>
#include <string.h>

#include "cli.h"
#include "cli_explain.h"

#define WIDTH 79
#define GIST_AT 26

/* What "code" of an error of --json may be: not a finding, but how a call failed. */
static const struct {
	enum ckpt_code code;
	const char *gist;
} codes[] = {
	{ CKPT_E_IO, "the system refused to read or write, for instance without permission" },
	{ CKPT_E_NOMEM, "there is not enough memory" },
	{ CKPT_E_NOSPACE, "the disk is full, or would be" },
	{ CKPT_E_EXISTS, "the destination exists; --force replaces it" },
	{ CKPT_E_NOTFOUND, "there is nothing at that path" },
	{ CKPT_E_CANCELED, "a signal stopped the run" },
	{ CKPT_E_BUSY, "another process writes to the same destination" },
	{ CKPT_E_TRUNCATED, "a file ends too early: copy it again" },
	{ CKPT_E_CORRUPT, "a file is damaged: its parts contradict each other" },
	{ CKPT_E_FORMAT, "zckpt does not know this format; zckpt doctor PATH says what it is" },
	{ CKPT_E_UNSUPPORTED, "the file is valid, and zckpt does not read this kind" },
	{ CKPT_E_LIMIT, "a file asks for more than a limit allows; --limit NAME=N moves it" },
	{ CKPT_E_INCOMPLETE, "files of the step are missing" },
	{ CKPT_E_MISMATCH, "files contradict each other, or one changed during the run" },
	{ CKPT_E_LAYOUT, "the layout is not read, see LAYOUT_UNSUPPORTED" },
	{ CKPT_E_UNSAFE, "a pickle asks for a refused call, or an archive for another folder" },
	{ CKPT_E_USAGE, "an argument is wrong" },
	{ CKPT_E_EXPECT, "the result would not have the names that --expect wants" },
};
#define NCODES (sizeof(codes) / sizeof(codes[0]))

/* Each severity with what it does, in the order of the list. */
static const struct {
	const char *name, *effect;
} severities[] = {
	{ "error", "commands that write stop, exit status 3" },
	{ "warning", "printed; with --strict, commands that write stop, exit status 1" },
	{ "info", "shown by zckpt inspect" },
};

const struct finding_page *explain_find(const char *id)
{
	for (const struct finding_page *p = finding_pages; p->id; p++)
		if (opt_is_name(id, p->id))
			return p;
	return NULL;
}

/* ---------------------------------------------------------------- text */

/* The paragraph or the commands at 'text'; where the next begins. */
static const char *print_block(const char *text)
{
	const char *end = strstr(text, "\n\n");
	size_t n = end ? (size_t)(end - text) : strlen(text);
	char *block = cli_format("%.*s", (int)n, text);

	if (block[0] == ' ')
		printf("%s\n", block);
	else
		opt_wrap(stdout, block, 0, 0, WIDTH);
	cli_free(block);
	return end ? end + 2 : NULL;
}

void explain_print(const struct finding_page *page)
{
	printf("%s: %s%s%s%s\n", page->id, page->severity, page->when[0] ? " (" : "", page->when,
	       page->when[0] ? ")" : "");
	for (const char *at = page->text; at; at = print_block(at))
		putchar('\n');
}

static void print_list(const struct finding_page *const *pages)
{
	for (size_t s = 0; s < sizeof(severities) / sizeof(severities[0]); s++) {
		int n = 0;

		for (const struct finding_page *const *p = pages; *p; p++) {
			if (strcmp((*p)->severity, severities[s].name))
				continue;
			if (!n++)
				printf("%s: %s\n", severities[s].name, severities[s].effect);
			printf("  %-*s%s\n", GIST_AT - 2, (*p)->id, (*p)->gist);
		}
	}
	printf("'zckpt explain ID' prints the causes of one, and what to do.\n");
}

static void print_json(const struct finding_page *const *pages)
{
	struct json json;

	json_begin(&json, stdout, "explain");
	json_open(&json, "findings", '[');
	for (; *pages; pages++) {
		json_open(&json, NULL, '{');
		json_text(&json, "id", (*pages)->id);
		json_text(&json, "severity", (*pages)->severity);
		json_text(&json, "when", (*pages)->when);
		json_text(&json, "gist", (*pages)->gist);
		json_text(&json, "text", (*pages)->text);
		json_close(&json, '}');
	}
	json_close(&json, ']');
	json_close(&json, '}');
}

/* ---------------------------------------------------------------- which */

/* The words as one ID: "rank file missing" and "RANK_FILE_MISSING:" are RANK_FILE_MISSING. */
static char *id_of(const struct words *words)
{
	char *id = cli_strdup(words->list[0]);
	size_t n;

	for (size_t i = 1; i < words->n; i++) {
		char *longer = cli_format("%s_%s", id, words->list[i]);

		cli_free(id);
		id = longer;
	}
	n = strlen(id);
	if (n && (id[n - 1] == ':' || id[n - 1] == '.' || id[n - 1] == ','))
		id[n - 1] = 0;
	for (char *c = id; *c; c++)
		*c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
	return id;
}

/* The page called 'id', else those that have it in their names, else all if it is "". */
static size_t choose(const char *id, const struct finding_page **pages_out)
{
	size_t n = 0;

	if (*id && explain_find(id)) {
		pages_out[n++] = explain_find(id);
	} else {
		for (const struct finding_page *p = finding_pages; p->id; p++)
			if (strstr(p->id, id))
				pages_out[n++] = p;
	}
	pages_out[n] = NULL;
	return n;
}

/* A line for each code in whose name the word is; how many. */
static size_t print_codes(const char *id, int json)
{
	struct json out = { 0 };
	size_t n = 0;

	for (size_t i = 0; i < NCODES; i++) {
		const char *name = ckpt_code_name(codes[i].code);

		if (strncmp(id, "CKPT_E", 6) || strncmp(name, id, strlen(id)))
			continue;
		if (!n++ && json) {
			json_begin(&out, stdout, "explain");
			json_open(&out, "codes", '[');
		}
		if (json) {
			json_open(&out, NULL, '{');
			json_text(&out, "id", name);
			json_int(&out, "exit", cli_exit_status(codes[i].code));
			json_text(&out, "gist", codes[i].gist);
			json_close(&out, '}');
		} else {
			printf("%s: exit status %d: %s\n", name, cli_exit_status(codes[i].code),
			       codes[i].gist);
		}
	}
	if (n && json) {
		json_close(&out, ']');
		json_close(&out, '}');
	}
	return n;
}

static int unknown_finding(const char *id)
{
	struct words names = { 0 };
	const char *near;

	for (const struct finding_page *p = finding_pages; p->id; p++)
		words_add(&names, p->id);
	near = opt_nearest(id, names.list);
	if (near)
		return cli_try(&cmd_explain, cli_format("zckpt explain %s", near),
			       "there is no finding %s; did you mean %s?", out_name(id), near);
	return cli_wrong(&cmd_explain, "there is no finding %s; 'zckpt explain' lists all",
			 out_name(id));
}

static int run(struct args *args)
{
	const struct finding_page **pages;
	char *id = args->rest.n ? id_of(&args->rest) : cli_strdup("");
	size_t n = 0;
	int status = EXIT_DONE;

	while (finding_pages[n].id)
		n++;
	pages = cli_alloc((n + 1) * sizeof(*pages));
	n = choose(id, pages);
	if (!n)
		status = print_codes(id, args->json) ? EXIT_DONE : unknown_finding(id);
	else if (args->json)
		print_json(pages);
	else if (n == 1)
		explain_print(pages[0]);
	else
		print_list(pages);
	cli_free(pages);
	cli_free(id);
	return status;
}

const struct command cmd_explain = {
	.name = "explain",
	.run = run,
	.gist = "explain a finding such as RANK_FILE_MISSING",
	.synopsis = "[ID]",
	.about = "Prints what a finding means, what causes it, and what to do. ID is the name in "
		 "capitals in a message; rank-file-missing is the same. A part of a name, such as "
		 "manifest, lists the findings that have it. Without ID it lists all. The codes of "
		 "errors in --json, such as CKPT_E_FORMAT, are IDs too.",
	.examples = "zckpt explain RANK_FILE_MISSING\n"
		    "zckpt explain manifest\n",
	.notes = "Exit 0; 2 if there is no such finding.",
	.tables = { opts_talk, NULL },
};
