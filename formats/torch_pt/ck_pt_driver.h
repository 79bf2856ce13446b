/* ck_pt_driver.h -- the driver for one torch file, for the list of drivers. */
#ifndef CK_PT_DRIVER_H
#define CK_PT_DRIVER_H

#include "libckpt/format/ck_format.h"

extern const struct ck_format ck_format_torch;

#endif
