/* en_watchdog.c -- see en_watchdog.h. */
#include "engine/comm/en_watchdog.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/base/ck_base.h"
#include "libckpt/base/ck_clock.h"

#define YIELDS 2000000		/* ns */
#define NAP_LEAST 50000
#define NAP_MOST 1000000
#define NAP_WOKEN 20000000	/* where what comes in ends it */
#define TURN_MOST 1000000000ll
#define NAMED 6u		/* ranks that a sentence lists */

void en_watchdog_begin(struct en_watchdog *p, void (*sleep)(void *arg, long ns), void *arg)
{
	*p = (struct en_watchdog){
		.last = ck_clock_ns(), .nap = NAP_LEAST, .sleep = sleep, .arg = arg,
	};
}

static void nap(struct en_watchdog *p)
{
	const struct timespec time = { .tv_nsec = p->nap };

	if (p->sleep) {
		p->sleep(p->arg, NAP_WOKEN);
	} else if (p->silent < YIELDS) {
		sched_yield();
	} else {
		nanosleep(&time, NULL);
		p->nap = p->nap * 2 < NAP_MOST ? p->nap * 2 : NAP_MOST;
	}
}

void en_watchdog_rest(struct en_watchdog *p, bool moved)
{
	int64_t t;

	if (moved) {
		en_watchdog_begin(p, p->sleep, p->arg);
		return;
	}
	nap(p);
	t = ck_clock_ns();
	p->silent += t - p->last < TURN_MOST ? t - p->last : TURN_MOST;
	p->last = t;
}

/* ---------------------------------------------------------------- who is missing */

void en_peer_self(struct en_peer *peer_out)
{
	memset(peer_out, 0, sizeof(*peer_out));
	if (gethostname(peer_out->host, sizeof(peer_out->host) - 1))
		snprintf(peer_out->host, sizeof(peer_out->host), "an unnamed machine");
	peer_out->pid = getpid();
}

/* What /proc says of a process: the letter after its name, 0 if the process is gone. */
static char state_of(int64_t pid)
{
	char path[64], line[512];
	const char *end;
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)pid);
	f = fopen(path, "r");
	if (!f)
		return 0;
	n = fread(line, 1, sizeof(line) - 1, f);
	fclose(f);
	line[n] = '\0';
	end = strrchr(line, ')');
	return end && end[1] ? end[2] : '?';
}

static const char *doing(const struct en_peer *peer)
{
	switch (state_of(peer->pid)) {
	case 0:
	case 'Z':
	case 'X':
		return ", gone";
	case 'T':
	case 't':
		return ", stopped";
	default:
		return ", running";
	}
}

uint32_t en_peer_lost(const struct en_peer *peer, uint32_t size, uint32_t self, bool *missing)
{
	uint32_t n = 0;

	for (uint32_t p = 0; p < size; p++) {
		missing[p] = p != self && !strcmp(peer[p].host, peer[self].host) &&
			     strcmp(doing(&peer[p]), ", running");
		n += missing[p];
	}
	return n;
}

static void append(char *text, size_t n, const char *fmt, ...) CK_PRINTF(3, 4);

static void append(char *text, size_t n, const char *fmt, ...)
{
	const size_t have = strlen(text);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text + have, n - have, fmt, ap);
	va_end(ap);
}

void en_peer_list(const struct en_peer *peer, uint32_t size, uint32_t self, const bool *missing,
		  char *text, size_t n)
{
	uint32_t count = 0, told = 0;

	for (uint32_t p = 0; p < size; p++)
		count += missing[p];
	snprintf(text, n, "rank%s", count == 1 ? "" : "s");
	for (uint32_t p = 0; p < size && told < NAMED; p++) {
		const bool here = !strcmp(peer[p].host, peer[self].host);

		if (!missing[p])
			continue;
		append(text, n, "%s %u (pid %lld%s%.31s%s)", told++ ? "," : "", p,
		       (long long)peer[p].pid, here ? "" : " on ", here ? "" : peer[p].host,
		       here ? doing(&peer[p]) : "");
	}
	if (count > told)
		append(text, n, " and %u more", count - told);
}
