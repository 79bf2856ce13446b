/* ck_index.c -- see ck_index.h. */
#include "libckpt/tensor/ck_index.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_hash.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_src.h"
#include "libckpt/tensor/ck_dtype.h"

static const char *const role_names[] = {
	"?", "trainable", "frozen", "buffer", "alias", "plain", "untrained",
};

const char *ck_role_name(unsigned role)
{
	return role < CK_ARRAY_LEN(role_names) ? role_names[role] : role_names[0];
}

unsigned ck_role_parse(const char *name)
{
	for (unsigned i = 1; i < CK_ARRAY_LEN(role_names); i++)
		if (!strcmp(role_names[i], name))
			return i;
	return 0;
}

int ck_index_init(struct ck_index *ix, uint64_t memory_limit, struct ckpt_err *err)
{
	memset(ix, 0, sizeof(*ix));
	ix->stage = -1;
	ix->step = -1;
	ix->open_state = CK_NONE;
	ix->memory_limit = memory_limit;
	ix->arena.limit = memory_limit;
	ix->fingerprint = ck_hasher_new();
	return ix->fingerprint ? 0 : ck_fail_nomem(err, "a hash", 0);
}

void ck_index_release(struct ck_index *ix)
{
	for (uint64_t i = 0; i < ix->nsources; i++)
		ck_src_close(ix->source[i].src);
	ck_free(ix->source);
	ck_free(ix->member);
	ck_free(ix->view);
	ck_free(ix->tensor);
	ck_free(ix->state);
	ck_free(ix->stored);
	ck_free(ix->weave);
	ck_free(ix->fact);
	ck_free(ix->pad);
	ck_free(ix->stated_sum);
	ck_free(ix->stated_head);
	ck_free(ix->stated_file);
	ck_map_release(&ix->by_name);
	ck_arena_release(&ix->arena);
	if (ix->fingerprint)
		ck_hasher_free(ix->fingerprint);
	memset(ix, 0, sizeof(*ix));
}

static int no_memory(const struct ck_index *ix, const char *what, struct ckpt_err *err)
{
	if (!ix->arena.limited)
		return ck_fail_nomem(err, what, 0);
	return ck_fail_limit(err, ix->path, CKPT_NO_OFFSET, "memory_bytes", ix->memory_limit,
			     "%s would make the index of the checkpoint too large", what);
}

/* Arrays count as well as the arena; they are looked at before they grow. */
static bool over_limit(struct ck_index *ix)
{
	const uint64_t arrays = ix->nsources * sizeof(*ix->source) +
		ix->nmembers * sizeof(*ix->member) + ix->nviews * sizeof(*ix->view) +
		ix->ntensors * (sizeof(*ix->tensor) + sizeof(struct ck_map_entry) + 16) +
		ix->nstates * sizeof(*ix->state) + ix->nstored * sizeof(*ix->stored) +
		ix->nweaves * sizeof(*ix->weave) +
		ix->nfacts * sizeof(*ix->fact) + ix->npads * sizeof(*ix->pad) +
		ix->nstated_sums * sizeof(*ix->stated_sum) +
		ix->nstated_heads * sizeof(*ix->stated_head);

	if (ix->memory_limit && ix->arena.total + arrays > ix->memory_limit)
		ix->arena.limited = true;
	return ix->arena.limited;
}

int ck_index_add_source(struct ck_index *ix, const char *path, struct ck_src *src,
			int32_t rank, uint32_t *source_out, struct ckpt_err *err)
{
	struct ck_source *s;
	int rc = ck_grow(&ix->source, &ix->source_cap, ix->nsources + 1, sizeof(*s), err);

	if (rc) {
		ck_src_close(src);
		return rc;
	}
	s = &ix->source[ix->nsources];
	*s = (struct ck_source){ .src = src, .bytes = ck_src_size(src), .rank = rank };
	ix->nsources++;
	s->path = ck_arena_strdup(&ix->arena, path);
	if (!s->path)
		return no_memory(ix, "a file name", err);
	*source_out = (uint32_t)(ix->nsources - 1);
	return 0;
}

