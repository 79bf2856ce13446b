/*
 * cmd_doctor.c -- `zckpt doctor`: what is this, what is wrong with it, what to do next.
 *
 * First what can be said without opening (nothing there, no permission, pointers of git-lfs,
 * remains of copies, a folder too high or too deep), then what opening finds.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cli_advice.h"
#include "cli_steps.h"

#define MAX_NOTES 200
#define DEPTH 6
#define MAX_MODELS 64	/* files of one folder that are opened */

struct note {
	const char *id;
	enum ckpt_severity severity;
	char *where, *text, *next;	/* next: a command, or "" */
};

struct doctor {
	const struct args *args;
	const char *path;
	char *what;
	struct note note[MAX_NOTES];
	size_t n, errors;
	/* of the files below */
	uint64_t pointers, empty, unreadable, remains;
	char *pointer_at, *empty_at, *unreadable_at, *remains_at;
};

static void note(struct doctor *d, const char *id, enum ckpt_severity severity,
		 const char *where, char *text, char *next)
{
	d->errors += severity == CKPT_ERROR;
	if (d->n < MAX_NOTES)
		d->note[d->n++] = (struct note){ cli_strdup(id), severity, cli_strdup(where), text,
						 next };
}

/* ---------------------------------------------------------------- the files */

static int is_pointer(const char *path)
{
	static const char magic[] = "version https://git-lfs";
	char head[sizeof(magic) - 1];
	FILE *f = fopen(path, "r");
	size_t n;

	if (!f)
		return 0;
	n = fread(head, 1, sizeof(head), f);
	fclose(f);
	return n == sizeof(head) && !memcmp(head, magic, n);
}

static int ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n > m && !strcmp(s + n - m, end);
}

/* Names under which copying programs keep what is not complete. */
static int is_remains(const char *name)
{
	static const char *const ends[] = {
		".part", ".partial", ".tmp", ".aria2", ".crdownload", ".incomplete", ".filepart",
	};
	const char *dot = strrchr(name, '.');

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (ends_with(name, ends[i]))
			return 1;
	/* rsync: ".model.pt.Xa81bC" */
	return name[0] == '.' && dot > name + 1 && strlen(dot) == 7 && strstr(name, ".pt.");
}

static void count(uint64_t *n, char **first, const char *path)
{
	if (!(*n)++)
		*first = cli_strdup(path);
}

static void scan(struct doctor *d, const char *dir, int depth)
{
	DIR *list = opendir(dir);
	const struct dirent *e;
	struct stat st;

	if (!list) {
		count(&d->unreadable, &d->unreadable_at, dir);
		return;
	}
	while ((e = readdir(list)) != NULL) {
		char *path;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		path = cli_format("%s/%s", dir, e->d_name);
		if (stat(path, &st))
			st.st_mode = 0;
		if (S_ISDIR(st.st_mode) && depth < DEPTH)
			scan(d, path, depth + 1);
		if (S_ISREG(st.st_mode)) {
			if (access(path, R_OK))
				count(&d->unreadable, &d->unreadable_at, path);
			else if (is_remains(e->d_name))
				count(&d->remains, &d->remains_at, path);
			else if (!st.st_size && (ends_with(path, ".pt") ||
						 ends_with(path, ".safetensors") ||
						 ends_with(path, ".bin")))
				count(&d->empty, &d->empty_at, path);
			else if (st.st_size < 1024 && is_pointer(path))
				count(&d->pointers, &d->pointer_at, path);
		}
		cli_free(path);
	}
	closedir(list);
}

static void tell_scan(struct doctor *d)
{
	if (d->unreadable)
		note(d, "NO_PERMISSION", CKPT_ERROR, d->unreadable_at,
		     cli_format("cannot be read by this user (files and folders like it: %" PRIu64
				")", d->unreadable),
		     cli_format("chmod -R u+rX %s", out_word(d->path)));
	if (d->pointers)
		note(d, "LFS_POINTER", CKPT_ERROR, d->pointer_at,
		     cli_format("a pointer of git-lfs, a few lines of text in place of the data "
				"(files like it: %" PRIu64 ")", d->pointers),
		     cli_strdup("git lfs pull"));
	if (d->empty)
		note(d, "FILE_EMPTY", CKPT_ERROR, d->empty_at,
		     cli_format("no bytes are in it: a full disk, or a save or copy that was cut "
				"short (files like it: %" PRIu64 ")", d->empty),
		     cli_format("zckpt latest --valid %s", out_word(d->path)));
	if (d->remains)
		note(d, "COPY_REMAINS", CKPT_WARN, d->remains_at,
		     cli_format("the name of a copy that did not end (files like it: %" PRIu64 ")",
				d->remains), cli_strdup(""));
}

