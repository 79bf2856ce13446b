/*
 * Logs of runs as series: the files of ztrain --log and trainer_state.json.
 *
 * If reading is wrong, a curve shows values of other steps, a run that resumed is drawn twice, or
 * a report ends at the first damaged line.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/lib/fs/t_dir.h"
#include "tools/shared/cli_log.h"

static char *dir, *path;

static int begin(void **state)
{
	(void)state;
	dir = t_dir_new();
	path = t_fmt("%s/log.jsonl", dir);
	return 0;
}

static int end(void **state)
{
	(void)state;
	free(path);
	t_dir_end(dir);
	return 0;
}

/* The log of a file with that text. */
static struct run_log read_text(const char *text)
{
	struct run_log log;
	char why[LOG_WHY];

	t_file_write(path, text, strlen(text));
	if (log_read(path, &log, why))
		fail_msg("%s", why);
	return log;
}

/* "1:2.5 2:nan" */
static void series_is(const struct run_log *log, const char *name, const char *expected)
{
	const struct log_series *s = log_find(log, name);
	char text[1000];
	size_t n = 0;

	text[0] = 0;
	for (size_t i = 0; s && i < s->n; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%lld:%g", i ? " " : "",
				      (long long)s->step[i],
				      isnan(s->value[i]) ? fabs(s->value[i]) : s->value[i]);
	assert_string_equal(s ? text : "none", expected);
}

static void lines_become_series(void **state)
{
	struct run_log log = read_text(
		"{\"step\": 1, \"loss\": 2.5, \"skipped\": true, \"mem\": [10, 20], \"t\": \"x\"}\n"
		"{\"step\": 2, \"loss\": \"NaN\", \"skipped\": false, \"eval_loss\": 3}\n"
		"{\"loss\": -Infinity, \"step\": 5, \"learning_rate\": 1e-3, \"s\": \"{N\\\"\"}\n");

	(void)state;
	assert_int_equal(log.kind, LOG_LINES);
	assert_int_equal(log.entries, 3);
	assert_int_equal(log.first, 1);
	assert_int_equal(log.last, 5);
	series_is(&log, "loss", "1:2.5 2:nan 5:-inf");
	series_is(&log, "skipped", "1:1 2:0");
	series_is(&log, "eval_loss", "2:3");
	series_is(&log, "lr", "5:0.001");
	series_is(&log, "mem/0", "1:10");
	series_is(&log, "mem/1", "1:20");
	series_is(&log, "t", "none");
	assert_int_equal(log.bad + log.torn_bytes + log.restarts + log.replaced, 0);
	log_release(&log);
}

static void of_a_step_that_is_logged_twice_the_later_value_counts(void **state)
{
	struct run_log log = read_text("{\"step\": 1, \"loss\": 1}\n{\"step\": 2, \"loss\": 2}\n"
				       "{\"step\": 3, \"loss\": 3}\n{\"step\": 2, \"loss\": 20}\n"
				       "{\"step\": 3, \"loss\": 30}\n{\"step\": 4, \"loss\": 4, "
				       "\"resumed\": true}\n");

	(void)state;
	series_is(&log, "loss", "1:1 2:20 3:30 4:4");
	assert_int_equal(log.replaced, 2);
	assert_int_equal(log.restarts, 2);
	log_release(&log);
}

static void a_torn_line_and_damaged_ones_are_left_out_and_counted(void **state)
{
	struct run_log log = read_text("{\"step\": 1, \"loss\": 1}\nnoise\n\n"
				       "{\"loss\": 3}\n{\"step\": 2, \"loss\": 2}\n{\"step\": 3, ");

	(void)state;
	series_is(&log, "loss", "1:1 2:2");
	assert_int_equal(log.bad, 2);
	assert_int_equal(log.first_bad, 2);
	assert_int_equal(log.torn_bytes, 12);
	log_release(&log);
	/* A whole line counts, with its newline or without. */
	log = read_text("{\"step\": 1, \"loss\": 1}\n{\"step\": 2, \"loss\": 2}");
	series_is(&log, "loss", "1:1 2:2");
	assert_int_equal(log.torn_bytes, 0);
	log_release(&log);
	log = read_text("{\"st");
	assert_true(log.torn && !log.entries);
	log_release(&log);
	log = read_text("");
	assert_int_equal(log.entries, 0);
	log_release(&log);
}

#define STATE(more) \
	"{\n  \"best_metric\": null, \"x\": {\"log_history\": [{\"step\": 99, \"loss\": 1}]},\n" \
	"  \"log_history\": [\n    {\n      \"epoch\": 0.5,\n      \"grad_norm\": NaN,\n" \
	"      \"learning_rate\": 5e-05,\n      \"loss\": 3.25,\n      \"note\": \"]} \\\" N\",\n" \
	"      \"step\": 10\n    },\n    {\"eval_loss\": 3.5, \"epoch\": 0.5, \"step\": 10, " \
	"\"d\": {\"a\": [1, {}]}}" more

