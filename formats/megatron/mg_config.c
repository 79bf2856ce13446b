/* mg_config.c -- config.json of transformers: where it is, and its architecture. */
#include <string.h>

#include "formats/megatron/mg_sizes.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_mount.h"

#define MOST ((uint64_t)16 << 20)
#define ABOVE 2		/* folders above the iteration's that are looked in */

static void read_architecture(struct mg_config *c)
{
	const uint64_t list = ck_json_given(&c->doc, 0, "architectures");

	c->architecture = "";
	if (list != UINT64_MAX && c->doc.tok[list].type == CK_JSON_ARRAY && c->doc.tok[list].n &&
	    c->doc.tok[list + 1].type == CK_JSON_STRING)
		c->architecture = c->doc.tok[list + 1].str;
}

/* 'path' becomes the configuration's. */
static int read_file(struct mg_config *c, struct ck_fdpool *pool, char *path,
		     const struct ckpt_limits *limits, struct ckpt_err *err)
{
	uint64_t len;
	int rc = ck_look_read(pool, path, MOST, &c->text, &len, err);

	c->path = path;
	if (!rc)
		rc = ck_json_parse(&c->doc, c->text, len, limits, 0, path, err);
	if (!rc && c->doc.tok[0].type != CK_JSON_OBJECT)
		rc = ck_fail(err, CKPT_E_FORMAT, path, CKPT_NO_OFFSET,
			     "this JSON is no configuration of a model: it is no object");
	if (rc)
		ck_mg_config_release(c);
	else
		read_architecture(c);
	return rc;
}

int ck_mg_config_read(struct mg_config *c, const char *path, const struct ckpt_limits *limits,
		      struct ckpt_err *err)
{
	enum ck_fs_kind kind;
	char *file;
	int rc = ck_fs_kind(path, &kind, err);

	if (rc)
		return rc;
	if (kind == CK_FS_NOTHING)
		return ck_fail(err, CKPT_E_NOTFOUND, path, CKPT_NO_OFFSET,
			       "--model-config takes config.json of the model, or its folder; no "
			       "such file or folder");
	file = kind == CK_FS_DIR ? ck_fs_join(path, "config.json") : ck_strdup(path);
	return file ? read_file(c, NULL, file, limits, err) :
		      ck_fail_nomem(err, "a path", strlen(path));
}

/* A configuration of a run's own, as that of a trainer, is passed over. */
static int look_in(struct mg_config *c, struct ck_fdpool *pool, const char *dir,
		   const struct ckpt_limits *limits, struct ckpt_err *err)
{
	enum ck_fs_kind kind = CK_FS_NOTHING;
	char *file = ck_fs_join(dir, "config.json");
	int rc = file ? ck_look_kind(pool, file, &kind, NULL, err) :
			ck_fail_nomem(err, "a path", strlen(dir));

	if (rc || kind != CK_FS_FILE) {
		ck_free(file);
		return rc;
	}
	rc = read_file(c, pool, file, limits, err);
	if (!rc && !*c->architecture)
		ck_mg_config_release(c);
	return rc;
}

int ck_mg_config_find(struct mg_config *c, struct ck_fdpool *pool, const char *step,
		      const struct ckpt_limits *limits, struct ckpt_err *err)
{
	char *dir = ck_strdup(step);
	int rc = 0;

	for (int up = 0; !rc && !c->path && up <= ABOVE; up++) {
		char *above;

		if (!dir)
			return ck_fail_nomem(err, "a path", strlen(step));
		rc = look_in(c, pool, dir, limits, err);
		above = ck_fs_parent(dir);
		if (above && !strcmp(above, dir))
			up = ABOVE;
		ck_free(dir);
		dir = above;
	}
	ck_free(dir);
	return rc;
}

void ck_mg_config_release(struct mg_config *c)
{
	ck_json_release(&c->doc);
	ck_free(c->text);
	ck_free(c->path);
	*c = (struct mg_config)MG_CONFIG_INIT;
}
