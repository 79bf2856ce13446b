/* en_export.c -- see en_export.h. */
#include "engine/checkpoint/en_export_priv.h"
#include "engine/checkpoint/en_checkpointer.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"

#define CONFIG "config.json"
#define BUFFER ((uint64_t)1 << 20)	/* the least; masters are lent */
#define DEVICE_BUFFER ((uint64_t)64 << 20)	/* those of a device are copied */
#define ROOM ((uint64_t)4 << 20)	/* elements of a copy */

/* ---- where things are ---- */

struct place {
	char *dir;		/* without slashes at its end */
	char *root;		/* the folder it goes into */
	const char *name;	/* in 'dir' */
	char *config;		/* config.json */
	char *aux;		/* the model's folder, NULL = a config.json alone was given */
};

static void leave(struct place *p)
{
	ck_free(p->dir);
	ck_free(p->root);
	ck_free(p->config);
	ck_free(p->aux);
}

static int find(const struct en_export_opts *o, struct place *p, struct ckpt_err *err)
{
	size_t n = strlen(o->dir);
	enum ck_fs_kind kind;
	int rc = ck_fs_kind(o->model, &kind, err);

	if (rc)
		return rc;
	while (n > 1 && o->dir[n - 1] == '/')
		n--;
	p->dir = ck_strndup(o->dir, n);
	p->root = p->dir ? ck_fs_parent(p->dir) : NULL;
	p->name = p->dir ? ck_fs_base(p->dir) : NULL;
	p->config = kind == CK_FS_DIR ? ck_fs_join(o->model, CONFIG) : ck_strdup(o->model);
	p->aux = kind == CK_FS_DIR ? ck_strdup(o->model) : NULL;
	if (p->dir && p->root && p->config && (p->aux || kind != CK_FS_DIR))
		return 0;
	leave(p);
	memset(p, 0, sizeof(*p));
	return ck_fail_nomem(err, "a path", n);
}

/* ---- before the run ---- */

/* The folders that lead there, as far as they are missing. */
static int make_way(const char *path, struct ckpt_err *err)
{
	char *way = ck_asprintf("%s/", path);
	int rc = way ? 0 : ck_fail_nomem(err, "a path", strlen(path));

	for (char *slash = way ? strchr(way + 1, '/') : NULL; !rc && slash;
	     slash = strchr(slash + 1, '/')) {
		*slash = 0;
		if (ck_sys.mkdir(way, 0777) && errno != EEXIST)
			rc = ck_fail_sys(err, errno, "mkdir", way);
		*slash = '/';
	}
	ck_free(way);
	return rc;
}

static int check_dir(const struct place *p, struct ckpt_err *err)
{
	struct stat there, model;
	enum ck_fs_kind kind;
	int rc = ck_fs_kind(p->dir, &kind, err);

	if (!rc && kind != CK_FS_NOTHING && kind != CK_FS_DIR)
		rc = ck_fail(err, CKPT_E_EXISTS, p->dir, CKPT_NO_OFFSET,
			     "not a folder: weights are exported as a folder");
	if (rc || kind != CK_FS_DIR || !p->aux)
		return rc;
	if (!ck_sys.stat(p->dir, &there) && !ck_sys.stat(p->aux, &model) &&
	    there.st_dev == model.st_dev && there.st_ino == model.st_ino)
		return ck_fail(err, CKPT_E_USAGE, p->dir, CKPT_NO_OFFSET,
			       "the model is read from this folder and would be overwritten; "
			       "export to another folder");
	return 0;
}

static int check_name(const struct place *p, struct ckpt_err *err)
{
	const char *n = p->name;

	return *n && strcmp(n, ".") && strcmp(n, "..") && !strpbrk(n, "/[]*?") ?
		       0 :
		       ck_fail(err, CKPT_E_USAGE, p->dir, CKPT_NO_OFFSET,
			       "not usable as a folder name: use a plain name without []*?");
}

