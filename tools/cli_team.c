/* cli_team.c -- see cli_team.h and docs/internals/parts.md. */
#include "cli_team.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli_round.h"
#include "shared/cli_launched.h"

#define COMMIT_SECONDS 90	/* longer than NFS keeps a folder's entries */
#define PROBE_SECONDS 5

/* What a rank keeps for the run itself. */
static struct {
	double polled, hinted;	/* when */
	char *probe;		/* rank 0: a file that all must see */
	char goodbye[1024];	/* rank 0: what an interrupted run says */
	enum ckpt_sync sync;
	void (*show)(void *arg, const struct ckpt_progress *now);
	void *show_arg;
} ours;

int team_rank(void)
{
	return team.wire.rank;
}

int team_size(void)
{
	return team.wire.size ? team.wire.size : 1;
}

/* Remembers a message of this rank; true if it is not to be printed here. */
static int keeps(const char *line)
{
	if (strncmp(line, "hint: ", 6) && line[0] != '\'')
		snprintf(team.said, sizeof(team.said), "%s", line);
	return team.wire.rank > 0;
}

/* ---------------------------------------------------------------- joining */

/* --part says what this process is to do, whoever started it. */
static int has_part(int argc, char **argv)
{
	for (int i = 2; i < argc && strcmp(argv[i], "--"); i++)
		if (!strcmp(argv[i], "--part") || !strncmp(argv[i], "--part=", 7))
			return 1;
	return 0;
}

/* zckpt becomes the zckpt-mpi beside it; returns if there is none. */
static void become_mpi(char **argv)
{
	char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 8);

	if (n <= 0 || n >= (ssize_t)sizeof(path) - 8)
		return;
	memcpy(path + n, "-mpi", 5);
	execv(path, argv);
}

static int refuse(const struct command *cmd, int size, int rank, const char *variable, int seen)
{
	int status;

	if (rank > 0)
		return EXIT_CALL;
	if (seen)
		status = cli_wrong(cmd, "the launcher started %d processes, but the MPI of "
			"this zckpt sees %d: it differs from the launcher's MPI", size,
				   seen);
	else
		status = cli_wrong(cmd, "the launcher started %d processes, but this zckpt was "
			"built without MPI: each would write the same output", size);
	if (cmd->ranks == RANKS_SHARE)
		cli_say("hint: %s; or run in each process, by sh -c, zckpt %s --part "
			"$((%s + 1))/%d ..., and after all have ended, once: zckpt commit DST",
			seen ? "with srun, --mpi=pmix may help" : "build it with MPI=1", cmd->name,
			variable, size);
	cli_say("hint: to run one process, start it without the launcher, or with --part 1/1");
	return status;
}

/* FNV-1a of the version and the arguments. */
static const char *call_key(int argc, char **argv)
{
	uint64_t h = 0xcbf29ce484222325;
	char version[64];

	snprintf(version, sizeof(version), "%s", ckpt_version());
	for (int i = 0; i < argc; i++)
		for (const char *p = i ? argv[i] : version;; p++) {
			h = (h ^ (unsigned char)*p) * 0x100000001b3;
			if (!*p)
				break;
		}
	return cli_format("version %s, arguments %016" PRIx64, version, h);
}

int team_join(const struct command *cmd, int argc, char **argv)
{
	const struct cli_launcher *by;
	struct wire wire = { 0 };
	struct word mine;
	int rank, size = cli_launched(&rank, &by);

	if (size <= 1 || cmd->ranks == RANKS_EACH || has_part(argc, argv))
		return 0;
	if (!wire_is_built()) {
		become_mpi(argv);
		return refuse(cmd, size, rank, by->rank, 0);
	}
	if (wire_open(&wire) || wire.size < size) {
		if (wire.size)
			wire_close();
		return refuse(cmd, size, rank, by->rank, wire.size);
	}
	team.wire = wire;
	cli_say_through(keeps);
	if (!wire.rank)
		team.peer = cli_alloc((size_t)wire.size * sizeof(*team.peer));
	else if (!freopen("/dev/null", "w", stdout))
		return EXIT_TROUBLE;
	mine = round_word(0, NULL, call_key(argc, argv));
	if (wire.rank)
		return round_tell(&mine);
	return round_announce(round_hear(&mine, CKPT_E_USAGE, "its command or version differs",
					 OPT_UNSET, NULL), "");
}

void team_leave(int status)
{
	if (team.wire.size < 1)
		return;
	if (team.lost) {
		fflush(stderr);
		wire_abort(status);
	}
	while (round_take())
		;
	wire_close();
}

int team_first(int value)
{
	const struct word mine = round_word(0, NULL, "");

	if (team_size() == 1)
		return value;
	if (team.wire.rank)
		return round_tell(&mine);
	if (round_gather(&mine, OPT_UNSET, NULL))
		return EXIT_TROUBLE;
	return round_announce(value, "");
}

