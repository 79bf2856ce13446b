/*
 * en_export_lora.c -- adapters at the end of a run: added to their matrices, or as PEFT's files.
 *
 * A block's adapters are small, so every rank gets all of them, block by block.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/en_json.h"
#include "engine/checkpoint/en_export_priv.h"
#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_small_file.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/ztrain/ck_zt_memory.h"

#define HALF ".part"
#define MOST_HEADER ((size_t)64 << 20)

int en_export_block(struct en_zero *z, struct en_comm *comm, const struct en_model *model,
		    uint32_t block, float **whole_out, struct ckpt_err *err)
{
	const uint64_t padded = ck_zt_padded(model->block[block].numel, comm->size);
	const uint64_t shard = padded / comm->size;
	const struct en_zero_slice s = { block, EN_STATE_MASTER, 0, shard };
	float *whole;
	int rc;

	*whole_out = NULL;
	if (!padded)
		return 0;
	whole = ck_alloc_array(padded, sizeof(*whole));
	if (!whole)
		return ck_fail_nomem(err, "adapters", padded);
	rc = en_zero_read(z, &s, whole + comm->rank * shard, err);
	if (!rc)
		rc = en_comm_all_gather(comm, whole, whole + comm->rank * shard,
					shard * sizeof(*whole), NULL, err);
	if (rc)
		ck_free(whole);
	else
		*whole_out = whole;
	return rc;
}

/* ---- merged ---- */

static enum en_linear linear_of(enum en_slot slot)
{
	switch (slot) {
	case EN_Q: return EN_LINEAR_Q;
	case EN_K: return EN_LINEAR_K;
	case EN_V: return EN_LINEAR_V;
	case EN_O: return EN_LINEAR_O;
	case EN_GATE: return EN_LINEAR_GATE;
	case EN_UP: return EN_LINEAR_UP;
	case EN_DOWN: return EN_LINEAR_DOWN;
	default: return EN_LINEARS;
	}
}

/* Elements [from, to) of a row get scale B[row] A. */
static void add_row(const struct en_model *m, const float *a, const float *b, uint64_t in,
		    uint64_t from, uint64_t to, float *w)
{
	for (uint32_t k = 0; k < m->lora.r; k++) {
		const float f = m->scale * b[k], *row = a + k * in;

		for (uint64_t i = from; i < to; i++)
			w[i - from] += f * row[i];
	}
}

void en_export_add(const struct en_model *m, uint32_t param, const float *whole, uint64_t first,
		   uint64_t count, float *w)
{
	const struct en_param *p = &m->param[param];
	const struct en_block *block = &m->block[p->block];
	const bool layer = p->block && p->block <= m->config.layers;
	const enum en_linear linear = layer ? linear_of(p->slot) : EN_LINEARS;
	const uint64_t in = p->shape[1];
	const float *a, *b;

	if (!whole || !p->plain || linear == EN_LINEARS ||
	    block->grad[EN_LORA_A + linear] == UINT64_MAX)
		return;
	a = whole + block->grad[EN_LORA_A + linear];
	b = whole + block->grad[EN_LORA_B + linear];
	for (uint64_t at = first; at < first + count;) {
		const uint64_t row = at / in, from = at % in;
		const uint64_t n = ck_min_u64(in - from, first + count - at);

		add_row(m, a, b + row * m->lora.r, in, from, from + n, w + (at - first));
		at += n;
	}
}

/* ---- PEFT's files ---- */

static const char *type_name(enum kn_type type)
{
	return type == KN_BF16 ? "BF16" : type == KN_F16 ? "F16" : "F32";
}

/* "...q_proj.lora_A.default.weight" without ".default". */
static int add_tensor(const struct en_param *p, enum kn_type type, uint64_t *at,
		      struct ck_buf *out, struct ckpt_err *err)
{
	static const char cut[] = ".default";
	const char *end = strstr(p->name, cut);
	const uint64_t bytes = p->numel * kn_type_size(type);
	int rc = ck_buf_addf(out, err,
			     ",\"%.*s%s\":{\"dtype\":\"%s\",\"shape\":[%llu,%llu],"
			     "\"data_offsets\":[%llu,%llu]}",
			     (int)(end - p->name), p->name, end + sizeof(cut) - 1, type_name(type),
			     (unsigned long long)p->shape[0], (unsigned long long)p->shape[1],
			     (unsigned long long)*at, (unsigned long long)(*at + bytes));

