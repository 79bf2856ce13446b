/* ck_model_index.c -- the parameters of a model from the tensors of an open checkpoint. */
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/estimate/ck_model.h"

/* "model.layers.7.mlp.down_proj.weight" -> 8; no number: 0 for embeddings, else behind. */
static uint32_t block_of(const char *name)
{
	uint64_t n;
	const char *q;

	for (const char *p = name; p; p = strchr(p, '.') ? strchr(p, '.') + 1 : NULL) {
		for (q = p, n = 0; *q >= '0' && *q <= '9' && n < CK_BLOCK_BEHIND; q++)
			n = n * 10 + (uint64_t)(*q - '0');
		if (q > p && (*q == '.' || !*q))
			return n + 1 < CK_BLOCK_BEHIND ? (uint32_t)n + 1 : CK_BLOCK_BEHIND - 1;
	}
	return strstr(name, "embed") || strstr(name, "wte") || strstr(name, "wpe") ? 0 :
	       CK_BLOCK_BEHIND;
}

/* Of the tower of a vision-language model, or of what joins it to the decoder? */
static bool is_tower(const char *name)
{
	static const char *const begins[] = {
		"visual.", "model.visual.", "vision_tower.", "model.vision_tower.",
		"multi_modal_projector.", "model.multi_modal_projector.", "vision_model.", "mlp1.",
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(begins); i++)
		if (!strncmp(name, begins[i], strlen(begins[i])))
			return true;
	return false;
}

/* Does a name stand for the same module as the one before? */
static bool same_module(const char *a, const char *b)
{
	const char *end = strrchr(a, '.');

	return end && !strncmp(a, b, (size_t)(end - a) + 1) && !strchr(b + (end - a) + 1, '.');
}

static enum ckpt_dtype dtype_of(const struct ck_index *ix, const struct ck_tensor *t)
{
	return t->first_state == CK_NONE ? 0 : (enum ckpt_dtype)ix->state[t->first_state].dtype;
}

static uint64_t bytes_of(const struct ck_index *ix, const struct ck_tensor *t)
{
	const uint32_t bits = ckpt_dtype_bits(dtype_of(ix, t));

	return t->numel / 8 * bits + t->numel % 8 * bits / 8;
}

static bool is_param(const struct ck_index *ix, const struct ck_tensor *t)
{
	const char *type = ckpt_dtype_name(dtype_of(ix, t));

	if (t->role == CKPT_ROLE_PLAIN)
		return type[0] == 'F' || (type[0] == 'B' && type[1] == 'F');
	return t->role == CKPT_ROLE_TRAINABLE || t->role == CKPT_ROLE_FROZEN ||
	       t->role == CKPT_ROLE_UNTRAINED;
}

static int add_buffer(struct ckpt_model *m, uint64_t bytes, const char *name, struct ckpt_err *err)
{
	if (bytes > CK_MODEL_MAX - m->info.buffer_bytes)
		return ck_fail(err, CKPT_E_LIMIT, name, CKPT_NO_OFFSET,
			       "all buffers together exceed 2^48 bytes");
	m->info.buffer_bytes += bytes;
	return 0;
}

int ck_model_index(const struct ck_index *ix, struct ckpt_model *m, struct ckpt_err *err)
{
	const char *before = NULL;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < ix->ntensors; i++) {
		const struct ck_tensor *t = &ix->tensor[i];

		if (t->role == CKPT_ROLE_BUFFER)
			rc = add_buffer(m, bytes_of(ix, t), t->name, err);
		if (rc || !is_param(ix, t))
			continue;
		if (!before || !same_module(before, t->name))
			m->modules++;
		before = t->name;
		if (t->ndim == 2 && strstr(t->name, ".lora_A.")) {
			m->lora = ck_max_u64(m->lora, t->shape[0]);
			m->lora_on |= ck_model_lora_of(t->name);
		}
		rc = ck_model_add(m, &(struct ck_param){
			.numel = t->numel, .module = m->modules, .tower = is_tower(t->name),
			.block = is_tower(t->name) ? 0 : block_of(t->name),
			.group = t->group > 0 ? (uint32_t)t->group : 0,
			.frozen = t->role == CKPT_ROLE_FROZEN || t->role == CKPT_ROLE_UNTRAINED,
		}, err);
	}
	if (!rc && !m->n)
		rc = ck_fail(err, CKPT_E_MISMATCH, NULL, CKPT_NO_OFFSET,
			     "it has no parameters");
	return rc;
}
