/*
 * ck_registry.c -- which driver reads what lies at the given paths, and a sentence about it
 * when none does.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"
#include "libckpt/format/ck_foreign.h"
#include "libckpt/format/ck_format.h"
#include "libckpt/format/ck_placeholder.h"
#include "libckpt/io/ck_mount.h"

/* ------------------------------------------------------------------- looking */

static int cut_slashes(const char *const *path, size_t n, struct ck_arena *arena,
		       const char ***out, struct ckpt_err *err)
{
	const char **list = ck_arena_alloc(arena, n * sizeof(*list));

	for (size_t i = 0; list && i < n; i++) {
		size_t len = strlen(path[i]);

		while (len > 1 && path[i][len - 1] == '/')
			len--;
		list[i] = ck_arena_strndup(arena, path[i], len);
		if (!list[i])
			return ck_fail_nomem(err, "a path", len);
	}
	if (!list)
		return ck_fail_nomem(err, "paths", n);
	*out = list;
	return 0;
}

/* Every path is there, and they are all folders or it is one file. */
static int check_kinds(struct ck_input *in, struct ckpt_err *err)
{
	for (size_t i = 0; i < in->npaths; i++) {
		enum ck_fs_kind kind;
		int rc = ck_look_kind(in->pool, in->path[i], &kind, NULL, err);

		if (rc)
			return rc;
		if (kind == CK_FS_NOTHING)
			return ck_fail(err, CKPT_E_NOTFOUND, in->path[i], CKPT_NO_OFFSET,
				       "no such file or folder");
		if (kind == CK_FS_OTHER)
			return ck_fail(err, CKPT_E_FORMAT, in->path[i], CKPT_NO_OFFSET,
				       "this is a pipe, a device or a broken link");
		if (kind == CK_FS_FILE && in->npaths > 1)
			return ck_fail(err, CKPT_E_USAGE, in->path[i], CKPT_NO_OFFSET,
				       "zckpt reads several paths as one folder, so each must "
				       "be a folder; this is a file");
		in->is_dir = kind == CK_FS_DIR;
	}
	return 0;
}

static int look_at_file(struct ck_input *in, struct ckpt_err *err)
{
	struct ck_src *src;
	int rc = ck_src_open(in->pool, in->path[0], &src, err);

	if (rc)
		return rc;
	in->bytes = ck_src_size(src);
	in->head_len = (size_t)ck_min_u64(in->bytes, sizeof(in->head));
	rc = ck_src_read(src, 0, in->head, in->head_len, err);
	ck_src_close(src);
	return rc;
}

/* -------------------------------------------------------------------- refusing */

static const struct {
	const char *bytes;
	unsigned n, off;
	const char *what;
} magics[] = {
	{ "version https://git-lfs", 23, 0,
	  "a git-lfs pointer, not the file itself; 'git lfs pull' fetches it" },
	{ "\x93NUMPY", 6, 0, "a numpy array (.npy)" },
	{ "GGUF", 4, 0, "a GGUF file" },
	{ "\x89HDF\r\n\x1a\n", 8, 0, "an HDF5 file" },
	{ "7z\xbc\xaf\x27\x1c", 6, 0, "a 7z archive" },
	{ "\x1f\x8b", 2, 0, "gzip-compressed; decompress it first" },
	{ "BZh", 3, 0, "bzip2-compressed; decompress it first" },
	{ "\xfd" "7zXZ", 5, 0, "xz-compressed; decompress it first" },
	{ "\x28\xb5\x2f\xfd", 4, 0, "zstd-compressed; zckpt unpack, or zstd -d, first" },
	{ "\x7f" "ELF", 4, 0, "a program or library (ELF)" },
	{ "%PDF", 4, 0, "a PDF document" },
	{ "<!DOCTYPE", 9, 0, "an HTML page, perhaps a failed download" },
	{ "<!doctype", 9, 0, "an HTML page, perhaps a failed download" },
	{ "<html", 5, 0, "an HTML page, perhaps a failed download" },
	{ "<?xml", 5, 0, "an XML file, perhaps a failed download" },
	{ "PK\x03\x04", 4, 0,
	  "a zip archive without a torch checkpoint in it (numpy .npz? TorchScript? a document?)" },
	{ "PK\x05\x06", 4, 0, "an empty zip archive" },
	{ "ustar", 5, 257, "a tar archive; unpack it first" },
	{ "{", 1, 0, "a JSON file" },
	{ "\x80", 1, 0, "a bare pickle, not a file of torch.save; try: zckpt audit DIR" },
};

#define FEW 3u		/* entries of a folder, of which one is named */

static bool is_all(const struct ck_input *in, bool (*test)(uint8_t))
{
	for (size_t i = 0; i < in->head_len; i++)
		if (!test(in->head[i]))
			return false;
	return true;
}

