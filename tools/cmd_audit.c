/* cmd_audit.c -- `zckpt audit`: are pickles safe, what do they call, would torch load them? */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli_audit.h"

/* One name over all pickles. */
struct used {
	const struct ckpt_audit_name *name;
	int called;
	uint64_t pickles;
};

struct audit {
	const struct args *args;
	struct ckpt_audit list;
	struct other *others;	/* files that are no pickles, and not in the list */
	size_t nothers;
	struct used *used;	/* sorted */
	size_t nused;
	uint64_t refused;	/* names that are called though refused */
	uint64_t broken;	/* pickles or files not read to their end */
	uint64_t torch_refuses;	/* pickles that weights_only=True does not load */
};

/* ---------------------------------------------------------------- summing up */

static int torch_takes(const struct ckpt_audit_pickle *p)
{
	if (p->code || p->torch_op >= 0)
		return 0;
	for (uint64_t i = 0; i < p->nnames; i++)
		if (p->name[i].torch != CKPT_TORCH_ALLOWS)
			return 0;
	return 1;
}

static uint64_t count_set(const struct ckpt_audit_pickle *p, enum ckpt_name_set set)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < p->nnames; i++)
		n += p->name[i].set == set;
	return n;
}

static int by_name(const void *a, const void *b)
{
	const struct used *x = a, *y = b;
	int order;

	if (x->name->set != y->name->set)
		return x->name->set > y->name->set ? -1 : 1;
	order = strcmp(x->name->module, y->name->module);
	return order ? order : strcmp(x->name->name, y->name->name);
}

static void collect(struct audit *audit)
{
	const struct ckpt_audit *list = &audit->list;
	size_t all = 0, n = 0;

	audit->nothers = audit_take_others(&audit->list, &audit->others);
	for (size_t i = 0; i < audit->nothers; i++)
		audit->broken += !audit->others[i].is_fine;
	for (uint64_t i = 0; i < list->npickles; i++)
		all += list->pickle[i].nnames;
	audit->used = cli_alloc((all + 1) * sizeof(*audit->used));
	for (uint64_t i = 0; i < list->npickles; i++) {
		const struct ckpt_audit_pickle *p = &list->pickle[i];

		audit->broken += p->code != CKPT_OK;
		audit->torch_refuses += !torch_takes(p);
		for (uint64_t k = 0; k < p->nnames; k++)
			audit->used[n++] = (struct used){ &p->name[k], p->name[k].called, 1 };
	}
	if (n)
		qsort(audit->used, n, sizeof(*audit->used), by_name);
	for (size_t i = 0; i < n; i++) {
		struct used *last = audit->nused ? &audit->used[audit->nused - 1] : NULL;

		if (last && !by_name(last, &audit->used[i])) {
			last->called |= audit->used[i].called;
			last->pickles++;
		} else {
			audit->used[audit->nused++] = audit->used[i];
		}
	}
	for (size_t i = 0; i < audit->nused; i++)
		audit->refused += audit->used[i].name->set == CKPT_NAME_REFUSED &&
				  audit->used[i].called;
}

/* ---------------------------------------------------------------- the answer */

/* How many names are in the set, and the first of them. */
static uint64_t names_in(const struct audit *audit, enum ckpt_name_set set, int called,
			 const struct used **first_out)
{
	uint64_t n = 0;

	for (size_t i = 0; i < audit->nused; i++) {
		const struct used *u = &audit->used[i];

		if (u->name->set != set || (called && !u->called))
			continue;
		if (!n++)
			*first_out = u;
	}
	return n;
}

/* "os.system and 2 more names" */
static char *some_names(const struct used *first, uint64_t n)
{
	char *name = cli_format("%s.%s", first->name->module, first->name->name);
	char *text = n > 1 ? cli_format("%s and %s more name%s", out_name(name), out_count(n - 1),
					out_plural(n - 1)) : cli_strdup(out_name(name));

	cli_free(name);
	return text;
}

