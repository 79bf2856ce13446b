/*
 * ck_est_states.c -- parameters, gradients, masters, moments and the buffers around them, as
 * DeepSpeed's runtime/zero/stage_1_and_2.py and stage3.py (0.19.8) allocate them.  Which line
 * is which term: docs/internals/memory.md.
 */
#include "libckpt/estimate/ck_estimate.h"
#include "libckpt/include/ckpt_zero.h"

#define LOSS CKPT_PHASE_LOSS
#define LAYER CKPT_PHASE_LAYER
#define END CKPT_PHASE_END
#define STEP CKPT_PHASE_STEP
#define ALL CKPT_PHASE_ALL
#define BACKWARD (LOSS | LAYER | END)

#define GPU(e, phases, name, bytes, ...) \
	ck_est_term(e, CKPT_PLACE_GPU, phases, name, bytes, __VA_ARGS__)

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The gradients of all parameters, where stages 0 and 1 keep them. */
static void whole_gradients(struct ck_estimating *e, unsigned last)
{
	const uint64_t t = e->m->info.trainable;
	const uint64_t late = t - least(t, e->first);
	struct ck_counts c = { .at = 0 };

	if (e->s.accumulation > 1) {
		GPU(e, BACKWARD | last, "gradients", e->g * t, "%u B x %s, summed over %s "
		    "micro-batches", (unsigned)e->g, ck_count(&c, t),
		    ck_count(&c, e->s.accumulation));
		return;
	}
	GPU(e, LAYER, "gradients of the head", e->g * e->behind, "%u B x %s", (unsigned)e->g,
	    ck_count(&c, e->behind));
	GPU(e, END, "gradients except the first layer's", e->g * late,
	    "%u B x (%s - %s of the embedding and the first layer, which come last)",
	    (unsigned)e->g, ck_count(&c, t), ck_count(&c, t - late));
	if (last)
		GPU(e, last, "gradients", e->g * t, "%u B x %s", (unsigned)e->g, ck_count(&c, t));
}

static void moments(struct ck_estimating *e, uint64_t n, bool masters)
{
	struct ck_counts c = { .at = 0 };

	if (masters)
		GPU(e, ALL, "masters", 4 * n, "4 B x %s", ck_count(&c, n));
	GPU(e, ALL, "moments", 8 * n, "2 x 4 B x %s", ck_count(&c, n));
}

static void stage0(struct ck_estimating *e)
{
	const uint64_t p = e->m->info.params, t = e->m->info.trainable;
	const uint64_t bucket = least(t, 500000000);
	struct ck_counts c = { .at = 0 };

	GPU(e, ALL, "parameters", e->b * p, "%u B x %s", (unsigned)e->b, ck_count(&c, p));
	whole_gradients(e, STEP);
	if (e->s.gpus > 1)
		GPU(e, END, "all-reduce bucket", e->b * bucket, "%u B x %s", (unsigned)e->b,
		    ck_count(&c, bucket));
	moments(e, t, e->b != 4);
	if (e->b != 4)
		GPU(e, STEP, "gradients in fp32", 4 * t, "4 B x %s", ck_count(&c, t));
}

/* ---- stages 1 and 2 ---- */

static void buckets12(struct ck_estimating *e)
{
	const unsigned n = e->s.overlap > 0 ? 2 : 1;
	struct ck_counts c = { .at = 0 };

	GPU(e, BACKWARD, "reduce bucket", n * e->b * e->s.reduce_bucket,
	    "%u x %u B x reduce_bucket_size %s%s", n, (unsigned)e->b,
	    ck_count(&c, e->s.reduce_bucket), n > 1 ? ", overlap_comm" : "");
	GPU(e, LAYER | END, "gradient copied into the bucket", e->b * e->m->info.largest,
	    "%u B x %s", (unsigned)e->b, ck_count(&c, e->m->info.largest));
}

static void partition_gradients(struct ck_estimating *e)
{
	const unsigned twice = e->s.accumulation > 1 && e->g == e->b ? 2 : 1;
	struct ck_counts c = { .at = 0 };

	GPU(e, e->s.accumulation > 1 ? BACKWARD : LAYER | END, "gradients of the partition",
	    twice * e->g * e->part, "%s%u B x %s%s", twice > 1 ? "2 x " : "", (unsigned)e->g,
	    ck_count(&c, e->part), twice > 1 ? ": the sum and the micro-batch's" : "");
}

