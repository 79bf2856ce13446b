/*
 * The log of a run.
 *
 * If it is wrong, a run that was killed and resumed has steps twice in its curve or a line that no
 * program reads, and a log of another run may be cut.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "engine/base/en_json.h"
#include "engine/log/en_left.h"
#include "engine/log/en_log.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/torture/t_fault.h"

static char *dir, *path;

static int begin(void **state)
{
	(void)state;
	t_dir_in_memory();
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

static struct en_log_step step_of(int64_t n)
{
	return (struct en_log_step){
		.step = n, .loss = 5.0 / (double)n, .lr = 3e-4 / (double)n, .grad_norm = 1.0 / 3,
		.samples = 8 * n, .tokens = 264, .seconds = 0.1,
	};
}

static char *text_of(const char *name)
{
	size_t n;

	return (char *)t_file_read(name, &n);
}

/* Steps from..to; returns what the file holds. */
static char *write_steps(int64_t after, int64_t from, int64_t to, struct en_log_found *found)
{
	struct ckpt_err err = { 0 };
	struct en_log *log;

	if (en_log_open(&log, path, after, found, &err))
		fail_msg("%s", err.msg);
	for (int64_t n = from; n <= to; n++) {
		const struct en_log_step s = step_of(n);

		if (en_log_write(log, &s, &err))
			fail_msg("%s", err.msg);
	}
	assert_int_equal(en_log_close(log, &err), 0);
	return text_of(path);
}

static void numbers_read_back_as_they_were(void **state)
{
	static const double odd[] = {
		0, -0.0, 1, 0.1, 1.0 / 3, 5e-324, DBL_MIN, DBL_MAX, -DBL_MAX, 1e16,
		123456789012345678.0, 3e-4, 0x1.fffffffffffffp-1, INFINITY, -INFINITY, NAN, 65536,
		1e22, 1e23,
	};

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(odd); i++) {
		struct en_log_step a = {
			.step = INT64_MAX, .loss = odd[i], .lr = odd[i], .grad_norm = odd[i],
			.loss_scale = odd[i], .skipped = i & 1, .samples = 1, .tokens = INT64_MAX,
			.seconds = odd[i], .memory = INT64_MAX, .has_eval = true,
			.eval_loss = odd[i],
		}, b;
		struct ck_buf buf = CK_BUF_INIT(10000);
		struct ckpt_err err = { 0 };

		assert_int_equal(en_log_line(&a, &buf, &err), 0);
		assert_int_equal(buf.p[buf.len - 1], '\n');
		assert_null(memchr(buf.p, '\n', buf.len - 1));
		if (en_log_parse(buf.p, buf.len - 1, "t", &b, &err))
			fail_msg("%s: %s", buf.p, err.msg);
		assert_memory_equal(&a.grad_norm, &b.grad_norm, isnan(odd[i]) ? 0 : sizeof(double));
		assert_int_equal(isnan(a.loss), isnan(b.loss));
		if (!isnan(odd[i])) {
			assert_memory_equal(&a.loss, &b.loss, sizeof(double));
			assert_memory_equal(&a.lr, &b.lr, sizeof(double));
			assert_memory_equal(&a.seconds, &b.seconds, sizeof(double));
			assert_memory_equal(&a.eval_loss, &b.eval_loss, sizeof(double));
			assert_true(a.loss_scale == b.loss_scale);
		}
		assert_int_equal(b.step, INT64_MAX);
		assert_int_equal(b.tokens, INT64_MAX);
		assert_int_equal(b.memory, INT64_MAX);
		assert_int_equal(b.skipped, a.skipped);
		assert_true(b.has_eval);
		ck_buf_release(&buf);
	}
}

