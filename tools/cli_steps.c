/*
 * cli_steps.c -- the steps below a folder, or the one in a pack.
 *
 * A folder with model or optimizer files of DeepSpeed, with a native rest.pt, with the '.metadata'
 * of torch.distributed.checkpoint, or with FSDP's files of ranks, is a step, whatever it is called;
 * a "checkpoint-N" without one is a step if it holds weights.  What is looked at: names and sizes;
 * cli_steps_open.c opens files.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli_steps.h"

#define DEPTH 4		/* run / checkpoint-N / pytorch_model / ... */

const struct opt opts_steps[] = {
	{ "as-warning", 0, OPT_COMMAS, &cli_args.as_warning, "ID",
	  "count findings of that name as warnings", OPT_RARE },
	{ "threads", 'j', OPT_COUNT, &cli_args.threads, "N",
	  "threads (default: CPUs, within a limit)", OPT_RARE },
	OPT_LIMITS,
	{ 0 },
};

/* ---------------------------------------------------------------- listing */

struct entry {
	char *path;
	const char *name;	/* the end of 'path' */
	struct stat st;
	int link;
};

struct listing {
	struct entry *entry;
	size_t n;
};

static int no_dots(const struct dirent *e)
{
	return strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
}

/* Links last, so that a folder is met under its own name first. */
static int by_link(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return x->link != y->link ? x->link - y->link : strcmp(x->name, y->name);
}

static void listing_free(struct listing *list)
{
	for (size_t i = 0; i < list->n; i++)
		cli_free(list->entry[i].path);
	cli_free(list->entry);
	*list = (struct listing){ 0 };
}

/* 0, or -1 with errno.  What goes away meanwhile, and broken links, are left out. */
static int listing_read(struct listing *list, const char *dir)
{
	struct dirent **found = NULL;
	int n = scandir(dir, &found, no_dots, NULL);

	*list = (struct listing){ 0 };
	if (n < 0)
		return -1;
	list->entry = cli_alloc(((size_t)n + 1) * sizeof(*list->entry));
	for (int i = 0; i < n; i++) {
		struct entry *e = &list->entry[list->n];
		struct stat st;

		e->path = cli_format("%s/%s", dir, found[i]->d_name);
		e->name = e->path + strlen(dir) + 1;
		e->link = !lstat(e->path, &st) && S_ISLNK(st.st_mode);
		if (stat(e->path, &e->st))
			cli_free(e->path);
		else
			list->n++;
		free(found[i]);
	}
	free(found);
	qsort(list->entry, list->n, sizeof(*list->entry), by_link);
	return 0;
}

static int ends_with(const char *name, const char *end)
{
	size_t n = strlen(name), m = strlen(end);

	return n > m && !strcmp(name + n - m, end);
}

/* Of FSDP: verl's, accelerate's. */
static int is_rank_name(const char *name)
{
	return (!strncmp(name, "model_world_size_", 17) && strstr(name, "_rank_")) ||
	       (!strncmp(name, "pytorch_model_fsdp", 18) && ends_with(name, ".bin"));
}

static int is_shard_name(const char *name)
{
	return ends_with(name, "_model_states.pt") || ends_with(name, "_optim_states.pt") ||
	       !strcmp(name, ".metadata") || !strcmp(name, "rest.pt") ||
	       !strcmp(name, "rank-00000.safetensors") || is_rank_name(name) ||
	       !strcmp(name, "metadata.pkl") ||		/* torch_checkpointing */
	       (!strncmp(name, "manifest-", 9) && ends_with(name, ".json"));	/* of one rank */
}

static int is_weights_name(const char *name)
{
	return ends_with(name, ".safetensors") ||
	       (!strncmp(name, "pytorch_model", 13) && ends_with(name, ".bin"));
}

static int has_file(const struct listing *list, int (*test)(const char *name))
{
	for (size_t i = 0; i < list->n; i++)
		if (S_ISREG(list->entry[i].st.st_mode) && test(list->entry[i].name))
			return 1;
	return 0;
}

/*
 * accelerate has a folder for the model and one for the optimizer in its step; verl a folder for
 * each model, "actor" and "critic", in a global_step_N.
 */
