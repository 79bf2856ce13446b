/*
 * op_cat.c -- `cat`: elements of one state in order, as numpy's file, as text or as they are.
 *
 * A slice is walked by its innermost step.  Elements that follow each other are read in windows;
 * those with small gaps by what they span, and picked; others one by one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/read/op_read.h"
#include "libckpt/run/ck_elem_type.h"
#include "libckpt/run/ck_read.h"
#include "libckpt/run/ck_run.h"
#include "libckpt/run/ck_stated.h"
#include "libckpt/select/ck_select.h"
#include "libckpt/select/ck_slice.h"
#include "libckpt/select/ck_states.h"
#include "libckpt/tensor/ck_dtype.h"

#define WINDOW ((size_t)1 << 20)
#define GAP_BYTES 4096u		/* between elements that are read together */
#define NPY_ALIGN 64

struct cat {
	const struct ck_state *state;
	struct ck_slice slice;
	enum ckpt_dtype dtype;
	size_t es;			/* bytes of an element as it goes out */
	enum ckpt_cat_form form;
	struct ckpt_run_opts run;
	struct ck_reader *reader;
	uint8_t *in, *out, *scratch;	/* WINDOW each, but for the scratch */
	size_t fill;			/* of 'out' */
	uint64_t done;			/* elements that went out */
	ckpt_bytes_fn fn;
	void *arg;
};

/* ---------------------------------------------------------------- going out */

static int flush(struct cat *c, struct ckpt_err *err)
{
	const struct ckpt_progress now = {
		.done_bytes = c->done * c->es, .total_bytes = c->slice.numel * c->es,
	};
	int rc = c->fill ? c->fn(c->arg, c->out, c->fill, err) : 0;

	c->fill = 0;
	if (!rc && c->run.progress)
		c->run.progress(c->run.progress_arg, &now);
	return rc;
}

static int put(struct cat *c, const void *p, size_t n, struct ckpt_err *err)
{
	int rc = 0;

	if (n > WINDOW - c->fill)
		rc = flush(c, err);
	if (!rc) {
		memcpy(c->out + c->fill, p, n);
		c->fill += n;
	}
	return rc;
}

/* One element and what follows it: a blank in a row, else a line's end, or two between blocks. */
static int put_text(struct cat *c, const uint8_t *p, struct ckpt_err *err)
{
	const struct ck_slice *s = &c->slice;
	const uint64_t row = s->ndim > 1 ? s->shape[s->ndim - 1] : 1;
	const uint64_t block = s->ndim > 2 ? row * s->shape[s->ndim - 2] : s->numel;
	const uint64_t next = c->done + 1;
	char text[CK_ELEM_TYPE_TEXT + 2];
	size_t n;

	ck_elem_type_text(c->dtype, p, text);
	n = strlen(text);
	text[n++] = next % row ? ' ' : '\n';
	if (next % block == 0 && next < s->numel)
		text[n++] = '\n';
	return put(c, text, n, err);
}

/* 'n' elements that lie together. */
static int put_elements(struct cat *c, const uint8_t *p, uint64_t n, struct ckpt_err *err)
{
	int rc = 0;

	if (c->form != CKPT_CAT_TEXT) {
		rc = put(c, p, n * c->es, err);
		c->done += n;
		return rc;
	}
	for (; !rc && n; n--, p += c->es) {
		rc = put_text(c, p, err);
		c->done++;
	}
	return rc;
}

/* ---------------------------------------------------------------- coming in */

static int fetch(struct cat *c, uint64_t first, uint64_t n, struct ckpt_err *err)
{
	const volatile int *cancel = c->run.cancel;

	if (cancel && __atomic_load_n(cancel, __ATOMIC_RELAXED))
		return ck_fail(err, CKPT_E_CANCELED, NULL, CKPT_NO_OFFSET, "the run was canceled");
	return ck_reader_read(c->reader, c->state, first, n, c->dtype, c->in, c->scratch, NULL,
			      err);
}

static int run_together(struct cat *c, uint64_t first, uint64_t n, struct ckpt_err *err)
{
	int rc = 0;

	while (!rc && n) {
		const uint64_t take = ck_min_u64(n, WINDOW / c->es);

		rc = fetch(c, first, take, err);
		if (!rc)
			rc = put_elements(c, c->in, take, err);
		first += take;
		n -= take;
	}
	return rc;
}

/* Elements 'stride' apart, forwards or backwards: as many at once as a window spans. */
static int run_apart(struct cat *c, uint64_t first, uint64_t n, int64_t stride,
		     struct ckpt_err *err)
{
	const uint64_t gap = stride < 0 ? (uint64_t)-stride : (uint64_t)stride;
	const uint64_t most = gap > GAP_BYTES / c->es ? 1 : (WINDOW / c->es - 1) / gap + 1;
	int rc = 0;

