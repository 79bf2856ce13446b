/* Fuzz targets: configurations of the training engine, DeepSpeed's and accelerate's. Whatever the
 * text is, there is a result that agrees with itself, or a sentence; and a screen either way. */
#include "tests/fuzz/fz.h"

#include <math.h>
#include <string.h>

#include "engine/config/en_config.h"

static const struct en_facts facts = {
	.world = 4, .hidden_size = 64, .has = EN_HAS_ALL, .micro_batch = 2, .accumulation = 1,
	.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .max_grad_norm = 1,
	.warmup_steps = 0.1, .steps = 100, .bf16 = true,
};

/* What engine code leans on without looking. */
static void check_settings(const struct en_settings *s)
{
	if (s->micro_batch <= 0 || s->accumulation <= 0 ||
	    s->train_batch != s->micro_batch * s->accumulation * s->world)
		fz_die("a batch of %lld is %lld x %lld x %u", (long long)s->train_batch,
		       (long long)s->micro_batch, (long long)s->accumulation, s->world);
	if (s->stage < 0 || s->stage > 3)
		fz_die("stage %lld", (long long)s->stage);
	if (s->offload_param.device == EN_DEVICE_NVME && !s->offload_param.nvme_path)
		fz_die("NVMe without a path");
	if (!isfinite(s->gradient_clipping) || s->gradient_clipping < 0 ||
	    !isfinite(s->optimizer.lr) || !isfinite(s->loss_scale))
		fz_die("a number that is none");
	if (!s->schedule.type || !s->optimizer.type || !s->precision)
		fz_die("something has no type");
}

static void check_verdicts(const struct en_config *cfg, bool resolved)
{
	for (uint64_t i = 0; i < cfg->n_verdicts; i++) {
		const struct en_verdict *v = &cfg->verdict[i];

		if (!v->path || !v->value || !v->why || !v->ruling)
			fz_die("verdict %llu is not whole", (unsigned long long)i);
		if (v->ruling == EN_REFUSED && (resolved || !v->code || !*v->why))
			fz_die("%s is refused: %s", v->path, resolved ? "and taken" : v->why);
	}
}

static void check_screen(struct en_config *cfg)
{
	struct ckpt_err err = { 0 };
	const char *const *line = NULL;
	size_t n = 0;

	if (!fz_ok(en_config_screen(cfg, 80, &line, &n, &err), &err, "en_config_screen"))
		return;
	for (size_t i = 0; i < n; i++)
		if (strchr(line[i], '\n'))
			fz_die("a line of the screen is two");
}

static void use(struct en_config *cfg, int rc, struct ckpt_err *err, enum en_filler filler)
{
	struct en_facts f = facts;

	f.filler = filler;
	if (fz_ok(rc, err, "reading a configuration")) {
		if (cfg->launch.num_processes && cfg->launch.num_processes < 1 << 20)
			f.world = cfg->launch.num_processes;
		memset(err, 0, sizeof(*err));
		rc = en_config_resolve(cfg, &f, err);
		if (fz_ok(rc, err, "en_config_resolve"))
			check_settings(&cfg->set);
		check_verdicts(cfg, !rc);
		check_screen(cfg);
	}
	en_config_release(cfg);
}

void fz_config(const uint8_t *p, size_t n)
{
	for (int filler = EN_FILL_NONE; filler <= EN_FILL_ACCELERATE; filler++) {
		struct ckpt_err err = { 0 };
		struct en_config cfg;

		en_config_init(&cfg, (enum en_ds_version)(EN_DS_0_16 + filler));
		use(&cfg, en_config_parse_deepspeed(&cfg, (const char *)p, n, "in.json", &err),
		    &err, (enum en_filler)filler);
	}
}

void fz_accelerate(const uint8_t *p, size_t n)
{
	struct ckpt_err err = { 0 };
	struct en_config cfg;

	en_config_init(&cfg, EN_DS_0_19);
	use(&cfg, en_config_parse_accelerate(&cfg, (const char *)p, n, "in.yaml", 0, &err), &err,
	    EN_FILL_ACCELERATE);
}