static void look_at_disk(struct doctor *d)
{
	struct statvfs fs;

	if (statvfs(d->path, &fs) || !fs.f_blocks || fs.f_flag & ST_RDONLY)
		return;
	if (fs.f_bavail && fs.f_bavail >= fs.f_blocks / 200 && (!fs.f_files || fs.f_favail))
		return;
	note(d, "DISK_FULL", CKPT_WARN, d->path,
	     cli_format("%s are left on this disk: what was saved here last may be cut short",
			out_size((uint64_t)fs.f_bavail * fs.f_frsize)),
	     cli_format("zckpt ls %s", out_word(d->path)));
}

/* ---------------------------------------------------------------- the place */

/* The nearest folder above that holds a step's files or is one's root; NULL = none. */
static char *step_above(const char *path)
{
	char *dir = realpath(path, NULL), *at, *up;

	if (!dir)
		return NULL;
	at = cli_strdup(dir);
	free(dir);
	for (int i = 0; i < 4 && strcmp(at, "/"); i++) {
		up = advice_parent(at);
		cli_free(at);
		at = up;
		if (step_is_folder(at))
			return at;
	}
	cli_free(at);
	return NULL;
}

/* A folder that is no checkpoint: is one below it, or is it a part of one? */
static int look_around(struct doctor *d)
{
	struct steps steps = { 0 };
	struct stat st;
	char *above;

	if (stat(d->path, &st) || !S_ISDIR(st.st_mode))
		return 0;
	if (!steps_find(d->args, d->path, &steps) && steps.n) {
		const struct step *newest = &steps.step[steps.n - 1];

		note(d, newest->unfinished ? "UNFINISHED" : "FOLDER_TOO_HIGH",
		     CKPT_ERROR, newest->path,
		     newest->unfinished ? cli_strdup(newest->unfinished) :
		     cli_format("this folder is no checkpoint, but %zu step%s below it; this is "
				"the newest", steps.n, steps.n == 1 ? " is" : "s are"),
		     newest->unfinished ? cli_format("zckpt ls %s", out_word(d->path)) :
		     cli_format("zckpt doctor %s", out_word(newest->path)));
		steps_free(&steps);
		return 1;
	}
	steps_free(&steps);
	above = step_above(d->path);
	if (above)
		note(d, "FOLDER_TOO_DEEP", CKPT_ERROR, d->path,
		     cli_strdup("this folder is a part of the step above it"),
		     cli_format("zckpt doctor %s", out_word(above)));
	cli_free(above);
	return above != NULL;
}

/* What a run of zckpt left that was killed; "DST.zckpt-partial" and "DST.zckpt-partial.old". */
static int look_for_partial(struct doctor *d)
{
	const char *mark = strstr(d->path, ".zckpt-partial");
	char *partial, *dst;
	struct stat st;

	if (mark) {
		dst = cli_format("%.*s", (int)(mark - d->path), d->path);
		d->what = cli_strdup("what a run of zckpt left that was killed: no checkpoint yet");
		note(d, "UNFINISHED", CKPT_ERROR, d->path,
		     cli_format("the same command as before continues it and puts %s into place; "
				"the next one gives it up", out_name(dst)),
		     cli_format("zckpt commit --discard %s", out_word(dst)));
		cli_free(dst);
		return 1;
	}
	dst = cli_strdup(d->path);
	for (size_t n = strlen(dst); n > 1 && dst[n - 1] == '/';)
		dst[--n] = 0;
	partial = cli_format("%s.zckpt-partial", dst);
	if (!stat(partial, &st))
		note(d, "UNFINISHED", CKPT_WARN, partial,
		     cli_strdup("a run of zckpt to this place was killed, or is at work; the same "
				"command continues it, the next one gives it up"),
		     cli_format("zckpt commit --discard %s", out_word(dst)));
	cli_free(partial);
	cli_free(dst);
	return 0;
}

