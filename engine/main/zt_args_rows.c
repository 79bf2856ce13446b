/* zt_args_rows.c -- see zt_args_rows.h: what options there are, what they take and are for. */
#include "engine/main/zt_args_rows.h"

#include <string.h>

#include "engine/config/en_config.h"
#include "engine/data/en_data.h"
#include "engine/main/zt_opt.h"

static struct zt_args args;
static int color;

static const char *const precisions[] = { "fp32", "bf16", "fp16", NULL };
static const char *const devices[] = { "auto", "cpu", "cuda", NULL };
static const char *const reductions[] = { "nccl", "tree", NULL };
static const char *const recipes[] = { "off", "tensorwise", "tensorwise_with_gw_hp",
					 "tensorwise_fast", NULL };
static const char *const schedules[] = {	/* as en_sched_init_transformers() has them */
	"linear", "cosine", "cosine_with_restarts", "cosine_with_min_lr", "polynomial", "constant",
	"constant_with_warmup", "inverse_sqrt", "warmup_stable_decay", "wsd",
	"reduce_lr_on_plateau", NULL,
};
static const char *const overflows[] = { "units", "deepspeed", NULL };
static const char *const losses[] = { "micro", "tokens", NULL };
static const char *const kinds[] = { "u16", "u32", "jsonl", "safetensors", NULL };
static const char *const orders[] = { "sequential", "shuffled", "torch", NULL };
static const char *const tails[] = { "flow", "drop", "fill", NULL };
static const char *const deals[] = { "units", "ranks", NULL };
static const char *const formats[] = { "deepspeed", "universal", "native", "dcp", "trainer", NULL };
static const int layouts[] = {	/* of 'formats' */
	CKPT_TO_DEEPSPEED, CKPT_TO_UNIVERSAL, CKPT_TO_NATIVE, CKPT_TO_DCP, CKPT_TO_TRAINER,
};
static const char *const syncs[] = { "data", "full", "none", NULL };

#define MANY ((int64_t)1 << 40)

