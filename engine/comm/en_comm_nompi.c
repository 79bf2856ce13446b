/* en_comm_nompi.c -- what libztrain.a says where libztrain_mpi.a was not linked before it. */
#include "engine/comm/en_comm_mpi.h"

#include "libckpt/base/ck_err.h"

bool en_comm_mpi_is_built(void)
{
	return false;
}

int en_comm_mpi_open(uint32_t timeout_ms, struct en_comm **comm_out, struct ckpt_err *err)
{
	(void)timeout_ms, (void)comm_out;
	return ck_fail(err, CKPT_E_UNSUPPORTED, "MPI", CKPT_NO_OFFSET,
		       "built without MPI: only one rank can run");
}
