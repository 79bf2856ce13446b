/* See t_raw.h. */
#include "tests/lib/ops/t_raw.h"

#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"

uint64_t t_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 2685821657736338717u;
}

void t_raw_make(struct t_raw *raw, size_t n)
{
	struct ckpt_err err = { 0 };
	struct ck_src *src;
	uint64_t seed = 88172645463325252u;
	char *path;

	memset(raw, 0, sizeof(*raw));
	raw->n = n;
	raw->bytes = t_alloc(n + 8);
	for (size_t i = 0; i < n; i += 8) {
		const uint64_t v = t_random(&seed);

		memcpy(raw->bytes + i, &v, 8);
	}
	raw->dir = t_dir_new();
	path = t_fmt("%s/raw", raw->dir);
	t_file_write(path, raw->bytes, n);
	raw->pool = ck_fdpool_new(0);
	if (!raw->pool || ck_index_init(&raw->ix, (uint64_t)1 << 30, &err) ||
	    ck_src_open(raw->pool, path, &src, &err) ||
	    ck_index_add_source(&raw->ix, path, src, -1, &raw->source, &err))
		t_die("no index over %s: %s", path, err.msg);
	free(path);
}

void t_raw_put(struct t_raw *raw)
{
	struct ck_source *s = &raw->ix.source[raw->source];
	struct ckpt_err err = { 0 };

	ck_src_close(s->src);
	ck_fdpool_free(raw->pool);
	t_file_write(s->path, raw->bytes, raw->n);
	raw->pool = ck_fdpool_new(0);
	if (!raw->pool || ck_src_open(raw->pool, s->path, &s->src, &err))
		t_die("%s: %s", s->path, err.msg);
}

void t_raw_free(struct t_raw *raw)
{
	ck_index_release(&raw->ix);
	ck_fdpool_free(raw->pool);
	t_dir_remove(raw->dir);
	free(raw->dir);
	free(raw->bytes);
}

struct ck_extent t_extent(const struct t_raw *raw, uint64_t first, uint64_t count, uint64_t off,
			  enum ckpt_dtype dtype)
{
	return (struct ck_extent){
		.first = first, .count = count, .off = off, .runs = 1, .source = raw->source,
		.member = CK_NONE, .view = CK_NONE, .rank = -1, .dtype = (uint8_t)dtype,
	};
}

uint32_t t_state(struct t_raw *raw, const char *name, const uint64_t *shape, uint32_t ndim,
		 enum ckpt_dtype dtype, const struct ck_extent *extent, size_t nextents)
{
	struct ckpt_err err = { 0 };
	uint32_t tensor, state;

	if (ck_index_add_tensor(&raw->ix, name, shape, ndim, CKPT_ROLE_PLAIN, &tensor, &err) < 0 ||
	    ck_index_state_begin(&raw->ix, tensor, "weight", dtype, 0, &err))
		t_die("tensor %s: %s", name, err.msg);
	for (size_t i = 0; i < nextents; i++)
		if (ck_index_state_extent(&raw->ix, &extent[i], &err))
			t_die("tensor %s: %s", name, err.msg);
	if (ck_index_state_end(&raw->ix, &state, &err))
		t_die("tensor %s: %s", name, err.msg);
	return state;
}
