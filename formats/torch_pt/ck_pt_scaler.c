/* ck_pt_scaler.c -- see ck_pt_scaler.h.  Facts: torch/amp/grad_scaler.py, fp16/loss_scaler.py. */
#include "formats/torch_pt/ck_pt_scaler.h"

#include <float.h>

#include "libckpt/base/ck_base.h"
#include "libckpt/tensor/ck_val_new.h"

#define TRACKER "_growth_tracker"
/*
 * The scale grows at the step whose number is that of the last overflow, and a window, and one
 * more (DeepSpeed 0.18 and later); torch's at the last step of a window.
 */
#define LAG 2
#define MOST ((int64_t)1 << 53)	/* of a count */

static double number(const struct ck_val *d, const char *key, double otherwise)
{
	double v;

	return ck_val_num(ck_val_get(d, key), &v) ? v : otherwise;
}

static int64_t whole(const struct ck_val *d, const char *key, int64_t otherwise)
{
	int64_t v;

	return ck_val_int(ck_val_get(d, key), &v) && v >= 0 && v <= MOST ? v : otherwise;
}

bool ck_pt_scaler_is_grad(const struct ck_val *v)
{
	const double scale = number(v, "scale", 0), up = number(v, "growth_factor", 0);
	const double down = number(v, "backoff_factor", 0);

	return scale > FLT_MIN && scale <= FLT_MAX && up > 1 && up <= FLT_MAX && down > FLT_MIN &&
	       down < 1 && whole(v, "growth_interval", 0) > 0 && whole(v, TRACKER, MOST) < MOST;
}

const struct ck_val *ck_pt_scaler_find(const struct ck_val *root, const char **key_out)
{
	struct ck_val *const *item;
	uint64_t n = 0;

	ck_val_pairs(root, &item, &n);
	for (uint64_t i = 0; i < n; i++) {
		*key_out = ck_val_str(item[2 * i]);
		if (*key_out && ck_pt_scaler_is_grad(item[2 * i + 1]))
			return item[2 * i + 1];
	}
	*key_out = NULL;
	return NULL;
}

bool ck_pt_scaler_is_uneven(const struct ck_val *grad)
{
	const double product = number(grad, "growth_factor", 2) *
			       number(grad, "backoff_factor", 0.5);

	return product < 1 || product > 1;
}

struct ck_val *ck_pt_scaler_state(const struct ck_val *grad, int64_t steps, struct ck_arena *a)
{
	const int64_t good = grad ? whole(grad, TRACKER, 0) : 0;
	const int64_t iter = !grad ? 0 : good + 1 > steps ? good + 1 : steps;
	const double scale = grad ? number(grad, "scale", 1) : 65536;
	const int64_t shift = grad ? 1 : 2;	/* torch backs off at once */
	struct ck_val *d = ck_val_new_dict(a);

	d = ck_val_dict_sets(a, d, "cur_scale", ck_val_new_float(a, scale));
	d = ck_val_dict_sets(a, d, "dynamic", ck_val_new_bool(a, true));
	d = ck_val_dict_sets(a, d, "cur_iter", ck_val_new_int(a, iter));
	d = ck_val_dict_sets(a, d, "last_overflow_iter",
			     ck_val_new_int(a, grad ? iter - good - LAG : -1));
	d = ck_val_dict_sets(a, d, "scale_factor",
			     ck_val_new_float(a, number(grad, "growth_factor", 2)));
	d = ck_val_dict_sets(a, d, "scale_window",
			     ck_val_new_int(a, whole(grad, "growth_interval", 1000)));
	/* torch has no least scale; one at DeepSpeed's least would end the run when it falls. */
	d = ck_val_dict_sets(a, d, "min_scale", scale > 1 ? ck_val_new_int(a, 1) :
			     ck_val_new_float(a, scale / 65536));
	d = ck_val_dict_sets(a, d, "delayed_shift", ck_val_new_int(a, shift));
	return ck_val_dict_sets(a, d, "cur_hysteresis", ck_val_new_int(a, shift));
}

struct ck_val *ck_pt_scaler_grad(const struct ck_val *state, struct ck_arena *a)
{
	const int64_t window = whole(state, "scale_window", 0);
	const double factor = number(state, "scale_factor", 2);
	const double scale = number(state, "cur_scale", 0);
	const int64_t iter = whole(state, "cur_iter", -1);
	int64_t last, good;
	struct ck_val *d = ck_val_new_dict(a);

	if (iter < 0 || !ck_val_int(ck_val_get(state, "last_overflow_iter"), &last) ||
	    last < -1 || last >= iter || window <= 0 || !(factor > 1) || !(scale > 0))
		return NULL;
	d = ck_val_dict_sets(a, d, "scale", ck_val_new_float(a, scale));
	d = ck_val_dict_sets(a, d, "growth_factor", ck_val_new_float(a, factor));
	d = ck_val_dict_sets(a, d, "backoff_factor", ck_val_new_float(a, 1 / factor));
	d = ck_val_dict_sets(a, d, "growth_interval", ck_val_new_int(a, window));
	good = iter - last < LAG ? 0 : (iter - last - LAG) % window;
	return ck_val_dict_sets(a, d, TRACKER, ck_val_new_int(a, good));
}

struct ck_val *ck_pt_scaler_copy(const struct ck_val *grad, struct ck_arena *a)
{
	static const char *const keys[] = {
		"scale", "growth_factor", "backoff_factor", "growth_interval", TRACKER,
	};
	struct ck_val *d = ck_val_new_dict(a);

	for (size_t i = 0; i < CK_ARRAY_LEN(keys); i++)
		d = ck_val_dict_sets(a, d, keys[i], ck_val_get(grad, keys[i]));
	return d;
}

const char *ck_pt_scaler_key(const struct ck_val *model)
{
	static const char *const names[] = { "scaler", "grad_scaler", "amp_scaler" };
	const char *key;

	if (ck_pt_scaler_find(model, &key))
		return key;
	for (size_t i = 0; i < CK_ARRAY_LEN(names); i++)
		if (!ck_val_get(model, names[i]))
			return names[i];
	return NULL;
}

void ck_pt_scaler_of_step(const struct ck_step *step, struct ck_arena *a,
			  struct ck_pt_scaled *out)
{
	const char *key;
	const struct ck_val *client = ck_pt_scaler_find(step->model, &key);
	const struct ck_val *dynamic = step->dynamic_scale;
	const struct ck_val *state = step->scaler && step->scaler->kind == CK_VAL_OBJECT ?
				     step->scaler->u.obj->state : NULL;
	const bool moves = dynamic && dynamic->kind == CK_VAL_BOOL && dynamic->u.b &&
			   !step->half_scaler;
	const double scale = number(state, "cur_scale", 1);

	*out = (struct ck_pt_scaled){ .key = ck_pt_scaler_key(step->model) };
	if (moves)
		out->grad = state ? ck_pt_scaler_grad(state, a) : NULL;
	else if (client)
		out->grad = ck_pt_scaler_copy(client, a);
	out->is_clients = client && !moves;
	out->is_lost = !out->grad && (moves || scale < 1 || scale > 1);
}
