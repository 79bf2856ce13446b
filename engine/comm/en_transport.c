/* en_transport.c -- see en_transport.h. */
#include "engine/comm/en_transport.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

/* ---------------------------------------------------------------- failing */

int en_transport_fail(struct en_transport *f, struct ckpt_err *err, const char *fmt, ...)
{
	struct ckpt_err *broken = &f->base.broken;
	va_list ap;

	if (!broken->code) {
		broken->code = CKPT_E_IO;
		broken->offset = CKPT_NO_OFFSET;
		snprintf(broken->where, sizeof(broken->where), "rank %u of %u", f->base.rank,
			 f->base.size);
		va_start(ap, fmt);
		vsnprintf(broken->msg, sizeof(broken->msg), fmt, ap);
		va_end(ap);
	}
	if (err && !err->code)
		*err = *broken;
	return -(int)broken->code;
}

void en_transport_name(struct en_transport *f, uint32_t p, char *text, size_t n)
{
	for (uint32_t i = 0; i < f->base.size; i++)
		f->missing[i] = i == p;
	en_peer_list(f->peer, f->base.size, f->base.rank, f->missing, text, n);
}

/* Those from whom (else to whom) something is open.  How many. */
static uint32_t open_ranks(struct en_transport *f, const struct en_collective *w, bool from)
{
	uint32_t n = 0;

	for (uint32_t p = 0; p < f->base.size; p++)
		n += f->missing[p] = f->ops->is_open(f, w, p, from);
	return n;
}

/* Nothing has moved for as long as is allowed: who is it? */
static int fail_silent(struct en_transport *f, struct ckpt_err *err, const struct en_collective *w)
{
	const char *what = "no data from";
	char who[360];

	if (!open_ranks(f, w, true)) {
		what = "no data accepted by";
		open_ranks(f, w, false);
	}
	en_peer_list(f->peer, f->base.size, f->base.rank, f->missing, who, sizeof(who));
	return en_transport_fail(f, err,
				 "%s %s for %g s, in %s number %llu (%llu bytes a rank, %llu "
				 "of %llu chunks done)",
				 what, who, f->base.timeout_ms / 1000.0, w->what,
				 (unsigned long long)w->number, (unsigned long long)w->bytes,
				 (unsigned long long)w->done, (unsigned long long)w->nchunks);
}

/* ---------------------------------------------------------------- memory */

static void work_free(struct en_collective *w)
{
	if (!w)
		return;
	if (w->scratch)
		w->scratch->used = false;
	ck_free(w->piece);
	ck_free(w->own);
	ck_free(w);
}

static int work_new(struct en_transport *f, const struct en_collective *plan,
		    struct en_collective **work_out, struct ckpt_err *err)
{
	const uint32_t size = f->base.size;
	struct en_collective *w = ck_zalloc(sizeof(*w));
	uint64_t scratch;

	if (!w)
		goto nomem;
	*w = *plan;
	w->rank = f->base.rank;
	w->size = size;
	w->tree_work = f->tree_work;
	scratch = en_collective_cut(w);
	w->piece = ck_alloc_array(size, sizeof(*w->piece));
	w->own = ck_zalloc(size * f->ops->own_bytes);
	if (!w->piece || !w->own)
		goto nomem;
	if (f->ops->begin)
		f->ops->begin(f, w);
	if (scratch) {
		w->scratch = en_scratch_take(&f->base, &f->scratch, scratch);
		if (!w->scratch)
			goto nomem;
	}
	*work_out = w;
	return 0;
nomem:
	work_free(w);
	return ck_fail_nomem(err, plan->what, plan->bytes);
}

int en_transport_init(struct en_transport *f, struct ckpt_err *err)
{
	const uint32_t size = f->base.size;

	f->peer = ck_alloc_array(size, sizeof(*f->peer));
	f->tree_work = ck_alloc(en_tree_work(size));
	f->missing = ck_alloc_array(size, sizeof(*f->missing));
	if (!f->peer || !f->tree_work || !f->missing)
		return ck_fail_nomem(err, "collectives", en_tree_work(size));
	memset(f->peer, 0, size * sizeof(*f->peer));
	return 0;
}

void en_transport_release(struct en_transport *f)
{
	en_scratch_free(&f->base, &f->scratch);
	ck_free(f->missing);
	ck_free(f->tree_work);
	ck_free(f->peer);
}

int en_transport_exchange_peers(struct en_transport *f, struct ckpt_err *err)
{
	struct en_peer *self = &f->peer[f->base.rank];
	int rc;

	en_peer_self(self);
	rc = en_comm_gather_small(&f->base, f->peer, self, sizeof(*self), NULL, err);
	if (!rc)
		memset(f->base.counter, 0, sizeof(f->base.counter));
	return rc;
}

/* ---------------------------------------------------------------- moving */

static int advance(struct en_transport *f, struct en_collective *w, bool *moved,
		   struct ckpt_err *err)
{
	while (w->done < w->nchunks) {
		uint32_t left = 0;
		int rc = 0;

		if (w->posted < w->nchunks && w->posted < w->done + 2) {
			rc = f->ops->post(f, w, err);
			if (rc)
				return rc;
			w->posted++;
			continue;
		}
		rc = f->ops->look(f, w, moved, &left, err);
		if (rc || left)
			return rc;
		en_collective_finish(w, w->done);
		w->done++;
		*moved = true;
	}
	return 0;
}