static void the_log_of_the_trainer_is_read(void **state)
{
	static const char rest[] =
		",\n {\"loss\": 2.5, \"step\": 20}, {\"train_runtime\": 12.5, "
		"\"train_loss\": 3, \"step\": 20} ],\n \"logging_steps\": 10, \"max_steps\": 40,\n"
		" \"stateful_callbacks\": {\"y\": [{\"step\": 5}]}\n}";
	struct run_log log;
	char *text = t_fmt("%s%s", STATE(""), rest), *compact;

	(void)state;
	for (int i = 0; i < 2; i++) {
		compact = strdup(text);
		for (char *p = compact; i && *p; p++)	/* on one line */
			*p = *p == '\n' ? ' ' : *p;
		log = read_text(compact);
		assert_int_equal(log.kind, LOG_TRAINER);
		series_is(&log, "loss", "10:3.25 20:2.5");
		series_is(&log, "eval_loss", "10:3.5");
		series_is(&log, "grad_norm", "10:nan");
		series_is(&log, "lr", "10:5e-05");
		series_is(&log, "train_loss", "none");
		assert_int_equal(log.max_steps, 40);
		assert_true(log.runtime == 12.5);
		assert_int_equal(log.restarts + log.replaced + log.torn_bytes, 0);
		log_release(&log);
		free(compact);
	}
	free(text);
	log = read_text("{\"log_history\": [{\"step\": 1, \"loss\": 2}], \"max_steps\": 3}");
	series_is(&log, "loss", "1:2");
	assert_int_equal(log.max_steps, 3);
	log_release(&log);
	/* Cut short anywhere, the whole entries count. */
	text = strdup(STATE(""));
	for (size_t n = strlen(text), least = n - 60; n > least; n--) {
		text[n] = 0;
		log = read_text(text);
		series_is(&log, "loss", "10:3.25");
		assert_true(log.torn);
		log_release(&log);
	}
	free(text);
}

static void other_files_are_refused_with_what_is_expected(void **state)
{
	static const char *const others[] = { "hello\n", "[1, 2]\n", "{\"a\": 1}\n", "PK\3\4",
					      "{\n  \"model_type\": \"llama\"\n}\n" };
	struct run_log log;
	char why[LOG_WHY];

	(void)state;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		t_file_write(path, others[i], strlen(others[i]));
		assert_int_equal(log_read(path, &log, why), -1);
		assert_non_null(strstr(why, "expected the file of ztrain --log"));
	}
	assert_int_equal(log_read("/nonexistent/log", &log, why), -1);
	assert_non_null(strstr(why, "No such file"));
	t_dir_remove(path);
	assert_int_equal(log_read(dir, &log, why), -1);
	assert_non_null(strstr(why, "neither trainer_state.json nor log.jsonl"));
}

static void a_folder_is_its_newest_trainer_state(void **state)
{
	static const char *const names[] = { "checkpoint-9", "checkpoint-100", "checkpoint-200" };
	struct run_log log;
	char why[LOG_WHY];

	(void)state;
	for (int i = 0; i < 3; i++) {
		char *at = t_fmt("%s/%s", dir, names[i]);
		char *file = t_fmt("%s/trainer_state.json", at);

		mkdir(at, 0777);
		if (i < 2)	/* the last one was never completed */
			t_file_write(file, STATE("]}"), strlen(STATE("]}")));
		free(at);
		free(file);
	}
	if (log_read(dir, &log, why))
		fail_msg("%s", why);
	assert_non_null(strstr(log.path, "checkpoint-100/trainer_state.json"));
	log_release(&log);
}

/* Damaged files of any kind: no crash, and no step that is none. */
static void damaged_logs_are_read_as_far_as_they_go(void **state)
{
	static const char *const whole[] = {
		STATE("]}"), "{\"step\": 1, \"loss\": [1, 2]}\n{\"step\": 2, \"loss\": NaN}\n",
	};
	uint64_t rng = 11, entries = 0;
	struct run_log log;
	char why[LOG_WHY];

	(void)state;
	for (int k = 0; k < 3000; k++) {
		const char *from = whole[k & 1];
		const size_t n = strlen(from);
		char *copy = strdup(from);

		for (int i = 0; i < 3; i++) {
			rng = rng * 6364136223846793005u + 1442695040888963407u;
			copy[(rng >> 33) % n] = "{}[]\",:\\N0\n\0x"[(rng >> 20) % 13];
		}
		t_file_write(path, copy, n);
		free(copy);
		if (log_read(path, &log, why))
			continue;
		entries += log.entries;
		log_release(&log);
	}
	assert_true(entries > 1000);
}

static void a_long_log_is_read_in_pieces(void **state)
{
	const int n = 50000;
	struct run_log log;
	const struct log_series *s;
	char why[LOG_WHY];
	FILE *f = fopen(path, "w");

	(void)state;
	for (int i = 1; i <= n; i++)
		fprintf(f, "{\"step\": %d, \"loss\": %d.5, \"a\": [1, 2, 3]}\n", i, i);
	/* A line above the limit is one that is left out. */
	for (int i = 0; i < 1100000; i++)
		fputc(i ? 'x' : '{', f);
	fputs("\n{\"step\": 60000, \"loss\": 1}\n", f);
	fclose(f);
	if (log_read(path, &log, why))
		fail_msg("%s", why);
	s = log_find(&log, "loss");
	assert_int_equal(s->n, n + 1);
	for (int i = 0; i < n; i++)
		assert_true(s->step[i] == i + 1 && s->value[i] == i + 1.5);
	assert_int_equal(log.bad, 1);
	assert_int_equal(log.last, 60000);
	assert_int_equal(log_least(s), n);
	log_release(&log);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_become_series),
		cmocka_unit_test(of_a_step_that_is_logged_twice_the_later_value_counts),
		cmocka_unit_test(a_torn_line_and_damaged_ones_are_left_out_and_counted),
		cmocka_unit_test(the_log_of_the_trainer_is_read),
		cmocka_unit_test(other_files_are_refused_with_what_is_expected),
		cmocka_unit_test(a_folder_is_its_newest_trainer_state),
		cmocka_unit_test(damaged_logs_are_read_as_far_as_they_go),
		cmocka_unit_test(a_long_log_is_read_in_pieces),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
