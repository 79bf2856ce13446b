/*
 * ck_pt_storage.c -- persistent ids: ("storage", class, key, location, numel), in legacy
 * streams with a sixth item for views into a storage.
 *
 * A key is the name of a record or an entry of a list, never a path.  All mentions of a
 * key must agree in type and length.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/torch_pt/ck_pt_priv.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/zip/ck_zip.h"

#define RECORD_NAME 1024
#define INFLATE_AT_OPEN ((uint64_t)16 << 20)

static const struct {
	const char *name;
	enum ckpt_dtype dtype;
} storage_classes[] = {
	{ "FloatStorage", CKPT_F32 }, { "BFloat16Storage", CKPT_BF16 },
	{ "HalfStorage", CKPT_F16 }, { "DoubleStorage", CKPT_F64 },
	{ "LongStorage", CKPT_I64 }, { "IntStorage", CKPT_I32 },
	{ "ShortStorage", CKPT_I16 }, { "CharStorage", CKPT_I8 },
	{ "ByteStorage", CKPT_U8 }, { "BoolStorage", CKPT_BOOL },
	{ "ComplexFloatStorage", CKPT_C64 }, { "ComplexDoubleStorage", CKPT_C128 },
	{ "QInt8Storage", CKPT_QI8 }, { "QUInt8Storage", CKPT_QU8 },
	{ "QInt32Storage", CKPT_QI32 }, { "QUInt4x2Storage", CKPT_QU4X2 },
	{ "QUInt2x4Storage", CKPT_QU2X4 },
};

bool ck_pt_is_torch_module(const char *module)
{
	return !strcmp(module, "torch") || !strcmp(module, "torch.cuda");
}

bool ck_pt_count(const struct ck_val *v, uint64_t *out)
{
	if (!v || v->kind != CK_VAL_INT || v->u.i < 0)
		return false;
	*out = (uint64_t)v->u.i;
	return true;
}

int ck_pt_bad(const struct ck_pt *pt, struct ckpt_err *err, const char *what)
{
	return ck_fail(err, CKPT_E_CORRUPT, pt->where, CKPT_NO_OFFSET, "%s", what);
}

/* ck_dtype_bytes() with a place. */
int ck_pt_bytes(const struct ck_pt *pt, uint8_t dtype, uint64_t numel, uint64_t *out,
		struct ckpt_err *err)
{
	struct ckpt_err e = { 0 };

	if (!ck_dtype_bytes((enum ckpt_dtype)dtype, numel, out, &e))
		return 0;
	return ck_fail(err, e.code, pt->where, CKPT_NO_OFFSET, "%s", e.msg);
}

/* Keys are names of archive records: nothing that could be a path. */
static bool is_sound_key(const struct ck_val *v)
{
	const char *key = ck_val_str(v);

	return key && v->u.str.len && v->u.str.len <= 255 && !strchr(key, '/') &&
	       !strchr(key, '\\') && strcmp(key, ".") && strcmp(key, "..");
}

static int class_read(const struct ck_pt *pt, const struct ck_val *cls, struct ck_pt_pid *pid,
		      struct ckpt_err *err)
{
	if (!cls || cls->kind != CK_VAL_GLOBAL)
		return ck_pt_bad(pt, err, "the storage class of a persistent id is not a name");
	pid->untyped = ck_val_is_global(cls, "torch.storage", "UntypedStorage") ||
		       ck_val_is_global(cls, "torch", "UntypedStorage");
	pid->dtype = pid->untyped ? CKPT_U8 : 0;
	for (size_t i = 0; !pid->dtype && i < CK_ARRAY_LEN(storage_classes); i++)
		if (ck_pt_is_torch_module(cls->u.global.module) &&
		    !strcmp(cls->u.global.name, storage_classes[i].name))
			pid->dtype = (uint8_t)storage_classes[i].dtype;
	if (!pid->dtype)
		return ck_fail(err, CKPT_E_CORRUPT, pt->where, CKPT_NO_OFFSET,
			       "%.100s.%.100s is not a storage class of "
			       "torch", cls->u.global.module,
			       cls->u.global.name);
	return 0;
}

static int view_read(const struct ck_pt *pt, const struct ck_val *view, struct ck_pt_pid *pid,
		     struct ckpt_err *err)
{
	uint64_t end;

