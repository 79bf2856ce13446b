/* zero_read.c -- this rank's pieces out of a checkpoint of any format, stage and world. */
#include <inttypes.h>
#include <string.h>

#include "engine/zero/en_zero_priv.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

int en_zero_read_weights(struct en_zero *z, const struct ckpt *ck, struct ckpt_err *err)
{
	int rc = en_model_match(z->model, ck, err);

	for (uint64_t i = 0; !rc && i < z->npieces; i++) {
		const struct en_zero_piece *p = &z->piece[i];

		rc = en_model_read(z->model, p->param, ck, p->first, p->count, KN_F32, p->master,
				   err);
		memset(p->m, 0, p->count * sizeof(float));
		memset(p->v, 0, p->count * sizeof(float));
	}
	return rc;
}

static int find(const struct en_zero *z, const struct ckpt *ck, uint32_t param,
		uint64_t *tensor_out, struct ckpt_err *err)
{
	const struct en_param *p = &z->model->param[param];
	struct ckpt_tensor_info info;
	int rc = ckpt_tensor_find(ck, p->name, tensor_out, err);

	if (rc)
		return rc;
	rc = ckpt_tensor_get(ck, *tensor_out, &info, err);
	if (!rc && info.numel != p->numel)
		rc = ck_fail(err, CKPT_E_MISMATCH, p->name, CKPT_NO_OFFSET,
			     "the model has %" PRIu64 " elements of it, the checkpoint %" PRIu64,
			     p->numel, info.numel);
	return rc;
}

int en_zero_read_state(struct en_zero *z, const struct ckpt *ck, uint64_t *bytes_out,
		       struct ckpt_err *err)
{
	static const char *const state[] = { "master", "exp_avg", "exp_avg_sq" };
	struct ckpt_load_range *range = ck_alloc_array(3 * z->npieces + 1, sizeof(*range));
	const struct ckpt_load_opts opts = { .size = sizeof(opts) };
	struct ckpt_loaded loaded;
	uint64_t n = 0;
	int rc = range ? 0 : ck_fail_nomem(err, "ranges", z->npieces);

	for (uint64_t i = 0; !rc && i < z->npieces; i++) {
		const struct en_zero_piece *p = &z->piece[i];
		float *const dst[] = { p->master, p->m, p->v };
		uint64_t tensor = 0;

		rc = find(z, ck, p->param, &tensor, err);
		for (uint32_t k = 0; !rc && k < 3; k++)
			range[n++] = (struct ckpt_load_range){
				.tensor = tensor, .state = state[k], .first = p->first,
				.count = p->count, .dtype = CKPT_F32, .dst = dst[k],
			};
	}
	if (!rc)
		rc = ckpt_load(ck, range, n, &opts, &loaded, err);
	if (!rc && bytes_out)
		*bytes_out = loaded.bytes_read;
	ck_free(range);
	return rc;
}