	while (!rc && n) {
		const uint64_t take = ck_min_u64(n, most), span = (take - 1) * gap;

		rc = fetch(c, stride < 0 ? first - span : first, span + 1, err);
		for (uint64_t i = 0; !rc && i < take; i++)
			rc = put_elements(c, c->in + c->es * (stride < 0 ? span - i * gap :
							       i * gap), 1, err);
		first = stride < 0 ? first - take * gap : first + take * gap;
		n -= take;
	}
	return rc;
}

static int run_slice(struct cat *c, struct ckpt_err *err)
{
	const struct ck_slice *s = &c->slice;
	const uint32_t outer = s->nsteps ? s->nsteps - 1 : 0;
	const uint64_t n = s->nsteps ? s->count[outer] : 1;
	const int64_t stride = s->nsteps ? s->stride[outer] : 1;
	uint64_t index[CK_SLICE_DIMS] = { 0 }, at = s->first;
	uint32_t k;
	int rc;

	do {
		rc = stride == 1 ? run_together(c, at, n, err) : run_apart(c, at, n, stride, err);
		for (k = outer; k > 0; k--) {
			at += (uint64_t)s->stride[k - 1];	/* modulo 2^64 also backwards */
			if (++index[k - 1] < s->count[k - 1])
				break;
			at -= (uint64_t)s->stride[k - 1] * s->count[k - 1];
			index[k - 1] = 0;
		}
	} while (!rc && k);
	return rc;
}

/* Types below 8 bits: as they are. */
static int run_packed(struct cat *c, uint64_t bytes, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t at = 0; !rc && at < bytes; at += WINDOW) {
		const uint64_t n = ck_min_u64(WINDOW, bytes - at);

		rc = fetch(c, at, n, err);
		if (!rc)
			rc = put(c, c->in, n, err);
	}
	return rc;
}

/* ---------------------------------------------------------------- numpy */

static void npy_name(enum ckpt_dtype dtype, struct ckpt_cat_info *info)
{
	const struct ck_elem_type num = ck_elem_type_of(dtype);
	const unsigned size = ckpt_dtype_bits(dtype) / 8;
	char kind = 'u';

	info->is_bits = 0;
	if (dtype == CKPT_BOOL)
		kind = 'b';
	else if (num.type == KN_NUM_F64 || num.type == KN_NUM_F32 ||
		 (num.type == KN_NUM_F16 && num.parts == 1))
		kind = num.parts == 2 ? 'c' : 'f';
	else if (num.type >= KN_NUM_I8 && num.type <= KN_NUM_I64)
		kind = 'i';
	else if (num.type < KN_NUM_U8 || num.type > KN_NUM_U64)
		info->is_bits = 1;
	snprintf(info->npy, sizeof(info->npy), "%c%c%u", size == 1 ? '|' : '<', kind, size);
}

static int put_npy_header(struct cat *c, const struct ckpt_cat_info *info, struct ckpt_err *err)
{
	uint8_t head[64 * 22 + 128 + NPY_ALIGN];	/* 64 dimensions of at most 20 digits */
	char *text = (char *)head + 10;
	size_t n, room = sizeof(head) - 10;

	n = (size_t)snprintf(text, room, "{'descr': '%s', 'fortran_order': False, 'shape': (",
			     info->npy);
	for (uint32_t i = 0; i < info->ndim; i++)
		n += (size_t)snprintf(text + n, room - n, "%s%" PRIu64 "%s", i ? " " : "",
				      info->shape[i], i + 1 < info->ndim || !i ? "," : "");
	n += (size_t)snprintf(text + n, room - n, "), }");
	while ((10 + n + 1) % NPY_ALIGN)
		text[n++] = ' ';
	text[n++] = '\n';
	memcpy(head, "\x93NUMPY\x01", 8);	/* version 1.0 */
	head[8] = (uint8_t)(n & 0xff);
	head[9] = (uint8_t)(n >> 8);
	return put(c, head, 10 + n, err);
}

/* ---------------------------------------------------------------- the verb */

static int choose(struct ckpt *ck, uint64_t tensor, const struct ckpt_cat_opts *opts,
		  struct cat *c, struct ckpt_err *err)
{
	const struct ck_index *ix = &ck->ix;
	const char *name = opts->state ? opts->state : "weight";
	const struct ckpt_finding *bad;
	const struct ck_tensor *t;
	uint32_t stored, s;
	int rc;