	if (ck_val_is_none(view))
		return 0;
	if (view->kind != CK_VAL_TUPLE || view->u.seq.n != 3 ||
	    !is_sound_key(view->u.seq.item[0]) ||
	    !ck_pt_count(view->u.seq.item[1], &pid->view_off) ||
	    !ck_pt_count(view->u.seq.item[2], &pid->view_numel))
		return ck_pt_bad(pt, err, "a storage view is not (key, offset, size)");
	if (ck_add_over(pid->view_off, pid->view_numel, &end) || end > pid->numel)
		return ck_fail(err, CKPT_E_CORRUPT, pt->where, CKPT_NO_OFFSET,
			       "a storage view of %" PRIu64 " elements at element %" PRIu64 " "
			       "exceeds its storage of %" PRIu64,
			       pid->view_numel, pid->view_off, pid->numel);
	pid->view_key = view->u.seq.item[0]->u.str.p;
	return 0;
}

static int pid_read(const struct ck_pt *pt, const struct ck_val *v, struct ck_pt_pid *pid,
		    struct ckpt_err *err)
{
	const uint64_t want = pt->legacy ? 6 : 5;
	struct ck_val *const *item;
	uint64_t bytes;
	int rc;

	*pid = (struct ck_pt_pid){ 0 };
	if (v->kind != CK_VAL_TUPLE || v->u.seq.n != want ||
	    !ck_val_is_str(v->u.seq.item[0], "storage"))
		return ck_pt_bad(
			pt, err,
			"a persistent id is not (\"storage\", class, key, location, numel): not "
			"written by torch.save, or with pickle protocol 0");
	item = v->u.seq.item;
	rc = class_read(pt, item[1], pid, err);
	if (rc)
		return rc;
	if (!is_sound_key(item[2]))
		return ck_pt_bad(pt, err, "a storage key is not a plain name");
	if (!ck_val_str(item[3]))
		return ck_pt_bad(pt, err, "a storage location is not a string");
	if (!ck_pt_count(item[4], &pid->numel))
		return ck_pt_bad(pt, err, "a storage length is not a count");
	pid->key = item[2]->u.str.p;
	pid->location = item[3]->u.str.p;
	rc = ck_pt_bytes(pt, pid->dtype, pid->numel, &bytes, err);
	if (!rc && pt->legacy)
		rc = view_read(pt, item[5], pid, err);
	return rc;
}

const struct ck_zip_entry *ck_pt_record_find(const struct ck_pt *pt, const char *record)
{
	char name[RECORD_NAME];
	const int n = snprintf(name, sizeof(name), "%s/%s", pt->prefix, record);

	return n < 0 || (size_t)n >= sizeof(name) ? NULL : ck_zip_entry_find(pt->zip, name);
}

/*
 * torch hands out uninitialised memory when a deflate stream is damaged; so a packed
 * storage of moderate size is inflated once, to see that it can be.
 */
static int inflate_check(const struct ck_pt *pt, const struct ck_zip_entry *e,
			 struct ckpt_err *err)
{
	uint8_t *data;
	int rc;

	if (e->bytes > INFLATE_AT_OPEN)
		return 0;
	rc = ck_zip_read(pt->zip, e, INFLATE_AT_OPEN, &data, err);
	if (!rc)
		ck_free(data);
	return rc;
}

/* Where the bytes of a storage of an archive are. */
static int find_bytes(struct ck_pt *pt, struct ck_pt_storage *s, struct ckpt_err *err)
{
	const struct ck_zip_entry *e;
	char record[300];
	uint64_t bytes;
	int rc;

	snprintf(record, sizeof(record), "data/%s", s->key);
	e = ck_pt_record_find(pt, record);
	if (!e)
		return ck_fail(err, CKPT_E_CORRUPT, pt->where, CKPT_NO_OFFSET,
			       "the pickle uses storage '%s', which is missing from the "
			       "archive",
			       s->key);
	rc = ck_pt_bytes(pt, s->dtype, s->numel, &bytes, err);
	if (rc)
		return rc;
	/* A float32 tensor over 10 bytes is declared with 2 elements, the record has 10. */
	if (e->bytes < bytes || e->bytes - bytes >= ckpt_dtype_bits(s->dtype) / 8)
		return ck_fail(err, CKPT_E_CORRUPT, pt->where, CKPT_NO_OFFSET,
			       "storage '%s' has %" PRIu64 " elements (%" PRIu64
			       " bytes), its record %" PRIu64 " bytes",
			       s->key, s->numel, bytes, e->bytes);
	s->deflated = e->method != 0;
	s->bytes = e->bytes;
	s->packed = e->packed;
	s->crc = e->crc;
	rc = ck_zip_data_offset(pt->zip, e, &s->off, err);
	if (!rc && s->deflated)
		rc = inflate_check(pt, e, err);
	return rc;
}

