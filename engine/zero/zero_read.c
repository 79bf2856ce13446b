/*
 * zero_read.c -- this rank's pieces out of a checkpoint of any format, stage and world: into the
 * memory of the pieces, or, where they have none, into buffers of the backend's that take turns, so
 * that reading continues while what was read is on its way.
 */
#include <inttypes.h>
#include <string.h>

#include "engine/zero/en_zero_backend.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define MOST_RANGES 512u	/* of a buffer */

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
			     "the model has %" PRIu64 " elements, the checkpoint %" PRIu64,
			     p->numel, info.numel);
	if (!rc && (info.ndim != p->ndim ||
		    memcmp(info.shape, p->shape, p->ndim * sizeof(*p->shape)) != 0))
		rc = ck_fail(err, CKPT_E_MISMATCH, p->name, CKPT_NO_OFFSET,
			     "the model has shape [%" PRIu64 "%s%" PRIu64
			     "], the checkpoint %u dimensions, the first of %" PRIu64,
			     p->shape[0], p->ndim > 1 ? ", " : " x ", p->ndim > 1 ? p->shape[1] : 1,
			     info.ndim, info.ndim ? info.shape[0] : 1);
	return rc;
}

const char *en_state_name(enum en_state state)
{
	static const char *const names[EN_STATES] = { "master", "exp_avg", "exp_avg_sq" };

	return names[state];
}

/* What a step calls the state; FSDP's only copy of a parameter is its weight. */
static const char *name_in(const struct ckpt *ck, uint64_t tensor, enum en_state state)
{
	struct ckpt_tensor_info info;
	struct ckpt_state_info s;
	bool has_weight = false;

	if (state != EN_STATE_MASTER || ckpt_tensor_get(ck, tensor, &info, NULL))
		return en_state_name(state);
	for (uint32_t i = 0; i < info.nstates; i++) {
		if (ckpt_state_get(ck, tensor, i, &s, NULL))
			continue;
		if (!strcmp(s.name, en_state_name(state)))
			return en_state_name(state);
		has_weight |= !strcmp(s.name, "weight");
	}
	return has_weight ? "weight" : en_state_name(state);
}

/* ---- through buffers ---- */

struct filling {
	struct en_zero *z;
	const struct ckpt *ck;
	struct ckpt_load_checks *checks;
	float *buffer;
	uint64_t most, used;	/* elements */
	uint32_t turn;
	struct ckpt_load_range range[MOST_RANGES];
	struct en_zero_slice slice[MOST_RANGES];
	size_t n;
	uint64_t bytes;		/* that were read */
};

static int next_buffer(struct filling *f, struct ckpt_err *err)
{
	f->n = 0;
	f->used = 0;
	return en_zero_load_buffer(f->z, f->turn++, &f->buffer, &f->most, err);
}

/* Reads what the buffer is for, and sends it. */
static int flush(struct filling *f, struct ckpt_err *err)
{
	const struct ckpt_load_opts opts = { .size = sizeof(opts), .checks = f->checks };
	struct ckpt_loaded loaded = { .bytes_read = 0 };
	int rc = f->n ? ckpt_load(f->ck, f->range, f->n, &opts, &loaded, err) : 0;

	for (size_t i = 0; !rc && i < f->n; i++)
		rc = en_zero_load_send(f->z, &f->slice[i], f->range[i].dst, err);
	f->bytes += loaded.bytes_read;
	return rc ? rc : next_buffer(f, err);
}

/* A state of a piece, in as many buffers as it takes. */
static int fill(struct filling *f, const struct en_zero_piece *p, uint64_t tensor,
		enum en_state state, struct ckpt_err *err)
{
	uint64_t n;
	int rc = 0;

	for (uint64_t at = 0; !rc && at < p->count; at += n) {
		if (f->used == f->most || f->n == MOST_RANGES)
			rc = flush(f, err);
		if (rc)
			break;
		n = ck_min_u64(p->count - at, f->most - f->used);
		f->slice[f->n] = (struct en_zero_slice){ p->block, state, p->at + at, n };
		f->range[f->n++] = (struct ckpt_load_range){
			.tensor = tensor, .state = name_in(f->ck, tensor, state),
			.first = p->first + at,
			.count = n, .dtype = CKPT_F32, .dst = f->buffer + f->used,
		};
		f->used += n;
	}
	return rc;
}

static int read_through(struct en_zero *z, const struct ckpt *ck,
			struct ckpt_load_checks *checks, uint64_t *bytes_out, struct ckpt_err *err)
{
	struct filling *f = ck_zalloc(sizeof(*f));
	int rc;

	if (!f)
		return ck_fail_nomem(err, "ranges", z->npieces);
	f->z = z;
	f->ck = ck;
	f->checks = checks;
	rc = next_buffer(f, err);
	for (uint64_t i = 0; !rc && i < z->npieces; i++) {
		uint64_t tensor = 0;

		rc = find(z, ck, z->piece[i].param, &tensor, err);
		for (int s = 0; !rc && s < EN_STATES; s++)
			rc = fill(f, &z->piece[i], tensor, (enum en_state)s, err);
	}
	if (!rc)
		rc = flush(f, err);
	if (!rc)
		*bytes_out = f->bytes;
	ck_free(f);
	return rc;
}

/* ---- weights ---- */

static int send_zeros(struct en_zero *z, const struct en_zero_piece *p, struct ckpt_err *err)
{
	struct en_zero_slice s = { p->block, EN_STATE_EXP_AVG, p->at, p->count };
	int rc = en_zero_load_send(z, &s, NULL, err);

	s.state = EN_STATE_EXP_AVG_SQ;
	return rc ? rc : en_zero_load_send(z, &s, NULL, err);
}

