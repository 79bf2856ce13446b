/* en_bench_advice.c -- which stage, and why; see en_bench.h. */
#include <stdarg.h>
#include <stdio.h>

#include "engine/bench/en_bench.h"

const char *en_bench_size(uint64_t bytes, char out[EN_BENCH_SIZE])
{
	static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	double v = (double)bytes;
	unsigned u = 0;

	while (v >= 1024 && u < 4) {
		v /= 1024;
		u++;
	}
	snprintf(out, EN_BENCH_SIZE, u && v < 100 ? "%.1f %s" : "%.0f %s", v, unit[u]);
	return out;
}

static void add(char text[EN_BENCH_TEXT], size_t *n, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void add(char text[EN_BENCH_TEXT], size_t *n, const char *format, ...)
{
	va_list ap;
	int k;

	va_start(ap, format);
	k = vsnprintf(text + *n, EN_BENCH_TEXT - *n, format, ap);
	va_end(ap);
	*n += k > 0 ? (size_t)k : 0;
	if (*n >= EN_BENCH_TEXT)
		*n = EN_BENCH_TEXT - 1;
}

/* How another stage compares with the one that is recommended. */
static void compare(const struct en_bench_stage *best, const struct en_bench_stage *s,
		    char text[EN_BENCH_TEXT], size_t *n)
{
	const double by = 100 * (s->tokens_per_s / best->tokens_per_s - 1);
	char bytes[EN_BENCH_SIZE];

	if (s == best)
		return;
	if (!s->ran) {
		add(text, n, "; stage %u does not fit", s->stage);
		return;
	}
	add(text, n, "; stage %u is %.1f %% %s", s->stage, by < 0 ? -by : by,
	    by < 0 ? "slower" : "faster");
	en_bench_size(s->states > best->states ? s->states - best->states :
		      best->states - s->states, bytes);
	if (s->states != best->states)
		add(text, n, " with %s %s of states", bytes,
		    s->states > best->states ? "more" : "less");
}

void en_bench_advise(const struct en_bench_stage *stage, uint32_t n, double near,
		     uint32_t *best_out, char text[EN_BENCH_TEXT])
{
	uint32_t fast = n, best = n, others = 0;
	size_t len = 0;
	char bytes[EN_BENCH_SIZE];

	text[0] = 0;
	for (uint32_t i = 0; i < n; i++) {
		others += stage[i].ran;
		if (stage[i].ran &&
		    (fast == n || stage[i].tokens_per_s > stage[fast].tokens_per_s))
			fast = i;
	}
	for (uint32_t i = 0; i < n; i++)
		if (stage[i].ran && (best == n || stage[i].states < stage[best].states) &&
		    stage[i].tokens_per_s >= (1 - near) * stage[fast].tokens_per_s)
			best = i;
	*best_out = best;
	if (best == n) {
		add(text, &len,
		    "no stage fits: use shorter rows, more ranks, --recompute or --offload");
		return;
	}
	en_bench_size(stage[best].states, bytes);
	add(text, &len, "stage %u: %.0f tokens/s per rank with %u row%s at once, %s of states",
	    stage[best].stage, stage[best].tokens_per_s, stage[best].rows,
	    stage[best].rows == 1 ? "" : "s", bytes);
	if (others > 1)
		add(text, &len, best == fast ? ", the fastest" : ", the least memory among those "
		    "within %.0f %% of the fastest", 100 * near);
	for (uint32_t i = 0; i < n; i++)
		compare(&stage[best], &stage[i], text, &len);
}
