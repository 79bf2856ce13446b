/*
 * usage: fz_pack [-r|-k] FOLDER|FILE.pt [WISH] > SEED
 *
 * Makes a seed (fz_files.c) of the files of a folder, or of one archive. Of an archive of
 * torch.save the pickle is kept and of each storage the length: a byte that is the same number in
 * fp32 and bf16 stands for its elements, so that masters and weights agree. -r: archives as they
 * are. -k: of each dictionary a few keys, and small storages as they are.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/zip/ck_zip.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/mutate/t_graph.h"

#define FEW 5u
#define MESH 32u	/* bytes of a device mesh, which are ranks */

static bool raw, few;

static void put(const char *kind, const char *name, const void *p, size_t n)
{
	if (memmem(p, n, "%%%", 3))
		t_die("%s has the marker in it", name);
	printf("%%%%%%%s %s\n", kind, name);
	fwrite(p, 1, n, stdout);
}

/* Of the root, and of what it has that are dictionaries. */
static void cut(struct ck_val *v, int depth)
{
	uint64_t n;
	struct ck_val **item = t_graph_items(v, &n);

	if (!v || depth == 3 || (v->kind != CK_VAL_DICT && !t_graph_is(v, "OrderedDict")))
		return;
	if (n > 2 * FEW)
		t_graph_cut(v, 2 * FEW, n - 2 * FEW);
	for (uint64_t i = 1; i < n && i < 2 * FEW; i += 2)
		cut(item[i], depth + 1);
}

static void put_few(const void *p, size_t n, const char *as)
{
	struct t_graph g;
	char *text;

	t_graph_load(&g, p, n);
	cut(g.doc.root, 0);
	text = t_graph_pickle(&g, &n);
	put("t", as, text, n);
	free(text);
	t_graph_free(&g);
}

static void member(const struct ck_zip *zip, const struct ck_zip_entry *e, const char *as)
{
	const char *key = strstr(e->name, "/data/");
	struct ckpt_err err = { 0 };
	uint8_t *data = NULL;
	char *words;

	if (!key && !t_ends_with(e->name, "/data.pkl"))
		return;
	if (ck_zip_read(zip, e, 1 << 28, &data, &err))
		t_die("%s: %s", e->name, err.msg);
	if (key) {
		words = t_fmt("%s %llu 3f", key + 6, (unsigned long long)e->bytes);
		put("s", words, data, e->bytes <= (few ? MESH : 4u) ? e->bytes : 0);
		free(words);
	} else if (few) {
		put_few(data, e->bytes, as);
	} else {
		put("t", as, data, e->bytes);
	}
	ck_free(data);
}

static bool archive(const uint8_t *p, size_t n, const char *as)
{
	struct ckpt_limits limits;
	struct ckpt_err err = { 0 };
	struct ck_src *src = NULL;
	struct ck_zip *zip = NULL;
	bool ok;

	ck_limits_fill(NULL, &limits);
	ok = !ck_src_mem(p, n, as, &src, &err) && !ck_zip_open(src, &limits, &zip, &err);
	for (uint64_t i = 0; ok && i < ck_zip_count(zip); i++)
		member(zip, ck_zip_entry_get(zip, i), as);
	ck_zip_close(zip);
	ck_src_close(src);
	return ok;
}

static void file(const char *path, const char *as)
{
	size_t n = 0;
	uint8_t *p = t_file_read(path, &n);

	if (!p)
		t_die("cannot read %s", path);
	if (t_ends_with(as, ".distcp") && !raw)
		put("d", as, p, n);
	else if (raw || n < 4 || memcmp(p, "PK\3\4", 4) || !archive(p, n, as))
		put("f", as, p, n);
	free(p);
}

static void folder(const char *path, const char *as)
{
	char **list = t_dir_list(path, NULL);

	for (size_t i = 0; list[i]; i++) {
		char *from = t_fmt("%s/%s", path, list[i]);
		char *to = t_fmt("%s%s%s", as, *as ? "/" : "", list[i]);

		if (t_is_dir(from))
			folder(from, to);
		else
			file(from, to);
		free(from);
		free(to);
	}
	t_list_free(list);
}

int main(int argc, char **argv)
{
	if (argc > 1 && (!strcmp(argv[1], "-r") || !strcmp(argv[1], "-k"))) {
		raw = argv[1][1] == 'r';
		few = !raw;
		argv++;
		argc--;
	}
	if (argc < 2)
		t_die("usage: fz_pack [-r|-k] FOLDER|FILE.pt [WISH] > SEED");
	if (argc > 2)
		printf("%%%%%%o %s\n", argv[2]);
	if (t_is_dir(argv[1]))
		folder(argv[1], "");
	else
		file(argv[1], "in.pt");
	return fflush(stdout) || ferror(stdout);
}
