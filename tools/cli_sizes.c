/* cli_sizes.c -- what the bytes of a checkpoint are for. */
#include <inttypes.h>
#include <string.h>

#include "cli_sizes.h"

static const char *kind_word(enum ckpt_size_kind kind)
{
	static const char *const words[] = {
		"", "state", "replica", "padding", "bloat", "other-tensors", "compressed", "pickle",
		"archive", "other-files",
	};

	return kind < sizeof(words) / sizeof(words[0]) ? words[kind] : "";
}

static char *label(const struct ckpt_size *p)
{
	switch (p->kind) {
	case CKPT_SIZE_STATE:
		return cli_format("%s of %s", out_name(p->state), out_role(p->role));
	case CKPT_SIZE_REPLICA:
		return cli_format("copies: %s of %s", out_name(p->state), out_role(p->role));
	case CKPT_SIZE_PADDING:
		return cli_strdup("padding of optimizer states");
	case CKPT_SIZE_BLOAT:
		return cli_strdup("storages beyond their tensors");
	case CKPT_SIZE_OTHER_TENSORS:
		return cli_strdup("other tensors (counters, random states)");
	case CKPT_SIZE_COMPRESSED:
		return cli_strdup("compressed storages");
	case CKPT_SIZE_PICKLE:
		return cli_strdup("names, shapes, configuration");
	case CKPT_SIZE_ARCHIVE:
		return cli_strdup("archives: headers, alignment, directories");
	case CKPT_SIZE_OTHER_FILES:
		return cli_strdup("other files in the folder");
	}
	return cli_strdup("?");
}

static void add_row(struct table *table, const struct ckpt_size *p, uint64_t all)
{
	char *what = label(p), share[16];
	int has = p->kind == CKPT_SIZE_STATE || p->kind == CKPT_SIZE_REPLICA;

	snprintf(share, sizeof(share), "%.1f%%", all ? 100.0 * (double)p->bytes / (double)all : 0);
	table_add(table, (const char *const[]){ what, has ? ckpt_dtype_name(p->dtype) : "",
						has ? out_count(p->elements) : "",
						out_count(p->bytes), share });
	cli_free(what);
}

int sizes_print(const struct args *args, struct ckpt *ck)
{
	struct table table = { .align = "llrrr" };
	struct ckpt_err err = { 0 };
	struct ckpt_sizes sizes;
	char *all;

	(void)args;
	if (ckpt_sizes_get(ck, &sizes, &err))
		return cli_fail(NULL, NULL, &err);
	table_add(&table,
		  (const char *const[]){ "BYTES ARE FOR", "TYPE", "ELEMENTS", "BYTES", "" });
	for (uint64_t i = 0; i < sizes.nparts; i++)
		add_row(&table, &sizes.part[i], sizes.bytes);
	all = cli_format("all of %" PRIu64 " file%s", sizes.nfiles, sizes.nfiles == 1 ? "" : "s");
	table_add(&table, (const char *const[]){ all, "", "", out_count(sizes.bytes), "" });
	cli_free(all);
	putchar('\n');
	table_print(&table, stdout, "");
	ckpt_sizes_free(&sizes);
	return 0;
}

int sizes_json(struct json *json, struct ckpt *ck)
{
	struct ckpt_err err = { 0 };
	struct ckpt_sizes sizes;

	if (ckpt_sizes_get(ck, &sizes, &err)) {
		json_error(json, &err);
		return cli_fail(NULL, NULL, &err);
	}
	json_open(json, "sizes", '{');
	json_uint(json, "bytes", sizes.bytes);
	json_uint(json, "files", sizes.nfiles);
	json_open(json, "parts", '[');
	for (uint64_t i = 0; i < sizes.nparts; i++) {
		const struct ckpt_size *p = &sizes.part[i];

		json_open(json, NULL, '{');
		json_text(json, "kind", kind_word(p->kind));
		if (p->state[0]) {
			json_text(json, "state", p->state);
			json_text(json, "role", out_role(p->role));
			json_text(json, "dtype", ckpt_dtype_name(p->dtype));
			json_uint(json, "elements", p->elements);
		}
		json_uint(json, "bytes", p->bytes);
		json_close(json, '}');
	}
	json_close(json, ']');
	json_close(json, '}');
	ckpt_sizes_free(&sizes);
	return 0;
}
