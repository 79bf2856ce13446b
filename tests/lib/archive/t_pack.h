/* Packs for tests: folders of files with bytes that can be computed again, packed, read, unpacked
 * at the level of the driver. Results that must be are asserted. */
#ifndef T_PACK_H
#define T_PACK_H

#include <stdbool.h>

#include "formats/archive/ck_pack.h"
#include "libckpt/io/ck_fdpool.h"

struct t_pack_file {
	const char *name;	/* in the pack */
	uint64_t bytes;
};

struct t_pack {
	char *dir;		/* holds all below */
	char *pack;		/* dir/x.tar.zst */
	char *out;		/* dir/out */
	const struct t_pack_file *file;
	size_t n;
};

/* Write the files' bytes below dir/in; 'file' is lent. */
void t_pack_open(struct t_pack *t, const struct t_pack_file *file, size_t n);
void t_pack_close(struct t_pack *t);
/* Byte 'at' of file 'i'. */
uint8_t t_pack_byte(size_t i, uint64_t at);

struct ckpt_run_opts t_pack_run(uint32_t threads);
/* Make t->pack, or write it to 'fd' (-1 = the file). */
int t_pack_make(const struct t_pack *t, const struct ckpt_run_opts *run, int level, int fd,
		struct ckpt_err *err);
/* Unpack 'path' to t->out. */
int t_pack_unpack(const struct t_pack *t, const char *path, const struct ckpt_run_opts *run,
		  unsigned flags, struct ckpt_err *err);
/* t->out holds the files, those bytes and nothing else. */
bool t_pack_is_out(const struct t_pack *t);
/* Nothing of a run is in the folder but 'in' and, with 'pack', the pack. */
void t_pack_nothing_else(const struct t_pack *t, bool pack);

/* A tar archive made by hand, which may hold anything. */
struct t_tar {
	uint8_t *p;
	size_t n;
};

/* '0' file, '1' hard link, '2' symbolic link, '3' '4' devices, '5' folder, '6' fifo, 'x' pax. */
void t_tar_add(struct t_tar *t, const char *name, char type, const char *link, const void *data,
	       size_t n);
void t_tar_end(struct t_tar *t);

#endif
