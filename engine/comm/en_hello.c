/* en_hello.c -- see en_hello.h. */
#include "engine/comm/en_hello.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_base.h"

#define MAGIC "ZTRAIN2\n"
#define TAG_AT 48u	/* in a reply */

bool en_hello_begins(const uint8_t b[8])
{
	return !memcmp(b, MAGIC, 8);
}

void en_hello_write(const struct en_hello *h, uint8_t b[EN_HELLO])
{
	memset(b, 0, EN_HELLO);
	memcpy(b, MAGIC, 8);
	ck_put_le64(b + 8, h->job);
	ck_put_le32(b + 16, h->rank);
	ck_put_le32(b + 20, h->size);
	ck_put_le32(b + 24, h->port);
	ck_put_le32(b + 28, h->to);
	ck_put_le64(b + 32, (uint64_t)h->pid);
	memcpy(b + 40, h->host, sizeof(h->host));
	ck_put_le32(b + 104, (uint32_t)h->kind);
	ck_put_le32(b + 108, h->at);
	memcpy(b + 112, h->nonce, EN_TAG);
}

/* What is printed later. */
static void clean(char *text, size_t n)
{
	text[n - 1] = '\0';
	for (; *text; text++)
		if (*text < ' ' || *text > '~')
			*text = '?';
}

int en_hello_read(const uint8_t b[EN_HELLO], struct en_hello *out)
{
	const uint32_t kind = ck_le32(b + 104);

	if (memcmp(b, MAGIC, 8) || kind >= EN_SECRET_KINDS || ck_le32(b + 24) > 65535 ||
	    ck_le32(b + 108) > 65535)
		return -EPROTO;
	out->job = ck_le64(b + 8);
	out->rank = ck_le32(b + 16);
	out->size = ck_le32(b + 20);
	out->port = ck_le32(b + 24);
	out->to = ck_le32(b + 28);
	out->at = ck_le32(b + 108);
	out->pid = (int64_t)ck_le64(b + 32);
	memcpy(out->host, b + 40, sizeof(out->host));
	clean(out->host, sizeof(out->host));
	out->kind = (enum en_secret_kind)kind;
	memcpy(out->nonce, b + 112, EN_TAG);
	return 0;
}

void en_reply_write(const struct en_reply *r, uint8_t b[EN_REPLY])
{
	memset(b, 0, EN_REPLY);
	memcpy(b, MAGIC, 8);
	ck_put_le32(b + 8, (uint32_t)r->said);
	ck_put_le32(b + 12, (uint32_t)r->kind);
	memcpy(b + 16, r->nonce, EN_TAG);
	memcpy(b + TAG_AT, r->tag, EN_TAG);
	snprintf((char *)b + 80, EN_WHY, "%s", r->why);
}

int en_reply_read(const uint8_t b[EN_REPLY], struct en_reply *out)
{
	const uint32_t said = ck_le32(b + 8), kind = ck_le32(b + 12);

	if (memcmp(b, MAGIC, 8) || said < EN_WELCOME || said > EN_PROVE ||
	    kind >= EN_SECRET_KINDS)
		return -EPROTO;
	out->said = (enum en_said)said;
	out->kind = (enum en_secret_kind)kind;
	memcpy(out->nonce, b + 16, EN_TAG);
	memcpy(out->tag, b + TAG_AT, EN_TAG);
	memcpy(out->why, b + 80, EN_WHY);
	clean(out->why, EN_WHY);
	return 0;
}

void en_proof_write(const uint8_t tag[EN_TAG], uint8_t b[EN_PROOF])
{
	memcpy(b, MAGIC, 8);
	memcpy(b + 8, tag, EN_TAG);
}

int en_proof_read(const uint8_t b[EN_PROOF], uint8_t tag[EN_TAG])
{
	if (memcmp(b, MAGIC, 8))
		return -EPROTO;
	memcpy(tag, b + 8, EN_TAG);
	return 0;
}

/* ---------------------------------------------------------------- tags */

int en_key_of(const uint8_t *secret, size_t n, uint64_t job, uint8_t key[EN_TAG])
{
	uint8_t b[8];

	ck_put_le64(b, job);
	return en_secret_tag(secret, n, "ztrain meeting", b, sizeof(b), key);
}

int en_session_of(const uint8_t key[EN_TAG], const uint8_t talk[EN_HELLO + EN_REPLY],
		  uint8_t session[EN_TAG])
{
	return en_secret_tag(key, EN_TAG, "session", talk, EN_HELLO + EN_REPLY, session);
}

int en_proof_of(const uint8_t session[EN_TAG], uint8_t tag[EN_TAG])
{
	return en_secret_tag(session, EN_TAG, "guest", "", 0, tag);
}

/* Of all of it but its own place. */
static int sign(const uint8_t session[EN_TAG], unsigned number, const uint8_t b[EN_REPLY],
		uint8_t tag[EN_TAG])
{
	uint8_t copy[EN_REPLY];

	memcpy(copy, b, EN_REPLY);
	memset(copy + TAG_AT, 0, EN_TAG);
	return en_secret_tag(session, EN_TAG, number == 1 ? "host 1" : "host 2", copy, EN_REPLY,
			     tag);
}

int en_reply_sign(const uint8_t session[EN_TAG], unsigned number, uint8_t b[EN_REPLY])
{
	return sign(session, number, b, b + TAG_AT);
}

int en_reply_check(const uint8_t session[EN_TAG], unsigned number, const uint8_t b[EN_REPLY],
		   bool *signed_out)
{
	uint8_t tag[EN_TAG];
	int rc = sign(session, number, b, tag);

	if (!rc)
		*signed_out = en_secret_same(tag, b + TAG_AT);
	return rc;
}
