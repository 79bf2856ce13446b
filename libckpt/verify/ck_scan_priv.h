/* ck_scan_priv.h -- private to ck_scan.c and ck_scan_read.c. */
#ifndef CK_SCAN_PRIV_H
#define CK_SCAN_PRIV_H

#include "libckpt/base/ck_base.h"

/* A stored member of an archive: its bytes, and what their CRC-32 must be (0 = not computed). */
struct ck_scan_member {
	uint64_t off, bytes;
	uint32_t crc;
	uint32_t entry;
};

#endif
