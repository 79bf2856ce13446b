/*
 * A step format that the library does not know, as docs/NEW-FORMAT.md says one is added: a text
 * manifest and a raw file for each state.  Any step goes there and back by the slots of a driver
 * alone.  If this is wrong, the seam between formats has a hole that only DeepSpeed's own folder
 * covers, and a new format loses tensors, states or counts on the way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/ck_formats.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/run/ck_ckpt.h"
#include "libckpt/step/ck_step_along.h"
#include "libckpt/tensor/ck_val_new.h"
#include "tests/lib/archive/t_pkl.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_step.h"

#define MANIFEST "toy.txt"
#define MOST 16

static const struct ck_format toy;

/* ---- which step ---- */

static int holds(const struct ck_tree *tree)
{
	return ck_tree_find(tree, MANIFEST) ? 90 : 0;
}

static bool is_part(const char *name, bool is_dir)
{
	return !is_dir && (!strcmp(name, MANIFEST) || strstr(name, ".raw"));
}

static int probe(const struct ck_input *in)
{
	const struct ck_format *kind;
	bool named;
	int rc;

	if (!in->is_dir)
		return 0;
	rc = ck_step_chosen_kind(in, &kind, &named);
	return rc ? rc : kind == &toy ? 90 : 0;
}

/* ---- reading ---- */

/* What the manifest says beside the index. */
struct manifest {
	struct ck_step_place at;
	struct ck_arena arena;
	char version[32];
	const char *state[MOST];
	double lr[MOST];
	int64_t step[MOST], steps;
	uint32_t ngroups, nstates;
};

static int add_state(const struct ck_input *in, struct ck_index *ix, const struct manifest *m,
		     uint32_t tensor, const char *name, unsigned dtype, const char *file,
		     struct ckpt_err *err)
{
	char *path = t_fmt("%s/%s", m->at.where, file);
	struct ck_extent e = {
		.count = ix->tensor[tensor].numel, .runs = 1, .member = CK_NONE, .view = CK_NONE,
		.rank = -1, .dtype = (uint8_t)dtype,
	};
	struct ck_src *src;
	uint32_t state;
	int rc = ck_src_open(in->pool, path, &src, err);

	if (!rc)
		rc = ck_index_add_source(ix, path, src, -1, &e.source, err);
	if (!rc)
		rc = ck_index_state_begin(ix, tensor, name, (enum ckpt_dtype)dtype, 0, err);
	if (!rc)
		rc = ck_index_state_extent(ix, &e, err);
	if (!rc)
		rc = ck_index_state_end(ix, &state, err);
	free(path);
	return rc;
}

static int read_line(const struct ck_input *in, struct ck_index *ix, struct manifest *m,
		     const char *line, struct ckpt_err *err)
{
	static uint32_t tensor;
	char name[64], file[64];
	uint64_t shape[3];
	unsigned dtype, role;
	int group, ndim, rc;

	if (sscanf(line, "version %31s", m->version) == 1 ||
	    sscanf(line, "steps %" SCNd64, &m->steps) == 1)
		return 0;
	if (sscanf(line, "group %lf %" SCNd64, &m->lr[m->ngroups], &m->step[m->ngroups]) == 2) {
		m->ngroups++;
		return 0;
	}
	if (sscanf(line, "state %63s", name) == 1) {
		m->state[m->nstates++] = ck_arena_strdup(&m->arena, name);
		return 0;
	}
	if (sscanf(line, "of %63s %u %63s", name, &dtype, file) == 3)
		return add_state(in, ix, m, tensor, name, dtype, file, err);
	ndim = sscanf(line, "tensor %d %u %63s %" SCNu64 " %" SCNu64 " %" SCNu64, &group, &role,
		      name, &shape[0], &shape[1], &shape[2]) - 3;
	assert_true(ndim >= 0);
	rc = ck_index_add_tensor(ix, name, shape, (uint32_t)ndim, (enum ckpt_role)role, &tensor,
				 err);
	ix->tensor[tensor].group = group;
	return rc;
}

static int read_manifest(const struct ck_input *in, struct ck_index *ix, struct ck_findings *f,
			 struct manifest *m, struct ckpt_err *err)
{
	struct ck_step_finder fd = { in, f, &m->arena };
	char *path, *text = NULL, *rest = NULL;
	uint64_t n;
	int rc = ck_step_find(&fd, ix, &m->at, err);

	if (rc)
		return rc;
	path = t_fmt("%s/" MANIFEST, m->at.where);
	rc = ck_look_read(in->pool, path, 1 << 16, &text, &n, err);
	for (char *p = rc ? NULL : strtok_r(text, "\n", &rest); p && !rc;
	     p = strtok_r(NULL, "\n", &rest))
		rc = read_line(in, ix, m, p, err);
	ix->world = 1;
	ix->stage = 2;
	ix->step = m->steps;
	ix->ngroups = m->ngroups;
	ck_free(text);
	free(path);
	return rc;
}

