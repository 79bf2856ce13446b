/*
 * en_events.c -- see en_events.h.
 *
 * A message of protocol buffers has its length before it, so each is made in a buffer of its own.
 * The sum is CRC-32C, four bits at a time: a log has few megabytes.
 */
#include "engine/log/en_events.h"

#include <string.h>

#include "libckpt/base/ck_err.h"

#define VERSION "brain.Event:2"
#define MOST ((size_t)64 << 20)	/* bytes of a record */

/* Field numbers and types, as key bytes. */
enum {
	EVENT_WALL_TIME = 0x09, EVENT_STEP = 0x10, EVENT_VERSION = 0x1a, EVENT_SUMMARY = 0x2a,
	SUMMARY_VALUE = 0x0a,
	VALUE_TAG = 0x0a, VALUE_SIMPLE = 0x15,
};

/* The table has what four bits become. */
static uint32_t crc32c(const void *data, size_t n)
{
	static const uint32_t table[16] = {
		0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1,
		0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
		0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
		0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
	};
	const unsigned char *p = data;
	uint32_t crc = UINT32_MAX;

	for (size_t i = 0; i < n; i++) {
		crc ^= p[i];
		crc = crc >> 4 ^ table[crc & 15];
		crc = crc >> 4 ^ table[crc & 15];
	}
	return ~crc;
}

static int add_little(struct ck_buf *buf, uint64_t v, size_t bytes, struct ckpt_err *err)
{
	unsigned char b[8];

	for (size_t i = 0; i < bytes; i++)
		b[i] = (unsigned char)(v >> 8 * i);
	return ck_buf_add(buf, b, bytes, err);
}

static int add_sum(struct ck_buf *buf, const void *data, size_t n, struct ckpt_err *err)
{
	const uint32_t crc = crc32c(data, n);

	return add_little(buf, (crc >> 15 | crc << 17) + 0xa282ead8u, 4, err);
}

static int add_varint(struct ck_buf *buf, uint64_t v, struct ckpt_err *err)
{
	int rc = 0;

	for (; !rc && v >= 0x80; v >>= 7)
		rc = add_little(buf, (v & 0x7f) | 0x80, 1, err);
	return rc ? rc : add_little(buf, v, 1, err);
}

/* A field with its length before it. */
static int add_bytes(struct ck_buf *buf, unsigned char key, const void *data, size_t n,
		     struct ckpt_err *err)
{
	int rc = add_little(buf, key, 1, err);

	if (!rc)
		rc = add_varint(buf, n, err);
	return rc ? rc : ck_buf_add(buf, data, n, err);
}

static int add_time(struct ck_buf *event, double wall_time, struct ckpt_err *err)
{
	uint64_t bits;
	int rc = add_little(event, EVENT_WALL_TIME, 1, err);

	memcpy(&bits, &wall_time, sizeof(bits));
	return rc ? rc : add_little(event, bits, 8, err);
}

static int add_record(struct ck_buf *buf, const struct ck_buf *event, struct ckpt_err *err)
{
	const size_t at = buf->len;
	int rc = add_little(buf, event->len, 8, err);

	if (!rc)
		rc = add_sum(buf, buf->p + at, 8, err);
	if (!rc)
		rc = ck_buf_add(buf, event->p, event->len, err);
	return rc ? rc : add_sum(buf, event->p, event->len, err);
}

int en_events_begin(struct ck_buf *buf, double wall_time, struct ckpt_err *err)
{
	struct ck_buf event = CK_BUF_INIT(MOST);
	int rc = add_time(&event, wall_time, err);

	if (!rc)
		rc = add_bytes(&event, EVENT_VERSION, VERSION, sizeof(VERSION) - 1, err);
	if (!rc)
		rc = add_record(buf, &event, err);
	ck_buf_release(&event);
	return rc;
}

static int add_value(struct ck_buf *summary, const struct en_events_value *v, struct ckpt_err *err)
{
	struct ck_buf value = CK_BUF_INIT(MOST);
	const float f = (float)v->value;
	uint32_t bits;
	int rc = add_bytes(&value, VALUE_TAG, v->tag, strlen(v->tag), err);

	memcpy(&bits, &f, sizeof(bits));
	if (!rc)
		rc = add_little(&value, VALUE_SIMPLE, 1, err);
	if (!rc)
		rc = add_little(&value, bits, 4, err);
	if (!rc)
		rc = add_bytes(summary, SUMMARY_VALUE, value.p, value.len, err);
	ck_buf_release(&value);
	return rc;
}

int en_events_add(struct ck_buf *buf, double wall_time, int64_t step,
		  const struct en_events_value *value, size_t n, struct ckpt_err *err)
{
	struct ck_buf summary = CK_BUF_INIT(MOST), event = CK_BUF_INIT(MOST);
	int rc = add_time(&event, wall_time, err);

	for (size_t i = 0; !rc && i < n; i++)
		rc = add_value(&summary, &value[i], err);
	if (!rc && step)
		rc = add_little(&event, EVENT_STEP, 1, err);
	if (!rc && step)
		rc = add_varint(&event, (uint64_t)step, err);
	if (!rc)
		rc = add_bytes(&event, EVENT_SUMMARY, summary.p, summary.len, err);
	if (!rc)
		rc = add_record(buf, &event, err);
	ck_buf_release(&summary);
	ck_buf_release(&event);
	return rc;
}
