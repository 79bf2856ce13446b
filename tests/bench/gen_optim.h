/*
 * gen_optim.h - the second half of gen_zero.c: what stands in an optimizer
 * shard of stage 2 and of stage 3. Included once, there.
 */
#ifndef GEN_OPTIM_H
#define GEN_OPTIM_H

#include "tests/bench/gen_states.h"

static uint64_t part_len(const struct run *r, int g)
{
	return ceil_div(r->m.total[g], 2ull * r->o.world) * 2;
}

static uint64_t part_lean(const struct run *r, int g, unsigned rank)
{
	uint64_t p = part_len(r, g), a = rank * p, t = r->m.total[g];

	return a >= t ? 0 : t - a < p ? t - a : p;
}

static void put_hyper(struct file *f, int decay, size_t first, size_t n)
{
	struct pk_fill d = pk_dict(&f->k, 12), l;

	pk_kv_float(&f->k, &d, "weight_decay", decay ? 0.1 : 0.0);
	pk_kv_float(&f->k, &d, "lr", 3e-4);
	pk_key(&f->k, &d, "betas");
	pk_float(&f->k, 0.9);
	pk_float(&f->k, 0.95);
	pk_tuple(&f->k, 2);
	pk_entry_end(&f->k, &d);
	pk_kv_float(&f->k, &d, "eps", 1e-8);
	pk_kv_bool(&f->k, &d, "amsgrad", 0);
	pk_kv_bool(&f->k, &d, "maximize", 0);
	pk_kv_none(&f->k, &d, "foreach");
	pk_kv_bool(&f->k, &d, "capturable", 0);
	pk_kv_bool(&f->k, &d, "differentiable", 0);
	pk_kv_none(&f->k, &d, "fused");
	pk_kv_bool(&f->k, &d, "decoupled_weight_decay", 1);
	pk_key(&f->k, &d, "params");
	l = pk_list(&f->k, n);
	for (size_t i = 0; i < n; i++)
		pk_item_int(&f->k, &l, first + i);
	pk_entry_end(&f->k, &d);
}

/* The storage of flat tensor i in one state. */
static struct storage *add_part(struct file *f, const struct run *r, size_t i,
				enum gen_state st)
{
	struct storage *s = add_storage(f, 4, st);
	uint64_t p;

	if (f->o->stage == 3) {
		if (st == GEN_MASTER && f->o->pad_nan)
			s->fixed = 0x7fc00000;
		add_pieces(s, r, &r->sub[i], f->rank);
	} else {
		p = part_len(r, (int)i);
		add_flat(s, r, (int)i, f->rank * p, f->rank * p + p);
	}
	return s;
}

/* torch keeps the count of steps as a 0-dim fp32 tensor. */
static void put_step(struct file *f)
{
	struct storage *s = add_storage(f, 4, GEN_MASTER);
	struct view v = { "FloatStorage", f->n_st - 1, 1, 0, { 0, 0 }, 0, 0 };
	float step = STEP;

	memcpy(&s->fixed, &step, 4);
	s->fill = FILL_DATA;
	add_seg(s, -1, 1);
	put_view(f, &v);
}

static void put_moments(struct file *f, const struct run *r, size_t i)
{
	struct pk_fill d = pk_dict(&f->k, 3);
	struct view v;

	pk_key(&f->k, &d, "step");
	put_step(f);
	pk_entry_end(&f->k, &d);
	for (int k = 0; k < 2; k++) {
		pk_key(&f->k, &d, k ? "exp_avg_sq" : "exp_avg");
		add_part(f, r, i, k ? GEN_EXP_AVG_SQ : GEN_EXP_AVG);
		v = flat_view(f, f->st[f->n_st - 1].n);
		put_view(f, &v);
		pk_entry_end(&f->k, &d);
	}
}