uint64_t team_threads(void)
{
	const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	long n = team.wire.neighbours ? cpus / team.wire.neighbours : cpus;
	cpu_set_t set;

	if (team_size() == 1)
		return 0;
	if (!sched_getaffinity(0, sizeof(set), &set) && CPU_COUNT(&set) < n)
		n = CPU_COUNT(&set);
	return n < 1 || !team.wire.any_thread ? 1 : n > 8 ? 8 : (uint64_t)n;
}

/* ---------------------------------------------------------------- one place for all */

static char *plain_path(const char *dst)
{
	char *path = cli_strdup(dst);
	size_t n = strlen(path);

	while (n > 1 && path[n - 1] == '/')
		path[--n] = 0;
	return path;
}

/* Rank 0: a file beside 'dst'; if it cannot be made, the run itself will say why. */
static const char *make_probe(const char *dst)
{
	char *tail = cli_format(".zckpt-probe-%ld", (long)getpid());
	int fd;

	ours.probe = cli_format("%s%s", plain_path(dst), tail);
	fd = open(ours.probe, O_WRONLY | O_CREAT | O_EXCL, 0666);
	if (fd >= 0) {
		close(fd);
		return tail;
	}
	ours.probe = NULL;
	return "";
}

/* Rank > 0 */
static int see_probe(const char *dst, const char *tail)
{
	char *path = cli_format("%s%s", plain_path(dst), tail);
	const double until = progress_clock() + PROBE_SECONDS;

	while (access(path, F_OK)) {
		if (progress_clock() > until) {
			cli_say("this rank does not see what rank 0 creates beside %s: the "
				"destination must be on storage that all ranks share",
				out_name(dst));
			return EXIT_TROUBLE;
		}
		round_nap();
	}
	return 0;
}

int team_start(const struct args *args, int status, const char *dst)
{
	struct word mine = round_word(status, NULL, "");
	const char *tail = "";

	if (team_size() == 1)
		return status;
	if (team.wire.rank) {
		status = round_tell(&mine);
		if (status)
			return status;
		if (team.verdict.text[0])
			status = see_probe(dst, team.verdict.text);
		mine = round_word(status, NULL, "");
		return round_tell(&mine);
	}
	status = round_hear(&mine, 0, "", args->timeout, NULL);
	if (!status && !args->dry_run)
		tail = make_probe(dst);
	if (round_announce(status, tail))
		return status;
	status = round_hear(&mine, 0, "", args->timeout, NULL);
	if (ours.probe)
		unlink(ours.probe);
	if (!args->dry_run)
		snprintf(ours.goodbye, sizeof(ours.goodbye),
			 "zckpt: interrupted; the partial output is in %.700s.zckpt-partial: "
			 "the same command continues, --restart deletes it\n",
			 out_name(plain_path(dst)));
	return round_announce(status, "");
}

/* Rank 0, with --restart: a killed run's rest goes before any rank looks at it. */
static int drop_rest(const char *dst, struct ckpt_err *err)
{
	struct ckpt_err e = { 0 };
	const int rc = ckpt_discard(dst, &e);

	if (!rc || rc == -CKPT_E_NOTFOUND)
		return 0;
	*err = e;
	return cli_fail(NULL, NULL, &e);
}

int team_opened(const struct args *args, int status, const struct ckpt *ck, const char *dst,
		struct ckpt_err *err)
{
	struct ckpt_info info = { 0 };
	struct word mine;

	if (team_size() == 1)
		return status;
	if (!status)
		ckpt_info_get(ck, &info);
	mine = round_word(status, err, status ? "" : info.fingerprint);
	if (team.wire.rank)
		return round_tell(&mine);
	status = round_hear(&mine, CKPT_E_MISMATCH, "the fingerprint of its source differs",
			    args->timeout, err);
	if (!status && args->restart && !args->dry_run)
		status = drop_rest(dst, err);
	return round_announce(status, "");
}

/* ---------------------------------------------------------------- the run */

static void show_all(const struct ckpt_progress *mine)
{
	struct ckpt_progress all = *mine;

	for (int r = 1; r < team.wire.size; r++) {
		const struct ckpt_progress *p = &team.peer[r].done;

		all.done_bytes += p->done_bytes;
		/* shares are alike */
		all.total_bytes += p->total_bytes ? p->total_bytes : mine->total_bytes;
	}
	ours.show(ours.show_arg, &all);
}

/* One thread at a time, seldom the first one. */
static void on_progress(void *arg, const struct ckpt_progress *now)
{
	const double clock = progress_clock();

	(void)arg;
	if (clock - ours.polled < 0.05)
		return;
	ours.polled = clock;
	while (round_take())
		;
	if (!team.wire.rank) {
		show_all(now);
	} else if (clock - ours.hinted > 0.5) {
		ours.hinted = clock;
		round_hint(now);
	}
}