static bool is_zero(uint8_t c)
{
	return !c;
}

static bool is_text(uint8_t c)
{
	return c >= 0x20 || (c >= '\t' && c <= '\r');
}

static const char *what_file(const struct ck_input *in)
{
	if (in->head_len > 2 && in->head[0] == 0x1f && in->head[1] == 0x8b &&
	    (ck_ends_with(in->path[0], ".tar.gz") || ck_ends_with(in->path[0], ".tgz")))
		return "a tar archive, compressed with gzip; unpack it first";
	for (size_t i = 0; i < CK_ARRAY_LEN(magics); i++)
		if (in->head_len >= magics[i].off + magics[i].n &&
		    !memcmp(in->head + magics[i].off, magics[i].bytes, magics[i].n))
			return magics[i].what;
	if (is_all(in, is_zero))
		return "a file that begins with zeros; was the download or copy interrupted?";
	if (is_all(in, is_text))
		return "a text file";
	return "data of an unknown kind";
}

static int fail_folder(const struct ck_input *in, struct ckpt_err *err)
{
	const struct ck_tree *t = &in->tree;
	const bool few = t->n <= FEW;
	uint64_t nfiles = 0, nfolders;
	int rc = ck_foreign_folder(in, err);

	if (rc)
		return rc;
	for (uint64_t i = 0; i < t->n; i++)
		nfiles += !t->entry[i].is_dir;
	if (!t->n)
		return ck_fail(err, CKPT_E_FORMAT, in->path[0], CKPT_NO_OFFSET,
			       "the folder is empty");
	nfolders = t->n - nfiles;
	return ck_fail(err, CKPT_E_FORMAT, in->path[0], CKPT_NO_OFFSET,
		       "the folder holds no checkpoint (%" PRIu64 " file%s and %" PRIu64 " "
		       "folder%s%s%s); give a step, the folder above it, a folder of safetensors, "
		       "or one file",
		       nfiles, nfiles == 1 ? "" : "s", nfolders, nfolders == 1 ? "" : "s",
		       !few ? "" : t->n > 1 ? ", the first is " : ": ",
		       few ? t->entry[0].name : "");
}

static int fail_format(const struct ck_input *in, struct ckpt_err *err)
{
	int rc = 0;

	if (in->is_dir)
		return fail_folder(in, err);
	if (!in->bytes)
		return ck_fail(err, CKPT_E_FORMAT, in->path[0], CKPT_NO_OFFSET,
			       "this is an empty file: " CK_WHY_EMPTY);
	if (!is_all(in, is_text) && !is_all(in, is_zero))
		rc = ck_foreign_file(in, err);
	return rc ? rc : ck_fail(err, CKPT_E_FORMAT, in->path[0], CKPT_NO_OFFSET,
		       "not a format that zckpt reads: this is %s", what_file(in));
}

/* --------------------------------------------------------------------- opening */

/* '*best_out' is NULL and '*high_out' 0 where none bids. */
static int best_driver(const struct ck_input *in, const struct ck_format **best_out,
		       int *high_out, struct ckpt_err *err)
{
	int high = 0;

	*best_out = NULL;
	for (const struct ck_format *const *p = in->formats->reader; *p; p++) {
		const int bid = (*p)->probe(in);

		if (bid < 0)
			return ck_fail_nomem(err, "a look at the folder", 0);
		if (bid > high) {
			high = bid;
			*best_out = *p;
		}
	}
	*high_out = high;
	return 0;
}

static int index_with(const struct ck_format *driver, const struct ck_input *in,
		      struct ck_index *ix, struct ck_findings *f, struct ckpt_err *err)
{
	int rc;

	ix->format = driver->name;
	ix->path = ck_arena_strdup(&ix->arena, in->path[0]);
	if (!ix->path)
		return ck_fail_nomem(err, "a path", strlen(in->path[0]));
	rc = driver->index(in, ix, f, err);
	if (!rc && driver->is_model && !f->of_kind[CK_FINDING_PLACEHOLDERS_ONLY] &&
	    !f->of_kind[CK_FINDING_PART_OF_STEP])
		ck_placeholder_check(ix, in->path[0], f);
	return rc;
}

/* A format that bids as much wins: its own bytes may begin like an archive's. */
static int mount_if_archive(const struct ck_input *in, struct ckpt_err *err)
{
	const struct ck_archive_format *archive = in->formats->archive;
	const struct ck_format *driver;
	int high, rc;

	if (!archive)
		return 0;
	rc = best_driver(in, &driver, &high, err);
	return !rc && archive->probe(in) > high ? archive->mount(in, err) : rc;
}

