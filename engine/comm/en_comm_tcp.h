/*
 * en_comm_tcp.h -- the table of collectives by TCP, for ranks that were started without MPI: by
 * torchrun, by deepspeed's launcher, by srun without PMI.
 */
#ifndef EN_COMM_TCP_H
#define EN_COMM_TCP_H

#include "engine/comm/en_comm.h"
#include "engine/comm/en_secret.h"

/* The rendezvous. */
struct en_rendezvous {
	uint32_t rank, size;
	char host[256];		/* of rank 0, a name or an address */
	uint16_t port, ports;	/* rank 0 listens at the first one that is free of so many */
	uint64_t job;		/* ranks of one job have the same, others do not */
	bool local;		/* all ranks are on this host: they use its loopback */
	const char *by;		/* the launcher: "torchrun"; constant text */
	const struct en_secret *secret;	/* or NULL: none */
	void (*say)(const char *line);	/* or NULL: strangers that were refused, and the like */
};

/*
 * Rank 0 listens; the others connect to it and get the addresses of all ranks; then each pair opens
 * a connection.  At the start of each connection both sides prove that they know the secret.  A
 * peer without it is refused, and the job keeps waiting.  After that nothing is encrypted or
 * signed: an attacker who can change packets between the ranks is not stopped.  Without a secret,
 * 'job' separates jobs and does not keep out attackers.
 *	CKPT_E_USAGE  this rank is no rank, or was started twice or for another number of ranks
 *	CKPT_E_NOMEM
 *	CKPT_E_IO     no socket, no free port, or not all came within 'timeout_ms' (0: no limit);
 *	              the message names the ranks
 */
int en_comm_tcp_open(const struct en_rendezvous *rendezvous, uint32_t timeout_ms,
		     struct en_comm **comm_out, struct ckpt_err *err);

#endif
