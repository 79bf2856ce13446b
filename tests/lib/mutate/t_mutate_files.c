/* See t_mutate.h: whole files, and what a folder is called. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/archive/t_arch.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/mutate/t_mutate.h"

#define MODEL "model_states.pt"
#define SHARD "optim_states.pt"

struct ranks {
	const struct t_file *f[16];
	size_t n;
};

static struct ranks files_like(const struct t_files *all, const char *step, const char *part)
{
	struct ranks r = { .n = 0 };

	for (struct t_file *f = NULL; r.n < 16 && (f = t_files_next(all, f, part)); )
		if (!strncmp(f->name, step, strlen(step)) && !strchr(f->name + strlen(step), '/'))
			r.f[r.n++] = f;
	return r;
}

static const char *base_name(const struct t_file *f)
{
	return strrchr(f->name, '/') ? strrchr(f->name, '/') + 1 : f->name;
}

static struct t_file *mine(struct t_files *made, const struct t_file *of)
{
	struct t_file *f = t_files_find(made, of->name);

	if (!f)
		t_die("the copy has no %s", of->name);
	return f;
}

/* ----------------------------------------------------------------- absent and more */

static void absent(const struct t_base *b, struct t_sink *s)
{
	const struct ranks shards = files_like(&b->files, b->step, SHARD);
	struct t_files made;

	for (size_t i = 0; i < b->files.n; i++) {
		const char *name = b->files.f[i].name;

		if (strstr(name, "zckpt-manifest") || t_ends_with(name, ".py") ||
		    !strcmp(name, b->open) ||
		    (*b->step && strncmp(name, b->step, strlen(b->step)) &&
		     strcmp(name, "latest")) ||
		    !t_mutant(s, "a file is absent", "%s", name))
			continue;
		t_files_copy(&made, &b->files);
		t_files_drop(&made, name);
		t_mutant_made(s, &made);
	}
	if (shards.n && t_mutant(s, "a file is absent", "all shards")) {
		t_files_copy(&made, &b->files);
		for (size_t i = 0; i < shards.n; i++)
			t_files_drop(&made, shards.f[i]->name);
		t_mutant_made(s, &made);
	}
}

static void one_more(const struct t_base *b, struct t_sink *s, const char *mutation,
		     const char *name, const void *p, size_t n)
{
	struct t_files made;
	char *path = t_fmt("%s%s", b->step, name);

	if (t_mutant(s, mutation, "%s", name)) {
		t_files_copy(&made, &b->files);
		t_files_set(&made, path, p, n);
		t_mutant_made(s, &made);
	}
	free(path);
}

static void foreign(const struct t_base *b, struct t_sink *s)
{
	const char *mutation = "a foreign file is added";
	const struct t_file *pt = t_files_next(&b->files, NULL, b->step);

	if (*b->open)
		return;		/* a file by itself has no beside */
	one_more(b, s, mutation, "notes.txt", "keep this\n", 10);
	while (pt && !t_ends_with(pt->name, ".pt") && !t_ends_with(pt->name, ".bin") &&
	       !t_ends_with(pt->name, "model-00001-of-00003.safetensors"))
		pt = t_files_next(&b->files, pt, b->step);
	if (!pt)
		return;
	one_more(b, s, mutation, t_ends_with(pt->name, ".pt") ? "other.pt" :
		 t_ends_with(pt->name, ".bin") ? "other.bin" : "other.safetensors", pt->p, pt->n);
}

/* --------------------------------------------------------------- ranks mixed up */

static void swap_pair(const struct t_base *b, struct t_sink *s, const char *mutation,
		      const struct t_file *x, const struct t_file *y)
{
	struct t_files made;

	if (!t_mutant(s, mutation, "%s and %s", x->name + strlen(b->step),
		      y->name + strlen(b->step)))
		return;
	t_files_copy(&made, &b->files);
	t_files_swap(mine(&made, x), mine(&made, y));
	t_mutant_made(s, &made);
}

static void swaps(const struct t_base *b, struct t_sink *s, const char *mutation,
		  const struct ranks *r)
{
	if (r->n < 2)
		return;
	swap_pair(b, s, mutation, r->f[0], r->f[1]);
	if (r->n > 2)
		swap_pair(b, s, mutation, r->f[r->n - 2], r->f[r->n - 1]);
}

