/* en_weights.c -- see en_weights.h. */
#include "engine/model/en_weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/base/en_json.h"
#include "engine/model/en_model_priv.h"

/* ---- weights ---- */

static enum ckpt_dtype dtype_of(enum kn_type type)
{
	return type == KN_BF16 ? CKPT_BF16 : type == KN_F16 ? CKPT_F16 : CKPT_F32;
}

static int allocate_blocks(const struct en_model *model, enum kn_type type, struct en_weights *w,
			   struct ckpt_err *err)
{
	w->block = calloc(model->nblocks, sizeof(*w->block));
	for (uint32_t i = 0; w->block && i < model->nblocks; i++) {
		const uint64_t bytes = en_block_span(&model->block[i]) * kn_type_size(type);

		if (bytes > SIZE_MAX / 2 || posix_memalign(&w->block[i], 64, bytes + 64)) {
			w->block[i] = NULL;
			return en_model_fail(err, CKPT_E_NOMEM, "", "no memory for the weights: "
					     "%llu elements in all",
					     (unsigned long long)model->numel);
		}
		w->n++;
		w->bytes += bytes;
	}
	return w->block ? 0 : en_model_fail(err, CKPT_E_NOMEM, "", "no memory for the weights");
}

static int list(const struct en_model *model, const struct ckpt *ck, enum kn_type type,
		const struct en_weights *w, struct ckpt_load_range *range, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < model->nparams; i++) {
		const struct en_param *p = &model->param[i];
		const uint64_t at = model->block[p->block].at[p->slot];

		/* "master" of what has none is the weight */
		range[i] = (struct ckpt_load_range){
			.state = "master", .count = p->numel, .dtype = dtype_of(type),
			.dst = (char *)w->block[p->block] + at * kn_type_size(type),
		};
		rc = en_model_tensor(model, i, ck, &range[i].tensor, err);
	}
	return rc;
}

int en_weights_load(const struct en_model *model, const struct ckpt *ck, enum kn_type type,
		    uint32_t threads, struct en_weights *out, struct ckpt_err *err)
{
	const struct ckpt_run_opts run = { .size = sizeof(run), .threads = threads };
	const struct ckpt_load_opts opts = {
		.size = sizeof(opts), .run = &run, .flags = CKPT_LOAD_CHECK,
	};
	struct ckpt_load_range *range = NULL;
	struct en_weights w = { 0 };
	int rc = en_model_match(model, ck, err);

	if (!rc)
		rc = allocate_blocks(model, type, &w, err);
	if (!rc) {
		range = calloc(model->nparams, sizeof(*range));
		rc = range ? list(model, ck, type, &w, range, err) :
		     en_model_fail(err, CKPT_E_NOMEM, "", "no memory for a list of weights");
	}
	if (!rc)
		rc = ckpt_load(ck, range, model->nparams, &opts, NULL, err);
	free(range);
	if (rc)
		en_weights_free(&w);
	else
		*out = w;
	return rc;
}

void en_weights_free(struct en_weights *w)
{
	for (uint32_t i = 0; i < w->n; i++)
		free(w->block[i]);
	free(w->block);
	*w = (struct en_weights){ 0 };
}

/* ---- what ends a text ---- */

static int add_id(const struct ck_json *doc, uint64_t v, const char *where, int32_t *ids,
		  uint32_t *n, struct ckpt_err *err)
{
	double id;

	if (!en_json_double(doc, v, &id) || id < 0 || id > INT32_MAX || id != floor(id))
		return en_model_fail(err, CKPT_E_CORRUPT, where,
				     "\"eos_token_id\" is not a token id or a list of token ids");
	if (*n == EN_EOS_MOST)
		return en_model_fail(err, CKPT_E_LIMIT, where, "\"eos_token_id\" has more than %u "
				     "tokens", EN_EOS_MOST);
	ids[(*n)++] = (int32_t)id;
	return 0;
}

static int add_ids(const struct ck_json *doc, uint64_t v, const char *where, int32_t *ids,
		   uint32_t *n, struct ckpt_err *err)
{
	const bool is_list = doc->tok[v].type == CK_JSON_ARRAY;
	const uint32_t count = is_list ? doc->tok[v].n : 1;
	int rc = 0;

	v += is_list;
	for (uint32_t i = 0; !rc && i < count; i++, v = doc->tok[v].next)
		rc = add_id(doc, v, where, ids, n, err);
	return rc;
}

/* '*said' is true if the file has the key and it is not null. */
static int read_eos(const char *dir, const char *name, int32_t *ids, uint32_t *n, bool *said,
		    struct ckpt_err *err)
{
	struct ck_json doc = CK_JSON_INIT;
	char path[4096], *text = NULL;
	uint64_t v;
	size_t len;
	int rc;

	*said = false;
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	rc = en_model_file(path, &text, &len, NULL);
	if (rc == -CKPT_E_NOTFOUND)
		return 0;
	if (rc)
		return en_model_fail(err, (enum ckpt_code) - rc, path, "cannot read");
	if (en_json_parse(&doc, text, len, EN_MODEL_NODES, path, NULL)) {
		rc = en_model_fail(err, CKPT_E_CORRUPT, path, "not JSON");
		goto out;
	}
	v = ck_json_given(&doc, 0, "eos_token_id");
	*said = v != UINT64_MAX;
	if (*said)
		rc = add_ids(&doc, v, path, ids, n, err);
out:
	ck_json_release(&doc);
	free(text);
	return rc;
}

int en_eos_read(const char *dir, int32_t ids[EN_EOS_MOST], uint32_t *n_out, struct ckpt_err *err)
{
	bool said;
	int rc;

	*n_out = 0;
	rc = read_eos(dir, "generation_config.json", ids, n_out, &said, err);
	if (!rc && !said)
		rc = read_eos(dir, "config.json", ids, n_out, &said, err);
	return rc;
}
