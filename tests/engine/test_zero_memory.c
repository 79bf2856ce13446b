/*
 * What a rank holds is what arithmetic says beforehand, to the byte, and memory goes back when it
 * is freed.  If this fails, docs/ztrain/memory.md and `zckpt plan` promise what is not kept.
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

#include "engine/comm/en_collective.h"
#include "engine/checkpoint/en_checkpointer.h"
#include "engine/zero/cpu/en_zero_cpu.h"
#include "tests/engine/te_model.h"
#include "tests/engine/te_ranks.h"
#include "tests/lib/fs/t_dir.h"

#define ROWS 2u
#define TOKENS 19u

struct held {
	const struct en_model *model;
	const struct en_adapt *adapt;	/* NULL: all of it is trained */
	struct en_zero_opts opts;
	bool step;		/* one is made */
	unsigned differ;
	char first[400];	/* the first difference */
};

static void compare(struct held *h, const struct en_comm *comm, const struct en_mem *got,
		    const struct en_mem *want)
{
	for (int k = 0; k < EN_MEM_KINDS; k++) {
		const bool now = got->now[k] == want->now[k];

		if ((now && got->peak[k] == want->peak[k]) || h->differ++)
			continue;
		snprintf(h->first, sizeof(h->first), "%s: %" PRIu64 " bytes, at most %" PRIu64
			 ", and %" PRIu64 " were expected (stage %u, rank %u of %u, type %d, "
			 "units %u, recompute %d, tied %d)", en_mem_name((enum en_mem_kind)k),
			 got->now[k], got->peak[k], want->now[k], h->opts.stage, comm->rank,
			 comm->size, h->opts.type, h->opts.micro_batches, h->opts.recompute,
			 h->model->config.tied);
	}
	if (got->total != want->total || got->total_peak != want->total_peak)
		h->differ++;
}

static int one_step(struct en_zero *z, const struct held *h, struct ckpt_err *err)
{
	static const struct en_zero_hyper hyper[2] = {
		{ 1e-3, 0.9, 0.95, 1e-8, 0.1 }, { 1e-3, 0.9, 0.95, 1e-8, 0 },
	};
	int32_t ids[ROWS * TOKENS];
	const struct en_batch batch = { ROWS, TOKENS, ids, ids, NULL, NULL };
	const struct en_zero_micro_batch unit = { .batch = &batch, .factor = 0.01 };
	struct en_loss loss;
	double norm;
	int rc = 0;

	for (uint32_t i = 0; i < ROWS * TOKENS; i++)
		ids[i] = (int32_t)(i * 7 % h->model->config.vocab);
	en_zero_init(z, 3, NULL);
	rc = en_zero_sync_params(z, err);
	for (uint32_t m = 0; !rc && m < h->opts.micro_batches; m++)
		rc = en_zero_micro_batch(z, m, &unit, &loss, err);
	if (!rc)
		rc = en_zero_norm(z, &norm, err);
	return rc ? rc : en_zero_update(z, hyper, 1, 1, err);
}

/* Every rank on its own; ranks come here one after the other only where they collect. */
static int hold(struct en_comm *comm, void *arg, struct ckpt_err *err)
{
	static const struct en_zero_rule rule = { KN_ADAM_TORCH, true, true, false };
	struct held *all = arg, *h = &all[comm->rank];
	uint64_t state = 0, n, mine = 0;
	const struct en_zero_piece *p;
	struct en_zero *z;
	struct en_mem want;
	int rc = en_zero_cpu_expect(h->model, &h->opts, comm->rank, comm->size, false, &want,
				    &state, err);

	if (!rc)
		rc = en_zero_cpu_new(h->model, comm, &h->opts, &rule, &z, err);
	if (rc)
		return rc;
	if (h->step)
		rc = one_step(z, h, err);
	compare(h, comm, en_zero_mem(z), &want);
	p = en_zero_pieces(z, &n);
	for (uint64_t i = 0; i < n; i++)
		mine += 12 * p[i].count;
	if (mine != state && !h->differ++)
		snprintf(h->first, sizeof(h->first), "%" PRIu64 " bytes of states, %" PRIu64
			 " were expected", mine, state);
	en_zero_free(z);
	return rc;
}

