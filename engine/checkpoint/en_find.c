/* en_find.c -- see en_find.h. */
#include "engine/checkpoint/en_find.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ckpt_keep.h>

#include "engine/checkpoint/en_checkpointer.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_hash.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_leftover.h"
#include "libckpt/commit/ck_stage.h"

#define MOST_NAMED 5u
#define LINE 1200

struct step_ids {
	char text[EN_RUN_TEXT];
	bool is_read;
};

struct finding {
	const struct en_find_opts *o;
	struct ckpt_steps steps;	/* of the folder to resume from */
	struct step_ids *ids;		/* of these */
	struct en_found *out;
};

static void CK_PRINTF(2, 3) say(const struct en_find_opts *o, const char *fmt, ...)
{
	char line[LINE];
	va_list args;

	if (!o->say)
		return;
	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	o->say(line);
}

/* ---- ids ---- */

/* What a run writes there, and nothing else: it is written again as it is. */
void en_run_ids(struct ckpt_values *values, char out[EN_RUN_TEXT])
{
	struct ckpt_value text;

	out[0] = 0;
	if (ckpt_value_get(values, EN_RUN_KEY, &text, NULL) || text.kind != CKPT_VALUE_STRING)
		return;
	snprintf(out, EN_RUN_TEXT, "%.*s", (int)ck_min_u64(text.n, EN_RUN_TEXT - 1),
		 (const char *)text.bytes);
	if (strspn(out, "0123456789abcdef") != EN_RUN_ID - 1 ||
	    strspn(out, "0123456789abcdef ") != strlen(out))
		out[0] = 0;
}

/* What step 'tag' says of its run: its ids, its own first, "" if nothing. */
static void read_ids(const char *dir, const char *tag, char out[EN_RUN_TEXT])
{
	const struct ckpt_open_opts oo = { .size = sizeof(oo), .tag = tag, .threads = 1 };
	struct ckpt_values *v = NULL;
	struct ckpt *ck = NULL;

	out[0] = 0;
	if (ckpt_open(&dir, 1, &oo, &ck, NULL))
		return;
	if (!ckpt_values_open(ck, 0, 0, &v, NULL)) {
		en_run_ids(v, out);
		ckpt_values_close(v);
	}
	ckpt_close(ck);
}

/* Of step 'i' of the folder to resume from, which is opened once for it. */
static const char *ids_of(const struct finding *f, uint64_t i)
{
	struct step_ids *ids = &f->ids[i];

	if (!ids->is_read)
		read_ids(f->o->from, f->steps.step[i].name, ids->text);
	ids->is_read = true;
	return ids->text;
}

/* Both have resumed the same run, or one is the other's. */
static bool are_related(const char *ids, const char *others)
{
	char id[EN_RUN_ID];

	for (const char *p = ids ? ids : ""; *p; p += strcspn(p, " "), p += *p == ' ') {
		snprintf(id, sizeof(id), "%.*s", (int)strcspn(p, " "), p);
		if (strlen(id) == EN_RUN_ID - 1 && strstr(others, id))
			return true;
	}
	return false;
}

static bool is_among(const char *ids, const char *id)
{
	return ids && id[0] && strstr(ids, id);
}

int64_t en_find_number(const char *name)
{
	static const char *const names[] = { "global_step", "checkpoint-" };
	const size_t begin = strlen(names[0]);	/* of both */
	char *end;
	int64_t n;

	if ((strncmp(name, names[0], begin) && strncmp(name, names[1], begin)) ||
	    name[begin] < '0' || name[begin] > '9')
		return -1;
	errno = 0;
	n = strtoll(name + begin, &end, 10);
	return errno || *end ? -1 : n;
}

/* Steps that a run from 'tag' leaves are whole and have a later number. */
static bool leaves_steps(const struct en_found *found, const char *tag)
{
	const int64_t mine = en_find_number(tag);

	for (uint64_t i = 0; i < found->nsteps; i++)
		if (found->step[i].whole && en_find_number(found->step[i].name) > mine)
			return true;
	return false;
}

void en_run_name(const struct en_found *found, const char *before, const char *tag,
		 const char *job, char out[EN_RUN_TEXT])
{
	const uint64_t id = ck_hash64(job, strlen(job));

	if (before && before[0] && found->same_folder && !leaves_steps(found, tag))
		snprintf(out, EN_RUN_TEXT, "%s", before);
	else if (before && before[0])
		snprintf(out, EN_RUN_TEXT, "%016" PRIx64 " %.*s", id,
			 EN_RUN_TEXT - EN_RUN_ID - 1, before);
	else
		snprintf(out, EN_RUN_TEXT, "%016" PRIx64, id);
}

