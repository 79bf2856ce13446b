/* shelf.c -- see shelf.h: the steps of a path, opened when they are needed. */
#include "shelf.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "../cli_advice.h"

#define MOST_OPEN 16	/* steps; more only while all have users */

const char *const shelf_form_name[SHELF_FORMS] = { "", "fp32", "bf16", "fp16", "state" };

/* ---------------------------------------------------------------- the steps of a path */

/* The top folder of "checkpoint-2/global_step2" if no other step has it, else all with '_'. */
static char *name_of(const struct steps *steps, size_t number)
{
	const char *name = steps->step[number].name;
	const size_t top = strcspn(name, "/");
	size_t same = 0;
	char *flat;

	for (size_t i = 0; i < steps->n; i++)
		same += strcspn(steps->step[i].name, "/") == top &&
			!strncmp(steps->step[i].name, name, top);
	if (same == 1)
		return cli_format("%.*s", (int)top, name);
	flat = cli_strdup(name);
	for (char *at = flat; (at = strchr(at, '/'));)
		*at = '_';
	return flat;
}

static void add_step(struct shelf *shelf, char *name, const char *path, const struct step *from)
{
	struct shelf_step *s = &shelf->step[shelf->n++];

	*s = (struct shelf_step){ .name = name, .path = cli_strdup(path), .number = -1 };
	pthread_mutex_init(&s->lock, NULL);
	if (!from)
		return;
	s->time = from->time;
	s->number = from->number;
	s->is_latest = from->is_latest;
}

/* Those that are complete; a line for each other one. */
static void add_complete(struct shelf *shelf, struct steps *steps)
{
	for (size_t i = 0; i < steps->n; i++) {
		struct step *s = &steps->step[i];

		step_look(shelf->args, s);
		if (!s->errors)
			add_step(shelf, name_of(steps, i), s->path, s);
		else
			cli_say("left out: %s: %s", out_name(s->name), out_text(s->why));
	}
}

static void find_latest(struct shelf *shelf)
{
	struct ckpt_latest which;
	struct stat a, b;

	if (ckpt_latest_get(shelf->path, NULL, &which, NULL))
		return;
	for (size_t i = 0; i < shelf->n; i++)
		if (!stat(shelf->step[i].path, &a) && !stat(which.path, &b) &&
		    a.st_dev == b.st_dev && a.st_ino == b.st_ino)
			shelf->latest = shelf->step[i].name;
	ckpt_latest_free(&which);
}

/* Is it a folder of several steps, or of one below it? */
static int is_run(const struct shelf *shelf, const struct steps *steps)
{
	return !shelf->args->tag && steps->n && strcmp(steps->step[0].path, shelf->path) != 0;
}

static int open_single(struct shelf *shelf)
{
	struct shelf_step *s;
	struct ckpt_view *view;
	struct ckpt_err err = { 0 };
	struct ckpt_file_info f;
	struct stat st;

	shelf->single = 1;
	add_step(shelf, cli_strdup(""), shelf->path, NULL);
	s = &shelf->step[0];
	shelf->log_quiet = 1;	/* cli_fail() says more */
	if (shelf_get(shelf, s, 0, &view, &err)) {
		if (s->ck)
			out_findings_asked(shelf->args, s->ck);
		return cli_fail(NULL, s->ck, &err);
	}
	shelf->log_quiet = 0;
	if (!stat(shelf->path, &st) && S_ISREG(st.st_mode))
		s->time = (int64_t)st.st_mtime;
	for (uint64_t i = 0; !ckpt_file_get(s->ck, i, &f, NULL); i++)
		if (!stat(f.path, &st) && s->time < (int64_t)st.st_mtime)
			s->time = (int64_t)st.st_mtime;
	cli_say_step(shelf->args, s->ck);
	out_findings_asked(shelf->args, s->ck);
	shelf_put(shelf, s);
	return 0;
}

static int open_run(struct shelf *shelf, struct steps *steps)
{
	steps_sort(shelf->args, steps);
	add_complete(shelf, steps);
	find_latest(shelf);
	if (shelf->n)
		return 0;
	cli_say_error("%s: no step here is complete; for the reasons: zckpt ls %s",
		      out_name(shelf->path), out_word(shelf->path));
	return EXIT_TROUBLE;
}

/* Each step has a pool of descriptors. */
static void raise_limit(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) || lim.rlim_cur >= lim.rlim_max)
		return;
	lim.rlim_cur = lim.rlim_max < 65536 ? lim.rlim_max : 65536;
	setrlimit(RLIMIT_NOFILE, &lim);
}

int shelf_open(struct shelf *shelf, const struct args *args, const char *path)
{
	struct steps steps = { 0 };
	struct stat st;
	int status;

	size_t len = strlen(path);

	while (len > 1 && path[len - 1] == '/')
		len--;
	raise_limit();
	shelf->args = args;
	shelf->path = path = cli_format("%.*s", (int)len, path);
	pthread_mutex_init(&shelf->lock, NULL);
	if (!stat(path, &st) && S_ISDIR(st.st_mode))
		steps_near(args, path, 4, &steps);
	shelf->step = cli_alloc((steps.n + 1) * sizeof(*shelf->step));
	status = is_run(shelf, &steps) ? open_run(shelf, &steps) : open_single(shelf);
	steps_free(&steps);
	return status;
}

