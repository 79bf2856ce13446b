/* tg_kernels.h -- the parts of test_cuda_kernels.c that have files of their own. */
#ifndef TG_KERNELS_H
#define TG_KERNELS_H

/* Embedding, activation, loss, optimizer, element-wise. */
void tg_test_more_kernels(void);
/* Of them, those with the CPU's bits. */
void tg_test_flat_kernels(void);
/* Prints time and bandwidth next to those of a copy of as many bytes. */
void tg_bench_kernels(void);

#endif