int ck_index_add_member(struct ck_index *ix, const struct ck_member *member,
			uint32_t *member_out, struct ckpt_err *err)
{
	struct ck_member *m;
	int rc = ck_grow(&ix->member, &ix->member_cap, ix->nmembers + 1, sizeof(*m), err);

	if (rc)
		return rc;
	m = &ix->member[ix->nmembers];
	*m = *member;
	m->name = ck_arena_strdup(&ix->arena, member->name);
	if (!m->name)
		return no_memory(ix, "a member name", err);
	*member_out = (uint32_t)ix->nmembers++;
	return 0;
}

static const uint64_t *copy_dims(struct ck_index *ix, const uint64_t *dim, uint32_t ndim)
{
	uint64_t *p = ck_arena_alloc(&ix->arena, (uint64_t)ndim * sizeof(*p));

	if (p && ndim)
		memcpy(p, dim, ndim * sizeof(*p));
	return p;
}

int ck_index_add_view(struct ck_index *ix, const uint64_t *shape, const uint64_t *stride,
		      uint32_t ndim, uint32_t *view_out, struct ckpt_err *err)
{
	struct ck_view *v;
	int rc = ck_grow(&ix->view, &ix->view_cap, ix->nviews + 1, sizeof(*v), err);

	if (rc)
		return rc;
	v = &ix->view[ix->nviews];
	v->ndim = ndim;
	v->shape = copy_dims(ix, shape, ndim);
	v->stride = copy_dims(ix, stride, ndim);
	if (!v->shape || !v->stride)
		return no_memory(ix, "a view", err);
	*view_out = (uint32_t)ix->nviews++;
	return 0;
}

int ck_index_add_tensor(struct ck_index *ix, const char *name, const uint64_t *shape,
			uint32_t ndim, enum ckpt_role role, uint32_t *tensor_out,
			struct ckpt_err *err)
{
	struct ck_tensor t = {
		.ndim = ndim, .role = (uint8_t)role, .group = -1,
		.first_state = CK_NONE, .last_state = CK_NONE,
	};
	uint64_t old;
	int rc;

	if (ck_map_find(&ix->by_name, name, strlen(name), &old)) {
		*tensor_out = (uint32_t)old;
		return 1;
	}
	rc = ck_shape_numel(shape, ndim, &t.numel, err);
	if (rc)
		return rc;
	rc = ck_grow(&ix->tensor, &ix->tensor_cap, ix->ntensors + 1, sizeof(t), err);
	if (rc)
		return rc;
	if (ix->ntensors >= CK_NONE || over_limit(ix))
		return no_memory(ix, "a tensor", err);
	t.name = ck_arena_strdup(&ix->arena, name);
	t.shape = copy_dims(ix, shape, ndim);
	if (!t.name || !t.shape)
		return no_memory(ix, "a tensor", err);
	rc = ck_map_add(&ix->by_name, t.name, strlen(t.name), ix->ntensors, NULL, err);
	if (rc)
		return rc;
	ix->tensor[ix->ntensors] = t;
	*tensor_out = (uint32_t)ix->ntensors++;
	return 0;
}

int ck_index_rename(struct ck_index *ix, const char *const *name, struct ckpt_err *err)
{
	struct ck_map names = CK_MAP_INIT;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < ix->ntensors; i++) {
		const char *copy = ck_arena_strdup(&ix->arena, name[i]);
		uint64_t old;

		rc = copy ? ck_map_add(&names, copy, strlen(copy), i, &old, err) :
			    no_memory(ix, "a name", err);
		if (rc == 1)
			rc = ck_fail(err, CKPT_E_MISMATCH, copy, CKPT_NO_OFFSET,
				     "two tensors would get this name: %.180s and %.180s",
				     ix->tensor[old].name, ix->tensor[i].name);
	}
	if (rc) {
		ck_map_release(&names);
		return rc;
	}
	for (uint64_t i = 0; i < ix->ntensors; i++)
		ix->tensor[i].name = names.entry[i].key;
	ck_map_release(&ix->by_name);
	ix->by_name = names;
	return 0;
}

