/* zt_bench_plot.c -- speed and memory of stages as a picture, by gnuplot; see zt_bench.h. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/main/zt_bench.h"

extern char **environ;

#define MOST ((size_t)1 << 16)

static int add_numbers(struct ck_buf *buf, const struct zt_bench *b, struct ckpt_err *err)
{
	int rc = ck_buf_adds(buf, "# stage, rows, tokens/s of a rank, GiB: states, activations and "
			     "room to compute in\n", err);

	for (uint32_t i = 0; !rc && i < b->n; i++) {
		const struct zt_measured *m = &b->run[i];
		const struct en_mem *mem = &m->bench.mem;
		const uint64_t acts = m->ran ? mem->peak[EN_MEM_ACTIVATIONS] +
				      mem->peak[EN_MEM_WORK] : 0;
		const uint64_t all = m->ran ? en_bench_held(mem, b->p->on_gpu) : 0;

		rc = ck_buf_addf(buf, err, "\"%u\" %u %.1f %.6f %.6f\n", m->stage,
				 m->ran ? m->rows : 0, m->ran ? m->bench.tokens_per_s : 0,
				 (double)(all - acts) / 1073741824, (double)acts / 1073741824);
	}
	return rc;
}

/* Within single quotes of gnuplot, where only they are doubled. */
static int add_quoted(struct ck_buf *buf, const char *text, struct ckpt_err *err)
{
	int rc = ck_buf_adds(buf, "'", err);

	for (const char *p = text; !rc && *p; p++)
		rc = ck_buf_add(buf, *p == '\'' ? "''" : p, *p == '\'' ? 2 : 1, err);
	return rc ? rc : ck_buf_adds(buf, "'\n", err);
}

static int add_script(struct ck_buf *buf, const struct zt_bench *b, const char *data,
		      const char *png, struct ckpt_err *err)
{
	int rc = ck_buf_adds(buf, "set terminal pngcairo size 1000, 500 font 'sans,12'\n"
			     "set output ", err);

	if (!rc)
		rc = add_quoted(buf, png, err);
	if (!rc)
		rc = ck_buf_adds(buf, "data = ", err);
	if (!rc)
		rc = add_quoted(buf, data, err);
	return rc ? rc : ck_buf_addf(buf, err,
		"set multiplot layout 1, 2 title '%s, %u rank%s, rows of %u tokens'\n"
		"set style data histograms\nset style fill solid 0.8 border -1\n"
		"set boxwidth 0.7\nset grid y lc rgb '#d0d0d0'\nset border 3\n"
		"set tics nomirror out\nset yrange [0:*]\nset xlabel 'ZeRO stage'\n"
		"set title 'tokens/s of a rank, with the rows of its micro-batch'\nunset key\n"
		"plot data using 3:xtic(1) lc rgb '#3b6ea5', "
		"'' using 0:3:2 with labels offset 0, 0.7\n"
		"set title 'GiB of a rank'\nset key below\nset style histogram rowstacked\n"
		"plot data using 4:xtic(1) lc rgb '#3b6ea5' title 'states', "
		"'' using 5 lc rgb '#d9a441' title 'activations, room'\nunset multiplot\n",
		en_arch_name(b->p->model->config.arch), b->p->comm->size,
		b->p->comm->size == 1 ? "" : "s", b->tokens);
}

/* True if it ended well. */
static bool run_gnuplot(char *script)
{
	char name[] = "gnuplot", *const argv[] = { name, script, NULL };
	posix_spawn_file_actions_t quiet;
	int status = -1;
	pid_t pid;
	bool good;

	if (posix_spawn_file_actions_init(&quiet))
		return false;
	good = !posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0) &&
	       !posix_spawn_file_actions_addopen(&quiet, 2, "/dev/null", O_WRONLY, 0) &&
	       !posix_spawnp(&pid, name, &quiet, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&quiet);
	while (good && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return good && WIFEXITED(status) && !WEXITSTATUS(status);
}

/* gnuplot draws beside, and the picture comes to its place when it is whole. */
static bool draw(char *script, const char *half, const char *png)
{
	const bool good = run_gnuplot(script) && !rename(half, png);

	if (!good)
		unlink(half);
	return good;
}

/* Numbers and script are kept beside the plot, so that it can be drawn again. */
int zt_bench_plot(const struct zt_bench *b, struct ckpt_err *err)
{
	const char *png = b->p->args.plot;
	struct ck_buf buf = CK_BUF_INIT(MOST);
	char data[ZT_PATH + 16], script[ZT_PATH + 16], half[ZT_PATH + 16];
	int rc = add_numbers(&buf, b, err);

	snprintf(data, sizeof(data), "%s.txt", png);
	snprintf(script, sizeof(script), "%s.gp", png);
	snprintf(half, sizeof(half), "%s.partial", png);
	if (!rc)
		rc = en_bench_file_write(data, buf.p, buf.len, err);
	buf.len = 0;
	if (!rc)
		rc = add_script(&buf, b, data, half, err);
	if (!rc)
		rc = en_bench_file_write(script, buf.p, buf.len, err);
	if (!rc && draw(script, half, png))
		fprintf(b->p->args.json ? stderr : stdout, "plot: %s, from %s by %s\n", png, data,
			script);
	else if (!rc)
		fprintf(stderr,
			"ztrain: no plot: gnuplot is not installed, or failed on %s (the numbers "
			"are in %s)\n",
			script, data);
	ck_buf_release(&buf);
	return rc;
}
