/*
 * en_checkpointer_put.c -- a save, from begin() to commit(): by the thread that trains, or by one
 * that it is handed over to, which takes a device's copy of the state as it comes.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "engine/checkpoint/en_checkpointer_priv.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define ROOM ((uint64_t)4 << 20)	/* elements */

/* ---- begin ---- */

static int begin(struct en_checkpointer *k, struct ckpt_err *err)
{
	const struct en_checkpointer_step *s = &k->step;
	const bool native = k->opts.to == CKPT_TO_NATIVE;
	const struct ckpt_save_step step = {
		.size = sizeof(step), .tag = s->tag, .to = k->opts.to,
		.stage = (int)k->opts.stage,
		.round_robin = k->opts.round_robin && (k->opts.stage == 1 || k->opts.stage == 2),
		.sub_group_size = k->opts.sub_group_size,
		.world = k->comm->size, .tensor = k->tensor, .ntensors = k->ntensors,
		.state = k->state, .nstates = EN_STATES, .group = s->group,
		.ngroups = en_zero_groups(k->z), .steps = s->at.steps, .samples = s->at.samples,
		.skipped = s->at.skipped, .scaler = &s->scaler, .clip_grad = s->clip,
		.ds_config = s->ds_config, .scheduler = s->sched, .client = s->client,
		.own = native ? k->own : NULL, .nown = native ? k->nown : 0,
		.frozen_from = native && k->last && strcmp(k->last, s->tag) ? k->last : NULL,
		.flags = s->replaces ? CKPT_SAVE_FORCE : 0,
		.config_json = k->config, .aux_dir = k->config ? NULL : k->opts.beside,
		.adapter_json = k->adapter,
	};
	struct ckpt_err inner = { 0 };
	int rc;

	for (int i = 0; i < EN_STATES; i++)
		k->state[i] = (struct ckpt_save_state){ en_state_name((enum en_state)i), CKPT_F32 };
	rc = ckpt_save_begin(k->saver, &step, &inner);

	if (rc == -CKPT_E_EXISTS)
		return ck_fail(err, CKPT_E_EXISTS, k->opts.root, CKPT_NO_OFFSET,
			       "%s appeared during this run and is not from it (does another run "
			       "save in this folder?); it is not replaced",
			       s->tag);
	if (rc && err && !err->code)
		*err = inner;
	return rc;
}

static int end(struct en_checkpointer *k, int rc, struct ckpt_err *err)
{
	if (!rc)
		return ckpt_save_commit(k->saver, err);
	ckpt_save_abort(k->saver, "a rank failed to write its shard");
	return rc;
}

/* ---- by the thread that trains ---- */

static int put_memory(struct en_checkpointer *k, const struct en_zero_piece *p, enum en_state s,
		      struct ckpt_err *err)
{
	return ckpt_save_put(k->saver, k->number[p->param], en_state_name(s), p->first, p->count,
			     en_zero_memory_of(p, s), 0, err);
}

/* Whoever has it somewhere else copies it. */
static int put_got(struct en_checkpointer *k, const struct en_zero_piece *p, enum en_state s,
		   struct ckpt_err *err)
{
	uint64_t n;
	int rc = 0;

	if (!k->room)
		k->room = ck_alloc_array(ROOM, sizeof(float));
	if (!k->room)
		return ck_fail_nomem(err, "a room", ROOM * sizeof(float));
	for (uint64_t at = 0; !rc && at < p->count; at += n) {
		struct en_zero_slice slice = { p->block, s, p->at + at, 0 };

		n = slice.n = ck_min_u64(p->count - at, ROOM);
		rc = en_zero_read(k->z, &slice, k->room, err);
		if (!rc)
			rc = ckpt_save_put(k->saver, k->number[p->param], en_state_name(s),
					   p->first + at, n, k->room, 0, err);
	}
	return rc;
}

/* ---- frozen parameters ---- */

/* A device's come through the room. */
static int put_frozen_got(struct en_checkpointer *k, const struct en_zero_piece *p,
			  struct ckpt_err *err)
{
	uint64_t n;
	int rc = 0;

	if (!k->room)
		k->room = ck_alloc_array(ROOM, sizeof(float));
	if (!k->room)
		return ck_fail_nomem(err, "a room", ROOM * sizeof(float));
	for (uint64_t at = 0; !rc && at < p->count; at += n) {
		n = ck_min_u64(p->count - at, ROOM);
		rc = en_zero_frozen_get(k->z, p, at, n, k->room, err);
		if (!rc)
			rc = ckpt_save_put(k->saver, k->number[p->param], "weight", p->first + at,
					   n, k->room, 0, err);
	}
	return rc;
}

/* They never change: those of the host are lent. */
static int put_frozen(struct en_checkpointer *k, struct ckpt_err *err)
{
	uint64_t n;
	const struct en_zero_piece *p = en_zero_frozen(k->z, &n);
	int rc = 0;

	for (uint64_t i = 0; !rc && i < n; i++) {
		const void *memory = en_zero_frozen_memory(k->z, &p[i]);
		const uint64_t number = k->number[p[i].param];

		if (number == UINT64_MAX || !ckpt_save_needs(k->saver, number))
			continue;
		rc = memory ? ckpt_save_put(k->saver, number, "weight", p[i].first, p[i].count,
					    memory, CKPT_PUT_BORROW, err) :
		     put_frozen_got(k, &p[i], err);
	}
	return rc;
}

