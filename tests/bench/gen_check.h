/*
 * gen_check.h - the part of gen_zero.c that compares a safetensors file with
 * the numbers the checkpoint was made of. It looks for each tensor's name in
 * the header text and needs no JSON reader; names here hold no escapes.
 * Included once, there.
 */
#ifndef GEN_CHECK_H
#define GEN_CHECK_H

#include "tests/bench/gen_states.h"

struct check {
	int fd;
	char *head;
	uint64_t data;		/* offset of the first data byte */
	uint8_t *have, *want;	/* ZW_BUF bytes each */
};

static int check_pread(int fd, void *p, size_t n, uint64_t at)
{
	size_t done = 0;

	while (done < n) {
		ssize_t r = pread(fd, (char *)p + done, n - done,
				  (off_t)(at + done));

		if (r <= 0)
			return -1;
		done += (size_t)r;
	}
	return 0;
}

static int check_open(struct check *c, const char *path)
{
	uint8_t b[8];
	uint64_t n = 0;

	memset(c, 0, sizeof *c);
	c->fd = open(path, O_RDONLY);
	if (c->fd < 0 || check_pread(c->fd, b, 8, 0))
		return -1;
	for (int i = 0; i < 8; i++)
		n |= (uint64_t)b[i] << 8 * i;
	if (n > 100000000)
		return -1;
	c->head = gen_alloc(NULL, n + 1);
	c->head[n] = 0;
	c->data = 8 + n;
	c->have = gen_alloc(NULL, ZW_BUF);
	c->want = gen_alloc(NULL, ZW_BUF);
	return check_pread(c->fd, c->head, n, 8);
}

/* Where a tensor's bytes begin, and the bytes of one element; -1: not there. */
static int check_find(const struct check *c, const struct gen_param *p,
		      uint64_t *at, unsigned *width)
{
	unsigned long long begin, end;
	char key[96];
	const char *s, *stop, *off;

	snprintf(key, sizeof key, "\"%s\":", p->name);
	s = strstr(c->head, key);
	stop = s ? strchr(s, '}') : NULL;
	off = s ? strstr(s, "\"data_offsets\":") : NULL;
	if (!stop || !off || off > stop ||
	    sscanf(off + 15, " [ %llu , %llu", &begin, &end) != 2)
		return -1;
	if (end - begin != 4 * p->n && end - begin != 2 * p->n)
		return -1;
	*width = end - begin == 4 * p->n ? 4 : 2;
	s = strstr(s, *width == 4 ? "\"F32\"" : "\"BF16\"");
	if (!s || s > stop)
		return -1;
	*at = c->data + begin;
	return 0;
}

static int check_tensor(const struct check *c, const struct run *r,
			const struct gen_param *p, enum gen_state st)
{
	struct seg g = { (int64_t)p->base, p->n };
	struct storage s = { .s = &g, .ns = 1, .n = p->n, .state = st };
	uint64_t at, n;

	if (check_find(c, p, &at, &s.width))
		return -1;
	for (uint64_t i = 0; i < p->n; i += n) {
		n = p->n - i < ZW_BUF / 4 ? p->n - i : ZW_BUF / 4;
		if (r->o.sparse)
			memset(c->want, 0, n * s.width);
		else
			seg_bytes(&r->m, &s, &g, i, n, c->want);
		if (check_pread(c->fd, c->have, n * s.width, at + i * s.width) ||
		    memcmp(c->have, c->want, n * s.width))
			return -1;
	}
	return 0;
}

/* 0: every tensor of the state is in the file, bit for bit. */
static int check_file(const struct run *r, const char *path, enum gen_state st)
{
	struct check c;
	int rc = check_open(&c, path);

	if (rc)
		fprintf(stderr, "gen_zero: %s: not a safetensors file\n", path);
	for (size_t i = 0; !rc && i < r->m.np; i++) {
		const struct gen_param *p = &r->m.p[i];

		if (p->group < 0 && st != GEN_MASTER)
			continue;
		rc = check_tensor(&c, r, p, p->group < 0 ? GEN_BUFFER : st);
		if (rc)
			fprintf(stderr, "gen_zero: %s: %s is missing or "
				"differs from what the checkpoint was made "
				"of\n", path, p->name);
	}
	if (c.fd >= 0)
		close(c.fd);
	free(c.head);
	free(c.have);
	free(c.want);
	return rc ? 1 : 0;
}

#endif
