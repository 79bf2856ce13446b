/* Damage done to copies of checkpoints. A helper that finds nothing to damage
 * ends the test program: a test on an undamaged copy would prove nothing. */
#ifndef T_DAMAGE_FILE_H
#define T_DAMAGE_FILE_H

#include <stddef.h>
#include <stdint.h>

/* Cuts PATH to SIZE bytes; a negative SIZE cuts that many off the end. */
void t_damage_truncate(const char *path, long size);
void t_damage_flip(const char *path, size_t offset, uint8_t mask);
void t_damage_delete(const char *path);
void t_damage_rename(const char *from, const char *to);
void t_damage_swap(const char *a, const char *b);

/* Offset of the NTH (from 0) place of these bytes, or -1. */
long t_damage_find(const char *path, const void *bytes, size_t n, int nth);
void t_damage_patch(const char *path, size_t offset, const void *bytes, size_t n);

/* Where the pickle is in a torch zip file. */
void t_damage_pickle_at(const char *path, size_t *offset_out, size_t *n_out);
/* In the pickle, after the first place of the text AFTER, replaces
 * the first OLD (n bytes) by NEW, and sets the CRC-32 right everywhere, so that
 * only the meaning is wrong. */
void t_damage_pickle(const char *path, const char *after, const void *old,
		     const void *new_bytes, size_t n);

#endif