static void host12(struct ck_estimating *e)
{
	const uint64_t ranks = e->hosts_ranks, half = e->pinned_part / 4 * e->b;
	const uint64_t big = e->m->info.largest;
	const char *how = e->s.no_pin ? "" : ", pinned: next power of two a group";
	struct ck_counts c = { .at = 0 };

	ck_est_term(e, CKPT_PLACE_HOST, ALL, "masters", ranks * e->pinned_part,
		    "%s ranks x 4 B x %s%s", ck_count(&c, ranks), ck_count(&c, e->part), how);
	ck_est_term(e, CKPT_PLACE_HOST, ALL, "gradients in fp32", ranks * e->pinned_part,
		    "%s ranks x 4 B x %s%s", ck_count(&c, ranks), ck_count(&c, e->part), how);
	ck_est_term(e, CKPT_PLACE_HOST, ALL, "moments", ranks * 8 * e->part,
		    "%s ranks x 2 x 4 B x %s", ck_count(&c, ranks), ck_count(&c, e->part));
	ck_est_term(e, CKPT_PLACE_HOST, ALL, "parameters to copy back", ranks * half,
		    "%s ranks x %u B x %s%s", ck_count(&c, ranks), (unsigned)e->b,
		    ck_count(&c, e->part), how);
	ck_est_term(e, CKPT_PLACE_HOST, ALL, "buffer for a gradient", ranks * e->b * big,
		    "%s ranks x %u B x %s", ck_count(&c, ranks), (unsigned)e->b,
		    ck_count(&c, big));
	if (e->s.accumulation > 1)
		ck_est_term(e, CKPT_PLACE_HOST, ALL, "gradients of micro-batches", ranks * half,
			    "%s ranks x %u B x %s%s", ck_count(&c, ranks), (unsigned)e->b,
			    ck_count(&c, e->part), how);
}

static void stage12(struct ck_estimating *e)
{
	const uint64_t frozen = e->m->info.params - e->m->info.trainable;
	struct ck_counts c = { .at = 0 };

	GPU(e, ALL, "parameters", e->b * (e->flat + frozen),
	    "%u B x %s%s%s, each group padded to a multiple of 2 x %s", (unsigned)e->b,
	    ck_count(&c, e->flat), frozen ? " + frozen " : "",
	    frozen ? ck_count(&c, frozen) : "", ck_count(&c, e->s.gpus));
	if (e->s.stage == 1)
		whole_gradients(e, 0);
	else if (!e->s.offload)
		partition_gradients(e);
	buckets12(e);
	if (e->s.offload) {
		GPU(e, ALL, "gradient copied to the host", e->b * e->m->info.largest,
		    "%u B x %s", (unsigned)e->b, ck_count(&c, e->m->info.largest));
		host12(e);
		return;
	}
	moments(e, e->part, true);
	if (e->g == e->b)
		GPU(e, STEP, "gradients and a flat copy", 2 * e->g * e->part, "2 x %u B x %s",
		    (unsigned)e->g, ck_count(&c, e->part));
	if (e->b != 4)
		GPU(e, STEP, "gradients in fp32", 4 * e->part, "4 B x %s",
		    ck_count(&c, e->part));
}

/* ---- stage 3 ---- */

static void gathered(struct ck_estimating *e)
{
	const uint64_t module = e->m->info.largest_module, all = e->m->info.params;
	const uint64_t live = e->retained > e->last_module ? e->retained : e->last_module;
	const uint64_t ahead = least(e->s.prefetch_bucket, all);
	const unsigned pieces = e->s.gpus > 1 ? 2 : 1;
	struct ck_counts c = { .at = 0 };

	/* one rank's part is the parameter itself */
	if (e->s.gpus == 1 && !(e->s.offload & CKPT_OFFLOAD_PARAMS))
		return;
	GPU(e, ALL, "small parameters, kept gathered", e->b * e->persist,
	    "%u B x %s, those of at most %s elements", (unsigned)e->b, ck_count(&c, e->persist),
	    ck_count(&c, e->s.persistence));
	GPU(e, LOSS | LAYER, "gathered parameters", e->b * live,
	    "%u B x %s, kept for reuse within max_reuse_distance %s", (unsigned)e->b,
	    ck_count(&c, live), ck_count(&c, e->s.max_reuse));
	GPU(e, END, "largest module, gathered", e->b * module, "%u B x %s", (unsigned)e->b,
	    ck_count(&c, module));
	GPU(e, BACKWARD, "prefetched parameters", pieces * e->b * ahead, "%s%u B x %s%s",
	    pieces > 1 ? "2 x " : "", (unsigned)e->b, ck_count(&c, ahead),
	    pieces > 1 ? ": received, and as one piece" : "");
}

