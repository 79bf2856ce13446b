/* cli_plan_out.c -- `zckpt plan` for people and for scripts. */
#include <inttypes.h>
#include <string.h>

#include "cli_plan.h"

static const struct {
	unsigned phase;
	const char *key;
} phases[CKPT_NPHASES] = {
	{ CKPT_PHASE_LOSS, "loss" }, { CKPT_PHASE_LAYER, "last_layer" },
	{ CKPT_PHASE_END, "first_layer" }, { CKPT_PHASE_STEP, "step" },
};

const char *plan_gib(uint64_t bytes)
{
	static char slots[8][32];
	static unsigned next;
	char *out = slots[next++ % 8];
	const uint64_t gib = UINT64_C(1) << 30;
	uint64_t whole = bytes / gib, part = (bytes % gib * 100 + gib - 1) / gib;

	/* upwards, so that nothing looks smaller than it is */
	whole += part / 100;
	snprintf(out, sizeof(slots[0]), "%" PRIu64 ".%02" PRIu64 " GiB", whole, part % 100);
	return out;
}

static const char *dtype_word(enum ckpt_dtype dtype)
{
	return dtype == CKPT_F32 ? "fp32" : dtype == CKPT_F16 ? "fp16" : "bf16";
}

static uint64_t or1(uint64_t n)
{
	return n ? n : 1;
}

static uint32_t per_node(const struct planning *p)
{
	const uint32_t n = p->setup.gpus_per_node ? p->setup.gpus_per_node : 8;

	return n < p->setup.gpus ? n : p->setup.gpus;
}

static uint32_t nodes(const struct planning *p)
{
	return (p->setup.gpus + per_node(p) - 1) / per_node(p);
}

/* ---------------------------------------------------------------- DeepSpeed's */

/* What DeepSpeed's own functions say; 0, or -1 where they have no answer. */
static int deepspeed_says(const struct planning *p, uint32_t stage, unsigned offload,
			  struct ckpt_ds_estimate *out)
{
	if (plan_is_ztrain(p))
		return -1;
	if (stage == 2)
		return ckpt_ds_zero2(p->info.params, per_node(p), nodes(p), !!offload, 1.5, out);
	if (stage == 3)
		return ckpt_ds_zero3(p->info.params, p->info.largest_module, per_node(p), nodes(p),
				     !!offload, !!(offload & CKPT_OFFLOAD_PARAMS), 1, 1.5, out);
	return -1;
}

static void json_deepspeed(struct json *json, const struct planning *p, uint32_t stage,
			   unsigned offload)
{
	struct ckpt_ds_estimate ds;

	if (deepspeed_says(p, stage, offload, &ds))
		return;
	json_open(json, "deepspeed", '{');
	json_uint(json, "cpu_bytes_per_node", ds.cpu_bytes);
	json_uint(json, "gpu_bytes", ds.gpu_bytes);
	if (stage == 3)
		json_uint(json, "largest_layer_bytes", ds.largest_layer_bytes);
	json_close(json, '}');
}

/* ---------------------------------------------------------------- for people */

static void print_head(const struct planning *p)
{
	const struct ckpt_arch *a = &p->info.arch;
	const struct ckpt_setup *s = &p->setup;

	printf("%-8s %s (%s)\n", "model", out_name(p->source), out_name(p->info.what));
	printf("%-8s %s parameters in %s tensors, the largest module has %s\n", "",
	       out_count(p->info.params), out_count(p->info.tensors),
	       out_count(p->info.largest_module));
	if (p->info.trainable != p->info.params)
		printf("%-8s of them %s are trained\n", "", out_count(p->info.trainable));
	if (a->layers)
		printf("%-8s %" PRIu64 " layer%s of %" PRIu64 ", %" PRIu64 " head%s (%" PRIu64
		       ") of %" PRIu64 ", %" PRIu64 " inside, vocabulary %" PRIu64 "\n", "",
		       a->layers, out_plural(a->layers), a->hidden, a->heads,
		       out_plural(a->heads), a->kv_heads, a->head_dim, a->inter,
		       a->vocab);
	printf("%-8s %sZeRO stage %" PRIu32 ", offload %s, %" PRIu32 " %s%s (%" PRIu32
	       " a host), %s\n", "run", plan_is_ztrain(p) ? "ztrain, " : "", s->stage,
	       plan_offload(s->offload), s->gpus, plan_is_ztrain(p) ? "CPU rank" : "GPU",
	       s->gpus == 1 ? "" : "s", per_node(p), dtype_word(s->dtype));
	printf("%-8s micro-batch %" PRIu64 " x %" PRIu64 " tokens, accumulation %" PRIu64
	       "%s%s%s\n", "", or1(s->micro), s->sequence ? s->sequence : 2048,
	       or1(s->accumulation), s->recompute ? ", layers computed again" : "",
	       s->attention_matrix ? ", attention matrices" : "",
	       s->ops == CKPT_OPS_FUSED ? ", fused kernels" : "");
}

