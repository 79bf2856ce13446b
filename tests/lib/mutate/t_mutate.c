/* See t_mutate.h: bytes. */
#include "tests/lib/mutate/t_mutate.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/mutate/t_spans.h"

bool t_mutant(struct t_sink *s, const char *mutation, const char *fmt, ...)
{
	char what[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	if (!s->mutation || strcmp(s->mutation, mutation)) {
		s->mutation = mutation;
		s->number = 0;
	}
	return s->want(s->arg, mutation, ++s->number, what);
}

void t_mutant_made(struct t_sink *s, struct t_files *made)
{
	s->take(s->arg, made);
	t_files_free(made);
}

/* Files that represent all of their kind: the first and the last rank's, one parameter's. */
static bool is_chosen(const struct t_base *b, const struct t_file *f)
{
	static const char *const twins[] = { "optim_states.pt", "_model_states.pt", ".pt" };
	const size_t k = strlen(b->step);
	const char *name = f->name + k, *slash;
	size_t first = b->files.n, last = 0, me = (size_t)(f - b->files.f), t = 0;

	if (strstr(f->name, "zckpt-manifest.json") || t_ends_with(f->name, ".py") ||
	    (strncmp(f->name, b->step, k) && strcmp(f->name, "latest")))
		return false;
	if (!*b->step || !t_ends_with(f->name, ".pt"))
		return true;
	while (t < 2 && !strstr(name, twins[t]))
		t++;
	slash = strrchr(f->name, '/');
	for (size_t i = 0; i < b->files.n; i++) {
		const char *other = b->files.f[i].name;

		/* of states by parameter: those of the first folder */
		if (t == 2 ? !strcmp(strrchr(other, '/') ? strrchr(other, '/') : "", slash) &&
			     !strncmp(other, b->step, k)
			   : !strncmp(other, b->step, k) && strstr(other, twins[t]) != NULL) {
			first = i < first ? i : first;
			last = i;
		}
	}
	return me == first || (t < 2 && me == last);
}

static const char *base_name(const char *name)
{
	return strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
}

static void flip(const struct t_base *b, struct t_sink *s, const struct t_file *f,
		 const struct t_span *m)
{
	static char name[T_REGIONS][80];
	const size_t flips = m->flips < m->n ? m->flips : m->n;

	snprintf(name[m->region], sizeof(name[0]), "a bit flips in %s",
		 t_region_names[m->region]);
	for (size_t i = 0; i < flips; i++) {
		const size_t at = m->off + (flips > 1 ? i * (m->n - 1) / (flips - 1) : 0);
		struct t_files made;

		if (!t_mutant(s, name[m->region], "%s, %s, byte %zu", base_name(f->name), m->what,
			      at))
			continue;
		t_files_copy(&made, &b->files);
		t_file_own(t_files_find(&made, f->name))[at] ^=
			(uint8_t)(1u << (at * 5 + i) % 8);
		t_mutant_made(s, &made);
	}
}

static void cut(const struct t_base *b, struct t_sink *s, const struct t_file *f, size_t left,
		const char *mutation, const char *what)
{
	struct t_files made;

	if (left >= f->n ||
	    !t_mutant(s, mutation, "%s, %s: %zu of %zu bytes", base_name(f->name), what, left,
		      f->n))
		return;
	t_files_copy(&made, &b->files);
	t_files_set(&made, f->name, f->p, left);
	t_mutant_made(s, &made);
}

static void grow(const struct t_base *b, struct t_sink *s, const struct t_file *f,
		 const char *mutation, const void *tail, size_t n)
{
	struct t_files made;
	uint8_t *p;

	if (!t_mutant(s, mutation, "%s", base_name(f->name)))
		return;
	p = t_alloc(f->n + n);
	memcpy(p, f->p, f->n);
	memcpy(p + f->n, tail, n);
	t_files_copy(&made, &b->files);
	t_files_set(&made, f->name, p, f->n + n);
	t_mutant_made(s, &made);
	free(p);
}

static bool is_text(const struct t_file *f)
{
	return t_ends_with(f->name, ".json") || t_ends_with(f->name, "latest") ||
	       t_ends_with(f->name, "latest_universal");
}

/* One kind of mutation after another over all files, so that each has its numbers in one row. */
static void flip_all(const struct t_base *b, struct t_sink *s)
{
	for (enum t_region r = 0; r < T_REGIONS; r++)
		for (size_t i = 0; i < b->files.n; i++) {
			const struct t_file *f = &b->files.f[i];
			struct t_spans marks;

			if (!is_chosen(b, f))
				continue;
			t_spans_to_flip(&marks, f->p, f->n);
			for (size_t k = 0; k < marks.n; k++)
				if (marks.m[k].region == r)
					flip(b, s, f, &marks.m[k]);
			t_spans_free(&marks);
		}
}

static void cut_all(const struct t_base *b, struct t_sink *s)
{
	for (size_t i = 0; i < b->files.n; i++) {
		struct t_file *f = &b->files.f[i];
		struct t_spans cuts;

		if (!is_chosen(b, f))
			continue;
		t_spans_to_cut(&cuts, f->p, f->n);
		for (size_t k = 0; k < cuts.n; k++)
			cut(b, s, f, cuts.m[k].off, "a file is cut at a boundary", cuts.m[k].what);
		t_spans_free(&cuts);
	}
}

void t_mutate_bytes(const struct t_base *b, struct t_sink *s)
{
	static const char zeros[64];
	const char *one = "a file lacks its last byte", *empty = "a file is empty";

	flip_all(b, s);
	cut_all(b, s);
	for (size_t i = 0; i < b->files.n; i++)
		if (is_chosen(b, &b->files.f[i]))
			cut(b, s, &b->files.f[i], b->files.f[i].n - 1, one, "one byte");
	for (size_t i = 0; i < b->files.n; i++)
		if (is_chosen(b, &b->files.f[i]))
			cut(b, s, &b->files.f[i], 0, empty, "all");
	for (size_t i = 0; i < b->files.n; i++) {
		const struct t_file *f = &b->files.f[i];

		if (!is_chosen(b, f))
			continue;
		grow(b, s, f, "bytes follow the end of a file", is_text(f) ? "}" : "x", 1);
		grow(b, s, f, "bytes follow the end of a file", zeros, sizeof(zeros));
	}
	for (size_t i = 0; i < b->files.n; i++) {
		const struct t_file *f = &b->files.f[i];
		struct t_files made;
		char *nothing;

		if (!is_chosen(b, f) ||
		    !t_mutant(s, "a file is zeros", "%s", base_name(f->name)))
			continue;
		nothing = t_alloc(f->n + 1);
		t_files_copy(&made, &b->files);
		t_files_set(&made, f->name, nothing, f->n);
		t_mutant_made(s, &made);
		free(nothing);
	}
}
