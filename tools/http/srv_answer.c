/* srv_answer.c -- see srv_send.h: which answer a request gets. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "srv_send.h"

#define PATH_MOST 4096

static const char html[] = "text/html; charset=utf-8";

/* Texts are made in static buffers (cli.h): one page at a time. */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

/*
 * A page of another origin can have a name that leads to this machine (DNS rebinding); its requests
 * have that name.
 */
static int is_own_host(const char *host)
{
	static const char *const names[] = { "localhost", "127.0.0.1", "[::1]" };
	const char *end;

	if (!host)	/* HTTP/1.0: no browser */
		return 1;
	end = *host == '[' ? strchr(host, ']') : strchr(host, ':');
	end = !end ? host + strlen(host) : *end == ']' ? end + 1 : end;
	if (*end && (*end != ':' || end[1 + strspn(end + 1, "0123456789")]))
		return 0;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strlen(names[i]) == (size_t)(end - host) &&
		    !strncasecmp(names[i], host, (size_t)(end - host)))
			return 1;
	return !strncmp(host, "127.", 4) && host + strspn(host, "0123456789.") >= end;
}

/* No empty word, no "." and "..", no control. */
static int is_plain_path(const char *path)
{
	for (const char *s = path; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f || *s == '\\')
			return 0;
	for (const char *s = path; *s;) {
		const size_t n = strcspn(s, "/");

		if (!n || (n == 1 && *s == '.') || (n == 2 && s[0] == '.' && s[1] == '.'))
			return 0;
		s += n + (s[n] == '/');
	}
	return 1;
}

static enum MHD_Result send_made(struct srv *srv, struct MHD_Connection *to, const char *type,
				 char *(*make)(struct srv *srv, const struct shelf_place *at,
					       struct ckpt_err *err),
				 const struct shelf_place *at)
{
	struct ckpt_err err = { 0 };
	char *text;

	pthread_mutex_lock(&making);
	text = make(srv, at, &err);
	pthread_mutex_unlock(&making);
	return text ? srv_send_text(to, MHD_HTTP_OK, type, text) :
	       srv_send_error(to, srv_status_of(&err), "%s: %s", err.where, err.msg);
}

static enum MHD_Result send_index(struct srv *srv, struct MHD_Connection *to,
				  const struct shelf_place *at)
{
	const char *accept = MHD_lookup_connection_value(to, MHD_HEADER_KIND, "Accept");
	const char *json = accept ? strstr(accept, "application/json") : NULL;
	const char *page = accept ? strstr(accept, "text/html") : NULL;

	if (json && (!page || json < page))
		return send_made(srv, to, "application/json", srv_index_json, at);
	return send_made(srv, to, html, srv_index_html, at);
}

static enum MHD_Result send_findings(struct srv *srv, struct MHD_Connection *to)
{
	char *text = shelf_log_text(srv->shelf);

	return srv_send_text(to, MHD_HTTP_OK, "text/plain; charset=utf-8", text);
}

/* A folder has a slash at its end, so that links in its page lead into it. */
static enum MHD_Result send_redirect(struct MHD_Connection *to, const char *url)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
	const char *last = strrchr(url, '/');
	enum MHD_Result result;
	char *place;

	if (!r)
		return MHD_NO;
	/* "./": a name with a colon would be a scheme */
	place = cli_format("./%s/", last ? last + 1 : url);
	MHD_add_response_header(r, "Location", place);
	result = MHD_queue_response(to, MHD_HTTP_MOVED_PERMANENTLY, r);
	MHD_destroy_response(r);
	cli_free(place);
	return result;
}

static enum MHD_Result send_place(struct srv *srv, struct MHD_Connection *to, const char *url,
				  const char *path, int is_head)
{
	struct shelf_place at;
	const size_t n = strlen(path);

	shelf_find(srv->shelf, path, &at);
	if (at.kind == SHELF_FILE && !at.form && !strcmp(at.file, "report"))
		return send_made(srv, to, html, srv_report, &at);
	if (n >= 10 && !strcmp(path + n - 10, "index.json") && (n == 10 || path[n - 11] == '/')) {
		char *folder = cli_format("%.*s", (int)(n - 10), path);

		shelf_find(srv->shelf, folder, &at);
		cli_free(folder);
		if (at.kind == SHELF_TOP || at.kind == SHELF_FOLDER)
			return send_made(srv, to, "application/json", srv_index_json, &at);
	}
	if (at.kind == SHELF_FILE)
		return srv_send_file(srv, to, &at, is_head);
	if (at.kind == SHELF_NOTHING)
		return srv_send_error(to, MHD_HTTP_NOT_FOUND, "no such file; / lists all");
	return n && path[n - 1] != '/' ? send_redirect(to, url) : send_index(srv, to, &at);
}

/* "report" is that of the step that the run means. */
static const char *default_report(const struct srv *srv, char path[PATH_MOST])
{
	const struct shelf *shelf = srv->shelf;

	snprintf(path, PATH_MOST, "%s/report", shelf->latest ? shelf->latest :
		 shelf->step[shelf->n - 1].name);
	return path;
}

enum MHD_Result srv_answer(struct srv *srv, struct MHD_Connection *to, const char *url,
			   const char *method)
{
	const char *host = MHD_lookup_connection_value(to, MHD_HEADER_KIND, "Host");
	const int is_head = !strcmp(method, "HEAD");
	char path[PATH_MOST];

	if (srv->loopback && !is_own_host(host))
		return srv_send_error(to, MHD_HTTP_FORBIDDEN, "this server answers requests to "
				      "localhost only; --bind changes that");
	if (!is_head && strcmp(method, "GET"))
		return srv_send_error(to, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD are "
				      "answered: nothing here can be changed");
	if (strlen(url) >= PATH_MOST)
		return srv_send_error(to, MHD_HTTP_URI_TOO_LONG, "the path is longer than %d bytes",
				      PATH_MOST);
	if (*url != '/' || srv_decode(url + 1, path))
		return srv_send_error(to, MHD_HTTP_BAD_REQUEST, "the path is no path: a wrong "
				      "%%-escape, or a NUL");
	if (!is_plain_path(path))
		return srv_send_error(to, MHD_HTTP_NOT_FOUND, "no such file; / lists all");
	if (!strcmp(path, "findings"))
		return send_findings(srv, to);
	if (!strcmp(path, "report") && !srv->shelf->single)
		return send_place(srv, to, url, default_report(srv, path), is_head);
	return send_place(srv, to, url, path, is_head);
}
