/* en_best.c -- see en_best.h. */
#include "engine/checkpoint/en_best.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <ckpt_keep.h>

#include "engine/base/en_json.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_small_file.h"

#define MOST_NODES 64

bool en_best_add(struct en_best *best, int64_t step, double loss)
{
	const bool lower = best->step ? loss < best->loss : !isnan(loss);

	if (lower)
		*best = (struct en_best){ .step = step, .loss = loss };
	else
		best->unfallen++;
	return lower;
}

int en_best_write(const struct en_best *best, struct ck_buf *buf, struct ckpt_err *err)
{
	char loss[EN_DOUBLE_TEXT];

	en_double_text(best->loss, loss);
	return ck_buf_addf(buf, err,
			   "{\"step\": %" PRId64 ", \"loss\": %s%s%s, \"unfallen\": %" PRId64 "}",
			   best->step, isfinite(best->loss) ? "" : "\"", loss,
			   isfinite(best->loss) ? "" : "\"", best->unfallen);
}

/* A loss that is infinite is in quotes: any later one is lower. */
static bool take_values(struct en_best *out, const struct ck_json *doc)
{
	struct en_best best = { .loss = INFINITY };
	const uint64_t loss = ck_json_get(doc, 0, "loss");

	if (doc->tok[0].type != CK_JSON_OBJECT || loss == UINT64_MAX ||
	    !ck_json_i64(doc, ck_json_get(doc, 0, "step"), &best.step) ||
	    !ck_json_i64(doc, ck_json_get(doc, 0, "unfallen"), &best.unfallen) ||
	    best.step < 0 || best.unfallen < 0)
		return false;
	if (doc->tok[loss].type != CK_JSON_STRING && !en_json_double(doc, loss, &best.loss))
		return false;
	*out = best;
	return true;
}

bool en_best_read(struct en_best *out, struct ckpt_values *values)
{
	struct ck_json doc = CK_JSON_INIT;
	struct ckpt_value text;
	bool ok;

	if (ckpt_value_get(values, EN_BEST_KEY, &text, NULL) || text.kind != CKPT_VALUE_STRING)
		return false;
	ok = !en_json_parse(&doc, text.bytes, text.n, MOST_NODES, EN_BEST_KEY, NULL) &&
	     take_values(out, &doc);
	ck_json_release(&doc);
	return ok;
}

/* ---- the folder ---- */

int en_best_set(const char *root, const char *tag, enum ckpt_sync sync, struct ckpt_err *err)
{
	struct ck_small_file half = { .fd = -1 };
	char *path = ck_asprintf("%s/best", root);
	int rc = path ? ck_small_file_begin(&half, path, ".zckpt-new", err) :
		 ck_fail_nomem(err, "a path", strlen(root));

	if (!rc)
		rc = ck_small_file_write(&half, tag, strlen(tag), err);
	if (!rc)
		rc = ck_small_file_place(&half, true, sync, err);
	ck_small_file_drop(&half);
	ck_free(path);
	return rc;
}

/* Steps of other runs that are still there: ckpt_prune() refuses names without a step. */
static const char **list_others(const char *root, const struct en_found *found, const char *ids)
{
	const uint64_t n = found ? found->nsteps : 0;
	const char **keep = ck_zalloc((n + 1) * sizeof(*keep));
	uint64_t kept = 0;

	for (uint64_t i = 0; keep && i < n; i++) {
		const struct en_step_found *s = &found->step[i];
		char *path = ck_asprintf("%s/%s", root, s->name);
		struct stat st;

		if (!(s->run[0] && strstr(ids, s->run)) && path && !ck_sys.stat(path, &st))
			keep[kept++] = s->name;
		ck_free(path);
	}
	return keep;
}

int en_best_prune(const char *root, uint64_t most, const struct en_found *found, const char *ids,
		  struct ckpt_err *err)
{
	const char **keep = list_others(root, found, ids);
	const struct ckpt_prune_opts opts = {
		.size = sizeof(opts), .keep_last = most, .keep = keep, .flags = CKPT_PRUNE_APPLY,
	};
	struct ckpt_pruned done = { .nsteps = 0 };
	int rc = keep ? ckpt_prune(root, &opts, &done, err) : ck_fail_nomem(err, "names", 0);

	ckpt_pruned_free(&done);
	ck_free(keep);
	return rc;
}
