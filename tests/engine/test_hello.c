/*
 * What two ranks say to each other first, as bytes.  If this goes wrong, a stranger who changes or
 * repeats what he heard is taken for a rank, or a hello from the network makes numbers that nothing
 * checked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "engine/comm/en_hello.h"

/* A handshake of two that know the key; tags as they are sent. */
struct shake {
	uint8_t talk[EN_HELLO + EN_REPLY], session[EN_TAG], proof[EN_TAG], end[EN_REPLY];
};

static void shake(struct shake *s, uint8_t secret)
{
	const struct en_hello h = {
		.job = 0x123456789abcdef, .rank = 3, .size = 4, .port = 4711, .to = 1, .at = 815,
		.pid = 9,
		.kind = EN_SECRET_GIVEN, .host = "a", .nonce = { 1, 2, 3 },
	};
	struct en_reply r = { .said = EN_PROVE, .kind = EN_SECRET_GIVEN, .nonce = { 4, 5 } };
	uint8_t key[EN_TAG];

	assert_int_equal(en_key_of(&secret, 1, h.job, key), 0);
	en_hello_write(&h, s->talk);
	en_reply_write(&r, s->talk + EN_HELLO);
	assert_int_equal(en_session_of(key, s->talk, s->session), 0);
	assert_int_equal(en_proof_of(s->session, s->proof), 0);
	r.said = EN_WELCOME;
	en_reply_write(&r, s->end);
	assert_int_equal(en_reply_sign(s->session, 1, s->end), 0);
}

static void what_is_written_is_read(void **state)
{
	struct shake s;
	struct en_hello h;
	struct en_reply r;

	(void)state;
	shake(&s, 1);
	assert_int_equal(en_hello_read(s.talk, &h), 0);
	assert_true(h.job == 0x123456789abcdef && h.rank == 3 && h.size == 4 && h.port == 4711);
	assert_true(h.to == 1 && h.at == 815 && h.pid == 9 && h.kind == EN_SECRET_GIVEN);
	assert_string_equal(h.host, "a");
	assert_int_equal(en_reply_read(s.end, &r), 0);
	assert_true(r.said == EN_WELCOME && r.kind == EN_SECRET_GIVEN);
}

/* Whatever comes: no text without an end, no number out of its range. */
static void any_bytes_are_read_or_refused(void **state)
{
	uint8_t b[EN_REPLY];
	struct shake s;

	(void)state;
	shake(&s, 1);
	srand(1);
	for (int i = 0; i < 200000; i++) {
		struct en_hello h;
		struct en_reply r;

		memcpy(b, i & 1 ? s.end : s.talk, i & 1 ? EN_REPLY : EN_HELLO);
		for (int k = rand() % 40; k > 0; k--)
			b[8 + (unsigned)rand() % (EN_REPLY - 8)] = (uint8_t)rand();
		if (!en_hello_read(b, &h)) {
			assert_true(h.kind < EN_SECRET_KINDS && h.port <= 65535 &&
				    h.at <= 65535);
			assert_non_null(memchr(h.host, 0, sizeof(h.host)));
		}
		if (!en_reply_read(b, &r)) {
			assert_true(r.said >= EN_WELCOME && r.said <= EN_PROVE);
			assert_non_null(memchr(r.why, 0, sizeof(r.why)));
			for (const char *p = r.why; *p; p++)
				assert_true(*p >= ' ' && *p <= '~');
		}
	}
}

/* One bit of what was said, and neither proof nor verdict is worth anything. */
static void every_bit_is_in_the_tags(void **state)
{
	struct shake s, other;
	uint8_t key[EN_TAG], session[EN_TAG], tag[EN_TAG];
	const uint8_t secret = 1;
	bool is_signed;

	(void)state;
	if (!en_secret_is_built())
		skip();
	shake(&s, secret);
	shake(&other, 2);
	assert_false(en_secret_same(s.proof, other.proof));
	assert_int_equal(en_key_of(&secret, 1, 0x123456789abcdef, key), 0);
	for (size_t bit = 0; bit < 8 * sizeof(s.talk); bit++) {
		s.talk[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(en_session_of(key, s.talk, session), 0);
		assert_int_equal(en_proof_of(session, tag), 0);
		assert_false(en_secret_same(tag, s.proof));
		s.talk[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	assert_int_equal(en_reply_check(s.session, 1, s.end, &is_signed), 0);
	assert_true(is_signed);
	assert_int_equal(en_reply_check(s.session, 2, s.end, &is_signed), 0);
	assert_false(is_signed);
	for (size_t bit = 0; bit < 8 * sizeof(s.end); bit++) {
		s.end[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(en_reply_check(s.session, 1, s.end, &is_signed), 0);
		assert_false(is_signed);
		s.end[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

/* By another program: T(k, w, d) = H(H(k, w), d), with H(k, w) of RFC 4231, test case 2. */
static void tags_are_hmac_sha256(void **state)
{
	static const uint8_t want[EN_TAG] = {
		0x36, 0x2b, 0x1f, 0xdc, 0x76, 0x2b, 0x39, 0x39, 0x8c, 0x63, 0x02, 0xcd, 0xdf, 0x2e,
		0x9c, 0x4b, 0xa8, 0x92, 0x76, 0x66, 0x24, 0xd2, 0x69, 0x71, 0xe8, 0x28, 0xf9, 0x7e,
		0xdb, 0x60, 0x1d, 0x00,
	};
	uint8_t tag[EN_TAG];

	(void)state;
	if (!en_secret_is_built())
		skip();
	assert_int_equal(en_secret_tag("Jefe", 4, "what do ya want for nothing?", "d", 1, tag), 0);
	assert_memory_equal(tag, want, EN_TAG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_is_read),
		cmocka_unit_test(any_bytes_are_read_or_refused),
		cmocka_unit_test(every_bit_is_in_the_tags),
		cmocka_unit_test(tags_are_hmac_sha256),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
