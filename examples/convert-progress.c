/*
 * convert-progress.c -- a conversion with a progress line, which Ctrl-C or a time limit stops.
 *
 *	convert-progress CKPT DST [SECONDS]
 *	convert-progress RUN model.safetensors
 *
 * DST appears complete or not at all.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <ckpt.h>

/* The library reads it before each piece of work. */
static volatile int stop;

static void on_signal(int number)
{
	(void)number;
	stop = 1;
}

struct limit {
	time_t began;
	double seconds;	/* negative: none */
};

/* Called from one thread at a time, while others work: it must not take long. */
static void on_progress(void *arg, const struct ckpt_progress *now)
{
	const struct limit *limit = arg;

	fprintf(stderr, "\r%5.1f %%", now->total_bytes ?
		100.0 * (double)now->done_bytes / (double)now->total_bytes : 100.0);
	if (limit->seconds >= 0 && difftime(time(NULL), limit->began) >= limit->seconds)
		stop = 1;
}

int main(int argc, char **argv)
{
	const char *path = argc > 1 ? argv[1] : "";
	struct limit limit = { .began = time(NULL), .seconds = argc > 3 ? atof(argv[3]) : -1 };
	const struct ckpt_run_opts run = {
		.size = sizeof(run), .threads = 2, .cancel = &stop, .progress = on_progress,
		.progress_arg = &limit,
	};
	const struct ckpt_convert_opts opts = {
		.size = sizeof(opts), .run = &run, .dtype = CKPT_BF16,
	};
	struct ckpt_report report = { 0 };
	struct ckpt *ck = NULL;
	struct ckpt_err err = { 0 };
	int rc;

	if (argc < 3 || argc > 4) {
		fprintf(stderr, "usage: convert-progress CKPT DST [SECONDS]\n");
		return 2;
	}
	signal(SIGINT, on_signal);
	rc = ckpt_open(&path, 1, NULL, &ck, &err);
	if (!rc)
		rc = ckpt_convert(ck, argv[2], &opts, &report, &err);
	fputc('\n', stderr);
	if (rc == -CKPT_E_CANCELED)
		fprintf(stderr, "convert-progress: stopped, nothing is written\n");
	else if (rc)
		fprintf(stderr, "convert-progress: %s: %s\n", err.where, err.msg);
	for (uint64_t i = 0; !rc && i < report.nfiles; i++)
		printf("%s\n", report.files[i].path);
	ckpt_report_free(&report);
	ckpt_close(ck);
	return rc ? 1 : 0;
}
