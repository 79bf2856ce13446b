/*
 * ck_zip_crc.h -- CRC-32 by carry-less products of wide registers.  Private to ck_zip_crc.c
 * and its test.
 */
#ifndef CK_ZIP_CRC_H
#define CK_ZIP_CRC_H

#include "libckpt/base/ck_base.h"

#define CK_CRC_BLOCK 256

/*
 * Fold 'n' bytes, a multiple of CK_CRC_BLOCK and not 0, into one block whose CRC, begun from
 * 0xffffffff, is the CRC of the bytes that goes on from 'crc'.
 */
typedef void (*ck_crc_fold_fn)(uint32_t crc, const uint8_t *p, size_t n,
			       uint8_t block[CK_CRC_BLOCK]);

/* NULL if the CPU or the operating system lacks what it needs, or it is no x86-64. */
ck_crc_fold_fn ck_crc_fold_avx2(void);
ck_crc_fold_fn ck_crc_fold_avx512(void);
/* The same from any byte to any byte; 'fold' NULL: libdeflate's alone. */
uint32_t ck_crc_with(ck_crc_fold_fn fold, uint32_t crc, const void *p, size_t n);

#endif
