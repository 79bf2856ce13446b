/*
 * sv_refs.c -- which segments of a plan take which elements of a state, and whose a file is; see
 * ck_save.h.
 */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/save/ck_save.h"

/* A derived weight is made of what is put as the master. */
static uint32_t put_as(const struct ck_index *ix, uint32_t state)
{
	if (!(ix->state[state].flags & CKPT_STATE_DERIVED))
		return state;
	return ck_index_state_find(ix, ix->state[state].tensor, "master");
}

static int by_state(const void *a, const void *b)
{
	const struct sv_ref *x = a, *y = b;

	if (x->state != y->state)
		return x->state < y->state ? -1 : 1;
	if (x->first != y->first)
		return x->first < y->first ? -1 : 1;
	return (x->seg > y->seg) - (x->seg < y->seg);
}

static void take_file(struct sv_refs *r, const struct ck_index *ix, const struct ck_plan *plan,
		      uint32_t file)
{
	const struct ck_outfile *f = &plan->file[file];

	for (uint64_t i = f->seg; i < f->seg + f->nsegs; i++) {
		const struct ck_seg *s = &plan->seg[i];

		if (s->kind != CK_SEG_STATE)
			continue;
		r->ref[r->n++] = (struct sv_ref){
			.first = s->first, .count = s->bytes / (ckpt_dtype_bits(s->dtype) / 8),
			.seg = i, .state = put_as(ix, s->state), .file = file,
		};
	}
}

static void take_type(struct sv_refs *r, const struct ck_index *ix, const struct ck_plan *plan,
		      uint32_t state)
{
	r->type[state] = ix->state[state].dtype;
	for (uint64_t i = r->of[state]; i < r->of[state + 1]; i++)
		if (plan->seg[r->ref[i].seg].slot != CK_NONE) {
			r->type[state] = plan->seg[r->ref[i].seg].dtype;
			return;
		}
}

int ck_sv_refs_make(struct sv_refs *r, const struct ck_index *ix, const struct ck_plan *plan,
		 struct ckpt_err *err)
{
	memset(r, 0, sizeof(*r));
	r->ref = ck_alloc_array(plan->nsegs + 1, sizeof(*r->ref));
	r->of = ck_alloc_array(ix->nstates + 2, sizeof(*r->of));
	r->type = ck_alloc_array(ix->nstates + 1, sizeof(*r->type));
	if (!r->ref || !r->of || !r->type) {
		ck_sv_refs_release(r);
		return ck_fail_nomem(err, "a table of segments", plan->nsegs);
	}
	for (uint32_t i = 0; i < plan->nfiles; i++)
		take_file(r, ix, plan, i);
	if (r->n)
		qsort(r->ref, r->n, sizeof(*r->ref), by_state);
	for (uint64_t s = 0, at = 0; s <= ix->nstates; s++) {
		while (at < r->n && r->ref[at].state < s)
			at++;
		r->of[s] = at;
	}
	for (uint32_t s = 0; s < ix->nstates; s++)
		take_type(r, ix, plan, s);
	return 0;
}

void ck_sv_refs_release(struct sv_refs *r)
{
	ck_free(r->ref);
	ck_free(r->of);
	ck_free(r->type);
	memset(r, 0, sizeof(*r));
}

uint64_t ck_sv_size(const struct sv_refs *r, uint32_t state)
{
	return ckpt_dtype_bits((enum ckpt_dtype)r->type[state]) / 8;
}

uint64_t ck_sv_grain(const struct sv_refs *r, uint32_t state)
{
	return CK_DIGEST_BLOCK / ck_sv_size(r, state);
}

/* It speaks of files that rank 0 alone has. */
static bool is_manifest(const struct sv_save *s, uint32_t file)
{
	return s->spec.plan.seal.wanted && file == s->spec.plan.seal.file;
}

bool ck_sv_is_mine(const struct sv_save *s, uint32_t file)
{
	const char *name = ck_sv_spec_local(&s->spec, s->spec.plan.file[file].name);
	const size_t n = name ? strlen(name) : 0;

	if (!name)
		return false;
	if (file >= s->spec.nshared)
		return true;
	if (!s->spec.own_cut)
		return is_manifest(s, file) ? !s->opts->rank :
		       file % s->opts->nranks == s->opts->rank;
	return !s->opts->rank || n < 3 || strcmp(name + n - 3, ".pt") != 0;
}
