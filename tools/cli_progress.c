/*
 * cli_progress.c -- what a long run shows, and how it is stopped.
 *
 * On a terminal one line is rewritten, at most six times a second and not in the
 * first second; with --progress into a file it becomes a line a second.
 */
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

double progress_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void progress_begin(struct progress *progress, const struct args *args)
{
	memset(progress, 0, sizeof(*progress));
	progress->terminal = term_is_screen(stderr);
	progress->shown = args->progress >= 0 ? args->progress :
						progress->terminal && !args->quiet;
	progress->began = progress->last = progress_clock();
}

static void time_left(char *out, size_t size, double seconds)
{
	unsigned long s = seconds > 359999 ? 359999 : (unsigned long)(seconds + 0.5);

	if (s < 60)
		snprintf(out, size, "%lu s left", s);
	else if (s < 3600)
		snprintf(out, size, "%lu:%02lu left", s / 60, s % 60);
	else
		snprintf(out, size, "%lu:%02lu:%02lu left", s / 3600, s / 60 % 60, s % 60);
}

void progress_show(void *arg, const struct ckpt_progress *now)
{
	struct progress *progress = arg;
	double clock, rate, total = (double)now->total_bytes;
	char left[32], line[160];

	progress->done = now->done_bytes;
	if (!progress->shown)
		return;
	clock = progress_clock();
	if (clock - progress->began < 1 ||
	    clock - progress->last < (progress->terminal ? 1.0 / 6 : 1.0))
		return;
	progress->last = clock;
	rate = (double)now->done_bytes / (clock - progress->began);
	time_left(left, sizeof(left), rate > 0 ? (total - (double)now->done_bytes) / rate : 359999);
	snprintf(line, sizeof(line), "zckpt: %3.0f%%  %s of %s  %s/s  %s",
		 total > 0 ? 100 * (double)now->done_bytes / total : 0, out_size(now->done_bytes),
		 out_size(now->total_bytes), out_size((uint64_t)rate), left);
	/* a line that wraps could not be written again */
	fprintf(stderr, "%s%.*s%s", progress->terminal ? "\r" : "",
		(int)term_fit(stderr, sizeof(line)) - 1, line,
		progress->terminal ? "\033[K" : "\n");
	fflush(stderr);
	progress->printed = 1;
}

void progress_end(struct progress *progress)
{
	if (progress->printed && progress->terminal)
		fputs("\r\033[K", stderr);
	progress->shown = 0;
}

/* ---------------------------------------------------------------- signals */

static volatile int cancel;
static volatile sig_atomic_t caught;

static void note_signal(int number)
{
	caught = number;
	cancel = 1;
}

const volatile int *signals_catch(void)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction act = { .sa_handler = note_signal, .sa_flags = SA_RESTART }, old;

	sigemptyset(&act.sa_mask);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		/* who started us with the signal ignored wants it so (nohup) */
		if (!sigaction(numbers[i], NULL, &old) && old.sa_handler != SIG_IGN)
			sigaction(numbers[i], &act, NULL);
	return &cancel;
}

void signals_die(void)
{
	struct sigaction act = { .sa_handler = SIG_DFL };
	sigset_t set;

	if (!caught)
		return;
	sigemptyset(&act.sa_mask);
	sigaction(caught, &act, NULL);
	sigemptyset(&set);
	sigaddset(&set, caught);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	raise(caught);
}