static void print_terms(const struct planning *p, enum ckpt_place place)
{
	struct table table = { .align = p->args->verbose ? "lrl" : "lr" };
	const int all = p->args->verbose;

	for (uint32_t i = 0; i < p->est.nterms; i++) {
		const struct ckpt_term *t = &p->est.term[i];
		char *text;

		if (t->place != place || (!all && !(t->phases & p->est.peak)))
			continue;
		text = cli_format("%s%s", t->formula, place != CKPT_PLACE_GPU ||
				  t->phases & p->est.peak ? "" : " (not at the peak)");
		table_add(&table, (const char *const[]){ t->name, plan_gib(t->bytes), text });
		cli_free(text);
	}
	table_print(&table, stdout, "  ");
}

static void print_gpu(const struct planning *p)
{
	if (plan_is_ztrain(p))
		printf("\na rank: %s\n", plan_gib(p->est.gpu_bytes));
	else
		printf("\na GPU: %s, the peak %s\n", plan_gib(p->est.gpu_bytes),
		       ckpt_phase_name(p->est.peak));
	print_terms(p, CKPT_PLACE_GPU);
	for (unsigned k = 0; p->args->verbose && !plan_is_ztrain(p) && k < CKPT_NPHASES; k++)
		printf("  = %s %s\n", plan_gib(p->est.phase_bytes[k]),
		       ckpt_phase_name(phases[k].phase));
	if (p->est.no_activations)
		printf("  no activations: the shape of the model is not known (--config)\n");
	if (p->est.host_bytes) {
		printf("\na host: %s\n", plan_gib(p->est.host_bytes));
		print_terms(p, CKPT_PLACE_HOST);
	}
}

/* A rank of ztrain has one memory, and nobody else estimates it. */
static void print_stages(const struct planning *p)
{
	struct table table = { .align = p->gpu_mem || p->host_mem ? "lrrl" : "lrr" };
	struct plan_row row[PLAN_ROWS];
	const size_t n = plan_rows(p, row);

	putchar('\n');
	table_add(&table, (const char *const[]){ "STAGE", "RANK", "HOST", "FITS" });
	for (size_t i = 0; i < n; i++) {
		char *stage = cli_format("%" PRIu32, row[i].stage);

		table_add(&table, (const char *const[]){
			stage, plan_gib(row[i].gpu), plan_gib(row[i].host),
			row[i].fits ? "yes" : "no" });
		cli_free(stage);
	}
	table_print(&table, stdout, "");
}

static void print_rows(const struct planning *p)
{
	struct table table = { .align = p->gpu_mem || p->host_mem ? "llrrrrl" : "llrrrr" };
	struct plan_row row[PLAN_ROWS];
	const size_t n = plan_rows(p, row);
	struct ckpt_ds_estimate ds;

	putchar('\n');
	table_add(&table, (const char *const[]){ "STAGE", "OFFLOAD", "GPU", "HOST", "DS: GPU",
						 "DS: HOST", "FITS" });
	for (size_t i = 0; i < n; i++) {
		const int none = deepspeed_says(p, row[i].stage, row[i].offload, &ds);
		char *stage = cli_format("%" PRIu32, row[i].stage);

		table_add(&table, (const char *const[]){
			stage, plan_offload(row[i].offload), plan_gib(row[i].gpu),
			row[i].host ? plan_gib(row[i].host) : "-",
			none ? "-" : plan_gib(ds.gpu_bytes), none ? "-" : plan_gib(ds.cpu_bytes),
			row[i].fits ? "yes" : "no" });
		cli_free(stage);
	}
	table_print(&table, stdout, "");
	if (!p->args->quiet)
		printf("DS: what DeepSpeed's estimators return, states alone, without buffers "
		       "and activations\n");
}

