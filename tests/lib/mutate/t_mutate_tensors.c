/* See t_mutate.h: tensors in each other's place, and padding that is gone; checksums are right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/include/ckpt.h"
#include "tests/lib/archive/t_arch.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/mutate/t_mutate.h"
#include "tests/lib/ops/t_step.h"

#define PAIRS 2		/* of a state */

/* What is made right again in an archive. */
enum right {
	LEFT = 0,	/* nothing */
	CRCS,
	ALL,		/* torch's sum of the CRCs too */
};

/* A state of a tensor that is in one piece. */
struct place {
	const char *file;	/* below the folder */
	uint64_t off, bytes;
};

static bool find_place(const struct t_base *b, const struct ckpt *ck, uint64_t tensor,
		       const char *state, struct place *out)
{
	struct ckpt_tensor_info t;
	struct ckpt_state_info s;
	struct ckpt_extent_info e;

	ckpt_tensor_get(ck, tensor, &t, NULL);
	if (t.role == CKPT_ROLE_ALIAS || t.numel < 2)
		return false;
	for (uint32_t i = 0; i < t.nstates; i++) {
		ckpt_state_get(ck, tensor, i, &s, NULL);
		if (strcmp(s.name, state) || (s.flags & CKPT_STATE_DERIVED) || s.nextents != 1)
			continue;
		ckpt_extent_get(ck, tensor, i, 0, &e, NULL);
		if (e.flags || e.runs != 1 || strncmp(e.path, b->dir, strlen(b->dir)))
			return false;
		*out = (struct place){ e.path + strlen(b->dir) + 1, e.offset,
				       e.count * ckpt_dtype_bits(e.dtype) / 8 };
		return true;
	}
	return false;
}

static bool are_alike(const struct ckpt *ck, uint64_t i, uint64_t j)
{
	struct ckpt_tensor_info a, b;
	struct ckpt_state_info x, y;

	ckpt_tensor_get(ck, i, &a, NULL);
	ckpt_tensor_get(ck, j, &b, NULL);
	if (!a.nstates || !b.nstates || a.ndim != b.ndim)
		return false;
	for (uint32_t d = 0; d < a.ndim; d++)
		if (a.shape[d] != b.shape[d])
			return false;
	ckpt_state_get(ck, i, 0, &x, NULL);
	ckpt_state_get(ck, j, 0, &y, NULL);
	return x.dtype == y.dtype;
}

static bool differ(const struct t_base *b, const struct place *x, const struct place *y)
{
	const struct t_file *f = t_files_find(&b->files, x->file);
	const struct t_file *g = t_files_find(&b->files, y->file);

	return x->bytes == y->bytes && memcmp(f->p + x->off, g->p + y->off, x->bytes) != 0;
}

static void make_right(struct t_file *f, enum right right)
{
	struct t_arch *a = t_alloc(sizeof(*a));

	if (t_arch_parse(a, f->p, f->n)) {
		if (right >= CRCS)
			t_arch_fix_crcs(a);
		if (right >= ALL)
			t_arch_fix_id(a);
	}
	free(a);
}

static void exchange(struct t_files *made, const struct place *x, const struct place *y,
		     enum right right)
{
	struct t_file *f = t_files_find(made, x->file), *g = t_files_find(made, y->file);
	uint8_t *p = t_file_own(f) + x->off, *q = t_file_own(g) + y->off;

	for (uint64_t i = 0; i < x->bytes; i++) {
		const uint8_t c = p[i];

		p[i] = q[i];
		q[i] = c;
	}
	make_right(f, right);
	make_right(g, right);
}

/* ---------------------------------------------------------- by what names the bytes */

/* The record of storages that these bytes are the whole of, or NULL. */
static struct t_arch_member *record_of(struct t_arch *a, const struct place *x)
{
	for (size_t i = 0; i < a->count; i++)
		if (a->m[i].data == x->off && a->m[i].n == x->bytes)
			return &a->m[i];
	return NULL;
}

