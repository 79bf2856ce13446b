/* en_checkpointer.c -- see en_checkpointer.h: the saving half. */
#include "engine/checkpoint/en_checkpointer_priv.h"
#include "engine/checkpoint/en_export_priv.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/io/ck_tree.h"

#define MOST_STATE ((size_t)1 << 20)
#define MOST_CONFIG ((uint64_t)1 << 20)
#define MOST_THREADS 8u
#define LEAST_BUFFER ((uint64_t)1 << 20)	/* of a saver */
#define MOST_RING ((uint64_t)512 << 20)

static enum ckpt_dtype dtype_of(enum kn_type type)
{
	return type == KN_BF16 ? CKPT_BF16 : type == KN_F16 ? CKPT_F16 : CKPT_F32;
}

/* In the order of the state dict; the head of a tied model is a second name. */
static int describe(struct en_checkpointer *k, enum kn_type type, struct ckpt_err *err)
{
	k->tensor = ck_zalloc((k->model->nparams + 1ull) * sizeof(*k->tensor));
	k->number = ck_alloc_array(k->model->nparams + 1ull, sizeof(*k->number));
	if (!k->tensor || !k->number)
		return ck_fail_nomem(err, "tensors", k->model->nparams);
	for (uint32_t i = 0; i < k->model->nparams; i++) {
		const struct en_param *p = &k->model->param[i];

		k->number[i] = UINT64_MAX;
		if (p->frozen && k->opts.no_frozen)
			continue;
		k->number[i] = k->ntensors;
		k->tensor[k->ntensors++] = (struct ckpt_save_tensor){
			.name = p->name, .shape = p->shape, .ndim = p->ndim,
			.role = p->frozen ? CKPT_ROLE_FROZEN : CKPT_ROLE_TRAINABLE,
			.dtype = dtype_of(type), .derived = !p->frozen,
			.group = p->frozen ? -1 : (int32_t)en_zero_group_of(k->z, i),
		};
	}
	if (k->model->config.tied && !k->number[0])
		k->tensor[k->ntensors++] = (struct ckpt_save_tensor){
			.name = en_model_tied_name(k->model),
			.shape = k->model->param[0].shape, .ndim = 2,
			.role = CKPT_ROLE_ALIAS, .dtype = dtype_of(type), .group = -1,
		};
	return 0;
}

static int list_own(struct en_checkpointer *k, struct ckpt_err *err)
{
	uint64_t n, nfrozen;
	const struct en_zero_piece *p = en_zero_pieces(k->z, &n);
	const struct en_zero_piece *f = en_zero_frozen(k->z, &nfrozen);

	k->own = ck_zalloc((n + nfrozen + 1) * sizeof(*k->own));
	if (!k->own)
		return ck_fail_nomem(err, "ranges", n + nfrozen);
	for (uint64_t i = 0; i < n; i++)
		k->own[k->nown++] = (struct ckpt_save_range){ k->number[p[i].param], p[i].first,
							      p[i].count };
	for (uint64_t i = 0; i < nfrozen; i++)
		if (k->number[f[i].param] != UINT64_MAX)
			k->own[k->nown++] = (struct ckpt_save_range){ k->number[f[i].param],
								      f[i].first, f[i].count };
	k->bytes = en_checkpointer_state(k->z);
	return 0;
}

uint64_t en_checkpointer_state(const struct en_zero *z)
{
	uint64_t n, bytes = 0;
	const struct en_zero_piece *p = en_zero_pieces(z, &n);

	for (uint64_t i = 0; i < n; i++)
		bytes += EN_STATES * p[i].count * sizeof(float);
	return bytes;
}

/*
 * A chunk of the saver's buffer (at most 8 MiB, else a 16th) loses up to three blocks of 4 KiB at
 * its end, and the last one may be opened for little.
 */
uint64_t en_checkpointer_buffer(uint64_t bytes)
{
	return bytes + bytes / 64 + ((uint64_t)16 << 20);
}

/* This rank's folder, made with the one above it; ck_free() it. */
static int root_of_rank(const char *root, uint32_t rank, char **out, struct ckpt_err *err)
{
	char *own = ck_asprintf("%s/" EN_CHECKPOINTER_RANK "%05u", root, rank);

	if (!own)
		return ck_fail_nomem(err, "a name", 0);
	if (ck_sys.mkdir(root, 0777) && errno != EEXIST) {
		ck_free(own);
		return ck_fail_sys(err, errno, "mkdir", root);
	}
	*out = own;
	return 0;
}

