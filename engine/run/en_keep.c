/* en_keep.c -- see en_keep.h: the saving half. */
#include "engine/run/en_keep.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define MOST_STATE ((size_t)1 << 20)
#define NSTATES 3u

struct en_keep {
	const struct en_model *model;
	struct en_zero *z;
	struct en_comm *comm;
	struct en_keep_opts opts;
	struct ckpt_saver *saver;
	struct ckpt_save_tensor *tensor;
	uint64_t ntensors;
	struct ckpt_save_range *own;
	uint64_t nown;
	uint64_t buffer;	/* bytes of the saver's */
	bool open;		/* a save was committed and not waited for */
};

static const struct ckpt_save_state states[NSTATES] = {
	{ "master", CKPT_F32 }, { "exp_avg", CKPT_F32 }, { "exp_avg_sq", CKPT_F32 },
};

static enum ckpt_dtype dtype_of(enum kn_type type)
{
	return type == KN_BF16 ? CKPT_BF16 : type == KN_F16 ? CKPT_F16 : CKPT_F32;
}

/* In the order of the state dict; the head of a tied model is a second name. */
static int describe(struct en_keep *k, enum kn_type type, struct ckpt_err *err)
{
	k->tensor = ck_zalloc((k->model->nparams + 1ull) * sizeof(*k->tensor));
	if (!k->tensor)
		return ck_fail_nomem(err, "tensors", k->model->nparams);
	for (uint32_t i = 0; i < k->model->nparams; i++) {
		const struct en_param *p = &k->model->param[i];

		k->tensor[k->ntensors++] = (struct ckpt_save_tensor){
			.name = p->name, .shape = p->shape, .ndim = p->ndim,
			.role = CKPT_ROLE_TRAINABLE, .dtype = dtype_of(type), .derived = 1,
			.group = (int32_t)en_zero_group_of(k->z, i),
		};
	}
	if (k->model->config.tied)
		k->tensor[k->ntensors++] = (struct ckpt_save_tensor){
			.name = "lm_head.weight", .shape = k->model->param[0].shape, .ndim = 2,
			.role = CKPT_ROLE_ALIAS, .dtype = dtype_of(type), .group = -1,
		};
	return 0;
}

static int list_own(struct en_keep *k, uint64_t *bytes_out, struct ckpt_err *err)
{
	const struct en_zero_piece *p = en_zero_pieces(k->z, &k->nown);

	k->own = ck_zalloc((k->nown + 1) * sizeof(*k->own));
	if (!k->own)
		return ck_fail_nomem(err, "ranges", k->nown);
	*bytes_out = 0;
	for (uint64_t i = 0; i < k->nown; i++) {
		k->own[i] = (struct ckpt_save_range){ p[i].param, p[i].first, p[i].count };
		*bytes_out += NSTATES * p[i].count * sizeof(float);
	}
	return 0;
}

/*
 * A chunk of the saver's buffer (at most 8 MiB, else a 16th) loses up to three blocks of 4 KiB at
 * its end, and the last one may be opened for little.
 */
uint64_t en_keep_buffer(uint64_t bytes)
{
	return bytes + bytes / 64 + ((uint64_t)16 << 20);
}

/* This rank's folder, made with the one above it; ck_free() it. */
static int root_of_rank(const char *root, uint32_t rank, char **out, struct ckpt_err *err)
{
	char *own = ck_asprintf("%s/" EN_KEEP_RANK "%05u", root, rank);

	if (!own)
		return ck_fail_nomem(err, "a name", 0);
	if (ck_sys.mkdir(root, 0777) && errno != EEXIST) {
		ck_free(own);
		return ck_fail_sys(err, errno, "mkdir", root);
	}
	*out = own;
	return 0;
}

static int open_saver(struct en_keep *k, struct ckpt_saver_opts *so, struct ckpt_err *err)
{
	char *own = NULL;
	int rc = 0;

	if (k->opts.local && k->opts.to != CKPT_TO_NATIVE)
		return ck_fail(err, CKPT_E_USAGE, k->opts.root, CKPT_NO_OFFSET,
			       "with checkpoint.use_node_local_storage each node has its own "
			       "folder, and only the native form can be put together from them");
	if (k->opts.local)
		rc = root_of_rank(k->opts.root, so->rank, &own, err);
	if (own) {
		so->root = own;
		so->flags |= CKPT_SAVER_LOCAL;
	}
	if (!rc)
		rc = ckpt_saver_new(so, &k->saver, err);
	ck_free(own);
	return rc;
}