static int is_step(const struct listing *list, const char *path)
{
	static const char model[] = "pytorch_model_fsdp_";
	const char *slash = strrchr(path, '/');
	const int verl = !strncmp(slash ? slash + 1 : path, "global_step_", 12);

	for (size_t i = 0; i < list->n; i++)
		if (S_ISDIR(list->entry[i].st.st_mode) &&
		    (!strncmp(list->entry[i].name, model, sizeof(model) - 1) ||
		     (verl && !strcmp(list->entry[i].name, "actor"))))
			return 1;
	return has_file(list, is_shard_name);
}

int step_is_folder(const char *dir)
{
	struct listing list;
	int yes;

	if (listing_read(&list, dir))
		return 0;
	yes = is_step(&list, dir);
	listing_free(&list);
	return yes;
}

int step_is_trainers(const char *name)
{
	return !strncmp(name, "checkpoint-", 11) || !strncmp(name, "checkpoint_", 11);
}

int step_leads_to_one(const char *dir)
{
	struct listing list;
	int yes = step_is_folder(dir);

	if (yes || listing_read(&list, dir))
		return yes;
	for (size_t i = 0; i < list.n && !yes; i++)
		yes = S_ISDIR(list.entry[i].st.st_mode) && step_is_folder(list.entry[i].path);
	listing_free(&list);
	return yes;
}

int step_takes_latest(const char *format)
{
	return !strcmp(format, "deepspeed") || !strcmp(format, "universal") ||
	       !strcmp(format, "native");
}

int step_is_of_run(const char *format)
{
	return step_takes_latest(format) || !strcmp(format, "dcp") ||
	       !strcmp(format, "megatron") || !strcmp(format, "fsdp");
}

char *step_pointer(const char *dir, const char *file)
{
	char *path = cli_format("%s/%s", dir, file), line[4096];
	FILE *f = fopen(path, "r");
	char *text = NULL;
	size_t n;

	cli_free(path);
	if (!f)
		return NULL;
	n = fread(line, 1, sizeof(line) - 1, f);
	line[n] = 0;
	fclose(f);
	while (n && strchr(" \t\r\n", line[n - 1]))
		line[--n] = 0;
	text = line + strspn(line, " \t\r\n");
	return *text ? cli_strdup(text) : NULL;
}

/* ---------------------------------------------------------------- finding */

const char *steps_why(int errnum)
{
	return errnum == ENOENT ? "no such file or folder" :
	       errnum == EACCES || errnum == EPERM ? "no permission to list" : strerror(errnum);
}

struct search {
	struct steps *out;
	const char *top;
	int depth;		/* how far down */
	struct words unread;	/* folders that could not be listed */
	dev_t dev[256];		/* folders met, to pass over links to them */
	ino_t ino[256];
	size_t nmet;
};

static int is_met(struct search *s, const struct stat *st)
{
	for (size_t i = 0; i < s->nmet; i++)
		if (s->dev[i] == st->st_dev && s->ino[i] == st->st_ino)
			return 1;
	if (s->nmet < sizeof(s->dev) / sizeof(s->dev[0])) {
		s->dev[s->nmet] = st->st_dev;
		s->ino[s->nmet++] = st->st_ino;
	}
	return 0;
}

/* The last run of digits in name[0..len), -1 if there is none. */
static int64_t last_number(const char *name, size_t len)
{
	const char *end = name + len, *begin;
	int64_t n = 0;

	while (end > name && (end[-1] < '0' || end[-1] > '9'))
		end--;
	for (begin = end; begin > name && begin[-1] >= '0' && begin[-1] <= '9';)
		begin--;
	if (begin == end || end - begin > 18)
		return -1;
	for (; begin < end; begin++)
		n = n * 10 + (*begin - '0');
	return n;
}

/* "global_step10", or the folder above it: "checkpoint-10/pytorch_model", "step=10.ckpt/x". */
static int64_t name_number(const char *path)
{
	const char *name = strrchr(path, '/'), *above;
	int64_t n;
	size_t len;

	name = name ? name + 1 : path;
	n = last_number(name, strlen(name));
	if (n >= 0 || name == path)
		return n;
	for (above = name - 1; above > path && above[-1] != '/';)
		above--;
	len = (size_t)(name - 1 - above);
	if (step_is_trainers(above) || memmem(above, len, "step", 4))
		return last_number(above, len);
	return -1;
}

