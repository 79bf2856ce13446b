/* ck_steps.c -- see ck_steps.h. */
#include "libckpt/retain/ck_steps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"
#include "libckpt/format/ck_format.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/json/ck_json.h"
#include "libckpt/verify/op_verify.h"

#define DEEPEST 32	/* folders in folders whose files are counted */
#define MARK ".zckpt-"

struct link {
	const char *name;
	dev_t dev;
	ino_t ino;
};

struct listing {
	struct ck_steps *steps;
	const struct ckpt_limits *limits;
	struct link *link;
	uint64_t nlinks, link_cap;
	const char *best;	/* name of a step */
	bool in_step;		/* the folder is a step itself */
	int64_t best_of;	/* the number of who says so */
};

/* ---- sizes ---- */

struct adding {
	struct ck_step *step;
	uint32_t depth;
};

static int add_size(void *arg, const char *dir, const char *name, struct ckpt_err *err)
{
	struct adding *a = arg;
	struct adding below = { a->step, a->depth + 1 };
	char *path = ck_fs_join(dir, name);
	struct stat st;
	int rc = path ? 0 : ck_fail_nomem(err, "a path", strlen(name));

	if (!rc && ck_sys.lstat(path, &st))
		rc = errno == ENOENT ? 0 : ck_fail_sys(err, errno, "stat", path);
	else if (!rc && S_ISDIR(st.st_mode) && a->depth < DEEPEST)
		rc = ck_fs_each(path, add_size, &below, err);
	else if (!rc && S_ISREG(st.st_mode)) {
		a->step->bytes += (uint64_t)st.st_size;
		a->step->alone += st.st_nlink > 1 ? 0 : (uint64_t)st.st_size;
		a->step->time_ns = (int64_t)ck_max_u64((uint64_t)a->step->time_ns,
						       (uint64_t)st.st_mtim.tv_sec * 1000000000u +
						       (uint64_t)st.st_mtim.tv_nsec);
	}
	if (strstr(name, MARK) || ck_ends_with(name, ".part"))
		a->step->is_busy |= name[0] != '.';	/* what prune itself left is no writer's */
	ck_free(path);
	return rc;
}

/* ---- what is a step ---- */

/* The last run of digits, -1 = there is none. */
static int64_t number_of(const char *name)
{
	const char *end = name + strlen(name), *p;
	int64_t n = 0;

	while (end > name && (end[-1] < '0' || end[-1] > '9'))
		end--;
	for (p = end; p > name && p[-1] >= '0' && p[-1] <= '9';)
		p--;
	if (p == end || end - p > 18)
		return -1;
	for (; p < end; p++)
		n = n * 10 + (*p - '0');
	return n;
}

static bool is_trainer_name(const char *name)
{
	return (!strncmp(name, "checkpoint-", 11) && name[11] &&
		!name[11 + strspn(name + 11, "0123456789")]) ||
	       (ck_ends_with(name, ".ckpt") && number_of(name) >= 0);
}

static int sees_weights(void *arg, const char *dir, const char *name, struct ckpt_err *err)
{
	(void)dir;
	(void)err;
	*(bool *)arg |= ck_ends_with(name, ".safetensors") ||
			(!strncmp(name, "pytorch_model", 13) && ck_ends_with(name, ".bin"));
	return 0;
}

static int is_step(const struct listing *l, const char *path, const char *name, bool *out,
		   struct ckpt_err *err)
{
	enum ck_holds holds = CK_HOLDS_OTHER;
	int rc = ck_step_look(l->steps->formats, path, l->limits, &holds, err);

	*out = holds == CK_HOLDS_SHARDS || (holds == CK_HOLDS_STEPS && is_trainer_name(name));
	if (!rc && !*out && is_trainer_name(name))
		rc = ck_fs_each(path, sees_weights, out, err);
	return rc;
}

