/* cli_round.c -- see cli_round.h. */
#include "cli_round.h"

#include <inttypes.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#define DEFAULT_TIMEOUT 600

enum { TAG_WORD = 1, TAG_VERDICT, TAG_DONE, TAG_STOP };

struct team team;

void round_nap(void)
{
	const struct timespec ms = { .tv_nsec = 5 * 1000000L };

	nanosleep(&ms, NULL);
}

/* 0 if there was no message. */
int round_take(void)
{
	union {
		struct word word;
		struct ckpt_progress done;
		char bytes[WIRE_MAX];
	} in;
	int from, tag, n = wire_take(&from, &tag, &in, sizeof(in));

	if (n < 0)
		return 0;
	if (team.peer)
		team.peer[from].heard = progress_clock();
	if (tag == TAG_WORD && team.peer && n == (int)sizeof(in.word)) {
		team.peer[from].word = in.word;
		team.peer[from].has_word = 1;
	} else if (tag == TAG_VERDICT && n == (int)sizeof(in.word)) {
		team.verdict = in.word;
		team.has_verdict = 1;
	} else if (tag == TAG_DONE && team.peer && n == (int)sizeof(in.done)) {
		team.peer[from].done = in.done;
	} else if (tag == TAG_STOP) {
		__atomic_store_n(&team.stop, 1, __ATOMIC_RELAXED);
	}
	return 1;
}

struct word round_word(int status, const struct ckpt_err *err, const char *key)
{
	struct word w = { .status = status };
	struct utsname host;

	if (!uname(&host))
		snprintf(w.host, sizeof(w.host), "%s", host.nodename);
	if (status && err && err->code) {
		w.code = err->code;
		snprintf(w.text, sizeof(w.text), "%s%s%s", out_name(err->where),
			 err->where[0] ? ": " : "", err->msg);
	} else if (status) {
		snprintf(w.text, sizeof(w.text), "%s", team.said);
	}
	snprintf(w.key, sizeof(w.key), "%s", key);
	return w;
}

/* Rank > 0: says its word, and returns when rank 0 has given the verdict on all. */
int round_tell(const struct word *mine)
{
	team.has_verdict = 0;
	wire_send(0, TAG_WORD, mine, sizeof(*mine));
	while (!team.has_verdict)
		if (!round_take())
			round_nap();
	return team.verdict.status;
}

static void say_lost(int rank, uint64_t timeout, struct ckpt_err *err)
{
	struct ckpt_err e = { .code = CKPT_E_INCOMPLETE, .offset = CKPT_NO_OFFSET };

	snprintf(e.msg, sizeof(e.msg), "rank %d of %d, which writes part %d, did not respond "
		 "for %" PRIu64 " s; nothing was put into place", rank, team.wire.size, rank + 1,
		 timeout);
	cli_say_error("%s", e.msg);
	cli_say("hint: the same command continues with what was written");
	if (err)
		*err = e;
	team.lost = 1;
}

/* Rank 0: the words of all, with its own.  -1 after telling which rank is lost. */
int round_gather(const struct word *mine, uint64_t timeout, struct ckpt_err *err)
{
	const double began = progress_clock();

	if (timeout == OPT_UNSET)
		timeout = DEFAULT_TIMEOUT;
	team.peer[0].word = *mine;
	for (int r = 1; r < team.wire.size; r++) {
		struct peer *p = &team.peer[r];

		while (!p->has_word) {
			const double since = p->heard > began ? p->heard : began;

			if (round_take())
				continue;
			if (progress_clock() - since > (double)timeout) {
				say_lost(r, timeout, err);
				return -1;
			}
			round_nap();
		}
	}
	for (int r = 1; r < team.wire.size; r++)
		team.peer[r].has_word = 0;
	return 0;
}

static void check_keys(enum ckpt_code code, const char *what)
{
	const struct word *first = &team.peer[0].word;

	for (int r = 1; r < team.wire.size; r++) {
		struct word *w = &team.peer[r].word;

		if (first->status || w->status || !strcmp(first->key, w->key))
			continue;
		w->status = cli_exit_status(code);
		w->code = code;
		snprintf(w->text, sizeof(w->text), "%s: %s, but rank 0 on %s has %s", what, w->key,
			 first->host, first->key);
	}
}

int round_is_quiet(const struct word *w)
{
	return !w->status || w->code == CKPT_E_CANCELED;
}

/* Whether rank 0 or a rank before r failed with the same words. */
static int is_told(int r)
{
	const struct word *w = &team.peer[r].word;

	for (int i = 0; i < r; i++)
		if (!round_is_quiet(&team.peer[i].word) && !strcmp(team.peer[i].word.text, w->text))
			return 1;
	return 0;
}

/* What other ranks failed with; the status for all. */
static int tell_failures(struct ckpt_err *err)
{
	int status = round_is_quiet(&team.peer[0].word) ? 0 : team.peer[0].word.status, any = 0;

	for (int r = 0; r < team.wire.size; r++) {
		const struct word *w = &team.peer[r].word;

		if (w->status && !any)
			any = w->status;
		if (!r || round_is_quiet(w) || is_told(r))
			continue;
		cli_say("rank %d of %d, on %s: %s", r, team.wire.size, w->host, w->text);
		if (status)
			continue;
		status = w->status;
		if (err) {
			*err = (struct ckpt_err){ .offset = CKPT_NO_OFFSET };
			err->code = w->code ? (enum ckpt_code)w->code : CKPT_E_USAGE;
			snprintf(err->where, sizeof(err->where), "rank %d of %d, on %s", r,
				 team.wire.size, w->host);
			snprintf(err->msg, sizeof(err->msg), "%.*s", (int)sizeof(err->msg) - 1,
				 w->text);
		}
	}
	return status ? status : any;
}

/* Rank 0 */
int round_announce(int status, const char *text)
{
	struct word w = round_word(0, NULL, "");

	w.status = status;
	snprintf(w.text, sizeof(w.text), "%s", text);
	for (int r = 1; r < team.wire.size && !team.lost; r++)
		wire_send(r, TAG_VERDICT, &w, sizeof(w));
	return status;
}

void round_stop_others(void)
{
	const int one = 1;

	for (int r = 0; r < team.wire.size; r++)
		if (r != team.wire.rank)
			wire_send(r, TAG_STOP, &one, sizeof(one));
}

void round_hint(const struct ckpt_progress *now)
{
	wire_hint(0, TAG_DONE, now, sizeof(*now));
}

/* Rank 0: the words of a round, told. */
int round_hear(const struct word *mine, enum ckpt_code code, const char *what, uint64_t timeout,
		    struct ckpt_err *err)
{
	if (round_gather(mine, timeout, err))
		return EXIT_TROUBLE;
	check_keys(code, what);
	return tell_failures(err);
}
