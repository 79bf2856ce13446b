/* cli_plan_out.c -- `zckpt plan` for people and for scripts. */
#include <inttypes.h>
#include <string.h>

#include "cli_plan.h"

#define SHOWN 3	/* changes that fit */

static const struct {
	unsigned phase;
	const char *key;
} phases[CKPT_NPHASES] = {
	{ CKPT_PHASE_LOSS, "loss" }, { CKPT_PHASE_LAYER, "last_layer" },
	{ CKPT_PHASE_END, "first_layer" }, { CKPT_PHASE_STEP, "step" },
};

/* Upwards, so that nothing looks smaller than it is. */
static const char *gib(uint64_t bytes, int is_short)
{
	static char slots[8][32];
	static unsigned next;
	char *out = slots[next++ % 8];
	const uint64_t unit = UINT64_C(1) << 30;
	uint64_t whole = bytes / unit, part = (bytes % unit * 100 + unit - 1) / unit;

	whole += part / 100;
	if (is_short && part % 100 == 0)
		snprintf(out, sizeof(slots[0]), "%" PRIu64, whole);
	else
		snprintf(out, sizeof(slots[0]), "%" PRIu64 ".%02" PRIu64 "%s", whole, part % 100,
			 is_short ? "" : " GiB");
	return out;
}

const char *plan_gib(uint64_t bytes)
{
	return gib(bytes, 0);
}