static void drop(struct manifest *m)
{
	ck_tree_release(&m->at.tree);
	ck_arena_release(&m->arena);
}

static int toy_index(const struct ck_input *in, struct ck_index *ix, struct ck_findings *f,
		     struct ckpt_err *err)
{
	struct manifest m = { .ngroups = 0 };
	const int rc = read_manifest(in, ix, f, &m, err);

	drop(&m);
	return rc;
}

/* ---- the step ---- */

struct reading {
	struct manifest m;	/* first: it is step->from */
	struct ck_index scratch;
};

static void release(struct ck_step *step)
{
	struct reading *r = step->from;

	drop(&r->m);
	ck_index_release(&r->scratch);
	free(r);
}

static void fill_group(struct ck_step *step, const struct ck_index *ix, uint32_t g)
{
	const struct manifest *m = step->from;
	struct ck_step_group *to = &step->group[g];
	struct ck_arena *a = step->arena;

	to->param = ck_arena_zalloc(a, (ix->ntensors + 1) * sizeof(*to->param));
	for (uint32_t i = 0; i < ix->ntensors; i++) {
		const struct ck_tensor *t = &ix->tensor[i];

		if (t->group == (int32_t)g)
			to->param[to->nparams++] = (struct ck_step_param){
				t->name, t->shape, t->ndim, CK_NONE, t->numel,
			};
	}
	step->nlisted += to->nparams;
	to->hyper = ck_val_dict_sets(a, ck_val_new_dict(a), "lr", ck_val_new_float(a, m->lr[g]));
	to->entry = ck_val_dict_sets(a, ck_val_new_dict(a), "step",
				     ck_val_new_int(a, m->step[g]));
	for (uint32_t k = 0; k < m->nstates; k++)
		to->entry = ck_val_dict_sets(a, to->entry, m->state[k], ck_val_new_none(a));
}

/* Names; the elements are in the index. */
static struct ck_val *make_model(struct ck_step *step, const struct ck_index *ix)
{
	const struct manifest *m = step->from;
	struct ck_arena *a = step->arena;
	struct ck_val *module = ck_val_new_ordered(a), *buffers = ck_val_new_list(a);
	struct ck_val *d = ck_val_new_dict(a);

	for (uint32_t i = 0; i < ix->ntensors; i++) {
		struct ck_val *name = ck_val_new_str(a, ix->tensor[i].name);

		module = ck_val_dict_add(a, module, name, ck_val_new_none(a));
		if (ix->tensor[i].role == CKPT_ROLE_BUFFER)
			buffers = ck_val_list_add(a, buffers, name);
	}
	d = ck_val_dict_sets(a, d, "module", module);
	d = ck_val_dict_sets(a, d, "buffer_names", buffers);
	d = ck_val_dict_sets(a, d, "frozen_param_shapes", ck_val_new_ordered(a));
	d = ck_val_dict_sets(a, d, "global_steps", ck_val_new_int(a, m->steps));
	d = ck_val_dict_sets(a, d, "mp_world_size", ck_val_new_int(a, 1));
	return ck_val_dict_sets(a, d, "ds_version", ck_val_new_str(a, m->version));
}

static int read_step(const struct ck_input *in, const struct ck_index *ix, struct ck_findings *f,
		     struct ck_step *out, struct ckpt_err *err)
{
	struct reading *r = calloc(1, sizeof(*r));
	int rc;

	assert_non_null(r);
	rc = ck_index_init(&r->scratch, in->limits.memory_bytes, err);
	assert_int_equal(rc, 0);
	rc = read_manifest(in, &r->scratch, f, &r->m, err);
	*out = (struct ck_step){
		.in = in, .f = f, .arena = &r->m.arena, .format = &toy, .at = r->m.at,
		.tag = r->scratch.tag, .world = 1, .stage = 2, .ngroups = r->m.ngroups,
		.bare_module = true, .frozen_listed = true, .reordered = true,
		.from = r, .release = release,
	};
	if (rc) {
		release(out);
		return rc;
	}
	sscanf(r->m.version, "%u.%u.%u", &out->version[0], &out->version[1], &out->version[2]);
	out->group = ck_arena_zalloc(out->arena, MOST * sizeof(*out->group));
	for (uint32_t g = 0; g < out->ngroups; g++)
		fill_group(out, ix, g);
	out->model = make_model(out, ix);
	return 0;
}

/* ---- writing ---- */

struct writing {
	struct ck_step *step;
	const struct ck_index *ix;
	struct ck_plan *plan;
	const char *tag;
	char *text;
};

static void put(struct writing *w, char *line)
{
	w->text = ck_arena_printf(w->step->arena, "%s%s", w->text, line);
	free(line);
}