static void add_sizes(struct step *step, const struct listing *list, int depth)
{
	struct listing below;

	for (size_t i = 0; i < list->n; i++) {
		const struct entry *e = &list->entry[i];

		if (S_ISREG(e->st.st_mode)) {
			step->bytes += (uint64_t)e->st.st_size;
			step->files++;
			if (step->time < (int64_t)e->st.st_mtime)
				step->time = (int64_t)e->st.st_mtime;
		} else if (S_ISDIR(e->st.st_mode) && depth < 12 && !e->link &&
			   !listing_read(&below, e->path)) {
			add_sizes(step, &below, depth + 1);
			listing_free(&below);
		}
	}
}

void step_measure(struct step *step, const char *dir)
{
	struct listing list;

	if (listing_read(&list, dir))
		return;
	add_sizes(step, &list, 0);
	listing_free(&list);
}

static int is_named_by(const char *path, const char *file)
{
	const char *slash = strrchr(path, '/');
	char *dir = slash ? cli_format("%.*s", (int)(slash - path), path) : cli_strdup(".");
	char *tag = step_pointer(dir, file);
	int yes = tag && !strcmp(tag, slash ? slash + 1 : path);

	cli_free(tag);
	cli_free(dir);
	return yes;
}

static void add_step(struct search *s, const char *path, const struct listing *list,
		     const char *unfinished)
{
	struct steps *out = s->out;
	struct step *step;
	size_t n = strlen(s->top);

	if (out->n == out->room) {
		struct step *more = cli_alloc((out->room * 2 + 16) * sizeof(*more));

		if (out->n)
			memcpy(more, out->step, out->n * sizeof(*more));
		cli_free(out->step);
		out->step = more;
		out->room = out->room * 2 + 16;
	}
	step = &out->step[out->n++];
	*step = (struct step){ .path = cli_strdup(path), .unfinished = unfinished };
	step->name = cli_strdup(path[n] ? path + n + 1 : ".");
	step->number = name_number(path);
	step->is_latest = is_named_by(path, "latest") || is_named_by(path, "latest_universal");
	add_sizes(step, list, 0);
}

static const char *unfinished_name(const char *name)
{
	if (strstr(name, ".zckpt-partial"))
		return "an interrupted zckpt run; the same command continues it";
	if (!strncmp(name, "tmp-checkpoint-", 15))
		return "a save of the Trainer that did not finish";
	return NULL;
}

/* A file that is given itself: a step as a pack, or what opening says it is. */
static int is_pack_file(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISREG(st.st_mode);
}

static void add_file(struct steps *steps, const char *path)
{
	struct step *step = &steps->step[steps->n - 1];
	struct stat st;

	if (stat(path, &st))
		return;
	step->bytes = (uint64_t)st.st_size;
	step->time = (int64_t)st.st_mtime;
	step->files = 1;
	cli_free(step->name);
	step->name = cli_strdup(path);
}

/* ".NAME.zckpt-removed" and the like: what prune moved aside is nobody's step. */
static int is_aside(const char *name)
{
	return name[0] == '.' && strstr(name, ".zckpt-");
}

static int is_trainer_name(const char *name)
{
	return step_is_trainers(name) && name[11] >= '0' && name[11] <= '9';
}

static void search(struct search *s, const char *path, int depth, const char *unfinished)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	size_t before = s->out->n;
	struct listing list;

	if (depth && !unfinished)
		unfinished = unfinished_name(name);
	if (!depth && is_pack_file(path)) {
		list = (struct listing){ 0 };
		add_step(s, path, &list, NULL);
		add_file(s->out, path);
		return;
	}
	if (listing_read(&list, path)) {
		words_add(&s->unread, cli_format("%s: %s", path, steps_why(errno)));
		return;
	}
	if (is_step(&list, path) || (unfinished && strstr(name, ".zckpt-partial"))) {
		add_step(s, path, &list, unfinished);
	} else {
		for (size_t i = 0; i < list.n && depth < s->depth; i++)
			if (S_ISDIR(list.entry[i].st.st_mode) && !is_aside(list.entry[i].name) &&
			    !is_met(s, &list.entry[i].st))
				search(s, list.entry[i].path, depth + 1, unfinished);
		if (s->out->n == before && has_file(&list, is_weights_name) &&
		    (is_trainer_name(name) || unfinished))
			add_step(s, path, &list, unfinished);
	}
	listing_free(&list);
}

/* ---------------------------------------------------------------- latest */

