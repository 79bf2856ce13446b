/* en_tcp_handshake.c -- see en_tcp.h: the handshake, on the side that opens the connection. */
#include "engine/comm/en_tcp.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Of EN_SECRET_HOST: rank 0 has written it, for the port that answers.  True if there is a key. */
static bool key_of(struct en_join *j, uint16_t port, uint8_t key[EN_TAG], char why[EN_WHY])
{
	uint8_t secret[EN_TAG];
	char path[400];
	int rc;

	if (j->has_key) {
		memcpy(key, j->key, EN_TAG);
		return true;
	}
	en_secret_path(j->m->secret, j->m->job, port, path, sizeof(path));
	rc = en_secret_read(path, secret);
	if (!rc)
		rc = en_key_of(secret, sizeof(secret), j->m->job, key);
	if (rc)
		snprintf(why, EN_WHY, "the secret of rank 0, %.120s: %.60s", path, strerror(-rc));
	return !rc;
}

static int read_reply(int fd, int64_t until, uint8_t b[EN_REPLY], struct en_reply *out)
{
	int rc = en_tcp_read(fd, b, EN_REPLY, until);

	return rc ? rc : en_reply_read(b, out);
}

static int say_hello(struct en_join *j, int fd, uint32_t to, uint16_t port, int64_t until,
		     uint8_t b[EN_HELLO])
{
	struct en_hello h = {
		.job = j->m->job, .rank = j->m->rank, .size = j->m->size, .port = j->listener.port,
		.to = to, .at = port, .kind = j->kind,
	};
	struct en_peer self;
	int rc = en_secret_random(h.nonce, sizeof(h.nonce));

	en_peer_self(&self);
	h.pid = self.pid;
	memcpy(h.host, self.host, sizeof(h.host));
	en_hello_write(&h, b);
	return rc ? rc : en_tcp_write(fd, b, EN_HELLO, until);
}

/* It asks for a proof; then it shows its own. */
static int prove(int fd, const uint8_t key[EN_TAG], const uint8_t talk[EN_HELLO + EN_REPLY],
		 int64_t until, uint8_t session[EN_TAG], struct en_heard *out)
{
	uint8_t tag[EN_TAG], proof[EN_PROOF], b[EN_REPLY];
	struct en_reply r;
	int rc = en_session_of(key, talk, session);

	if (!rc)
		rc = en_proof_of(session, tag);
	if (rc)
		return rc;
	en_proof_write(tag, proof);
	rc = en_tcp_write(fd, proof, sizeof(proof), until);
	if (!rc)
		rc = read_reply(fd, until, b, &r);
	if (!rc)
		rc = en_reply_check(session, 1, b, &out->proven);
	if (rc)
		return rc;
	out->said = r.said;
	memcpy(out->why, r.why, sizeof(out->why));
	if (!out->proven && r.said != EN_REFUSED)
		return -EPROTO;
	return 0;
}

int en_join_handshake(struct en_join *j, int fd, uint32_t to, uint16_t port, int64_t until,
		      struct en_heard *out)
{
	uint8_t talk[EN_HELLO + EN_REPLY], key[EN_TAG], session[EN_TAG];
	struct en_reply r;
	int rc = say_hello(j, fd, to, port, until, talk);

	if (!rc)
		rc = read_reply(fd, until, talk + EN_HELLO, &r);
	if (rc)
		return rc;
	*out = (struct en_heard){ .said = r.said };
	memcpy(out->why, r.why, sizeof(out->why));
	if (r.said == EN_WELCOME || (r.said == EN_PROVE && r.kind != j->kind))
		return -EPROTO;
	if (r.said != EN_PROVE)
		return 0;
	if (!key_of(j, port, key, out->why)) {
		out->said = EN_REFUSED;
		return 0;
	}
	rc = prove(fd, key, talk, until, session, out);
	if (!rc && out->proven && out->said == EN_WELCOME) {
		memcpy(j->key, key, EN_TAG);
		memcpy(j->session[to], session, EN_TAG);
		j->has_key = true;
	}
	return rc;
}