/* accelerate's folders of DCP are parts of the step above them, and look like steps. */
static bool is_part(const struct listing *l, const char *name)
{
	const struct ck_format *const *f = l->steps->formats->reader;

	for (; l->in_step && *f; f++)
		if ((*f)->is_step && (*f)->is_part && (*f)->is_part(name, true))
			return true;
	return false;
}

/* ---- entries ---- */

/* ".NAME.zckpt-removed", ".NAME.zckpt-slim", and what was to become that. */
static bool is_left(const char *name)
{
	return name[0] == '.' && (ck_ends_with(name, CK_STEPS_REMOVED) ||
				  ck_ends_with(name, CK_STEPS_SLIM) ||
				  ck_ends_with(name, CK_STEPS_SLIM ".zckpt-partial"));
}

static int add_left(struct ck_steps *s, const char *dir, const char *name, struct ckpt_err *err)
{
	int rc = ck_grow(&s->left, &s->left_cap, s->nleft + 1, sizeof(const char *), err);
	const char *path = ck_arena_printf(&s->arena, "%s/%s", dir, name);

	if (!rc && !path)
		rc = ck_fail_nomem(err, "a path", strlen(name));
	if (!rc)
		s->left[s->nleft++] = path;
	return rc;
}

/* A trainer's folder may have some, too, beside the step in it. */
static int see_below(void *arg, const char *dir, const char *name, struct ckpt_err *err)
{
	return is_left(name) ? add_left(arg, dir, name, err) : 0;
}

static int add_link(struct listing *l, const char *path, const char *name, struct ckpt_err *err)
{
	struct stat st;
	int rc;

	if (ck_sys.stat(path, &st))	/* it leads nowhere */
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == EACCES ?
		       0 : ck_fail_sys(err, errno, "stat", path);
	rc = ck_grow(&l->link, &l->link_cap, l->nlinks + 1, sizeof(*l->link), err);
	if (rc)
		return rc;
	name = ck_arena_strdup(&l->steps->arena, name);
	if (!name)
		return ck_fail_nomem(err, "a file name", 0);
	l->link[l->nlinks++] = (struct link){ name, st.st_dev, st.st_ino };
	return 0;
}

static int add_step(struct listing *l, const char *path, const char *name, const struct stat *st,
		    struct ckpt_err *err)
{
	struct ck_steps *s = l->steps;
	struct adding a;
	int rc = ck_grow(&s->step, &s->cap, s->n + 1, sizeof(*s->step), err);

	if (rc)
		return rc;
	a = (struct adding){ &s->step[s->n], 0 };
	*a.step = (struct ck_step){
		.name = ck_arena_strdup(&s->arena, name), .path = ck_arena_strdup(&s->arena, path),
		.number = number_of(name), .in_name = number_of(name),
		.dev = st->st_dev, .ino = st->st_ino,
	};
	if (!a.step->name || !a.step->path)
		return ck_fail_nomem(err, "a path", strlen(path));
	s->n++;
	rc = ck_fs_each(path, add_size, &a, err);
	return rc ? rc : ck_fs_each(path, see_below, s, err);
}

static int see_path(struct listing *l, const char *path, const char *name, struct ckpt_err *err)
{
	struct ckpt_err inner = { 0 };
	struct stat st;
	bool yes = false;
	int rc;

	if (ck_sys.lstat(path, &st))
		return errno == ENOENT ? 0 : ck_fail_sys(err, errno, "stat", path);
	if (S_ISLNK(st.st_mode))
		return add_link(l, path, name, err);
	if (!S_ISDIR(st.st_mode))
		return 0;
	if (is_left(name))
		return add_left(l->steps, l->steps->dir, name, err);
	if (strstr(name, MARK) || is_part(l, name))
		return 0;
	rc = is_step(l, path, name, &yes, &inner);
	if (rc && ck_sys.access(path, R_OK | X_OK) && errno == EACCES)
		return 0;	/* "lost+found" */
	if (rc)
		return ck_fail(err, inner.code, inner.where, inner.offset, "%s", inner.msg);
	return yes ? add_step(l, path, name, &st, err) : 0;
}