/* Pickles of one file follow each other. */
static uint64_t count_files(const struct audit *audit)
{
	const struct ckpt_audit *list = &audit->list;
	uint64_t n = 0;

	for (uint64_t i = 0; i < list->npickles; i++)
		n += !i || strcmp(list->pickle[i].path, list->pickle[i - 1].path);
	return n;
}

static char *of_files(const struct audit *audit)
{
	const uint64_t files = count_files(audit), pickles = audit->list.npickles;

	return files == pickles ? cli_format("%s file%s", out_count(files), out_plural(files)) :
	       cli_format("%s pickles in %s file%s", out_count(pickles), out_count(files),
			  out_plural(files));
}

/* Of files that are no pickles the one that matters most; NULL if there is none. */
static char *other_text(const struct audit *audit)
{
	for (size_t i = 0; i < audit->nothers; i++)
		if (!audit->others[i].is_fine)
			return audit_say_other(&audit->others[i]);
	return audit->nothers ? audit_say_other(&audit->others[0]) : NULL;
}

/* The whole answer in one line. */
static char *answer_text(const struct audit *audit)
{
	const struct used *first = NULL;
	char *files = of_files(audit), *names, *text, *other = other_text(audit);
	uint64_t n;

	if (other && (!audit->list.npickles ||
		      (audit->broken && !names_in(audit, CKPT_NAME_REFUSED, 1, &first))))
		text = cli_strdup(other);
	else if (!audit->list.npickles)
		text = cli_strdup("no pickle found (object arrays of .npy and .npz are not "
				  "examined)");
	else if ((n = names_in(audit, CKPT_NAME_REFUSED, 1, &first)))
		text = cli_format("NOT safe: it calls %s; do not load it with torch.load",
				  names = some_names(first, n));
	else if (audit->broken)
		text = cli_format("NOT checked: %s of %s pickle%s could not be read to the end",
				  out_count(audit->broken), out_count(audit->list.npickles),
				  out_plural(audit->list.npickles));
	else if ((n = names_in(audit, CKPT_NAME_REFUSED, 0, &first)))
		text = cli_format("suspicious: it mentions %s, but does not call it",
				  names = some_names(first, n));
	else if ((n = names_in(audit, CKPT_NAME_OPAQUE, 0, &first)))
		text = cli_format("unknown: it uses %s; zckpt runs none, "
				  "torch.load(weights_only=False) would",
				  names = some_names(first, n));
	else if (audit->torch_refuses)
		text = cli_format("safe: %s, only names that build values; "
				  "torch.load(weights_only=True) refuses %s of them", files,
				  out_count(audit->torch_refuses));
	else
		text = cli_format("safe: %s, only names that torch.load(weights_only=True) allows",
				  files);
	cli_free(files);
	cli_free(other);
	return text;
}

/* ---------------------------------------------------------------- for people */

/* A file, or several whose names differ in their digits only and that use as many names. */
struct row {
	char *name;
	uint64_t files, data, refused, opaque;
	int loads;
};

static char *place(const struct ckpt_audit_pickle *p)
{
	char at[40] = "";

	if (p->offset)
		snprintf(at, sizeof(at), " at byte %" PRIu64, p->offset);
	return cli_format("%s%s%s%s", out_name(p->path), p->member ? "!" : "",
			  p->member ? out_name(p->member) : "", at);
}

/* Below the one folder that was given a name is enough. */
static const char *short_path(const struct audit *audit, const char *path)
{
	const char *top = audit->args->rest.list[0];
	const size_t n = strlen(top);

	if (audit->args->rest.n > 1 || strncmp(path, top, n) || !path[n])
		return path;
	return path + n + strspn(path + n, "/");
}

static size_t digits(const char *s)
{
	return strspn(s, "0123456789");
}

/* "rank_0_x" and "rank_1_x" become "rank_*_x"; NULL if they differ elsewhere. */
static char *merge_names(const char *a, const char *b)
{
	char *out = cli_alloc(strlen(a) + strlen(b) + 1), *to = out;

	while (*a && *b) {
		const size_t n = *a == '*' ? 1 : digits(a), m = digits(b);

		if (n && m && *a != '*' && n == m && !memcmp(a, b, n)) {
			memcpy(to, a, n);
			to += n;
		} else if (n && m) {
			*to++ = '*';
		} else if (*a == *b) {
			*to++ = *a;
		} else {
			break;
		}
		a += n ? n : 1;
		b += m ? m : 1;
	}
	if (!*a && !*b)
		return out;
	cli_free(out);
	return NULL;
}

