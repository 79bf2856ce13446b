/*
 * stp_check.c -- what an index of the consolidated files says of the same tensors.
 *
 * With enable_consolidation torch keeps the pieces in the folder "sharded" and writes whole files
 * and their index, model.safetensors.index.json, in the one above.  The index lists all names and
 * the bytes of all tensors, so it tells of a missing last rank.  Without it nothing does.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/dcp_st/stp.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/json/ck_json.h"
#include "libckpt/tensor/ck_dtype.h"

#define INDEX "model.safetensors.index.json"

/* Its path, in the arena; NULL = there is none. */
static int find(struct stp *d, const char **path_out, struct ckpt_err *err)
{
	const struct ck_tree_entry *e = ck_tree_find(d->tree, INDEX);
	char *above, *path;
	enum ck_fs_kind kind;
	int rc;

	*path_out = NULL;
	if (e && !e->is_dir) {
		*path_out = e->path;
		return 0;
	}
	if (strcmp(ck_fs_base(d->where), "sharded") != 0)
		return 0;
	above = ck_fs_parent(d->where);
	path = above ? ck_fs_join(above, INDEX) : NULL;
	rc = path ? ck_look_kind(d->in->pool, path, &kind, NULL, err) :
		    ck_fail_nomem(err, "a path", 0);
	if (!rc && kind == CK_FS_FILE) {
		*path_out = ck_arena_strdup(&d->arena, path);
		rc = *path_out ? 0 : ck_fail_nomem(err, "a path", 0);
	}
	ck_free(above);
	ck_free(path);
	return rc;
}

/* How many names of the index the pieces have; UINT64_MAX: not all. */
static uint64_t check_names(struct stp *d, const struct ck_json *doc, const char *path)
{
	const uint64_t map = ck_json_get(doc, 0, "weight_map");
	uint64_t at = map + 1;

	uint64_t n = 0;

	if (map == UINT64_MAX || doc->tok[map].type != CK_JSON_OBJECT)
		return UINT64_MAX;
	for (uint32_t i = 0; i < doc->tok[map].n; i++) {
		const struct ck_json_tok *name = &doc->tok[at];

		if (ck_map_find(&d->by_name, name->str, name->str_len, NULL))
			n++;
		else
			ck_findings_add(d->f, CK_FINDING_NAMES_WRONG, name->str,
					"%s lists it, but no rank's file has it (is a file "
					"missing, or the index of another save?)", path);
		at = doc->tok[at + 1].next;
	}
	return n == doc->tok[map].n ? n : UINT64_MAX;
}

/* All bytes of all tensors; false if some are left out. */
static bool count_bytes(const struct stp *d, uint64_t *out)
{
	uint64_t n, bytes;

	*out = 0;
	for (uint64_t i = 0; i < d->ntensors; i++) {
		const struct stp_tensor *t = &d->tensor[i];

		if (t->odd || ck_shape_numel(t->shape, t->ndim, &n, NULL) ||
		    ck_dtype_bytes((enum ckpt_dtype)t->dtype, n, &bytes, NULL))
			return false;
		*out += bytes;
	}
	return true;
}

static void note_uncounted(struct stp *d)
{
	ck_findings_add(d->f, CK_FINDING_RANKS_UNCOUNTED, d->where,
			"%" PRIu64 " rank%s files, and nothing says of how many; if the run had "
			"more, the tensors lack their ends (with model.safetensors.index.json "
			"of the joined files zckpt compares the sizes)", d->ranks,
			d->ranks == 1 ? " has" : "s have");
}

/* True if the bytes are those that the index says. */
static bool check_total(struct stp *d, const struct ck_json *doc, const char *path)
{
	const uint64_t meta = ck_json_get(doc, 0, "metadata");
	uint64_t said, is;

	if (meta == UINT64_MAX || doc->tok[meta].type != CK_JSON_OBJECT ||
	    !ck_json_u64(doc, ck_json_get(doc, meta, "total_size"), &said))
		note_uncounted(d);
	else if (count_bytes(d, &is) && said == is)
		return true;
	else if (count_bytes(d, &is))
		ck_findings_add(d->f, CK_FINDING_LENGTH_WRONG, path,
				"total_size says %" PRIu64 " bytes, the tensors joined of the "
				"pieces have %" PRIu64 " (is the last rank's file missing, or the "
				"index of another save?)", said, is);
	return false;
}

int ck_stp_check(struct stp *d, struct ckpt_err *err)
{
	struct ck_json doc = CK_JSON_INIT;
	struct ckpt_err why = { 0 };
	const char *path;
	char *text = NULL;
	uint64_t len;
	int rc = find(d, &path, err);

	if (!rc && !path)
		note_uncounted(d);
	if (rc || !path)
		return rc;
	rc = ck_look_read(d->in->pool, path, d->in->limits.header_bytes, &text, &len, &why);
	if (!rc)
		rc = ck_json_parse(&doc, text, len, &d->in->limits, 0, path, &why);
	if (rc == -CKPT_E_NOMEM || rc == -CKPT_E_LIMIT) {
		rc = ck_fail(err, why.code, why.where, why.offset, "%s", why.msg);
	} else if (rc || doc.tok[0].type != CK_JSON_OBJECT) {
		ck_findings_add(d->f, CK_FINDING_FORMAT_NOTE, path,
				"it is no index, so the pieces are not compared with it");
		note_uncounted(d);
		rc = 0;
	} else {
		const uint64_t names = check_names(d, &doc, path);

		d->is_proven = check_total(d, &doc, path) && names == d->ntensors;
	}
	ck_json_release(&doc);
	ck_free(text);
	return rc;
}