bool ck_index_find(const struct ck_index *ix, const char *name, uint32_t *tensor_out)
{
	uint64_t v;

	if (!ck_map_find(&ix->by_name, name, strlen(name), &v))
		return false;
	*tensor_out = (uint32_t)v;
	return true;
}

uint32_t ck_index_state_find(const struct ck_index *ix, uint32_t tensor, const char *name)
{
	uint32_t s = ix->tensor[tensor].first_state;

	while (s != CK_NONE && strcmp(ix->state[s].name, name))
		s = ix->state[s].next;
	return s;
}

/* Names of states recur: take the one that an earlier state has, if it is near. */
static const char *intern(struct ck_index *ix, const char *name)
{
	const uint64_t back = ck_min_u64(ix->nstates, 16);

	for (uint64_t i = 1; i <= back; i++)
		if (!strcmp(ix->state[ix->nstates - i].name, name))
			return ix->state[ix->nstates - i].name;
	return ck_arena_strdup(&ix->arena, name);
}

int ck_index_state_begin(struct ck_index *ix, uint32_t tensor, const char *name,
			 enum ckpt_dtype dtype, unsigned flags, struct ckpt_err *err)
{
	struct ck_state s = {
		.stored = ix->nstored, .weave = ix->nweaves, .tensor = tensor,
		.next = CK_NONE, .replica = CK_NONE,
		.dtype = (uint8_t)dtype, .flags = (uint8_t)flags,
	};
	int rc = ck_grow(&ix->state, &ix->state_cap, ix->nstates + 1, sizeof(s), err);

	if (rc)
		return rc;
	s.name = intern(ix, name);
	if (!s.name || ix->nstates >= CK_NONE || over_limit(ix))
		return no_memory(ix, "a state", err);
	ix->state[ix->nstates] = s;
	ix->open_state = (uint32_t)ix->nstates;
	return 0;
}

/* What lies where in the source must be sayable in 64 bits; reading checks the rest. */
static bool wraps(const struct ck_extent *e, uint64_t runs)
{
	uint64_t run, skip, end;

	return ck_mul_over(e->count, 16, &run) ||
	       ck_mul_over(runs ? runs - 1 : 0, e->src_stride, &skip) ||
	       ck_add_over(e->off, skip, &end) || ck_add_over(end, run, &end);
}

static int store(struct ck_index *ix, const struct ck_extent *e, uint64_t runs,
		 struct ckpt_err *err)
{
	int rc;

	if (over_limit(ix))
		return no_memory(ix, "an extent", err);
	if (wraps(e, runs))
		return ck_fail(err, CKPT_E_CORRUPT, ix->source[e->source].path, e->off,
			       "the end of %" PRIu64 " runs of %" PRIu64 " elements from here "
			       "on exceeds 64 bits", runs, e->count);
	rc = ck_grow(&ix->stored, &ix->stored_cap, ix->nstored + 1, sizeof(*e), err);
	if (rc)
		return rc;
	ix->stored[ix->nstored++] = *e;
	ix->state[ix->open_state].nstored++;
	return 0;
}

int ck_index_state_extent(struct ck_index *ix, const struct ck_extent *extent,
			  struct ckpt_err *err)
{
	int rc = store(ix, extent, extent->runs, err);

	if (rc)
		return rc;
	ix->nextents++;
	ix->state[ix->open_state].nextents++;
	return 0;
}

int ck_index_state_weave(struct ck_index *ix, const struct ck_extent *piece, uint64_t n,
			 uint64_t rows, struct ckpt_err *err)
{
	struct ck_state *s = &ix->state[ix->open_state];
	const uint64_t stored = ix->nstored, number = s->nextents;
	int rc = ck_grow(&ix->weave, &ix->weave_cap, ix->nweaves + 1, sizeof(*ix->weave), err);

	for (uint64_t i = 0; !rc && i < n; i++)
		rc = store(ix, &piece[i], rows, err);
	if (rc) {
		s->nstored = stored - s->stored;
		ix->nstored = stored;
		return rc;
	}
	ix->weave[ix->nweaves++] = (struct ck_weave){ stored - s->stored, number, n, rows };
	s->nweaves++;
	s->nextents += n * rows;
	ix->nextents += n * rows;
	return 0;
}

