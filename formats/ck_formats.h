/* ck_formats.h -- the drivers that the product is built with. */
#ifndef CK_FORMATS_H
#define CK_FORMATS_H

#include "libckpt/format/ck_format.h"

extern const struct ck_formats ck_all_formats;

#endif
