/*
 * ck_place.h -- a result into a folder that holds others of its kind (docs/formats/partial.md,
 * "Into a folder that is there").  Used by ck_commit.c.
 */
#ifndef CK_PLACE_H
#define CK_PLACE_H

#include "libckpt/commit/ck_commit.h"

/*
 * Put what is in c->data into c->dst: first the folder c->step stands for, as one, then what is
 * beside it, 'latest' and 'latest_universal' last.  Nothing that is there is replaced but these,
 * unless 'force'.  'rec' gets the entry that says so.  '*begun_out' becomes true as soon as
 * c->dst or what stood there is not what it was; then the partial folder must stay until all is
 * done.
 */
int ck_place_into(const struct ck_commit *c, struct ck_record *rec, bool force,
		  enum ckpt_sync sync, bool *begun_out, struct ckpt_err *err);
/*
 * Go on where a killed process stopped in that; 'placing' is its entry.  '*begun_out' is false if
 * it had not come to the first rename.
 */
int ck_place_go_on(const struct ck_commit *c, uint64_t placing, bool force, enum ckpt_sync sync,
		   bool *begun_out, struct ckpt_err *err);

#endif
