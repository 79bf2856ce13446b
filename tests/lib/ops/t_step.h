/* Opening steps in tests, and asking about what was found. */
#ifndef T_STEP_H
#define T_STEP_H

#include "libckpt/include/ckpt.h"

/* FIXTURES/NAME; the caller frees. */
char *t_fixture(const char *name);
/* FIXTURES/deepspeed/NAME/ckpt copied to a new folder; the caller frees and removes it. */
char *t_step_copy(const char *name);

/* Opens it (TAG may be NULL), or ends the program with the reason. */
struct ckpt *t_step_open(const char *path, const char *tag);
/* Must fail with CODE and a message that has WORDS ("a|b": both). */
void t_step_fails(const char *path, const char *tag, int code, const char *words);

/* The first finding of that name whose text or place has WORDS ("" = any), or NULL. */
const char *t_step_finding(const struct ckpt *ck, const char *id, const char *words);
/* A fact, or NULL. */
const char *t_step_fact(const struct ckpt *ck, const char *key);
/* The tensor of that name, or it ends the program. */
struct ckpt_tensor_info t_step_tensor(const struct ckpt *ck, const char *name);
/* Number of a state of a tensor, or -1. */
int t_step_state(const struct ckpt *ck, const char *name, const char *state);
/* Element 'elem' of a state as a float; it ends the program if there is none. */
float t_step_value(const struct ckpt *ck, const char *name, const char *state, uint64_t elem);
/* How many tensors have that state. */
uint64_t t_step_count(const struct ckpt *ck, const char *state);

/*
 * The trainable weights of a step in a new file, tied ones once, with CKPT_CONVERT_* flags; and
 * their names in order, one a line, as `zckpt shard` takes them: in a new file, or in a string that
 * the caller frees.
 */
void t_step_weights(const char *step, const char *to, unsigned flags);
void t_step_order(const char *step, const char *to);
char *t_step_names(struct ckpt *ck);

/* The digest of all of it, the root of `zckpt digest`, or it ends the program. */
void t_step_digest(struct ckpt *ck, char out[33]);
void t_step_digest_at(const char *path, const char *tag, char out[33]);

#endif
