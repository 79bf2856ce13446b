/* Casts between dtypes, one element at a time, as plainly as can be: what the
 * program's fast casts are compared with. */
#ifndef T_CAST_H
#define T_CAST_H

#include "tests/lib/t_st.h"

/* Writes T's elements as DTYPE (F32, F16, BF16; or T's own dtype: a copy) into
 * a new buffer. Rounding is to nearest even, beyond the range gives infinity.
 * NULL when the pair is not known. The caller frees. */
uint8_t *t_cast(const struct t_st_tensor *t, const char *dtype);

/* 1 when both hold the same bits, where any two NaN count as the same. */
int t_same(const uint8_t *a, const uint8_t *b, const char *dtype, uint64_t count);

uint16_t t_f32_to_bf16(float x);
uint16_t t_f32_to_f16(float x);
float t_f16_to_f32(uint16_t h);

#endif