/* torch's own optimizer dict over n flat tensors. */
static void put_inner(struct file *f, const struct run *r, size_t n)
{
	struct pk_fill d = pk_dict(&f->k, 2), x;
	size_t first = 0, len[2] = { 1, 1 };

	if (f->o->stage == 3) {
		len[0] = 0;
		while (len[0] < n && !r->sub[len[0]].group)
			len[0]++;
		len[1] = n - len[0];
	}
	pk_key(&f->k, &d, "state");
	x = pk_dict(&f->k, n);
	for (size_t i = 0; i < n; i++) {
		pk_entry(&f->k, &x);
		pk_int(&f->k, i);
		put_moments(f, r, i);
		pk_entry_end(&f->k, &x);
	}
	pk_entry_end(&f->k, &d);
	pk_key(&f->k, &d, "param_groups");
	x = pk_list(&f->k, 2);
	for (int g = 0; g < 2; g++) {
		pk_entry(&f->k, &x);
		put_hyper(f, !g, first, len[g]);
		pk_entry_end(&f->k, &x);
		first += len[g];
	}
	pk_entry_end(&f->k, &d);
}

static void put_slice(struct file *f, uint64_t n, uint64_t start)
{
	struct pk_fill d;

	put_call(f, "deepspeed.utils.tensor_fragment", "fragment_address");
	d = pk_dict(&f->k, 2);
	pk_kv_int(&f->k, &d, "numel", n);
	pk_kv_int(&f->k, &d, "start", start);
	pk_op(&f->k, 'b');
}

/* Where the parameters of group g that touch this rank's part stand in it. */
static void put_slices(struct file *f, const struct run *r, int g)
{
	uint64_t p = part_len(r, g), s = f->rank * p, e = s + p;
	size_t n = 0;
	struct pk_fill d = { 0 };

	for (int pass = 0; pass < 2; pass++) {
		if (pass)
			d = pk_odict(&f->k, n);
		for (size_t i = 0; i < r->m.count[g]; i++) {
			const struct gen_param *q = r->list[g][i];
			uint64_t a = q->in_group, b = a + q->n;

			if (a >= e || b <= s)
				continue;
			if (!pass) {
				n++;
				continue;
			}
			a = a > s ? a : s;
			b = b < e ? b : e;
			pk_key(&f->k, &d, q->name);
			put_slice(f, b - a, a - s);
			pk_entry_end(&f->k, &d);
		}
	}
}

static void put_zeros(struct file *f, size_t n)
{
	struct pk_fill l = pk_list(&f->k, n);

	for (size_t i = 0; i < n; i++)
		pk_item_int(&f->k, &l, 0);
}

static void put_masters_z2(struct file *f, const struct run *r)
{
	struct pk_fill l = pk_list(&f->k, 2);

	for (int g = 0; g < 2; g++) {
		struct view v;

		add_part(f, r, (size_t)g, GEN_MASTER);
		v = flat_view(f, part_lean(r, g, f->rank));
		v.grad = 1;
		pk_entry(&f->k, &l);
		put_view(f, &v);
		pk_entry_end(&f->k, &l);
	}
}

/* Group paddings (what 0), alignment paddings (1), counts (2), slices (3). */
static void put_per_group(struct file *f, const struct run *r, int what)
{
	struct pk_fill l = pk_list(&f->k, 2);

	for (int g = 0; g < 2; g++) {
		pk_entry(&f->k, &l);
		if (what == 0)
			pk_int(&f->k, part_len(r, g) - part_lean(r, g, f->rank));
		else if (what == 1)
			put_zeros(f, r->m.count[g]);
		else if (what == 2)
			pk_int(&f->k, f->o->world);
		else
			put_slices(f, r, g);
		pk_entry_end(&f->k, &l);
	}
}