static int write_tensor(struct writing *w, uint32_t tensor, int group, struct ckpt_err *err)
{
	const struct ck_tensor *t = &w->ix->tensor[tensor];
	int rc = 0;

	put(w, t_fmt("tensor %d %u %s", group, t->role, t->name));
	for (uint32_t d = 0; d < t->ndim; d++)
		put(w, t_fmt(" %" PRIu64, t->shape[d]));
	put(w, t_fmt("\n"));
	for (uint32_t s = t->first_state; !rc && s != CK_NONE; s = w->ix->state[s].next) {
		const struct ck_state *st = &w->ix->state[s];
		char *file = t_fmt("%s.%s.raw", t->name, st->name);
		char *path = t_fmt("%s/%s", w->tag, file);

		put(w, t_fmt("of %s %u %s\n", st->name, st->dtype, file));
		rc = ck_plan_file(w->plan, path, err);
		if (!rc)
			rc = ck_plan_state(w->plan, w->ix, s, (enum ckpt_dtype)st->dtype, 0,
					   t->numel, CK_NONE, err);
		free(path);
		free(file);
	}
	return rc;
}

static void write_values(struct writing *w)
{
	const struct ck_step *s = w->step;
	struct ck_val *const *item;
	int64_t steps = 0;
	uint64_t n;

	ck_val_int(ck_val_get(s->model, "global_steps"), &steps);
	put(w, t_fmt("version %s\nsteps %" PRId64 "\n",
		     ck_val_str(ck_val_get(s->model, "ds_version")), steps));
	for (uint32_t g = 0; g < s->ngroups; g++) {
		int64_t step = 0;
		double lr = 0;

		ck_val_num(ck_val_get(s->group[g].hyper, "lr"), &lr);
		ck_val_int(ck_val_get(s->group[g].entry, "step"), &step);
		put(w, t_fmt("group %.17g %" PRId64 "\n", lr, step));
	}
	assert_true(ck_val_pairs(s->group[0].entry, &item, &n));
	for (uint64_t i = 0; i < n; i++)
		if (!ck_val_is_str(item[2 * i], "step"))
			put(w, t_fmt("state %s\n", ck_val_str(item[2 * i])));
}

static int write_step(struct ck_step *step, const struct ck_index *ix,
		      const struct ck_reshard_want *want, struct ck_plan *plan,
		      struct ckpt_err *err)
{
	struct writing w = { step, ix, plan, ck_step_tag(step, want), NULL };
	struct ck_step_along along = { .step = step, .want = want, .tag = w.tag };
	bool grouped[MOST] = { false };
	char *path = t_fmt("%s/" MANIFEST, w.tag);
	int rc = step->complete ? step->complete(step, err) : 0;

	w.text = ck_arena_strdup(step->arena, "");
	if (!rc)
		write_values(&w);
	for (uint32_t g = 0; !rc && g < step->ngroups; g++)
		for (uint32_t i = 0; !rc && i < step->group[g].nparams; i++) {
			uint32_t tensor;

			assert_true(ck_index_find(ix, step->group[g].param[i].name, &tensor));
			grouped[tensor] = true;
			rc = write_tensor(&w, tensor, (int)g, err);
		}
	for (uint32_t i = 0; !rc && i < ix->ntensors; i++)
		if (!grouped[i])
			rc = write_tensor(&w, i, -1, err);
	if (!rc)
		rc = ck_plan_file(plan, path, err);
	if (!rc)
		rc = ck_plan_literal(plan, w.text, strlen(w.text), err);
	if (!rc)
		rc = ck_step_along_list(&along, err);
	if (!rc)
		rc = ck_step_along_plan(&along, plan, err);
	ck_step_along_release(&along);
	free(path);
	return rc;
}

static const struct ck_format toy = {
	.name = "toy",
	.noun = "toy step",
	.is_step = true,
	.latest = "latest",
	.probe = probe,
	.index = toy_index,
	.holds = holds,
	.is_part = is_part,
	.read_step = read_step,
	.write_step = write_step,
};

/* ---- there and back ---- */

/* The product's drivers and the toy; 'step' is who writes. */
static const struct ck_formats *table(const struct ck_format *step)
{
	static const struct ck_format *list[MOST];
	static struct ck_formats f;
	size_t n = 0;

	for (const struct ck_format *const *r = ck_all_formats.reader; *r; r++)
		list[n++] = *r;
	list[n] = &toy;
	f = ck_all_formats;
	f.reader = list;
	f.step = step;
	return &f;
}

static void save(const char *dir, const char *name, const char *text)
{
	char *path = t_fmt("%s/run/tag/%s", dir, name);

	t_pkl_save(path, text);
	free(path);
}