static int storage_add(struct ck_pt *pt, const struct ck_pt_pid *pid, uint32_t *out,
		       struct ckpt_err *err)
{
	struct ck_pt_storage *s;
	int rc;

	if (pt->nstorages >= CK_NONE)
		return ck_fail(err, CKPT_E_LIMIT, pt->where, CKPT_NO_OFFSET, "the file has too "
			       "many storages");
	rc = ck_grow(&pt->storage, &pt->storage_cap, pt->nstorages + 1, sizeof(*pt->storage), err);
	if (rc)
		return rc;
	s = &pt->storage[pt->nstorages];
	*s = (struct ck_pt_storage){
		.key = pid->key, .location = pid->location, .dtype = pid->dtype,
		.untyped = pid->untyped, .swapped = pt->swapped, .numel = pid->numel,
		.absent = !strcmp(pid->location, "meta"), .root = CK_NONE,
	};
	if (!pt->legacy && !s->absent)
		rc = find_bytes(pt, s, err);
	if (!rc)
		rc = ck_map_add(&pt->by_key, s->key, strlen(s->key), pt->nstorages, NULL, err);
	if (rc)
		return rc;
	*out = (uint32_t)pt->nstorages++;
	return 0;
}

/* A view into storage 'root'; views are found again by going through them. */
static int view_get(struct ck_pt *pt, const struct ck_pt_pid *pid, uint32_t root, uint32_t *out,
		    struct ckpt_err *err)
{
	const char *key = ck_arena_printf(&pt->doc.arena, "%s/%s", pid->key, pid->view_key);
	uint64_t found;
	int rc;

	if (!key)
		return ck_fail_nomem(err, "a key", strlen(pid->key));
	/* A slash is in no key of a storage. */
	rc = ck_map_add(&pt->by_key, key, strlen(key), pt->nstorages, &found, err);
	if (rc < 0)
		return rc;
	if (rc) {
		const struct ck_pt_storage *s = &pt->storage[found];

		if (s->root_elem != pid->view_off || s->numel != pid->view_numel)
			return ck_pt_bad(pt, err,
					 "two views of a storage have one key, but differ");
		*out = (uint32_t)found;
		return 0;
	}
	rc = ck_grow(&pt->storage, &pt->storage_cap, pt->nstorages + 1, sizeof(*pt->storage), err);
	if (rc)
		return rc;
	pt->storage[pt->nstorages] = pt->storage[root];
	pt->storage[pt->nstorages].key = key;
	pt->storage[pt->nstorages].root = root;
	pt->storage[pt->nstorages].root_elem = pid->view_off;
	pt->storage[pt->nstorages].numel = pid->view_numel;
	*out = (uint32_t)pt->nstorages++;
	return 0;
}

int ck_pt_storage_get(struct ck_pt *pt, const struct ck_val *persid, uint32_t *out,
		      uint8_t *dtype_out, struct ckpt_err *err)
{
	struct ck_pt_pid pid;
	uint64_t found;
	int rc = pid_read(pt, persid->u.pid, &pid, err);

	if (rc)
		return rc;
	if (ck_map_find(&pt->by_key, pid.key, strlen(pid.key), &found)) {
		const struct ck_pt_storage *s = &pt->storage[found];

		/* Empty storages of several types may share a key. */
		if ((s->numel || pid.numel) &&
		    (s->dtype != pid.dtype || s->untyped != pid.untyped || s->numel != pid.numel))
			return ck_fail(err, CKPT_E_CORRUPT, pt->where, CKPT_NO_OFFSET,
				       "storage '%s' is used both as %" PRIu64
				       " x %s and as %" PRIu64 " x %s",
				       pid.key, s->numel, ckpt_dtype_name(s->dtype), pid.numel,
				       ckpt_dtype_name(pid.dtype));
		*out = (uint32_t)found;
	} else {
		rc = storage_add(pt, &pid, out, err);
	}
	if (!rc && pid.view_key)
		rc = view_get(pt, &pid, *out, out, err);
	if (!rc)
		*dtype_out = pid.dtype;
	return rc;
}
