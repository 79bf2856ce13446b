/* op_commit.c -- see op_commit.h. */
#include "libckpt/run/op_commit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/commit/ck_stage.h"

/* ---- which files of an old folder are outputs ---- */

/*
 * "STATE.safetensors", its index, or "STATE-00001-of-00003.safetensors": how long STATE is, and the
 * number of shards, 0 for the others.
 */
static bool read_output(const char *name, size_t *stem_out, uint64_t *shards_out)
{
	static const char end[] = ".safetensors", digits[] = "0123456789";
	const char *p = strstr(name, end);
	size_t n, m;

	if (!p || (strcmp(p, end) && strcmp(p, ".safetensors.index.json")))
		return false;
	*stem_out = (size_t)(p - name);
	*shards_out = 0;
	for (const char *q = strchr(name, '-'); q && q < p; q = strchr(q + 1, '-')) {
		n = strspn(q + 1, digits);
		m = strncmp(q + 1 + n, "-of-", 4) ? 0 : strspn(q + 1 + n + 4, digits);
		if (n < 5 || m < 5 || m > 9 || q + 1 + n + 4 + m != p || strcmp(p, end))
			continue;
		*stem_out = (size_t)(q - name);
		*shards_out = strtoull(q + 1 + n + 4, NULL, 10);
		break;
	}
	return *stem_out != 0;
}

/* Every shard of a set, which a part of one that is kept is not. */
static bool has_set(const struct ck_tree *fresh, const char *stem, int n, uint64_t shards)
{
	char name[512];

	for (uint64_t i = 1; i <= shards; i++) {
		const int len = snprintf(name, sizeof(name), "%.*s-%05" PRIu64 "-of-%05" PRIu64
					 ".safetensors", n, stem, i, shards);

		if (len < 0 || (size_t)len >= sizeof(name) || !ck_tree_find(fresh, name))
			return false;
	}
	return shards != 0;
}

/* A file of the same state, and all others that it needs, are among 'fresh'. */
bool ck_is_state_output(const char *name, const struct ck_tree *fresh)
{
	uint64_t shards, others;
	size_t stem, n;

	if (!read_output(name, &stem, &shards))
		return false;
	for (uint64_t i = 0; i < fresh->n; i++) {
		const char *other = fresh->entry[i].name;

		if (!read_output(other, &n, &others) || n != stem || strncmp(name, other, n))
			continue;
		if (others ? has_set(fresh, other, (int)n, others) :
		    !strcmp(other + n, ".safetensors"))
			return true;
	}
	return false;
}

/* ---- verbs ---- */

/* A folder of states keeps weights that stand beside them, and the reverse. */
static int is_folder_of_states(const struct ck_format *folder, const char *dst, bool *out,
			       struct ckpt_err *err)
{
	struct ck_tree tree = CK_TREE_INIT;
	struct ck_commit paths;
	const char *data;
	int rc = ck_commit_init(&paths, dst, true, err);

	if (rc)
		return rc;
	data = paths.data;
	*out = false;
	if (!ck_tree_list(&tree, &data, 1, NULL, UINT32_MAX, NULL)) {
		*out = true;
		for (uint64_t i = 0; i < tree.n; i++)
			*out &= !folder->is_output(tree.entry[i].name, &tree);
	}
	ck_tree_release(&tree);
	ck_commit_release(&paths);
	return 0;
}

int ck_outputs_at(const struct ck_format *folder, const char *dst, ck_is_ours_fn **is_ours_out,
		  struct ckpt_err *err)
{
	bool states;
	int rc = is_folder_of_states(folder, dst, &states, err);

	if (!rc)
		*is_ours_out = states ? ck_is_state_output : folder->is_output;
	return rc;
}

int ck_commit_parts(const struct ck_format *folder, const char *dst, uint32_t timeout_ms,
		    enum ckpt_sync sync, struct ckpt_err *err)
{
	ck_is_ours_fn *is_ours;
	int rc = ck_outputs_at(folder, dst, &is_ours, err);

	return rc ? rc : ck_stage_finish(dst, timeout_ms, sync, is_ours, err);
}

int ck_discard_parts(const struct ck_format *folder, const char *dst, struct ckpt_err *err)
{
	ck_is_ours_fn *is_ours;
	int rc = ck_outputs_at(folder, dst, &is_ours, err);

	return rc ? rc : ck_stage_discard(dst, is_ours, err);
}

int ck_settle(const struct ck_format *folder, const char *dst, enum ckpt_sync sync,
	      bool *settled_out, struct ckpt_err *err)
{
	ck_is_ours_fn *is_ours;
	int rc = ck_outputs_at(folder, dst, &is_ours, err);

	return rc ? rc : ck_stage_settle(dst, sync, is_ours, settled_out, err);
}