static void check(const struct held *like, uint32_t ranks)
{
	struct held all[8];
	struct en_model *model = NULL;

	for (uint32_t r = 0; r < ranks; r++)
		all[r] = *like;
	if (like->adapt) {	/* where frozen parameters are depends on the ranks */
		struct en_adapt adapt = *like->adapt;

		adapt.ranks = ranks;
		assert_int_equal(en_model_new_adapted(&like->model->config, &adapt, &model, NULL),
				 0);
		for (uint32_t r = 0; r < ranks; r++)
			all[r].model = model;
	}
	te_ranks(ranks, hold, all);
	en_model_free(model);
	for (uint32_t r = 0; r < ranks; r++)
		if (all[r].differ)
			fail_msg("%s", all[r].first[0] ? all[r].first : "the totals differ");
}

/* Every 'stride'th of all combinations. */
static void one_model(const char *name, uint32_t stride, const struct en_adapt *adapt)
{
	static const enum kn_type type[] = { KN_F32, KN_BF16, KN_F16 };
	static const uint32_t units[] = { 1, 2, 3, 8 };
	struct te_model m;
	char *dir = t_dir_new();
	const struct en_nvme_opts drive = { .dir = dir };
	struct held h = { .opts = { .rows = ROWS, .tokens = TOKENS, .threads = 1 } };

	te_model_open(&m, name);
	h.model = m.model;
	h.adapt = adapt;
	for (uint32_t i = 0; i < 4 * 3 * 4 * 2; i += stride) {
		h.opts.stage = i & 3;
		h.opts.type = type[i / 4 % 3];
		h.opts.wire = i & 16 ? KN_F32 : h.opts.type;
		h.opts.micro_batches = units[i / 12 % 4];
		h.opts.recompute = i / 48;
		h.opts.threads = 1 + (i & 1);
		h.opts.host_optimizer = i / 7 & 1;
		h.opts.host_params = i / 11 & 1;
		h.opts.nvme = h.opts.stage && h.opts.host_optimizer && i % 3 ? drive :
			      (struct en_nvme_opts){ .dir = NULL };
		h.opts.off_tile = i & 32 ? EN_ZERO_CHUNK : 0;
		h.opts.off_buffers = i & 64 ? 5 : 0;
		h.step = i % 13 == 0;
		for (uint32_t ranks = 1; ranks <= 8; ranks *= 2)
			check(&h, ranks);
		check(&h, 3 + i % 5);
	}
	te_model_close(&m);
	t_dir_end(dir);
}

static void held_is_what_was_expected(void **state)
{
	(void)state;
	one_model("llama3", 5, NULL);
	one_model("llama3_tied", 7, NULL);
	one_model("qwen25", 7, NULL);
	one_model("qwen3_tied", 1, NULL);
}

/* Gradients and states of trained parameters alone. */
static void so_it_is_where_some_are_frozen(void **state)
{
	static const char *const some[] = { "*embed*", "model.layers.0.*", "*up_proj*" };
	const struct en_adapt frozen = { .freeze = some, .nfreeze = 3 };
	const struct en_adapt norms = { .freeze = some, .nfreeze = 1 };
	const struct en_adapt lora = { .lora = { .r = 4, .alpha = 8, .targets = 0x7f } };
	const struct en_adapt drop = { .lora = { .r = 4, .alpha = 8, .targets = 0x7f,
						 .dropout = 0.1 } };

	(void)state;
	one_model("llama3", 5, &frozen);
	one_model("qwen3_tied", 7, &norms);
	one_model("qwen25", 7, &lora);
	one_model("qwen25", 3, &drop);
	one_model("qwen3_tied", 5, &lora);
}

