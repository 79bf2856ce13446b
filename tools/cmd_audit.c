/* cmd_audit.c -- `zckpt audit`: the names that pickles use, and what torch would say of them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* One name over all pickles. */
struct used {
	const struct ckpt_audit_name *name;
	int called;
	uint64_t pickles;
};

struct audit {
	const struct args *args;
	struct ckpt_audit list;
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

/* ---------------------------------------------------------------- for people */

static char *place(const struct ckpt_audit_pickle *p)
{
	char at[40] = "";

	if (p->offset)
		snprintf(at, sizeof(at), " at byte %" PRIu64, p->offset);
	return cli_format("%s%s%s%s", out_name(p->path), p->member ? "!" : "",
			  p->member ? out_name(p->member) : "", at);
}

static void print_pickles(const struct audit *audit)
{
	struct table table = { .align = "rrrll" };

	table_add(&table, (const char *const[]){ "DATA", "REFUSED", "OPAQUE", "WEIGHTS_ONLY",
						 "PICKLE" });
	for (uint64_t i = 0; i < audit->list.npickles; i++) {
		const struct ckpt_audit_pickle *p = &audit->list.pickle[i];
		char data[24], refused[24], opaque[24], *where = place(p);

		snprintf(data, sizeof(data), "%" PRIu64, count_set(p, CKPT_NAME_DATA));
		snprintf(refused, sizeof(refused), "%" PRIu64, count_set(p, CKPT_NAME_REFUSED));
		snprintf(opaque, sizeof(opaque), "%" PRIu64, count_set(p, CKPT_NAME_OPAQUE));
		table_add(&table, (const char *const[]){ data, refused, opaque,
							 torch_takes(p) ? "loads" : "refuses",
							 where });
		cli_free(where);
	}
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
		printf("  opcode 0x%02x, which torch.save does not write: no "
		       "add_safe_globals() helps (%s)\n", (unsigned)p->torch_op,
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

	if (!audit->list.npickles)
		return;
	printf("\ntorch.load(weights_only=True), the default since torch 2.6, ");
	if (!audit->torch_refuses) {
		printf("loads %s\n", audit->list.npickles == 1 ? "it" : "all of them");
		return;
	}
	printf("refuses %" PRIu64 " of %" PRIu64 " pickle%s\n", audit->torch_refuses,
	       audit->list.npickles, out_plural(audit->list.npickles));
	for (size_t i = 0; i < audit->nused; i++) {
		const struct ckpt_audit_name *n = audit->used[i].name;

		if (n->torch == CKPT_TORCH_NEVER)
			printf("  never  %s.%s\n", out_name(n->module), out_name(n->name));
		asks += n->torch == CKPT_TORCH_ASKS;
	}
	print_torch_ops(audit);
	if (asks)
		printf("  it asks for torch.serialization.add_safe_globals([...]) with\n");
	for (size_t i = 0; i < audit->nused; i++) {
		const struct ckpt_audit_name *n = audit->used[i].name;

		if (n->torch == CKPT_TORCH_ASKS)
			printf("    %s.%s%s\n", out_name(n->module), out_name(n->name),
			       is_harmful(n) ? "  (do not)" : "");
	}
}

static void print_all(const struct audit *audit)
{
	if (!audit->list.npickles) {
		printf("no pickle: nothing in here can call anything\n");
		return;
	}
	if (!audit->args->quiet)
		print_pickles(audit);
	print_set(audit, CKPT_NAME_REFUSED, "refused: no checkpoint needs them, an attacker does");
	if (!audit->args->quiet)
		print_set(audit, CKPT_NAME_OPAQUE, "opaque: kept by name, never run");
	if (audit->args->verbose)
		print_set(audit, CKPT_NAME_DATA, "data: they build values");
	if (!audit->args->quiet)
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
	struct json json;

	json_begin(&json, stdout, "audit");
	json_bool(&json, "ok", !audit->refused && !audit->broken);
	json_uint(&json, "files", audit->list.nfiles);
	json_uint(&json, "refused_calls", audit->refused);
	json_uint(&json, "unread", audit->broken);
	json_open(&json, "pickles", '[');
	for (uint64_t i = 0; i < audit->list.npickles; i++)
		json_pickle(&json, &audit->list.pickle[i]);
	json_close(&json, ']');
	json_close(&json, '}');
}

/* ---------------------------------------------------------------- the verb */

static void tell_broken(const struct audit *audit)
{
	for (uint64_t i = 0; i < audit->list.npickles; i++) {
		const struct ckpt_audit_pickle *p = &audit->list.pickle[i];
		char *where = place(p);

		if (p->code)
			cli_say("%s: not read to its end: %s", where, out_name(p->error));
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
	tell_broken(&audit);
	if (audit.refused) {
		cli_say("%" PRIu64 " refused name%s called: do not load this with torch.load",
			audit.refused, audit.refused == 1 ? " is" : "s are");
		status = EXIT_NO;
	} else if (audit.broken) {
		status = EXIT_TROUBLE;
	}
	cli_free(audit.used);
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
	.gist = "the names that pickles use, and whether torch would load them",
	.synopsis = "FILE|FOLDER...",
	.about = "Lists what the pickles of files would call in Python, in three sets: data, which "
		 "builds values; refused, which no checkpoint needs; opaque, everything else. And "
		 "what torch.load(weights_only=True) would say. Executes nothing.",
	.examples = "zckpt audit pytorch_model.bin\n"
		    "zckpt audit run\n",
	.notes = "Exit 1 if a refused name is called, 3 if a pickle cannot be read to its end.",
	.tables = { own, opts_talk, NULL },
};
