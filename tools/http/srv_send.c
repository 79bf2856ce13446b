/*
 * srv_send.c -- see srv_send.h: a file, whole or in ranges.
 *
 * What can be known before the status line is sent is looked at before: the records that a range
 * is made of are compared with their sums, up to CHECK_RANGE bytes, and of a whole file those of
 * its beginning.  Damage that is met later cuts the connection, so the client sees a short answer.
 */
#include "srv_send.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BLOCK ((size_t)1 << 20)
#define CHECK_RANGE ((uint64_t)256 << 20)
#define CHECK_WHOLE ((uint64_t)8 << 20)
#define BOUNDARY "zckpt-7f3a1c0b5e9d"

static const char plain[] = "text/plain; charset=utf-8";

/* ---------------------------------------------------------------- texts */

static void add(struct MHD_Response *r, const char *name, const char *value)
{
	MHD_add_response_header(r, name, value);
}

static void add_common(struct MHD_Response *r)
{
	add(r, "Cache-Control", "no-cache");
	add(r, "X-Content-Type-Options", "nosniff");
	add(r, "Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; "
	    "script-src 'unsafe-inline'; img-src data:");
}

enum MHD_Result srv_send_text(struct MHD_Connection *to, unsigned status, const char *type,
			      char *text)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(strlen(text), text,
								 MHD_RESPMEM_MUST_FREE);
	enum MHD_Result result;

	if (!r) {
		free(text);
		return MHD_NO;
	}
	add(r, "Content-Type", type);
	add_common(r);
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		add(r, "Allow", "GET, HEAD");
	result = MHD_queue_response(to, status, r);
	MHD_destroy_response(r);
	return result;
}

enum MHD_Result srv_send_error(struct MHD_Connection *to, unsigned status, const char *fmt, ...)
{
	char text[1024];
	char *copy;
	va_list ap;
	size_t n;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text) - 1, fmt, ap);
	va_end(ap);
	n = strlen(text);
	text[n] = '\n';
	text[n + 1] = 0;
	copy = strdup(text);
	return copy ? srv_send_text(to, status, plain, copy) : MHD_NO;
}

unsigned srv_status_of(const struct ckpt_err *err)
{
	return err->code == CKPT_E_NOTFOUND ? MHD_HTTP_NOT_FOUND :
	       err->code == CKPT_E_NOMEM ? MHD_HTTP_SERVICE_UNAVAILABLE :
	       MHD_HTTP_INTERNAL_SERVER_ERROR;
}

/* ---------------------------------------------------------------- what is sent */

/* A text, then bytes of the file. */
struct part {
	char *head;		/* of a part of several; NULL */
	size_t head_n;
	struct srv_range range;
};

struct sending {
	struct srv *srv;
	struct shelf_step *step;
	struct ckpt_view *view;
	struct ckpt_view_file info;
	uint64_t file;
	struct part part[SRV_RANGES + 1];	/* and the end of several */
	int nparts;
	int several;		/* multipart/byteranges */
	uint64_t total;
};

static void sending_free(void *arg)
{
	struct sending *s = arg;

	for (int i = 0; i < s->nparts; i++)
		free(s->part[i].head);
	shelf_put(s->srv->shelf, s->step);
	free(s);
}

/* libmicrohttpd asks for bytes from 'pos' on, at most 'max'. */
static ssize_t send_some(void *arg, uint64_t pos, char *buf, size_t max)
{
	struct sending *s = arg;
	struct ckpt_err err = { 0 };

	for (int i = 0; i < s->nparts; i++) {
		const struct part *p = &s->part[i];
		uint64_t n = p->head_n;

		if (pos < n) {
			n = n - pos < max ? n - pos : max;
			memcpy(buf, p->head + pos, n);
			return (ssize_t)n;
		}
		pos -= n;
		n = p->range.n;
		if (pos < n) {
			n = n - pos < max ? n - pos : max;
			if (shelf_read(s->srv->shelf, s->step, s->view, s->file,
				       p->range.off + pos, n, buf, &err))
				return MHD_CONTENT_READER_END_WITH_ERROR;
			return (ssize_t)n;
		}
		pos -= n;
	}
	return MHD_CONTENT_READER_END_OF_STREAM;
}