/* In both headers each is called as the other is. */
static void exchange_names(struct t_arch *a, const struct t_arch_member *m,
			   const struct t_arch_member *n)
{
	const size_t k = strlen(m->name);

	memcpy(a->p + m->header + 30, n->name, k);
	memcpy(a->p + m->central + 46, n->name, k);
	memcpy(a->p + n->header + 30, m->name, k);
	memcpy(a->p + n->central + 46, m->name, k);
}

/* In the pickle each storage is called as the other is. */
static void exchange_keys(struct t_arch *a, const char *x, const char *y)
{
	const struct t_arch_member *pkl = t_arch_find(a, "data.pkl");
	const size_t k = strlen(x);
	uint8_t *p = a->p + pkl->data;

	for (size_t i = 0; i + 5 + k <= pkl->n; i++) {
		if (p[i] != 'X' || p[i + 1] != k || p[i + 2] || p[i + 3] || p[i + 4])
			continue;
		if (!memcmp(p + i + 5, x, k))
			memcpy(p + i + 5, y, k);
		else if (!memcmp(p + i + 5, y, k))
			memcpy(p + i + 5, x, k);
	}
	t_arch_fix_crcs(a);
	t_arch_fix_id(a);
}

static void by_name(const struct t_base *b, struct t_sink *s, const struct place *x,
		    const struct place *y, const char *what, bool keys)
{
	const struct t_file *f = t_files_find(&b->files, x->file);
	struct t_arch *a = t_alloc(sizeof(*a));
	struct t_arch_member *m = NULL, *n = NULL;

	if (!strcmp(x->file, y->file) && t_arch_parse(a, f->p, f->n)) {
		m = record_of(a, x);
		n = record_of(a, y);
	}
	if (m && n && strlen(m->name) == strlen(n->name) &&
	    t_mutant(s, keys ? "two tensors are swapped by the keys in the pickle" :
		     "two tensors are swapped by the names of their records", "%s", what)) {
		char *key_x = t_fmt("%s", m->rest + 5), *key_y = t_fmt("%s", n->rest + 5);
		struct t_files made;
		struct t_file *g;

		t_files_copy(&made, &b->files);
		g = t_files_find(&made, x->file);
		a->p = t_file_own(g);
		if (keys)
			exchange_keys(a, key_x, key_y);
		else
			exchange_names(a, m, n);
		t_mutant_made(s, &made);
		free(key_x);
		free(key_y);
	}
	free(a);
}

/* In the header of safetensors: "data_offsets":[A,B] of both, in digits of equal number. */
static void by_offsets(const struct t_base *b, struct t_sink *s, const struct place *x,
		       const struct place *y, const char *what)
{
	const struct t_file *f = t_files_find(&b->files, x->file);
	char *one, *two, *p, *q;
	size_t data = 0;

	if (!t_ends_with(x->file, ".safetensors") || strcmp(x->file, y->file))
		return;
	for (int i = 8; i-- > 0; )
		data = data << 8 | f->p[i];
	data += 8;
	one = t_fmt("[%zu,%zu]", (size_t)x->off - data, (size_t)(x->off + x->bytes) - data);
	two = t_fmt("[%zu,%zu]", (size_t)y->off - data, (size_t)(y->off + y->bytes) - data);
	p = memmem(f->p, data, one, strlen(one));
	q = memmem(f->p, data, two, strlen(two));
	if (p && q && strlen(one) == strlen(two) &&
	    t_mutant(s, "two tensors are swapped by their offsets in the header", "%s", what)) {
		struct t_files made;
		struct t_file *g;

		t_files_copy(&made, &b->files);
		g = t_files_find(&made, x->file);
		memcpy(t_file_own(g) + (p - (char *)f->p), two, strlen(two));
		memcpy(g->p + (q - (char *)f->p), one, strlen(one));
		t_mutant_made(s, &made);
	}
	free(one);
	free(two);
}

/* ---------------------------------------------------------------------------- pairs */

static const char *const states[] = { "weight", "master", "exp_avg", "exp_avg_sq" };

struct pair {
	struct place x, y;
	char *what;
};

static size_t find_pairs(const struct t_base *b, const struct ckpt *ck, const char *state,
			 struct pair *out)
{
	struct ckpt_tensor_info t, u;
	struct ckpt_info info;
	size_t n = 0;

