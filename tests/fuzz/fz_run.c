/* See fz.h: the list of targets, and what holds of all of them. */
#include "tests/fuzz/fz.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/format/ck_limits.h"

const struct fz_target fz_targets[] = {
	{ "zip", fz_zip },
	{ "pickle", fz_pickle },
	{ "legacy", fz_legacy },
	{ "torch", fz_torch },
	{ "safetensors", fz_safetensors },
	{ "json", fz_json },
	{ "hjson", fz_hjson },
	{ "config", fz_config },
	{ "accelerate", fz_accelerate },
	{ "hf", fz_hf },
	{ "manifest", fz_manifest },
	{ "step", fz_step },
	{ "universal", fz_universal },
	{ "dcp", fz_dcp },
	{ "ranks", fz_ranks },
#ifdef CKPT_PACKS
	{ "pack", fz_pack },
#endif
	{ NULL, NULL },
};

const struct fz_target *fz_target_find(const char *name)
{
	const struct fz_target *t = fz_targets;

	while (t->name && strcmp(t->name, name))
		t++;
	return t->name ? t : NULL;
}

void fz_die(const char *fmt, ...)
{
	const char *save = getenv("FZ_SAVE");
	va_list ap;

	va_start(ap, fmt);
	fputs("fuzz: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	if (save)
		fz_fs_save(save);
	abort();
}

bool fz_ok(int rc, const struct ckpt_err *err, const char *what)
{
	if (rc > 0)
		fz_die("%s returned %d", what, rc);
	if (rc && ((int)err->code != -rc || !err->msg[0]))
		fz_die("%s returned %d, its error is %d \"%s\"", what, rc, (int)err->code,
		       err->msg);
	if (rc && getenv("FZ_SAY"))
		fprintf(stderr, "%s: %s: %s: %s\n", what, ckpt_code_name(err->code), err->where,
			err->msg);
	return !rc;
}

const struct ckpt_limits *fz_limits(void)
{
	static struct ckpt_limits limits;

	if (!limits.size) {
		const struct ckpt_limits want = {
			.size = sizeof(want), .inflate_bytes = 4 << 20, .gather_bytes = 1 << 20,
		};

		ck_limits_fill(getenv("FZ_DEFAULTS") ? NULL : &want, &limits);
	}
	return &limits;
}

void fz_run(const struct fz_target *t, const uint8_t *p, size_t n)
{
	static bool ready;

	if (!ready) {
		fz_mem_install();
		fz_fs_install();
		fz_fs_clear();
		ready = true;
	}
	t->run(fz_mem_guard(p, n), n);
	if (fz_mem_blocks())
		fz_die("%ld blocks of memory are left", fz_mem_blocks());
	if (fz_fs_open())
		fz_die("%zu descriptors are left open", fz_fs_open());
	fz_fs_clear();
}