const char *plan_number(uint64_t bytes)
{
	return gib(bytes, 1);
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

static const char *one(const struct planning *p)
{
	return plan_is_ztrain(p) ? "rank" : "GPU";
}

static void print_setup(const struct planning *p)
{
	const struct ckpt_setup *s = &p->setup;
	char *where = nodes(p) > 1 ? cli_format("%" PRIu32 " hosts of %" PRIu32, nodes(p),
						per_node(p)) : cli_strdup("one host");

	printf("%-8s %sZeRO stage %" PRIu32 ", %s%s%s, %" PRIu32 " %s%s on %s, %s\n", "run",
	       plan_is_ztrain(p) ? "ztrain, " : "", s->stage,
	       s->offload ? "offload " : "no offload", s->offload ? plan_offload(s->offload) : "",
	       s->offload & CKPT_OFFLOAD_PARAMS ? " and optimizer" : "", s->gpus,
	       plan_is_ztrain(p) ? "CPU rank" : "GPU", out_plural(s->gpus), where,
	       dtype_word(s->dtype));
	cli_free(where);
	printf("%-8s micro-batch %" PRIu64 " x %" PRIu64 " tokens, accumulation %" PRIu64
	       "%s%s%s\n", "", or1(s->micro), s->sequence ? s->sequence : 2048,
	       or1(s->accumulation), s->recompute ? ", activations recomputed" : "",
	       s->attention_matrix ? ", attention scores stored" : "",
	       s->ops == CKPT_OPS_FUSED ? ", fused kernels" : "");
}

/* The groups of ranks, and the rank whose memory is listed. */
static void print_share(const struct planning *p)
{
	const struct ckpt_share *w = &p->est.share;
	char *layout;

	if (!plan_is_split(p))
		return;
	layout = plan_layout(p);
	printf("%-8s %s", "layout", layout);
	if (w->ep > 1)
		printf("; %" PRIu32 " rank%s divide%s the states of an expert", w->edp,
		       out_plural(w->edp), w->edp == 1 ? "s" : "");
	printf("\n%-8s the largest rank has %s parameters", "", out_count(w->params));
	if (w->expert_params)
		printf(", %s of them of experts", out_count(w->expert_params));
	if (w->pp > 1)
		printf("\n%-8s it is of stage %" PRIu32 " of 0 to %" PRIu32 ", with %" PRIu64
		       " layer%s; a rank of the smallest has %s", "", w->stage, w->pp - 1,
		       w->layers, out_plural(w->layers), out_count(w->least_params));
	putchar('\n');
	cli_free(layout);
}

static void print_head(const struct planning *p)
{
	const struct ckpt_arch *a = &p->info.arch;

	printf("\n%-8s %s (%s)\n", "model", out_name(p->source), out_name(p->info.what));
	printf("%-8s %s parameters in %s tensors, %s in the largest module\n", "",
	       out_count(p->info.params), out_count(p->info.tensors),
	       out_count(p->info.largest_module));
	if (a->experts && p->info.active)
		printf("%-8s %s of them active: a token passes %" PRIu64 " of %" PRIu64
		       " experts of %" PRIu64 " layer%s\n", "", out_count(p->info.active),
		       a->top_k, a->experts, a->moe_layers, out_plural(a->moe_layers));
	plan_print_parts(p);
	if (a->layers && a->kv_rank)
		printf("%-8s %" PRIu64 " layer%s, hidden size %" PRIu64 ", MLP size %" PRIu64
		       ", vocabulary %" PRIu64 "\n%-8s %" PRIu64 " head%s of size %" PRIu64
		       " over keys and values compressed to %" PRIu64 "\n", "", a->layers,
		       out_plural(a->layers), a->hidden, a->inter, a->vocab, "", a->heads,
		       out_plural(a->heads), a->head_dim, a->kv_rank);
	else if (a->layers)
		printf("%-8s %" PRIu64 " layer%s, hidden size %" PRIu64 ", MLP size %" PRIu64
		       ", vocabulary %" PRIu64 "\n%-8s %" PRIu64 " query head%s and %" PRIu64
		       " key-value head%s of size %" PRIu64 "\n", "", a->layers,
		       out_plural(a->layers), a->hidden, a->inter, a->vocab, "", a->heads,
		       out_plural(a->heads), a->kv_heads, out_plural(a->kv_heads), a->head_dim);
	print_setup(p);
	print_share(p);
}

static void print_terms(const struct planning *p, enum ckpt_place place)
{
	struct table table = { .align = p->args->verbose ? "lrl" : "lr" };
	const int all = p->args->verbose;

	for (uint32_t i = 0; i < p->est.nterms; i++) {
		const struct ckpt_term *t = &p->est.term[i];
		char *text;

		if (t->place != place || (!all && t->phases && !(t->phases & p->est.peak)))
			continue;
		text = cli_format("%s%s", t->formula, place != CKPT_PLACE_GPU ||
				  !t->phases || t->phases & p->est.peak ? "" :
				  " (not at the peak)");
		table_add(&table, (const char *const[]){ t->name, plan_gib(t->bytes), text });
		cli_free(text);
	}
	table_print(&table, stdout, "  ");
}

static void print_gpu(const struct planning *p)
{
	if (plan_is_ztrain(p))
		printf("\nmemory of a rank: %s\n", plan_gib(p->est.gpu_bytes));
	else
		printf("\nmemory of a GPU: %s, %s\n", plan_gib(p->est.gpu_bytes),
		       ckpt_phase_name(p->est.peak));
	print_terms(p, CKPT_PLACE_GPU);
	for (unsigned k = 0; p->args->verbose && !plan_is_ztrain(p) && k < CKPT_NPHASES; k++)
		printf("  = %s %s\n", plan_gib(p->est.phase_bytes[k]),
		       ckpt_phase_name(phases[k].phase));
	if (p->est.no_activations)
		printf("  no activations: the shape of the model is unknown; --config FILE "
		       "gives it\n");
	if (p->est.host_bytes) {
		printf("\nmemory of a host: %s\n", plan_gib(p->est.host_bytes));
		print_terms(p, CKPT_PLACE_HOST);
	}
}

/* A rank of ztrain has one memory, and DeepSpeed does not estimate it. */
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
	const int asked = p->gpu_mem || p->host_mem, ds = p->deepspeed;
	struct table table = { .align = ds ? (asked ? "llrrlrr" : "llrrrr") :
				       asked ? "llrrl" : "llrr" };
	const char *heads[7] = { "STAGE", "OFFLOAD", "GPU", "HOST" };
	struct plan_row row[PLAN_ROWS];
	const size_t n = plan_rows(p, row);
	struct ckpt_ds_estimate said;
	size_t k = 4;

	if (asked)
		heads[k++] = "FITS";
	heads[k] = "DEEPSPEED: GPU";
	heads[k + 1 < 7 ? k + 1 : 6] = "HOST";
	putchar('\n');
	table_add(&table, heads);
	for (size_t i = 0; i < n; i++) {
		const int none = deepspeed_says(p, row[i].stage, row[i].offload, &said);
		char *stage = cli_format("%" PRIu32, row[i].stage);
		const char *cells[7] = { stage, plan_offload(row[i].offload),
					 plan_gib(row[i].gpu),
					 row[i].host ? plan_gib(row[i].host) : "-" };

		k = 4;
		if (asked)
			cells[k++] = row[i].fits ? "yes" : "no";
		cells[k] = none ? "-" : plan_gib(said.gpu_bytes);
		cells[k + 1 < 7 ? k + 1 : 6] = none ? "-" : plan_gib(said.cpu_bytes);
		table_add(&table, cells);
		cli_free(stage);
	}
	table_print(&table, stdout, "");
	if (ds && !p->args->quiet)
		printf("DEEPSPEED: what its own estimators return: states only, without buffers "
		       "and activations\n");
}

