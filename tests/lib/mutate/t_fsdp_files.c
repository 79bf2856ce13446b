/* See t_fsdp.h: files as a whole, and their bytes. */
#define _GNU_SOURCE
#include "tests/lib/mutate/t_fsdp.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/archive/t_sums.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/run/t_seed.h"

uint64_t t_fsdp_draw(struct t_fsdp *m, uint64_t n)
{
	return t_draw_below(m->random, n);
}

bool t_fsdp_say(struct t_fsdp *m, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(m->what, sizeof(m->what), fmt, ap);
	va_end(ap);
	return true;
}

/* Of tensors: not the random states, configurations and schedulers beside them. */
static bool is_read(const char *name)
{
	return strstr(name, ".metadata") || strstr(name, ".distcp") || strstr(name, "model_") ||
	       strstr(name, "optim") || strstr(name, "common.pt") || strstr(name, "metadata.json");
}

struct t_file *t_fsdp_pick(struct t_fsdp *m, const char *part, const char *end)
{
	struct t_file *found = NULL;
	uint64_t n = 0;

	for (size_t i = 0; i < m->files->n; i++) {
		struct t_file *f = &m->files->f[i];

		if (!is_read(f->name) || !strstr(f->name, part) || !t_ends_with(f->name, end))
			continue;
		if (!t_fsdp_draw(m, ++n))
			found = f;
	}
	return found;
}

static const char *base(const char *name)
{
	const char *slash = strrchr(name, '/');

	return slash ? slash + 1 : name;
}

static struct t_file *pick_data(struct t_fsdp *m)
{
	struct t_file *f = t_fsdp_pick(m, "", "");

	return f && !t_ends_with(f->name, ".metadata") ? f : NULL;
}

/* Another file that is as different as its name says. */
static struct t_file *pick_second(struct t_fsdp *m, const struct t_file *f)
{
	struct t_file *g = pick_data(m);

	if (!g || g == f || (g->n == f->n && !memcmp(g->p, f->p, f->n)) ||
	    t_fsdp_same_plan(m->files, f->name, m->files, g->name))
		return NULL;
	return g;
}

static bool swap_files(struct t_fsdp *m)
{
	struct t_file *f = pick_data(m), *g = f ? pick_second(m, f) : NULL;

	if (!g)
		return false;
	t_files_swap(f, g);
	return t_fsdp_say(m, "%s and %s", f->name, g->name);
}

static bool copy_over(struct t_fsdp *m)
{
	struct t_file *f = pick_data(m), *g = f ? pick_second(m, f) : NULL;

	if (!g)
		return false;
	t_fsdp_say(m, "%s over %s", f->name, g->name);
	t_files_set(m->files, g->name, f->p, f->n);
	return true;
}

static bool drop_file(struct t_fsdp *m)
{
	struct t_file *f = t_fsdp_pick(m, "", "");

	if (!f || t_ends_with(f->name, "optimizer.bin"))
		return false;
	t_fsdp_say(m, "%s", f->name);
	t_files_drop(m->files, f->name);
	return true;
}

/* Under the name of a rank that there is not, or of one by other ranks. */
static bool rename_file(struct t_fsdp *m)
{
	struct t_file *f = pick_data(m);
	char *to, *digit;

	if (!f || t_ends_with(f->name, "fsdp.bin") || t_ends_with(f->name, "optimizer.bin"))
		return false;
	to = t_fmt("%s", f->name);
	for (digit = to + strlen(to); digit > to; digit--)
		if (digit[-1] >= '0' && digit[-1] <= '9' && !t_fsdp_draw(m, 2))
			break;
	if (digit == to || digit < base(to)) {
		free(to);
		return false;
	}
	digit[-1] = (char)('0' + (digit[-1] - '0' + 1 + t_fsdp_draw(m, 9)) % 10);
	t_fsdp_say(m, "%s to %s", f->name, to);
	if (!t_files_find(m->files, to)) {
		char *from = t_fmt("%s", f->name);

		t_files_rename(m->files, from, to);
		free(from);
		free(to);
		return true;
	}
	free(to);
	return false;
}

/*
 * From a checkpoint of another run or world: where it has none of that name, one like it.  Not a
 * rank's file of a run by as many ranks.
 */
static bool foreign_file(struct t_fsdp *m)
{
	struct t_file *f = t_fsdp_pick(m, "", "");
	const struct t_file *g = NULL, *like = NULL;
	uint64_t n = 0;

	if (!f || !m->other)
		return false;
	for (size_t i = 0; i < m->other->n; i++) {
		const struct t_file *o = &m->other->f[i];

		if (!strcmp(base(o->name), base(f->name)))
			g = o;
		else if (is_read(o->name) && !strncmp(base(o->name), base(f->name), 5) &&
			 t_ends_with(o->name, strrchr(f->name, '.')) && !t_fsdp_draw(m, ++n))
			like = o;
	}
	if (g && strstr(g->name, "_world_size"))
		return false;
	g = g ? g : like;
	if (!g || (g->n == f->n && !memcmp(g->p, f->p, f->n)) ||
	    t_fsdp_same_plan(m->files, f->name, m->other, g->name))
		return false;
	t_fsdp_say(m, "%s from %s", f->name, g->name);
	t_files_set(m->files, f->name, g->p, g->n);
	return true;
}