/* One path that is an archive, or was one when it was looked at before: what lies in it. */
static int enter_archive(struct ck_input *in, const char **path, struct ckpt_err *err)
{
	const struct ck_mount *m = ck_fdpool_mount(in->pool);
	enum ck_fs_kind kind;
	int rc;

	if (!in->is_dir && !m) {
		rc = look_at_file(in, err);
		if (!rc)
			rc = mount_if_archive(in, err);
		if (rc)
			return rc;
		m = ck_fdpool_mount(in->pool);
	}
	if (!m || strcmp(path[0], m->at))
		return 0;
	path[0] = m->root;
	in->head_len = 0;
	rc = ck_look_kind(in->pool, path[0], &kind, NULL, err);
	in->is_dir = kind == CK_FS_DIR;
	return rc;
}

int ck_format_with_input(struct ck_input *in,
			 int (*fn)(const struct ck_input *in, void *arg, struct ckpt_err *err),
			 void *arg, struct ckpt_err *err)
{
	const char *const *given = in->path;
	struct ck_arena arena = CK_ARENA_INIT;
	const char **path = NULL;
	struct ck_chosen chosen = { .kind = NULL };
	int rc;

	if (!in->npaths || !in->path[0][0])
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET, "no path is given");
	rc = cut_slashes(in->path, in->npaths, &arena, &path, err);
	if (rc)
		goto out;
	in->path = path;
	rc = check_kinds(in, err);
	if (!rc && in->npaths == 1)
		rc = enter_archive(in, path, err);
	if (!rc && in->is_dir)
		rc = ck_look_list(in->pool, &in->tree, in->path, in->npaths, NULL,
				  in->limits.files, err);
	else if (!rc && !in->head_len)
		rc = look_at_file(in, err);
	in->chosen = &chosen;
	if (!rc)
		rc = fn(in, arg, err);
	in->chosen = NULL;
out:
	ck_tree_release(&in->tree);
	in->path = given;
	ck_arena_release(&arena);
	return rc;
}

struct opening {
	struct ck_index *ix;
	struct ck_findings *f;
	const struct ck_format **driver;
};

/* What an option is for that means nothing to the driver; NULL = there is none. */
static const char *strange_option(const struct ck_input *in, const struct ck_format *driver)
{
	if (in->model_config && !driver->has_names && !driver->has_order)
		return "--model-config is for checkpoints of Megatron-Core and of transformers' "
		       "Trainer (--aux DIR copies a configuration)";
	if (in->vocab_size && !driver->has_names)
		return "--vocab is for checkpoints of Megatron-Core, whose vocabulary has rows of "
		       "padding";
	if ((in->order_path || (in->frozen && *in->frozen) || (in->buffers && *in->buffers)) &&
	    !driver->has_subtrees)
		return "--order, --frozen and --buffer are for one file of torch with model and "
		       "optimizer, whose states have numbers; others name their parameters";
	if (in->tp_rules && !driver->has_slices)
		return "--tp-rules is for tensor parallel steps of DeepSpeed";
	return NULL;
}

static int open_input(const struct ck_input *in, void *arg, struct ckpt_err *err)
{
	const struct opening *o = arg;
	const struct ck_format *driver;
	const char *option;
	int bid;
	const int rc = best_driver(in, &driver, &bid, err);

	if (rc)
		return rc;
	if (driver && in->subtree && !driver->has_subtrees)
		return ck_fail(err, CKPT_E_USAGE, in->path[0], CKPT_NO_OFFSET,
			       "a subtree is an entry of a torch file (.pt, .ckpt); this is %s",
			       driver->name);
	option = driver ? strange_option(in, driver) : NULL;
	/* A folder of Megatron-Core that lost a file is a mere DCP folder, and says which file. */
	if (option) {
		const int broken = index_with(driver, in, o->ix, o->f, err);

		return broken ? broken : ck_fail(err, CKPT_E_USAGE, in->path[0], CKPT_NO_OFFSET,
						 "%s; this is %s", option, driver->name);
	}
	*o->driver = driver;
	return driver ? index_with(driver, in, o->ix, o->f, err) : fail_format(in, err);
}

int ck_format_open(struct ck_input *in, struct ck_index *ix, struct ck_findings *f,
		   struct ckpt_err *err)
{
	struct opening o = { ix, f, &in->driver };

	return ck_format_with_input(in, open_input, &o, err);
}

void ck_kept_give(struct ck_kept *kept, int rc, void *of, void (*release)(void *of))
{
	if (kept && !rc)
		*kept = (struct ck_kept){ of, release };
	else
		release(of);
}

void ck_kept_release(struct ck_kept *kept)
{
	if (kept->of)
		kept->release(kept->of);
	kept->of = NULL;
}
