/* ck_manifest.c -- see ck_manifest.h: reading and comparing. */
#include "libckpt/verify/ck_manifest.h"

#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/io/ck_tree.h"
#include "libckpt/json/ck_json.h"
#include "libckpt/json/ck_json_out.h"

static int bad(const char *path, const char *what, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_CORRUPT, path, CKPT_NO_OFFSET, "%s", what);
}

static int take_file(struct ck_manifest *m, const struct ck_json *doc, uint64_t obj,
		     const char *path, struct ckpt_err *err)
{
	const uint64_t name = ck_json_get(doc, obj, "name");
	struct ck_manifest_file *f = &m->file[m->n];

	if (doc->tok[obj].type != CK_JSON_OBJECT || name == UINT64_MAX ||
	    doc->tok[name].type != CK_JSON_STRING || !doc->tok[name].str_len ||
	    strlen(doc->tok[name].str) != doc->tok[name].str_len ||
	    !ck_json_u64(doc, ck_json_get(doc, obj, "bytes"), &f->bytes) ||
	    !ck_json_hash(doc, ck_json_get(doc, obj, "xxh3_128"), &f->hash) ||
	    !ck_json_hash(doc, ck_json_get(doc, obj, "quick"), &f->quick))
		return bad(path, "an entry of \"files\" lacks its name, bytes or hashes", err);
	f->name = ck_arena_strdup(&m->arena, doc->tok[name].str);
	if (!f->name)
		return ck_fail_nomem(err, "a file name", doc->tok[name].str_len);
	m->n++;
	return 0;
}

static int take_files(struct ck_manifest *m, const struct ck_json *doc, const char *path,
		      struct ckpt_err *err)
{
	const uint64_t list = ck_json_get(doc, 0, "files");
	const uint64_t format = ck_json_get(doc, 0, "format");
	int rc = 0;

	if (format == UINT64_MAX || doc->tok[format].type != CK_JSON_STRING ||
	    strcmp(doc->tok[format].str, "zckpt-manifest/1"))
		return bad(path, "it is not a manifest of a known version", err);
	if (list == UINT64_MAX || doc->tok[list].type != CK_JSON_ARRAY)
		return bad(path, "the list \"files\" is missing", err);
	m->file = ck_arena_zalloc(&m->arena, (doc->tok[list].n + 1ull) * sizeof(*m->file));
	if (!m->file)
		return ck_fail_nomem(err, "a manifest", doc->tok[list].n);
	for (uint64_t i = list + 1; !rc && i < doc->tok[list].next; i = doc->tok[i].next)
		rc = take_file(m, doc, i, path, err);
	return rc;
}

static int take_tag(struct ck_manifest *m, const struct ck_json *doc, struct ckpt_err *err)
{
	const uint64_t obj = ck_json_get(doc, 0, "checkpoint");
	const uint64_t i = obj == UINT64_MAX || doc->tok[obj].type != CK_JSON_OBJECT ? UINT64_MAX :
			   ck_json_get(doc, obj, "tag");

	m->tag = ck_arena_strdup(&m->arena, i == UINT64_MAX || doc->tok[i].type != CK_JSON_STRING ?
				 "" : doc->tok[i].str);
	return m->tag ? 0 : ck_fail_nomem(err, "a tag", 0);
}

int ck_manifest_read(struct ck_manifest *m, const struct ckpt *ck, const char *path,
		     struct ckpt_err *err)
{
	struct ck_json doc = CK_JSON_INIT;
	enum ck_fs_kind kind;
	char *text = NULL;
	uint64_t len;
	int rc = ck_look_kind(ck->pool, path, &kind, NULL, err);

	if (rc || kind == CK_FS_NOTHING)
		return rc;
	m->there = true;
	if (kind != CK_FS_FILE)
		return bad(path, "it is not a file", err);
	rc = ck_look_read(ck->pool, path, ck->limits.header_bytes, &text, &len, err);
	if (!rc)
		rc = ck_json_parse(&doc, text, len, &ck->limits, 0, path, err);
	if (!rc && doc.tok[0].type != CK_JSON_OBJECT)
		rc = bad(path, "it is not a JSON object", err);
	if (!rc)
		rc = ck_json_check_sum(&doc, path, err);
	if (!rc)
		rc = take_files(m, &doc, path, err);
	if (!rc)
		rc = take_tag(m, &doc, err);
	ck_json_release(&doc);
	ck_free(text);
	return rc;
}

void ck_manifest_release(struct ck_manifest *m)
{
	ck_arena_release(&m->arena);
	memset(m, 0, sizeof(*m));
}

/* --------------------------------------------------------------------- comparing */

static void compare_one(const struct ck_manifest_file *f, const struct ck_folder_file *have,
			const struct ck_scan_file *s, bool hashed, struct ck_findings *out)
{
	char is[33], said[33];

	if (!have) {
		ck_findings_add(out, CK_FINDING_MANIFEST_FILE_MISSING, f->name,
				"missing; the manifest lists it with %" PRIu64 " bytes", f->bytes);
		return;
	}
	if (have->bytes != f->bytes) {
		ck_findings_add(out, CK_FINDING_MANIFEST_SIZE_WRONG, f->name,
				"it has %" PRIu64 " bytes, the manifest says %" PRIu64,
				have->bytes, f->bytes);
		return;
	}
	if (ck_hash128_equal(hashed ? s->hash : s->quick, hashed ? f->hash : f->quick))
		return;
	ck_hash128_print(hashed ? s->hash : s->quick, is);
	ck_hash128_print(hashed ? f->hash : f->quick, said);
	ck_findings_add(out, CK_FINDING_MANIFEST_HASH_WRONG, f->name,
			"XXH3-128 of %s is %s, the manifest says %s", hashed ? "the file" :
			"its directory or first bytes", is, said);
}

/* Not where the step itself was given, by whatever name ("."). */
static void compare_tag(const struct ck_manifest *m, struct ckpt *ck)
{
	const char *tag = ck->ix.tag ? ck->ix.tag : "";

	if (*m->tag && *tag && strcmp(m->tag, tag) && strcmp(ck->path[0], ck->ix.path))
		ck_findings_add(&ck->findings, CK_FINDING_MANIFEST_TAG_DIFFERS, ck->ix.path,
				"the manifest was written for the step %s, which is now called "
				"%s", m->tag, tag);
}

int ck_manifest_compare(const struct ck_manifest *m, const struct ck_folder *folder,
			const struct ck_scan *scan, bool hashed, struct ckpt_err *err)
{
	int rc = 0;
	struct ck_findings *out = &scan->ck->findings;
	struct ck_map listed = CK_MAP_INIT;

	compare_tag(m, scan->ck);
	for (uint64_t i = 0; !rc && i < m->n; i++) {
		const char *name = m->file[i].name;
		const struct ck_folder_file *have = ck_folder_find(folder, name);

		compare_one(&m->file[i], have, have ? &scan->file[have - folder->file] : NULL,
			    hashed, out);
		rc = ck_map_add(&listed, name, strlen(name), i, NULL, err);
		rc = rc < 0 ? rc : 0;
	}
	for (uint64_t i = 0; !rc && i < folder->n; i++)
		if (!ck_map_find(&listed, folder->file[i].name, strlen(folder->file[i].name), NULL))
			ck_findings_add(out, CK_FINDING_MANIFEST_FILE_EXTRA,
					folder->file[i].name, "the manifest does not list it");
	ck_map_release(&listed);
	return rc;
}