static void print_save(const struct planning *p)
{
	const struct ckpt_save *s = &p->est.save;

	if (plan_is_ztrain(p)) {
		printf("\na save, native: %s in %s file%s (%s bytes of tensors)\n",
		       plan_gib(s->bytes), out_count(s->files), s->files == 1 ? "" : "s",
		       out_count(s->bytes));
		printf("  any number of ranks goes on from it, all together read %s\n",
		       plan_gib(s->resume_same));
		return;
	}
	printf("\na save: %s in %s file%s (%s bytes of tensors)\n", plan_gib(s->bytes),
	       out_count(s->files), s->files == 1 ? "" : "s", out_count(s->bytes));
	printf("  %s model file%s, tensors %s%s\n", out_count(s->model_files),
	       s->model_files == 1 ? "" : "s", out_size(s->model_bytes),
	       s->model_files == 1 ? "" : " each");
	if (s->optim_files)
		printf("  %s optimizer file%s, tensors %s%s\n", out_count(s->optim_files),
		       s->optim_files == 1 ? "" : "s", out_size(s->optim_bytes),
		       s->optim_files == 1 ? "" : " each");
	printf("  to resume on as many GPUs, all ranks together read %s\n",
	       plan_gib(s->resume_same));
	printf("  for another number, zckpt reshard reads %s once and writes as much\n",
	       plan_gib(s->resume_other));
}

static void print_changes(const struct planning *p)
{
	struct plan_change change[PLAN_CHANGES];
	struct table table = { .align = "lrl" };
	size_t n;

	if (!p->gpu_mem && !p->host_mem)
		return;
	if (plan_fits(p, &p->est)) {
		printf("\nit fits");
		if (p->gpu_mem)
			printf(": %s of %s of a %s are left",
			       plan_gib(p->gpu_mem - p->est.gpu_bytes), plan_gib(p->gpu_mem),
			       plan_is_ztrain(p) ? "rank" : "GPU");
		putchar('\n');
		return;
	}
	n = plan_changes(p, change);
	printf("\nit does not fit%s%s; what would change it\n", p->gpu_mem ? " into " : "",
	       p->gpu_mem ? plan_gib(p->gpu_mem) : "");
	for (size_t i = 0; i < n; i++) {
		const char *gib = plan_gib(change[i].gpu);

		table_add(&table, (const char *const[]){
			change[i].option, gib, change[i].fits ? "fits" : "does not" });
	}
	table_print(&table, stdout, "  ");
}

void plan_print(const struct planning *p)
{
	print_head(p);
	print_gpu(p);
	if (plan_is_ztrain(p))
		print_stages(p);
	else
		print_rows(p);
	print_save(p);
	print_changes(p);
}

/* ---------------------------------------------------------------- for scripts */

static void json_model(struct json *json, const struct planning *p)
{
	const struct ckpt_arch *a = &p->info.arch;

	json_open(json, "model", '{');
	json_text(json, "source", p->source);
	json_text(json, "what", p->info.what);
	json_uint(json, "params", p->info.params);
	json_uint(json, "trainable", p->info.trainable);
	json_uint(json, "tensors", p->info.tensors);
	json_uint(json, "largest", p->info.largest);
	json_uint(json, "largest_module", p->info.largest_module);
	json_bool(json, "assumed", p->info.assumed);
	if (a->layers) {
		json_uint(json, "layers", a->layers);
		json_uint(json, "hidden", a->hidden);
		json_uint(json, "inter", a->inter);
		json_uint(json, "heads", a->heads);
		json_uint(json, "kv_heads", a->kv_heads);
		json_uint(json, "head_dim", a->head_dim);
		json_uint(json, "vocab", a->vocab);
	}
	json_close(json, '}');
}

static void json_run(struct json *json, const struct planning *p)
{
	const struct ckpt_setup *s = &p->setup;

	json_open(json, "run", '{');
	json_text(json, "engine", plan_is_ztrain(p) ? "ztrain" : "deepspeed");
	json_uint(json, "stage", s->stage);
	json_text(json, "offload", plan_offload(s->offload));
	json_uint(json, "gpus", s->gpus);
	json_uint(json, "gpus_per_node", per_node(p));
	json_text(json, "dtype", dtype_word(s->dtype));
	json_uint(json, "micro", or1(s->micro));
	json_uint(json, "accumulation", or1(s->accumulation));
	json_uint(json, "tokens", p->est.tokens);
	json_bool(json, "recompute", !!s->recompute);
	json_close(json, '}');
}