int en_keep_new(const struct en_model *model, struct en_zero *z, struct en_comm *comm,
		const struct en_keep_opts *opts, struct en_keep **keep_out, struct ckpt_err *err)
{
	struct ckpt_saver_opts so = {
		.size = sizeof(so), .root = opts->root, .job = opts->job, .rank = comm->rank,
		.nranks = comm->size, .threads = 1, .sync = opts->sync,
		.timeout_ms = opts->timeout_ms, .flags = CKPT_SAVER_AT_EXIT,
	};
	struct en_keep *k = ck_zalloc(sizeof(*k));
	uint64_t bytes = 0;
	int rc;

	if (!k)
		return ck_fail_nomem(err, "a saver", sizeof(*k));
	k->model = model;
	k->z = z;
	k->comm = comm;
	k->opts = *opts;
	rc = describe(k, en_zero_type(z), err);
	if (!rc)
		rc = list_own(k, &bytes, err);
	so.buffer_bytes = opts->buffer_bytes ? opts->buffer_bytes : en_keep_buffer(bytes);
	if (!rc)
		rc = open_saver(k, &so, err);
	if (rc) {
		en_keep_free(k);
		return rc;
	}
	k->buffer = so.buffer_bytes;
	en_zero_note(z, EN_MEM_SAVE, (int64_t)k->buffer);
	*keep_out = k;
	return 0;
}

void en_keep_free(struct en_keep *k)
{
	if (!k)
		return;
	ckpt_saver_free(k->saver);
	en_zero_note(k->z, EN_MEM_SAVE, -(int64_t)k->buffer);
	ck_free(k->tensor);
	ck_free(k->own);
	ck_free(k);
}

/* ---- a save ---- */

static int put_all(struct en_keep *k, struct ckpt_err *err)
{
	uint64_t n;
	const struct en_zero_piece *p = en_zero_pieces(k->z, &n);
	int rc = en_zero_fetch(k->z, err);

	for (uint64_t i = 0; !rc && i < n; i++) {
		const float *const from[NSTATES] = { p[i].master, p[i].m, p[i].v };

		for (uint32_t s = 0; !rc && s < NSTATES; s++)
			rc = ckpt_save_put(k->saver, p[i].param, states[s].name, p[i].first,
					   p[i].count, from[s], 0, err);
	}
	return rc;
}

static void take_groups(const struct en_keep *k, const struct en_keep_values *v,
			struct ckpt_save_group *group)
{
	for (uint32_t g = 0; g < en_zero_groups(k->z); g++) {
		const struct en_zero_hyper *h = &v->hyper[g];

		group[g] = (struct ckpt_save_group){
			.lr = h->lr, .initial_lr = v->sched->base[g], .weight_decay = h->decay,
			.beta1 = h->beta1, .beta2 = h->beta2, .eps = h->eps,
			.step = (int64_t)v->at.updates,
		};
	}
}

static int begin(struct en_keep *k, const char *tag, const struct en_keep_values *v,
		 const char *sched, struct ckpt_err *err)
{
	const bool native = k->opts.to == CKPT_TO_NATIVE;
	struct ckpt_save_group group[EN_SCHED_GROUPS] = { { 0 } };
	struct ckpt_save_scaler scaler;
	struct ckpt_save_step step = {
		.size = sizeof(step), .tag = tag, .to = k->opts.to, .stage = (int)k->opts.stage,
		.round_robin = k->opts.round_robin && (k->opts.stage == 1 || k->opts.stage == 2),
		.sub_group_size = k->opts.sub_group_size,
		.world = k->comm->size, .tensor = k->tensor, .ntensors = k->ntensors,
		.state = states, .nstates = NSTATES, .group = group,
		.ngroups = en_zero_groups(k->z), .steps = v->at.steps, .samples = v->at.samples,
		.skipped = v->at.skipped, .scaler = &scaler, .clip_grad = v->clip,
		.ds_config = v->ds_config, .scheduler = sched, .client = v->client,
		.own = native ? k->own : NULL, .nown = native ? k->nown : 0,
		.flags = CKPT_SAVE_FORCE,
	};

	take_groups(k, v, group);
	en_scale_save(v->scale, &scaler);
	return ckpt_save_begin(k->saver, &step, err);
}

int en_keep_save(struct en_keep *k, const char *tag, const struct en_keep_values *v,
		 bool *old_out, struct ckpt_err *err)
{
	struct ck_buf sched = CK_BUF_INIT(MOST_STATE);
	int old = en_keep_wait(k, 0, NULL, err);
	int rc = en_sched_state(v->sched, &sched, old ? NULL : err);

	*old_out = old != 0;
	if (!rc)
		rc = ck_buf_add(&sched, "", 1, old ? NULL : err);
	if (!rc)
		rc = begin(k, tag, v, sched.len > 1 ? sched.p : NULL, old ? NULL : err);
	ck_buf_release(&sched);
	if (rc)
		return old ? old : rc;
	rc = put_all(k, old ? NULL : err);
	if (rc)
		ckpt_save_abort(k->saver, "a rank could not put what it holds");
	else
		rc = ckpt_save_commit(k->saver, old ? NULL : err);
	k->open = !rc;
	return old ? old : rc;
}

int en_keep_wait(struct en_keep *k, uint32_t timeout_ms, struct ckpt_saved *out,
		 struct ckpt_err *err)
{
	int rc = k->open ? ckpt_save_wait(k->saver, timeout_ms, out, err) : 0;

	if (rc != -CKPT_E_BUSY)
		k->open = false;
	return rc;
}