/* The archive says what its file is called: here it says what the other one is called. */
static void reprefix(struct t_file *f, const struct t_file *as)
{
	struct t_arch *a = t_alloc(sizeof(*a));
	char *prefix = t_fmt("%s", base_name(as)), *dot = strrchr(prefix, '.');

	if (dot)
		*dot = 0;
	if (t_arch_parse(a, f->p, f->n)) {
		size_t n;
		uint8_t *p = t_arch_build(a, 64, prefix, NULL, 0, &n);

		t_file_own(f);
		free(f->p);
		f->p = p;
		f->n = n;
	}
	free(prefix);
	free(a);
}

static void swap_both(const struct t_base *b, struct t_sink *s, const struct ranks *shards,
		      const struct ranks *models)
{
	struct t_files made;

	if (models->n > 1 && shards->n > 1 &&
	    t_mutant(s, "two ranks are swapped, shards and model files", "ranks 0 and 1")) {
		t_files_copy(&made, &b->files);
		t_files_swap(mine(&made, shards->f[0]), mine(&made, shards->f[1]));
		t_files_swap(mine(&made, models->f[0]), mine(&made, models->f[1]));
		t_mutant_made(s, &made);
	}
	for (size_t i = 0; i + 1 < shards->n; i++) {
		struct t_file *x, *y;

		if (!t_mutant(s, "two shards are swapped, and renamed inside", "ranks %zu and %zu",
			      i, i + 1))
			continue;
		t_files_copy(&made, &b->files);
		x = mine(&made, shards->f[i]);
		y = mine(&made, shards->f[i + 1]);
		t_files_swap(x, y);
		reprefix(x, x);
		reprefix(y, y);
		t_mutant_made(s, &made);
	}
}

static void doubled(const struct t_base *b, struct t_sink *s, const char *mutation,
		    const struct ranks *r, bool renamed)
{
	for (size_t i = 1; i < r->n; i++) {
		struct t_files made;
		struct t_file *f;

		if (!t_mutant(s, mutation, "%s is a copy of %s", base_name(r->f[i]),
			      base_name(r->f[0])))
			continue;
		t_files_copy(&made, &b->files);
		t_files_set(&made, r->f[i]->name, r->f[0]->p, r->f[0]->n);
		f = mine(&made, r->f[i]);
		if (renamed)
			reprefix(f, f);
		t_mutant_made(s, &made);
	}
}

/* ------------------------------------------------------------------- other steps */

static const struct t_file *same_of(const struct t_files *from, const struct t_file *f)
{
	const char *name = base_name(f);

	for (size_t i = 0; i < from->n; i++)
		if (!strcmp(base_name(&from->f[i]), name))
			return &from->f[i];
	return NULL;
}

static void take_from(const struct t_base *b, struct t_sink *s, const char *mutation,
		      const struct t_files *from, const struct ranks *r)
{
	for (size_t i = 0; i < r->n; i++) {
		const struct t_file *other = same_of(from, r->f[i]);
		struct t_files made;

		if (!other || !t_mutant(s, mutation, "%s", base_name(r->f[i])))
			continue;
		t_files_copy(&made, &b->files);
		t_files_set(&made, r->f[i]->name, other->p, other->n);
		t_mutant_made(s, &made);
	}
}

/* The files of ranks that the step does not have are put beside. */
static void left_over(const struct t_base *b, struct t_sink *s, const char *part)
{
	for (struct t_file *f = NULL; (f = t_files_next(&b->wider, f, part)); ) {
		char *name = t_fmt("%s%s", b->step, base_name(f));

		if (!t_files_find(&b->files, name))
			one_more(b, s, "a rank's file of a larger world is left over", base_name(f),
				 f->p, f->n);
		free(name);
	}
}

static void whole_rank(const struct t_base *b, struct t_sink *s, const struct ranks *shards,
		       const struct ranks *models)
{
	for (size_t i = 0; i < shards->n && models->n > 1; i++) {
		const struct t_file *x = same_of(&b->older, shards->f[i]);
		const struct t_file *y = same_of(&b->older, models->f[i]);
		struct t_files made;

		if (!x || !y || !t_mutant(s, "a rank's files are of another step", "rank %zu", i))
			continue;
		t_files_copy(&made, &b->files);
		t_files_set(&made, shards->f[i]->name, x->p, x->n);
		t_files_set(&made, models->f[i]->name, y->p, y->n);
		t_mutant_made(s, &made);
	}
}

/* ------------------------------------------------------------------ names of steps */

static void latest(const struct t_base *b, struct t_sink *s, const char *what, const void *text,
		   size_t n)
{
	struct t_files made;

	if (!t_mutant(s, "'latest' is wrong", "%s", what))
		return;
	t_files_copy(&made, &b->files);
	t_files_set(&made, "latest", text, n);
	t_mutant_made(s, &made);
}

