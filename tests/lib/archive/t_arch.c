/* See t_arch.h. */
#include "tests/lib/archive/t_arch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"

#define ID ".data/serialization_id"

static uint64_t le(const uint8_t *p, int n)
{
	uint64_t v = 0;

	while (n--)
		v = v << 8 | p[n];
	return v;
}

static void put(uint8_t *p, uint64_t v, int n)
{
	for (int i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

uint32_t t_crc32(const uint8_t *p, size_t n)
{
	static uint32_t table[256];
	uint32_t c = 0xffffffff;

	for (uint32_t i = 0; !table[1] && i < 256; i++) {
		uint32_t v = 255 - i;

		for (int k = 0; k < 8; k++)
			v = v >> 1 ^ (v & 1 ? 0xedb88320 : 0);
		table[255 - i] = v;	/* [1] comes late */
	}
	while (n--)
		c = table[(c ^ *p++) & 255] ^ c >> 8;
	return ~c;
}

static int find_end(struct t_arch *a)
{
	for (size_t i = a->n < 22 ? 0 : a->n - 21; i-- > 0; )
		if (!memcmp(a->p + i, "PK\5\6", 4)) {
			a->end = i;
			return 1;
		}
	return 0;
}

static int parse_member(struct t_arch *a, size_t at, struct t_arch_member *m)
{
	const uint8_t *c = a->p + at;
	const size_t name = le(c + 28, 2);
	const char *slash;

	if (le(c + 10, 2) || name >= sizeof(m->name))
		return 0;
	memcpy(m->name, c + 46, name);
	m->name[name] = 0;
	slash = strchr(m->name, '/');
	m->rest = slash ? slash + 1 : m->name;
	m->central = at;
	m->central_n = 46 + name + le(c + 30, 2) + le(c + 32, 2);
	m->crc = (uint32_t)le(c + 16, 4);
	m->n = le(c + 24, 4);
	m->header = le(c + 42, 4);
	if (m->header + 30 > a->n)
		return 0;
	m->data = m->header + 30 + le(a->p + m->header + 26, 2) + le(a->p + m->header + 28, 2);
	m->descriptor = le(c + 8, 2) >> 3 & 1;
	m->end = m->data + m->n + (m->descriptor ? 16 : 0);
	return m->end <= a->n;
}

int t_arch_parse(struct t_arch *a, uint8_t *p, size_t n)
{
	memset(a, 0, sizeof(*a));
	a->p = p;
	a->n = n;
	if (n < 22 || memcmp(p, "PK\3\4", 4) || !find_end(a))
		return 0;
	a->dir = le(p + a->end + 16, 4);
	for (size_t at = a->dir; at + 46 <= a->end && !memcmp(p + at, "PK\1\2", 4); ) {
		struct t_arch_member *m = &a->m[a->count++];

		if (a->count == T_ARCH_MOST || !parse_member(a, at, m))
			return 0;
		at += m->central_n;
		if (!memcmp(p + at, "PK\6\6", 4)) {
			a->end64 = at;
			a->locator = at + 56;
		}
	}
	return a->count > 0;
}

struct t_arch_member *t_arch_find(struct t_arch *a, const char *rest)
{
	for (size_t i = 0; i < a->count; i++)
		if (!strcmp(a->m[i].rest, rest))
			return &a->m[i];
	return NULL;
}

static void set_crc(struct t_arch *a, struct t_arch_member *m)
{
	m->crc = t_crc32(a->p + m->data, m->n);
	put(a->p + m->central + 16, m->crc, 4);
	if (le(a->p + m->header + 14, 4))
		put(a->p + m->header + 14, m->crc, 4);
	if (m->descriptor)
		put(a->p + m->data + m->n + 4, m->crc, 4);
}

void t_arch_fix_crcs(struct t_arch *a)
{
	for (size_t i = 0; i < a->count; i++)
		if (a->m[i].n && a->m[i].crc)
			set_crc(a, &a->m[i]);
}

int t_arch_has_id(struct t_arch *a)
{
	const struct t_arch_member *id = t_arch_find(a, ID);

	return id && id->n == 40;
}

/* torch puts the CRCs together as they pass by in descriptors, in the order of writing. */
static uint64_t sum_of(const struct t_arch *a, const struct t_arch_member *id)
{
	uint64_t sum = 0;
	size_t from = 0;

	for (;;) {
		const struct t_arch_member *next = NULL;

		for (size_t i = 0; i < a->count; i++)
			if (a->m[i].header >= from && (!next || a->m[i].header < next->header))
				next = &a->m[i];
		if (!next || next == id)
			return sum;
		if (next->descriptor)
			sum ^= (uint64_t)next->crc + 0x9e3779b9 + (sum << 6) + (sum >> 2);
		from = next->header + 1;
	}
}

void t_arch_fix_id(struct t_arch *a)
{
	struct t_arch_member *id = t_arch_find(a, ID);
	char digits[32];

	if (!t_arch_has_id(a))
		return;
	snprintf(digits, sizeof(digits), "%020" PRIu64, sum_of(a, id));
	memcpy(a->p + id->data + 20, digits, 20);
	set_crc(a, id);
}

/* ----------------------------------------------------------------------- building */

struct out {
	uint8_t *p;
	size_t n;
};

static uint8_t *room(struct out *o, size_t n)
{
	o->p = t_grow(o->p, o->n + n + 1);
	memset(o->p + o->n, 0, n);
	o->n += n;
	return o->p + o->n - n;
}

static void build_member(struct out *o, const struct t_arch *a, const struct t_arch_member *m,
			 const char *name, const uint8_t *p, size_t n, size_t align)
{
	const size_t k = strlen(name), bare = o->n + 30 + k + 4;
	const size_t pad = align > 1 ? (align - bare % align) % align : 0;
	uint8_t *h = room(o, 30 + k + (align > 1 ? 4 + pad : 0));

	memcpy(h, a->p + m->header, 14);
	put(h + 26, k, 2);
	memcpy(h + 30, name, k);
	if (align > 1) {
		put(h + 28, 4 + pad, 2);
		put(h + 30 + k, 0x4246, 2);
		put(h + 32 + k, pad, 2);
		memset(h + 34 + k, 'Z', pad);
	}
	if (n)
		memcpy(room(o, n), p, n);
	if (m->descriptor) {
		uint8_t *d = room(o, 16);

		memcpy(d, "PK\7\10", 4);
		put(d + 4, t_crc32(p, n), 4);
		put(d + 8, n, 4);
		put(d + 12, n, 4);
	}
}

static void build_central(struct out *o, const struct t_arch *a, const struct t_arch_member *m,
			  const char *name, const uint8_t *p, size_t n, size_t header)
{
	const size_t k = strlen(name);
	uint8_t *c = room(o, 46 + k);

	memcpy(c, a->p + m->central, 46);
	put(c + 16, m->crc ? t_crc32(p, n) : 0, 4);
	put(c + 20, n, 4);
	put(c + 24, n, 4);
	put(c + 28, k, 2);
	put(c + 30, 0, 4);
	put(c + 42, header, 4);
	memcpy(c + 46, name, k);
}

static void build_end(struct out *o, const struct t_arch *a, size_t dir, size_t count)
{
	const size_t bytes = o->n - dir, at = o->n;
	uint8_t *e;

	if (a->end64) {
		e = room(o, 76);
		memcpy(e, a->p + a->end64, 76);
		put(e + 24, count, 8);
		put(e + 32, count, 8);
		put(e + 40, bytes, 8);
		put(e + 48, dir, 8);
		put(e + 64, at, 8);
	}
	e = room(o, 22);
	memcpy(e, a->p + a->end, 22);
	put(e + 8, count, 2);
	put(e + 10, count, 2);
	put(e + 12, bytes, 4);
	put(e + 16, dir, 4);
}

/* A member as it is to be. */
struct plan {
	const struct t_arch_member *like;
	const uint8_t *p;
	size_t n, header;
	char *name;
};

static size_t make_plan(const struct t_arch *a, const char *prefix, const struct t_arch_new *made,
			size_t nmade, struct plan *plan)
{
	size_t n = 0;

	for (size_t i = 0; i < a->count; i++) {
		const struct t_arch_member *m = &a->m[i];
		struct plan *p;

		for (size_t k = 0; k < nmade && i + 2 == a->count; k++)
			if (made[k].number == T_ARCH_MOST)
				plan[n++] = (struct plan){
					.like = &a->m[0], .p = made[k].p, .n = made[k].n,
					.name = t_fmt("%.*s/%s", (int)(m->rest - m->name) - 1,
						      m->name, made[k].rest),
				};
		p = &plan[n++];
		*p = (struct plan){ .like = m, .p = a->p + m->data, .n = m->n };
		for (size_t k = 0; k < nmade; k++)
			if (made[k].number == i) {
				p->p = made[k].p;
				p->n = made[k].n;
			}
		p->name = prefix ? t_fmt("%s/%s", prefix, m->rest) : t_fmt("%s", m->name);
	}
	return n;
}

uint8_t *t_arch_build(const struct t_arch *a, size_t align, const char *prefix,
		      const struct t_arch_new *made, size_t nmade, size_t *n_out)
{
	struct plan *plan = t_alloc((a->count + nmade) * sizeof(*plan));
	const size_t n = make_plan(a, prefix, made, nmade, plan);
	struct t_arch *out = t_alloc(sizeof(*out));
	struct out o = { NULL, 0 };
	size_t dir;

	for (size_t i = 0; i < n; i++) {
		plan[i].header = o.n;
		build_member(&o, a, plan[i].like, plan[i].name, plan[i].p, plan[i].n, align);
	}
	dir = o.n;
	for (size_t i = 0; i < n; i++) {
		build_central(&o, a, plan[i].like, plan[i].name, plan[i].p, plan[i].n,
			      plan[i].header);
		free(plan[i].name);
	}
	build_end(&o, a, dir, n);
	if (!t_arch_parse(out, o.p, o.n))
		t_die("an archive that was built is none");
	t_arch_fix_id(out);
	free(out);
	free(plan);
	*n_out = o.n;
	return o.p;
}
