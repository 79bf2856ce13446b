/* Archives of torch.save, one after the other, whose members were changed in place. */
#ifndef T_SUMS_H
#define T_SUMS_H

#include <stddef.h>
#include <stdint.h>

/* Makes the CRC-32s of their members right, or no change of a pickle in them would be reached. */
void t_sums_set(uint8_t *p, size_t n);

#endif