/* ---- the folder that is saved to ---- */

static int list_saved(struct finding *f, const struct ckpt_steps *steps, struct ckpt_err *err)
{
	struct en_found *out = f->out;

	out->step = ck_zalloc((steps->nsteps + 1) * sizeof(*out->step));
	if (!out->step)
		return ck_fail_nomem(err, "steps", steps->nsteps);
	for (uint64_t i = 0; i < steps->nsteps; i++) {
		struct en_step_found *s = &out->step[out->nsteps++];

		snprintf(s->name, sizeof(s->name), "%s", steps->step[i].name);
		s->whole = steps->step[i].whole;
		if (steps == &f->steps)
			snprintf(s->ids, sizeof(s->ids), "%s", ids_of(f, i));
		else if (f->o->from)
			read_ids(f->o->save, s->name, s->ids);
		snprintf(s->run, sizeof(s->run), "%.*s", EN_RUN_ID - 1, s->ids);
	}
	return 0;
}

/* "global_step8, global_step4, ..." */
static void name_steps(const struct ckpt_steps *steps, char *out, size_t size)
{
	size_t n = 0;

	*out = 0;
	for (uint64_t i = 0; i < steps->nsteps && i < MOST_NAMED && n < size; i++)
		n += (size_t)snprintf(out + n, size - n, "%s%.100s", i ? ", " : "",
				      steps->step[i].name);
	if (steps->nsteps > MOST_NAMED && n < size)
		snprintf(out + n, size - n, ", ...");
}

static int fail_new_run(const char *dir, const struct ckpt_steps *steps, struct ckpt_err *err)
{
	char names[600];

	name_steps(steps, names, sizeof(names));
	return ck_fail(err, CKPT_E_EXISTS, dir, CKPT_NO_OFFSET,
		       "%" PRIu64 " step%s in this folder (%s), and this run starts at step 1: add "
				  "--resume auto, or give another --save, or --overwrite-steps",
		       steps->nsteps, steps->nsteps == 1 ? " is" : "s are", names);
}

int en_find_may_save(const struct en_find_opts *o, const struct en_found *found,
		     const char *ids, const char *name, bool *replaces_out,
		     struct ckpt_err *err)
{
	const struct en_step_found *there = NULL;
	bool foreign = false;

	*replaces_out = o->overwrite;
	for (uint64_t i = 0; i < found->nsteps; i++) {
		const struct en_step_found *s = &found->step[i];

		there = strcmp(s->name, name) ? there : s;
		foreign |= s->whole && !is_among(ids, s->run);
	}
	if (!there || o->overwrite)
		return 0;
	*replaces_out = is_among(ids, there->run) ||
			(!there->whole && !there->run[0] && !foreign);
	return *replaces_out ?
		       0 :
		       ck_fail(err, CKPT_E_EXISTS, o->save, CKPT_NO_OFFSET,
			       "%s exists, and %s: move it away, or give another --save, or "
			       "--overwrite-steps",
			       name,
			       !there->run[0] ?
				       "its run is unknown" :
			       are_related(ids, there->ids) ?
				       "it is from a branch of this run that was rolled back" :
				       "it is from another run");
}

/* ---- what a kill left ---- */

/*
 * Killed after a step was put into its place and before 'latest' named it: '*tag_out' (room for a
 * name, "" = none).  Then the partial folders go, which no save is at work in.
 */
static int tidy(struct finding *f, char tag_out[EN_FIND_NAME], struct ckpt_err *err)
{
	const struct en_find_opts *o = f->o;
	const struct ck_hash128 no_job = { 0 };
	int rc = 0;

	*tag_out = 0;
	for (uint64_t i = 0; !rc && i < f->steps.nsteps; i++) {
		char *dst = ck_asprintf("%s/%s", o->save, f->steps.step[i].name);
		bool settled = false;

		if (!dst)
			rc = ck_fail_nomem(err, "a path", 0);
		else if (!ck_stage_settle(dst, o->sync, NULL, &settled, NULL) && settled &&
			 !*tag_out)
			snprintf(tag_out, EN_FIND_NAME, "%s", f->steps.step[i].name);
		ck_free(dst);
	}
	return rc ? rc : ck_leftover_sweep(o->save, no_job, 0, o->sync, err);
}

