/*
 * TensorBoard's event files.
 *
 * If they are wrong, TensorBoard shows no curve, a part of one, or other values than the log.
 * The records are read back by a parser of this file, which follows
 * docs/formats/tensorboard-events.md and shares no code with the writer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/log/en_events.h"
#include "libckpt/base/ck_err.h"

#define MOST ((size_t)1 << 24)

/* ---- reading ---- */

struct bytes {
	const unsigned char *p;
	size_t n;
};

static uint64_t little(struct bytes *b, size_t n)
{
	uint64_t v = 0;

	assert_true(b->n >= n);
	for (size_t i = 0; i < n; i++)
		v |= (uint64_t)b->p[i] << 8 * i;
	b->p += n;
	b->n -= n;
	return v;
}

static uint64_t varint(struct bytes *b)
{
	uint64_t v = 0, byte;

	for (unsigned shift = 0;; shift += 7) {
		byte = little(b, 1);
		assert_true(shift < 64);
		v |= (byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return v;
	}
}

static struct bytes part(struct bytes *b, size_t n)
{
	const struct bytes out = { b->p, n };

	assert_true(b->n >= n);
	b->p += n;
	b->n -= n;
	return out;
}

/* CRC-32C by its definition, bit by bit, and the mask. */
static uint32_t sum(struct bytes b)
{
	uint32_t crc = 0xffffffff;

	for (size_t i = 0; i < b.n; i++)
		for (int bit = 0; bit < 8; bit++) {
			const uint32_t out = (crc ^ (uint32_t)(b.p[i] >> bit)) & 1;

			crc >>= 1;
			crc ^= out ? 0x82f63b78 : 0;
		}
	return ~crc;
}

static uint32_t masked(struct bytes b)
{
	const uint32_t crc = sum(b);

	return ((crc >> 15) | (crc << 17)) + 0xa282ead8;
}

/* The next record's event. */
static struct bytes record(struct bytes *b)
{
	const struct bytes length = { b->p, 8 };
	const uint64_t n = little(b, 8);
	struct bytes event;

	assert_int_equal(little(b, 4), masked(length));
	event = part(b, n);
	assert_int_equal(little(b, 4), masked(event));
	return event;
}

static double number(struct bytes *b, size_t n)
{
	const uint64_t bits = little(b, n);
	const uint32_t low = (uint32_t)bits;
	double d;
	float f;

	memcpy(&d, &bits, sizeof(d));
	memcpy(&f, &low, sizeof(f));
	return n == 8 ? d : (double)f;
}

struct read {
	double time;
	int64_t step;
	struct bytes version;
	size_t n;
	struct bytes tag[100];
	double value[100];
};

static void read_value(struct bytes b, struct read *r)
{
	while (b.n) {
		const uint64_t key = varint(&b);

		if (key == (1 << 3 | 2))
			r->tag[r->n] = part(&b, varint(&b));
		else if (key == (2 << 3 | 5))
			r->value[r->n] = number(&b, 4);
		else
			fail_msg("key %d in a value", (int)key);
	}
	r->n++;
}

static struct read read_event(struct bytes b)
{
	struct read r = { .time = NAN };

	while (b.n) {
		const uint64_t key = varint(&b);
		struct bytes summary;

		if (key == (1 << 3 | 1)) {
			r.time = number(&b, 8);
		} else if (key == (2 << 3 | 0)) {
			r.step = (int64_t)varint(&b);
		} else if (key == (3 << 3 | 2)) {
			r.version = part(&b, varint(&b));
		} else {
			assert_int_equal(key, 5 << 3 | 2);
			for (summary = part(&b, varint(&b)); summary.n;) {
				assert_int_equal(varint(&summary), 1 << 3 | 2);
				read_value(part(&summary, varint(&summary)), &r);
			}
		}
	}
	return r;
}

static int is_text(struct bytes b, const char *text)
{
	return b.n == strlen(text) && !memcmp(b.p, text, b.n);
}

/* ---- tests ---- */

static void a_record_is_as_the_document_says(void **state)
{
	static const unsigned char expected[] = {
		0x20, 0, 0, 0, 0, 0, 0, 0, 0x29, 0xed, 0xa9, 0x50,
		0x09, 0, 0, 0, 0, 0, 0x40, 0x8f, 0x40, 0x10, 0x07, 0x2a, 0x13, 0x0a, 0x11, 0x0a,
		0x0a, 0x74, 0x72, 0x61, 0x69, 0x6e, 0x2f, 0x6c, 0x6f, 0x73, 0x73, 0x15, 0, 0, 0xc0,
		0x3f, 0x1d, 0x56, 0xa3, 0xb9,
	};
	static const struct en_events_value loss = { "train/loss", 1.5 };
	struct ck_buf buf = CK_BUF_INIT(MOST);

	(void)state;
	assert_int_equal(sum((struct bytes){ (const unsigned char *)"123456789", 9 }), 0xe3069283);
	assert_int_equal(en_events_add(&buf, 1000, 7, &loss, 1, NULL), 0);
	assert_int_equal(buf.len, sizeof(expected));
	assert_memory_equal(buf.p, expected, sizeof(expected));
	ck_buf_release(&buf);
}

static void the_first_record_names_the_version(void **state)
{
	struct ck_buf buf = CK_BUF_INIT(MOST);
	struct bytes b;
	struct read r;

	(void)state;
	assert_int_equal(en_events_begin(&buf, 1795547101.25, NULL), 0);
	b = (struct bytes){ (const unsigned char *)buf.p, buf.len };
	r = read_event(record(&b));
	assert_true(is_text(r.version, "brain.Event:2"));
	assert_true(r.time == 1795547101.25 && !r.n && !b.n);
	ck_buf_release(&buf);
}

static void every_value_reads_back(void **state)
{
	static const double odd[] = { 0, -0.0, 0.1, 1e-45, FLT_MAX, -FLT_MAX, 1e300, INFINITY,
				      -INFINITY, 16777217, 5e-46 };
	static const int64_t steps[] = { 0, 1, 127, 128, 16384, INT32_MAX, INT64_MAX };
	const size_t n = CK_ARRAY_LEN(odd);
	struct ck_buf buf = CK_BUF_INIT(MOST);
	char *tag[2] = { calloc(1, 301), calloc(1, 20001) };
	struct bytes b;

	(void)state;
	memset(tag[0], 'x', 300);
	memset(tag[1], 'y', 20000);
	for (size_t s = 0; s < CK_ARRAY_LEN(steps); s++) {
		struct en_events_value v[CK_ARRAY_LEN(odd) + 1];

		for (size_t i = 0; i < n; i++)
			v[i] = (struct en_events_value){ i < 2 ? tag[i] : "a/\xc3\xa9", odd[i] };
		v[n] = (struct en_events_value){ "", NAN };
		assert_int_equal(en_events_add(&buf, 0.5, steps[s], v, n + 1, NULL), 0);
	}
	b = (struct bytes){ (const unsigned char *)buf.p, buf.len };
	for (size_t s = 0; s < CK_ARRAY_LEN(steps); s++) {
		const struct read r = read_event(record(&b));

		assert_int_equal(r.step, steps[s]);
		assert_int_equal(r.n, n + 1);
		assert_true(r.time == 0.5);
		for (size_t i = 0; i < n; i++) {
			assert_true((float)r.value[i] == (float)odd[i]);
			assert_true(is_text(r.tag[i], i < 2 ? tag[i] : "a/\xc3\xa9"));
		}
		assert_true(isnan(r.value[n]) && !r.tag[n].n);
	}
	assert_int_equal(b.n, 0);
	ck_buf_release(&buf);
	free(tag[0]);
	free(tag[1]);
}

static void a_full_buffer_is_an_error(void **state)
{
	static const struct en_events_value loss = { "train/loss", 1.5 };
	struct ckpt_err err = { 0 };

	(void)state;
	for (size_t limit = 0; limit < 48; limit++) {
		struct ck_buf buf = CK_BUF_INIT(limit);

		assert_int_equal(en_events_add(&buf, 1000, 7, &loss, 1, &err), -CKPT_E_LIMIT);
		ck_buf_release(&buf);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_record_is_as_the_document_says),
		cmocka_unit_test(the_first_record_names_the_version),
		cmocka_unit_test(every_value_reads_back),
		cmocka_unit_test(a_full_buffer_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