	ckpt_info_get(ck, &info);
	for (uint64_t i = 0; i < info.ntensors && n < PAIRS; i++)
		for (uint64_t j = i + 1; j < info.ntensors; j++) {
			struct pair p;

			if (!are_alike(ck, i, j) || !find_place(b, ck, i, state, &p.x) ||
			    !find_place(b, ck, j, state, &p.y) || !differ(b, &p.x, &p.y))
				continue;
			ckpt_tensor_get(ck, i, &t, NULL);
			ckpt_tensor_get(ck, j, &u, NULL);
			p.what = t_fmt("%s of %s and %s", state, t.name, u.name);
			out[n++] = p;
			break;
		}
	return n;
}

static bool has_sums(const struct t_base *b, const struct place *x, enum right right)
{
	const struct t_file *f = t_files_find(&b->files, x->file);
	struct t_arch *a = t_alloc(sizeof(*a));
	const bool is = t_arch_parse(a, f->p, f->n), id = is && t_arch_has_id(a);

	free(a);
	return right == LEFT || (right == CRCS ? is : id);
}

static void swap_by_bytes(const struct t_base *b, struct t_sink *s, const struct pair *p, size_t n,
			  enum right right)
{
	static const char *const name[] = {
		"two tensors of a shape are swapped",
		"two tensors of a shape are swapped, CRCs right",
		"two tensors of a shape are swapped, all sums right",
	};

	for (size_t i = 0; i < n; i++) {
		struct t_files made;

		if (!has_sums(b, &p[i].x, right) || !t_mutant(s, name[right], "%s", p[i].what))
			continue;
		t_files_copy(&made, &b->files);
		exchange(&made, &p[i].x, &p[i].y, right);
		t_mutant_made(s, &made);
	}
}

/* One tensor's weight, master and moments for another's. */
static void swap_everywhere(const struct t_base *b, struct t_sink *s, const struct ckpt *ck)
{
	struct ckpt_info info;
	struct place x[4], y[4];
	int made_one = 0;

	ckpt_info_get(ck, &info);
	for (uint64_t i = 0; i < info.ntensors && !made_one; i++)
		for (uint64_t j = i + 1; j < info.ntensors && !made_one; j++) {
			struct ckpt_tensor_info t, u;
			struct t_files made;
			int n = 0;

			if (!are_alike(ck, i, j))
				continue;
			for (size_t k = 0; k < 4; k++)
				n += find_place(b, ck, i, states[k], &x[n]) &&
				     find_place(b, ck, j, states[k], &y[n]);
			if (n < 2 || !differ(b, &x[0], &y[0]))
				continue;
			ckpt_tensor_get(ck, i, &t, NULL);
			ckpt_tensor_get(ck, j, &u, NULL);
			made_one = 1;
			if (n < (int)t.nstates ||
			    !t_mutant(s, "two tensors of a shape are swapped in every state, all "
				      "sums right", "%s and %s", t.name, u.name))
				continue;
			t_files_copy(&made, &b->files);
			for (int k = 0; k < n; k++)
				exchange(&made, &x[k], &y[k], ALL);
			t_mutant_made(s, &made);
		}
}

static void swap_tensors(const struct t_base *b, struct t_sink *s, const struct ckpt *ck)
{
	struct pair p[4 * PAIRS];
	size_t n = 0;

	for (size_t k = 0; k < 4; k++)
		n += find_pairs(b, ck, states[k], p + n);
	for (enum right right = LEFT; right <= ALL; right++)
		swap_by_bytes(b, s, p, n, right);
	for (size_t i = 0; i < n; i++)
		by_name(b, s, &p[i].x, &p[i].y, p[i].what, false);
	for (size_t i = 0; i < n; i++)
		by_name(b, s, &p[i].x, &p[i].y, p[i].what, true);
	for (size_t i = 0; i < n; i++)
		by_offsets(b, s, &p[i].x, &p[i].y, p[i].what);
	swap_everywhere(b, s, ck);
	for (size_t i = 0; i < n; i++)
		free(p[i].what);
}

/* -------------------------------------------------------------------------- padding */