static int open_saver(struct en_checkpointer *k, struct ckpt_saver_opts *so, struct ckpt_err *err)
{
	char *own = NULL;
	int rc = 0;

	if (k->opts.local && k->opts.to != CKPT_TO_NATIVE)
		return ck_fail(err, CKPT_E_USAGE, k->opts.root, CKPT_NO_OFFSET,
			       "with checkpoint.use_node_local_storage each node has a folder of "
			       "its own: this needs --save-format native");
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

/* ---- threads and memory ---- */

/* CPUs that this process may run on; a launcher may have given it but some. */
static uint32_t cores(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) ? 1 : (uint32_t)CPU_COUNT(&set);
}

/* Those of a CPU set that all ranks of this host have, and that no rank computes with. */
static int spare_cores(const struct en_checkpointer *k, uint32_t *out, struct ckpt_err *err)
{
	struct host {
		char name[64];
		uint32_t cores;
	} own = { .cores = cores() }, *all = ck_zalloc(k->comm->size * sizeof(*all));
	uint32_t here = 0, shared;
	int rc = all ? 0 : ck_fail_nomem(err, "hosts", k->comm->size);

	if (rc)
		return rc;
	gethostname(own.name, sizeof(own.name) - 1);
	rc = en_comm_gather_small(k->comm, all, &own, sizeof(own), NULL, err);
	for (uint32_t i = 0; !rc && i < k->comm->size; i++)
		here += !strcmp(all[i].name, own.name);
	ck_free(all);
	if (rc)
		return rc;
	/* a rank that is bound has its cores for itself */
	shared = sysconf(_SC_NPROCESSORS_ONLN) > (long)own.cores ? 1 : here;
	*out = own.cores / shared > k->opts.busy ? own.cores / shared - k->opts.busy : 1;
	return 0;
}

static int choose_threads(struct en_checkpointer *k, struct ckpt_err *err)
{
	uint32_t n = 1;
	int rc = spare_cores(k, &n, err);

	if (!rc && !k->opts.threads)
		k->opts.threads = n < MOST_THREADS ? n : MOST_THREADS;
	return rc;
}

/*
 * A device's copy has all of the memory, or, of a small one, a quarter; the rest is the saver's,
 * who copies what goes round.
 */
static int take_memory(struct en_checkpointer *k, uint64_t *saver_out, struct ckpt_err *err)
{
	const uint64_t asked = k->opts.buffer_bytes;
	const bool all = !asked || asked >= k->bytes;
	const uint64_t ring = all ? 0 : ck_min_u64(asked / 4, MOST_RING);
	int rc = en_zero_snap_new(k->z, ring, k->opts.threads, &k->behind, err);

	if (rc)
		return rc;
	if (k->behind)
		*saver_out = all ? LEAST_BUFFER : asked - ring;
	else
		*saver_out = all ? en_checkpointer_buffer(k->bytes) : asked;
	*saver_out = ck_max_u64(*saver_out, LEAST_BUFFER);
	return k->behind ? en_checkpointer_start(k, err) : 0;
}

void en_checkpointer_ranks_gone(void *comm, uint8_t *gone)
{
	en_comm_gone(comm, gone);
}

/* A config.json that is the model by itself is kept: the file may be another by the next save. */
static int take_config(struct en_checkpointer *k, struct ckpt_err *err)
{
	const char *path = k->opts.beside;
	enum ck_fs_kind kind = CK_FS_DIR;
	uint64_t len;
	int rc = path && !k->comm->rank ? ck_fs_kind(path, &kind, err) : 0;

	return rc || kind != CK_FS_FILE ? rc :
	       ck_file_read(path, MOST_CONFIG, &k->config, &len, err);
}

/* Of adapters each step has PEFT's file, as an export has; rank 0 writes it. */
static int take_adapter(struct en_checkpointer *k, struct ckpt_err *err)
{
	return k->comm->rank || !k->model->lora.r ? 0 :
	       en_export_adapter_config(k->model, k->opts.beside, &k->adapter, err);
}

int en_checkpointer_new(const struct en_model *model, struct en_zero *z, struct en_comm *comm,
			const struct en_checkpointer_opts *opts,
			struct en_checkpointer **checkpointer_out, struct ckpt_err *err)
{
	struct ckpt_saver_opts so = {
		.size = sizeof(so), .root = opts->root, .job = opts->job, .rank = comm->rank,
		.nranks = comm->size, .sync = opts->sync, .timeout_ms = opts->timeout_ms,
		.look = en_checkpointer_ranks_gone, .look_arg = comm,
	};
	struct en_checkpointer *k = ck_zalloc(sizeof(*k));
	int rc;

