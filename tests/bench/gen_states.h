/*
 * gen_states.h - the part of gen_zero.c that makes storages, the objects of
 * the pickles, and the model file. Included once, there.
 */
#ifndef GEN_STATES_H
#define GEN_STATES_H

#include <stdatomic.h>

#include "tests/bench/gen_model.h"
#include "tests/bench/gen_zip.h"

#define STEP 1000
#define TAG "global_step1000"

enum fill { FILL_DATA, FILL_HOLE };

struct opts {
	struct gen_dims dims;
	unsigned world, stage, threads;
	int sparse, moment_holes, pad_nan, quiet;
	uint64_t sub_group, seed;
	const char *truth, *dir, *check;
	enum gen_state check_state;
};

/* A run of elements: of the model from base on, or padding if base is -1. */
struct seg {
	int64_t base;
	uint64_t n;
};

struct storage {
	struct seg *s;
	size_t ns;
	uint64_t n;		/* elements */
	unsigned width;		/* bytes of one: 2 or 4 */
	enum gen_state state;
	enum fill fill;
	uint32_t fixed;		/* the padding's bits */
};

/* One .pt file being made. */
struct file {
	const struct opts *o;
	const struct gen_model *m;
	unsigned rank;
	struct pk k;
	struct storage *st;
	size_t n_st;
};

/* Sub-group i of stage 3: parameters [first, end) of its group's list. */
struct sub {
	int group;
	size_t first, end;
};

struct run {
	struct opts o;
	struct gen_model m;
	struct sub *sub;
	size_t n_sub;
	const struct gen_param **list[2];	/* parameters of each group */
	atomic_uint next;
	unsigned jobs;
	atomic_int failed;
};

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
	return a / b + (a % b != 0);
}

/* ---- storages ---------------------------------------------------------- */

static struct storage *add_storage(struct file *f, unsigned width,
				   enum gen_state state)
{
	struct storage *s;

	if (f->n_st % 64 == 0)
		f->st = gen_alloc(f->st, (f->n_st + 64) * sizeof *f->st);
	s = &f->st[f->n_st++];
	memset(s, 0, sizeof *s);
	s->width = width;
	s->state = state;
	s->fill = f->o->sparse ? FILL_HOLE : FILL_DATA;
	if (f->o->moment_holes && (state == GEN_EXP_AVG || state == GEN_EXP_AVG_SQ))
		s->fill = FILL_HOLE;
	return s;
}

static void add_seg(struct storage *s, int64_t base, uint64_t n)
{
	if (!n)
		return;
	if (s->ns % 16 == 0)
		s->s = gen_alloc(s->s, (s->ns + 16) * sizeof *s->s);
	s->s[s->ns].base = base;
	s->s[s->ns++].n = n;
	s->n += n;
}

/* Elements [a, b) of a stage-2 group's flat buffer. */
static void add_flat(struct storage *s, const struct run *r, int g, uint64_t a,
		     uint64_t b)
{
	uint64_t at = a;

	for (size_t i = 0; i < r->m.count[g] && at < b; i++) {
		const struct gen_param *p = r->list[g][i];
		uint64_t end = p->in_group + p->n;

		if (end <= at)
			continue;
		end = end < b ? end : b;
		add_seg(s, (int64_t)(p->base + at - p->in_group), end - at);
		at = end;
	}
	add_seg(s, -1, b - at);
}

/* Rank's pieces of the parameters of a stage-3 sub-group. */
static void add_pieces(struct storage *s, const struct run *r,
		       const struct sub *u, unsigned rank)
{
	for (size_t i = u->first; i < u->end; i++) {
		const struct gen_param *p = r->list[u->group][i];
		uint64_t len = ceil_div(p->n, r->o.world), a = rank * len;
		uint64_t have = a >= p->n ? 0 : p->n - a < len ? p->n - a : len;

		add_seg(s, (int64_t)(p->base + a), have);
		add_seg(s, -1, len - have);
	}
}

