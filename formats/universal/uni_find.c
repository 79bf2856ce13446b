/*
 * uni_find.c -- is a universal checkpoint meant (ds_choose.c)?  A folder with a DeepSpeed step too
 * ('latest') is that step unless --tag names this one.
 */
#include "formats/universal/ck_uni.h"

int ck_uni_probe(const struct ck_input *in)
{
	enum ds_holds kind;
	bool named;
	int rc;

	if (!in->is_dir)
		return 0;
	if (ck_ds_is_universal(&in->tree))
		return 70;
	rc = ck_ds_chosen_kind(in, &kind, &named);
	if (rc)
		return rc;
	if (in->tag)
		return kind == DS_HOLDS_UNIVERSAL ? 70 : 0;
	return ck_tree_find(&in->tree, "latest_universal") ? 54 :
	       kind == DS_HOLDS_UNIVERSAL ? 22 : 0;
}
