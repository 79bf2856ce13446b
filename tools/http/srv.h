/*
 * srv.h -- `zckpt serve`: the files of a shelf by HTTP/1.1, read-only (RFC 9110).
 *
 * No path of a request becomes a path of the disk: its words are compared with names of the shelf.
 */
#ifndef SRV_H
#define SRV_H

#include <stdint.h>

#include "../view/shelf.h"

struct srv {
	struct shelf *shelf;
	const char *bind;	/* address as text */
	uint16_t port;		/* 0 = a free one; then the one that was taken */
	int loopback;		/* only hosts with a name of this machine itself are answered */
};

/* Serves until a signal comes.  0, or the exit status after saying why not. */
int srv_run(struct srv *srv);

/* ---- srv_range.c ---- */

#define SRV_RANGES 16

struct srv_range {
	uint64_t off, n;
};

/*
 * "bytes=0-99,200-,-5" of a file of 'size' bytes.  The number of ranges that can be served; 0: none
 * can (416); -1: it is no range of bytes, and is ignored as the RFC says.
 */
int srv_ranges(const char *text, uint64_t size, struct srv_range out[SRV_RANGES]);
/* Whether a list of tags ("\"a\", W/\"b\"", "*") has this one; 'weak': a weak one counts. */
int srv_has_tag(const char *list, const char *tag, int weak);
/* "/a%20b" as bytes, into 'out' of the same length; -1: a bad escape, or a NUL. */
int srv_decode(const char *path, char *out);

/* ---- srv_page.c: texts that are made, free() ---- */

char *srv_index_html(struct srv *srv, const struct shelf_place *at, struct ckpt_err *err);
char *srv_index_json(struct srv *srv, const struct shelf_place *at, struct ckpt_err *err);
/* The page of `zckpt report` about a step. */
char *srv_report(struct srv *srv, const struct shelf_place *at, struct ckpt_err *err);

#endif
