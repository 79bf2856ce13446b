/* ck_st_driver.h -- the driver of single .safetensors files. */
#ifndef CK_ST_DRIVER_H
#define CK_ST_DRIVER_H

#include "libckpt/format/ck_format.h"

/* Bids 64 for a sound head and size, less for what looks like a damaged one. */
extern const struct ck_format ck_format_safetensors;

#endif
