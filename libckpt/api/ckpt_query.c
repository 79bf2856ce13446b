/* ckpt_query.c -- a checkpoint is opened, and looked at. */
#include <inttypes.h>
#include <string.h>

#include "formats/ck_formats.h"
#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_hash.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/run/ck_ckpt.h"
#include "libckpt/run/ck_read.h"
#include "libckpt/tensor/ck_extents.h"

#define READ_CACHE ((uint64_t)64 << 20)
#define MAX_NAMES 300	/* bytes of names in a message */

static const char *text(const char *s)
{
	return s ? s : "";
}

int ckpt_open(const char *const *paths, size_t npaths, const struct ckpt_open_opts *opts,
	      struct ckpt **ck_out, struct ckpt_err *err)
{
	return ck_ckpt_open(&ck_all_formats, paths, npaths, opts, ck_out, err);
}

void ckpt_info_get(const struct ckpt *ck, struct ckpt_info *out)
{
	const struct ck_index *ix = &ck->ix;

	*out = (struct ckpt_info){
		.format = text(ix->format), .path = text(ix->path), .tag = text(ix->tag),
		.why = text(ix->why), .stage = ix->stage, .optimizer = text(ix->optimizer),
		.world = ix->world, .step = ix->step, .writer = text(ix->writer),
		.ntensors = ix->ntensors, .nextents = ix->nextents, .nfiles = ix->nsources,
		.ngroups = ix->ngroups, .nfindings = ck->findings.n,
	};
	for (uint64_t i = 0; i < ix->nsources; i++)
		out->file_bytes += ix->source[i].bytes;
	ck_hash128_print(ck_hasher_sum(ix->fingerprint), out->fingerprint);
}

/* Whether 'where' has a 'what' of that number, from 0. */
static int check(const char *where, const char *what, uint64_t number, uint64_t n,
		 struct ckpt_err *err)
{
	if (number < n)
		return 0;
	return ck_fail(err, CKPT_E_USAGE, where, CKPT_NO_OFFSET,
		       "%s %" PRIu64 " does not exist: there are %" PRIu64 ", counted from 0", what,
		       number, n);
}

int ckpt_tensor_get(const struct ckpt *ck, uint64_t tensor, struct ckpt_tensor_info *out,
		    struct ckpt_err *err)
{
	const struct ck_tensor *t;
	int rc = check(ck->ix.path, "tensor", tensor, ck->ix.ntensors, err);

	if (rc)
		return rc;
	t = &ck->ix.tensor[tensor];
	*out = (struct ckpt_tensor_info){
		.name = t->name, .role = (enum ckpt_role)t->role, .ndim = t->ndim,
		.shape = t->shape, .numel = t->numel, .nstates = t->nstates, .group = t->group,
		.alias_of = t->alias_of,
	};
	return 0;
}

int ckpt_tensor_find(const struct ckpt *ck, const char *name, uint64_t *tensor_out,
		     struct ckpt_err *err)
{
	uint32_t number;

	if (!name || !ck_index_find(&ck->ix, name, &number))
		return ck_fail(err, CKPT_E_USAGE, name, CKPT_NO_OFFSET,
			       "the checkpoint has no tensor of this name");
	*tensor_out = number;
	return 0;
}

static int state_at(const struct ckpt *ck, uint64_t tensor, uint32_t state,
		    const struct ck_state **out, struct ckpt_err *err)
{
	uint32_t s;
	int rc = check(ck->ix.path, "tensor", tensor, ck->ix.ntensors, err);

	if (!rc)
		rc = check(ck->ix.tensor[tensor].name, "state", state,
			   ck->ix.tensor[tensor].nstates, err);
	if (rc)
		return rc;
	s = ck->ix.tensor[tensor].first_state;
	while (state--)
		s = ck->ix.state[s].next;
	*out = &ck->ix.state[s];
	return 0;
}

int ckpt_state_get(const struct ckpt *ck, uint64_t tensor, uint32_t state,
		   struct ckpt_state_info *out, struct ckpt_err *err)
{
	const struct ck_state *s;
	int rc = state_at(ck, tensor, state, &s, err);

	if (rc)
		return rc;
	*out = (struct ckpt_state_info){
		.name = s->name, .dtype = (enum ckpt_dtype)s->dtype, .flags = s->flags,
		.nextents = s->nextents, .nreplicas = s->nreplicas,
	};
	return 0;
}

/* What the tensor has in place of the state that the caller wants. */
static int fail_no_state(const struct ckpt *ck, const struct ck_tensor *t, const char *name,
			 struct ckpt_err *err)
{
	struct ck_buf buf = CK_BUF_INIT(MAX_NAMES);
	uint32_t s = t->first_state;
	int rc = 0;

	if (t->role == CKPT_ROLE_ALIAS)
		return ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET,
			       "it is a second name of %.200s; ask for the states of that "
			       "tensor",
			       ck->ix.tensor[t->alias_of].name);
	for (uint32_t i = 0; i < t->nstates && !rc; i++, s = ck->ix.state[s].next)
		rc = ck_buf_addf(&buf, NULL, "%s%s", i ? ", " : "", ck->ix.state[s].name);
	rc = ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET,
		     "it has no state %.80s; it has %s", name, buf.len ? buf.p : "none at all");
	ck_buf_release(&buf);
	return rc;
}