static void json_terms(struct json *json, const struct planning *p, enum ckpt_place place)
{
	json_open(json, "terms", '[');
	for (uint32_t i = 0; i < p->est.nterms; i++) {
		const struct ckpt_term *t = &p->est.term[i];

		if (t->place != place)
			continue;
		json_open(json, NULL, '{');
		json_text(json, "name", t->name);
		json_uint(json, "bytes", t->bytes);
		json_text(json, "formula", t->formula);
		if (place == CKPT_PLACE_GPU) {
			json_open(json, "phases", '[');
			for (unsigned k = 0; k < CKPT_NPHASES; k++)
				if (t->phases & phases[k].phase)
					json_text(json, NULL, phases[k].key);
			json_close(json, ']');
		}
		json_close(json, '}');
	}
	json_close(json, ']');
}

static void json_estimate(struct json *json, const struct planning *p)
{
	json_open(json, "gpu", '{');
	json_uint(json, "bytes", p->est.gpu_bytes);
	json_bool(json, "activations", !p->est.no_activations);
	json_open(json, "phases", '{');
	for (unsigned k = 0; k < CKPT_NPHASES; k++)
		json_uint(json, phases[k].key, p->est.phase_bytes[k]);
	json_close(json, '}');
	json_terms(json, p, CKPT_PLACE_GPU);
	json_close(json, '}');
	json_open(json, "host", '{');
	json_uint(json, "bytes", p->est.host_bytes);
	json_terms(json, p, CKPT_PLACE_HOST);
	json_close(json, '}');
	json_deepspeed(json, p, p->setup.stage, p->setup.offload);
}

static void json_save(struct json *json, const struct ckpt_save *s)
{
	json_open(json, "save", '{');
	json_uint(json, "files", s->files);
	json_uint(json, "bytes", s->bytes);
	json_uint(json, "model_files", s->model_files);
	json_uint(json, "model_bytes", s->model_bytes);
	json_uint(json, "optimizer_files", s->optim_files);
	json_uint(json, "optimizer_bytes", s->optim_bytes);
	json_uint(json, "resume_same_bytes", s->resume_same);
	json_uint(json, "resume_other_bytes", s->resume_other);
	json_close(json, '}');
}

static void json_rows(struct json *json, const struct planning *p)
{
	const int asked = p->gpu_mem || p->host_mem;
	struct plan_row row[PLAN_ROWS];
	const size_t n = plan_rows(p, row);

	json_open(json, "stages", '[');
	for (size_t i = 0; i < n; i++) {
		json_open(json, NULL, '{');
		json_uint(json, "stage", row[i].stage);
		json_text(json, "offload", plan_offload(row[i].offload));
		json_uint(json, "gpu_bytes", row[i].gpu);
		json_uint(json, "host_bytes", row[i].host);
		json_deepspeed(json, p, row[i].stage, row[i].offload);
		if (asked)
			json_bool(json, "fits", row[i].fits);
		json_close(json, '}');
	}
	json_close(json, ']');
}

static void json_changes(struct json *json, const struct planning *p)
{
	struct plan_change change[PLAN_CHANGES];
	size_t n;

	if (!p->gpu_mem && !p->host_mem)
		return;
	json_bool(json, "fits", plan_fits(p, &p->est));
	if (plan_fits(p, &p->est))
		return;
	n = plan_changes(p, change);
	json_open(json, "changes", '[');
	for (size_t i = 0; i < n; i++) {
		json_open(json, NULL, '{');
		json_text(json, "options", change[i].option);
		json_uint(json, "gpu_bytes", change[i].gpu);
		json_uint(json, "host_bytes", change[i].host);
		json_bool(json, "fits", change[i].fits);
		json_close(json, '}');
	}
	json_close(json, ']');
}

void plan_json(const struct planning *p)
{
	struct json json;

	json_begin(&json, stdout, "plan");
	json_model(&json, p);
	json_run(&json, p);
	json_estimate(&json, p);
	json_rows(&json, p);
	json_save(&json, &p->est.save);
	json_changes(&json, p);
	json_close(&json, '}');
}
