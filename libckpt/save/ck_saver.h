/* ck_saver.h -- private to libckpt/save: a saver from inside. */
#ifndef CK_SAVER_H
#define CK_SAVER_H

#include "libckpt/save/ck_save.h"

enum ck_saver_state {
	CK_SAVER_IDLE = 0,
	CK_SAVER_OPEN,		/* between begin and commit: the caller's thread has it */
	CK_SAVER_CLOSING,	/* the ender has it */
	CK_SAVER_ENDED,
};

struct ckpt_saver {
	struct ckpt_saver_opts opts;	/* complete; strings are ours */
	char *root, *job_name, *dst;
	struct ck_hash128 job;
	uint64_t count;		/* of begins */
	uint64_t inode;		/* of the folder that becomes the step */
	struct sv_save save;
	_Atomic uint8_t *gone;	/* [nranks], with opts.look; else NULL */
	uint8_t *looked;	/* [nranks], to ask with */
	double next_look;
	struct ckpt_saved saved;
	double closed_at;
	pthread_mutex_t lock;	/* guards state, result, err, quit */
	pthread_cond_t changed;
	pthread_t ender;
	bool has_ender, quit;
	bool reported;		/* the caller knows how the last save ended */
	_Atomic(enum ck_saver_state) state;
	int result;
	struct ckpt_err err;
};

/* Asks the caller, in its thread, which ranks have ended; not too often. */
void ck_saver_ask_gone(struct ckpt_saver *saver);
/* What that needs, if opts.look is set. */
int ck_saver_ask_new(struct ckpt_saver *saver, struct ckpt_err *err);

/* sv_hear.c, of ranks other than 0: true, a code and an error if rank 0 gave this save up. */
bool ck_saver_given_up(const struct ckpt_saver *saver, int *rc_out, struct ckpt_err *err);
/*
 * Until rank 0 has ended it, or that time (0 = none): CKPT_E_BUSY then, and *late_out.  A save that
 * ended with that code is not late.
 */
int ck_saver_hear_end(struct ckpt_saver *saver, double until, bool *late_out,
		      struct ckpt_err *err);

#endif