/* Adds the file to the last row that it equals. */
static void rows_add(struct row *rows, size_t *n, const struct row *file)
{
	for (size_t i = *n; i > 0; i--) {
		struct row *r = &rows[i - 1];
		char *name;

		if (r->data != file->data || r->refused != file->refused ||
		    r->opaque != file->opaque || r->loads != file->loads)
			continue;
		name = merge_names(r->name, file->name);
		if (!name)
			continue;
		cli_free(r->name);
		cli_free(file->name);
		r->name = name;
		r->files++;
		return;
	}
	rows[(*n)++] = *file;
}

static size_t rows_of(const struct audit *audit, struct row *rows)
{
	const struct ckpt_audit *list = &audit->list;
	struct row file = { 0 };
	size_t n = 0;

	for (uint64_t i = 0; i < list->npickles; i++) {
		const struct ckpt_audit_pickle *p = &list->pickle[i];

		if (!file.files)
			file = (struct row){ .files = 1, .loads = 1, .name =
				cli_strdup(out_name(short_path(audit, p->path))) };
		file.data += count_set(p, CKPT_NAME_DATA);
		file.refused += count_set(p, CKPT_NAME_REFUSED);
		file.opaque += count_set(p, CKPT_NAME_OPAQUE);
		file.loads &= torch_takes(p);
		if (i + 1 < list->npickles && !strcmp(p->path, list->pickle[i + 1].path))
			continue;
		rows_add(rows, &n, &file);
		file = (struct row){ 0 };
	}
	return n;
}

static void print_files(const struct audit *audit)
{
	struct table table = { .align = "rrrrll" };
	struct row *rows = cli_alloc((audit->list.npickles + 1) * sizeof(*rows));
	const size_t n = rows_of(audit, rows);

	table_add(&table, (const char *const[]){ "FILES", "DATA", "REFUSED", "UNKNOWN",
						 "TORCH", "NAME" });
	for (size_t i = 0; i < 2 * n; i++) {
		const struct row *r = &rows[i % n];

		if ((i < n) != (r->refused > 0))
			continue;	/* first those that matter */
		table_add(&table, (const char *const[]){
			out_count(r->files), out_count(r->data), out_count(r->refused),
			out_count(r->opaque), r->loads ? "loads" : "refuses", r->name });
	}
	for (size_t i = 0; i < n; i++)
		cli_free(rows[i].name);
	cli_free(rows);
	putchar('\n');
	table_print(&table, stdout, "");
}

/* Every pickle, with -v. */
static void print_pickles(const struct audit *audit)
{
	struct table table = { .align = "rrrll" };

	table_add(&table, (const char *const[]){ "DATA", "REFUSED", "UNKNOWN", "TORCH",
						 "PICKLE" });
	for (uint64_t i = 0; i < audit->list.npickles; i++) {
		const struct ckpt_audit_pickle *p = &audit->list.pickle[i];
		char *where = place(p);

		table_add(&table, (const char *const[]){
			out_count(count_set(p, CKPT_NAME_DATA)),
			out_count(count_set(p, CKPT_NAME_REFUSED)),
			out_count(count_set(p, CKPT_NAME_OPAQUE)),
			torch_takes(p) ? "loads" : "refuses", where });
		cli_free(where);
	}
	putchar('\n');
	table_print(&table, stdout, "");
}

/* A dotted name walks from a class to what is in it. */
static const char *use_word(const struct used *u)
{
	return u->called ? "called" : strchr(u->name->name, '.') ? "attribute" : "mentioned";
}

