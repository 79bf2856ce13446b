/* See t_flip.h. */
#define _GNU_SOURCE
#include "tests/lib/mutate/t_flip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/run/t_seed.h"

bool t_flip_draw(const struct t_files *files, uint64_t *random, struct t_flip *out)
{
	uint64_t total = 0, n;
	size_t i = 0;

	for (size_t k = 0; k < files->n; k++)
		total += files->f[k].n;
	n = t_draw(random) % total;
	if (t_draw(random) & 1)
		i = t_draw(random) % files->n;
	else
		for (; n >= files->f[i].n; i++)
			n -= files->f[i].n;
	if (!files->f[i].n)
		return false;
	out->f = &files->f[i];
	out->at = t_draw(random) % out->f->n;
	out->bit = (int)(t_draw(random) % 8);
	return true;
}

void t_flip_put(const struct t_flip *flip, const char *path)
{
	flip->f->p[flip->at] ^= (uint8_t)(1 << flip->bit);
	t_file_write(path, flip->f->p, flip->f->n);
}

long t_flip_count(int argc, char **argv, long few, long more)
{
	if (argc > 1)
		return atol(argv[1]);
	return t_is_long() ? more : few;
}

uint64_t t_flip_seed(size_t number)
{
	const char *text = getenv("ZCKPT_SEED");
	uint64_t seed = text && *text ? strtoull(text, NULL, 0) : 1;

	/* Drawn twice: seeds in steps of one would give series that overlap. */
	seed = t_draw(&seed) + number;
	return t_draw(&seed);
}

enum ckpt_severity t_flip_found(const char *path, const char *tag,
				const struct ckpt_run_opts *run, char *id, size_t room)
{
	const struct ckpt_open_opts open = { .size = sizeof(open), .tag = tag, .threads = 1 };
	const struct ckpt_verify_opts o = { sizeof(o), run, CKPT_VERIFY_FULL };
	enum ckpt_severity worst = CKPT_INFO;
	struct ckpt_verified v;
	struct ckpt_finding f;
	struct ckpt_err err = { 0 };
	struct ckpt *ck = NULL;

	*id = 0;
	if (ckpt_open(&path, 1, &open, &ck, &err) || ckpt_verify(ck, &o, &v, &err)) {
		snprintf(id, room, "%s", ckpt_code_name(err.code));
		worst = CKPT_ERROR;
	}
	for (uint64_t i = 0; ck && !ckpt_finding_get(ck, i, &f, NULL); i++)
		if (f.severity > worst) {
			worst = f.severity;
			snprintf(id, room, "%s", f.id);
		}
	ckpt_close(ck);
	return worst;
}

int t_flip_digest(const char *path, const struct ckpt_run_opts *run, uint64_t *hash,
		  struct ckpt_err *err)
{
	const struct ckpt_digest_opts o = { .size = sizeof(o), .run = run };
	struct ckpt_digests d = { 0 };
	struct ckpt *ck = NULL;
	int rc = ckpt_open(&path, 1, NULL, &ck, err);

	if (!rc)
		rc = ckpt_digest(ck, &o, &d, err);
	if (!rc)
		*hash = XXH3_64bits(d.root, 32);
	ckpt_digests_free(&d);
	ckpt_close(ck);
	return rc;
}

/* Bytes before the tensors of a safetensors file; 0 of any other. */
static size_t metadata_of(const struct t_file *f)
{
	uint64_t n = 0;

	if (!t_ends_with(f->name, ".safetensors") || f->n < 8)
		return 0;
	memcpy(&n, f->p, 8);
	return n < f->n - 8 ? 8 + (size_t)n : 0;
}

uint64_t t_flip_folder(const char *dir, bool weights_only)
{
	struct t_files files = { 0 };
	uint64_t h = 0;

	t_files_read(&files, dir);
	for (size_t i = 0; i < files.n; i++) {
		const struct t_file *f = &files.f[i];
		const size_t skip = metadata_of(f);

		if (weights_only && !t_ends_with(f->name, ".pt") &&
		    !t_ends_with(f->name, ".safetensors"))
			continue;
		h = XXH3_64bits_withSeed(f->name, strlen(f->name), h);
		h = XXH3_64bits_withSeed(f->p + skip, f->n - skip, h);
	}
	t_files_free(&files);
	return h;
}