/* The step that the folder means, if a file 'latest' decides it. */
static int is_meant_by(const struct args *args, const char *dir, const char *path, int *decides)
{
	struct ckpt_latest which;
	struct stat a, b;
	int yes;

	*decides = !ckpt_latest_get(dir, args->limits.size ? &args->limits : NULL, &which, NULL);
	if (!*decides)
		return 0;
	*decides = which.named;
	yes = !stat(which.path, &a) && !stat(path, &b) && a.st_dev == b.st_dev &&
	      a.st_ino == b.st_ino;
	ckpt_latest_free(&which);
	return yes;
}

/* A trainer's checkpoint-N has a 'latest' of its own; which one counts its folder decides. */
static int is_passed_above(const struct args *args, const char *top, const char *path)
{
	char *dir = cli_strdup(path), *slash;
	int passed = 0, decides;

	while (!passed && (slash = strrchr(dir, '/')) && slash > dir) {
		*slash = 0;
		if (strlen(dir) < strlen(top))
			break;
		passed = !is_meant_by(args, dir, path, &decides) && decides;
	}
	cli_free(dir);
	return passed;
}

static void settle_latest(const struct args *args, const char *top, struct steps *steps,
			  size_t first)
{
	for (size_t i = first; i < steps->n; i++) {
		struct step *s = &steps->step[i];
		int decides, meant = is_meant_by(args, top, s->path, &decides);

		if (decides)
			s->is_latest = meant;
		else if (s->is_latest)
			s->is_latest = !is_passed_above(args, top, s->path);
	}
}

static int by_age(const void *a, const void *b)
{
	const struct step *x = a, *y = b;

	if (x->number != y->number)
		return x->number < y->number ? -1 : 1;
	if (x->time != y->time)
		return x->time < y->time ? -1 : 1;
	return strcmp(x->name, y->name);
}

void steps_sort(const struct args *args, struct steps *steps)
{
	for (size_t i = 0; i < steps->n; i++)
		if (steps->step[i].number < 0)
			step_look(args, &steps->step[i]);
	if (steps->n)
		qsort(steps->step, steps->n, sizeof(*steps->step), by_age);
}

/* How many folders could not be listed. */
static size_t find(const struct args *args, const char *dir, struct search *s)
{
	char *top = cli_strdup(dir);
	size_t n = strlen(top), first = s->out->n;

	while (n > 1 && top[n - 1] == '/')
		top[--n] = 0;
	s->top = top;
	search(s, top, 0, NULL);
	settle_latest(args, top, s->out, first);
	steps_sort(args, s->out);
	cli_free(top);
	return s->unread.n;
}

int steps_find(const struct args *args, const char *dir, struct steps *out)
{
	struct search s = { .out = out, .depth = DEPTH };
	size_t n = find(args, dir, &s);

	for (size_t i = 0; i < n; i++)
		cli_say_error("%s", out_name(s.unread.list[i]));
	cli_free(s.unread.list);
	return n && !out->n ? EXIT_TROUBLE : 0;
}

void steps_near(const struct args *args, const char *dir, int depth, struct steps *out)
{
	struct search s = { .out = out, .depth = depth < DEPTH ? depth : DEPTH };

	find(args, dir, &s);
	cli_free(s.unread.list);
}

void steps_no_folder(const char *dir, struct ckpt_err *err)
{
	struct stat st;
	int why = stat(dir, &st) ? errno : access(dir, R_OK | X_OK) ? errno : 0;

	*err = (struct ckpt_err){ .offset = CKPT_NO_OFFSET,
				  .code = why == ENOENT ? CKPT_E_NOTFOUND : CKPT_E_IO };
	snprintf(err->where, sizeof(err->where), "%s", dir);
	snprintf(err->msg, sizeof(err->msg), "%s", why ? steps_why(why) : "cannot be listed");
}

void json_no_folder(const struct args *args, const char *verb, const char *dir)
{
	struct ckpt_err err;
	struct json json;

	if (!args->json)
		return;
	steps_no_folder(dir, &err);
	json_begin(&json, stdout, verb);
	json_error(&json, &err);
	json_close(&json, '}');
}

void step_release(struct step *step)
{
	cli_free(step->path);
	cli_free(step->name);
	cli_free(step->format);
	cli_free(step->id);
	cli_free(step->text);
	cli_free(step->why);
	*step = (struct step){ 0 };
}

void steps_free(struct steps *steps)
{
	for (size_t i = 0; i < steps->n; i++)
		step_release(&steps->step[i]);
	cli_free(steps->step);
	*steps = (struct steps){ 0 };
}
