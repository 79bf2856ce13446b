/* en_whole.c -- see en_whole.h; also the shortest example of how the engine calls its blocks. */
#include "tests/ref/en_whole.h"

#include <stdlib.h>

#include "engine/model/en_exec_priv.h"
#include "engine/model/en_model_priv.h"

struct en_whole {
	struct en_exec *exec;
	bool recompute;
	size_t stream, saved;	/* floats of one layer's input and of what it keeps */
	float *x;		/* inputs of the layers and of the head */
	float *keep;		/* of each layer, or of one */
	float *dx;
};

int en_whole_new(struct en_exec *exec, unsigned flags, struct en_whole **whole_out,
		 struct ckpt_err *err)
{
	const size_t layers = exec->model->config.layers;
	struct en_whole *w = calloc(1, sizeof(*w));
	size_t kept;

	if (w) {
		w->exec = exec;
		w->recompute = flags & EN_RECOMPUTE;
		w->stream = exec->most * exec->model->config.hidden;
		w->saved = en_saved_floats(exec, (uint32_t)exec->most_rows,
					   (uint32_t)exec->most_tokens);
		kept = w->recompute ? 1 : layers;
		w->x = calloc(w->stream * (layers + 1), sizeof(float));
		w->keep = calloc(w->saved * kept, sizeof(float));
		w->dx = calloc(w->stream, sizeof(float));
	}
	if (!w || !w->x || !w->keep || !w->dx) {
		en_whole_free(w);
		return en_model_fail(err, CKPT_E_NOMEM, "", "no memory for the activations of %zu "
				     "layers", layers);
	}
	*whole_out = w;
	return 0;
}

void en_whole_free(struct en_whole *whole)
{
	if (!whole)
		return;
	free(whole->dx);
	free(whole->keep);
	free(whole->x);
	free(whole);
}

void en_whole_run(struct en_whole *whole, const struct en_batch *batch,
		  const void *const *params, float *const *grads, float factor, unsigned flags,
		  float *token_loss, float *logits, struct en_loss *loss)
{
	struct en_exec *exec = whole->exec;
	const struct en_model *m = exec->model;
	const uint32_t layers = m->config.layers, last = layers + 1;
	const bool tied = m->config.tied;
	const size_t head_at = m->config.hidden * kn_type_size(exec->type);
	const void *head = tied ? params[0] : (const char *)params[last] + head_at;
	struct en_head_out out = { .token_loss = token_loss, .logits = logits };

	en_embed_forward(exec, batch, params[0], whole->x);
	for (uint32_t i = 0; i < layers; i++)
		en_layer_forward(exec, batch, params[i + 1], whole->x + i * whole->stream,
				 whole->x + (i + 1) * whole->stream,
				 whole->keep + (whole->recompute ? 0 : i * whole->saved));
	if (grads) {
		out.dx = whole->dx;
		out.dnorm = grads[last];
		out.dhead = tied ? grads[0] : grads[last] + m->config.hidden;
	}
	en_head(exec, batch, params[last], head, whole->x + layers * whole->stream, factor, flags,
		&out, loss);
	for (uint32_t i = layers; grads && i-- > 0;) {
		const float *x = whole->x + i * whole->stream;
		float *keep = whole->keep + (whole->recompute ? 0 : i * whole->saved);

		if (whole->recompute)
			en_layer_forward(exec, batch, params[i + 1], x,
					 whole->x + (i + 1) * whole->stream, keep);
		en_layer_backward(exec, batch, params[i + 1], x, keep, whole->dx, whole->dx,
				  grads[i + 1], flags);
	}
	if (grads)
		en_embed_backward(exec, batch, whole->dx, grads[0],
				  tied && !(flags & EN_ADD) ? EN_TIED : flags);
}