const struct opt zt_args_run[] = {
	ZT_HEAD("Model and training"),
	ZT_TEXT("model", "PATH", args.model,
		"a Hugging Face folder with config.json and initial weights, or a config.json "
		"alone"),
	ZT_TEXT("config", "FILE", args.config, "DeepSpeed JSON or accelerate YAML, used unchanged"),
	ZT_WHOLE("micro-batch", "N", args.micro_batch, 1, 1 << 20,
		 "rows that a rank computes at once (1; 8 if --config says \"auto\"); an error if "
		 "--config has a different number"),
	ZT_WHOLE("accumulation", "N", args.accumulation, 1, 1 << 20,
		 "micro-batches of a rank in one step (1)"),
	ZT_REAL("lr", "RATE", args.lr, 0, "learning rate (5e-5, as in transformers)"),
	ZT_REAL("beta1", "B", args.beta1, 0, "Adam's beta1 (0.9)"),
	ZT_REAL("beta2", "B", args.beta2, 0, "Adam's beta2 (0.999)"),
	ZT_REAL("eps", "E", args.eps, 0, "Adam's epsilon (1e-8)"),
	ZT_REAL("weight-decay", "D", args.weight_decay, 0, "weight decay (0)"),
	ZT_REAL("clip", "NORM", args.clip, 0, "limit of the gradient norm (1.0)"),
	ZT_REAL("warmup-steps", "N", args.warmup, 0,
		"warm-up of the schedule (0); below 1: a fraction of --steps"),
	ZT_ONE_OF("precision", "P", args.precision, EN_FP32, precisions,
		  "fp32, bf16 or fp16, if --config does not say"),
	ZT_ONE_NAME("lr-scheduler", "TYPE", args.scheduler, schedules,
		"a schedule of transformers (linear, cosine, wsd, reduce_lr_on_plateau, ...), if "
		"--config has none"),
	ZT_TEXT("lr-scheduler-args", "JSON", args.scheduler_args,
		"lr_scheduler_kwargs of that schedule"),
	ZT_ONE_OF("loss", "KIND", args.loss, 0, losses,
		  "micro: mean of the micro-batches' means, as in DeepSpeed (default); tokens: "
		  "mean over all tokens of a step, as in transformers' Trainer"),
	ZT_ONE_OF("overflow", "KIND", args.overflow, ZT_UNITS, overflows,
		  "which steps fp16 skips. units: the same at any number of ranks (default on CPUs "
		  "and with --reduction tree); deepspeed: those that DeepSpeed skips (default on "
		  "GPUs)"),
	{ .kind = OPT_WORDS, .name = "freeze", .value = "PATTERN", .to = &args.freeze,
	  .help = "do not train parameters of such names ('*embed*', 'model.layers.[0-3].*'); "
		  "may be repeated" },
	ZT_TEXT("lora", "KEYS", args.lora,
		"train adapters, as PEFT: r=8,alpha=16,target=q_proj+v_proj or "
		"target=all-linear, dropout=0.05, rslora"),
	ZT_TEXT("lora-from", "DIR", args.lora_from,
		"begin with the adapter that PEFT saved in DIR"),
	ZT_FLAG("random", args.random, "start from random weights"),
	ZT_FLAG("recompute", args.recompute,
		"keep only each layer's input and recompute activations in the backward pass"),
	ZT_FLAG("keep-all", args.keep_all,
		"GPUs: save norms, rotated Q/K and activations instead of recomputing them"),
	ZT_ONE_OF("fp8", "RECIPE", args.fp8, 0, recipes,
		  "GPUs of compute capability 8.9 and later: compute the layers' matrix products "
		  "in fp8. tensorwise (--fp8 alone): one scale per tensor; tensorwise_with_gw_hp: "
		  "weight gradients in 16 bits; tensorwise_fast: less exact sums; off (default)"),
	ZT_ONE_OF("device", "KIND", args.device, ZT_AUTO, devices,
		  "auto (default: a GPU for each rank, if any is visible), cpu or cuda"),
	ZT_ONE_OF("reduction", "KIND", args.reduction, 0, reductions,
		  "how GPUs sum gradients: nccl (default), or tree: the same bits on 1, 2, 4 and 8 "
		  "ranks, as on CPUs"),
	ZT_WHOLE("threads", "N", args.threads, 1, 256,
		 "threads of each rank (1; with an offloaded optimizer the rank's share of the "
		 "cores)"),
	ZT_WHOLE("steps", "N", args.steps, 0, MANY,
		 "steps of the whole run (total_num_steps of the scheduler, or 100)"),
	ZT_REAL("epochs", "N", args.epochs, 1000000,
		"passes over the data, instead of --steps; 0.5 is half of it"),
	ZT_WHOLE("stop-at", "N", args.stop_at, 1, MANY,
		 "save and stop after step N; --resume continues"),
	ZT_WHOLE("seed", "N", args.seed, 0, INT64_MAX,
		 "seed of random weights, row order and synthetic tokens (1)"),
	ZT_WHOLE("timeout", "SECONDS", args.timeout_s, 1, 1000000,
		 "end the job if a rank is silent this long (300)"),
	ZT_TEXT("secret-file", "FILE", args.secret_file,
		"shared secret of ranks that connect by TCP: a file of yours, mode 600 (or set "
		"ZTRAIN_SECRET_FILE or ZTRAIN_SECRET)"),

	ZT_HEAD("Data"),
	ZT_TEXT("data", "FILE", args.data,
		"tokens to train on: .bin .u16 .u32 .jsonl .safetensors"),
	ZT_FLAG("synthetic", args.synthetic, "train on synthetic tokens (default without --data)"),
	ZT_WHOLE("synthetic-rows", "N", args.synthetic_rows, 1, MANY,
		 "an epoch of synthetic tokens has N rows (no end)"),
	ZT_ONE_OF("data-kind", "KIND", args.data_kind, EN_SOURCE_U16, kinds,
		  "u16, u32, jsonl or safetensors, if the file name does not show it"),
	ZT_WHOLE("seq", "N", args.seq, 2, EN_MAX_ROW,
		 "tokens in a row (64; for JSON lines and safetensors the longest row)"),
	ZT_FLAG("overlap", args.overlap, "the last token of a row is also the first of the next"),
	ZT_FLAG("pack", args.pack, "concatenate JSON lines and cut them into rows"),
	ZT_FLAG("pack-documents", args.pack_documents,
		"whole JSON lines in a row, as many as fit; attention stops at their seams"),
	ZT_FLAG("cut", args.cut, "truncate rows longer than --seq"),
	ZT_WHOLE("pad-id", "ID", args.pad_id, 0, INT32_MAX,
		 "token that fills short rows; the loss ignores it (0)"),
	ZT_FLAG("shuffle", args.shuffle, "shuffle rows in each epoch, from --seed"),
	ZT_ONE_OF("order", "KIND", args.order, EN_ORDER_SEQUENTIAL, orders,
		  "sequential (default), shuffled, or torch (the order of torch's samplers)"),
	ZT_ONE_OF("tail", "KIND", args.tail, EN_LAST_FLOW, tails,
		  "if an epoch is not a multiple of the batch: flow into the next epoch (default), "
		  "drop the rest, or fill up from the start"),
	ZT_FLAG("drop-last", args.drop_last, "the same as --tail drop"),
	ZT_ONE_OF("deal", "KIND", args.deal, EN_SAMPLER_UNITS, deals,
		  "how rows go to ranks: units (a micro-batch at a time, as in accelerate; "
		  "default) or ranks (one by one, as DistributedSampler)"),
	ZT_WHOLE("eval-rows", "N", args.eval_rows, 1, MANY,
		 "hold out the last N rows and report evaluation loss on them"),
	ZT_TEXT("eval", "FILE", args.eval, "read evaluation rows from FILE"),
	ZT_WHOLE("eval-every", "N", args.eval_every, 1, MANY,
		 "evaluate every N steps, and at the end"),
	ZT_FLAG("keep-best", args.keep_best,
		"save each step whose evaluation loss is the lowest so far; the file 'best' in "
		"--save names the last of them"),
	ZT_WHOLE("patience", "N", args.patience, 1, MANY,
		 "end the run after N evaluations in a row that are not lower"),

	ZT_HEAD("Saving and resuming"),
	ZT_TEXT("save", "DIR", args.save,
		"save checkpoints in DIR: at the end and on SIGTERM (not on Ctrl-C)"),
	ZT_WHOLE("save-every", "N", args.save_every, 1, MANY, "also save every N steps"),
	ZT_WHOLE("save-total-limit", "N", args.save_most, 1, MANY,
		 "keep the N newest steps of the run, and the one that 'best' names"),
	ZT_ONE_OF("save-format", "F", args.save_to, 0, formats,
		  "native (default), deepspeed, universal, dcp (torch.distributed.checkpoint, as "
		  "FSDP loads it) or trainer (checkpoint-N of transformers' Trainer)"),
	ZT_TEXT("save-buffer", "SIZE", args.save_buffer,
		"memory of each rank for the copy that a save writes: full (default; training "
		"never waits), or a size (512MB, 8GiB)"),
	ZT_WHOLE("save-threads", "N", args.save_threads, 1, 64,
		 "writer threads of each rank (idle cores, at most 8)"),
	ZT_ONE_OF("sync", "KIND", args.sync, CKPT_SYNC_DATA, syncs,
		  "what a completed save has synced to disk: data (default), full or none"),
	ZT_WHOLE("grace", "SECONDS", args.grace_s, 1, 1000000,
		 "time limit of the save on SIGTERM (30)"),
	ZT_FLAG("exclude-frozen", args.no_frozen,
		"save steps without frozen parameters; --resume reads them from --model"),
	ZT_TEXT("resume", "auto|DIR", args.resume,
		"resume from the step that 'latest' names in --save (auto) or in DIR; if it is "
		"damaged, from the newest complete step; or from a file of torch.save with model "
		"and optimizer"),
	ZT_TEXT("resume-order", "FILE", args.resume_order,
		"of a file of torch.save: list of its optimizer's parameters in the optimizer's "
		"order, if the file does not say it"),
	{ .kind = OPT_COMMAS, .name = "resume-frozen", .value = "PATTERN",
	  .to = &args.resume_frozen, .help = "of such a file: parameters that its optimizer does "
	  "not have" },
	{ .kind = OPT_COMMAS, .name = "resume-buffer", .value = "PATTERN",
	  .to = &args.resume_buffer, .help = "of such a file: tensors that are no parameters" },
	ZT_FLAG("overwrite-steps", args.overwrite,
		"allow replacing steps of another run in --save; without it the run does not "
		"start"),
	ZT_FLAG("new-data", args.new_data,
		"resume with other data than the step's, from its first row; weights, moments and "
		"schedule continue"),
	ZT_FLAG("allow-other-model", args.other_model,
		"resume although config.json differs from the step's model (shapes must be equal)"),

	ZT_HEAD("Exporting weights"),
	ZT_TEXT("export", "DIR", args.export,
		"at the end, write a folder for transformers: config.json, tokenizer, "
		"model.safetensors"),
	ZT_FLAG("merge", args.merge,
		"with --lora: export the model with its adapters merged, instead of the adapter "
		"as PEFT's folder"),
	ZT_ONE_OF("export-dtype", "T", args.export_dtype, EN_FP32, precisions,
		  "fp32, bf16 or fp16 (fp32; 16-bit if stage3_gather_16bit_weights_on_model_save "
		  "is true)"),
	ZT_TEXT("max-shard-size", "SIZE", args.max_shard_size,
		"largest file: 500MB, 1GiB, ... (5GB)"),

	ZT_HEAD("Output"),
	ZT_TEXT("log", "FILE", args.log,
		"append one JSON line per step; a resumed run appends to the same file"),
	ZT_WHOLE("print-every", "N", args.print_every, 1, MANY,
		 "print a line every N steps, and for each evaluation (1); --log has all"),
	ZT_FLAG("counters", args.counters,
		"at the end, print bytes sent and memory used by each rank"),
	ZT_FLAG("exact", args.exact, "print losses with round-trip precision"),
	ZT_FLAG("check-launch", args.check_launch,
		"print each rank's host and GPU, report conflicts, and exit"),
	{ .kind = OPT_FLAG, .name = "quiet", .letter = 'q', .to = &args.quiet,
	  .help = "print no configuration and no line per step" },
	{ "color", 0, OPT_CHOICE, &color, TERM_COLORS,
	  "colour errors, warnings and headings (default: on a terminal)", 0 },
	ZT_WHOLE("local_rank", "N", args.local_rank, 0, 1 << 20,
		 "accepted from deepspeed's launcher and ignored (LOCAL_RANK is used)"),
	{ 0 },
};