static void put_zero_dict_2(struct file *f, const struct run *r)
{
	static const char *const group_keys[] = {
		"group_paddings", "param_alignment_paddings", "partition_count",
	};
	struct pk_fill d = pk_dict(&f->k, 12);

	pk_key(&f->k, &d, "loss_scaler");
	put_loss_scaler(f);
	pk_entry_end(&f->k, &d);
	pk_kv_bool(&f->k, &d, "dynamic_loss_scale", 0);
	pk_kv_bool(&f->k, &d, "overflow", 0);
	pk_kv_float(&f->k, &d, "clip_grad", 1.0);
	pk_key(&f->k, &d, "base_optimizer_state");
	put_inner(f, r, 2);
	pk_entry_end(&f->k, &d);
	pk_key(&f->k, &d, "single_partition_of_fp32_groups");
	put_masters_z2(f, r);
	pk_entry_end(&f->k, &d);
	pk_key(&f->k, &d, "zero_stage");
	put_stage(f);
	pk_entry_end(&f->k, &d);
	for (int i = 0; i < 3; i++) {
		pk_key(&f->k, &d, group_keys[i]);
		put_per_group(f, r, i);
		pk_entry_end(&f->k, &d);
	}
	pk_kv_str(&f->k, &d, "ds_version", "0.19.8");
	pk_key(&f->k, &d, "param_slice_mappings");
	put_per_group(f, r, 3);
	pk_entry_end(&f->k, &d);
}

/* A flat fp32 tensor that carries ds_id, "first_last" of its parameters. */
static void put_master_z3(struct file *f, const struct run *r, size_t i)
{
	const struct sub *u = &r->sub[i];
	size_t before = u->group ? r->m.count[0] : 0;
	struct pk_fill d;
	struct view v;
	char id[48];

	add_part(f, r, i, GEN_MASTER);
	v = flat_view(f, f->st[f->n_st - 1].n);
	v.grad = 1;
	snprintf(id, sizeof id, "%zu_%zu", before + u->first,
		 before + u->end - 1);
	pk_global(&f->k, "torch._tensor", "_rebuild_from_type_v2");
	pk_op(&f->k, '(');
	pk_global(&f->k, "torch._utils", "_rebuild_tensor_v2");
	pk_global(&f->k, "torch", "Tensor");
	put_view_args(f, &v);
	d = pk_dict(&f->k, 1);
	pk_kv_str(&f->k, &d, "ds_id", id);
	pk_tuple(&f->k, 4);
	pk_reduce(&f->k);
}

static void put_zero_dict_3(struct file *f, const struct run *r)
{
	struct pk_fill d = pk_dict(&f->k, 7), l;

	pk_key(&f->k, &d, "zero_stage");
	put_stage(f);
	pk_entry_end(&f->k, &d);
	pk_key(&f->k, &d, "loss_scaler");
	put_loss_scaler(f);
	pk_entry_end(&f->k, &d);
	pk_kv_bool(&f->k, &d, "dynamic_loss_scale", 0);
	pk_kv_bool(&f->k, &d, "overflow", 0);
	pk_kv_int(&f->k, &d, "partition_count", f->o->world);
	pk_key(&f->k, &d, "optimizer_state_dict");
	put_inner(f, r, r->n_sub);
	pk_entry_end(&f->k, &d);
	pk_key(&f->k, &d, "fp32_flat_groups");
	l = pk_list(&f->k, r->n_sub);
	for (size_t i = 0; i < r->n_sub; i++) {
		pk_entry(&f->k, &l);
		put_master_z3(f, r, i);
		pk_entry_end(&f->k, &l);
	}
	pk_entry_end(&f->k, &d);
}

static void put_optim_file(struct file *f, const struct run *r)
{
	struct pk_fill d = pk_dict(&f->k, 3);

	pk_key(&f->k, &d, "optimizer_state_dict");
	if (f->o->stage == 3)
		put_zero_dict_3(f, r);
	else
		put_zero_dict_2(f, r);
	pk_entry_end(&f->k, &d);
	pk_key(&f->k, &d, "ds_config");
	put_ds_config(f);
	pk_entry_end(&f->k, &d);
	pk_kv_str(&f->k, &d, "ds_version", "0.19.8");
}

#endif
