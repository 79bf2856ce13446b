/*
 * ck_foreign.c -- see ck_foreign.h.
 *
 * One table: the signs of a form (names in its folder; one that ends in '/' is a folder), what it
 * is, and what helps.  The first row whose signs are all there wins, so the rows go from the
 * special to the general.  When zckpt learns to read a form, its rows go.
 */
#include <fnmatch.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_foreign.h"
#include "libckpt/io/ck_mount.h"

#define SIGNS 3
#define DEPTH 3		/* run/global_step_9/actor */

#define BRIDGE \
	"Megatron-Bridge exports it to Hugging Face, Megatron-LM's tools/checkpoint/convert.py " \
	"changes its form"
#define NOT_READ ", which zckpt does not read"

static const struct foreign {
	const char *sign[SIGNS];
	const char *what;
	const char *run;	/* a command with DIR in it, or NULL */
	const char *say;	/* else a clause, or NULL */
} folders[] = {
	/* Megatron-Core and NeMo before DCP, in whose form they are */
	{ { "context/", "weights/" },
	  "a NeMo 2 checkpoint" NOT_READ,
	  "nemo llm export path=DIR target=hf output_path=OUT", NULL },
	{ { "mp_rank_*/" },
	  "a Megatron-LM checkpoint (mp_rank_00/)" NOT_READ, NULL, BRIDGE },
	/* DCP: further down, or without its index */
	{ { ".metadata" },
	  "a folder of torch.distributed.checkpoint (DCP)", "zckpt inspect DIR", NULL },
	{ { ".metadata.tmp" },
	  "an unfinished save of a torch.distributed.checkpoint (DCP)", NULL,
	  "its index .metadata was never put into place: take an earlier checkpoint" },
	{ { "*.distcp" },
	  "a torch.distributed.checkpoint (DCP) without its index .metadata", NULL,
	  "rank 0 writes .metadata last: the save did not finish, or the copy left it out" },
	/* other frameworks */
	{ { "*.gguf" },
	  "a folder of GGUF weights (llama.cpp)" NOT_READ, NULL,
	  "transformers loads one with from_pretrained(FOLDER, gguf_file=NAME), and can save it" },
	{ { "_CHECKPOINT_METADATA" }, "an Orbax checkpoint (JAX)" NOT_READ, NULL,
	  "orbax.checkpoint restores it" },
	{ { "saved_model.pb" }, "a TensorFlow model" NOT_READ, NULL, NULL },
	{ { "flax_model.msgpack" }, "a Flax model" NOT_READ, NULL,
	  "transformers before 5 loads it with from_pretrained(FOLDER, from_flax=True)" },
	{ { "tf_model.h5" }, "a TensorFlow model of transformers" NOT_READ, NULL,
	  "transformers before 5 loads it with from_pretrained(FOLDER, from_tf=True)" },
	{ { "*.onnx" }, "an ONNX model" NOT_READ, NULL, NULL },
	/* parts of a checkpoint */
	{ { "latest_universal" },
	  "a folder with 'latest_universal', but without the universal checkpoint that it names",
	  NULL, NULL },
	{ { "latest" },
	  "a folder with 'latest', but without the step that it names", "zckpt ls DIR", NULL },
	{ { "adapter_config.json" },
	  "a PEFT adapter without its weights (adapter_model.safetensors)", NULL, NULL },
	{ { "optimizer.pt", "scheduler.pt" },
	  "the optimizer, scheduler and random states of the Trainer, without a model",
	  "zckpt inspect DIR/optimizer.pt", NULL },
	{ { "optimizer.pt" }, "an optimizer of the Trainer without a model",
	  "zckpt inspect DIR/optimizer.pt", NULL },
	{ { "optimizer.bin" }, "an optimizer of accelerate without a model",
	  "zckpt inspect DIR/optimizer.bin", NULL },
	{ { "scheduler.*" },
	  "a scheduler and random states without a model or an optimizer", NULL,
	  "the weights were saved elsewhere, or the copy left them out" },
	{ { "rng_state*.pth" }, "random states without a model", NULL,
	  "the weights were saved elsewhere, or the copy left them out" },
	{ { "random_states_*.pkl" }, "random states of accelerate without a model", NULL,
	  "the weights were saved elsewhere, or the copy left them out" },
	{ { "config.json" }, "a model's configuration without a file of weights", NULL,
	  "the download is incomplete, or the weights were saved elsewhere" },
	{ { "tokenizer*.*" }, "a tokenizer without a model", NULL,
	  "the weights were saved elsewhere, or the copy left them out" },
};

/* From this row on: parts of a checkpoint. */
static const char first_part[] = "latest_universal";

/* Folders of runs, whose newest checkpoint is looked into. */
static const char *const runs[] = {
	"checkpoint-*", "checkpoint_*", "iter_*", "global_step*", "step*", "epoch*", "actor",
	"*.ckpt",
};

static const struct {
	const char *name, *what, *run, *say;
} files[] = {
	{ "*.distcp", "the data of one rank of a torch.distributed.checkpoint (DCP)", NULL,
	  "give its folder, whose '.metadata' says what is in it" },
	{ ".metadata", "the index of a torch.distributed.checkpoint (DCP)", NULL,
	  "give its folder" },
	{ "metadata.pkl", "the index of torch_checkpointing", NULL, "give its folder" },
	{ "*.gguf", "a GGUF file (llama.cpp)" NOT_READ, NULL,
	  "transformers loads it with from_pretrained(FOLDER, gguf_file=NAME), and can save it" },
	{ "*.nemo", "a NeMo archive (tar); model_weights.ckpt in it is a torch file",
	  "tar -xf DIR", NULL },
	{ "*.onnx", "an ONNX model" NOT_READ, NULL, NULL },
	{ "*.h5", "an HDF5 file" NOT_READ, NULL, NULL },
	{ "*.msgpack", "a Flax model" NOT_READ, NULL, NULL },
};