/* The weights of a piece through buffers; '*turn' counts them. */
static int send_weights(struct en_zero *z, const struct en_zero_piece *p, const struct ckpt *ck,
			struct ckpt_load_checks *checks, uint32_t *turn, struct ckpt_err *err)
{
	uint64_t n, most;
	float *buffer;
	int rc = send_zeros(z, p, err);

	for (uint64_t at = 0; !rc && at < p->count; at += n) {
		rc = en_zero_load_buffer(z, (*turn)++, &buffer, &most, err);
		if (rc)
			break;
		n = ck_min_u64(p->count - at, most);
		rc = en_model_read(z->model, p->param, ck, checks, p->first + at, n, KN_F32, buffer,
				   err);
		if (!rc)
			rc = en_zero_load_send(z, &(struct en_zero_slice){
				p->block, EN_STATE_MASTER, p->at + at, n
			}, buffer, err);
	}
	return rc;
}

static int read_weights(struct en_zero *z, const struct en_zero_piece *p, const struct ckpt *ck,
			struct ckpt_load_checks *checks, struct ckpt_err *err)
{
	memset(p->exp_avg, 0, p->count * sizeof(float));
	memset(p->exp_avg_sq, 0, p->count * sizeof(float));
	return en_model_read(z->model, p->param, ck, checks, p->first, p->count, KN_F32, p->master,
			     err);
}

/* ---- for evaluation: masters alone, as what is computed with ---- */

struct held {
	struct en_zero *z;
	const struct ckpt *ck;
	struct ckpt_load_checks *checks;
	uint64_t bytes;		/* that were read */
};

static int held_weight(void *arg, const struct en_zero_piece *p, uint64_t at, uint64_t n,
		       float *to, struct ckpt_err *err)
{
	const struct held *h = arg;

	return en_model_read(h->z->model, p->param, h->ck, h->checks, p->first + at, n, KN_F32, to,
			     err);
}

static int held_master(void *arg, const struct en_zero_piece *p, uint64_t at, uint64_t n,
		       float *to, struct ckpt_err *err)
{
	struct held *h = arg;
	const struct ckpt_load_opts opts = { .size = sizeof(opts), .checks = h->checks };
	struct ckpt_load_range range = {
		.first = p->first + at, .count = n, .dtype = CKPT_F32, .dst = to,
	};
	struct ckpt_loaded loaded = { .bytes_read = 0 };
	int rc = find(h->z, h->ck, p->param, &range.tensor, err);

	if (rc)
		return rc;
	range.state = name_in(h->ck, range.tensor, EN_STATE_MASTER);
	rc = ckpt_load(h->ck, &range, 1, &opts, &loaded, err);
	h->bytes += loaded.bytes_read;
	return rc;
}

/* Adapters are in a step, and not in weights. */
static int read_held(struct held *h, bool step, struct ckpt_err *err)
{
	const struct en_zero *z = h->z;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < z->nfrozen; i++) {
		const struct en_param *p = &z->model->param[z->frozen[i].param];

		if (p->held && (step || p->plain))
			rc = en_zero_fill_held(h->z, &z->frozen[i],
					       step ? held_master : held_weight, h, err);
	}
	return rc;
}

int en_zero_read_weights(struct en_zero *z, const struct ckpt *ck,
			 struct ckpt_load_checks *checks, struct ckpt_err *err)
{
	struct held held = { z, ck, checks, 0 };
	uint32_t turn = 0;
	int rc = en_model_match(z->model, ck, err);

	for (uint64_t i = 0; !rc && i < z->npieces; i++)
		if (z->model->param[z->piece[i].param].plain)
			rc = en_zero_is_remote(z) ?
			     send_weights(z, &z->piece[i], ck, checks, &turn, err) :
			     read_weights(z, &z->piece[i], ck, checks, err);
	if (!rc)
		rc = read_held(&held, false, err);
	return rc ? rc : en_zero_read_frozen(z, ck, checks, err);
}

/* ---- states ---- */

int en_zero_read_state(struct en_zero *z, const struct ckpt *ck, struct ckpt_load_checks *checks,
		       uint64_t *bytes_out, struct ckpt_err *err)
{
	struct ckpt_load_range *range;
	const struct ckpt_load_opts opts = { .size = sizeof(opts), .checks = checks };
	struct ckpt_loaded loaded = { .bytes_read = 0 };
	struct held held = { z, ck, checks, 0 };
	uint64_t n = 0;
	int rc;

	if (!z->npieces && z->nfrozen) {
		rc = read_held(&held, true, err);
		if (!rc && bytes_out)
			*bytes_out = held.bytes;
		return rc;
	}
	if (en_zero_is_remote(z))
		return read_through(z, ck, checks, bytes_out ? bytes_out : &n, err);
	range = ck_alloc_array(EN_STATES * z->npieces + 1, sizeof(*range));
	rc = range ? 0 : ck_fail_nomem(err, "ranges", z->npieces);
	for (uint64_t i = 0; !rc && i < z->npieces; i++) {
		const struct en_zero_piece *p = &z->piece[i];
		uint64_t tensor = 0;

		rc = find(z, ck, p->param, &tensor, err);
		for (int s = 0; !rc && s < EN_STATES; s++)
			range[n++] = (struct ckpt_load_range){
				.tensor = tensor, .state = name_in(ck, tensor, (enum en_state)s),
				.first = p->first, .count = p->count, .dtype = CKPT_F32,
				.dst = en_zero_memory_of(p, (enum en_state)s),
			};
	}
	if (!rc)
		rc = ckpt_load(ck, range, n, &opts, &loaded, err);
	if (!rc && bytes_out)
		*bytes_out = loaded.bytes_read;
	ck_free(range);
	return rc;
}