	*at += bytes;
	return rc;
}

/* The header of a safetensors file, its length before it, padded so that tensors are aligned. */
static int header(const struct en_model *m, enum kn_type type, struct ck_buf *out, uint64_t *bytes,
		  struct ckpt_err *err)
{
	uint8_t length[8] = { 0 };
	int rc = ck_buf_add(out, (const char *)length, sizeof(length), err);

	*bytes = 0;
	if (!rc)
		rc = ck_buf_adds(out, "{\"__metadata__\":{\"format\":\"pt\"}", err);
	for (uint32_t i = 0; !rc && i < m->nparams; i++)
		if (!m->param[i].plain)
			rc = add_tensor(&m->param[i], type, bytes, out, err);
	if (!rc)
		rc = ck_buf_adds(out, "}", err);
	while (!rc && out->len % 8)
		rc = ck_buf_adds(out, " ", err);
	for (size_t i = 0; !rc && i < 8; i++)
		out->p[i] = (char)(uint8_t)((uint64_t)(out->len - 8) >> 8 * i);
	return rc;
}

static int write_block(const struct en_model *m, uint32_t block, const float *whole,
		       enum kn_type type, struct ck_small_file *f, struct ckpt_err *err)
{
	const struct en_block *b = &m->block[block];
	const size_t size = kn_type_size(type);
	uint8_t some[4096 * sizeof(float)];
	int rc = 0;

	for (uint32_t i = b->first; i < b->first + b->count; i++) {
		const struct en_param *p = &m->param[i];

		if (p->plain)
			continue;
		for (uint64_t at = 0, n; !rc && at < p->numel; at += n) {
			n = ck_min_u64(p->numel - at, 4096);
			kn_cast(some, type, whole + p->offset + at, KN_F32, n, NULL);
			rc = ck_small_file_write(f, some, n * size, err);
		}
	}
	return rc;
}

static int add_quoted(struct ck_buf *out, const char *text, struct ckpt_err *err)
{
	int rc = ck_buf_adds(out, "\"", err);

	for (const char *p = text; !rc && *p; p++)
		rc = (uint8_t)*p < ' ' || *p == '"' || *p == '\\' ?
		     ck_buf_addf(out, err, "\\u%04x", (uint8_t)*p) : ck_buf_add(out, p, 1, err);
	return rc ? rc : ck_buf_adds(out, "\"", err);
}

/* The keys that decide, and those that PEFT would miss; what it adds later has its default. */
static int add_config(const struct en_model *m, const char *base, struct ck_buf *out,
		  struct ckpt_err *err)
{
	char alpha[EN_DOUBLE_TEXT], dropout[EN_DOUBLE_TEXT];
	bool first = true;
	int rc = ck_buf_adds(out, "{\n  \"alpha_pattern\": {},\n"
			     "  \"auto_mapping\": null,\n"
			     "  \"base_model_name_or_path\": ", err);

	en_double_text(m->lora.alpha, alpha);
	if (m->lora.alpha < 1e9 && m->lora.alpha == (double)(int64_t)m->lora.alpha)
		snprintf(alpha, sizeof(alpha), "%lld", (long long)m->lora.alpha);
	en_double_text(m->lora.dropout, dropout);
	if (!rc)
		rc = base ? add_quoted(out, base, err) : ck_buf_adds(out, "null", err);
	if (!rc)
		rc = ck_buf_addf(out, err, ",\n  \"bias\": \"none\",\n"
				 "  \"fan_in_fan_out\": false,\n"
				 "  \"inference_mode\": true,\n  \"init_lora_weights\": true,\n"
				 "  \"lora_alpha\": %s,\n  \"lora_dropout\": %s,\n"
				 "  \"modules_to_save\": null,\n  \"peft_type\": \"LORA\",\n"
				 "  \"r\": %u,\n  \"rank_pattern\": {},\n  \"revision\": null,\n"
				 "  \"target_modules\": [", alpha, dropout, m->lora.r);
	for (uint32_t i = 0; !rc && i < EN_LINEARS; i++) {
		if (!(m->lora.targets & 1u << i))
			continue;
		rc = ck_buf_addf(out, err, "%s\n    \"%s\"", first ? "" : ",",
				 en_linear_name((enum en_linear)i));
		first = false;
	}
	return rc ? rc : ck_buf_addf(out, err, "\n  ],\n  \"task_type\": \"CAUSAL_LM\",\n"
				     "  \"use_dora\": false,\n  \"use_rslora\": %s\n}\n",
				     m->lora.rslora ? "true" : "false");
}

