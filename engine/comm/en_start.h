/* en_start.h -- how this process was started, and so how its ranks come together. */
#ifndef EN_START_H
#define EN_START_H

#include "engine/comm/en_comm_tcp.h"

enum en_start { EN_START_ALONE = 1, EN_START_MPI, EN_START_TCP };

/*
 * Reads the environment only.  '*how_out': by MPI where its launcher counts as many ranks as
 * RANK and WORLD_SIZE do, if these are set, and the program has MPI; by TCP where they say
 * more, or torchrun set them, or srun started several of a program without MPI; else alone.
 * '*meeting_out' is filled for TCP.
 *
 * Of ports: ZTRAIN_PORT is the one.  Else it is MASTER_PORT, but where torchrun's own store
 * listens there (TORCHELASTIC_USE_AGENT_STORE) one of the 16 behind it.
 *	CKPT_E_USAGE  variables that contradict each other, or of which one is missing
 */
int en_start_how(bool has_mpi, enum en_start *how_out, struct en_meeting *meeting_out,
		 struct ckpt_err *err);

/*
 * MPI counts 'size' ranks and the launcher another number: each would train by itself.  Of srun
 * ranks can meet by TCP; else CKPT_E_USAGE.
 */
int en_start_alone(uint32_t size, struct en_meeting *meeting_out, struct ckpt_err *err);

#endif