static void lines_are_as_the_document_says(void **state)
{
	struct en_log_step s = step_of(4);
	struct ck_buf buf = CK_BUF_INIT(10000);
	char console[EN_LOG_CONSOLE];

	(void)state;
	assert_int_equal(en_log_line(&s, &buf, NULL), 0);
	assert_string_equal(
		buf.p, "{\"step\": 4, \"loss\": 1.25, \"lr\": 7.5e-05, \"grad_norm\": "
		       "0.3333333333333333, \"skipped\": false, \"samples\": 32, \"tokens\": 264, "
		       "\"seconds\": 0.1, \"tokens_per_second\": 2640.0}\n");
	ck_buf_release(&buf);
	en_log_console(&s, 20, console);
	assert_string_equal(console,
			    "step 4/20  loss 1.2500  lr 7.500e-05  norm 0.333  2.64k tok/s  "
			    "0.1 s");
	s.loss_scale = 65536;
	s.skipped = true;
	s.memory = (uint64_t)3 << 29;
	s.has_eval = true;
	s.eval_loss = 2;
	s.tokens = 0;
	s.rows = 8;
	s.left = 11000;
	en_log_console(&s, 0, console);
	assert_string_equal(console, "step 4  loss 1.2500  lr 7.500e-05  norm 0.333  scale 65536  "
			    "skipped (overflow)  0 tok/s  288k samples/h  0.1 s  3 h 3 min left  "
			    "1.5 GiB  eval loss 2.0000");
	assert_int_equal(en_log_line(&s, &buf, NULL), 0);
	assert_non_null(strstr(buf.p, ", \"loss_scale\": 65536.0, \"skipped\": true, "));
	assert_non_null(strstr(buf.p, ", \"tokens_per_second\": 0.0, \"samples_per_hour\": 288000, "
				      "\"seconds_left\": 11000.0, \"memory_bytes\": "
				      "1610612736, \"eval_loss\": 2.0}\n"));
	ck_buf_release(&buf);
	/* The longest there is fits. */
	s = (struct en_log_step){
		.step = INT64_MIN, .loss = -DBL_MAX, .lr = -DBL_MAX, .grad_norm = -DBL_MAX,
		.loss_scale = -DBL_MAX, .skipped = true, .tokens = INT64_MAX, .rows = INT64_MAX,
		.seconds = DBL_MIN, .left = 1e300,
		.memory = UINT64_MAX, .has_eval = true, .eval_loss = -DBL_MAX,
	};
	en_log_console(&s, INT64_MAX, console);
	assert_true(strlen(console) < EN_LOG_CONSOLE);
}

static void memory_of_ranks_is_in_lines_that_a_run_reads_again(void **state)
{
	static const double memory[] = { 1099511627776, 0, 35311616 }, device[] = { 1, 2, 3 };
	struct en_log_step s = step_of(4), back;
	struct ck_buf buf = CK_BUF_INIT(100000);
	double *many = calloc(EN_LOG_RANKS + 1, sizeof(*many));
	struct ckpt_err err = { 0 };

	(void)state;
	s.time = 1795547101.25;
	s.resumed = true;
	s.rank_memory = memory;
	s.rank_device = device;
	s.ranks = 3;
	assert_int_equal(en_log_line(&s, &buf, &err), 0);
	assert_non_null(strstr(buf.p, ", \"time\": 1795547101.250, \"resumed\": true, "
			       "\"rank_memory_bytes\": [1099511627776, 0, 35311616], "
			       "\"rank_device_bytes\": [1, 2, 3]}\n"));
	assert_int_equal(en_log_parse(buf.p, buf.len - 1, "t", &back, &err), 0);
	assert_true(back.time == s.time && back.resumed && !back.rank_memory);
	buf.len = 0;
	/* The longest line is one that a resumed run can read. */
	for (int i = 0; i <= EN_LOG_RANKS; i++)
		many[i] = 9007199254740991.0;
	s.rank_memory = s.rank_device = many;
	s.ranks = EN_LOG_RANKS;
	assert_int_equal(en_log_line(&s, &buf, &err), 0);
	assert_true(buf.len < 65536 && buf.len > 2 * 16 * EN_LOG_RANKS);
	assert_int_equal(en_log_parse(buf.p, buf.len - 1, "t", &back, &err), 0);
	buf.len = 0;
	s.ranks++;
	assert_int_equal(en_log_line(&s, &buf, &err), 0);
	assert_null(strstr(buf.p, "rank_"));
	ck_buf_release(&buf);
	free(many);
}