/* Everything in flight, in the order it was started. */
static int progress(struct en_transport *f, bool *moved, struct ckpt_err *err)
{
	int rc = f->ops->pump ? f->ops->pump(f, moved, err) : 0;

	for (struct en_collective *w = f->active; w && !rc; w = w->next)
		rc = advance(f, w, moved, err);
	return rc;
}

/* Takes a work that is done out of the list; the caller's handle becomes NULL. */
static bool retire(struct en_transport *f, struct en_collective **handle)
{
	struct en_collective *w = *handle, **at = &f->active;

	if (w->done < w->nchunks)
		return false;
	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	work_free(w);
	*handle = NULL;
	return true;
}

int en_transport_test(struct en_comm *comm, struct en_collective **work, struct ckpt_err *err)
{
	struct en_transport *f = en_transport_of(comm);
	bool moved = false;
	int rc = progress(f, &moved, err);

	if (!rc && *work)
		retire(f, work);
	return rc;
}

int en_transport_wait(struct en_comm *comm, struct en_collective **work, struct ckpt_err *err)
{
	struct en_transport *f = en_transport_of(comm);
	struct en_watchdog p;

	en_watchdog_begin(&p, f->ops->nap, f);
	for (;;) {
		bool moved = false;
		int rc = progress(f, &moved, err);

		if (rc || retire(f, work))
			return rc;
		en_watchdog_rest(&p, moved);
		if (comm->timeout_ms && p.silent > (int64_t)comm->timeout_ms * 1000000)
			return fail_silent(f, err, *work);
	}
}

/* ---------------------------------------------------------------- starting */

static int start(struct en_transport *f, const struct en_collective *plan,
		 struct en_collective **work_out, struct ckpt_err *err)
{
	struct en_collective **last = &f->active, *w = NULL;
	bool moved = false;
	int rc = work_new(f, plan, &w, err);

	if (rc)
		return rc;
	w->number = f->number++;
	f->base.counter[plan->kind].calls++;
	while (*last)
		last = &(*last)->next;
	*last = w;
	rc = progress(f, &moved, err);
	if (rc)
		return rc;
	*work_out = w;
	retire(f, work_out);
	return 0;
}

int en_transport_all_gather(struct en_comm *comm, enum en_comm_kind kind, void *full,
			    uint64_t bytes, struct en_collective **work_out, struct ckpt_err *err)
{
	const struct en_collective plan = {
		.kind = kind,
		.what = kind == EN_COMM_SMALL ? "small gather" : "all-gather",
		.root = EN_COLLECTIVE_ALL,
		.bytes = bytes,
		.recv = full,
		.recv_step = bytes,
		.send = (uint8_t *)full + comm->rank * bytes,
	};

	return start(en_transport_of(comm), &plan, work_out, err);
}

int en_transport_reduce_scatter(struct en_comm *comm, float *own, const void *full,
				enum kn_type type, uint64_t n, float scale,
				struct en_collective **work_out, struct ckpt_err *err)
{
	const uint64_t bytes = n * kn_type_size(type);
	const struct en_collective plan = {
		.kind = EN_COMM_REDUCE,
		.what = "reduce-scatter",
		.root = EN_COLLECTIVE_ALL,
		.bytes = bytes,
		.send = full,
		.send_step = bytes,
		.out = (uint8_t *)own,
		.tree = { .type = (enum kn_num)type, .op = EN_COMM_SUM, .scale = scale },
	};

	return start(en_transport_of(comm), &plan, work_out, err);
}

int en_transport_all_reduce(struct en_comm *comm, void *v, enum kn_num type, uint64_t n,
			    enum en_comm_op op, struct en_collective **work_out,
			    struct ckpt_err *err)
{
	const struct en_collective plan = {
		.kind = EN_COMM_SMALL,
		.what = "all-reduce",
		.root = EN_COLLECTIVE_ALL,
		.bytes = n * kn_num_size(type),
		.send = v,
		.out = v,
		.tree = { .type = type, .op = op, .scale = 1 },
	};

	return start(en_transport_of(comm), &plan, work_out, err);
}

int en_transport_broadcast(struct en_comm *comm, void *p, uint64_t bytes, uint32_t root,
			   struct en_collective **work_out, struct ckpt_err *err)
{
	const struct en_collective plan = {
		.kind = EN_COMM_BROADCAST,
		.what = "broadcast",
		.root = root,
		.bytes = bytes,
		.send = p,
		.recv = p,
	};

	return start(en_transport_of(comm), &plan, work_out, err);
}

int en_transport_barrier(struct en_comm *comm, struct en_collective **work_out,
			 struct ckpt_err *err)
{
	static uint8_t nothing[1];
	const struct en_collective plan = {
		.kind = EN_COMM_BARRIER,
		.what = "barrier",
		.root = EN_COLLECTIVE_ALL,
		.send = nothing,
		.recv = nothing,
	};

	return start(en_transport_of(comm), &plan, work_out, err);
}

/* ---------------------------------------------------------------- the end */

void en_transport_lost(struct en_comm *comm, char *text, size_t n)
{
	struct en_transport *f = en_transport_of(comm);

	if (en_peer_lost(f->peer, comm->size, comm->rank, f->missing))
		en_peer_list(f->peer, comm->size, comm->rank, f->missing, text, n);
}

int en_transport_end(struct en_comm *comm, struct ckpt_err *err)
{
	struct en_transport *f = en_transport_of(comm);

	if (f->active)
		return ck_fail(err, CKPT_E_USAGE, f->active->what, CKPT_NO_OFFSET,
			       "closed while it is in flight");
	return en_comm_barrier(comm, NULL, err);
}