static void seg_bytes(const struct gen_model *m, const struct storage *s,
			  const struct seg *g, uint64_t at, uint64_t n,
			  uint8_t *out)
{
	if (g->base < 0) {
		for (uint64_t i = 0; i < n; i++)
			memcpy(out + i * s->width, &s->fixed, s->width);
	} else if (s->width == 4) {
		gen_floats(m, s->state, (uint64_t)g->base + at, n,
			   (uint32_t *)(void *)out);
	} else {
		gen_bf16s(m, s->state, (uint64_t)g->base + at, n,
			  (uint16_t *)(void *)out);
	}
}

/* The bytes of a storage; returns their CRC-32, 0 for a hole. */
static uint32_t put_storage(struct zw *z, const struct gen_model *m,
			    const struct storage *s)
{
	uint32_t crc = 0;

	zw_flush(z);	/* so that elements are aligned in the buffer */
	if (s->fill == FILL_HOLE) {
		zw_hole(z, s->n * s->width);
		return 0;
	}
	for (size_t i = 0; i < s->ns && !z->bad; i++) {
		for (uint64_t at = 0; at < s->s[i].n && !z->bad;) {
			uint64_t want = (s->s[i].n - at) * s->width;
			uint64_t n = want < ZW_BUF ? want : ZW_BUF;
			uint8_t *out = zw_room(z, n);

			seg_bytes(m, s, &s->s[i], at, n / s->width, out);

			crc = libdeflate_crc32(crc, out, n);
			z->n += n;
			at += n / s->width;
		}
	}
	return crc;
}

/* ---- objects of the pickle --------------------------------------------- */

/* The storage's persistent id; the first mention defines key `id`. */
static void put_pid(struct file *f, const char *cls, size_t id, uint64_t n)
{
	char key[24];

	snprintf(key, sizeof key, "%zu", id);
	pk_op(&f->k, '(');
	pk_str(&f->k, "storage");
	pk_global(&f->k, "torch", cls);
	pk_str(&f->k, key);
	pk_str(&f->k, "cpu");
	pk_int(&f->k, n);
	pk_tuple(&f->k, 5);
	pk_op(&f->k, 'Q');
}

struct view {
	const char *cls;
	size_t id;		/* storage */
	uint64_t n_storage, offset;
	uint64_t shape[2];
	size_t nd;
	int grad;
};

static void put_view_args(struct file *f, const struct view *v)
{
	uint64_t stride[2] = { v->nd == 2 ? v->shape[1] : 1, 1 };

	pk_op(&f->k, '(');
	put_pid(f, v->cls, v->id, v->n_storage);
	pk_int(&f->k, v->offset);
	pk_ints(&f->k, v->shape, v->nd);
	pk_ints(&f->k, stride, v->nd);
	pk_bool(&f->k, v->grad);
	pk_odict_empty(&f->k);
	pk_tuple(&f->k, 6);
}

static void put_view(struct file *f, const struct view *v)
{
	pk_global(&f->k, "torch._utils", "_rebuild_tensor_v2");
	put_view_args(f, v);
	pk_reduce(&f->k);
}

/* A 1-D fp32 tensor over a whole new storage but for `lean` elements. */
static struct view flat_view(const struct file *f, uint64_t lean)
{
	struct view v = { "FloatStorage", f->n_st - 1, f->st[f->n_st - 1].n, 0,
			  { lean, 0 }, 1, 0 };

	return v;
}

static void put_call(struct file *f, const char *module, const char *name)
{
	pk_global(&f->k, module, name);
	pk_op(&f->k, ')');
	pk_op(&f->k, 0x81);
	pk_put(&f->k);
}

static void put_loss_scaler(struct file *f)
{
	struct pk_fill d;

	put_call(f, "deepspeed.runtime.fp16.loss_scaler", "LossScaler");
	d = pk_dict(&f->k, 2);
	pk_kv_float(&f->k, &d, "cur_scale", 1.0);
	pk_kv_bool(&f->k, &d, "dynamic", 0);
	pk_op(&f->k, 'b');
}

static void put_stage(struct file *f)
{
	uint64_t v = f->o->stage;

	pk_global(&f->k, "deepspeed.runtime.zero.config", "ZeroStageEnum");
	pk_ints(&f->k, &v, 1);
	pk_reduce(&f->k);
}