/* "0,2,3": each at most once. */
static int set_stages(const struct opt_call *call, const struct opt *opt, const char *text)
{
	args.stages = text;
	args.nstages = 0;
	for (const char *p = text;; p++) {
		if (*p < '0' || *p > '3')
			return zt_wrong_value(call, opt, text,
					      "expected a list of stages from 0,1,2,3");
		for (uint32_t i = 0; i < args.nstages; i++)
			if (args.stage[i] == (uint32_t)(*p - '0'))
				return zt_wrong_value(call, opt, text, "stage listed twice");
		args.stage[args.nstages++] = (uint32_t)(*p++ - '0');
		if (!*p)
			return 0;
		if (*p != ',')
			return zt_wrong_value(call, opt, text,
					      "expected a list of stages from 0,1,2,3");
	}
}

/* Of `ztrain bench`. */
const struct opt zt_args_bench[] = {
	ZT_HEAD("Measurement"),
	ZT_TEXT("model", "PATH", args.model,
		"a folder with config.json, or that file; weights are random"),
	ZT_WHOLE("seq", "N", args.seq, 2, EN_MAX_ROW, "tokens in a row (64)"),
	ZT_FLAG("table", args.table,
		"measure one configuration: times, tokens/s, memory, traffic, waiting (default)"),
	ZT_OWN("stages", "LIST",
	       "compare ZeRO stages (0,1,2,3): for each the largest micro-batch that fits, its "
	       "memory and speed; then advise one",
	       .set = set_stages),
	ZT_FLAG("offload", args.offload,
		"keep the optimizer state on the host; at stage 3 also parameters"),
	ZT_WHOLE("rows", "N", args.rows, 1, 1 << 20,
		 "rows of a micro-batch, overriding --config; with --stages the largest to try "
		 "(4096 on GPUs, 16 on CPUs)"),
	ZT_WHOLE("documents", "N", args.document, 1, EN_MAX_ROW,
		 "packed rows: documents of N tokens in the mean, attention stops at their seams"),
	ZT_SIZE("memory", args.memory, "with --stages: memory that a rank may use (what is free)"),
	ZT_WHOLE("steps", "N", args.timed, 1, 100000, "steps to time (10)"),
	ZT_WHOLE("warmup", "N", args.warm, 0, 100000, "untimed steps before them (2)"),
	ZT_REAL("peak-tflops", "N", args.peak_tflops, 0,
		"peak of a rank's processor, for the MFU (for 16-bit types 989 on H100 and H200, "
		"312 on A100; otherwise unknown)"),
	ZT_TEXT("trace", "FILE", args.trace,
		"trace three more steps into FILE (Chrome trace format)"),
	ZT_TEXT("plot", "FILE", args.plot,
		"with --stages: draw the results as PNG (needs gnuplot)"),
	ZT_FLAG("json", args.json, "print one JSON object instead of tables"),

	ZT_HEAD("Options of a run"),
	{ 0 },
};
const char *const zt_args_bench_has[] = {
	"config", "micro-batch", "accumulation", "clip", "precision", "recompute", "keep-all",
	"fp8", "overflow", "freeze", "lora", "device", "reduction", "threads", "seed", "timeout",
	"secret-file", "color", NULL,
};

