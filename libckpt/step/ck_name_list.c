/* See ck_name_list.h. */
#include "libckpt/step/ck_name_list.h"

#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_tree.h"

int ck_name_list_each(const char *path, const struct ckpt_limits *limits, ck_name_list_fn *fn,
		      void *arg, struct ckpt_err *err)
{
	char *text = NULL;
	uint64_t len, line = 0;
	int rc = ck_file_read(path, limits->header_bytes, &text, &len, err);

	if (!rc && strlen(text) != len)
		rc = ck_fail(err, CKPT_E_CORRUPT, path, strlen(text),
			     "the list of names has a NUL byte");
	for (char *p = text; !rc && p;) {
		char *end = strchr(p, '\n');

		if (end)
			*end = '\0';
		if (p[0] && p[strlen(p) - 1] == '\r')
			p[strlen(p) - 1] = '\0';
		line++;
		if (*p)
			rc = fn(arg, line, p, err);
		p = end ? end + 1 : NULL;
	}
	ck_free(text);
	return rc;
}
