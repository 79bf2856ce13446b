/*
 * One bit of a file of a checkpoint flips: which bit it is, what verify --full finds, and a hash of
 * what a verb makes of the checkpoint, which damage must not change.
 */
#ifndef T_FLIP_H
#define T_FLIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/include/ckpt.h"
#include "tests/lib/fs/t_files.h"

struct t_flip {
	struct t_file *f;
	size_t at;		/* the byte */
	int bit;
};

/*
 * Half of the flips are drawn by bytes, half by files, so that the small ones have theirs.
 * false = the file that was drawn is empty.
 */
bool t_flip_draw(const struct t_files *files, uint64_t *random, struct t_flip *out);
/* In memory and in the file 'path'; called again, it is undone. */
void t_flip_put(const struct t_flip *flip, const char *path);
/* How many flips: 'more' with ZCKPT_LONG, otherwise 'few'; argv[1] outweighs both. */
long t_flip_count(int argc, char **argv, long few, long more);
/* Where the flips of form 'number' begin: $ZCKPT_SEED, 1 where it is not set. */
uint64_t t_flip_seed(size_t number);

/*
 * The worst severity that verify --full finds in step 'tag' of 'path' (NULL = what 'path' opens),
 * and the first finding of it, or the error that stopped it; "" = nothing above CKPT_INFO.
 */
enum ckpt_severity t_flip_found(const char *path, const char *tag,
				const struct ckpt_run_opts *run, char *id, size_t room);

/* Of the digest of all values. 0, or why it could not be made. */
int t_flip_digest(const char *path, const struct ckpt_run_opts *run, uint64_t *hash,
		  struct ckpt_err *err);
/*
 * Of the files below DIR. Of a safetensors file only the tensors count: its metadata names what it
 * was made of. 'weights_only': files of other kinds do not count.
 */
uint64_t t_flip_folder(const char *dir, bool weights_only);

#endif