static void print_files(const char *what, uint64_t files, uint64_t bytes, int most)
{
	if (files && !bytes)
		printf("  %s %s file%s without tensors\n", out_count(files), what,
		       out_plural(files));
	else if (files)
		printf("  %s %s file%s of %s%s\n", out_count(files), what, out_plural(files),
		       plan_gib(bytes), files == 1 ? "" : most ? " at most" : " each");
}

/* The same state as Megatron-Core saves it. */
static void print_mcore(const struct planning *p)
{
	const struct ckpt_save *s = &p->est.save;

	printf("the same as a torch_dist folder of Megatron-Core: %s, %s .distcp file%s\n",
	       plan_gib(s->mcore_bytes), out_count(s->mcore_files), out_plural(s->mcore_files));
	printf("  of %s at most, and .metadata, metadata.json, common.pt\n",
	       plan_gib(s->mcore_rank_bytes));
	if (s->mcore_vocab != p->info.arch.vocab)
		printf("  its vocabulary is padded to %s rows\n", out_count(s->mcore_vocab));
}

static void print_save(const struct planning *p)
{
	const struct ckpt_save *s = &p->est.save;
	const int stages = p->est.share.pp > 1;

	printf("\na save: %s in %s%s file%s\n", plan_gib(s->bytes), out_count(s->files),
	       plan_is_ztrain(p) ? " native" : "", out_plural(s->files));
	if (p->args->verbose)
		printf("  %s bytes of tensors\n", out_count(s->bytes));
	if (plan_is_ztrain(p)) {
		printf("  any number of ranks resumes from it and reads %s in total\n",
		       plan_gib(s->resume_same));
		return;
	}
	print_files("model", s->model_files, s->model_bytes, stages);
	print_files("layer", s->layer_files, s->layer_bytes, 1);
	print_files("expert", s->expert_files, s->expert_bytes, 0);
	print_files("expert optimizer", s->expp_files, s->expp_bytes, stages);
	print_files("optimizer", s->optim_files, s->optim_bytes, stages);
	printf("  resuming on the same number of GPUs reads %s in total\n",
	       plan_gib(s->resume_same));
	if (plan_is_split(p)) {
		print_mcore(p);
		return;
	}
	printf("  for another number, zckpt reshard reads %s once and writes as much\n",
	       plan_gib(s->resume_other));
}

/* ---------------------------------------------------------------- the answer */

/* "42.92 of 80 GiB per GPU", and likewise of the host where that is limited or used. */
static void print_need(const struct planning *p)
{
	printf("%s%s%s GiB per %s", plan_number(p->est.gpu_bytes), p->gpu_mem ? " of " : "",
	       p->gpu_mem ? plan_number(p->gpu_mem) : "", one(p));
	if (p->est.host_bytes && (p->host_mem || !plan_is_ztrain(p)))
		printf(", %s%s%s GiB per host", plan_number(p->est.host_bytes),
		       p->host_mem ? " of " : "", p->host_mem ? plan_number(p->host_mem) : "");
}

static void print_change(const struct planning *p, const char *before,
			 const struct plan_change *change)
{
	printf("%s%s (%s GiB per %s", before, change->option, plan_number(change->gpu), one(p));
	if (change->host && !plan_is_ztrain(p))
		printf(", %s GiB per host", plan_number(change->host));
	printf(")\n");
}

static void print_changes(const struct planning *p)
{
	struct plan_change change[PLAN_CHANGES];
	const size_t n = plan_changes(p, change);
	size_t shown = 0, least = 0;

	for (size_t i = 0; i < n; i++) {
		if (change[i].gpu < change[least].gpu)
			least = i;
		if (change[i].fits && shown < SHOWN)
			print_change(p, shown++ ? "  or " : "  cheapest change that fits: ",
				     &change[i]);
	}
	if (!shown && n)
		print_change(p, "  no change that plan tries is enough; the least memory: ",
			     &change[least]);
}

