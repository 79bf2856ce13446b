/* en_watchdog.h -- waiting for other ranks: sleeping, a deadline, and which ranks are missing. */
#ifndef EN_WATCHDOG_H
#define EN_WATCHDOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How long nothing has moved. */
struct en_watchdog {
	int64_t last, silent;	/* ns */
	long nap;
	void (*sleep)(void *arg, long ns);
	void *arg;
};

/* 'sleep' ends when something may have come, or after 'ns'; NULL: nothing wakes it. */
void en_watchdog_begin(struct en_watchdog *p, void (*sleep)(void *arg, long ns), void *arg);
/*
 * One turn of waiting.  'moved' sets the silence back to 0.  Else the processor is offered to
 * others for 2 ms, then naps follow, of 50 us to 1 ms; with a 'sleep' that can be woken it sleeps
 * at once.  A turn counts one second at most: time in which this process was stopped does not count
 * against the others.
 */
void en_watchdog_rest(struct en_watchdog *p, bool moved);

struct en_peer {
	char host[64];
	int64_t pid;
};

void en_peer_self(struct en_peer *peer_out);

/*
 * "rank 2 (pid 4711, stopped)", "ranks 2 (pid 4711 on node3), 5 (...) and 3 more": those of 'size'
 * for which missing[p] is true.  What a process is doing is looked up if it is of this machine.
 */
void en_peer_list(const struct en_peer *peer, uint32_t size, uint32_t self, const bool *missing,
		  char *text, size_t n);

/* Those of this machine that are stopped or gone become missing[p] = true.  How many. */
uint32_t en_peer_lost(const struct en_peer *peer, uint32_t size, uint32_t self, bool *missing);

#endif