static void put_ds_config(struct file *f)
{
	struct pk_fill d = pk_dict(&f->k, 6), z;
	int own = f->o->stage == 3 && f->o->sub_group != 1000000000;

	pk_kv_int(&f->k, &d, "train_batch_size", f->o->world);
	pk_kv_int(&f->k, &d, "train_micro_batch_size_per_gpu", 1);
	pk_kv_int(&f->k, &d, "gradient_accumulation_steps", 1);
	pk_kv_float(&f->k, &d, "gradient_clipping", 1.0);
	pk_key(&f->k, &d, "zero_optimization");
	z = pk_dict(&f->k, 2u + (unsigned)own);
	pk_kv_int(&f->k, &z, "stage", f->o->stage);
	pk_kv_bool(&f->k, &z, "overlap_comm", 1);
	if (own)
		pk_kv_int(&f->k, &z, "sub_group_size", f->o->sub_group);
	pk_entry_end(&f->k, &d);
	pk_key(&f->k, &d, "bf16");
	z = pk_dict(&f->k, 1);
	pk_kv_bool(&f->k, &z, "enabled", 1);
	pk_entry_end(&f->k, &d);
}

static void put_size(struct file *f, const struct gen_param *p)
{
	pk_global(&f->k, "torch", "Size");
	pk_ints(&f->k, p->shape, p->nd);
	pk_tuple(&f->k, 1);
	pk_reduce(&f->k);
}

/* One dict of shapes: parameters [first, end) of a group's list. */
static void put_shapes(struct file *f, const struct gen_param **list,
		       size_t first, size_t end)
{
	struct pk_fill d = pk_odict(&f->k, end - first);

	for (size_t i = first; i < end; i++) {
		pk_key(&f->k, &d, list[i]->name);
		put_size(f, list[i]);
		pk_entry_end(&f->k, &d);
	}
}

static void put_param_shapes(struct file *f, const struct run *r)
{
	size_t n = f->o->stage == 3 ? r->n_sub : 2;
	struct pk_fill l = pk_list(&f->k, n);

	for (size_t i = 0; i < n; i++) {
		struct sub whole = { (int)i, 0, i < 2 ? r->m.count[i] : 0 };
		const struct sub *u = f->o->stage == 3 ? &r->sub[i] : &whole;

		pk_entry(&f->k, &l);
		put_shapes(f, r->list[u->group], u->first, u->end);
		pk_entry_end(&f->k, &l);
	}
}

/* ---- the model file ---------------------------------------------------- */

static void put_buffer(struct file *f, const struct gen_param *p)
{
	struct storage *s = add_storage(f, 4, GEN_BUFFER);
	struct view v = { "FloatStorage", f->n_st - 1, p->n, 0, { p->n, 0 }, 1, 0 };

	add_seg(s, (int64_t)p->base, p->n);
	put_view(f, &v);
}

/*
 * A parameter in `module`: stage 2 shows a part of its group's flat buffer
 * (made at first use, flat[g] is its number + 1), stage 3 an empty tensor.
 */
static void put_param(struct file *f, const struct run *r,
		      const struct gen_param *p, size_t flat[2])
{
	struct view v = { "BFloat16Storage", f->n_st, 0, 0, { 0, 0 }, 1, 0 };
	int g = p->group;

	if (f->o->stage == 3) {
		add_storage(f, 2, GEN_MASTER);
	} else {
		uint64_t align = 2ull * f->o->world;

		v.n_storage = ceil_div(r->m.total[g], align) * align;
		if (!flat[g]) {
			add_flat(add_storage(f, 2, GEN_MASTER), r, g, 0,
				 v.n_storage);
			flat[g] = f->n_st;
		}
		v.id = flat[g] - 1;
		v.offset = p->in_group;
		memcpy(v.shape, p->shape, sizeof v.shape);
		v.nd = p->nd;
	}
	put_view(f, &v);
}

/* True if the module that name[0..len) calls was met in the tensor before. */
static int module_seen(const struct gen_model *m, size_t i, size_t len)
{
	const char *now = m->p[i].name, *old = i ? m->p[i - 1].name : "";

	return i && !strncmp(now, old, len) && (!len || old[len] == '.');
}

/*
 * state_dict()'s version notes: one for each module on the way to a tensor.
 * Tensors stand in tree order, so a module is new if the tensor before is not
 * in it.
 */