static int see(void *arg, const char *dir, const char *name, struct ckpt_err *err)
{
	char *path = ck_fs_join(dir, name);
	int rc = path ? see_path(arg, path, name, err) : ck_fail_nomem(err, "a path", 0);

	ck_free(path);
	return rc;
}

/* ---- who points to a step ---- */

/* Megatron-Core and verl write the number alone: "3" names iter_0000003 or global_step_3. */
static bool is_named(struct ck_steps *s, const char *step, const char *text)
{
	const char *iteration = ck_step_iteration(&s->arena, text);

	if (!strcmp(step, text) || (iteration && !strcmp(step, iteration)))
		return true;
	return !strncmp(step, "global_step_", 12) && !strcmp(step + 12, text);
}

static int mark_named(struct ck_steps *s, const char *file, struct ckpt_err *err)
{
	char *path = ck_fs_join(s->dir, file), *text = NULL;
	uint64_t n = 0;
	enum ck_fs_kind kind = CK_FS_NOTHING;
	int rc = path ? ck_fs_kind(path, &kind, err) : ck_fail_nomem(err, "a path", 0);

	if (!rc && kind == CK_FS_FILE)
		rc = ck_file_read(path, 4096, &text, &n, err);
	if (!rc && text) {
		char *begin = text + strspn(text, " \t\r\n\v\f"), *end = text + n;

		while (end > begin && strchr(" \t\r\n\v\f", end[-1]))
			*--end = 0;
		for (uint64_t i = 0; i < s->n; i++)
			if (!s->step[i].named_by && is_named(s, s->step[i].name, begin))
				s->step[i].named_by = file;
	}
	ck_free(text);
	ck_free(path);
	return rc;
}

/* "best_model_checkpoint" of the trainer's state: the newest that says so counts. */
static int read_best(struct listing *l, const struct ck_step *step, struct ckpt_err *err)
{
	struct ck_json doc = CK_JSON_INIT;
	char *path = ck_fs_join(step->path, "trainer_state.json"), *text = NULL;
	struct ckpt_err inner = { 0 };
	uint64_t n, tok;
	int rc = path ? ck_file_read(path, l->limits->header_bytes, &text, &n, &inner) :
		 ck_fail_nomem(&inner, "a path", 0);

	if (!rc)
		rc = ck_json_parse(&doc, text, n, l->limits, 0, path, &inner);
	if (!rc && doc.tok[0].type == CK_JSON_OBJECT && step->number > l->best_of) {
		tok = ck_json_get(&doc, 0, "best_model_checkpoint");
		if (tok != UINT64_MAX && doc.tok[tok].type == CK_JSON_STRING) {
			l->best = ck_arena_strdup(&l->steps->arena, ck_fs_base(doc.tok[tok].str));
			l->best_of = step->number;
			rc = l->best ? 0 : ck_fail_nomem(&inner, "a name", 0);
		}
	}
	ck_json_release(&doc);
	ck_free(text);
	ck_free(path);
	/* One that is not there, or is no JSON, says nothing. */
	return rc == -CKPT_E_NOMEM || rc == -CKPT_E_IO ?
	       ck_fail(err, inner.code, inner.where, inner.offset, "%s", inner.msg) : 0;
}

static int mark(struct listing *l, struct ckpt_err *err)
{
	struct ck_steps *s = l->steps;
	int rc = mark_named(s, "latest", err);

	if (!rc)
		rc = mark_named(s, "latest_universal", err);
	if (!rc)
		rc = mark_named(s, "latest_checkpointed_iteration.txt", err);
	if (!rc)
		rc = mark_named(s, "best", err);
	for (uint64_t i = 0; !rc && i < s->n; i++)
		rc = read_best(l, &s->step[i], err);
	for (uint64_t i = 0; i < s->n; i++) {
		struct ck_step *step = &s->step[i];

		step->is_best = l->best && !strcmp(step->name, l->best);
		for (uint64_t k = 0; k < l->nlinks; k++)
			if (l->link[k].dev == step->dev && l->link[k].ino == step->ino)
				step->link = l->link[k].name;
	}
	return rc;
}