static void lies(const struct t_base *b, struct t_sink *s)
{
	const struct t_file *f = t_files_find(&b->files, "latest");
	char *text;

	if (!f)
		return;
	latest(b, s, "it names a step that is not there", "global_step99", 13);
	for (size_t i = 0; i < b->files.n; i++) {
		const char *slash = strchr(b->files.f[i].name, '/');

		if (!slash || !strncmp(b->files.f[i].name, b->step, strlen(b->step)))
			continue;
		latest(b, s, "it names another step that is there", b->files.f[i].name,
		       (size_t)(slash - b->files.f[i].name));
		break;
	}
	text = t_fmt("%.*sx", (int)f->n, (const char *)f->p);
	latest(b, s, "something follows the name", text, strlen(text));
	free(text);
	text = t_fmt("%.*s\nglobal_step1\n", (int)f->n, (const char *)f->p);
	latest(b, s, "a second line", text, strlen(text));
	free(text);
	latest(b, s, "it is empty", "", 0);
	latest(b, s, "it is white space", " \n", 2);
	latest(b, s, "it holds zeros", "\0\0\0\0\0\0\0\0\0\0\0\0", 12);
	latest(b, s, "it holds bytes that are no text", "\377\376\1\2\3\4\200\201\202\203", 10);
	latest(b, s, "it leads out of the folder", "../global_step1", 15);
	latest(b, s, "it names the folder itself", ".", 1);
}

static void renames(const struct t_base *b, struct t_sink *s)
{
	static const struct {
		const char *what, *to;
		bool latest;
	} way[] = {
		{ "the folder alone", "renamed/", false },
		{ "the folder, and 'latest' with it", "renamed/", true },
		{ "the folder, as if it were of step 7, and 'latest' with it", "global_step7/",
		  true },
	};
	struct t_files made;

	if (!*b->step || !t_files_find(&b->files, "latest"))
		return;
	for (size_t i = 0; i < sizeof(way) / sizeof(way[0]); i++) {
		if (!t_mutant(s, "a step is renamed", "%s", way[i].what))
			continue;
		t_files_copy(&made, &b->files);
		t_files_rename(&made, b->step, way[i].to);
		if (way[i].latest)
			t_files_set(&made, "latest", way[i].to, strlen(way[i].to) - 1);
		t_mutant_made(s, &made);
	}
}

/* --------------------------------------------------- files of formats without ranks */

/* Shards of a folder, or states of parameters, in each other's place. */
static void other_swaps(const struct t_base *b, struct t_sink *s)
{
	static const char *const like[] = { "/fp32.pt", "/exp_avg.pt", "-of-00003." };

	for (size_t k = 0; k < sizeof(like) / sizeof(like[0]); k++) {
		const struct t_file *x = NULL;
		int n = 0;

		while (n < 6 && (x = t_files_next(&b->files, x, like[k]))) {
			const struct t_file *y = x;

			while ((y = t_files_next(&b->files, y, like[k])) && y->n != x->n)
				;
			if (!y)
				continue;
			n++;
			swap_pair(b, s, "two files of equal length are swapped", x, y);
		}
	}
}

static void other_doubles(const struct t_base *b, struct t_sink *s)
{
	const struct ranks r = files_like(&b->files, b->step, "-of-00003.");

	doubled(b, s, "a shard is there twice", &r, false);
}

void t_mutate_files(const struct t_base *b, struct t_sink *s)
{
	const struct ranks shards = files_like(&b->files, b->step, SHARD);
	const struct ranks models = files_like(&b->files, b->step, MODEL);

	absent(b, s);
	foreign(b, s);
	swaps(b, s, "two shards are swapped", &shards);
	swaps(b, s, "two model files are swapped", &models);
	swap_both(b, s, &shards, &models);
	doubled(b, s, "a shard is a copy of rank 0's", &shards, false);
	doubled(b, s, "a shard is a copy of rank 0's, renamed inside", &shards, true);
	doubled(b, s, "a model file is a copy of rank 0's", &models, false);
	take_from(b, s, "a shard is of another step", &b->older, &shards);
	take_from(b, s, "a model file is of another step", &b->older, &models);
	whole_rank(b, s, &shards, &models);
	take_from(b, s, "a shard is of a run with fewer ranks", &b->narrower, &shards);
	take_from(b, s, "a model file is of a run with fewer ranks", &b->narrower, &models);
	left_over(b, s, SHARD);
	left_over(b, s, MODEL);
	lies(b, s);
	renames(b, s);
	other_swaps(b, s);
	other_doubles(b, s);
}
