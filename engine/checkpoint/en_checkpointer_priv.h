/* en_checkpointer_priv.h -- what the files of en_checkpointer.h share: a save from inside. */
#ifndef EN_CHECKPOINTER_PRIV_H
#define EN_CHECKPOINTER_PRIV_H

#include <pthread.h>

#include "engine/checkpoint/en_checkpointer.h"

/* What of a step is no tensor, as it was when the save was asked for. */
struct en_checkpointer_step {
	struct en_place_in_run at;
	struct ckpt_save_group group[EN_SCHED_GROUPS];
	struct ckpt_save_scaler scaler;
	double clip;
	bool replaces;
	char *tag, *sched, *ds_config, *client;	/* the last three: or NULL */
};

struct en_checkpointer {
	const struct en_model *model;
	struct en_zero *z;
	struct en_comm *comm;
	struct en_checkpointer_opts opts;
	struct ckpt_saver *saver;
	struct ckpt_save_tensor *tensor;
	uint64_t ntensors;
	uint64_t *number;	/* [nparams]: a parameter's among them; UINT64_MAX = not saved */
	struct ckpt_save_range *own;
	uint64_t nown;
	uint64_t bytes;		/* of this rank's state */
	uint64_t buffer;	/* bytes of the saver's */
	float *room;		/* if the state is not in our memory, nor copied aside */
	struct en_checkpointer_step step;
	char *config;		/* text of config.json where that alone is the model; or NULL */
	char *adapter;		/* of adapter_config.json, if adapters are trained; or NULL */
	char *last;		/* tag of the last save that succeeded, whose frozen files are
				 * linked; or NULL */
	bool open;		/* a save was committed and not waited for */
	/*
	 * The thread that saves a copy of a state of a device (en_checkpointer_put.c).  While
	 * 'busy' it has the saver, and who runs the training has not.
	 */
	bool behind, has_thread;
	pthread_t thread;
	pthread_mutex_t lock;	/* of the below */
	pthread_cond_t changed;
	bool busy, quit;
	int rc;			/* how it ended, with 'err' */
	struct ckpt_err err;
	struct ckpt_save_state state[EN_STATES];	/* what each tensor has */
};

/* All of the save of 'step' by this thread: begin, put, commit. */
int en_checkpointer_put(struct en_checkpointer *k, struct ckpt_err *err);
/* By the other thread, of the copy that en_zero_snap_begin() has begun. */
int en_checkpointer_start(struct en_checkpointer *k, struct ckpt_err *err);
void en_checkpointer_hand_over(struct en_checkpointer *k);
/*
 * Until it has ended, or that many ms (0 = none); CKPT_E_BUSY then; else how it ended, which may be
 * CKPT_E_BUSY too ('open' says so).
 */
int en_checkpointer_join(struct en_checkpointer *k, uint32_t timeout_ms, struct ckpt_err *err);
void en_checkpointer_stop(struct en_checkpointer *k);

#endif