/* The element after extents that are stored from 'i' on, an extent or the pieces of a weave. */
static uint64_t end_of(const struct ck_extent *e, const struct ck_weave *w)
{
	const uint64_t count = w ? e[w->pieces - 1].first - e->first + e[w->pieces - 1].count :
				   e->count;
	uint64_t n, end;

	return ck_mul_over(count, w ? w->rows : e->runs, &n) || ck_add_over(e->first, n, &end) ?
	       UINT64_MAX : end;
}

uint64_t ck_index_state_filled(const struct ck_index *ix)
{
	const struct ck_state *s = &ix->state[ix->open_state];
	const struct ck_weave *w = s->nweaves ? &ix->weave[s->weave + s->nweaves - 1] : NULL;

	if (!s->nstored)
		return 0;
	if (w && w->stored + w->pieces == s->nstored)
		return end_of(&ix->stored[s->stored + w->stored], w);
	return end_of(&ix->stored[s->stored + s->nstored - 1], NULL);
}

void ck_index_state_cancel(struct ck_index *ix)
{
	const struct ck_state *s;

	if (ix->open_state == CK_NONE)
		return;
	s = &ix->state[ix->open_state];
	ix->nstored = s->stored;
	ix->nweaves = s->weave;
	ix->nextents -= s->nextents;
	ix->open_state = CK_NONE;
}

/* The extents of the open state tile [0, numel) in order. */
static int check_cover(struct ck_index *ix, const struct ck_state *s, struct ckpt_err *err)
{
	const struct ck_tensor *t = &ix->tensor[s->tensor];
	const struct ck_weave *in = NULL;
	uint64_t at = 0, weave = 0;

	for (uint64_t i = 0; i < s->nstored; i++) {
		const struct ck_extent *e = &ix->stored[s->stored + i];

		if (weave < s->nweaves && ix->weave[s->weave + weave].stored == i)
			in = &ix->weave[s->weave + weave++];
		if (e->first != at)
			return ck_fail(err, CKPT_E_MISMATCH, t->name, CKPT_NO_OFFSET,
				       "state %s: elements %" PRIu64 " to %" PRIu64 " are "
				       "missing from the files, or in two of them", s->name,
				       ck_min_u64(at, e->first), ck_max_u64(at, e->first));
		at = end_of(e, NULL);
		if (in && i == in->stored + in->pieces - 1) {
			at = end_of(&ix->stored[s->stored + in->stored], in);
			in = NULL;
		}
	}
	if (at != t->numel)
		return ck_fail(err, CKPT_E_MISMATCH, t->name, CKPT_NO_OFFSET,
			       "state %s: the files hold %" PRIu64 " elements, the shape has %"
			       PRIu64, s->name, at, t->numel);
	return 0;
}

/* Hang the open state behind the last of its tensor, or behind its first copy. */
static void link_state(struct ck_index *ix, uint32_t number)
{
	struct ck_state *s = &ix->state[number];
	struct ck_tensor *t = &ix->tensor[s->tensor];
	const uint32_t same = ck_index_state_find(ix, s->tensor, s->name);

	if (same != CK_NONE) {
		s->replica = ix->state[same].replica;
		ix->state[same].replica = number;
		ix->state[same].nreplicas++;
		return;
	}
	if (t->last_state == CK_NONE)
		t->first_state = number;
	else
		ix->state[t->last_state].next = number;
	t->last_state = number;
	t->nstates++;
}