static void print_set(const struct audit *audit, enum ckpt_name_set set, const char *title)
{
	int any = 0;

	for (size_t i = 0; i < audit->nused; i++) {
		const struct used *u = &audit->used[i];
		char *full;

		if (u->name->set != set)
			continue;
		if (!any++)
			printf("\n%s\n", title);
		full = cli_format("%s.%s", u->name->module, u->name->name);
		printf("  %s  %s, %" PRIu64 " pickle%s\n", out_name(full),
		       use_word(u), u->pickles,
		       u->pickles == 1 ? "" : "s");
		cli_free(full);
	}
}

/* What the first pickle that torch refuses for another reason than a name is refused for. */
static void print_torch_ops(const struct audit *audit)
{
	for (uint64_t i = 0; i < audit->list.npickles; i++) {
		const struct ckpt_audit_pickle *p = &audit->list.pickle[i];

		if (p->torch_op < 0)
			continue;
		printf("  opcode 0x%02x, which torch.save never writes: "
		       "add_safe_globals() does not help (%s)\n", (unsigned)p->torch_op,
		       out_name(p->path));
		return;
	}
}

/* getattr may be an honest pickler's, but allowed it serves every file. */
static int is_harmful(const struct ckpt_audit_name *n)
{
	return n->set == CKPT_NAME_REFUSED ||
	       (!strcmp(n->module, "builtins") && !strcmp(n->name, "getattr"));
}

static void print_torch(const struct audit *audit)
{
	size_t asks = 0;

	if (!audit->torch_refuses)
		return;
	printf("\ntorch.load(weights_only=True), the default since torch 2.6, refuses %s of %s "
	       "pickle%s\n", out_count(audit->torch_refuses), out_count(audit->list.npickles),
	       out_plural(audit->list.npickles));
	for (size_t i = 0; i < audit->nused; i++) {
		const struct ckpt_audit_name *n = audit->used[i].name;

		if (n->torch == CKPT_TORCH_NEVER)
			printf("  never  %s.%s\n", out_name(n->module), out_name(n->name));
		asks += n->torch == CKPT_TORCH_ASKS;
	}
	print_torch_ops(audit);
	if (asks)
		printf("  to allow them: torch.serialization.add_safe_globals([...]) with\n");
	for (size_t i = 0; i < audit->nused; i++) {
		const struct ckpt_audit_name *n = audit->used[i].name;

		if (n->torch == CKPT_TORCH_ASKS)
			printf("    %s.%s%s\n", out_name(n->module), out_name(n->name),
			       is_harmful(n) ? "  (do not)" : "");
	}
}

/* Files that are no pickles, but for the one that is the answer. */
static void print_others(const struct audit *audit, const char *answer)
{
	for (size_t i = 0; i < audit->nothers; i++) {
		char *text = audit_say_other(&audit->others[i]);

		if (strcmp(text, answer) && (!audit->args->quiet || !audit->others[i].is_fine))
			printf("%s\n", text);
		cli_free(text);
	}
}

static void print_all(const struct audit *audit)
{
	const struct args *args = audit->args;
	char *text = answer_text(audit);

	if (!args->quiet || strncmp(text, "safe", 4))
		printf("%s\n", text);
	print_others(audit, text);
	cli_free(text);
	if (!audit->list.npickles)
		return;
	if (args->verbose)
		print_pickles(audit);
	else if (!args->quiet)
		print_files(audit);
	print_set(audit, CKPT_NAME_REFUSED, "refused: no checkpoint needs these, but an "
		  "attacker does");
	if (!args->quiet)
		print_set(audit, CKPT_NAME_OPAQUE, "unknown: kept by name, never run by zckpt");
	if (args->verbose)
		print_set(audit, CKPT_NAME_DATA, "data: they build values");
	if (!args->quiet)
		print_torch(audit);
}

/* ---------------------------------------------------------------- for scripts */

static const char *set_word(enum ckpt_name_set set)
{
	return set == CKPT_NAME_DATA ? "data" : set == CKPT_NAME_OPAQUE ? "opaque" : "refused";
}

static const char *torch_word(enum ckpt_torch_says says)
{
	return says == CKPT_TORCH_ALLOWS ? "allows" : says == CKPT_TORCH_ASKS ? "asks" : "never";
}