/* Stage 2, two ranks: elements 1 to 8 of 'v' and 'w', and a buffer. */
static void save_step(const char *dir)
{
	static const char *const sub[] = { "run", "run/tag" };
	char *latest;

	for (size_t i = 0; i < 2; i++) {
		char *path = t_fmt("%s/%s", dir, sub[i]);

		t_dir_make(path);
		free(path);
	}
	latest = t_fmt("%s/run/latest", dir);
	t_file_write(latest, "tag", 3);
	free(latest);
	save(dir, "mp_rank_00_model_states.pt",
	     "{ 'module' { 'v' <bf16 2 @1> 'w' <bf16 2 3 @3> 'b' <f32 1 @9> }"
	     " 'buffer_names' [ 'b' ] 'frozen_param_shapes' { }"
	     " 'param_shapes' [ { 'v' ( 2 ) 'w' ( 2 3 ) } ] 'global_steps' 4 'skipped_steps' 0"
	     " 'dp_world_size' 2 'mp_world_size' 1 'ds_version' '0.19.8' }");
	for (int r = 0; r < 2; r++) {
		char *name = t_fmt("zero_pp_rank_%d_mp_rank_00_optim_states.pt", r);
		char *text = t_fmt("{ 'optimizer_state_dict' { 'zero_stage' 2 'partition_count'"
				   " [ 2 ] 'base_optimizer_state' { 'state' { 0 { 'step' 4"
				   " 'exp_avg' <f32 4 @%d> } } 'param_groups' [ { 'lr' 0.25"
				   " 'params' [ 0 ] } ] } 'single_partition_of_fp32_groups'"
				   " [ <f32 4 @%d> ] 'ds_version' '0.19.8' } }",
				   20 + 4 * r, 1 + 4 * r);

		save(dir, name, text);
		free(text);
		free(name);
	}
}

static struct ckpt *opened(const struct ck_formats *formats, const char *dir, const char *name)
{
	char *path = t_fmt("%s/%s", dir, name);
	struct ckpt_err err = { 0 };
	struct ckpt *ck;

	if (ck_ckpt_open(formats, (const char *const *)&path, 1, NULL, &ck, &err))
		fail_msg("%s: %s", path, err.msg);
	free(path);
	return ck;
}

/* The step that 'from' means, written by 'target' below 'to'. */
static void convert(const char *dir, const char *from, const struct ck_format *target,
		    const char *to)
{
	const struct ckpt_reshard_opts opts = {
		.size = sizeof(opts), .world = 1, .stage = -1, .round_robin = -1,
	};
	struct ckpt *ck = opened(table(target), dir, from);
	char *path = t_fmt("%s/%s", dir, to);
	struct ckpt_err err = { 0 };

	if (ckpt_reshard(ck, path, &opts, NULL, &err))
		fail_msg("%s to %s: %s", from, to, err.msg);
	ckpt_close(ck);
	free(path);
}

static void same_as_first(const char *dir, const char *name, const char *format)
{
	struct ckpt *first = opened(table(NULL), dir, "run"), *ck = opened(table(NULL), dir, name);
	char want[33], is[33];
	struct ckpt_info info;

	ckpt_info_get(ck, &info);
	assert_string_equal(info.format, format);
	assert_int_equal(info.step, 4);
	assert_int_equal(info.ntensors, 3);
	t_step_digest(first, want);
	t_step_digest(ck, is);
	assert_string_equal(is, want);
	assert_true(t_step_value(ck, "w", "exp_avg", 5) == 27);
	ckpt_close(first);
	ckpt_close(ck);
}

static void a_step_goes_to_a_new_format_and_back(void **state)
{
	char *dir = t_dir_new();
	struct ckpt *ck;

	(void)state;
	save_step(dir);
	convert(dir, "run", &toy, "toys");
	same_as_first(dir, "toys", "toy");
	convert(dir, "toys", ck_all_formats.step, "back");
	same_as_first(dir, "back", "deepspeed");
	ck = opened(table(NULL), dir, "back");
	assert_string_equal(t_step_fact(ck, "group.0.lr"), "0.25");
	assert_string_equal(t_step_fact(ck, "group.0.step"), "4");
	ckpt_close(ck);
	t_dir_end(dir);
}

static void every_driver_writes_what_the_new_one_has_read(void **state)
{
	char *dir = t_dir_new();

	(void)state;
	save_step(dir);
	convert(dir, "run", &toy, "toys");
	convert(dir, "toys", ck_all_formats.native, "native");
	same_as_first(dir, "native", "native");
	convert(dir, "native", &toy, "again");
	same_as_first(dir, "again", "toy");
	convert(dir, "again", ck_all_formats.universal, "universal");
	convert(dir, "universal", &toy, "last");
	same_as_first(dir, "last", "toy");
	t_dir_end(dir);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_goes_to_a_new_format_and_back),
		cmocka_unit_test(every_driver_writes_what_the_new_one_has_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
