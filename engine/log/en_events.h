/*
 * en_events.h -- records of TensorBoard's event files; docs/formats/tensorboard-events.md.
 *
 * Both functions append one record to 'buf'.  CKPT_E_NOMEM, CKPT_E_LIMIT.
 */
#ifndef EN_EVENTS_H
#define EN_EVENTS_H

#include "libckpt/base/ck_buf.h"

struct en_events_value {
	const char *tag;	/* UTF-8 */
	double value;		/* is rounded to a float */
};

/* The first record of a file. */
int en_events_begin(struct ck_buf *buf, double wall_time, struct ckpt_err *err);
/* A step with its values. */
int en_events_add(struct ck_buf *buf, double wall_time, int64_t step,
		  const struct en_events_value *value, size_t n, struct ckpt_err *err);

#endif