int en_export_check(const struct en_export_opts *opts, struct ckpt_err *err)
{
	struct place p = { 0 };
	char *text = NULL;
	int rc = find(opts, &p, err);

	if (!rc)
		rc = check_name(&p, err);
	if (!rc)
		rc = en_export_config(p.config, opts->type, &text, err);
	if (!rc)
		rc = check_dir(&p, err);
	if (!rc)
		rc = make_way(p.root, err);
	if (!rc && ck_sys.access(p.root, W_OK))
		rc = ck_fail_sys(err, errno, "access", p.root);
	ck_free(text);
	leave(&p);
	return rc;
}

/* ---- after it ---- */

static const struct ckpt_save_state master = { "master", CKPT_F32 };

static enum ckpt_dtype dtype_of(enum kn_type type)
{
	return type == KN_BF16 ? CKPT_BF16 : type == KN_F16 ? CKPT_F16 : CKPT_F32;
}

/* Without adapters, which are merged.  The head of a tied model is a second name. */
static uint64_t describe(const struct en_model *model, enum kn_type type,
			 struct ckpt_save_tensor *tensor)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < model->nparams; i++) {
		const struct en_param *p = &model->param[i];

		if (!p->plain)
			continue;
		tensor[n++] = (struct ckpt_save_tensor){
			.name = p->plain, .shape = p->shape, .ndim = p->ndim,
			.role = CKPT_ROLE_TRAINABLE, .dtype = dtype_of(type), .derived = 1,
		};
	}
	if (model->config.tied)
		tensor[n++] = (struct ckpt_save_tensor){
			.name = "lm_head.weight", .shape = model->param[0].shape, .ndim = 2,
			.role = CKPT_ROLE_ALIAS, .dtype = dtype_of(type), .group = -1,
		};
	return n;
}

static int begin(const struct en_model *model, const struct en_export_opts *o,
		 const struct place *p, struct ckpt_saver *saver, struct ckpt_err *err)
{
	struct ckpt_save_tensor *tensor = ck_zalloc((model->nparams + 1ull) * sizeof(*tensor));
	const struct ckpt_save_group group = { .step = o->steps };
	struct ckpt_save_step step = {
		.size = sizeof(step), .tag = p->name, .to = CKPT_TO_HUGGINGFACE, .tensor = tensor,
		.state = &master, .nstates = 1, .group = &group, .ngroups = 1, .steps = o->steps,
		.flags = CKPT_SAVE_FORCE, .max_shard_bytes = o->max_shard_bytes,
		.aux_dir = p->aux,
	};
	char *config = NULL;
	int rc = tensor ? en_export_config(p->config, o->type, &config, err) :
		 ck_fail_nomem(err, "tensors", model->nparams);

	if (!rc) {
		step.config_json = config;
		step.ntensors = describe(model, o->type, tensor);
		rc = ckpt_save_begin(saver, &step, err);
	}
	ck_free(config);
	ck_free(tensor);
	return rc;
}

/* What is put, and the room that it goes through. */
struct putting {
	const struct en_model *model;
	struct en_zero *z;
	struct en_comm *comm;
	struct ckpt_saver *saver;
	float *room, *narrow;	/* [ROOM] */
	float *whole;		/* the adapters of a block, or NULL */
};

/* A parameter's number among the tensors of the model without adapters. */
static uint64_t number_of(const struct en_model *model, uint32_t param)
{
	return model->param[param].stream;
}

/* A device's masters. */
static int put_got(struct putting *u, const struct en_zero_piece *p, struct ckpt_err *err)
{
	uint64_t n;
	int rc = 0;

	for (uint64_t at = 0; !rc && at < p->count; at += n) {
		n = ck_min_u64(p->count - at, ROOM);
		rc = en_zero_read(u->z, &(struct en_zero_slice){ p->block, EN_STATE_MASTER,
								p->at + at, n }, u->room, err);
		if (!rc)
			rc = ckpt_save_put(u->saver, number_of(u->model, p->param), master.name,
					   p->first + at, n, u->room, 0, err);
	}
	return rc;
}