static void put_metadata(struct file *f, const struct gen_model *m)
{
	struct pk_fill d = { 0 }, one;
	size_t n = 0;

	for (int pass = 0; pass < 2; pass++) {
		if (pass)
			d = pk_odict(&f->k, n);
		for (size_t i = 0; i < m->np; i++) {
			const char *s = m->p[i].name;

			for (const char *e = s; e; e = strchr(e + 1, '.')) {
				char cut[80];

				if (module_seen(m, i, (size_t)(e - s)))
					continue;
				n++;
				if (!pass)
					continue;
				snprintf(cut, sizeof cut, "%.*s", (int)(e - s), s);
				pk_key(&f->k, &d, cut);
				one = pk_dict(&f->k, 1);
				pk_kv_int(&f->k, &one, "version", 1);
				pk_entry_end(&f->k, &d);
			}
		}
	}
}

static void put_module(struct file *f, const struct run *r)
{
	struct pk_fill d = pk_odict(&f->k, r->m.np), meta;
	size_t flat[2] = { 0, 0 };

	for (size_t i = 0; i < r->m.np; i++) {
		pk_key(&f->k, &d, r->m.p[i].name);
		if (r->m.p[i].group < 0)
			put_buffer(f, &r->m.p[i]);
		else
			put_param(f, r, &r->m.p[i], flat);
		pk_entry_end(&f->k, &d);
	}
	meta = pk_dict(&f->k, 1);
	pk_key(&f->k, &meta, "_metadata");
	put_metadata(f, &r->m);
	pk_entry_end(&f->k, &meta);
	pk_op(&f->k, 'b');
}

static void put_names(struct file *f, const struct run *r)
{
	struct pk_fill l = pk_list(&f->k, 1);

	for (size_t i = 0; i < r->m.np; i++) {
		if (r->m.p[i].group >= 0)
			continue;
		pk_entry(&f->k, &l);
		pk_str(&f->k, r->m.p[i].name);
		pk_entry_end(&f->k, &l);
	}
}

static void put_counters(struct file *f, struct pk_fill *d)
{
	struct pk_fill x;

	pk_kv_none(&f->k, d, "lr_scheduler");
	pk_kv_none(&f->k, d, "data_sampler");
	pk_kv_none(&f->k, d, "random_ltd");
	pk_kv_int(&f->k, d, "skipped_steps", 0);
	pk_kv_int(&f->k, d, "global_steps", STEP);
	pk_kv_int(&f->k, d, "global_samples", (uint64_t)STEP * f->o->world);
	pk_kv_int(&f->k, d, "dp_world_size", f->o->world);
	pk_kv_int(&f->k, d, "mp_world_size", 1);
	pk_key(&f->k, d, "checkpoint_parallel_dimensions");
	x = pk_dict(&f->k, 2);
	pk_kv_int(&f->k, &x, "pp_degree", 1);
	pk_kv_int(&f->k, &x, "tp_degree", 1);
	pk_entry_end(&f->k, d);
	pk_key(&f->k, d, "ds_config");
	put_ds_config(f);
	pk_entry_end(&f->k, d);
	pk_kv_str(&f->k, d, "ds_version", "0.19.8");
}

static void put_model_file(struct file *f, const struct run *r)
{
	struct pk_fill d = pk_dict(&f->k, 18);

	pk_key(&f->k, &d, "module");
	put_module(f, r);
	pk_entry_end(&f->k, &d);
	pk_key(&f->k, &d, "buffer_names");
	put_names(f, r);
	pk_entry_end(&f->k, &d);
	pk_kv_none(&f->k, &d, "optimizer");
	pk_key(&f->k, &d, "param_shapes");
	put_param_shapes(f, r);
	pk_entry_end(&f->k, &d);
	pk_key(&f->k, &d, "frozen_param_shapes");
	pk_odict_empty(&f->k);
	pk_entry_end(&f->k, &d);
	pk_key(&f->k, &d, "shared_params");
	pk_dict(&f->k, 0);
	pk_entry_end(&f->k, &d);
	pk_key(&f->k, &d, "frozen_param_fragments");
	pk_odict_empty(&f->k);
	pk_entry_end(&f->k, &d);
	put_counters(f, &d);
}

#endif
