/*
 * zero_frozen.c -- parameters that are not trained: read, made from a seed, and handed out; and
 * masters of adapters, which a checkpoint of the plain model lacks.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/zero/en_zero_backend.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define ROOM ((uint64_t)4 << 20)	/* elements of a device's that are read at once */
#define SOME 16384u			/* random numbers of a part */

/* ---- where they are ---- */

/* In the host's memory; NULL: on a device. */
static uint8_t *memory_of(const struct en_zero *z, const struct en_zero_piece *p, uint64_t at)
{
	uint8_t *frozen = z->block[p->block].frozen;

	return z->backend->frozen_put ? NULL :
	       frozen + (p->at + at) * kn_type_size(z->opts.type);
}

const void *en_zero_frozen_memory(const struct en_zero *z, const struct en_zero_piece *p)
{
	return memory_of(z, p, 0);
}

int en_zero_frozen_get(struct en_zero *z, const struct en_zero_piece *p, uint64_t at, uint64_t n,
		       void *to, struct ckpt_err *err)
{
	if (z->backend->frozen_get)
		return z->backend->frozen_get(z, p->block, p->at + at, n, to, err);
	memcpy(to, memory_of(z, p, at), n * kn_type_size(z->opts.type));
	return 0;
}

/* ---- from a checkpoint ---- */

static int read_piece(struct en_zero *z, const struct en_zero_piece *p, const struct ckpt *ck,
		      struct ckpt_load_checks *checks, void *room, struct ckpt_err *err)
{
	const uint64_t most = room ? ROOM : p->count;
	uint64_t n;
	int rc = 0;

	for (uint64_t at = 0; !rc && at < p->count; at += n) {
		void *to = room ? room : memory_of(z, p, at);

		n = ck_min_u64(p->count - at, most);
		rc = en_model_read(z->model, p->param, ck, checks, p->first + at, n, z->opts.type,
				   to, err);
		if (!rc && room)
			rc = z->backend->frozen_put(z, p->block, p->at + at, n, room, err);
	}
	return rc;
}

int en_zero_read_frozen(struct en_zero *z, const struct ckpt *ck,
			struct ckpt_load_checks *checks, struct ckpt_err *err)
{
	void *room = z->nfrozen && z->backend->frozen_put ?
		     ck_alloc_array(ROOM, kn_type_size(z->opts.type)) : NULL;
	int rc = room || !z->nfrozen || !z->backend->frozen_put ? 0 :
		 ck_fail_nomem(err, "frozen parameters", ROOM);

	for (uint64_t i = 0; !rc && i < z->nfrozen; i++)
		if (!z->model->param[z->frozen[i].param].held)
			rc = read_piece(z, &z->frozen[i], ck, checks, room, err);
	ck_free(room);
	return rc;
}

bool en_zero_has_frozen(const struct en_zero *z, const struct ckpt *ck)
{
	struct ckpt_tensor_info info;
	uint64_t tensor;

	for (uint32_t i = 0; i < z->model->nparams; i++)
		if (z->model->param[i].frozen && !z->model->param[i].held &&
		    (en_model_tensor(z->model, i, ck, &tensor, NULL) ||
		     ckpt_tensor_get(ck, tensor, &info, NULL) || !info.nstates))
			return false;
	return true;
}

/* ---- for evaluation: what a run trains ---- */

/*
 * In fp32 first, then of the type, as parameters follow masters: of fp64 weights too the bits are
 * those of a run.
 */
int en_zero_fill_held(struct en_zero *z, const struct en_zero_piece *p, en_zero_make_fn *make,
		      void *arg, struct ckpt_err *err)
{
	const uint64_t most = ck_min_u64(p->count, ROOM), es = kn_type_size(z->opts.type);
	const bool device = z->backend->frozen_put != NULL;
	float *some = ck_alloc_array(most, sizeof(*some) + (device ? es : 0));
	int rc = some ? 0 : ck_fail_nomem(err, "weights", most);
	uint64_t n;

	for (uint64_t at = 0; !rc && at < p->count; at += n) {
		void *to = device ? (void *)(some + most) : memory_of(z, p, at);

		n = ck_min_u64(p->count - at, most);
		rc = make(arg, p, at, n, some, err);
		if (!rc)
			kn_cast(to, z->opts.type, some, KN_F32, n, NULL);
		if (!rc && device)
			rc = z->backend->frozen_put(z, p->block, p->at + at, n, to, err);
	}
	ck_free(some);
	return rc;
}

/* ---- from a seed ---- */

static int init_frozen(struct en_zero *z, const struct en_zero_piece *p, uint64_t seed,
		       float *some, void *narrow, struct ckpt_err *err)
{
	uint64_t n;
	int rc = 0;

	for (uint64_t at = 0; !rc && at < p->count; at += n) {
		n = ck_min_u64(p->count - at, SOME);
		en_model_init(z->model, p->param, seed, p->first + at, n, some);
		kn_cast(z->backend->frozen_put ? narrow : memory_of(z, p, at), z->opts.type, some,
			KN_F32, n, NULL);
		if (z->backend->frozen_put)
			rc = z->backend->frozen_put(z, p->block, p->at + at, n, narrow, err);
	}
	return rc;
}