static void buckets3(struct ck_estimating *e)
{
	const uint64_t n = least(e->s.reduce_bucket, e->m->info.trainable);
	struct ck_counts c = { .at = 0 };

	GPU(e, ALL, "reduce bucket", e->b * e->s.reduce_bucket, "%u B x reduce_bucket_size %s",
	    (unsigned)e->b, ck_count(&c, e->s.reduce_bucket));
	if (e->s.gpus > 1)
		GPU(e, LAYER | END, "reduce bucket, sorted by rank", e->b * n, "%u B x %s",
		    (unsigned)e->b, ck_count(&c, n));
	GPU(e, LAYER | END, "gradient copied into the bucket", e->b * e->m->info.largest,
	    "%u B x %s", (unsigned)e->b, ck_count(&c, e->m->info.largest));
}

static void host3(struct ck_estimating *e)
{
	const uint64_t ranks = e->hosts_ranks, n = e->part3;
	const char *how = e->s.no_pin ? "" : ", pinned: next power of two";
	uint64_t half = e->g * n, params = e->b * n;
	struct ck_counts c = { .at = 0 };

	if (!e->s.no_pin)
		for (half = 1; half < e->g * n;)
			half *= 2;
	if (!e->s.no_pin)
		for (params = 1; params < e->b * n;)
			params *= 2;
	ck_est_term(e, CKPT_PLACE_HOST, ALL, "masters", ranks * 4 * n, "%s ranks x 4 B x %s",
		    ck_count(&c, ranks), ck_count(&c, n));
	ck_est_term(e, CKPT_PLACE_HOST, ALL, "moments", ranks * 8 * n,
		    "%s ranks x 2 x 4 B x %s", ck_count(&c, ranks), ck_count(&c, n));
	ck_est_term(e, CKPT_PLACE_HOST, ALL, "gradients in fp32", ranks * e->pinned_part3,
		    "%s ranks x 4 B x %s%s a sub-group", ck_count(&c, ranks), ck_count(&c, n), how);
	ck_est_term(e, CKPT_PLACE_HOST, ALL, "gradients", ranks * half, "%s ranks x %u B x %s%s",
		    ck_count(&c, ranks), (unsigned)e->g, ck_count(&c, n), how);
	if (e->s.offload & CKPT_OFFLOAD_PARAMS)
		ck_est_term(e, CKPT_PLACE_HOST, ALL, "parameters", ranks * params,
			    "%s ranks x %u B x %s%s", ck_count(&c, ranks), (unsigned)e->b,
			    ck_count(&c, n), how);
}

static void stage3(struct ck_estimating *e)
{
	struct ck_counts c = { .at = 0 };

	if (!(e->s.offload & CKPT_OFFLOAD_PARAMS))
		GPU(e, ALL, "parameters of the partition", e->b * (e->part3 + e->frozen3),
		    "%u B x %s, padding included", (unsigned)e->b,
		    ck_count(&c, e->part3 + e->frozen3));
	gathered(e);
	buckets3(e);
	if (e->s.offload) {
		host3(e);
		return;
	}
	GPU(e, ALL, "gradients of the partition", e->g * e->part3, "%u B x %s", (unsigned)e->g,
	    ck_count(&c, e->part3));
	moments(e, e->part3, true);
	GPU(e, STEP, "gradients of a sub-group", e->g * e->sub_group, "%u B x %s, flattened",
	    (unsigned)e->g, ck_count(&c, e->sub_group));
	if (e->g != 4)
		GPU(e, STEP, "sub-group gradients in fp32", 4 * e->sub_group, "4 B x %s, one of %s",
		    ck_count(&c, e->sub_group), ck_count(&c, e->nsub));
}

void ck_est_states(struct ck_estimating *e)
{
	if (!e->s.stage)
		stage0(e);
	else if (e->s.stage < 3)
		stage12(e);
	else
		stage3(e);
}
