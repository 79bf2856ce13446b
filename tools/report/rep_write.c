/* rep_write.c -- report_write(): opens, verifies or compares, and writes the page's parts. */
#include <errno.h>
#include <string.h>

#include "rep_data.h"

static int fail(struct ckpt_err *err, enum ckpt_code code, const char *what)
{
	if (err && !err->code) {
		err->code = code;
		err->offset = CKPT_NO_OFFSET;
		snprintf(err->msg, sizeof(err->msg), "%s", what);
	}
	return -(int)code;
}

static int fail_write(struct ckpt_err *err)
{
	return fail(err, errno == ENOSPC ? CKPT_E_NOSPACE : CKPT_E_IO,
		    errno ? strerror(errno) : "the page could not be written");
}

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

static int verify(const struct report_opts *opts, struct ckpt *ck, struct rep_checked *checked,
		  struct ckpt_err *err)
{
	struct ckpt_verify_opts how = { .size = sizeof(how), .run = opts->run,
					.flags = CKPT_VERIFY_FULL };
	int rc;

	if (!opts->verify)
		return 0;
	rc = ckpt_verify(ck, &how, &checked->v, err);
	checked->yes = !rc;
	return rc;
}

/* The parts of one checkpoint, as members of an object that is open. */
static int put_checkpoint(struct rep *rep, struct rep_checked *checked)
{
	ckpt_info_get(rep->ck, &rep->info);	/* verifying adds findings */
	rep_head(rep, checked);
	rep_sizes(rep);
	rep_steps(rep);
	rep_tensors(rep);
	rep_lanes(rep);
	return rep_stats(rep);
}

static int put_data(const struct report_opts *opts, struct ckpt *a, struct ckpt *b,
		    struct rep_checked *checked, FILE *out, const char *title,
		    struct ckpt_err *err)
{
	struct json json;
	struct rep rep = { .opts = opts, .ck = a, .json = &json, .err = err,
			   .log = &checked->log };
	int rc = 0;

	json_begin(&json, out, "report");
	json_text(&json, "title", title);
	json_text(&json, "kind", b ? "diff" : "checkpoint");
	ckpt_info_get(a, &rep.info);
	if (b)
		rep_diff(&rep, &checked->two);
	else
		rc = put_checkpoint(&rep, checked);
	json_close(&json, '}');
	return rc;
}

static int put_page(const struct report_opts *opts, struct ckpt *a, struct ckpt *b,
		    struct rep_checked *checked, FILE *out, const char *title,
		    struct ckpt_err *err)
{
	FILE *data;
	int rc;

	if (opts->json)
		return put_data(opts, a, b, checked, out, title, err);
	rep_page_begin(out, title);
	data = rep_page_data(out);
	if (!data)
		return fail(err, CKPT_E_NOMEM, "no memory");
	rc = put_data(opts, a, b, checked, data, title, err);
	if (fclose(data) && !rc)
		rc = fail_write(err);
	rep_page_end(out);
	return rc;
}

static char *title_of(const struct ckpt *a, const struct ckpt *b)
{
	struct ckpt_info info, other;

	ckpt_info_get(a, &info);
	if (!b)
		return cli_strdup(base_of(info.path));
	ckpt_info_get(b, &other);
	return cli_format("%s and %s", base_of(info.path), base_of(other.path));
}

int report_write_of(const struct report_opts *opts, struct ckpt *a, struct ckpt *b, FILE *out,
		    struct ckpt_err *err)
{
	struct rep_checked checked = { 0 };
	struct ckpt_err own = { 0 };
	int rc;

	err = err ? err : &own;
	rc = rep_log_read(opts, &checked.log, err);
	if (!rc)
		rc = verify(opts, a, &checked, err);
	if (!rc && b)
		rc = verify(opts, b, &checked, err);
	if (!rc && b)
		rc = rep_compare(opts, a, b, &checked.two, err);
	if (!rc) {
		char *title = title_of(a, b);

		rc = put_page(opts, a, b, &checked, out, title, err);
		cli_free(title);
	}
	log_release(&checked.log);
	ckpt_diff_free(&checked.two.diff);
	errno = rc ? errno : 0;
	if (!rc && (fflush(out) || ferror(out)))
		rc = fail_write(err);
	return rc;
}

static int open_one(const struct report_opts *opts, size_t i, struct ckpt **out,
		    struct ckpt_err *err)
{
	struct ckpt_open_opts how = { .size = sizeof(how), .limits = opts->limits,
				      .tag = i ? opts->tag2 : opts->tag };

	return ckpt_open(&opts->path[i], 1, &how, out, err);
}

int report_write(const struct report_opts *opts, FILE *out, struct ckpt_err *err)
{
	struct ckpt *ck[2] = { NULL, NULL };
	int rc = 0;

	if (opts->n_paths < 1 || opts->n_paths > 2)
		return fail(err, CKPT_E_USAGE, "a report is of one checkpoint or of two");
	for (size_t i = 0; i < opts->n_paths && !rc; i++)
		rc = open_one(opts, i, &ck[i], err);
	if (!rc)
		rc = report_write_of(opts, ck[0], ck[1], out, err);
	ckpt_close(ck[1]);
	ckpt_close(ck[0]);
	return rc;
}
