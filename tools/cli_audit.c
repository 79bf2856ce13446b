/* cli_audit.c -- see cli_audit.h. */
#include "cli_audit.h"

#include <string.h>

#define IS "this is "

static const char safetensors[] = "a safetensors file";

/*
 * What the file is, or NULL: then it counts as a pickle that is broken.  .npy is not in the list,
 * as it may hold one.
 */
static const char *kind_of(const char *path)
{
	static const char *const kinds[] = { "a text file", "a JSON file", "a GGUF file" };
	const struct ckpt_open_opts opts = { .size = sizeof(opts), .threads = 1 };
	struct ckpt_err err = { 0 };
	struct ckpt_info info;
	struct ckpt *ck = NULL;
	const char *what = NULL, *at;

	if (!ckpt_open(&path, 1, &opts, &ck, &err)) {
		ckpt_info_get(ck, &info);
		what = strcmp(info.format, "safetensors") ? NULL : safetensors;
		ckpt_close(ck);
		return what;
	}
	at = err.code == CKPT_E_FORMAT ? strstr(err.msg, IS) : NULL;
	for (size_t i = 0; at && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strncmp(at + strlen(IS), kinds[i], strlen(kinds[i])))
			what = kinds[i];
	return what;
}

/* A file of this name is loaded as a pickle, whatever is in it now. */
static int is_pickle_name(const char *path)
{
	static const char *const ends[] = {
		".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".p", ".th",
	};
	const size_t n = strlen(path);

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (n > strlen(ends[i]) && !strcmp(path + n - strlen(ends[i]), ends[i]))
			return 1;
	return 0;
}

/* Its first bytes are those of no pickle: nothing was met that could be called. */
static int is_candidate(const struct ckpt_audit_pickle *p)
{
	return !p->member && !p->offset && !p->nnames &&
	       (p->code == CKPT_E_CORRUPT || p->code == CKPT_E_TRUNCATED);
}

static int is_other(const struct ckpt_audit_pickle *p, struct other *out)
{
	const char *what = is_candidate(p) ? kind_of(p->path) : NULL;

	/* of a text another error than its first byte may be a cut pickle of protocol 0 */
	if (!what || (what != safetensors && !strstr(p->error, "not an opcode") &&
		      strncmp(p->error, "byte 0:", 7)))
		return 0;
	*out = (struct other){ p->path, what, what == safetensors || !is_pickle_name(p->path) };
	return 1;
}

size_t audit_take_others(struct ckpt_audit *list, struct other **out)
{
	struct ckpt_audit_pickle *left = cli_alloc((list->npickles + 1) * sizeof(*left));
	struct other *others = cli_alloc((list->npickles + 1) * sizeof(*others));
	size_t nleft = 0, n = 0;

	for (uint64_t i = 0; i < list->npickles; i++) {
		if (is_other(&list->pickle[i], &others[n]))
			n++;
		else
			left[nleft++] = list->pickle[i];
	}
	list->pickle = left;
	list->npickles = nleft;
	*out = others;
	return n;
}

char *audit_say_other(const struct other *o)
{
	if (o->what == safetensors)
		return cli_format("safe: %s is %s, which has no pickle", out_name(o->path),
				  o->what);
	return cli_format("%s%s is %s, not a pickle", o->is_fine ? "" : "NOT checked: ",
			  out_name(o->path), o->what);
}