/* ---------------------------------------------------------------- opening */

/*
 * Makes 'latest' in 'root' name the newest step there that opens.  In a Trainer's folder 'root' is
 * the checkpoint-N whose 'latest' is wrong; one without such a step leaves the others.
 */
static char *point_to_good(const struct doctor *d, const char *root)
{
	struct steps steps = { 0 };
	char *text = NULL;

	if (steps_find(d->args, root, &steps))
		return advice_about("LATEST_LIES", d->path, d->path);
	for (size_t i = steps.n; i > 0 && !text; i--) {
		struct step *s = &steps.step[i - 1];
		char *dir;

		if (strchr(s->name, '/') || !strcmp(s->name, ".") || !step_is_good(d->args, s))
			continue;
		dir = cli_strdup(out_word(root));
		text = cli_format("zckpt set-latest %s %s", dir, out_word(s->name));
		cli_free(dir);
	}
	steps_free(&steps);
	return text ? text : advice_about("LATEST_LIES", d->path, d->path);
}

/* What to do about a finding. */
static char *next_of(const struct doctor *d, const struct ckpt_finding *f, const char *step)
{
	if (f->severity == CKPT_INFO)
		return cli_strdup("");
	if (!strcmp(f->id, "LATEST_ABSENT"))
		return point_to_good(d, f->where);
	if (!strcmp(f->id, "PLACEHOLDERS_ONLY") && !cli_lone_shard(d->path))
		return cli_strdup("");	/* the last line has it, as far as it is known */
	return advice_about(f->id, d->path, step);
}