static int point_to(const struct en_find_opts *o, const char *tag, struct ckpt_err *err)
{
	struct ckpt_open_opts oo = { .size = sizeof(oo), .tag = tag, .threads = 1 };
	struct ckpt_info info;
	struct ckpt *ck = NULL;
	int rc = ckpt_open(&o->save, 1, &oo, &ck, err);

	if (rc)
		return rc;
	ckpt_info_get(ck, &info);
	rc = ckpt_latest_set(o->save, tag, info.format && !strcmp(info.format, "universal"),
			     o->sync, err);
	ckpt_close(ck);
	return rc;
}

/* However they are written: "out", "./out/". */
static bool is_one_folder(const struct en_find_opts *o)
{
	struct stat save, from;

	return o->save && o->from && !ck_sys.stat(o->save, &save) &&
	       !ck_sys.stat(o->from, &from) && save.st_dev == from.st_dev &&
	       save.st_ino == from.st_ino;
}

int en_find_set_latest(const struct en_find_opts *o, const char *tag, struct ckpt_err *err)
{
	return is_one_folder(o) ? point_to(o, tag, err) : 0;
}

/* ---- the step to begin with ---- */

/* Of use_node_local_storage: no rank sees all of a step. */
static int refuse_ranks(const char *root, struct ckpt_err *err)
{
	char *own = ck_asprintf("%s/" EN_CHECKPOINTER_RANK "00000", root);
	struct stat st;
	int there = own ? !ck_sys.stat(own, &st) : 0;

	ck_free(own);
	return !there ? 0 :
			ck_fail(err, CKPT_E_USAGE, root, CKPT_NO_OFFSET,
				"each rank saved to a folder of its own: copy all of them to one "
				"place, run `zckpt reshard --to native rank-* NEW`, and resume "
				"from NEW");
}

static int fail_none_whole(const struct finding *f, struct ckpt_err *err)
{
	char names[600];

	name_steps(&f->steps, names, sizeof(names));
	return ck_fail(err, CKPT_E_INCOMPLETE, f->o->from, CKPT_NO_OFFSET,
		       "no step to resume: %s, and none is complete: %.300s; `zckpt ls %.200s` "
		       "lists them; to start at step 1 use an empty folder",
		       names, f->steps.step[0].why ? f->steps.step[0].why : "", f->o->from);
}

static void say_passed(const struct finding *f, uint64_t chosen)
{
	const struct ckpt_steps *s = &f->steps;
	const bool decided = s->latest >= 0 && (uint64_t)s->latest == chosen;

	if (s->latest_why)
		say(f->o, "%s: %.600s", f->o->from, s->latest_why);
	for (uint64_t i = 0; i < s->nsteps; i++) {
		const struct ckpt_step_there *t = &s->step[i];

		if (i >= chosen && (int64_t)i != s->latest)
			continue;
		if (!t->whole)
			say(f->o, "skipped %s/%s: %.600s", f->o->from, t->name, t->why);
		else if (i < chosen && decided)
			say(f->o,
			    "skipped %s/%s, although it is later: 'latest' names %s; to use the "
			    "later one: zckpt set-latest %s %s",
			    f->o->from, t->name, s->step[chosen].name, f->o->from, t->name);
	}
}

/* Where 'latest' selects no step, steps of two runs are refused: which run is meant is unknown. */
static int check_runs(const struct finding *f, uint64_t chosen, struct ckpt_err *err)
{
	const struct ckpt_step_there *step = f->steps.step;
	const int n = EN_RUN_ID - 1;
	const char *own, *run;

	if (f->steps.latest >= 0 && (uint64_t)f->steps.latest == chosen)
		return 0;
	own = ids_of(f, chosen);
	for (uint64_t i = 0; i < f->steps.nsteps; i++) {
		if (i == chosen || !step[i].whole)
			continue;
		run = ids_of(f, i);
		if (own[0] && run[0] && strncmp(own, run, (size_t)n))
			return ck_fail(err, CKPT_E_MISMATCH, f->o->from, CKPT_NO_OFFSET,
				       "%s is from run %.*s, %s from run %.*s, and 'latest' names "
				       "no complete step; choose one: zckpt set-latest %.200s TAG",
				       step[chosen].name, n, own, step[i].name, n, run, f->o->from);
	}
	return 0;
}

/* The chosen one, then those that are older and whole. */
static int list_chosen(struct finding *f, uint64_t chosen, struct ckpt_err *err)
{
	int rc = check_runs(f, chosen, err);

	if (rc)
		return rc;
	say_passed(f, chosen);
	for (uint64_t i = chosen; i < f->steps.nsteps && f->out->n < EN_FIND_MOST; i++)
		if (f->steps.step[i].whole)
			snprintf(f->out->tag[f->out->n++], EN_FIND_NAME, "%s",
				 f->steps.step[i].name);
	return 0;
}

