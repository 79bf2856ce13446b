/* en_bootstrap.h -- which launcher started this process, and the rendezvous of its ranks. */
#ifndef EN_BOOTSTRAP_H
#define EN_BOOTSTRAP_H

#include "engine/comm/en_comm_tcp.h"

enum en_bootstrap { EN_BOOT_ALONE = 1, EN_BOOT_MPI, EN_BOOT_TCP };

/*
 * Reads the environment only.  '*how_out': by MPI where its launcher counts as many ranks as
 * RANK and WORLD_SIZE do, if these are set, and the program has MPI; by TCP where they say
 * more, or torchrun set them, or srun started several of a program without MPI; else alone.
 * '*rendezvous_out' is filled for TCP.
 *
 * Of ports: ZTRAIN_PORT is the one.  Else it is MASTER_PORT, but where torchrun's own store
 * listens there (TORCHELASTIC_USE_AGENT_STORE) one of the 16 after it.
 *	CKPT_E_USAGE  variables that contradict each other, or of which one is missing
 */
int en_bootstrap_detect(bool has_mpi, enum en_bootstrap *how_out,
			struct en_rendezvous *rendezvous_out, struct ckpt_err *err);

/*
 * MPI counts 'size' ranks and the launcher another number: each would train by itself.  Of srun
 * ranks can meet by TCP; else CKPT_E_USAGE.
 */
int en_bootstrap_without_mpi(uint32_t size, struct en_rendezvous *rendezvous_out,
			     struct ckpt_err *err);

#endif