static void close_step(struct shelf_step *s)
{
	for (int i = 0; i < SHELF_FORMS; i++) {
		ckpt_view_close(s->view[i]);
		s->view[i] = NULL;
	}
	ckpt_view_checks_free(s->checks);
	ckpt_close(s->ck);
	s->checks = NULL;
	s->ck = NULL;
	s->stale = 0;
}

void shelf_close(struct shelf *shelf)
{
	for (size_t i = 0; i < shelf->n; i++) {
		close_step(&shelf->step[i]);
		cli_free(shelf->step[i].name);
		cli_free(shelf->step[i].path);
		pthread_mutex_destroy(&shelf->step[i].lock);
	}
	cli_free(shelf->step);
	for (size_t i = 0; i < shelf->log.n; i++)
		cli_free((void *)(uintptr_t)shelf->log.list[i]);
	cli_free(shelf->log.list);
	pthread_mutex_destroy(&shelf->lock);
	*shelf = (struct shelf){ 0 };
}

struct shelf_step *shelf_step(struct shelf *shelf, const char *name, size_t len)
{
	for (size_t i = 0; i < shelf->n; i++)
		if (strlen(shelf->step[i].name) == len && !memcmp(shelf->step[i].name, name, len))
			return &shelf->step[i];
	return NULL;
}

/* ---------------------------------------------------------------- opening */

/* Whether any tensor has a state besides its weight. */
static int has_states(const struct ckpt *ck)
{
	struct ckpt_tensor_info t;
	struct ckpt_state_info s;

	for (uint64_t i = 0; !ckpt_tensor_get(ck, i, &t, NULL); i++)
		for (uint32_t k = 0; k < t.nstates && !ckpt_state_get(ck, i, k, &s, NULL); k++)
			if (strcmp(s.name, "weight"))
				return 1;
	return 0;
}

/* Whether each tensor has its weight as it was saved, which CKPT_KEEP needs. */
static int has_weights(const struct ckpt *ck)
{
	struct ckpt_tensor_info t;
	uint32_t state;

	for (uint64_t i = 0; !ckpt_tensor_get(ck, i, &t, NULL); i++)
		if (t.nstates && ckpt_state_find(ck, i, "weight", &state, NULL))
			return 0;
	return 1;
}

/* Under the step's lock. */
static int open_checkpoint(struct shelf *shelf, struct shelf_step *s, struct ckpt_err *err)
{
	struct words path = { 0 };
	struct ckpt_open_opts opts;
	struct ckpt *ck;
	int rc;

	words_add(&path, s->path);	/* kept: messages speak of it */
	cli_open_opts(shelf->args, &opts);
	if (!shelf->single)
		opts.tag = NULL;	/* the path is that of a step */
	if (shelf->single && !s->tag[0][0])
		rc = cli_open_quietly(shelf->args, &path, &ck, err);
	else
		rc = ckpt_open(path.list, 1, &opts, &ck, err);
	if (rc)
		return rc;
	s->ck = ck;
	return ckpt_view_checks_new(ck, &s->checks, err);
}

static int open_form(struct shelf *shelf, struct shelf_step *s, int form, struct ckpt_err *err)
{
	static const int type[SHELF_FORMS] = { CKPT_KEEP, 0, CKPT_BF16, CKPT_F16, 0 };
	static const char *const all[] = { "all", NULL };
	const struct ckpt_run_opts run = {
		.size = sizeof(run), .threads = (uint32_t)shelf->args->threads,
		.mem_limit = shelf->args->mem_limit,
	};
	struct ckpt_view_opts o = {
		.size = sizeof(o), .run = &run, .select = &shelf->select, .dtype = type[form],
		.states = form == SHELF_STATE ? all : NULL,
		.aux_dir = form == SHELF_STATE ? NULL : shelf->aux, .checks = s->checks,
	};
	struct ckpt_view *view = NULL;
	struct ckpt_view_file f;
	int rc;

	if (!form && !has_weights(s->ck))
		o.dtype = 0;
	rc = ckpt_view_open(s->ck, &o, &view, err);
	if (rc || ckpt_view_file_get(view, 0, &f, err))
		return rc;
	if (shelf->keeps_first && s->tag[form][0] && strcmp(s->tag[form], f.etag)) {
		ckpt_view_close(view);
		*err = (struct ckpt_err){ .code = CKPT_E_MISMATCH, .offset = CKPT_NO_OFFSET };
		snprintf(err->where, sizeof(err->where), "%s", s->path);
		snprintf(err->msg, sizeof(err->msg), "its files changed since it was mounted; "
			 "unmount, and mount again");
		return -CKPT_E_MISMATCH;
	}
	snprintf(s->tag[form], sizeof(s->tag[form]), "%s", f.etag);
	s->view[form] = view;
	return 0;
}