int en_export_adapter_config(const struct en_model *m, const char *base, char **text_out,
			     struct ckpt_err *err)
{
	struct ck_buf text = CK_BUF_INIT(MOST_HEADER);
	int rc = add_config(m, base, &text, err);

	if (!rc)
		*text_out = ck_buf_take(&text);
	ck_buf_release(&text);
	return rc;
}

static int write_config(const struct en_model *m, const struct en_export_opts *o, const char *path,
			uint64_t *bytes, struct ckpt_err *err)
{
	struct ck_small_file f = { .half = NULL };
	char *text = NULL;
	int rc = en_export_adapter_config(m, o->model, &text, err);

	*bytes = rc ? 0 : strlen(text);

	if (!rc)
		rc = ck_small_file_begin(&f, path, HALF, err);
	if (!rc)
		rc = ck_small_file_write(&f, text, *bytes, err);
	if (!rc)
		rc = ck_small_file_place(&f, true, o->sync, err);
	ck_small_file_drop(&f);
	ck_free(text);
	return rc;
}

/* Rank 0's file; of the others 'f' is NULL. */
static int write_blocks(const struct en_model *m, struct en_zero *z, struct en_comm *comm,
			enum kn_type type, struct ck_small_file *f, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < m->nblocks; i++) {
		float *whole;

		rc = en_export_block(z, comm, m, i, &whole, err);
		if (!rc && f && whole)
			rc = write_block(m, i, whole, type, f, err);
		ck_free(whole);
	}
	return rc;
}

static int begin(const struct en_model *m, const struct en_export_opts *o, const char *dir,
		 const char *path, struct ck_small_file *f, struct ckpt_saved *out,
		 struct ckpt_err *err)
{
	struct ck_buf head = CK_BUF_INIT(MOST_HEADER);
	uint64_t bytes = 0;
	int rc = 0;

	if (ck_sys.mkdir(dir, 0777) && errno != EEXIST)
		rc = ck_fail_sys(err, errno, "mkdir", dir);
	if (!rc)
		rc = header(m, o->type, &head, &bytes, err);
	if (!rc)
		rc = ck_small_file_begin(f, path, HALF, err);
	if (!rc)
		rc = ck_small_file_write(f, head.p, head.len, err);
	out->nfiles = 2;
	out->file_bytes = head.len + bytes;
	ck_buf_release(&head);
	return rc;
}

/* All ranks know how rank 0 fared; the others have its code alone. */
static int agree(struct en_comm *comm, int rc, const char *dir, struct ckpt_err *err)
{
	int32_t said = rc;
	int own = en_comm_broadcast(comm, &said, sizeof(said), 0, NULL, rc ? NULL : err);

	if (rc || own)
		return rc ? rc : own;
	return said ? ck_fail(err, (enum ckpt_code)-said, dir, CKPT_NO_OFFSET,
			      "rank 0 failed to write the adapter") : 0;
}

int en_export_adapter(const struct en_model *model, struct en_zero *z, struct en_comm *comm,
		      const struct en_export_opts *o, const char *dir, struct ckpt_saved *out,
		      struct ckpt_err *err)
{
	char *weights = ck_fs_join(dir, "adapter_model.safetensors");
	char *settings = ck_fs_join(dir, "adapter_config.json");
	struct ckpt_saved saved = { .nfiles = 0 };
	struct ck_small_file f = { .half = NULL };
	const bool writes = !comm->rank;
	uint64_t bytes = 0;
	int rc = weights && settings ? 0 : ck_fail_nomem(err, "a path", strlen(dir));

	if (!rc && writes)
		rc = begin(model, o, dir, weights, &f, &saved, err);
	rc = agree(comm, rc, dir, err);
	if (!rc)
		rc = write_blocks(model, z, comm, o->type, writes ? &f : NULL, err);
	if (!rc && writes)
		rc = ck_small_file_place(&f, true, o->sync, err);
	if (!rc && writes)
		rc = write_config(model, o, settings, &bytes, err);
	rc = agree(comm, rc, dir, err);
	ck_small_file_drop(&f);
	ck_free(weights);
	ck_free(settings);
	saved.file_bytes += bytes;
	if (!rc && out)
		*out = saved;
	return rc;
}
