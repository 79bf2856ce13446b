/* Torch files built byte by byte and opened in memory, for layouts t_pkl_save cannot say. */
#ifndef T_PT_H
#define T_PT_H

#include "formats/torch_pt/ck_pt.h"
#include "formats/torch_pt/ck_pt_driver.h"
#include "tests/lib/archive/t_pkl.h"
#include "tests/lib/archive/t_zip.h"

void t_pt_int(struct t_pkl *b, int v);
void t_pt_str(struct t_pkl *b, const char *s);
/* A tuple of N numbers. */
void t_pt_dims(struct t_pkl *b, const int *d, int n);
/* A float32 tensor of two dimensions in storage KEY of NUMEL elements. */
void t_pt_tensor(struct t_pkl *b, const char *key, int numel, int offset, int d0, int d1,
		 int s0, int s1);

/* A file as far as it could be opened: RC and ERR say how far, F what was found. */
struct t_pt {
	struct t_zip zip;
	struct ckpt_limits limits;
	struct ck_src *src;
	struct ck_pt *pt;
	struct ck_index ix;
	struct ck_findings f;
	struct ckpt_err err;
	int rc;
};

/* Opens and indexes the N bytes at P, which must stay, as "m.pt". Always t_pt_close after. */
void t_pt_open_bytes(struct t_pt *o, const void *p, size_t n);

/*
 * The same of an archive, left in O->zip, of the pickle, "version", "byteorder" unless it is
 * NULL, and storages "0" of 24 floats 0, 1, ... and "1", packed, of 6. Frees the pickle.
 */
void t_pt_open(struct t_pt *o, struct t_pkl *b, const char *byteorder);
void t_pt_close(struct t_pt *o);

/* The one extent of the one state of the tensor NAME; anything else fails the test. */
const struct ck_extent *t_pt_extent(const struct t_pt *o, const char *name);

#endif