/* "NAME.zckpt-partial": somebody makes a step of that name. */
static int mark_busy(struct ck_steps *s, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < s->n; i++) {
		char *path = ck_asprintf("%s.zckpt-partial", s->step[i].path);
		struct stat st;

		if (!path)
			return ck_fail_nomem(err, "a path", 0);
		if (!ck_sys.lstat(path, &st))
			s->step[i].is_busy = true;
		else if (errno != ENOENT)
			rc = ck_fail_sys(err, errno, "stat", path);
		ck_free(path);
	}
	return rc;
}

/* ---- are they whole ---- */

/* Not about the step: one must not go because a disk or a limit failed us. */
static bool is_system(int rc)
{
	return rc == -CKPT_E_NOMEM || rc == -CKPT_E_CANCELED || rc == -CKPT_E_IO ||
	       rc == -CKPT_E_NOSPACE || rc == -CKPT_E_LIMIT;
}

/* "ID: FILE: what is wrong": the file by its name, as the folder is that of the step. */
static const char *reason(struct ck_arena *arena, const char *id, const char *where,
			  const char *text)
{
	const char *cut = where ? strrchr(where, '/') : NULL;
	const char *name = cut ? cut + 1 : where ? where : "";
	const bool said = !*name || strstr(text, name);

	return ck_arena_printf(arena, "%s%s%s%s%s", id, *id ? ": " : "", said ? "" : name,
			       said ? "" : ": ", text);
}

static int verify_open(struct ckpt *ck, unsigned flags, const struct ckpt_run_opts *run,
		       struct ck_arena *arena, const char **why_out, struct ckpt_err *err)
{
	const struct ckpt_verify_opts opts = { sizeof(opts), run, flags };
	struct ckpt_err inner = { 0 };
	struct ckpt_verified said;
	const struct ckpt_finding *f;
	int rc = ck_verify(ck, &opts, &said, &inner);

	*why_out = NULL;
	if (is_system(rc))
		return ck_fail(err, inner.code, inner.where, inner.offset, "%s", inner.msg);
	f = ck_findings_worst(&ck->findings, CKPT_ERROR);
	if (rc)
		*why_out = reason(arena, ckpt_code_name(inner.code), inner.where, inner.msg);
	else if (f)
		*why_out = reason(arena, f->id, f->where, f->text);
	else if (!ck->ix.ntensors)
		*why_out = "it has no tensors";
	return (rc || f) && !*why_out ? ck_fail_nomem(err, "a message", 0) : 0;
}

/* 'step' (may be NULL) learns what it is, if it can be opened. */
static int verify_once(const struct ck_formats *formats, const char *path, unsigned flags,
		       const struct ckpt_run_opts *run, const struct ckpt_limits *limits,
		       struct ck_arena *arena, struct ck_step *step, const char **why_out,
		       struct ckpt_err *err)
{
	const struct ckpt_open_opts o = {
		.size = sizeof(o), .threads = run->threads, .limits = limits,
	};
	struct ckpt_err inner = { 0 };
	struct ckpt *ck = NULL;
	int rc = ck_ckpt_open(formats, &path, 1, &o, &ck, &inner);

	if (is_system(rc))
		return ck_fail(err, inner.code, inner.where, inner.offset, "%s", inner.msg);
	if (rc) {
		const size_t n = strspn(inner.msg, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
		const bool named = n > 3 && inner.msg[n] == ':';

		*why_out = ck_arena_printf(arena, "%s%s%s",
					   named ? "" : ckpt_code_name(inner.code),
					   named ? "" : ": ", inner.msg);
		return *why_out ? 0 : ck_fail_nomem(err, "a message", 0);
	}
	rc = verify_open(ck, flags, run, arena, why_out, err);
	if (!rc && step) {
		step->inner = ck_arena_strdup(arena, ck->ix.path);
		step->is_step = ck->driver->is_step;
		step->number = ck->ix.step >= 0 ? ck->ix.step : step->number;
		rc = step->inner ? 0 : ck_fail_nomem(err, "a path", 0);
	}
	ckpt_close(ck);
	return rc;
}

/* A disk that fails once is no damage: what does not verify is looked at again. */
static int verify_step(const struct ck_formats *formats, const char *path, unsigned flags,
		       const struct ckpt_run_opts *run, const struct ckpt_limits *limits,
		       struct ck_arena *arena, struct ck_step *step, const char **why_out,
		       struct ckpt_err *err)
{
	int rc = verify_once(formats, path, flags, run, limits, arena, step, why_out, err);