/* Frozen ones, with what their adapters add. */
static int put_frozen(struct putting *u, const struct en_zero_piece *p, struct ckpt_err *err)
{
	uint64_t n;
	int rc = 0;

	for (uint64_t at = 0; !rc && at < p->count; at += n) {
		n = ck_min_u64(p->count - at, ROOM);
		rc = en_zero_frozen_get(u->z, p, at, n, u->narrow, err);
		if (rc)
			break;
		kn_cast(u->room, KN_F32, u->narrow, en_zero_type(u->z), n, NULL);
		en_export_add(u->model, p->param, u->whole, p->first + at, n, u->room);
		rc = ckpt_save_put(u->saver, number_of(u->model, p->param), master.name,
				   p->first + at, n, u->room, 0, err);
	}
	return rc;
}

static int put_block(struct putting *u, uint32_t block, struct ckpt_err *err)
{
	uint64_t n, nfrozen;
	const struct en_zero_piece *p = en_zero_pieces(u->z, &n);
	const struct en_zero_piece *f = en_zero_frozen(u->z, &nfrozen);
	int rc = u->model->lora.r ? en_export_block(u->z, u->comm, u->model, block, &u->whole,
						    err) : 0;

	for (uint64_t i = 0; !rc && i < n; i++)
		if (p[i].block == block && u->model->param[p[i].param].plain)
			rc = !p[i].master ? put_got(u, &p[i], err) :
			     ckpt_save_put(u->saver, number_of(u->model, p[i].param), master.name,
					   p[i].first, p[i].count, p[i].master, CKPT_PUT_BORROW,
					   err);
	for (uint64_t i = 0; !rc && i < nfrozen; i++)
		if (f[i].block == block)
			rc = put_frozen(u, &f[i], err);
	ck_free(u->whole);
	u->whole = NULL;
	return rc;
}

static int put_all(struct putting *u, struct ckpt_err *err)
{
	int rc;

	u->room = ck_alloc_array(2 * ROOM, sizeof(float));
	u->narrow = u->room ? u->room + ROOM : NULL;
	rc = u->room ? 0 : ck_fail_nomem(err, "a room", ROOM);
	for (uint32_t i = 0; !rc && i < u->model->nblocks; i++)
		rc = put_block(u, i, err);
	ck_free(u->room);
	return rc;
}

static int put(struct putting *u, struct ckpt_err *err)
{
	struct ckpt_saver *saver = u->saver;
	int rc = put_all(u, err);

	if (rc)
		ckpt_save_abort(saver, "a rank failed to write its shard");
	return rc ? rc : ckpt_save_commit(saver, err);
}

int en_export(const struct en_model *model, struct en_zero *z, struct en_comm *comm,
	      const struct en_export_opts *opts, struct ckpt_saved *out, struct ckpt_err *err)
{
	struct place p = { 0 };
	struct ckpt_saver *saver = NULL;
	struct ckpt_saver_opts so = {
		.size = sizeof(so), .job = opts->job, .rank = comm->rank, .nranks = comm->size,
		.threads = 1, .buffer_bytes = BUFFER, .sync = opts->sync,
		.timeout_ms = opts->timeout_ms, .look = en_checkpointer_ranks_gone,
		.look_arg = comm,
	};
	uint64_t n;
	const struct en_zero_piece *piece = en_zero_pieces(z, &n);
	int rc = find(opts, &p, err);

	if ((n && !piece[0].master) || model->trained != model->numel)
		so.buffer_bytes = DEVICE_BUFFER;
	so.root = p.root;
	if (!rc && model->lora.r && !opts->merge) {
		rc = en_export_adapter(model, z, comm, opts, p.dir, out, err);
		leave(&p);
		return rc;
	}
	if (!rc)
		rc = ckpt_saver_new(&so, &saver, err);
	if (!rc)
		rc = begin(model, opts, &p, saver, err);
	if (!rc)
		rc = put(&(struct putting){ .model = model, .z = z, .comm = comm,
					    .saver = saver }, err);
	if (!rc)
		rc = ckpt_save_wait(saver, 0, out, err);
	ckpt_saver_free(saver);
	leave(&p);
	return rc;
}
