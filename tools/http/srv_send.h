/* srv_send.h -- answers of srv.h as libmicrohttpd has them. */
#ifndef SRV_SEND_H
#define SRV_SEND_H

#include <microhttpd.h>

#include "srv.h"

/* A text, which becomes the answer's (malloc); type "text/plain; charset=utf-8" and the like. */
enum MHD_Result srv_send_text(struct MHD_Connection *to, unsigned status, const char *type,
			      char *text);
/* A sentence about what went wrong, or is not allowed. */
enum MHD_Result srv_send_error(struct MHD_Connection *to, unsigned status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The status of a failure of the library. */
unsigned srv_status_of(const struct ckpt_err *err);
/* A file of a view, or the ranges of it that the request asks for; of HEAD nothing is read. */
enum MHD_Result srv_send_file(struct srv *srv, struct MHD_Connection *to,
			      const struct shelf_place *at, int is_head);
/* Any request. */
enum MHD_Result srv_answer(struct srv *srv, struct MHD_Connection *to, const char *url,
			   const char *method);

#endif
