/* What an output must hold, worked out from the truth of a fixture, and the
 * comparison of a written file with it. */
#ifndef T_WANT_H
#define T_WANT_H

#include "tests/lib/t_case.h"
#include "tests/lib/t_st.h"

struct t_want {
	char *name;
	const char *base;		/* the name it has in the truth */
	const struct t_st_tensor *from;	/* points into the truth */
	const char *dtype;		/* in which the output holds it */
	int required;			/* 0: may be absent (see t_case.h) */
};

struct t_wants {
	struct t_want *list;
	size_t n;
};

struct t_report {
	int bad;		/* failures */
	long equal;		/* tensors compared and found equal */
	long absent;		/* optional ones that were not there */
	char *text;		/* sentences, one per line; NULL without any */
};

void t_say(struct t_report *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Splits "NAME|STATE"; returns the state, a pointer into KEY, and a new NAME. */
const char *t_split(const char *key, char **name_out);
const struct t_st_tensor *t_truth(const struct t_st *truth, const char *name,
				  const char *state);

/* One state in its stored dtype; "weight" has the persistent buffers too. */
void t_wants_state(struct t_wants *w, const struct t_case *c,
		   const struct t_st *truth, const char *state);
/* A whole model in DTYPE ("keep": as saved). Floating tensors follow it and
 * come from master where the checkpoint has it, others keep their type. MASTER
 * is what --state gave; it decides only where states have no names. */
void t_wants_model(struct t_wants *w, const struct t_case *c,
		   const struct t_st *truth, const char *dtype,
		   const struct t_st *master);
void t_wants_free(struct t_wants *w);

/* Every wanted tensor is there with dtype, shape and bits, and nothing else is.
 * ALIAS = 0: every name of a tied weight is there. 1: one is, and the metadata
 * lead from each other name to it. */
void t_wants_compare(const struct t_wants *w, const struct t_st *got, int alias,
		     const char *label, struct t_report *r);

#endif
