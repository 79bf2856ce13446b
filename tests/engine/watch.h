/*
 * watch.h -- ztrain as it is, with somebody between it and MPI, and between its parts: counts what
 * passes, and lets a rank fall in the phase that a test names.  For tests/engine/ztrain_watched,
 * which the linker makes of the program's own objects (--wrap).
 *
 *	WATCH_FALL='RANK SIGNAL PHASE STEPS N'   RANK sends itself SIGNAL at the N-th event of PHASE
 *	                                         (watch_phase_names) after so many steps
 *	WATCH_COUNT=FOLDER                       FOLDER/RANK: what passed, what the program counted,
 *	                                         and what the formulas say
 */
#ifndef WATCH_H
#define WATCH_H

#include "engine/comm/en_comm.h"

enum watch_phase {
	WATCH_FORWARD,		/* a layer's forward pass */
	WATCH_BACKWARD,		/* a layer's backward pass */
	WATCH_REDUCE,		/* a message of a reduce-scatter */
	WATCH_GATHER,		/* a message of an all-gather */
	WATCH_SMALL,		/* a message of a sum of few numbers */
	WATCH_BEGIN,		/* a save begins */
	WATCH_PUT,		/* a piece of the state is handed to the save */
	WATCH_WRITE,		/* bytes of a save go to a file, in a thread of its own */
	WATCH_WAIT,		/* all is handed over, the end of the save is waited for */
	WATCH_INIT,		/* MPI_Init begins */
	WATCH_DUP,		/* it has ended, and the communicator of our own is made */
	WATCH_FINALIZE,		/* MPI_Finalize begins */
	WATCH_PHASES,
};

/* One more event of it. */
void watch_pass(enum watch_phase phase);
/* A step has been made. */
void watch_step(void);

/* What MPI was handed, by kind, since the table was opened. */
struct watch_count {
	uint64_t messages, sent, received;	/* received: room that was given */
	uint64_t others;	/* calls of MPI that go round the table */
};

const struct watch_count *watch_counted(enum en_comm_kind kind);

/* The head of a function that takes the place of 'name', which is then __real_name(). */
#define WATCH_WRAP(type, name, params)	\
	type __real_##name params;	\
	type __wrap_##name params;	\
	type __wrap_##name params

#endif