/* Closes the step used longest ago if many are open; no step's lock is held. */
static void close_one(struct shelf *shelf, const struct shelf_step *but)
{
	struct shelf_step *oldest = NULL;
	size_t open = 0;

	pthread_mutex_lock(&shelf->lock);
	for (size_t i = 0; i < shelf->n; i++) {
		struct shelf_step *s = &shelf->step[i];

		if (s == but || pthread_mutex_trylock(&s->lock))
			continue;
		open += s->ck != NULL;
		if (s->ck && !s->users && (!oldest || s->used < oldest->used))
			oldest = s;
		pthread_mutex_unlock(&s->lock);
	}
	pthread_mutex_unlock(&shelf->lock);
	if (open < MOST_OPEN || !oldest)
		return;
	pthread_mutex_lock(&oldest->lock);
	if (!oldest->users)
		close_step(oldest);
	pthread_mutex_unlock(&oldest->lock);
}

int shelf_get(struct shelf *shelf, struct shelf_step *s, int form, struct ckpt_view **view_out,
	      struct ckpt_err *err)
{
	int rc = 0, none;

	pthread_mutex_lock(&s->lock);
	none = !s->ck;
	pthread_mutex_unlock(&s->lock);
	if (none)
		close_one(shelf, s);
	pthread_mutex_lock(&s->lock);
	if (s->stale && !s->users)
		close_step(s);
	if (!s->ck)
		rc = open_checkpoint(shelf, s, err);
	none = !rc && form == SHELF_STATE && !has_states(s->ck);
	if (!rc && !none && !s->view[form])
		rc = open_form(shelf, s, form, err);
	if (!rc) {
		*view_out = s->view[form];
		s->users += !none;
	}
	pthread_mutex_lock(&shelf->lock);
	s->used = ++shelf->clock;
	pthread_mutex_unlock(&shelf->lock);
	pthread_mutex_unlock(&s->lock);
	if (rc)
		shelf_log(shelf, s, err);
	return rc;
}

void shelf_put(struct shelf *shelf, struct shelf_step *s)
{
	(void)shelf;
	pthread_mutex_lock(&s->lock);
	s->users--;
	pthread_mutex_unlock(&s->lock);
}

/* ---------------------------------------------------------------- reading */

static int note(struct shelf *shelf, struct shelf_step *s, int rc, struct ckpt_err *err)
{
	if (!rc)
		return 0;
	shelf_log(shelf, s, err);
	pthread_mutex_lock(&s->lock);
	if (!shelf->keeps_first)
		s->stale |= err->code == CKPT_E_MISMATCH || err->code == CKPT_E_TRUNCATED ||
			    err->code == CKPT_E_NOTFOUND;
	pthread_mutex_unlock(&s->lock);
	return rc;
}

int shelf_read(struct shelf *shelf, struct shelf_step *s, struct ckpt_view *view, uint64_t file,
	       uint64_t off, size_t n, void *buf, struct ckpt_err *err)
{
	return note(shelf, s, ckpt_view_read(view, file, off, n, buf, err), err);
}

int shelf_check(struct shelf *shelf, struct shelf_step *s, struct ckpt_view *view, uint64_t file,
		uint64_t off, uint64_t n, struct ckpt_err *err)
{
	return note(shelf, s, ckpt_view_check(view, file, off, n, err), err);
}

/* ---------------------------------------------------------------- paths */

/* The word before the next slash; '*path' is then after it. */
static size_t word_of(const char *path, const char **rest_out)
{
	const size_t n = strcspn(path, "/");

	*rest_out = path + n + strspn(path + n, "/");
	return n;
}

static struct shelf_step *find_step(struct shelf *shelf, const char *name, size_t len)
{
	struct shelf_step *s = shelf_step(shelf, name, len);

	if (!s && shelf->latest && len == 6 && !memcmp(name, "latest", 6))
		s = shelf_step(shelf, shelf->latest, strlen(shelf->latest));
	return s;
}

void shelf_find(struct shelf *shelf, const char *path, struct shelf_place *out)
{
	const char *rest = path;
	size_t n;

	*out = (struct shelf_place){ .kind = SHELF_TOP };
	if (shelf->single) {
		out->step = &shelf->step[0];
	} else if (*path) {
		n = word_of(path, &rest);
		out->step = find_step(shelf, path, n);
		out->kind = SHELF_NOTHING;
	}
	if (!out->step)
		return;
	out->kind = SHELF_FOLDER;
	n = word_of(rest, &path);
	for (int i = 1; i < SHELF_FORMS && n; i++)
		if (strlen(shelf_form_name[i]) == n && !memcmp(rest, shelf_form_name[i], n)) {
			out->form = i;
			rest = path;
		}
	if (!*rest)
		return;
	out->kind = strchr(rest, '/') ? SHELF_NOTHING : SHELF_FILE;
	out->file = rest;
}
