/*
 * Real parallel steps of DeepSpeed in which one file says another thing than the others, with
 * every checksum right: each is refused or has a finding, by its words. If this fails, experts,
 * layers or states come out under another name, or a user is not shown which file is wrong.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_sys.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/mutate/t_damage_file.h"
#include "tests/lib/ops/t_step.h"

#define MOE "ds0.19.8-moe-z2-bf16-w4-ep2"
#define AUTOEP "ds0.19.8-autoep-z2-bf16-w2-mixtral"
#define STAGE0 "ds0.19.8-moe-z0-bf16-w4-ep2-z0"
#define PIPE "ds0.19.8-pipe-z1-bf16-w8-tp2-tied"

#define SHARD(r) "bf16_zero_pp_rank_" #r "_mp_rank_00_optim_states.pt"
#define EXPERT(l, e) "layer_" #l "_expert_" #e "_mp_rank_00_model_states.pt"
#define MODEL "mp_rank_00_model_states.pt"

static const struct damage {
	const char *step, *file;
	const char *after, *old, *now;	/* in the pickle; as long as each other */
	int times;
	const char *id;		/* of the finding, or of the error if it begins with '!' */
	const char *words;	/* all of its text */
} damages[] = {
	/* ranks of a group */
	{ MOE, SHARD(0), "partition_count", "(K\x04K\x02", "(K\x04K\x04", 1, "!LENGTH_WRONG",
	  "group 1 is called ep_size_2, but partition_count 4 of 4 ranks means 1 expert ranks "
	  "(a shard of another run?)" },
	{ MOE, SHARD(0), "partition_count", "(K\x04K\x02", "(K\x04K\x01", 1, "!LENGTH_WRONG",
	  "group 1 is called ep_size_2, but partition_count 1 of 4 ranks means 4 expert ranks "
	  "(a shard of another run?)" },
	{ MOE, SHARD(0), "partition_count", "(K\x04K\x02", "(K\x04K\x03", 1, "!LENGTH_WRONG",
	  "group 1 is divided among 3 ranks (partition_count), and 4 ranks wrote the step (a "
	  "shard of another run?)" },
	{ MOE, SHARD(0), "partition_count", "(K\x04K\x02", "(K\x02K\x02", 1, "!LENGTH_WRONG",
	  "group 0 is divided among 2 of 4 ranks, and it is no group of experts (a shard of "
	  "another run?)" },
	{ MOE, SHARD(1), "partition_count", "(K\x04K\x02", "(K\x04K\x04", 1, "RANKS_DISAGREE",
	  "'partition_count' differs from the value in "
	  "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt (files of two saves or world sizes?)" },
	{ MOE, SHARD(0), "param_groups", "ep_size_2", "ep_size_4", 1, "!LENGTH_WRONG",
	  "group 1 is called ep_size_4, but partition_count 2 of 4 ranks means 2 expert ranks "
	  "(a shard of another run?)" },
	{ MOE, SHARD(0), "ep_size_2", "moeq\x55\x88", "moeq\x55\x89", 1, "!LENGTH_WRONG",
	  "group 1 is divided among 2 of 4 ranks, and it is no group of experts (a shard of "
	  "another run?)" },
	{ STAGE0, "expp_rank_1_mp_rank_00_optim_states.pt", "param_groups", "ep_size_2",
	  "ep_size_4", 1, "RANKS_DISAGREE",
	  "its param groups are those of 4 expert ranks, but the step has 2 (a file of another "
	  "run?)" },
	/* keys of an expert */
	{ MOE, EXPERT(0, 1), "layers", "experts.1.", "experts.2.", 4, "RANK_FILE_SWAPPED",
	  "its name says expert 1, its keys say expert 2 (was a file renamed or copied over "
	  "another?)" },
	{ MOE, EXPERT(0, 1), "layers", "experts.1.", "experts.7.", 4, "RANK_FILE_SWAPPED",
	  "its name says expert 1, its keys say expert 7 (was a file renamed or copied over "
	  "another?)" },
	{ MOE, EXPERT(0, 1), "layers", "experts.1.", "experts.2.", 1, "RANK_FILE_SWAPPED",
	  "its name says expert 1, its keys say expert 2 (was a file renamed or copied over "
	  "another?)" },
	{ MOE, EXPERT(0, 1), "layers", "layers.0.", "layers.1.", 4, "NAMES_WRONG",
	  "layers.1.moe.deepspeed_moe.experts.deepspeed_experts.1.0.weight: the other experts "
	  "of the layer have another tensor in this place (a file of another layer or model?)" },
	{ MOE, EXPERT(0, 1), "layers", ".0.weight", ".9.weight", 1, "NAMES_WRONG",
	  "layers.0.moe.deepspeed_moe.experts.deepspeed_experts.1.9.weight: the other experts "
	  "of the layer have another tensor in this place (a file of another layer or model?)" },
	{ MOE, EXPERT(0, 0), "layers", ".0.weight", ".9.weight", 1, "NAMES_WRONG",
	  "layers.0.moe.deepspeed_moe.experts.deepspeed_experts.1.0.weight: the other experts "
	  "of the layer have another tensor in this place (a file of another layer or model?)" },
	{ AUTOEP, EXPERT(0, 1), "model", "w1.1", "w1.2", 1, "RANK_FILE_SWAPPED",
	  "its name says expert 1, its keys say expert 2 (was a file renamed or copied over "
	  "another?)" },
	{ AUTOEP, EXPERT(0, 1), "model", "layers.0.", "layers.1.", 3, "NAMES_WRONG",
	  "model.layers.1.mlp.experts.w1.1: this is no key of an expert of the layer (a file "
	  "of another layer or model?)" },
	/* how many there are */
	{ MOE, MODEL, "num_experts", "K\x04K\x04", "K\x04K\x05", 1, "!NAMES_WRONG",
	  "layers.1.moe.deepspeed_moe.experts.deepspeed_experts.0.0.weight: each of 2 expert "
	  "ranks has experts from 0 on, and num_experts says 5 of the layer (a model file of "
	  "another run?)" },
	{ MOE, MODEL, "num_experts", "K\x04K\x04", "K\x02K\x04", 1, "!NAMES_WRONG",
	  "layers.0.moe.deepspeed_moe.experts.deepspeed_experts.1.0.weight: each of 2 expert "
	  "ranks has experts from 0 on, and num_experts says 2 of the layer (a model file of "
	  "another run?)" },
	/* layers of a pipeline */
	{ PIPE, "layer_01-model_00-model_states.pt", "dense", "dense.weight", "dense.WEIGHT", 1,
	  "RANKS_DISAGREE",
	  "weight of 1.self_attention.dense.weight is missing on tensor rank 0, and tensor "
	  "rank 1 has it" },
};

