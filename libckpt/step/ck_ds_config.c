/* ck_ds_config.c -- see ck_ds_config.h. */
#include "libckpt/step/ck_ds_config.h"

#include <string.h>
#include <strings.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_tree.h"

static bool is_yaml(const char *path)
{
	const char *dot = strrchr(path, '.');

	return dot && (!strcasecmp(dot, ".yaml") || !strcasecmp(dot, ".yml"));
}

/* The DeepSpeed file that a line of it names, for the message; "" if it names none. */
static void named_file(const char *text, uint64_t len, char out[200])
{
	static const char key[] = "deepspeed_config_file:";
	const char *p = memmem(text, len, key, sizeof(key) - 1), *end = text + len;
	size_t n = 0;

	*out = 0;
	if (!p)
		return;
	for (p += sizeof(key) - 1; p < end && (*p == ' ' || *p == '"' || *p == '\''); p++)
		;
	while (p + n < end && n < 199 && !strchr("\r\n\"'#", p[n]))
		n++;
	while (n && p[n - 1] == ' ')
		n--;
	memcpy(out, p, n);
	out[n] = 0;
	if (!strcmp(out, "none") || !strcmp(out, "null"))
		*out = 0;
}

static int refuse_yaml(const char *path, const char *text, uint64_t len, struct ckpt_err *err)
{
	char file[200];

	named_file(text, len, file);
	if (*file)
		return ck_fail(err, CKPT_E_UNSUPPORTED, path, CKPT_NO_OFFSET,
			       "this is accelerate's YAML, expected DeepSpeed's JSON: give the "
			       "file that it names, --ds-config %s",
			       file);
	return ck_fail(err, CKPT_E_UNSUPPORTED, path, CKPT_NO_OFFSET,
		       "this is accelerate's YAML, expected DeepSpeed's JSON: `ztrain config %s > "
		       "ds.json` makes it",
		       path);
}

int ck_ds_config_read(const char *path, uint64_t max_bytes, const struct ckpt_limits *limits,
		      struct ck_arena *arena, const struct ck_val **out, struct ckpt_err *err)
{
	struct ck_json doc = CK_JSON_INIT;
	char *text = NULL;
	uint64_t len;
	int rc = ck_file_read(path, max_bytes, &text, &len, err);

	if (!rc && is_yaml(path))
		rc = refuse_yaml(path, text, len, err);
	if (!rc)
		rc = ck_json_parse(&doc, text, len, limits, CK_JSON_HJSON, path, err);
	if (!rc && (!doc.n || doc.tok[0].type != CK_JSON_OBJECT))
		rc = ck_fail(err, CKPT_E_CORRUPT, path, 0, "a DeepSpeed config must be a JSON "
			     "object");
	if (!rc) {
		*out = ck_json_val(&doc, 0, arena);
		if (!*out)
			rc = ck_fail_nomem(err, "a configuration", len);
	}
	ck_json_release(&doc);
	ck_free(text);
	return rc;
}
