/*
 * en_tree.h -- one array out of many, in the order of a fixed binary tree.
 *
 * Arrays are joined in pairs in natural order, (0,1), (2,3), ..., then pairs of the results; an odd
 * last one passes up unchanged.  With 5: ((0 1) (2 3)) 4.
 */
#ifndef EN_TREE_H
#define EN_TREE_H

#include <stddef.h>
#include <stdint.h>

#include "engine/comm/en_comm.h"
#include "kernels/include/kn.h"

struct en_tree {
	enum kn_num type;	/* of the arrays: F32, F64, U64, and for sums BF16, F16 */
	enum en_comm_op op;
	float scale;		/* of sums that are fp32; 1: not multiplied */
};

/* Bytes of 'work' for 'npieces' arrays, whatever their length. */
size_t en_tree_work(uint32_t npieces);

/*
 * out [n] = the join of piece[0..npieces) [n], npieces at least 1.  'out' is fp32 where the pieces
 * have 16 bits, else of their type; it may be one of the pieces where it has their type.
 */
void en_tree_join(const struct en_tree *tree, const void *const *piece, uint32_t npieces, size_t n,
		  void *out, void *work);

#endif
