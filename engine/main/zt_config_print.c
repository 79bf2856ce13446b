/*
 * zt_config_print.c -- ztrain config FILE: the DeepSpeed configuration that accelerate makes of its
 * YAML, as plain JSON, for programs that read JSON only (zckpt plan, zckpt shard).
 */
#include <stdio.h>
#include <string.h>

#include "engine/main/zt_program.h"
#include "engine/main/zt_say.h"

#define MOST ((size_t)8 << 20)

static int fail(const char *where, const char *what)
{
	zt_say_error("ztrain: ", "%s%s%s", where, *where ? ": " : "", what);
	return 1;
}

/* What accelerate refuses is no configuration; what "auto" means, the reader decides. */
static const struct en_verdict *refused(const struct en_config *c)
{
	for (uint64_t i = 0; i < c->n_verdicts; i++)
		if (c->verdict[i].ruling == EN_REFUSED)
			return &c->verdict[i];
	return NULL;
}

static int print(const struct en_config *c)
{
	struct ck_buf text = CK_BUF_INIT(MOST);
	struct ckpt_err err = { 0 };
	int rc = en_node_write(c->tree, &text, &err);

	if (!rc)
		rc = ck_buf_add(&text, "", 1, &err);
	if (!rc && (puts(text.p) < 0 || fflush(stdout))) {
		ck_buf_release(&text);
		return fail("", "the configuration could not be written");
	}
	ck_buf_release(&text);
	return rc ? fail(err.where, err.msg) : 0;
}

int zt_config_print(int argc, char **argv)
{
	const struct en_verdict *no;
	struct ckpt_err err = { 0 };
	struct en_config c;
	char why[600];
	int rc;

	if (argc != 2)
		zt_say_error("ztrain config: ", "expected one FILE, found %d arguments", argc - 1);
	if (argc != 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		fputs("usage: ztrain config FILE\n\n"
		      "Prints the DeepSpeed configuration that accelerate derives from its YAML, "
		      "or\n"
		      "that of a DeepSpeed file with comments, as plain JSON.\n",
		      argc == 2 ? stdout : stderr);
		return argc == 2 ? 0 : 2;
	}
	en_config_init(&c, EN_DS_0_19);
	rc = en_config_read(&c, argv[1], 1, &err);
	no = rc ? NULL : refused(&c);
	if (rc) {
		rc = fail(err.where, err.msg);
	} else if (no || !c.tree) {
		snprintf(why, sizeof(why), "%s%s%s: %s", no ? no->path : "deepspeed_config",
			 no && *no->value ? " " : "", no ? no->value : "", no ? no->why :
			 "the file has none");
		rc = fail(argv[1], why);
	} else {
		rc = print(&c);
	}
	en_config_release(&c);
	return rc;
}