static void stages_fall_as_they_should(void **state)
{
	struct en_zero_opts o = { .type = KN_BF16, .wire = KN_BF16, .micro_batches = 4, .rows = 1,
				  .tokens = 8, .threads = 1 };
	struct en_mem mem[4][2];
	struct te_model m;

	(void)state;
	te_model_open(&m, "qwen3");
	for (o.stage = 0; o.stage <= 3; o.stage++)
		for (uint32_t w = 0; w < 2; w++)
			assert_int_equal(en_zero_cpu_expect(m.model, &o, 0, 1 + 3 * w, false,
							&mem[o.stage][w], NULL, NULL), 0);
	for (int s = 1; s <= 3; s++) {
		const struct en_mem *one = &mem[s][0], *four = &mem[s][1];

		/* but for padding, which is at most 4 x 4096 elements a block */
		assert_true(4 * four->peak[EN_MEM_OPTIMIZER] < one->peak[EN_MEM_OPTIMIZER] +
			    m.model->nblocks * 4 * EN_ZERO_CHUNK * 12);
		assert_true(four->total < one->total);
	}
	assert_true(4 * mem[3][1].peak[EN_MEM_PARAMS] < mem[3][0].peak[EN_MEM_PARAMS] +
		    m.model->nblocks * 4 * EN_ZERO_CHUNK * 2);
	assert_int_equal(mem[0][1].peak[EN_MEM_GATHERED], 0);
	o.stage = 3;
	assert_int_equal(en_zero_cpu_expect(m.model, &o, 4, 4, false, &mem[0][0], NULL, NULL),
			 -CKPT_E_USAGE);
	o.micro_batches = 0;
	assert_int_equal(en_zero_cpu_expect(m.model, &o, 0, 4, false, &mem[0][0], NULL, NULL),
			 -CKPT_E_USAGE);
	te_model_close(&m);
}

/* Two operations under way, the memory of each as its piece asks. */
static void scratch_is_counted(void **state)
{
	struct en_zero_opts o = { .stage = 2, .type = KN_BF16, .wire = KN_BF16, .micro_batches = 2,
				  .rows = 1, .tokens = 8, .threads = 1 };
	struct en_mem quiet, loud;
	struct te_model m;

	(void)state;
	te_model_open(&m, "qwen3");
	for (uint32_t w = 1; w <= 8; w *= 2) {
		uint64_t most = 0, diff;

		for (uint32_t i = 0; i < m.model->nblocks; i++) {
			const uint64_t n = m.model->block[i].numel / EN_ZERO_CHUNK + w;
			const uint64_t s = ck_zt_scratch(w, n * EN_ZERO_CHUNK / w * 2);

			most = s > most ? s : most;
		}
		assert_int_equal(en_zero_cpu_expect(m.model, &o, 0, w, false, &quiet, NULL, NULL),
				 0);
		assert_int_equal(en_zero_cpu_expect(m.model, &o, 0, w, true, &loud, NULL, NULL),
				 0);
		diff = loud.total - quiet.total;
		assert_int_equal(diff, loud.now[EN_MEM_COLLECTIVES] -
				 quiet.now[EN_MEM_COLLECTIVES]);
		assert_true(w == 1 ? !diff : diff && diff <= 2 * most);
	}
	te_model_close(&m);
}

/* ---- zckpt plan ---- */

static void same_terms(const struct ckpt_estimate *est, const struct en_mem *mem, const char *what)
{
	uint64_t sum = 0;

	for (int k = 0; k < EN_MEM_KINDS; k++) {
		const char *name = en_mem_name((enum en_mem_kind)k);
		uint64_t bytes = 0;

		for (uint32_t i = 0; i < est->nterms; i++)
			if (est->term[i].place == CKPT_PLACE_GPU &&
			    !strcmp(est->term[i].name, name))
				bytes += est->term[i].bytes;
		if (bytes != mem->peak[k])
			fail_msg("%s: the plan has %" PRIu64 " bytes of %s, the engine %" PRIu64,
				 what, bytes, name, mem->peak[k]);
		sum += bytes;
	}
	assert_int_equal(est->gpu_bytes, sum + 12345);
}

