/* Fuzz targets that are files: what is opened by its path, checked and written again. */
#include "tests/fuzz/fz.h"

#include <string.h>

#define FILE_IN(name) FZ_ROOT "/" name
#define DIR_IN FZ_ROOT "/in"

/* A legacy stream of torch, bare. */
void fz_legacy(const uint8_t *p, size_t n)
{
	if (fz_fs_put(FILE_IN("in.pt"), p, n))
		fz_check(FILE_IN("in.pt"), NULL);
}

/* A pickle and its storages, in an archive whose sums are right. */
void fz_torch(const uint8_t *p, size_t n)
{
	struct fz_wish wish = { 0 };

	fz_files_make(p, n, FZ_ROOT, &wish);
	fz_check(FILE_IN("in.pt"), NULL);
}

void fz_safetensors(const uint8_t *p, size_t n)
{
	if (fz_fs_put(FILE_IN("in.safetensors"), p, n))
		fz_check(FILE_IN("in.safetensors"), NULL);
}

/* A model folder: index, shards, config. */
void fz_hf(const uint8_t *p, size_t n)
{
	struct fz_wish wish = { 0 };

	fz_files_make(p, n, DIR_IN, &wish);
	fz_check(DIR_IN, NULL);
}

/* The same code: the seeds have a manifest, which verify reads. */
void fz_manifest(const uint8_t *p, size_t n)
{
	fz_hf(p, n);
}

/* A DeepSpeed step of any stage and version. */
void fz_step(const uint8_t *p, size_t n)
{
	struct fz_wish wish = { .world = 2, .stage = -1 };

	fz_files_make(p, n, DIR_IN, &wish);
	fz_check(DIR_IN, &wish);
}

/* The same code: seeds and dictionary differ. */
void fz_universal(const uint8_t *p, size_t n)
{
	fz_step(p, n);
}

/* A folder of torch.distributed.checkpoint: '.metadata', and data files whose sums are right. */
void fz_dcp(const uint8_t *p, size_t n)
{
	fz_step(p, n);
}

/* Rank files of FSDP. */
void fz_ranks(const uint8_t *p, size_t n)
{
	struct fz_wish wish = { .stage = -1 };

	fz_files_make(p, n, DIR_IN, &wish);
	wish.world = 0;
	fz_check(DIR_IN, &wish);
}
