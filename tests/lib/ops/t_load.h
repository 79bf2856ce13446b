/* Ranges of all states of a checkpoint, dealt to ranks, loaded, compared with ckpt_cat(). */
#ifndef T_LOAD_H
#define T_LOAD_H

#include <stddef.h>
#include <stdint.h>

#include "libckpt/include/ckpt.h"

/* What ranks were given. */
struct t_loaded {
	uint64_t states;	/* that were dealt out and compared */
	uint64_t passed;	/* that ckpt_cat() does not give either */
	uint64_t bytes_made, bytes_read, reads, unchecked, again;
};

/*
 * Every state of every tensor of 'ck' in 'world' ranges, some of them empty, one call a rank, each
 * range at any address; what is there then must be what ckpt_cat() gives, and nothing beside it may
 * be touched. With 'cast', floating states in types of chance. 'flags' are those of loading. Ends
 * the program, or the test, with what is wrong.
 */
void t_load_ranks(struct ckpt *ck, uint32_t world, unsigned flags, int cast, uint64_t *seed,
		  struct t_loaded *out);

/* All bytes of a state, by ckpt_cat(); NULL if it gives none. The caller frees. */
uint8_t *t_load_cat(struct ckpt *ck, uint64_t tensor, const char *state, enum ckpt_dtype dtype,
		    size_t *n_out);

/* The step at 'from' in another form (CKPT_TO_*) at 'to'. */
void t_load_reshard(const char *from, const char *to, int form, uint32_t world);

/*
 * What rank 'rank' of 'world' has: with 'own', the extents that this rank wrote; else an equal
 * share of every state that is stored. The counters are added to '*sum'.
 */
void t_load_share(struct ckpt *ck, uint32_t rank, uint32_t world, int own, unsigned flags,
		  struct ckpt_loaded *sum);

#endif