static int is_folder(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* Of a file that cannot be read: the step that it is a part of. */
static char *next_of_file(const char *path)
{
	char *above = step_above(path);
	char *next = above ? cli_format("zckpt doctor %s", out_word(above)) : cli_strdup("");

	cli_free(above);
	return next;
}

/* A file with nothing in it, or a pointer, is damaged: that is the same fault once more. */
static int is_noted(const struct doctor *d, const char *id, const char *where)
{
	for (size_t i = 0; i < d->n; i++)
		if ((!strcmp(id, "FILE_DAMAGED") || !strcmp(id, "CKPT_E_FORMAT")) &&
		    !strcmp(d->note[i].where, where) && d->note[i].severity == CKPT_ERROR)
			return 1;
	return 0;
}

/* "LATEST_LIES: text" -> its name and text; else the name of the code. */
static void note_failure(struct doctor *d, const struct ckpt_err *err)
{
	size_t n = strspn(err->msg, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
	int named = n > 3 && err->msg[n] == ':';
	char *id = named ? cli_format("%.*s", (int)n, err->msg) :
		   cli_strdup(ckpt_code_name(err->code));
	const char *text = named ? err->msg + n + 1 + strspn(err->msg + n + 1, " ") : err->msg;
	char *step = cli_format("%s%s", d->path, step_is_folder(d->path) ? "" : "/step");
	char *next = !strcmp(id, "LATEST_LIES") ?
		     point_to_good(d, *err->where ? err->where : d->path) :
		     is_folder(d->path) || err->code == CKPT_E_UNSAFE ?
		     advice_about(id, d->path, step) : next_of_file(d->path);

	/* no command of ours helps, and there is no step below: look_around() */
	if (err->code == CKPT_E_LAYOUT || err->code == CKPT_E_UNSUPPORTED ||
	    !strcmp(id, "CKPT_E_FORMAT")) {
		cli_free(next);
		next = cli_strdup("");
	}
	if (is_noted(d, id, err->where))
		cli_free(next);
	else
		note(d, id, CKPT_ERROR, err->where, cli_strdup(text), next);
	cli_free(step);
	cli_free(id);
}

static void note_findings(struct doctor *d, const struct ckpt *ck, const char *step)
{
	struct ckpt_finding f;

	for (uint64_t i = 0; !ckpt_finding_get(ck, i, &f, NULL); i++)
		if ((f.severity != CKPT_INFO || d->args->verbose) && !is_noted(d, f.id, f.where))
			note(d, f.id, f.severity, f.where, cli_strdup(f.text),
			     next_of(d, &f, step));
}

/* ", of the entry 'model' of a training file", or "". */
static char *say_entry(const struct ckpt *ck)
{
	const char *key, *value;

	for (uint64_t i = 0; !ckpt_fact_get(ck, i, &key, &value, NULL); i++)
		if (!strcmp(key, "subtree"))
			return cli_format(" of the entry %s of a training file", out_name(value));
	return cli_strdup("");
}

static char *say_what(const struct ckpt *ck, const struct ckpt_info *info)
{
	char *what, *entry = say_entry(ck);

	if (info->stage >= 0)
		what = cli_format("a step of DeepSpeed (%s), ZeRO stage %" PRId32 ", %" PRIu32
				  " rank%s, step %" PRId64 ", tag %s", info->format, info->stage,
				  info->world, info->world == 1 ? "" : "s", info->step,
				  out_name(info->tag));
	else
		what = cli_format("%s, %" PRIu64 " tensor%s%s, %s", info->format, info->ntensors,
				  info->ntensors == 1 ? "" : "s",
				  entry, out_size(info->file_bytes));
	cli_free(entry);
	return what;
}

/* Model files as transformers and PEFT call them. */
static int is_model_file(const char *name)
{
	return (!strncmp(name, "model", 5) && ends_with(name, ".safetensors")) ||
	       (!strncmp(name, "pytorch_model", 13) && ends_with(name, ".bin")) ||
	       !strcmp(name, "adapter_model.safetensors") || !strcmp(name, "adapter_model.bin");
}

/* A model file beside a step: what its user came for, if it holds placeholders only. */
static void look_at_model(struct doctor *d, const char *path)
{
	struct ckpt_open_opts opts;
	struct ckpt_err err = { 0 };
	struct ckpt *ck = NULL;
	struct ckpt_finding f;

	cli_open_opts(d->args, &opts);
	opts.tag = NULL;
	if (ckpt_open(&path, 1, &opts, &ck, &err))
		return;
	for (uint64_t i = 0; !ckpt_finding_get(ck, i, &f, NULL); i++)
		if (!strcmp(f.id, "PLACEHOLDERS_ONLY"))
			note(d, f.id, f.severity, f.where, cli_strdup(f.text),
			     cli_format("zckpt convert %s model.safetensors", out_word(d->path)));
	ckpt_close(ck);
}

static void look_in_folder(struct doctor *d, const char *dir)
{
	struct dirent **list = NULL;
	const int n = scandir(dir, &list, NULL, alphasort);
	int seen = 0;

	for (int i = 0; i < n; i++) {
		char *path = cli_format("%s/%s", dir, list[i]->d_name);

		if (is_model_file(list[i]->d_name) && seen++ < MAX_MODELS)
			look_at_model(d, path);
		cli_free(path);
		free(list[i]);
	}
	free(list);
}

/* In the folder of the step, in the one above, where trainers put models, and where we are. */
static void look_beside(struct doctor *d, const char *step)
{
	char *up = advice_parent(step), *dir[] = { (char *)d->path, up, (char *)step };
	struct stat seen[3];
	size_t n = 0;

	for (size_t i = 0; i < 3; i++) {
		size_t k = 0;

		if (stat(dir[i], &seen[n]))
			continue;
		while (k < n && (seen[k].st_dev != seen[n].st_dev ||
				 seen[k].st_ino != seen[n].st_ino))
			k++;
		if (k < n || !S_ISDIR(seen[n].st_mode))
			continue;
		n++;
		look_in_folder(d, dir[i]);
	}
	cli_free(up);
}

/* 0, or 1 if it cannot be opened. */
static int look_inside(struct doctor *d, char **next_out)
{
	struct ckpt_open_opts opts;
	struct ckpt_err err = { 0 };
	struct ckpt *ck = NULL;
	struct ckpt_info info;

	cli_open_opts(d->args, &opts);
	if (ckpt_open(&d->path, 1, &opts, &ck, &err)) {
		if (err.code != CKPT_E_FORMAT || !look_around(d))
			note_failure(d, &err);
		return 1;
	}
	ckpt_info_get(ck, &info);
	d->what = say_what(ck, &info);
	note_findings(d, ck, info.path);
	if (info.stage >= 0)
		look_beside(d, info.path);
	*next_out = advice_next(d->args, d->path, ck);
	ckpt_close(ck);
	return 0;
}

/* ---------------------------------------------------------------- telling */

static void print_all(const struct doctor *d, const char *next)
{
	printf("%s: %s\n", out_name(d->path), d->what ? d->what : "no checkpoint as it is");
	for (size_t i = 0; i < d->n; i++) {
		const struct note *n = &d->note[i];

		printf("  %s %s: %s%s%s\n", out_severity(n->severity), n->id, out_name(n->where),
		       n->where[0] ? ": " : "", out_name(n->text));
		/* once for all that it helps against */
		if (n->next[0] && (i + 1 == d->n || strcmp(n->next, n[1].next)))
			printf("    next: %s\n", n->next);
	}
	if (!d->n)
		printf("  nothing is wrong that can be seen without reading the tensors "
		       "(zckpt verify --full %s)\n", out_word(d->path));
	if (next && !d->errors)
		printf("next: %s\n", next);
	else if (next)
		printf("then: %s\n", next);
}

static void print_json(const struct doctor *d, const char *next)
{
	struct json json;

	json_begin(&json, stdout, "doctor");
	json_bool(&json, "ok", !d->errors);
	json_text(&json, "path", d->path);
	json_text(&json, "what", d->what ? d->what : "");
	json_open(&json, "findings", '[');
	for (size_t i = 0; i < d->n; i++) {
		json_open(&json, NULL, '{');
		json_text(&json, "id", d->note[i].id);
		json_text(&json, "severity", out_severity(d->note[i].severity));
		json_text(&json, "where", d->note[i].where);
		json_text(&json, "text", d->note[i].text);
		json_text(&json, "next", d->note[i].next);
		json_close(&json, '}');
	}
	json_close(&json, ']');
	json_text(&json, "next", next ? next : "");
	json_close(&json, '}');
}

static int examine(struct doctor *d, char **next_out)
{
	struct stat st;

	if (look_for_partial(d))
		return EXIT_NO;
	if (stat(d->path, &st)) {
		char *up = advice_parent(d->path);

		note(d, errno == EACCES ? "NO_PERMISSION" : "CKPT_E_NOTFOUND", CKPT_ERROR, d->path,
		     cli_strdup(strerror(errno)), cli_format("zckpt ls %s", out_word(up)));
		cli_free(up);
		return EXIT_TROUBLE;
	}
	look_at_disk(d);
	if (S_ISDIR(st.st_mode))
		scan(d, d->path, 0);
	else if (access(d->path, R_OK))
		count(&d->unreadable, &d->unreadable_at, d->path);
	else if (st.st_size < 1024 && is_pointer(d->path))
		count(&d->pointers, &d->pointer_at, d->path);
	tell_scan(d);
	if (d->unreadable || (d->pointers && !S_ISDIR(st.st_mode)))
		return d->unreadable ? EXIT_TROUBLE : EXIT_NO;
	look_inside(d, next_out);
	return d->errors ? EXIT_NO : EXIT_DONE;
}

static int run(struct args *args)
{
	struct doctor *d;
	char *next = NULL;
	int status;

	if (args->rest.n != 1)
		return cli_wrong(&cmd_doctor, "doctor needs one file or folder");
	d = cli_alloc(sizeof(*d));
	d->args = args;
	d->path = args->rest.list[0];
	status = examine(d, &next);
	if (args->json)
		print_json(d, next);
	else
		print_all(d, next);
	return status;
}

const struct command cmd_doctor = {
	.name = "doctor",
	.run = run,
	.ranks = RANKS_EACH,
	.gist = "what is this, what is wrong, what to do next",
	.synopsis = "PATH",
	.about = "Looks at a file or folder that does not work: what it is, what is wrong with it, "
		 "and the next command where one helps. PATH may be anything: a lone shard, a "
		 "pointer of git-lfs, a half copied folder, what a killed run left, a folder too "
		 "high or too deep. Changes nothing.",
	.examples = "zckpt doctor run\n"
		    "zckpt doctor model.safetensors\n",
	.notes = "Exit 0 if nothing is wrong, 1 if something is, 3 if it cannot be looked at.",
	.tables = { opts_source, opts_talk, NULL },
};
