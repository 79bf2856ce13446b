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

#include "cli_doctor.h"
#include "cli_findings.h"
#include "cli_lora.h"
#include "cli_steps.h"
#include "cli_view.h"

static const char again[] = "copy the files named above again; no other step here is complete";

#define MAX_MODELS 64	/* files of one folder that are opened */

/* ---------------------------------------------------------------- the place */

static void look_at_disk(struct doctor *d)
{
	struct statvfs fs;

	if (statvfs(d->path, &fs) || !fs.f_blocks || fs.f_flag & ST_RDONLY)
		return;
	if (fs.f_bavail && fs.f_bavail >= fs.f_blocks / 200 && (!fs.f_files || fs.f_favail))
		return;
	doctor_note(d, "DISK_FULL", CKPT_WARN, d->path,
		    cli_format("%s free on this disk: the last save here may be cut short",
			       out_size((uint64_t)fs.f_bavail * fs.f_frsize)),
		    cli_format("zckpt ls %s", out_word(d->path)));
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

		doctor_note(d, newest->unfinished ? "UNFINISHED" : "FOLDER_TOO_HIGH",
			    CKPT_ERROR, newest->path,
			    newest->unfinished ? cli_strdup(newest->unfinished) :
			    steps.n == 1 ? cli_strdup("the only step below this folder") :
			    cli_format("the newest of %zu steps below this folder", steps.n),
			    newest->unfinished ? cli_format("zckpt ls %s", out_word(d->path)) :
			    cli_format("zckpt doctor %s", out_word(newest->path)));
		steps_free(&steps);
		return 1;
	}
	steps_free(&steps);
	above = advice_above(d->path);
	if (above)
		doctor_note(d, "FOLDER_TOO_DEEP", CKPT_ERROR, d->path,
			    cli_strdup("this folder is part of the step above it"),
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

	if (mark && !stat(d->path, &st)) {
		dst = cli_format("%.*s", (int)(mark - d->path), d->path);
		d->what = cli_strdup("the unfinished output of a zckpt run");
		doctor_note(d, "UNFINISHED", CKPT_ERROR, d->path,
			    cli_format("repeat the interrupted command to finish %s, or discard:",
				       out_name(dst)),
			    cli_format("zckpt commit --discard %s", out_word(dst)));
		cli_free(dst);
		return 1;
	}
	dst = cli_strdup(d->path);
	for (size_t n = strlen(dst); n > 1 && dst[n - 1] == '/';)
		dst[--n] = 0;
	partial = cli_format("%s.zckpt-partial", dst);
	if (!stat(partial, &st))
		doctor_note(d, "UNFINISHED", CKPT_WARN, partial,
			    cli_strdup("a zckpt run to this place was interrupted or still runs; "
				       "repeat its command to finish, or discard it:"),
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
	int good = 0;

	if (steps_find(d->args, root, &steps))
		return advice_about("LATEST_LIES", d->path, d->path);
	for (size_t i = steps.n; i > 0 && !text; i--) {
		struct step *s = &steps.step[i - 1];
		char *dir;

		if (!step_is_good(d->args, s))
			continue;
		good = 1;
		if (strchr(s->name, '/') || !strcmp(s->name, ".") ||
		    !step_takes_latest(s->format))
			continue;
		dir = cli_strdup(out_word(root));
		text = cli_format("zckpt set-latest %s %s", dir, out_word(s->name));
		cli_free(dir);
	}
	steps_free(&steps);
	/* --valid finds one below, or beside a Trainer's folder */
	return text ? text : good || strcmp(root, d->path) != 0 ?
	       advice_about("LATEST_LIES", d->path, d->path) :
	       cli_strdup("");
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
	return advice_ends_save(f->where) ? cli_format("zckpt explain %s", f->id) :
					    advice_about(f->id, d->path, step);
}

static int is_folder(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* Of a file that cannot be read: the step that it is a part of. */
static char *next_of_file(const char *path)
{
	char *above = advice_above(path);
	char *next = above ? cli_format("zckpt doctor %s", out_word(above)) : cli_strdup("");

	cli_free(above);
	return next;
}

/* A file with nothing in it, or a pointer, is damaged: that is the same fault once more. */
static int is_noted(const struct doctor *d, const char *id, const char *where)
{
	for (size_t i = 0; i < d->n; i++)
		if ((!strcmp(id, "FILE_DAMAGED") || !strcmp(id, "CKPT_E_FORMAT") ||
		     !strcmp(id, "CKPT_E_TRUNCATED")) &&
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
		     advice_ends_save(err->where) ? cli_format("zckpt explain %s", id) :
		     is_folder(d->path) || err->code == CKPT_E_UNSAFE ?
		     advice_about(id, d->path, step) : next_of_file(d->path);

	if (!next[0] && !strcmp(id, "LATEST_LIES"))	/* there is no step to name */
		next = cli_strdup("zckpt explain LATEST_LIES");
	/* no command of ours helps, and there is no step below: look_around() */
	if (err->code == CKPT_E_LAYOUT || err->code == CKPT_E_UNSUPPORTED ||
	    !strcmp(id, "CKPT_E_FORMAT")) {
		cli_free(next);
		next = advice_try(err);
		if (!next)
			next = cli_strdup("");
	}
	if (!*next && advice_unpack(err))
		next = advice_unpack(err);
	if (is_noted(d, id, err->where))
		cli_free(next);
	else
		doctor_note(d, id, CKPT_ERROR, err->where,
			    cli_format("%.*s", (int)advice_try_at(text), text), next);
	cli_free(step);
	cli_free(id);
}

static void note_findings(struct doctor *d, const struct ckpt *ck, const char *step)
{
	struct ckpt_finding f;

	for (uint64_t i = 0; !ckpt_finding_get(ck, i, &f, NULL); i++)
		if ((f.severity != CKPT_INFO || d->args->verbose) && !is_noted(d, f.id, f.where))
			doctor_note(d, f.id, f.severity, f.where, cli_strdup(f.text),
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

static const char *form_of(const char *format)
{
	static const char *const words[][2] = {
		{ "deepspeed", "DeepSpeed checkpoint" },
		{ "universal", "universal checkpoint of DeepSpeed" },
		{ "native", "native checkpoint of zckpt" },
		{ "huggingface", "Hugging Face model" },
		{ "torch", "torch file" }, { "safetensors", "safetensors file" },
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strcmp(format, words[i][0]))
			return words[i][1];
	return format;
}

static char *say_what(const struct ckpt *ck, const struct ckpt_info *info)
{
	const char *layout = view_layout(ck), *text = layout ? out_name(layout) : "";
	char *what, *entry = say_entry(ck);

	if (info->stage >= 0)
		what = cli_format("%s, stage %" PRId32 ", %" PRIu32 " rank%s%s%s, step %s, tag %s",
				  form_of(info->format), info->stage, info->world,
				  info->world == 1 ? "" : "s", layout ? ", " : "", text,
				  info->step < 0 ? "unknown" :
				  cli_format("%" PRId64, info->step), out_name(info->tag));
	else
		what = cli_format("%s, %" PRIu64 " tensor%s%s%s%s, %s", form_of(info->format),
				  info->ntensors,
				  info->ntensors == 1 ? "" : "s",
				  entry, layout ? ", " : "", text, out_size(info->file_bytes));
	cli_free(entry);
	return what;
}

static int ends_with(const char *s, const char *end)
{
	const size_t n = strlen(s), m = strlen(end);

	return n > m && !strcmp(s + n - m, end);
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
			doctor_note(d, f.id, f.severity, f.where, cli_strdup(f.text),
				    cli_format("zckpt convert %s model.safetensors",
					       out_word(d->path)));
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

/* Each error has a command of its own. */
static int has_next(const struct doctor *d)
{
	for (size_t i = 0; i < d->n; i++)
		if (d->note[i].severity == CKPT_ERROR && !d->note[i].next[0])
			return 0;
	return 1;
}

static int has_note(const struct doctor *d, const char *id)
{
	for (size_t i = 0; i < d->n; i++)
		if (!strcmp(d->note[i].id, id))
			return 1;
	return 0;
}

/* With errors that have a command of their own only another step is worth a line. */
static char *last_line(struct doctor *d, const char *step, struct ckpt *ck)
{
	char *text;

	if (!d->errors || has_note(d, "PLACEHOLDERS_ONLY") || cli_lone_shard(d->path))
		return advice_next(d->args, d->path, ck);
	text = advice_complete(d->args, d->path, step);
	if (text)
		return text;
	if (has_next(d)) {
		d->has_next = 1;
		return advice_next(d->args, d->path, ck);
	}
	return cli_strdup(again);
}

/* Like every verb: a folder with one checkpoint below it means that one. */
static int open_it(struct doctor *d, const struct ckpt_open_opts *opts, struct ckpt **ck,
		   struct ckpt_err *err)
{
	const char *only;
	int rc = ckpt_open(&d->path, 1, opts, ck, err);

	if (!rc || err->code != CKPT_E_FORMAT)
		return rc;
	only = advice_only_below(d->args, d->path);
	if (!only || ckpt_open(&only, 1, opts, ck, NULL))
		return rc;
	cli_say("using %s, the only checkpoint below %s", out_name(only), out_name(d->path));
	d->path = only;
	return 0;
}

/* 0, or 1 if it cannot be opened. */
static int look_inside(struct doctor *d, char **next_out)
{
	struct ckpt_open_opts opts;
	struct ckpt_err err = { 0 };
	struct ckpt *ck = NULL;
	struct ckpt_info info;
	char *adapter;

	cli_open_opts(d->args, &opts);
	if (open_it(d, &opts, &ck, &err)) {
		if (doctor_part(d, &opts, &err))
			return 1;
		if (err.code == CKPT_E_LAYOUT || err.code == CKPT_E_UNSUPPORTED ||
		    strstr(err.msg, "zckpt does not read"))
			d->what = cli_strdup("a checkpoint that zckpt does not read");
		else if (err.code != CKPT_E_FORMAT)
			d->what = cli_strdup("cannot be opened as a checkpoint");
		if (err.code != CKPT_E_FORMAT || !look_around(d))
			note_failure(d, &err);
		if (err.code == CKPT_E_INCOMPLETE || err.code == CKPT_E_CORRUPT ||
		    err.code == CKPT_E_TRUNCATED || !strncmp(err.msg, "FILE_DAMAGED:", 13))
			*next_out = advice_complete(d->args, d->path, NULL);
		if (!*next_out && (err.code == CKPT_E_TRUNCATED || err.code == CKPT_E_CORRUPT))
			*next_out = cli_strdup(is_folder(d->path) && step_leads_to_one(d->path) ?
					       again : "copy the damaged file again");
		return 1;
	}
	ckpt_info_get(ck, &info);
	d->what = say_what(ck, &info);
	adapter = lora_text(d->path);
	if (adapter)
		d->what = cli_format("%s, %" PRIu64 " tensor%s, %s", adapter, info.ntensors,
				     out_plural(info.ntensors), out_size(info.file_bytes));
	d->world = info.world;
	note_findings(d, ck, info.path);
	if (info.stage >= 0)
		look_beside(d, info.path);
	*next_out = last_line(d, info.path, ck);
	ckpt_close(ck);
	return 0;
}

/* ---------------------------------------------------------------- output */

/* The notes as lines: those of one cause are one. */
static size_t fold_notes(const struct doctor *d, struct folded **line)
{
	struct ckpt_finding *list = cli_alloc((d->n + 1) * sizeof(*list));
	size_t n;

	for (size_t i = 0; i < d->n; i++)
		list[i] = (struct ckpt_finding){
			.id = d->note[i].id, .severity = d->note[i].severity,
			.where = d->note[i].where, .text = d->note[i].text,
		};
	if (!d->args->verbose)
		return findings_fold(list, d->n, d->world, line);
	*line = cli_alloc((d->n + 1) * sizeof(**line));
	for (n = 0; n < d->n; n++)
		(*line)[n] = (struct folded){ list[n], n, 1 };
	return n;
}

static void print_notes(const struct doctor *d)
{
	struct folded *line;
	size_t n = fold_notes(d, &line);

	for (size_t i = 0; i < n; i++) {
		const struct ckpt_finding *f = &line[i].f;
		const char *next = d->note[line[i].first].next;

		if (!d->args->verbose && i == FINDINGS_SHOWN) {
			printf("  %zu more findings; -v lists them\n", n - i);
			break;
		}
		printf("  %s %s%s%s%s\n", out_severity(f->severity), out_id(f->id),
		       out_name(f->where), f->where[0] ? ": " : "", out_name(f->text));
		/* once for all that it helps against */
		if (next[0] && (i + 1 == n || strcmp(next, d->note[line[i + 1].first].next)))
			printf("next: %s\n", next);
	}
}

/* Whether the command is that of a note. */
static int is_printed(const struct doctor *d, const char *next)
{
	for (size_t i = 0; i < d->n; i++)
		if (d->note[i].next[0] && strstr(next, d->note[i].next))
			return 1;
	return 0;
}

static void print_all(const struct doctor *d, const char *next)
{
	printf("%s: %s\n", out_name(d->path), d->what ? d->what : "not a checkpoint");
	print_notes(d);
	if (!d->n)
		printf("  no errors found; to read every byte too: zckpt verify --full %s\n",
		       out_word(d->path));
	if (next && next[0] && !d->has_next && !is_printed(d, next))
		printf("next: %s\n", next);
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
		const int why = errno;

		d->what = cli_strdup("cannot be examined");
		doctor_note(d, why == EACCES ? "NO_PERMISSION" : "CKPT_E_NOTFOUND", CKPT_ERROR,
			    d->path,
			    cli_strdup(why == EACCES ? "no permission to examine" : steps_why(why)),
			    why == ENOENT ? advice_nearby(d->args, d->path) : cli_strdup(""));
		return EXIT_TROUBLE;
	}
	look_at_disk(d);
	doctor_scan(d, S_ISDIR(st.st_mode), (uint64_t)st.st_size);
	if (d->unreadable)
		d->what = cli_strdup("cannot be read");
	if (d->unreadable || (d->pointers && !S_ISDIR(st.st_mode)))
		return d->unreadable ? EXIT_TROUBLE : EXIT_NO;
	look_inside(d, next_out);
	return d->errors ? EXIT_NO : EXIT_DONE;
}

static char *call_of_verify(const struct args *args)
{
	char *text = cli_strdup("zckpt verify");

	for (size_t i = 0; i < args->rest.n; i++)
		text = cli_format("%s %s", text, out_word(args->rest.list[i]));
	return text;
}

static int run(struct args *args)
{
	struct doctor *d;
	char *next = NULL;
	int status;

	if (args->rest.n > 1)
		return cli_try(&cmd_doctor, call_of_verify(args),
			       "doctor looks at one file or folder; verify takes several together");
	if (!args->rest.n)
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
	.gist = "find what a path is, what is wrong and what to do next",
	.synopsis = "PATH",
	.about = "Looks at a file or folder that does not work: what it is, what is wrong with it, "
		 "and the next command where one helps. PATH may be anything: a lone shard, a "
		 "pointer of git-lfs, a half copied folder, what a killed run left, a folder too "
		 "high or too deep. Changes nothing.",
	.examples = "zckpt doctor run\n"
		    "zckpt doctor model.safetensors\n",
	.notes = "Exit 0 if nothing is wrong, 1 if something is, 3 if the path cannot be "
		"examined.",
	.tables = { opts_source, opts_talk, NULL },
};