static void plan_model(const char *name, const struct en_lora *lora, const char *text)
{
	static const struct {
		enum kn_type type;
		enum ckpt_dtype dtype;
	} types[] = { { KN_F32, CKPT_F32 }, { KN_BF16, CKPT_BF16 }, { KN_F16, CKPT_F16 } };
	char *file = t_fmt("models/%s/config.json", name), *path = te_path(file), what[128];
	struct ckpt_setup s = { .size = sizeof(s), .engine = CKPT_ENGINE_ZTRAIN,
				.overhead = 12345, .gpus_per_node = 2 };
	struct ckpt_estimate *est = t_alloc(sizeof(*est));
	struct en_adapt adapt = { .ranks = 1 };
	struct en_model *adapted;
	struct ckpt_model *model;
	struct te_model m;

	te_model_open(&m, name);
	assert_int_equal(ckpt_model_from_config(path, &model, NULL), 0);
	if (lora) {
		adapt.lora = *lora;
		assert_int_equal(ckpt_model_lora(model, text, NULL), 0);
	}
	assert_int_equal(en_model_new_adapted(&m.model->config, &adapt, &adapted, NULL), 0);
	for (uint32_t i = 0; i < 4 * 3 * 2 * 6 * 4; i++) {
		static const uint32_t worlds[] = { 1, 2, 3, 4, 8, 64 }, units[] = { 1, 2, 7, 16 };
		struct en_zero_opts o = { .stage = i & 3, .type = types[i / 4 % 3].type,
					  .recompute = i / 12 & 1, .micro_batches = units[i / 144],
					  .rows = 1 + i % 5, .tokens = 10 + i % 200,
					  .threads = 1 };
		const uint32_t world = worlds[i / 24 % 6];
		struct ckpt_err err = { 0 };
		struct en_mem mem;
		uint64_t state;

		o.wire = o.type;
		o.host_optimizer = o.stage && i % 7 == 0;
		o.host_params = o.stage == 3 && i % 14 == 0;
		s.stage = o.stage;
		s.offload = o.host_params ? CKPT_OFFLOAD_OPTIMIZER | CKPT_OFFLOAD_PARAMS :
			    o.host_optimizer ? CKPT_OFFLOAD_OPTIMIZER : 0;
		o.host_optimizer = s.offload;
		s.gpus = world;
		s.dtype = types[i / 4 % 3].dtype;
		s.recompute = o.recompute;
		s.accumulation = o.micro_batches;
		s.micro = o.rows;
		s.sequence = o.tokens;
		assert_int_equal(en_zero_cpu_expect(adapted, &o, 0, world, true, &mem, &state,
						NULL),
				 0);
		en_mem_note(&mem, EN_MEM_SAVE, (int64_t)en_checkpointer_buffer(state));
		if (ckpt_estimate(model, &s, est, &err))
			fail_msg("%s: %s", name, err.msg);
		snprintf(what, sizeof(what), "%s, stage %u of %u ranks, %u units", name, o.stage,
			 world, o.micro_batches);
		same_terms(est, &mem, what);
		assert_int_equal(est->host_bytes, (world < 2 ? 1 : 2) * est->gpu_bytes);
	}
	ckpt_model_free(model);
	en_model_free(adapted);
	free(est);
	free(path);
	free(file);
	te_model_close(&m);
}