static void the_time_left_is_that_of_the_steps_that_follow(void **state)
{
	static const struct {
		double seconds;
		const char *text;
	} texts[] = {
		{ 0.2, "1 s" }, { 59.4, "59 s" }, { 59.6, "1 min" }, { 3569, "59 min" },
		{ 3571, "1 h 0 min" }, { 12000, "3 h 20 min" }, { 86369, "23 h 59 min" },
		{ 86371, "1 d 0 h" }, { 457200, "5 d 7 h" },
	};
	struct en_left left = { 0 };
	char text[EN_LEFT_TEXT];
	double at = 1000;

	(void)state;
	/* A slow first step is none of the estimate, and the first ones have none. */
	for (int64_t step = 41; step <= 50; step++) {
		const double seconds = en_left_add(&left, at, step, 50);

		assert_true(step <= 43 || step == 50 ? seconds == 0 :
			    fabs(seconds - 2.0 * (double)(50 - step)) < 1e-9);
		at += 2;
	}
	/* A change of the speed is followed, and one slow step is not. */
	left = (struct en_left){ 0 };
	for (int64_t step = 1; step <= 1000; step++)
		en_left_add(&left, at += 1, step, 2000);
	assert_true(fabs(en_left_add(&left, at += 11, 1001, 2001) - 1100) < 1);
	for (int64_t step = 1002; step <= 1500; step++)
		en_left_add(&left, at += 3, step, 2500);
	assert_true(fabs(en_left_add(&left, at += 3, 1501, 2501) - 3000) < 30);
	for (size_t i = 0; i < CK_ARRAY_LEN(texts); i++) {
		en_left_text(texts[i].seconds, text);
		assert_string_equal(text, texts[i].text);
	}
	en_left_text(1e300, text);
	assert_string_equal(text, "99999 d 0 h");
}

static void a_run_that_goes_on_has_each_step_once(void **state)
{
	struct en_log_found found;
	char *whole, *text, *torn;

	(void)state;
	t_dir_remove(path);
	whole = write_steps(EN_LOG_NEW, 1, 20, &found);
	assert_int_equal(found.lines, 0);
	/* Killed at 13 with half of line 14 out, saved at 10. */
	for (size_t cut = 0; ; cut++) {
		const char *p = whole;
		size_t n;

		for (int i = 0; i < 13; i++)
			p = strchr(p, '\n') + 1;
		if (p[cut] == '\n')
			break;
		n = (size_t)(p - whole) + cut;
		t_file_write(path, whole, n);
		text = write_steps(10, 11, 20, &found);
		assert_string_equal(text, whole);
		assert_int_equal(found.last_step, 10);
		assert_int_equal(found.lines, 10);
		assert_true(found.cut_bytes > 3 * 100);
		free(text);
		/* Nothing is later, and half a line goes. */
		t_file_write(path, whole, n);
		text = write_steps(13, 14, 20, &found);
		assert_string_equal(text, whole);
		assert_int_equal(found.cut_bytes, cut);
		free(text);
	}
	/* A log that ends before the step: the caller is informed. */
	t_file_write(path, whole, (size_t)(strchr(whole, '\n') + 1 - whole));
	text = write_steps(10, 11, 11, &found);
	assert_int_equal(found.last_step, 1);
	assert_int_equal(found.cut_bytes, 0);
	free(text);
	/* Zeros after the end, as after a power cut; more than a line may have. */
	torn = t_alloc(strlen(whole) + 200000);
	memset(torn, 0, strlen(whole) + 200000);
	memcpy(torn, whole, strlen(whole));
	for (size_t zeros = 1; zeros <= 200000; zeros = zeros * 7 + 1) {
		t_file_write(path, torn, strlen(whole) + zeros);
		text = write_steps(20, 21, 20, &found);
		assert_string_equal(text, whole);
		assert_int_equal(found.cut_bytes, zeros);
		free(text);
	}
	/* From the beginning. */
	text = write_steps(0, 1, 20, &found);
	assert_string_equal(text, whole);
	assert_int_equal(found.lines, 0);
	free(text);
	free(torn);
	free(whole);
}