int en_zero_init_frozen(struct en_zero *z, uint64_t seed, struct ckpt_err *err)
{
	float *some = z->nfrozen ? ck_alloc_array(2ull * SOME, sizeof(float)) : NULL;
	int rc = some || !z->nfrozen ? 0 : ck_fail_nomem(err, "random weights", SOME);

	for (uint64_t i = 0; !rc && i < z->nfrozen; i++)
		rc = z->backend->frozen_init ?
		     z->backend->frozen_init(z, &z->frozen[i], seed, err) :
		     init_frozen(z, &z->frozen[i], seed, some, some + SOME, err);
	ck_free(some);
	return rc;
}

/* ---- adapters ---- */

/* Masters of a piece, by 'fill' into memory of the host, and moments of zero. */
struct filler {
	struct en_zero *z;
	uint64_t seed;
	const struct ckpt *ck;	/* NULL: from the seed */
	struct ckpt_load_checks *checks;
	uint32_t turn;		/* of a device's buffers */
};

/* "...q_proj.lora_A.default.weight" is in PEFT's file without ".default". */
static int peft_tensor(const struct en_param *p, const struct ckpt *ck, uint64_t *tensor_out,
		       struct ckpt_err *err)
{
	static const char cut[] = ".default";
	const char *at = strstr(p->name, cut);
	struct ckpt_tensor_info info;
	char name[160];
	int rc;

	snprintf(name, sizeof(name), "%.*s%s", (int)(at - p->name), p->name,
		 at + sizeof(cut) - 1);
	if (ckpt_tensor_find(ck, p->name, tensor_out, NULL) &&
	    ckpt_tensor_find(ck, name, tensor_out, NULL))
		return ck_fail(err, CKPT_E_MISMATCH, name, CKPT_NO_OFFSET,
			       "not in the adapter: its rank or target modules are others than "
			       "--lora says");
	rc = ckpt_tensor_get(ck, *tensor_out, &info, err);
	if (!rc && (info.ndim != 2 || memcmp(info.shape, p->shape, sizeof(p->shape))))
		return ck_fail(err, CKPT_E_MISMATCH, name, CKPT_NO_OFFSET,
			       "the adapter has %llu elements in %u dimensions, --lora with this "
			       "model requires [%llu, %llu]", (unsigned long long)info.numel,
			       info.ndim, (unsigned long long)p->shape[0],
			       (unsigned long long)p->shape[1]);
	return rc;
}

static int fill(void *arg, const struct en_zero_piece *p, uint64_t at, uint64_t n, float *to,
		struct ckpt_err *err)
{
	struct filler *f = arg;
	const struct en_param *param = &f->z->model->param[p->param];
	const struct ckpt_load_opts opts = { .size = sizeof(opts), .checks = f->checks };
	struct ckpt_load_range range = {
		.state = "master", .first = p->first + at, .count = n, .dtype = CKPT_F32, .dst = to,
	};
	int rc;

	if (!f->ck) {
		en_model_init(f->z->model, p->param, f->seed, p->first + at, n, to);
		return 0;
	}
	rc = peft_tensor(param, f->ck, &range.tensor, err);
	return rc ? rc : ckpt_load(f->ck, &range, 1, &opts, NULL, err);
}

static int fill_through(struct filler *f, const struct en_zero_piece *p, struct ckpt_err *err)
{
	struct en_zero_slice s = { p->block, EN_STATE_EXP_AVG, p->at, p->count };
	int rc = en_zero_load_send(f->z, &s, NULL, err);
	uint64_t n, most;
	float *buffer;

	s.state = EN_STATE_EXP_AVG_SQ;
	if (!rc)
		rc = en_zero_load_send(f->z, &s, NULL, err);
	for (uint64_t at = 0; !rc && at < p->count; at += n) {
		rc = en_zero_load_buffer(f->z, f->turn++, &buffer, &most, err);
		if (rc)
			break;
		n = ck_min_u64(p->count - at, most);
		rc = fill(f, p, at, n, buffer, err);
		if (!rc)
			rc = en_zero_load_send(f->z, &(struct en_zero_slice){
				p->block, EN_STATE_MASTER, p->at + at, n
			}, buffer, err);
	}
	return rc;
}

static int fill_all(struct filler *f, struct ckpt_err *err)
{
	struct en_zero *z = f->z;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < z->npieces; i++) {
		const struct en_zero_piece *p = &z->piece[i];

		if (z->model->param[p->param].plain)
			continue;
		if (en_zero_is_remote(z)) {
			rc = fill_through(f, p, err);
			continue;
		}
		memset(p->exp_avg, 0, p->count * sizeof(float));
		memset(p->exp_avg_sq, 0, p->count * sizeof(float));
		rc = fill(f, p, 0, p->count, p->master, err);
	}
	for (uint64_t i = 0; !rc && i < z->nfrozen; i++)
		if (!z->model->param[z->frozen[i].param].plain)
			rc = en_zero_fill_held(z, &z->frozen[i], fill, f, err);
	return rc;
}

bool en_zero_has_adapters(const struct en_zero *z, const struct ckpt *ck)
{
	uint64_t tensor;

	for (uint32_t i = 0; i < z->model->nparams; i++)
		if (!z->model->param[i].plain)
			return !ckpt_tensor_find(ck, z->model->param[i].name, &tensor, NULL);
	return false;
}

int en_zero_init_adapters(struct en_zero *z, uint64_t seed, struct ckpt_err *err)
{
	struct filler f = { .z = z, .seed = seed };

	return fill_all(&f, err);
}

int en_zero_read_adapters(struct en_zero *z, const struct ckpt *ck,
			  struct ckpt_load_checks *checks, struct ckpt_err *err)
{
	struct filler f = { .z = z, .ck = ck, .checks = checks };

	return fill_all(&f, err);
}