/* Of `ztrain eval`. */
const struct opt zt_args_eval[] = {
	ZT_HEAD("Evaluation"),
	ZT_TEXT("data", "FILE", args.data,
		"rows to compute the loss of: .bin .u16 .u32 .jsonl .safetensors"),
	ZT_WHOLE("eval-rows", "N", args.eval_rows, 1, MANY,
		 "only the last N rows, those that a run holds out by the same option"),
	ZT_TEXT("model", "PATH", args.model,
		"a folder with config.json, or that file, if the step has none"),
	ZT_WHOLE("seq", "N", args.seq, 2, EN_MAX_ROW,
		 "tokens in a row (as the run that saved the step; else as the data)"),
	ZT_FLAG("json", args.json, "print one JSON object"),

	ZT_HEAD("Options of a run"),
	{ 0 },
};
const char *const zt_args_eval_has[] = {
	"config", "micro-batch", "precision", "freeze", "lora", "lora-from", "device", "threads",
	"timeout", "secret-file", "data-kind", "overlap", "pack", "pack-documents", "cut",
	"pad-id", "allow-other-model", "exact", "counters", "quiet", "color", "local_rank", NULL,
};

/* Of all calls: '-h --all' lists them, -h alone does not. */
static const char *const rare[] = {
	"beta1", "beta2", "eps", "lr-scheduler-args", "loss", "overflow", "keep-all", "reduction",
	"seed", "timeout", "secret-file", "data-kind", "overlap", "pad-id", "order", "tail",
	"drop-last", "deal", "save-buffer", "save-threads", "sync", "grace", "overwrite-steps",
	"allow-other-model", "exclude-frozen", "lora-from", "max-shard-size", "merge", "color",
	"counters", "exact", "check-launch", "local_rank", "synthetic-rows", "print-every",
	"peak-tflops", "warmup", "resume-order", "resume-frozen", "resume-buffer", NULL,
};

const struct opt zt_args_talk[] = {
	{ "quiet", 'q', OPT_FLAG, &args.quiet, NULL, "", OPT_HIDDEN },
	{ "help", 'h', OPT_FLAG, &args.help, NULL, "", OPT_HIDDEN | OPT_LAST },
	{ "version", 0, OPT_FLAG, &args.version, NULL, "", OPT_HIDDEN | OPT_LAST },
	{ 0 },
};

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))
_Static_assert(COUNT(zt_args_run) <= ZT_ROWS && COUNT(zt_args_bench) <= ZT_ROWS &&
	       COUNT(zt_args_eval) <= ZT_ROWS, "ZT_ROWS");

struct zt_args *zt_args_filled(void)
{
	return &args;
}

int zt_args_layout(int word)
{
	return layouts[word];
}

bool zt_args_is_rare(const char *name)
{
	for (const char *const *r = rare; *r; r++)
		if (!strcmp(*r, name))
			return true;
	return false;
}