static void say_goodbye(int number)
{
	const ssize_t n = write(STDERR_FILENO, ours.goodbye, strlen(ours.goodbye));

	(void)n;
	raise(number);
}

/*
 * A launcher that lost one rank ends the others by SIGTERM.  What they wrote must outlive that: so
 * a rank that is told to end does so at once, as if killed, and leaves its record.
 */
static void end_at_once(void)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction act = { .sa_handler = SIG_DFL }, old;

	if (!team.wire.rank) {
		act.sa_handler = say_goodbye;
		act.sa_flags = (int)SA_RESETHAND;
	}
	sigemptyset(&act.sa_mask);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (!sigaction(numbers[i], NULL, &old) && old.sa_handler != SIG_IGN)
			sigaction(numbers[i], &act, NULL);
}

void team_share(struct ckpt_run_opts *run, uint32_t *part, uint32_t *nparts)
{
	if (team_size() == 1)
		return;
	*part = (uint32_t)team.wire.rank;
	*nparts = (uint32_t)team.wire.size;
	ours.sync = run->sync;
	ours.show = run->progress;
	ours.show_arg = run->progress_arg;
	run->progress = on_progress;
	run->cancel = &team.stop;
	if (!team.wire.any_thread)
		run->threads = 1;
	end_at_once();
}

static int put_in_place(const char *dst, uint64_t timeout, struct ckpt_err *err)
{
	struct ckpt_err e = { 0 };
	uint64_t ms = timeout < COMMIT_SECONDS ? timeout * 1000 : COMMIT_SECONDS * 1000;
	int status;

	if (!ckpt_commit(dst, (uint32_t)ms, ours.sync, &e))
		return 0;
	*err = e;
	status = cli_fail(NULL, NULL, &e);
	if (e.code == CKPT_E_INCOMPLETE || e.code == CKPT_E_NOTFOUND)
		cli_say("hint: every rank finished its part, but rank 0 does not see all of "
			"the output: %s must be on storage that all ranks "
		"share", out_name(dst));
	/* The source is damaged: what was made of it is of no use. */
	if (e.code == CKPT_E_CORRUPT || e.code == CKPT_E_MISMATCH)
		ckpt_discard(dst, NULL);
	return status;
}

/* True if some rank wrote, and nothing that lies there is of another run. */
static int is_ours_to_drop(void)
{
	int wrote = 0;

	for (int r = 0; r < team.wire.size; r++) {
		const struct word *w = &team.peer[r].word;

		if (w->code == CKPT_E_EXISTS || w->code == CKPT_E_BUSY)
			return 0;
		wrote |= !w->status || w->code == CKPT_E_CANCELED;
	}
	return wrote;
}

static void sum_up(struct ckpt_report *report, int verbose)
{
	for (int r = 0; r < team.wire.size; r++) {
		const struct word *w = &team.peer[r].word;

		if (r) {
			report->read_bytes += w->read;
			report->written_bytes += w->written;
			report->resumed_bytes += w->resumed;
			report->overflows += w->overflows;
		}
		if (verbose)
			cli_say("rank %d of %d, on %s: read %s, wrote %s in %.2f s", r,
				team.wire.size, w->host, out_size(w->read), out_size(w->written),
				w->seconds);
	}
}

int team_finish(const struct args *args, int status, const char *dst, struct ckpt_report *report,
		struct ckpt_err *err)
{
	struct word mine = round_word(status, err, "");

	if (team_size() == 1)
		return status;
	mine.read = report->read_bytes;
	mine.written = report->written_bytes;
	mine.resumed = report->resumed_bytes;
	mine.overflows = report->overflows;
	mine.seconds = report->seconds;
	if (!round_is_quiet(&mine))
		round_stop_others();
	if (team.wire.rank)
		return round_tell(&mine);
	status = round_hear(&mine, 0, "", args->timeout, err);
	if (team.lost)
		return status;
	if (!status && !args->dry_run)
		status = put_in_place(dst, args->timeout, err);
	else if (status && !args->dry_run && is_ours_to_drop())
		ckpt_discard(dst, NULL);
	if (!status)
		sum_up(report, args->verbose);
	return round_announce(status, "");
}

void team_json(struct json *json)
{
	if (!team.peer)
		return;
	json_open(json, "ranks", '[');
	for (int r = 0; r < team.wire.size; r++) {
		const struct word *w = &team.peer[r].word;

		json_open(json, NULL, '{');
		json_int(json, "rank", r);
		json_text(json, "host", w->host);
		json_uint(json, "read_bytes", w->read);
		json_uint(json, "written_bytes", w->written);
		json_uint(json, "resumed_bytes", w->resumed);
		json_seconds(json, "seconds", w->seconds);
		json_close(json, '}');
	}
	json_close(json, ']');
}
