/* zt_wait.c -- see zt_wait.h. */
#include "engine/main/zt_wait.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "libckpt/base/ck_clock.h"
#include "tools/shared/cli_term.h"

#define FIRST 2.0	/* seconds */
#define AGAIN_MS 500

/* What this process has read and written on files; 0 where the system does not say it. */
static void count(uint64_t *read_out, uint64_t *written_out)
{
	FILE *f = fopen("/proc/self/io", "r");

	*read_out = *written_out = 0;
	if (!f)
		return;
	if (fscanf(f, "rchar: %" SCNu64 " wchar: %" SCNu64, read_out, written_out) != 2)
		*read_out = *written_out = 0;
	fclose(f);
}

static void clear(struct zt_wait *w)
{
	if (w->shown)
		fputs("\r\033[K", stderr);
	w->shown = false;
}

static void show(struct zt_wait *w)
{
	const double seconds = ck_clock_seconds() - w->since;
	char line[200], bytes[80] = "";
	uint64_t in, out;

	if (seconds < FIRST)
		return;
	count(&in, &out);
	in -= w->read;
	out -= w->written;
	if (out > in && out > 1000000)
		snprintf(bytes, sizeof(bytes), ", %.1f MB written", (double)out / 1e6);
	else if (in > 1000000)
		snprintf(bytes, sizeof(bytes), ", %.1f MB read", (double)in / 1e6);
	snprintf(line, sizeof(line), "ztrain: %s: %.0f s%s", w->what, seconds, bytes);
	/* a line that wraps could not be written again */
	fprintf(stderr, "\r%.*s\033[K", (int)term_fit(stderr, sizeof(line)) - 1, line);
	fflush(stderr);
	w->shown = true;
}

static void *work(void *arg)
{
	struct zt_wait *w = arg;

	pthread_mutex_lock(&w->lock);
	while (!w->over) {
		struct timespec until;

		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += AGAIN_MS * 1000000L;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&w->wake, &w->lock, &until);
		if (!w->over)
			show(w);
	}
	clear(w);
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

void zt_wait_begin(struct zt_wait *w, const char *what)
{
	if (w->runs || !term_is_screen(stderr))
		return;
	memset(w, 0, sizeof(*w));
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->wake, NULL);
	snprintf(w->what, sizeof(w->what), "%s", what);
	w->since = ck_clock_seconds();
	count(&w->read, &w->written);
	w->runs = !pthread_create(&w->thread, NULL, work, w);
}

void zt_wait_for(struct zt_wait *w, const char *fmt, ...)
{
	va_list ap;

	if (!w->runs)
		return;
	pthread_mutex_lock(&w->lock);
	clear(w);
	va_start(ap, fmt);
	vsnprintf(w->what, sizeof(w->what), fmt, ap);
	va_end(ap);
	w->since = ck_clock_seconds();
	count(&w->read, &w->written);
	pthread_mutex_unlock(&w->lock);
}

void zt_wait_end(struct zt_wait *w)
{
	if (!w->runs)
		return;
	pthread_mutex_lock(&w->lock);
	w->over = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	w->runs = false;
}
