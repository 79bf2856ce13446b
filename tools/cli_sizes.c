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

static char *of_role(const char *lead, const struct ckpt_size *p)
{
	return cli_format("%s%s of %s%s", lead, out_name(p->state),
			  p->role == CKPT_ROLE_PLAIN ? "" : out_role(p->role),
			  p->role == CKPT_ROLE_PLAIN ? "tensors" : " tensors");
}

char *sizes_label(const struct ckpt_size *p)
{
	switch (p->kind) {
	case CKPT_SIZE_STATE:
		return of_role("", p);
	case CKPT_SIZE_REPLICA:
		return of_role("copies: ", p);
	case CKPT_SIZE_PADDING:
		return cli_strdup("padding of optimizer states");
	case CKPT_SIZE_BLOAT:
		return cli_strdup("parts of storages that no tensor uses");
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

/* ---------------------------------------------------------------- the answer */

enum { WEIGHTS, MASTERS, MOMENTS, COPIES, PADDING, UNUSED, FILES, REST, NPURPOSES };

static unsigned purpose_of(const struct ckpt_size *p)
{
	if (p->kind == CKPT_SIZE_STATE)
		return !strcmp(p->state, "weight") ? WEIGHTS :
		       !strcmp(p->state, "master") ? MASTERS : MOMENTS;
	return p->kind == CKPT_SIZE_REPLICA ? COPIES : p->kind == CKPT_SIZE_PADDING ? PADDING :
	       p->kind == CKPT_SIZE_BLOAT ? UNUSED :
	       p->kind == CKPT_SIZE_OTHER_FILES ? FILES : REST;
}

/* "1.6 GB in 16 files: 1.1 GB optimizer states, 536.4 MB fp32 copy, ..." */
static void print_answer(const struct ckpt_sizes *sizes)
{
	static const char *const words[NPURPOSES] = {
		"weights", "fp32 copy", "optimizer states", "further copies", "padding",
		"unused storage", "other files", "file structure",
	};
	uint64_t bytes[NPURPOSES] = { 0 };
	const char *between = ": ";

	for (uint64_t i = 0; i < sizes->nparts; i++)
		bytes[purpose_of(&sizes->part[i])] += sizes->part[i].bytes;
	printf("%s in %" PRIu64 " file%s", out_size(sizes->bytes), sizes->nfiles,
	       out_plural(sizes->nfiles));
	for (unsigned shown = 0; shown < NPURPOSES; shown++) {
		unsigned most = 0;

		for (unsigned k = 1; k < NPURPOSES; k++)
			if (bytes[k] > bytes[most])
				most = k;
		if (!bytes[most] || bytes[most] < sizes->bytes / 100)
			break;	/* below one percent the table says it */
		printf("%s%s %s", between, out_size(bytes[most]), words[most]);
		bytes[most] = 0;
		between = ", ";
	}
	putchar('\n');
}

static void add_row(struct table *table, const struct ckpt_size *p, uint64_t all)
{
	char *what = sizes_label(p), share[16];
	int has = p->kind == CKPT_SIZE_STATE || p->kind == CKPT_SIZE_REPLICA;

	snprintf(share, sizeof(share), "%.1f%%", all ? 100.0 * (double)p->bytes / (double)all : 0);
	table_add(table, (const char *const[]){ what, has ? ckpt_dtype_name(p->dtype) : "",
						has ? out_count(p->elements) : "",
						out_size(p->bytes), share });
	cli_free(what);
}

int sizes_print(struct ckpt *ck)
{
	struct table table = { .align = "llrrr" };
	struct ckpt_err err = { 0 };
	struct ckpt_sizes sizes;
	char *all;

	if (ckpt_sizes_get(ck, &sizes, &err))
		return out_findings_count(ck, CKPT_ERROR) ?	/* inspect prints them */
		       cli_exit_status(err.code) : cli_fail(NULL, ck, &err);
	print_answer(&sizes);
	table_add(&table,
		  (const char *const[]){ "BYTES ARE FOR", "TYPE", "ELEMENTS", "SIZE", "SHARE" });
	for (uint64_t i = 0; i < sizes.nparts; i++)
		add_row(&table, &sizes.part[i], sizes.bytes);
	all = cli_format("all of %" PRIu64 " file%s", sizes.nfiles, out_plural(sizes.nfiles));
	table_add(&table, (const char *const[]){ all, "", "", out_size(sizes.bytes), "" });
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