int en_checkpointer_put(struct en_checkpointer *k, struct ckpt_err *err)
{
	uint64_t n;
	const struct en_zero_piece *p = en_zero_pieces(k->z, &n);
	int rc = begin(k, err);

	if (rc)
		return rc;
	rc = put_frozen(k, err);
	for (uint64_t i = 0; !rc && i < n; i++)
		for (int s = 0; !rc && s < EN_STATES; s++)
			rc = (p[i].master ? put_memory : put_got)(k, &p[i], (enum en_state)s, err);
	return end(k, rc, err);
}

/* ---- by the other one ---- */

/* The pieces of a part of the copy. */
static int put_copied(struct en_checkpointer *k, const struct en_zero_copied *c,
		      struct ckpt_err *err)
{
	const struct en_zero_slice *s = &c->slice;
	uint64_t n;
	const struct en_zero_piece *p = en_zero_pieces(k->z, &n);
	int rc = 0;

	for (uint64_t i = 0; !rc && i < n; i++) {
		const uint64_t from = ck_max_u64(s->at, p[i].at),
			       to = ck_min_u64(s->at + s->n, p[i].at + p[i].count);

		if (p[i].block == s->block && from < to)
			rc = ckpt_save_put(k->saver, k->number[p[i].param],
					   en_state_name(s->state),
					   p[i].first + (from - p[i].at), to - from,
					   c->p + (from - s->at),
					   c->stays ? CKPT_PUT_BORROW : 0, err);
	}
	return rc;
}

/* The copies continue while the step's folder and files are made. */
static int put_behind(struct en_checkpointer *k, struct ckpt_err *err)
{
	struct en_zero_copied c = { .p = NULL };
	int rc = en_zero_snap_start(k->z, err);

	if (!rc)
		rc = begin(k, err);
	if (rc)
		return rc;
	rc = put_frozen(k, err);
	while (!rc) {
		rc = en_zero_snap_next(k->z, &c, err);
		if (!rc && c.slice.n)
			rc = put_copied(k, &c, err);
		if (!c.slice.n)
			break;
	}
	return end(k, rc, err);
}

static void *run(void *arg)
{
	struct en_checkpointer *k = arg;

	pthread_mutex_lock(&k->lock);
	for (;;) {
		struct ckpt_err err = { 0 };
		int rc;

		while (!k->busy && !k->quit)
			pthread_cond_wait(&k->changed, &k->lock);
		if (!k->busy)
			break;
		pthread_mutex_unlock(&k->lock);
		rc = put_behind(k, &err);
		en_zero_snap_end(k->z);
		pthread_mutex_lock(&k->lock);
		k->rc = rc;
		k->err = err;
		k->busy = false;
		pthread_cond_broadcast(&k->changed);
	}
	pthread_mutex_unlock(&k->lock);
	return NULL;
}

int en_checkpointer_start(struct en_checkpointer *k, struct ckpt_err *err)
{
	int failed;

	pthread_mutex_init(&k->lock, NULL);
	pthread_cond_init(&k->changed, NULL);
	failed = ck_thread(&k->thread, run, k);
	k->has_thread = !failed;
	if (failed) {
		pthread_mutex_destroy(&k->lock);
		pthread_cond_destroy(&k->changed);
		return ck_fail_sys(err, failed, "start", "the save thread");
	}
	return 0;
}

void en_checkpointer_stop(struct en_checkpointer *k)
{
	if (!k->has_thread)
		return;
	pthread_mutex_lock(&k->lock);
	k->quit = true;
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->lock);
	pthread_join(k->thread, NULL);
	pthread_mutex_destroy(&k->lock);
	pthread_cond_destroy(&k->changed);
	k->has_thread = false;
}

void en_checkpointer_hand_over(struct en_checkpointer *k)
{
	pthread_mutex_lock(&k->lock);
	k->busy = true;
	k->rc = 0;
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->lock);
}

static struct timespec in_ms(uint32_t ms)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += ms / 1000;
	t.tv_nsec += (long)(ms % 1000) * 1000000;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return t;
}

int en_checkpointer_join(struct en_checkpointer *k, uint32_t timeout_ms, struct ckpt_err *err)
{
	const struct timespec until = in_ms(timeout_ms);
	int late = 0, rc;
	bool pending;

	pthread_mutex_lock(&k->lock);
	while (k->busy && late != ETIMEDOUT)
		late = timeout_ms ? pthread_cond_timedwait(&k->changed, &k->lock, &until) :
		       pthread_cond_wait(&k->changed, &k->lock);
	pending = k->busy;
	rc = k->rc;
	k->rc = 0;
	pthread_mutex_unlock(&k->lock);
	if (pending)
		return ck_fail(err, CKPT_E_BUSY, k->opts.root, CKPT_NO_OFFSET,
			       "the save did not finish within %u ms", timeout_ms);
	k->open = !rc;
	if (rc && err && !err->code)
		*err = k->err;
	return rc;
}