static bool has_sign(const struct ck_tree *t, const char *sign)
{
	const size_t n = strlen(sign);
	const bool dir = sign[n - 1] == '/';
	char pattern[64];

	memcpy(pattern, sign, n + 1);
	if (dir)
		pattern[n - 1] = 0;
	for (uint64_t i = 0; i < t->n; i++)
		if (t->entry[i].is_dir == dir && !fnmatch(pattern, t->entry[i].name, 0))
			return true;
	return false;
}

static bool is_one_file(const struct foreign *row)
{
	return !strcmp(row->sign[0], "*.gguf") || !strcmp(row->sign[0], "*.onnx");
}

/* Runs in folders of this one count for more than a file of another program beside them. */
static bool has_runs(const struct ck_input *in, const struct ck_tree *t)
{
	static const char *const run_signs[] = {
		"latest", "global_step*/", "checkpoint-*/", "*_model_states.pt",
		"*_optim_states.pt",
	};
	bool yes = false;

	for (uint64_t i = 0; i < t->n && !yes; i++) {
		struct ck_tree below = CK_TREE_INIT;
		const char *path = t->entry[i].path;

		if (!t->entry[i].is_dir ||
		    ck_look_list(in->pool, &below, &path, 1, NULL, in->limits.files, NULL))
			continue;
		for (size_t k = 0; k < CK_ARRAY_LEN(run_signs) && !yes; k++)
			yes = has_sign(&below, run_signs[k]);
		ck_tree_release(&below);
	}
	return yes;
}

/* How a folder was come by. */
enum come_by { GIVEN, OF_A_RUN, ONLY_ONE };

/*
 * In a folder further down a 'latest' may well name a step; and of one with any name a part of a
 * checkpoint, say a configuration, says little.
 */
static const struct foreign *row_of(const struct ck_tree *t, enum come_by how)
{
	const bool no_parts = how == ONLY_ONE || (how == OF_A_RUN && has_sign(t, "latest"));

	for (size_t i = 0; i < CK_ARRAY_LEN(folders); i++) {
		size_t k = 0;

		if (no_parts && !strcmp(folders[i].sign[0], first_part))
			return NULL;
		while (k < SIGNS && folders[i].sign[k] && has_sign(t, folders[i].sign[k]))
			k++;
		if (k == SIGNS || !folders[i].sign[k])
			return &folders[i];
	}
	return NULL;
}

static int fail_as(const char *where, const char *what, const char *run, const char *clause,
		   struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_FORMAT, where, CKPT_NO_OFFSET, "this is %s%s%s", what,
		       run ? "; try: " : clause ? "; " : "", run ? run : clause ? clause : "");
}

/* The last folder of a run by its number, else the only folder, or NULL. */
static const struct ck_tree_entry *newest(const struct ck_tree *t, enum come_by *how_out)
{
	const struct ck_tree_entry *only = NULL;
	uint64_t n = 0;

	*how_out = OF_A_RUN;
	for (size_t k = 0; k < CK_ARRAY_LEN(runs); k++)
		for (uint64_t i = t->n; i-- > 0;)
			if (t->entry[i].is_dir && !fnmatch(runs[k], t->entry[i].name, 0))
				return &t->entry[i];
	for (uint64_t i = 0; i < t->n; i++)
		if (t->entry[i].is_dir && !n++)
			only = &t->entry[i];
	*how_out = ONLY_ONE;
	return n == 1 ? only : NULL;
}

static int look_in_tree(const struct ck_input *in, const struct ck_tree *t, const char *path,
			unsigned depth, enum come_by how, struct ckpt_err *err)
{
	const struct foreign *row = row_of(t, how);
	enum come_by by;
	const struct ck_tree_entry *sub = newest(t, &by);
	struct ck_tree below = CK_TREE_INIT;
	int rc = 0;

	if (row && is_one_file(row) && has_runs(in, t))
		row = NULL;
	if (sub && depth && (!row || !row->run)) {
		rc = ck_look_list(in->pool, &below, &sub->path, 1, NULL, in->limits.files, NULL);
		rc = rc ? 0 : look_in_tree(in, &below, sub->path, depth - 1,
					how == ONLY_ONE ? how : by, err);
		ck_tree_release(&below);
	}
	return rc || !row ? rc : fail_as(path, row->what, row->run, row->say, err);
}

int ck_foreign_folder(const struct ck_input *in, struct ckpt_err *err)
{
	return look_in_tree(in, &in->tree, in->path[0], DEPTH, GIVEN, err);
}

int ck_foreign_file(const struct ck_input *in, struct ckpt_err *err)
{
	const char *slash = strrchr(in->path[0], '/');
	const char *name = slash ? slash + 1 : in->path[0];

	for (size_t i = 0; i < CK_ARRAY_LEN(files); i++)
		if (in->bytes && !fnmatch(files[i].name, name, 0))
			return fail_as(in->path[0], files[i].what, files[i].run, files[i].say, err);
	return 0;
}