static const char *type_of(const char *name)
{
	static const char *const types[][2] = {
		{ ".json", "application/json" }, { ".txt", plain }, { ".md", plain },
		{ ".jinja", plain },
	};
	const char *dot = strrchr(name, '.');

	for (size_t i = 0; dot && i < sizeof(types) / sizeof(types[0]); i++)
		if (!strcmp(dot, types[i][0]))
			return types[i][1];
	return "application/octet-stream";
}

static const char *http_date(int64_t seconds, char text[40])
{
	static const char *const day[] = { "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat" };
	static const char *const month[] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul",
					     "Aug", "Sep", "Oct", "Nov", "Dec" };
	const time_t t = (time_t)seconds;
	struct tm tm = { 0 };

	gmtime_r(&t, &tm);
	snprintf(text, 40, "%s, %02u %s %04u %02u:%02u:%02u GMT", day[(unsigned)tm.tm_wday % 7],
		 (unsigned)tm.tm_mday % 100, month[(unsigned)tm.tm_mon % 12],
		 (unsigned)(tm.tm_year + 1900) % 10000, (unsigned)tm.tm_hour % 100,
		 (unsigned)tm.tm_min % 100, (unsigned)tm.tm_sec % 100);
	return text;
}

/* ---------------------------------------------------------------- ranges */

static const char *header_of(struct MHD_Connection *to, const char *name)
{
	return MHD_lookup_connection_value(to, MHD_HEADER_KIND, name);
}

/* Whether Range counts: without If-Range, or where that is what the file is now. */
static int range_counts(const struct sending *s, struct MHD_Connection *to)
{
	const char *if_range = header_of(to, "If-Range");
	char date[40];

	return !if_range || (*if_range == '"' && srv_has_tag(if_range, s->info.etag, 0)) ||
	       !strcmp(if_range, http_date(s->step->time, date));
}

static int add_part_head(struct sending *s, struct part *p)
{
	const int n = asprintf(&p->head, "%s--" BOUNDARY "\r\nContent-Type: %s\r\nContent-Range: "
			       "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64 "\r\n\r\n",
			       p == s->part ? "" : "\r\n", type_of(s->info.name), p->range.off,
			       p->range.off + p->range.n - 1, s->info.bytes);

	if (n < 0) {
		p->head = NULL;
		return -1;
	}
	p->head_n = (size_t)n;
	return 0;
}

/* Several ranges: a text before each, and one at the end. */
static int make_several(struct sending *s)
{
	struct part *end = &s->part[s->nparts];
	int rc = 0;

	s->several = 1;
	for (int i = 0; !rc && i < s->nparts; i++)
		rc = add_part_head(s, &s->part[i]);
	end->head = strdup("\r\n--" BOUNDARY "--\r\n");
	end->head_n = end->head ? strlen(end->head) : 0;
	s->nparts++;
	return rc || !end->head ? -1 : 0;
}

/* The parts of the answer, and its status; 0: no memory. */
static unsigned choose_parts(struct sending *s, struct MHD_Connection *to)
{
	const char *range = header_of(to, "Range");
	struct srv_range list[SRV_RANGES];
	unsigned status = MHD_HTTP_OK;
	int n = range && range_counts(s, to) ? srv_ranges(range, s->info.bytes, list) : -1;

	if (!n)
		return MHD_HTTP_RANGE_NOT_SATISFIABLE;
	if (n > 0) {
		status = MHD_HTTP_PARTIAL_CONTENT;
		for (s->nparts = 0; s->nparts < n; s->nparts++)
			s->part[s->nparts].range = list[s->nparts];
	} else {
		s->nparts = 1;
		s->part[0].range = (struct srv_range){ 0, s->info.bytes };
	}
	if (n > 1 && make_several(s))
		return 0;
	for (int i = 0; i < s->nparts; i++)
		s->total += s->part[i].head_n + s->part[i].range.n;
	return status;
}

/* Before the status line; see above. */
static int check_first(struct sending *s, unsigned status, struct ckpt_err *err)
{
	uint64_t left = status == MHD_HTTP_OK ? CHECK_WHOLE : CHECK_RANGE;
	int rc = 0;

	for (int i = 0; !rc && left && i < s->nparts; i++) {
		const struct srv_range *r = &s->part[i].range;
		const uint64_t n = r->n < left ? r->n : left;

		rc = shelf_check(s->srv->shelf, s->step, s->view, s->file, r->off, n, err);
		left -= n;
	}
	return rc;
}

/* ---------------------------------------------------------------- a file */