/* libckpt knows a model's blocks without the engine: the two must not come apart. */
static void the_plan_is_the_engine(void **state)
{
	const struct en_lora all = { .r = 4, .alpha = 8, .targets = 0x7f };
	const struct en_lora some = { .r = 3, .alpha = 8, .rslora = true,
				      .targets = 1u << EN_LINEAR_K | 1u << EN_LINEAR_DOWN };
	const struct en_lora usual = { .r = 8, .alpha = 8,
				       .targets = 1u << EN_LINEAR_Q | 1u << EN_LINEAR_V };
	struct en_lora drop = all, drop_o = usual;

	(void)state;
	drop.dropout = drop_o.dropout = 0.05;
	drop_o.targets = 1u << EN_LINEAR_O;
	plan_model("llama3", NULL, NULL);
	plan_model("llama3_tied", NULL, NULL);
	plan_model("qwen25", NULL, NULL);
	plan_model("qwen25_tied", NULL, NULL);
	plan_model("qwen3", NULL, NULL);
	plan_model("qwen3_tied", NULL, NULL);
	plan_model("qwen25", &all, "r=4,alpha=8,target=all-linear");
	plan_model("qwen3_tied", &some, "r=3,target=k_proj,down_proj,rslora");
	plan_model("llama3", &usual, "");
	plan_model("llama3", &drop, "r=4,alpha=8,dropout=0.05,target=all-linear");
	plan_model("qwen3", &drop_o, "target=o_proj,dropout=0.05");
	drop_o.targets = usual.targets;
	plan_model("qwen3", &drop_o, "dropout=5e-2");
}

static void memory_is_aligned_and_zero(void **state)
{
	static const uint64_t size[] = { 0, 1, 63, 64, 4096, (1 << 20) - 1, 1 << 20,
					 (1 << 20) + 1, 5 << 20 };
	struct en_mem mem = { .total = 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
		uint8_t *p = NULL, any = 0;

		assert_int_equal(en_mem_new(&mem, EN_MEM_GRADS, size[i], &p, NULL), 0);
		assert_int_equal((uintptr_t)p % 64, 0);
		for (uint64_t k = 0; k < size[i]; k++)
			any |= p[k];
		assert_int_equal(any, 0);
		if (size[i])
			memset(p, 0xff, size[i]);
		assert_int_equal(mem.now[EN_MEM_GRADS], size[i]);
		en_mem_free(&mem, EN_MEM_GRADS, p);
	}
	assert_int_equal(mem.total, 0);
	assert_int_equal(mem.peak[EN_MEM_GRADS], 5 << 20);
	assert_int_equal(en_mem_new(&mem, EN_MEM_GRADS, UINT64_MAX - 64, &mem, NULL),
			 -CKPT_E_NOMEM);
	assert_int_equal(en_mem_new(&mem, EN_MEM_GRADS, UINT64_MAX / 2, &mem, NULL),
			 -CKPT_E_NOMEM);
}

/* Buffers of 1 to 32 MiB: what a heap would keep after free(). */
static void memory_goes_back(void **state)
{
	struct en_mem mem = { .total = 0 };
	uint64_t peak, before, full, after, all = 0;
	void *p[6];

	(void)state;
	if (!en_mem_resident(&peak, &before))
		skip();
	for (int i = 0; i < 6; i++) {
		const uint64_t n = (uint64_t)1 << (20 + i);

		assert_int_equal(en_mem_new(&mem, EN_MEM_PARAMS, n, &p[i], NULL), 0);
		memset(p[i], 1, n);
		all += n;
	}
	assert_true(en_mem_resident(&peak, &full));
	for (int i = 0; i < 6; i++)
		en_mem_free(&mem, EN_MEM_PARAMS, p[i]);
	assert_true(en_mem_resident(&peak, &after));
	assert_true(full - before >= all && full - before < all + all / 10);
	assert_true(full - after >= all - all / 50);
	assert_true(peak + (1 << 20) >= full);	/* the kernel counts it a little later */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_is_aligned_and_zero),
		cmocka_unit_test(memory_goes_back),
		cmocka_unit_test(stages_fall_as_they_should),
		cmocka_unit_test(scratch_is_counted),
		cmocka_unit_test(the_plan_is_the_engine),
		cmocka_unit_test(held_is_what_was_expected),
		cmocka_unit_test(so_it_is_where_some_are_frozen),
	};

	te_need_fixtures();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
