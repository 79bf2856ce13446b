/*
 * ck_stage_map.c -- files in memory, written by several threads.
 *
 * tmpfs writes one at a time to a file: 2.4 GB/s, however many threads there are.  Through a map of
 * the file a thread alone is slower, since pages are cleared before they are copied to, but threads
 * do not wait for each other: 1.2 GB/s with one, 2.0 with two, 3.4 with four, 4.4 with six, and no
 * more with eight or sixteen, since then the kernel makes no pages faster (16 cores, cp 2.1 GB/s).
 * Pages are made by a call that says when there is no room for them: a store would be a signal.
 */
#include <string.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_stage_priv.h"

#define LEAST_WRITERS 4u
#define USEFUL_WRITERS 8u
#define LEAST_WRITE ((size_t)64 << 10)
#define PAGE ((uint64_t)4096)

void ck_stage_map_init(struct ck_stage *stage)
{
	stage->maps = stage->opts.writers >= LEAST_WRITERS && ck_commit_in_memory(&stage->paths);
	if (stage->maps)
		pthread_mutex_init(&stage->mapping, NULL);
}

uint32_t ck_stage_useful_writers(const struct ck_stage *stage)
{
	return stage->maps ? USEFUL_WRITERS : UINT32_MAX;
}

void ck_stage_map_release(struct ck_stage *stage)
{
	if (!stage->maps)
		return;
	for (uint64_t i = 0; i < stage->nfiles; i++)
		if (stage->file[i]->map)
			ck_sys.unmap(stage->file[i]->map, stage->file[i]->mapped);
	pthread_mutex_destroy(&stage->mapping);
}

/* Of a file of another part that has not its length yet there is none yet. */
static void make_map(struct stage_file *f, uint64_t end)
{
	struct stat st;

	if (ck_sys.fstat(f->pooled.fd, &st) || (uint64_t)st.st_size < end)
		return;
	f->mapped = (uint64_t)st.st_size;
	f->map = ck_sys.map(f->pooled.fd, f->mapped);
	f->no_map = !f->map;
}

static uint8_t *map_of(struct ck_stage *stage, struct stage_file *f, uint64_t end)
{
	uint8_t *p;

	pthread_mutex_lock(&stage->mapping);
	if (!f->map && !f->no_map)
		make_map(f, end);
	p = f->map && end <= f->mapped ? f->map : NULL;
	pthread_mutex_unlock(&stage->mapping);
	return p;
}

bool ck_stage_map_write(struct ck_stage *stage, struct stage_file *f, uint64_t off, const void *p,
			size_t n)
{
	const uint64_t first = off / PAGE * PAGE;
	uint8_t *map = n < LEAST_WRITE ? NULL : map_of(stage, f, off + n);

	if (!map || ck_sys.populate(map + first, off + n - first))
		return false;
	memcpy(map + off, p, n);
	(void)ck_sys.forget(map + first, off + n - first);	/* the file has them */
	return true;
}
