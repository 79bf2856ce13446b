/*
 * en_hello.h -- the handshake of two ranks, as bytes: which rank connects, to which job it belongs,
 * and whether it knows the secret.  docs/ztrain/rendezvous.md has the tables.
 *
 *	guest -> host   hello: job, rank, size, a nonce
 *	host -> guest   reply: prove it, and another nonce; or why not
 *	guest -> host   proof: a tag of hello and reply
 *	host -> guest   reply: welcome or refused, with a tag of its own
 *
 * Both nonces are in both tags, so a recorded message cannot be replayed.  So is 'to': a message to
 * one rank is not valid for another.  So is 'at': a process that listens at another port of the
 * same host cannot relay a handshake.
 */
#ifndef EN_HELLO_H
#define EN_HELLO_H

#include "engine/comm/en_secret.h"

#define EN_HELLO 144u
#define EN_REPLY 320u
#define EN_PROOF 40u
#define EN_WHY 240u		/* bytes of a reason */

enum en_said { EN_WELCOME = 1, EN_OTHER_JOB, EN_REFUSED, EN_PROVE };

struct en_hello {
	uint64_t job;
	uint32_t rank, size;
	uint32_t port;		/* that it listens at */
	uint32_t to;		/* the rank it comes to */
	uint32_t at;		/* the port of that rank, as it sees it */
	enum en_secret_kind kind;
	int64_t pid;
	char host[64];
	uint8_t nonce[EN_TAG];
};

struct en_reply {
	enum en_said said;
	enum en_secret_kind kind;	/* of who answers */
	uint8_t nonce[EN_TAG];		/* of EN_PROVE */
	uint8_t tag[EN_TAG];		/* zeros before the proof */
	char why[EN_WHY];
};

/* The first 8 bytes of everything that a rank says. */
bool en_hello_begins(const uint8_t b[8]);
/* Reading: 0, or -EPROTO for what no rank of this version of ztrain says. */
void en_hello_write(const struct en_hello *h, uint8_t b[EN_HELLO]);
int en_hello_read(const uint8_t b[EN_HELLO], struct en_hello *out);
void en_reply_write(const struct en_reply *r, uint8_t b[EN_REPLY]);
int en_reply_read(const uint8_t b[EN_REPLY], struct en_reply *out);
void en_proof_write(const uint8_t tag[EN_TAG], uint8_t b[EN_PROOF]);
int en_proof_read(const uint8_t b[EN_PROOF], uint8_t tag[EN_TAG]);

/* All below: 0, or -EIO of en_secret_tag(). */
/* Of a job: what its secret becomes. */
int en_key_of(const uint8_t *secret, size_t n, uint64_t job, uint8_t key[EN_TAG]);
/* Of a connection: hello and first reply, as they were sent, with the key. */
int en_session_of(const uint8_t key[EN_TAG], const uint8_t talk[EN_HELLO + EN_REPLY],
		  uint8_t session[EN_TAG]);
int en_proof_of(const uint8_t session[EN_TAG], uint8_t tag[EN_TAG]);
/* Puts the tag into a reply; 'number' is 1 for the verdict, 2 for what comes before the book. */
int en_reply_sign(const uint8_t session[EN_TAG], unsigned number, uint8_t b[EN_REPLY]);
/* 0 and whether it is signed so. */
int en_reply_check(const uint8_t session[EN_TAG], unsigned number, const uint8_t b[EN_REPLY],
		   bool *signed_out);

#endif