int ckpt_state_find(const struct ckpt *ck, uint64_t tensor, const char *name,
		    uint32_t *state_out, struct ckpt_err *err)
{
	const struct ck_tensor *t;
	uint32_t s;
	int rc = check(ck->ix.path, "tensor", tensor, ck->ix.ntensors, err);

	if (rc)
		return rc;
	if (!name)
		name = "weight";
	t = &ck->ix.tensor[tensor];
	s = t->first_state;
	for (uint32_t i = 0; i < t->nstates; i++, s = ck->ix.state[s].next) {
		if (strcmp(ck->ix.state[s].name, name))
			continue;
		*state_out = i;
		return 0;
	}
	return fail_no_state(ck, t, name, err);
}

int ckpt_extent_get(const struct ckpt *ck, uint64_t tensor, uint32_t state, uint64_t extent,
		    struct ckpt_extent_info *out, struct ckpt_err *err)
{
	const struct ck_state *s;
	struct ck_extent e;
	int rc = state_at(ck, tensor, state, &s, err);

	if (!rc)
		rc = check(ck->ix.tensor[tensor].name, "extent", extent, s->nextents, err);
	if (rc)
		return rc;
	e = ck_extent_get(&ck->ix, s, extent);
	*out = (struct ckpt_extent_info){
		.path = ck->ix.source[e.source].path, .offset = e.off, .first = e.first,
		.member = e.member == CK_NONE ? NULL : ck->ix.member[e.member].name,
		.count = e.count, .runs = e.runs, .src_stride = e.src_stride,
		.dst_stride = e.count, .dtype = (enum ckpt_dtype)e.dtype, .flags = e.flags,
		.rank = e.rank,
	};
	return 0;
}

int ckpt_finding_get(const struct ckpt *ck, uint64_t finding, struct ckpt_finding *out,
		     struct ckpt_err *err)
{
	int rc = check(ck->ix.path, "finding", finding, ck->findings.n, err);

	if (!rc)
		*out = ck->findings.list[finding];
	return rc;
}

int ckpt_file_get(const struct ckpt *ck, uint64_t file, struct ckpt_file_info *out,
		  struct ckpt_err *err)
{
	int rc = check(ck->ix.path, "file", file, ck->ix.nsources, err);

	if (!rc)
		*out = (struct ckpt_file_info){
			.path = ck->ix.source[file].path, .bytes = ck->ix.source[file].bytes,
			.rank = ck->ix.source[file].rank,
		};
	return rc;
}

int ckpt_fact_get(const struct ckpt *ck, uint64_t fact, const char **key_out,
		  const char **value_out, struct ckpt_err *err)
{
	int rc = check(ck->ix.path, "fact", fact, ck->ix.nfacts, err);

	if (rc)
		return rc;
	*key_out = ck->ix.fact[fact].key;
	*value_out = ck->ix.fact[fact].value;
	return 0;
}

/* Where elements lie in the state and how many bytes they become. */
static int measure(const struct ck_tensor *t, uint64_t first, uint64_t count,
		   enum ckpt_dtype dtype, size_t bytes, struct ckpt_err *err)
{
	const uint64_t bits = ckpt_dtype_bits(dtype);
	uint64_t n;

	if (first > t->numel || count > t->numel - first)
		return ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET,
			       "cannot read %" PRIu64 " elements from element %" PRIu64 " on: "
			       "it has only %" PRIu64 " elements", count, first, t->numel);
	if (!bits)
		return ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET,
			       "%d is not an element type", (int)dtype);
	if (ck_mul_over(count, bits, &n) || (bits < 8 && (n % 8 || first * bits % 8)))
		return ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET,
			       "a range of %" PRIu64 "-bit elements must begin and end at whole "
			       "bytes", bits);
	if (n / 8 != bytes)
		return ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET,
			       "%" PRIu64 " elements take %" PRIu64 " bytes, but the buffer has "
			       "%zu", count, n / 8, bytes);
	return 0;
}

int ckpt_read(const struct ckpt *ck, uint64_t tensor, uint32_t state, uint64_t first,
	      uint64_t count, enum ckpt_dtype dtype, void *buf, size_t bytes,
	      struct ckpt_err *err)
{
	struct ck_reader *reader = NULL;
	const struct ck_state *s;
	void *scratch;
	uint32_t bits;
	int rc = state_at(ck, tensor, state, &s, err);

	if (rc)
		return rc;
	if (!dtype)
		dtype = (enum ckpt_dtype)s->dtype;
	rc = measure(&ck->ix.tensor[tensor], first, count, dtype, bytes, err);
	if (rc)
		return rc;
	scratch = ck_alloc(CK_READ_SCRATCH);
	if (!scratch)
		return ck_fail_nomem(err, "a buffer", CK_READ_SCRATCH);
	rc = ck_reader_new(&ck->ix, &ck->limits, READ_CACHE, &reader, err);
	bits = ckpt_dtype_bits(dtype);
	if (!rc && bits < 8)	/* counted in bytes */
		rc = ck_reader_read(reader, s, first * bits / 8, count * bits / 8, dtype, buf,
				    scratch, NULL, err);
	else if (!rc)
		rc = ck_reader_read(reader, s, first, count, dtype, buf, scratch, NULL, err);
	ck_reader_free(reader);
	ck_free(scratch);
	return ck_fdpool_check(ck->pool, rc, err);
}