static void json_pickle(struct json *json, const struct ckpt_audit_pickle *p)
{
	json_open(json, NULL, '{');
	json_text(json, "path", p->path);
	json_text(json, "member", p->member ? p->member : "");
	json_uint(json, "offset", p->offset);
	json_uint(json, "bytes", p->bytes);
	json_uint(json, "data", count_set(p, CKPT_NAME_DATA));
	json_uint(json, "refused", count_set(p, CKPT_NAME_REFUSED));
	json_uint(json, "opaque", count_set(p, CKPT_NAME_OPAQUE));
	json_bool(json, "weights_only", torch_takes(p));
	json_known(json, "torch_opcode", p->torch_op);
	if (p->code) {
		json_text(json, "code", ckpt_code_name(p->code));
		json_text(json, "error", p->error);
	}
	json_open(json, "names", '[');
	for (uint64_t i = 0; i < p->nnames; i++) {
		const struct ckpt_audit_name *n = &p->name[i];

		json_open(json, NULL, '{');
		json_text(json, "module", n->module);
		json_text(json, "name", n->name);
		json_text(json, "set", set_word(n->set));
		json_text(json, "torch", torch_word(n->torch));
		json_bool(json, "called", n->called);
		json_uint(json, "offset", n->offset);
		json_close(json, '}');
	}
	json_close(json, ']');
	json_close(json, '}');
}

static void print_json(const struct audit *audit)
{
	char *text = answer_text(audit);
	struct json json;

	json_begin(&json, stdout, "audit");
	json_bool(&json, "ok", !audit->refused && !audit->broken);
	json_text(&json, "answer", text);
	json_uint(&json, "files", audit->list.nfiles);
	json_uint(&json, "refused_calls", audit->refused);
	json_uint(&json, "unread", audit->broken);
	json_open(&json, "pickles", '[');
	for (uint64_t i = 0; i < audit->list.npickles; i++)
		json_pickle(&json, &audit->list.pickle[i]);
	json_close(&json, ']');
	json_close(&json, '}');
	cli_free(text);
}

/* ---------------------------------------------------------------- the verb */

static void report_broken(const struct audit *audit)
{
	for (uint64_t i = 0; i < audit->list.npickles; i++) {
		const struct ckpt_audit_pickle *p = &audit->list.pickle[i];
		char *where = place(p);

		if (p->code)
			cli_say("%s: could not be read to its end: %s", where, out_name(p->error));
		cli_free(where);
	}
}

static int run(struct args *args)
{
	struct audit audit = { .args = args };
	struct ckpt_err err = { 0 };
	int status = EXIT_DONE;

	if (!args->rest.n)
		return cli_wrong(&cmd_audit, "audit needs a file or folder");
	if (ckpt_audit(args->rest.list, args->rest.n, args->limits.size ? &args->limits : NULL,
		       &audit.list, &err))
		return cli_fail(args->json ? "audit" : NULL, NULL, &err);
	collect(&audit);
	if (args->json)
		print_json(&audit);
	else
		print_all(&audit);
	report_broken(&audit);
	if (audit.refused)
		status = EXIT_NO;
	else if (audit.broken)
		status = EXIT_TROUBLE;
	cli_free(audit.used);
	cli_free(audit.others);
	cli_free((void *)(uintptr_t)audit.list.pickle);
	ckpt_audit_free(&audit.list);
	return status;
}

static const struct opt own[] = {
	OPT_LIMITS,
	{ 0 },
};

const struct command cmd_audit = {
	.name = "audit",
	.run = run,
	.ranks = RANKS_EACH,
	.gist = "check whether pickles are safe and whether torch loads them",
	.synopsis = "FILE|FOLDER...",
	.about = "Says whether the pickles in files are safe to load, and lists the names that "
		 "they would call in Python: data, which builds values; refused, which no "
		 "checkpoint needs; unknown, everything else. Also says what "
		 "torch.load(weights_only=True) refuses. Executes nothing.",
	.examples = "zckpt audit pytorch_model.bin\n"
		    "zckpt audit run\n",
	.notes = "Exit 1 if a refused name is called, 3 if a pickle cannot be read to its end.",
	.tables = { own, opts_talk, NULL },
};