static void print_answer(const struct planning *p)
{
	const int asked = p->gpu_mem || p->host_mem, fits = plan_fits(p, &p->est);

	printf("%s", !asked ? "" : fits ? "it fits: " : "it does not fit: ");
	print_need(p);
	printf(", at stage %" PRIu32 " on %" PRIu32 " %s%s\n", p->setup.stage, p->setup.gpus,
	       one(p), out_plural(p->setup.gpus));
	if (!fits)
		print_changes(p);
	else if (!asked && !p->args->quiet)
		printf("  --gpu-mem 80GiB says whether it fits, and what to change\n");
}

void plan_print(const struct planning *p)
{
	print_answer(p);
	print_head(p);
	print_gpu(p);
	if (plan_is_ztrain(p))
		print_stages(p);
	else
		print_rows(p);
	print_save(p);
}

/* ---------------------------------------------------------------- for scripts */

static void json_model(struct json *json, const struct planning *p)
{
	const struct ckpt_arch *a = &p->info.arch;

	json_open(json, "model", '{');
	json_text(json, "source", p->source);
	json_text(json, "what", p->info.what);
	json_uint(json, "params", p->info.params);
	if (p->info.active)
		json_uint(json, "active", p->info.active);
	plan_json_parts(json, p);
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
	if (a->experts) {
		json_uint(json, "experts", a->experts);
		json_uint(json, "experts_per_token", a->top_k);
		json_uint(json, "expert_layers", a->moe_layers);
		json_uint(json, "expert_inter", a->expert_inter);
		json_uint(json, "shared_inter", a->shared_inter);
	}
	if (a->kv_rank) {
		json_uint(json, "q_rank", a->q_rank);
		json_uint(json, "kv_rank", a->kv_rank);
		json_uint(json, "rope_dim", a->rope_dim);
		json_uint(json, "v_dim", a->v_dim);
	}
	json_close(json, '}');
}

static void json_run(struct json *json, const struct planning *p)
{
	const struct ckpt_setup *s = &p->setup;
	const struct ckpt_share *w = &p->est.share;

	json_open(json, "run", '{');
	json_text(json, "engine", plan_is_ztrain(p) ? "ztrain" : "deepspeed");
	json_uint(json, "stage", s->stage);
	json_text(json, "offload", plan_offload(s->offload));
	json_uint(json, "gpus", s->gpus);
	json_uint(json, "gpus_per_node", per_node(p));
	json_uint(json, "tp", w->tp);
	json_uint(json, "pp", w->pp);
	json_uint(json, "ep", w->ep);
	json_uint(json, "dp", w->dp);
	json_uint(json, "expert_dp", w->edp);
	json_text(json, "dtype", dtype_word(s->dtype));
	json_uint(json, "micro", or1(s->micro));
	json_uint(json, "accumulation", or1(s->accumulation));
	json_uint(json, "tokens", p->est.tokens);
	json_bool(json, "recompute", !!s->recompute);
	json_close(json, '}');
}

static void json_rank(struct json *json, const struct planning *p)
{
	const struct ckpt_share *w = &p->est.share;

	json_open(json, "rank", '{');
	json_uint(json, "stage", w->stage);
	json_uint(json, "layers", w->layers);
	json_uint(json, "params", w->params);
	json_uint(json, "expert_params", w->expert_params);
	json_uint(json, "least_params", w->least_params);
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
	json_uint(json, "layer_files", s->layer_files);
	json_uint(json, "layer_bytes", s->layer_bytes);
	json_uint(json, "expert_files", s->expert_files);
	json_uint(json, "expert_bytes", s->expert_bytes);
	json_uint(json, "expert_optimizer_files", s->expp_files);
	json_uint(json, "expert_optimizer_bytes", s->expp_bytes);
	json_uint(json, "resume_other_bytes", s->resume_other);
	if (s->mcore_files) {
		json_open(json, "megatron_core", '{');
		json_uint(json, "files", s->mcore_files);
		json_uint(json, "bytes", s->mcore_bytes);
		json_uint(json, "rank_bytes", s->mcore_rank_bytes);
		json_uint(json, "vocab", s->mcore_vocab);
		json_close(json, '}');
	}
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
	json_rank(&json, p);
	json_estimate(&json, p);
	json_rows(&json, p);
	json_save(&json, &p->est.save);
	json_changes(&json, p);
	json_close(&json, '}');
}