	return rc || !*why_out ? rc : verify_once(formats, path, flags, run, limits, arena, step,
						  why_out, err);
}

int ck_steps_verify(const struct ck_formats *formats, const char *path, unsigned flags,
		    const struct ckpt_run_opts *run, const struct ckpt_limits *limits,
		    struct ck_arena *arena, const char **why_out, struct ckpt_err *err)
{
	return verify_step(formats, path, flags, run, limits, arena, NULL, why_out, err);
}

static int by_age(const void *a, const void *b)
{
	const struct ck_step *x = a, *y = b;

	if (x->number != y->number)
		return x->number > y->number ? -1 : 1;
	if (x->in_name != y->in_name)
		return x->in_name > y->in_name ? -1 : 1;
	if (x->time_ns != y->time_ns)
		return x->time_ns > y->time_ns ? -1 : 1;
	return -ck_name_compare(x->name, y->name);
}

static int verify_all(struct ck_steps *s, const struct ckpt_run_opts *run,
		      const struct ckpt_limits *limits, bool full, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < s->n; i++) {
		struct ck_step *step = &s->step[i];

		rc = verify_step(s->formats, step->path, 0, run, limits, &s->arena, step,
				 &step->trouble, err);
		step->is_whole = !rc && !step->trouble;
	}
	if (s->n)
		qsort(s->step, s->n, sizeof(*s->step), by_age);
	for (uint64_t i = 0; full && !rc && i < s->n; i++) {
		struct ck_step *step = &s->step[i];

		if (!step->is_whole)
			continue;
		rc = verify_step(s->formats, step->path, CKPT_VERIFY_FULL, run, limits, &s->arena,
				 NULL, &step->trouble, err);
		step->is_whole = !rc && !step->trouble;
		if (step->is_whole)
			break;
	}
	return rc;
}

int ck_steps_list(struct ck_steps *steps, const char *dir, const struct ckpt_run_opts *run,
		  const struct ckpt_limits *limits, bool full, struct ckpt_err *err)
{
	struct listing l = { .steps = steps, .limits = limits, .best_of = -2 };
	enum ck_holds holds = CK_HOLDS_OTHER;
	enum ck_fs_kind kind;
	int rc = ck_fs_kind(dir, &kind, err);

	if (!rc && kind != CK_FS_DIR)
		rc = ck_fail(err, CKPT_E_NOTFOUND, dir, CKPT_NO_OFFSET,
			     "no folder of that name exists");
	steps->dir = dir;
	if (!rc)
		rc = ck_step_look(steps->formats, dir, limits, &holds, err);
	l.in_step = holds == CK_HOLDS_SHARDS;
	if (!rc)
		rc = ck_fs_each(dir, see, &l, err);
	if (!rc)
		rc = mark(&l, err);
	if (!rc)
		rc = mark_busy(steps, err);
	if (!rc && run)
		rc = verify_all(steps, run, limits, full, err);
	ck_free(l.link);
	return rc;
}

struct ck_step *ck_steps_find(const struct ck_steps *steps, const char *name)
{
	for (uint64_t i = 0; i < steps->n; i++)
		if (!strcmp(steps->step[i].name, name))
			return &steps->step[i];
	return NULL;
}

void ck_steps_release(struct ck_steps *steps)
{
	ck_free(steps->step);
	ck_free(steps->left);
	ck_arena_release(&steps->arena);
	memset(steps, 0, sizeof(*steps));
}
