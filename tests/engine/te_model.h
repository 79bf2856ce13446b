/* A model of the fixtures in memory, and what references say about it: for tests of the engine. */
#ifndef TE_MODEL_H
#define TE_MODEL_H

#include <cJSON.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/model/en_exec.h"
#include "engine/model/en_pool.h"
#include "tests/lib/archive/t_st.h"

/* build/fixtures/model/NAME, or the same below $ZCKPT_FIXTURES; the caller frees it. */
char *te_path(const char *name);
/* Ends the program (77) when the fixtures are not unpacked. */
void te_need_fixtures(void);
cJSON *te_json(const char *name);

/* Flat buffers of one model: a pointer a block. */
struct te_buffers {
	void **block;
	uint32_t n;
};

struct te_buffers te_buffers_new(const struct en_model *model, enum kn_type type);
void te_buffers_free(struct te_buffers *b);
/* Every element as 'type', rounded. */
struct te_buffers te_buffers_cast(const struct en_model *model, const struct te_buffers *from,
				  enum kn_type type);

struct te_model {
	struct en_model *model;
	struct te_buffers weight;	/* fp32 */
};

/* models/NAME of the fixtures, through libckpt. */
void te_model_open(struct te_model *m, const char *name);
void te_model_close(struct te_model *m);

/* ref/NAME.safetensors. */
struct te_ref {
	struct t_st st;
	struct en_batch batch;
};

void te_ref_open(struct te_ref *ref, const char *name);
void te_ref_close(struct te_ref *ref);
const float *te_ref_f32(const struct te_ref *ref, const char *name);
/* grad.NAME */
const float *te_ref_grad(const struct te_ref *ref, const char *name);

/* One run of the whole model. */
struct te_run {
	struct en_loss loss;
	float mean;		/* loss.sum / loss.count */
	float *token_loss, *logits;
	struct te_buffers grad;
};

struct te_how {
	enum kn_type type;
	uint32_t threads;
	unsigned whole;		/* EN_RECOMPUTE */
	unsigned flags;		/* EN_ADD */
};

/* Gradients of the mean loss times 'scale'.  'weight' is in how.type. */
void te_run(struct te_run *out, const struct en_model *model, const struct te_buffers *weight,
	    const struct en_batch *batch, const struct te_how *how, float scale);
void te_run_free(struct te_run *run);

double te_max_abs(const float *a, const float *b, size_t n);
double te_rel_l2(const float *a, const float *b, size_t n);

#endif