	if (!k)
		return ck_fail_nomem(err, "a saver", sizeof(*k));
	k->model = model;
	k->z = z;
	k->comm = comm;
	k->opts = *opts;
	rc = take_config(k, err);
	if (!rc)
		rc = take_adapter(k, err);
	if (!rc)
		rc = choose_threads(k, err);
	if (!rc)
		rc = describe(k, en_zero_type(z), err);
	if (!rc)
		rc = list_own(k, err);
	if (!rc)
		rc = take_memory(k, &so.buffer_bytes, err);
	so.threads = k->opts.threads;
	if (!rc)
		rc = open_saver(k, &so, err);
	if (rc) {
		en_checkpointer_free(k);
		return rc;
	}
	k->buffer = so.buffer_bytes;
	en_zero_note(z, EN_MEM_SAVE, (int64_t)k->buffer);
	*checkpointer_out = k;
	return 0;
}

static void step_release(struct en_checkpointer_step *s)
{
	ck_free(s->tag);
	ck_free(s->sched);
	ck_free(s->ds_config);
	ck_free(s->client);
	*s = (struct en_checkpointer_step){ .tag = NULL };
}

void en_checkpointer_free(struct en_checkpointer *k)
{
	if (!k)
		return;
	en_checkpointer_stop(k);
	ckpt_saver_free(k->saver);
	en_zero_note(k->z, EN_MEM_SAVE, -(int64_t)k->buffer);
	step_release(&k->step);
	ck_free(k->room);
	ck_free(k->tensor);
	ck_free(k->number);
	ck_free(k->last);
	ck_free(k->own);
	ck_free(k->config);
	ck_free(k->adapter);
	ck_free(k);
}

/* ---- a save ---- */

static void take_groups(const struct en_checkpointer *k, const struct en_checkpointer_values *v,
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

static int take_text(const char *text, char **out, struct ckpt_err *err)
{
	*out = text ? ck_strdup(text) : NULL;
	return !text || *out ? 0 : ck_fail_nomem(err, "a text", strlen(text));
}

/* What may change during the save is copied. */
static int take_step(struct en_checkpointer *k, const char *tag,
		     const struct en_checkpointer_values *v, struct ckpt_err *err)
{
	struct ck_buf sched = CK_BUF_INIT(MOST_STATE);
	struct en_checkpointer_step *s = &k->step;
	int rc = en_sched_state(v->sched, &sched, err);

	step_release(s);
	s->at = v->at;
	s->clip = v->clip;
	s->replaces = v->replaces;
	take_groups(k, v, s->group);
	en_scale_save(v->scale, &s->scaler);
	if (!rc)
		rc = ck_buf_add(&sched, "", 1, err);
	if (!rc)
		rc = take_text(tag, &s->tag, err);
	if (!rc)
		rc = take_text(sched.len > 1 ? sched.p : NULL, &s->sched, err);
	if (!rc)
		rc = take_text(v->ds_config, &s->ds_config, err);
	if (!rc)
		rc = take_text(v->client, &s->client, err);
	ck_buf_release(&sched);
	return rc;
}

/* en_checkpointer_wait() reports what fails later. */
static int save_behind(struct en_checkpointer *k, struct ckpt_err *err)
{
	int rc = en_zero_snap_begin(k->z, err);

	if (!rc)
		en_checkpointer_hand_over(k);
	else
		en_zero_snap_end(k->z);
	return rc;
}

/* The step before is whole, and stays the same while it is linked. */
static void keep_last(struct en_checkpointer *k, int old)
{
	ck_free(k->last);
	k->last = !old && k->step.tag && !k->opts.local ? ck_strdup(k->step.tag) : NULL;
}

int en_checkpointer_save(struct en_checkpointer *k, const char *tag,
			 const struct en_checkpointer_values *v,
			 bool *old_out, struct ckpt_err *err)
{
	int old = en_checkpointer_wait(k, 0, NULL, err);
	int rc;

	keep_last(k, old);
	rc = take_step(k, tag, v, old ? NULL : err);
	*old_out = old != 0;
	if (!rc)
		rc = k->behind ? save_behind(k, old ? NULL : err) :
		     en_checkpointer_put(k, old ? NULL : err);
	k->open = !rc;
	return old ? old : rc;
}

int en_checkpointer_wait(struct en_checkpointer *k, uint32_t timeout_ms, struct ckpt_saved *out,
			 struct ckpt_err *err)
{
	int rc = k->open && k->behind ? en_checkpointer_join(k, timeout_ms, err) : 0;

	if (!rc && k->open) {
		rc = ckpt_save_wait(k->saver, timeout_ms, out, err);
		k->open = rc == -CKPT_E_BUSY && ckpt_save_pending(k->saver);
	}
	return rc;
}

bool en_checkpointer_pending(const struct en_checkpointer *k)
{
	return k->open;
}