static void add_range_headers(struct MHD_Response *r, const struct sending *s, unsigned status)
{
	const struct srv_range *only = &s->part[0].range;
	char text[120];

	if (s->several) {
		add(r, "Content-Type", "multipart/byteranges; boundary=" BOUNDARY);
		return;
	}
	add(r, "Content-Type", type_of(s->info.name));
	if (status != MHD_HTTP_PARTIAL_CONTENT)
		return;
	snprintf(text, sizeof(text), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, only->off,
		 only->off + only->n - 1, s->info.bytes);
	add(r, "Content-Range", text);
}

static void add_file_headers(struct MHD_Response *r, const struct sending *s)
{
	char text[120];

	add(r, "Accept-Ranges", "bytes");
	snprintf(text, sizeof(text), "\"%s\"", s->info.etag);
	add(r, "ETag", text);
	if (s->step->time)
		add(r, "Last-Modified", http_date(s->step->time, text));
	add_common(r);
}

/* An answer without bytes of the file; takes 's'. */
static enum MHD_Result send_empty(struct sending *s, struct MHD_Connection *to, unsigned status)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
	enum MHD_Result result;
	char text[60];

	if (r) {
		add_file_headers(r, s);
		snprintf(text, sizeof(text), "bytes */%" PRIu64, s->info.bytes);
		if (status == MHD_HTTP_RANGE_NOT_SATISFIABLE)
			add(r, "Content-Range", text);
	}
	sending_free(s);
	if (!r)
		return MHD_NO;
	result = MHD_queue_response(to, status, r);
	MHD_destroy_response(r);
	return result;
}

/* 304, 412, or 0. */
static unsigned precondition(const struct sending *s, struct MHD_Connection *to)
{
	const char *match = header_of(to, "If-Match"), *none = header_of(to, "If-None-Match");
	const char *since = header_of(to, "If-Modified-Since");
	char date[40];

	if (match && !srv_has_tag(match, s->info.etag, 0))
		return MHD_HTTP_PRECONDITION_FAILED;
	if (none)
		return srv_has_tag(none, s->info.etag, 1) ? MHD_HTTP_NOT_MODIFIED : 0;
	return since && s->step->time && !strcmp(since, http_date(s->step->time, date)) ?
	       MHD_HTTP_NOT_MODIFIED : 0;
}

/* Takes 's'. */
static enum MHD_Result send_parts(struct sending *s, struct MHD_Connection *to, int is_head)
{
	unsigned status = precondition(s, to);
	struct ckpt_err err = { 0 };
	struct MHD_Response *r;
	enum MHD_Result result;

	if (!status)
		status = choose_parts(s, to);
	if (status != MHD_HTTP_OK && status != MHD_HTTP_PARTIAL_CONTENT && status)
		return send_empty(s, to, status);
	if (status && !is_head && check_first(s, status, &err)) {
		sending_free(s);
		return srv_send_error(to, srv_status_of(&err), "%s: %s", err.where, err.msg);
	}
	r = status ? MHD_create_response_from_callback(s->total, BLOCK, send_some, s,
						       sending_free) : NULL;
	if (!r) {
		sending_free(s);
		return srv_send_error(to, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
	}
	add_range_headers(r, s, status);
	add_file_headers(r, s);
	result = MHD_queue_response(to, status, r);
	MHD_destroy_response(r);
	return result;
}

enum MHD_Result srv_send_file(struct srv *srv, struct MHD_Connection *to,
			      const struct shelf_place *at, int is_head)
{
	struct ckpt_view *view = NULL;
	struct ckpt_err err = { 0 };
	struct sending *s;
	uint64_t file;

	if (shelf_get(srv->shelf, at->step, at->form, &view, &err))
		return srv_send_error(to, srv_status_of(&err), "%s: %s", err.where, err.msg);
	if (!view || ckpt_view_find(view, at->file, &file, &err)) {
		if (view)
			shelf_put(srv->shelf, at->step);
		return srv_send_error(to, MHD_HTTP_NOT_FOUND, "no such file; / lists all");
	}
	s = calloc(1, sizeof(*s));
	if (!s) {
		shelf_put(srv->shelf, at->step);
		return MHD_NO;
	}
	s->srv = srv;
	s->step = at->step;
	s->view = view;
	s->file = file;
	ckpt_view_file_get(view, file, &s->info, NULL);
	return send_parts(s, to, is_head);
}
