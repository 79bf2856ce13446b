/* ds_tp_rules_priv.h -- between ds_tp_rules.c, which finds rules, and ds_tp_cut.c. */
#ifndef CK_DS_TP_RULES_PRIV_H
#define CK_DS_TP_RULES_PRIV_H

#include "formats/ds_pt/ds_tp_rules.h"

/* The first rule that a name matches, or NULL; '*other_out': one of another kind, or NULL. */
struct ds_tp_rule *ck_ds_tp_find(const struct ds_tp_list *list, const char *name,
				 struct ds_tp_rule **other_out);
/* The key of universal_checkpoint_info that has patterns of that kind. */
const char *ck_ds_tp_key(enum ds_tp_kind kind);
/* False: whether the name matches this pattern of the list cannot be said. */
bool ck_ds_tp_knows(const struct ds_tp_list *list, const char *name, const char **pattern_out);

/* ds_tp_affine.c: AutoTP's second description says the same. */
int ck_ds_tp_check_affine(const struct ds_tp_rules *rules, const struct ds_tp_local *local,
			  const struct ds_tp_cut *cut, struct ckpt_err *err);

#endif