	if (tensor >= ix->ntensors)
		return ck_fail(err, CKPT_E_USAGE, ix->path, CKPT_NO_OFFSET,
			       "tensor %" PRIu64 " does not exist: there are %" PRIu64 ", "
			       "counted from 0", tensor, ix->ntensors);
	stored = ck_select_stored(ix, (uint32_t)tensor);
	t = &ix->tensor[stored];
	bad = ck_findings_worst(&ck->findings, CKPT_ERROR);
	if (bad && !t->numel && !strcmp(bad->id, "PLACEHOLDERS_ONLY"))
		return ck_findings_fail(bad, err);
	s = ck_index_state_find(ix, stored, name);
	if (s == CK_NONE)
		return ck_states_fail(ix, stored, name, err);
	c->state = &ix->state[s];
	c->dtype = opts->dtype ? opts->dtype : (enum ckpt_dtype)c->state->dtype;
	if (c->dtype != c->state->dtype &&
	    !(ck_dtype_is_castable(c->dtype) && ck_dtype_is_castable(c->state->dtype)))
		return ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET, "%s cannot be "
			"converted to %s",
			       ckpt_dtype_name(c->state->dtype), ckpt_dtype_name(c->dtype));
	c->es = ckpt_dtype_bits(c->dtype) / 8;
	if (!c->es && (c->form != CKPT_CAT_RAW || opts->slice))
		return ck_fail(err, CKPT_E_UNSUPPORTED, t->name, CKPT_NO_OFFSET,
			       "elements of %u bits (%s) can only be written raw and whole",
			       ckpt_dtype_bits(c->dtype), ckpt_dtype_name(c->dtype));
	rc = ck_slice_parse(opts->slice, t->shape, t->ndim, t->name, &c->slice, err);
	return rc;
}

static void describe(const struct cat *c, struct ckpt_cat_info *info)
{
	memset(info, 0, sizeof(*info));
	info->dtype = c->dtype;
	info->ndim = c->slice.ndim;
	memcpy(info->shape, c->slice.shape, sizeof(info->shape));
	info->numel = c->slice.numel;
	if (c->es)
		npy_name(c->dtype, info);
}

static int make_room(struct ckpt *ck, struct cat *c, struct ckpt_err *err)
{
	c->in = ck_alloc(WINDOW);
	c->out = ck_alloc(WINDOW);
	c->scratch = ck_alloc(CK_READ_SCRATCH);
	if (!c->in || !c->out || !c->scratch)
		return ck_fail_nomem(err, "buffers", WINDOW);
	return ck_reader_new(&ck->ix, &ck->limits, c->run.mem_limit, &c->reader, err);
}

/*
 * A whole tensor is read once before anything of it goes out, with all checksums there are: who
 * takes the bytes cannot give them back.
 */
static int check_whole(struct ckpt *ck, const struct cat *c, struct ckpt_err *err)
{
	const struct ck_tensor *t = &ck->ix.tensor[c->state->tensor];
	struct ck_plan plan = CK_PLAN_INIT;
	struct ck_run_stats stats = { 0 };
	struct ckpt_run_opts run = c->run;
	/* what else is wrong with the step does not stop it */
	struct ck_findings found = { .as_warning = ck->findings.as_warning };
	const struct ck_run_job job = {
		.ix = &ck->ix, .plan = &plan, .limits = &ck->limits, .opts = &run,
		.to = CK_RUN_NOWHERE, .nparts = 1, .fd = -1, .findings = &found,
	};
	int rc;

	if (c->slice.numel != t->numel || !t->numel)
		return 0;
	run.progress = NULL;
	rc = ck_plan_file(&plan, "cat", err);
	if (!rc)
		rc = ck_plan_state(&plan, &ck->ix, (uint32_t)(c->state - ck->ix.state),
				   (enum ckpt_dtype)c->state->dtype, 0, t->numel, CK_NONE, err);
	if (!rc)
		rc = ck_plan_finish(&plan, err);
	if (!rc)
		rc = ck_run(&job, &stats, err);
	ck_free(stats.digest);
	ck_findings_release(&found);
	ck_plan_release(&plan);
	return rc;
}

int ck_cat(struct ckpt *ck, uint64_t tensor, const struct ckpt_cat_opts *opts, ckpt_bytes_fn fn,
	   void *arg, struct ckpt_cat_info *info_out, struct ckpt_err *err)
{
	struct cat c = { .form = opts->form, .fn = fn, .arg = arg };
	struct ckpt_cat_info info;
	uint64_t bytes = 0;
	int rc;

	ck_run_opts_fill(opts->run, &c.run);
	rc = choose(ck, tensor, opts, &c, err);
	if (!rc && !c.es)
		rc = ck_dtype_bytes(c.dtype, c.slice.numel, &bytes, err);
	if (!rc)
		rc = ck_stated_begin(ck, err);
	if (!rc)
		rc = check_whole(ck, &c, err);
	if (!rc)
		rc = make_room(ck, &c, err);
	if (!rc) {
		describe(&c, &info);
		if (info_out)
			*info_out = info;
		if (c.form == CKPT_CAT_NPY)
			rc = put_npy_header(&c, &info, err);
	}
	if (!rc && !c.es)
		rc = run_packed(&c, bytes, err);
	else if (!rc && c.slice.numel)
		rc = run_slice(&c, err);
	if (!rc)
		rc = flush(&c, err);
	rc = ck_fdpool_check(ck->pool, rc, err);
	ck_reader_free(c.reader);
	ck_free(c.in);
	ck_free(c.out);
	ck_free(c.scratch);
	return rc;
}
