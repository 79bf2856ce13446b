/*
 * ck_expect.h -- `--expect`: would the result be what another file says?
 */
#ifndef CK_EXPECT_H
#define CK_EXPECT_H

#include "libckpt/format/ck_plan.h"
#include "libckpt/run/ck_ckpt.h"
#include "libckpt/select/ck_select.h"

/*
 * Compare item[0..n-1] with 'path': the names of an index ("*.json"), or names, shapes and
 * types of a checkpoint that is opened like any other.  CKPT_E_EXPECT with up to five
 * differences; codes of opening it.
 */
int ck_expect(const struct ckpt *ck, const char *path, const struct ck_item *item, uint64_t n,
	      const struct ck_selection *sel, struct ckpt_err *err);

#endif