/* Where the last element of any tensor in that record ends; 0 = no tensor is in it. */
static size_t used_of(const struct t_base *b, const struct ckpt *ck, const struct t_file *f,
		      const struct t_arch_member *m)
{
	char *path = t_fmt("%s/%s", b->dir, f->name);
	struct ckpt_info info;
	size_t used = 0;

	ckpt_info_get(ck, &info);
	for (uint64_t i = 0; i < info.ntensors; i++) {
		struct ckpt_tensor_info t;

		ckpt_tensor_get(ck, i, &t, NULL);
		for (uint32_t k = 0; k < t.nstates; k++) {
			struct ckpt_state_info st;
			struct ckpt_extent_info e;

			ckpt_state_get(ck, i, k, &st, NULL);
			for (uint64_t x = 0; x < st.nextents; x++) {
				ckpt_extent_get(ck, i, k, x, &e, NULL);
				if (!strcmp(e.path, path) && e.offset >= m->data &&
				    e.offset < m->data + m->n) {
					const size_t end = e.offset + e.count *
							   ckpt_dtype_bits(e.dtype) / 8;

					used = end > used ? end : used;
				}
			}
		}
	}
	free(path);
	return used ? used - m->data : 0;
}

/* BININT2 'was' becomes 'is' at its first place after 'p'; where it was, or NULL. */
static uint8_t *set_int(uint8_t *p, const uint8_t *end, size_t was, size_t is)
{
	for (; p + 3 <= end; p++)
		if (p[0] == 'M' && p[1] == (was & 255) && p[2] == was >> 8) {
			p[1] = is & 255;
			p[2] = (uint8_t)(is >> 8);
			return p;
		}
	return NULL;
}

/* The storage is as short as its elements; so is the tensor over all of it. */
static bool drop_padding(struct t_file *f, struct t_arch *a, size_t number, size_t used)
{
	const struct t_arch_member *pkl = t_arch_find(a, "data.pkl"), *m = &a->m[number];
	char *key = t_fmt("X%c%c%c%c%s", (int)strlen(m->rest) - 5, 1, 1, 1, m->rest + 5);
	uint8_t *text, *at, *end, *p;
	size_t n = strlen(key);

	key[2] = key[3] = key[4] = 0;
	text = t_alloc(pkl->n);
	memcpy(text, a->p + pkl->data, pkl->n);
	end = text + pkl->n;
	at = memmem(text, pkl->n, key, n);
	at = at ? set_int(at, end, m->n / 4, used / 4) : NULL;
	if (at && !memcmp(at + 3, "tq", 2))
		set_int(at, at + 24 < end ? at + 24 : end, m->n / 4, used / 4);
	if (at) {
		const struct t_arch_new made[] = {
			{ .number = (size_t)(pkl - a->m), .p = text, .n = pkl->n },
			{ .number = number, .p = a->p + m->data, .n = used },
		};

		p = t_arch_build(a, 64, NULL, made, 2, &n);
		t_file_own(f);
		free(f->p);
		f->p = p;
		f->n = n;
	}
	free(text);
	free(key);
	return at != NULL;
}

static void pad_one(const struct t_base *b, struct t_sink *s, const struct t_file *f,
		    struct t_arch *a, size_t number, size_t used, bool drop)
{
	const struct t_arch_member *m = &a->m[number];
	struct t_files made;
	struct t_file *g;

	if (!t_mutant(s, drop ? "padding of a flat partition is dropped" :
		      "padding of a flat partition is not zero, all sums right",
		      "%s, %s: %zu bytes", strrchr(f->name, '/') + 1, m->rest, m->n - used))
		return;
	t_files_copy(&made, &b->files);
	g = t_files_find(&made, f->name);
	if (drop && !drop_padding(g, a, number, used))
		t_die("%s: the pickle does not say how long %s is", f->name, m->rest);
	if (!drop) {
		t_file_own(g)[m->data + m->n - 1] = 0x3f;
		make_right(g, ALL);
	}
	t_mutant_made(s, &made);
}