static int choose(struct finding *f, const char *settled, struct ckpt_err *err)
{
	struct ckpt_steps *s = &f->steps;

	for (uint64_t i = 0; *settled && i < s->nsteps; i++)
		if (s->step[i].whole && !strcmp(s->step[i].name, settled))
			s->chosen = s->latest = (int64_t)i;
	if (!s->nsteps)
		return refuse_ranks(f->o->from, err);
	return s->chosen < 0 ? fail_none_whole(f, err) : list_chosen(f, (uint64_t)s->chosen, err);
}

/* Every step is opened and verified here: once, unless a settled one has changed. */
static int list_steps(struct finding *f, bool same, char settled[EN_FIND_NAME],
		      struct ckpt_err *err)
{
	int rc = ckpt_steps_list(f->o->from, NULL, NULL, &f->steps, err);

	if (!rc && same)
		rc = tidy(f, settled, err);
	if (!rc && *settled) {
		ckpt_steps_free(&f->steps);
		f->steps = (struct ckpt_steps){ .nsteps = 0 };
		rc = ckpt_steps_list(f->o->from, NULL, NULL, &f->steps, err);
	}
	if (rc)
		return rc;
	f->ids = ck_zalloc((f->steps.nsteps + 1) * sizeof(*f->ids));
	return f->ids ? 0 : ck_fail_nomem(err, "ids of runs", f->steps.nsteps);
}

static int find_steps(struct finding *f, struct ckpt_err *err)
{
	const struct en_find_opts *o = f->o;
	const bool same = is_one_folder(o);
	char settled[EN_FIND_NAME] = "";
	struct ckpt_err inner = { 0 };
	int rc = list_steps(f, same, settled, &inner);

	if (rc == -CKPT_E_NOTFOUND && !same)	/* a file, or nothing: opening it says more */
		return refuse_ranks(o->from, err);
	if (rc)
		return ck_fail(err, inner.code, inner.where, inner.offset, "%s", inner.msg);
	f->out->same_folder = same;
	rc = choose(f, settled, err);
	if (!rc && same)
		rc = list_saved(f, &f->steps, err);
	if (!rc && same && f->out->n &&
	    (f->steps.latest < 0 || f->steps.latest != f->steps.chosen || *settled))
		rc = point_to(o, f->out->tag[0], err);
	return rc;
}

/* Steps in the folder that is saved to, when nothing is resumed from it. */
static int find_others(struct finding *f, struct ckpt_err *err)
{
	const struct en_find_opts *o = f->o;
	struct ckpt_steps steps = { .nsteps = 0 };
	struct ckpt_err inner = { 0 };
	int rc = ckpt_steps_list(o->save, NULL, NULL, &steps, &inner);

	if (rc == -CKPT_E_NOTFOUND)
		return 0;
	if (rc)
		return ck_fail(err, inner.code, inner.where, inner.offset, "%s", inner.msg);
	if (steps.nsteps && !o->from && !o->overwrite)
		rc = fail_new_run(o->save, &steps, err);
	if (!rc)
		rc = list_saved(f, &steps, err);
	ckpt_steps_free(&steps);
	return rc;
}

static int find_all(const struct en_find_opts *o, struct en_found *out, struct ckpt_err *err)
{
	struct finding f = { .o = o, .out = out };
	int rc = o->from ? find_steps(&f, err) : 0;

	if (!rc && o->save && !out->same_folder)
		rc = find_others(&f, err);
	ck_free(f.ids);
	ckpt_steps_free(&f.steps);
	return rc;
}

int en_find_steps(const struct en_find_opts *opts, struct en_comm *comm, struct en_found *out,
		  struct ckpt_err *err)
{
	struct en_found found = { .n = 0 };
	struct en_step_found *step;
	int rc = comm->rank ? 0 : find_all(opts, &found, err);

	step = found.step;
	if (!rc)
		rc = en_comm_broadcast(comm, &found, sizeof(found), 0, NULL, err);
	if (!rc && comm->rank) {
		step = ck_zalloc((found.nsteps + 1) * sizeof(*step));
		rc = step ? 0 : ck_fail_nomem(err, "steps", found.nsteps);
	}
	if (!rc && found.nsteps)
		rc = en_comm_broadcast(comm, step, found.nsteps * sizeof(*step), 0, NULL, err);
	found.step = step;
	if (rc)
		en_found_release(&found);
	else
		*out = found;
	return rc;
}

void en_found_release(struct en_found *found)
{
	ck_free(found->step);
	found->step = NULL;
	found->nsteps = 0;
}
