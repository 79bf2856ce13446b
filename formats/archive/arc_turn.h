/*
 * arc_turn.h -- jobs of a pool whose last step is done in their order.
 */
#ifndef ARC_TURN_H
#define ARC_TURN_H

#include <pthread.h>

#include "formats/archive/ck_pack.h"

struct arc_turn {
	pthread_mutex_t lock;
	pthread_cond_t moved;
	uint64_t job;
	bool failed;
};

static inline void ck_arc_turn_init(struct arc_turn *t)
{
	*t = (struct arc_turn){ .job = 0 };
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->moved, NULL);
}

static inline void ck_arc_turn_release(struct arc_turn *t)
{
	pthread_mutex_destroy(&t->lock);
	pthread_cond_destroy(&t->moved);
}

/* Until it is the job's turn; false if one failed.  Jobs must be handed out in ascending order. */
static inline bool ck_arc_turn_wait(struct arc_turn *t, uint64_t job)
{
	bool ok;

	pthread_mutex_lock(&t->lock);
	while (t->job != job && !t->failed)
		pthread_cond_wait(&t->moved, &t->lock);
	ok = !t->failed;
	pthread_mutex_unlock(&t->lock);
	return ok;
}

static inline void ck_arc_turn_next(struct arc_turn *t)
{
	pthread_mutex_lock(&t->lock);
	t->job++;
	pthread_cond_broadcast(&t->moved);
	pthread_mutex_unlock(&t->lock);
}

static inline void ck_arc_turn_fail(struct arc_turn *t)
{
	pthread_mutex_lock(&t->lock);
	t->failed = true;
	pthread_cond_broadcast(&t->moved);
	pthread_mutex_unlock(&t->lock);
}

#endif