static void files_that_are_no_log_are_left_alone(void **state)
{
	static const char *const others[] = {
		"hello",
		"hello\n",
		"{}\n",
		"[1]\n",
		"{\"step\": 1}\n",
		"{\"steps\": 1",
		"{\"step\": \"x\"}\n",
		"\n",
		"{\"step\": 1, \"loss\": 1, \"lr\": 1, \"grad_norm\": 1, \"skipped\": 0, "
		"\"samples\": 1, "
		"\"tokens\": 1, \"seconds\": 1}\n",
		"{\"step\": 2, \"loss\": 1, \"lr\": 1, \"grad_norm\": 1, \"skipped\": false, "
		"\"samples\": 1, "
		"\"tokens\": 1, \"seconds\": 1}\n"
		"{\"step\": 2, \"loss\": 1, \"lr\": 1, \"grad_norm\": 1, \"skipped\": false, "
		"\"samples\": 1, "
		"\"tokens\": 1, \"seconds\": 1}\n",
		"{\"step\": 1, \"loss\": \"nan\", \"lr\": 1, \"grad_norm\": 1, \"skipped\": false, "
		"\"samples\": "
		"1, \"tokens\": 1, \"seconds\": 1}\n",
		"{\"step\": 5",
	};
	struct en_log *log = NULL;
	struct ckpt_err err;
	char *text;

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(others); i++) {
		const bool is_torn = i == CK_ARRAY_LEN(others) - 1;

		t_file_write(path, others[i], strlen(others[i]));
		memset(&err, 0, sizeof(err));
		if (!is_torn) {
			if (en_log_open(&log, path, 0, NULL, &err) != -CKPT_E_CORRUPT)
				fail_msg("%s: %d", others[i], err.code);
			assert_non_null(strstr(err.msg, "line "));
			text = text_of(path);
			assert_string_equal(text, others[i]);
			free(text);
		}
		memset(&err, 0, sizeof(err));
		assert_int_equal(en_log_open(&log, path, EN_LOG_NEW, NULL, &err), -CKPT_E_EXISTS);
	}
	assert_null(log);
	assert_int_equal(en_log_open(&log, dir, 0, NULL, &err), -CKPT_E_IO);
	memset(&err, 0, sizeof(err));
	assert_int_equal(en_log_open(&log, "/dev/null", 0, NULL, &err), -CKPT_E_FORMAT);
	assert_int_equal(en_log_open(&log, "/nowhere/x", 0, NULL, NULL), -CKPT_E_NOTFOUND);
}

/* Zeros that were believed to be the end, and lines after them. */
static void lines_behind_zeros_are_not_taken_for_the_end(void **state)
{
	struct en_log *log = NULL;
	struct ckpt_err err = { 0 };
	char *whole, *hole = t_alloc(65536 + 4000);
	size_t n;

	(void)state;
	t_dir_remove(path);
	whole = write_steps(EN_LOG_NEW, 1, 3, NULL);
	n = strlen(whole);
	memset(hole, 0, 65536);
	memcpy(hole + 65536, whole, n);
	t_file_write(path, hole, 65536 + n);
	assert_int_equal(en_log_open(&log, path, 2, NULL, &err), -CKPT_E_CORRUPT);
	free(hole);
	free(whole);
}

static void two_writers_and_steps_back_are_refused(void **state)
{
	struct en_log *a, *b = NULL;
	struct en_log_step s = step_of(5);

	(void)state;
	t_dir_remove(path);
	assert_int_equal(en_log_open(&a, path, EN_LOG_NEW, NULL, NULL), 0);
	assert_int_equal(en_log_open(&b, path, EN_LOG_NEW, NULL, NULL), -CKPT_E_BUSY);
	assert_null(b);
	assert_int_equal(en_log_write(a, &s, NULL), 0);
	assert_int_equal(en_log_write(a, &s, NULL), -CKPT_E_USAGE);
	s.step = 4;
	assert_int_equal(en_log_write(a, &s, NULL), -CKPT_E_USAGE);
	assert_int_equal(en_log_close(a, NULL), 0);
}

/* The disk fills, a call fails, a write moves one byte: lines are whole or missing. */
static void failing_calls_leave_whole_lines(void **state)
{
	static const enum t_fault_kind kinds[] = {
		T_FAULT_IO, T_FAULT_NOSPACE, T_FAULT_INTR, T_FAULT_SHORT, T_FAULT_MEMORY,
	};

	(void)state;
	t_fault_install();
	for (size_t k = 0; k < CK_ARRAY_LEN(kinds); k++)
		for (long n = 1; n < 200; n++) {
			struct en_log *log = NULL;
			struct en_log_found found;
			struct ckpt_err err = { 0 };
			int64_t written = 0;
			char *text;
			int rc;

			t_fault_arm(kinds[k], 0, false);
			t_dir_remove(path);
			free(write_steps(EN_LOG_NEW, 1, 4, NULL));
			t_fault_arm(kinds[k], n, false);
			rc = en_log_open(&log, path, 2, &found, &err);
			for (int64_t i = 3; !rc && i <= 6; i++) {
				const struct en_log_step s = step_of(i);

				rc = en_log_write(log, &s, &err);
				written = rc ? written : i;
			}
			if (!rc)
				rc = en_log_close(log, &err);
			else
				en_log_close(log, NULL);
			assert_true(!rc || err.msg[0]);
			assert_int_equal(t_fault_blocks(), 0);
			assert_int_equal(t_fault_fds(), 0);
			if (!t_fault_fired()) {
				assert_int_equal(rc, 0);
				break;
			}
			if (kinds[k] == T_FAULT_INTR || kinds[k] == T_FAULT_SHORT)
				assert_int_equal(rc, 0);
			t_fault_arm(kinds[k], 0, false);
			/* One call failed, so the one that cuts did not. */
			text = text_of(path);
			assert_true(text[strlen(text) - 1] == '\n');
			free(text);
			/* Who opens it next finds what was written. */
			assert_int_equal(en_log_open(&log, path, 100, &found, &err), 0);
			assert_true(found.last_step >= written);
			en_log_close(log, NULL);
			text = text_of(path);
			assert_true(text[strlen(text) - 1] == '\n');
			free(text);
		}
	t_fault_remove();
}

