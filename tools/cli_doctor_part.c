/*
 * cli_doctor_part.c -- doctor of one file that no reader takes by itself, a shard or an index: its
 * folder is the checkpoint.  What the folder says of that file counts.
 */
#include <string.h>

#include "cli_advice.h"
#include "cli_doctor.h"

/* The same file, whichever way its folder was written. */
static int is_file(const struct doctor *d, const char *where)
{
	const char *a = strrchr(d->path, '/'), *b = strrchr(where, '/');

	return !strcmp(a ? a + 1 : d->path, b ? b + 1 : where);
}

/* 1 if the folder has an error that is this file's. */
static int note_errors(struct doctor *d, const struct ckpt *ck, const char *next)
{
	struct ckpt_finding f;
	int bad = 0;

	for (uint64_t i = 0; !ckpt_finding_get(ck, i, &f, NULL); i++) {
		if (f.severity != CKPT_ERROR || !is_file(d, f.where))
			continue;
		doctor_note(d, f.id, f.severity, f.where, cli_strdup(f.text), cli_strdup(next));
		bad = 1;
	}
	return bad;
}

/* The reader says so, or it is the JSON beside the index. */
static int is_part(const struct doctor *d, const struct ckpt_err *why)
{
	return strstr(why->msg, "give its folder") ||
	       (strstr(why->msg, "this is a JSON file") && cli_lone_shard(d->path));
}

int doctor_part(struct doctor *d, const struct ckpt_open_opts *opts, const struct ckpt_err *why)
{
	char *above = is_part(d, why) ? advice_parent(d->path) : NULL;
	char *next = above ? cli_format("zckpt doctor %s", out_word(above)) : NULL;
	const char *path = above;
	struct ckpt_err err = { 0 };
	struct ckpt *ck = NULL;
	int is_bad = 0;

	if (!above)
		return 0;
	d->what = cli_strdup("one file of a checkpoint of many");
	if (!ckpt_open(&path, 1, opts, &ck, &err)) {
		is_bad = note_errors(d, ck, next);
	} else if (is_file(d, err.where)) {
		doctor_note(d, ckpt_code_name(err.code), CKPT_ERROR, err.where,
			    cli_strdup(err.msg), cli_strdup(err.code == CKPT_E_UNSAFE ? "" : next));
		is_bad = 1;
	}
	if (!is_bad)
		doctor_note(d, "PART_OF_STEP", CKPT_WARN, d->path, cli_strdup(why->msg),
			    cli_strdup(next));
	ckpt_close(ck);
	cli_free(above);
	cli_free(next);
	return 1;
}