static void say(const char *text, const char *id)
{
	print_error("%s|%s\n", id, text);
}

/* The finding, or the error, as 'd' has it; false after a message. */
static bool is_found(const struct damage *d, const char *dir)
{
	const bool fatal = d->id[0] == '!';
	struct ckpt_err err = { 0 };
	struct ckpt_finding f;
	struct ckpt *ck = NULL;
	bool found = false;

	if (ckpt_open(&dir, 1, NULL, &ck, &err)) {
		char *want = t_fmt("%s: %s", d->id + fatal, d->words);

		found = fatal && !strcmp(err.msg, want);
		if (!found)
			say(err.msg, "error");
		free(want);
		return found;
	}
	for (uint64_t i = 0; !ckpt_finding_get(ck, i, &f, NULL); i++)
		found |= !fatal && !strcmp(f.id, d->id) && !strcmp(f.text, d->words) &&
			 f.severity == CKPT_ERROR;
	for (uint64_t i = 0; !found && !ckpt_finding_get(ck, i, &f, NULL); i++)
		say(f.text, f.id);
	ckpt_close(ck);
	return found;
}

static void what_one_file_says_otherwise_is_found(void **state)
{
	unsigned bad = 0;

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(damages); i++) {
		const struct damage *d = &damages[i];
		char *name = t_fmt("parallel/%s/ckpt", d->step), *from = t_fixture(name);
		char *dir = t_dir_new(), *to = t_fmt("%s/run", dir);
		char *file = t_fmt("%s/global_step2/%s", to, d->file);

		t_dir_copy(from, to);
		for (int k = 0; k < d->times; k++)
			t_damage_pickle(file, d->after, d->old, d->now, strlen(d->old));
		if (!is_found(d, to)) {
			print_error("^ damage %zu: %s, %s\n", i, d->step, d->file);
			bad++;
		}
		free(file);
		free(to);
		t_dir_end(dir);
		free(from);
		free(name);
	}
	assert_int_equal(bad, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_one_file_says_otherwise_is_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