/* A file may grow no further in the midst of a line, as on a full disk: half of it is written. */
static void half_a_line_is_cut_off_at_once(void **state)
{
	const struct en_log_step s3 = step_of(3), s4 = step_of(4);
	struct rlimit was, now;
	struct ckpt_err err = { 0 };
	struct en_log *log;
	char *whole, *text;

	(void)state;
	t_dir_remove(path);
	whole = write_steps(EN_LOG_NEW, 1, 2, NULL);
	assert_int_equal(en_log_open(&log, path, 2, NULL, NULL), 0);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	now = was;
	now.rlim_cur = strlen(whole) + 40;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
	assert_int_not_equal(en_log_write(log, &s3, &err), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	assert_true(err.msg[0] != 0);
	text = text_of(path);
	assert_string_equal(text, whole);
	free(text);
	/* And it can continue, with the step that failed or a later one. */
	assert_int_equal(en_log_write(log, &s4, NULL), 0);
	assert_int_equal(en_log_close(log, NULL), 0);
	text = text_of(path);
	assert_memory_equal(text, whole, strlen(whole));
	assert_memory_equal(text + strlen(whole), "{\"step\": 4,", 11);
	free(text);
	free(whole);
}

/* Whatever is in the file: opened, or left unchanged with a sentence. */
static void damaged_logs_are_cut_or_left(void **state)
{
	uint64_t rng = 7;
	char *whole;
	size_t len;
	unsigned opened = 0, left = 0;

	(void)state;
	t_dir_remove(path);
	whole = write_steps(EN_LOG_NEW, 1, 6, NULL);
	len = strlen(whole);
	for (int round = 0; round < 3000; round++) {
		char *copy = t_alloc(len), *text;
		struct en_log *log = NULL;
		struct ckpt_err err = { 0 };
		size_t n;

		memcpy(copy, whole, len);
		rng = rng * 6364136223846793005u + 1442695040888963407u;
		n = (rng >> 60) ? len : (rng >> 33) % len;
		for (uint64_t i = (rng >> 56) % 4; i; i--) {
			rng = rng * 6364136223846793005u + 1442695040888963407u;
			copy[(rng >> 33) % len] = (char)(rng >> 20);
		}
		t_file_write(path, copy, n);
		if (en_log_open(&log, path, 3, NULL, &err)) {
			assert_int_equal(err.code, CKPT_E_CORRUPT);
			text = text_of(path);
			assert_memory_equal(text, copy, n);
			free(text);
			left++;
		} else {
			opened++;
		}
		en_log_close(log, NULL);
		free(copy);
	}
	assert_true(opened > 300 && left > 300);
	free(whole);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_read_back_as_they_were),
		cmocka_unit_test(lines_are_as_the_document_says),
		cmocka_unit_test(memory_of_ranks_is_in_lines_that_a_run_reads_again),
		cmocka_unit_test(the_time_left_is_that_of_the_steps_that_follow),
		cmocka_unit_test(a_run_that_goes_on_has_each_step_once),
		cmocka_unit_test(files_that_are_no_log_are_left_alone),
		cmocka_unit_test(lines_behind_zeros_are_not_taken_for_the_end),
		cmocka_unit_test(two_writers_and_steps_back_are_refused),
		cmocka_unit_test(failing_calls_leave_whole_lines),
		cmocka_unit_test(half_a_line_is_cut_off_at_once),
		cmocka_unit_test(damaged_logs_are_cut_or_left),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
