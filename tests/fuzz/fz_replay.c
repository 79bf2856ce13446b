/*
 * usage: fz_replay TARGET FILE|FOLDER...
 *
 * Runs a fuzz target on files, without libFuzzer: any compiler builds it. A file that takes longer
 * than ten seconds, or that ends the process, is named.
 */
#include "tests/fuzz/fz.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/fs/t_dir.h"

static char now_at[4096];
static unsigned long runs;

static void on_end(int sig)
{
	static const char words[] = "fz_replay: it was this input: ";

	if (write(2, words, sizeof(words) - 1) < 0 || write(2, now_at, strlen(now_at)) < 0 ||
	    write(2, "\n", 1) < 0)
		_exit(1);
	signal(sig, SIG_DFL);
	raise(sig);
}

static void one(const struct fz_target *t, const char *path)
{
	size_t n = 0;
	uint8_t *p = t_file_read(path, &n);

	if (!p)
		t_die("cannot read %s", path);
	snprintf(now_at, sizeof(now_at), "%s", path);
	alarm(10);
	fz_run(t, p, n);
	alarm(0);
	free(p);
	runs++;
}

static void all(const struct fz_target *t, const char *path)
{
	char **list = t_is_dir(path) ? t_dir_list(path, NULL) : NULL;

	if (!list)
		one(t, path);
	for (size_t i = 0; list && list[i]; i++) {
		char *below = t_fmt("%s/%s", path, list[i]);

		all(t, below);
		free(below);
	}
	t_list_free(list);
}

int main(int argc, char **argv)
{
	const struct fz_target *t = argc > 2 ? fz_target_find(argv[1]) : NULL;

	if (!t) {
		fputs("usage: fz_replay TARGET FILE|FOLDER..., TARGET one of:", stderr);
		for (t = fz_targets; t->name; t++)
			fprintf(stderr, " %s", t->name);
		fputc('\n', stderr);
		return 2;
	}
	signal(SIGABRT, on_end);
	signal(SIGALRM, on_end);
	signal(SIGSEGV, on_end);
	for (int i = 2; i < argc; i++)
		all(t, argv[i]);
	printf("%s: %lu inputs\n", t->name, runs);
	return runs ? 0 : 1;
}