int ck_index_state_end(struct ck_index *ix, uint32_t *state_out, struct ckpt_err *err)
{
	const uint32_t number = ix->open_state;
	int rc = check_cover(ix, &ix->state[number], err);

	if (rc) {
		ck_index_state_cancel(ix);
		return rc;
	}
	ix->open_state = CK_NONE;
	ix->nstates++;
	link_state(ix, number);
	if (state_out)
		*state_out = number;
	return 0;
}

int ck_index_state_derive(struct ck_index *ix, uint32_t of, const char *name,
			  enum ckpt_dtype dtype, struct ckpt_err *err)
{
	const struct ck_state src = ix->state[of];
	int rc = ck_index_state_begin(ix, src.tensor, name, dtype, CKPT_STATE_DERIVED, err);

	if (rc)
		return rc;
	ix->state[ix->open_state].nextents = src.nextents;
	ix->state[ix->open_state].stored = src.stored;
	ix->state[ix->open_state].nstored = src.nstored;
	ix->state[ix->open_state].weave = src.weave;
	ix->state[ix->open_state].nweaves = src.nweaves;
	ix->open_state = CK_NONE;
	link_state(ix, (uint32_t)ix->nstates++);
	return 0;
}

int ck_index_add_fact(struct ck_index *ix, struct ckpt_err *err, const char *key,
		      const char *fmt, ...)
{
	struct ck_fact *f;
	va_list ap;
	int rc = ck_grow(&ix->fact, &ix->fact_cap, ix->nfacts + 1, sizeof(*f), err);

	if (rc)
		return rc;
	f = &ix->fact[ix->nfacts];
	f->key = ck_arena_strdup(&ix->arena, key);
	va_start(ap, fmt);
	f->value = ck_arena_vprintf(&ix->arena, fmt, ap);
	va_end(ap);
	if (!f->key || !f->value)
		return no_memory(ix, "a fact", err);
	ix->nfacts++;
	return 0;
}

int ck_index_add_stated_sum(struct ck_index *ix, const struct ck_stated_sum *sum,
			    struct ckpt_err *err)
{
	int rc;

	if (over_limit(ix))
		return no_memory(ix, "the sum of a piece", err);
	rc = ck_grow(&ix->stated_sum, &ix->stated_sum_cap, ix->nstated_sums + 1, sizeof(*sum), err);
	if (!rc)
		ix->stated_sum[ix->nstated_sums++] = *sum;
	return rc;
}

int ck_index_add_stated_file(struct ck_index *ix, const struct ck_stated_file *file,
			     struct ckpt_err *err)
{
	struct ck_stated_file f = *file;
	const int rc = ck_grow(&ix->stated_file, &ix->stated_file_cap, ix->nstated_files + 1,
			       sizeof(f), err);

	if (rc)
		return rc;
	f.name = ck_arena_strdup(&ix->arena, file->name);
	if (!f.name)
		return ck_fail_nomem(err, "a file name", strlen(file->name));
	ix->stated_file[ix->nstated_files++] = f;
	return 0;
}

int ck_index_add_stated_head(struct ck_index *ix, const struct ck_stated_head *head,
			     struct ckpt_err *err)
{
	int rc;

	if (over_limit(ix))
		return no_memory(ix, "the hash of a header", err);
	rc = ck_grow(&ix->stated_head, &ix->stated_head_cap, ix->nstated_heads + 1, sizeof(*head),
		     err);
	if (!rc)
		ix->stated_head[ix->nstated_heads++] = *head;
	return rc;
}

int ck_index_add_pad(struct ck_index *ix, const struct ck_pad *pad, struct ckpt_err *err)
{
	int rc;

	if (!pad->bytes)
		return 0;
	if (over_limit(ix))
		return no_memory(ix, "padding", err);
	rc = ck_grow(&ix->pad, &ix->pad_cap, ix->npads + 1, sizeof(*pad), err);
	if (!rc)
		ix->pad[ix->npads++] = *pad;
	return rc;
}

const char *ck_index_fact(const struct ck_index *ix, const char *key)
{
	for (uint64_t i = 0; i < ix->nfacts; i++)
		if (!strcmp(ix->fact[i].key, key))
			return ix->fact[i].value;
	return NULL;
}