static bool cut_file(struct t_fsdp *m)
{
	struct t_file *f = t_fsdp_pick(m, "", "");
	uint8_t *p = f ? t_file_own(f) : NULL;

	if (!f || !f->n)
		return false;
	f->n = t_fsdp_draw(m, 4) ? t_fsdp_draw(m, f->n) : f->n - 1 - t_fsdp_draw(m, 8) % f->n;
	f->p = p;
	return t_fsdp_say(m, "%s at byte %zu", f->name, f->n);
}

static bool append_bytes(struct t_fsdp *m)
{
	struct t_file *f = t_fsdp_pick(m, "", "");
	const uint64_t k = 1 + t_fsdp_draw(m, 3000);
	uint8_t *p;

	if (!f)
		return false;
	p = t_alloc(f->n + k);
	if (f->n)
		memcpy(p, f->p, f->n);
	for (uint64_t i = 0; i < k; i++)	/* zeros, or the file once more */
		p[f->n + i] = k & 1 && i < f->n ? f->p[i] : 0;
	t_fsdp_say(m, "%s and %llu bytes", f->name, (unsigned long long)k);
	t_files_set(m->files, f->name, p, f->n + k);
	free(p);
	return true;
}

static bool flip_bits(struct t_fsdp *m)
{
	struct t_file *f = t_fsdp_pick(m, "", "");
	uint64_t at = 0;
	uint8_t *p = f ? t_file_own(f) : NULL;

	if (!f || !f->n)
		return false;
	for (uint64_t i = 0, k = 1 + t_fsdp_draw(m, 3); i < k; i++) {
		at = t_fsdp_draw(m, f->n);
		p[at] ^= (uint8_t)(1u << t_fsdp_draw(m, 8));
	}
	return t_fsdp_say(m, "%s, the last at byte %llu", f->name, (unsigned long long)at);
}

/* As a block of a disk that was never written. */
static bool zero_bytes(struct t_fsdp *m)
{
	struct t_file *f = t_fsdp_pick(m, "", "");
	uint8_t *p = f ? t_file_own(f) : NULL;
	const uint64_t n = 64 + t_fsdp_draw(m, 4000), at = f ? t_fsdp_draw(m, f->n) : 0;

	if (!f || !f->n)
		return false;
	memset(p + at, 0, n < f->n - at ? n : f->n - at);
	return t_fsdp_say(m, "%s at byte %llu, %llu", f->name, (unsigned long long)at,
			  (unsigned long long)n);
}

/* A byte of a pickle in a data file of DCP; the checksums become right. */
static bool change_pickle(struct t_fsdp *m)
{
	struct t_file *f = t_fsdp_pick(m, "", ".distcp");
	uint8_t *p = f ? t_file_own(f) : NULL, *at = p, *found = NULL, *end;
	uint64_t n = 0, k;
	uint8_t was;

	for (; at && (at = memmem(at, f->n - (size_t)(at - p), "/data.pkl", 9)); at += 9)
		if (at - p > 40 && at[9] == 'F' && !t_fsdp_draw(m, ++n))
			found = at;
	found = found ? memmem(found, f->n - (size_t)(found - p), "\x80\x02", 2) : NULL;
	end = found ? memmem(found, f->n - (size_t)(found - p), "PK\7\10", 4) : NULL;
	if (!end || end == found)
		return false;
	k = t_fsdp_draw(m, (uint64_t)(end - found));
	was = found[k];
	found[k] = (uint8_t)t_fsdp_draw(m, 256);
	if (t_fsdp_draw(m, 2))
		found[k] = (uint8_t)(was ^ 1u << t_fsdp_draw(m, 8));
	t_sums_set(p, f->n);
	return t_fsdp_say(m, "%s at byte %lld, %u to %u", f->name, (long long)(found + k - p), was,
			  found[k]);
}

const struct t_fsdp_kind t_fsdp_files[] = {
	{ "files: two exchanged", swap_files, T_ANY },
	{ "files: one over another", copy_over, T_ANY },
	{ "files: one missing", drop_file, T_ANY },
	{ "files: one renamed", rename_file, T_ANY },
	{ "files: one of another run or world", foreign_file, T_ANY },
	{ "bytes: cut off", cut_file, T_ANY },
	{ "bytes: added at the end", append_bytes, T_ANY },
	{ "bytes: bits flipped", flip_bits, T_ANY },
	{ "bytes: zeros", zero_bytes, T_ANY },
	{ "bytes: of a pickle, with its sum", change_pickle, T_FSDP_DCP | T_MEGATRON },
	{ NULL, NULL, 0 },
};
