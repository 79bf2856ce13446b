/* watch_tcp.c -- see watch.h: what ranks send each other that were started without MPI. */
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/comm/en_tcp_link.h"
#include "tests/engine/watch.h"

/* A chunk begins with its record, which is sent with it. */
static void watch_record(const struct iovec *part)
{
	const uint8_t *b = part->iov_base;

	if (part->iov_len != EN_RECORD || ck_le32(b) != EN_CHUNK)
		return;
	if (ck_le32(b + 4) == EN_COMM_REDUCE)
		watch_pass(WATCH_REDUCE);
	if (ck_le32(b + 4) == EN_COMM_GATHER)
		watch_pass(WATCH_GATHER);
	if (ck_le32(b + 4) == EN_COMM_SMALL)
		watch_pass(WATCH_SMALL);
}

/* In the place of the C library's: of the program's own objects, and of MPI's, which send none. */
ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	const ssize_t n = syscall(SYS_sendmsg, fd, m, flags);

	if (n > 0 && m->msg_iovlen == 2)
		watch_record(m->msg_iov);
	return n;
}