static void pads(const struct t_base *b, struct t_sink *s, const struct ckpt *ck, bool drop)
{
	struct t_arch *a = t_alloc(sizeof(*a));

	for (struct t_file *f = NULL; (f = t_files_next(&b->files, f, "optim_states.pt")); ) {
		if (strncmp(f->name, b->step, strlen(b->step)) || !t_arch_parse(a, f->p, f->n))
			continue;
		for (size_t i = 0; i < a->count; i++) {
			const size_t used = used_of(b, ck, f, &a->m[i]);

			if (used && used < a->m[i].n && a->m[i].n >= 4 * 256)
				pad_one(b, s, f, a, i, used, drop);
		}
	}
	free(a);
}

/* The copy of a parameter that is a storage of its own, and the one that is used. */
static void copies(const struct t_base *b, struct t_sink *s)
{
	struct t_arch *a = t_alloc(sizeof(*a));
	const struct t_file *f = b->copy_file ? t_files_find(&b->files, b->copy_file) : NULL;
	const struct t_arch_member *m = NULL;

	if (f && t_arch_parse(a, f->p, f->n))
		m = t_arch_find(a, b->copy_member);
	for (size_t i = 0; m && i < 3; i++) {
		const size_t at = m->data + i * (m->n - 1) / 2;
		struct t_files made;
		struct t_file *g;

		if (!t_mutant(s, "a second copy of a parameter differs, all sums right",
			      "byte %zu", at))
			continue;
		t_files_copy(&made, &b->files);
		g = t_files_find(&made, f->name);
		t_file_own(g)[at] ^= 0x10;
		make_right(g, ALL);
		t_mutant_made(s, &made);
	}
	free(a);
}

static void unalign(const struct t_base *b, struct t_sink *s)
{
	struct t_arch *a = t_alloc(sizeof(*a));

	for (size_t i = 0; i < b->files.n; i++) {
		const struct t_file *f = &b->files.f[i];
		struct t_files made;
		uint8_t *p;
		size_t n;

		if (strncmp(f->name, b->step, strlen(b->step)) || !t_arch_parse(a, f->p, f->n) ||
		    !t_mutant(s, "the alignment of an archive is dropped", "%s",
			      f->name + strlen(b->step)))
			continue;
		t_files_copy(&made, &b->files);
		p = t_arch_build(a, 1, NULL, NULL, 0, &n);
		t_files_set(&made, f->name, p, n);
		free(p);
		t_mutant_made(s, &made);
	}
	free(a);
}

/* The blanks after the header, or eight more of them. */
static void repad_header(const struct t_base *b, struct t_sink *s)
{
	for (size_t i = 0; i < b->files.n; i++)
		for (int more = 0; more < 2; more++) {
			const struct t_file *f = &b->files.f[i];
			size_t len = 0, now;
			struct t_files made;
			uint8_t *p;

			if (!t_ends_with(f->name, ".safetensors"))
				continue;
			for (int k = 8; k-- > 0; )
				len = len << 8 | f->p[k];
			for (now = len; f->p[8 + now - 1] == ' '; now--)
				;
			now = more ? len + 8 : now;
			if (now == len || !t_mutant(s, "the padding of the header is changed",
						    "%s, %zu bytes instead of %zu", f->name, now,
						    len))
				continue;
			p = t_alloc(f->n + 8);
			memset(p + 8, ' ', now);
			memcpy(p + 8, f->p + 8, now < len ? now : len);
			memcpy(p + 8 + now, f->p + 8 + len, f->n - 8 - len);
			for (size_t k = 0, v = now; k < 8; k++, v >>= 8)
				p[k] = v & 255;
			t_files_copy(&made, &b->files);
			t_files_set(&made, f->name, p, f->n - len + now);
			t_mutant_made(s, &made);
			free(p);
		}
}

void t_mutate_tensors(const struct t_base *b, struct t_sink *s)
{
	char *path = t_fmt("%s%s%s", b->dir, *b->open ? "/" : "", b->open);
	struct ckpt *ck = t_step_open(path, NULL);

	swap_tensors(b, s, ck);
	pads(b, s, ck, true);
	pads(b, s, ck, false);
	copies(b, s);
	unalign(b, s);
	repad_header(b, s);
	ckpt_close(ck);
	free(path);
}
