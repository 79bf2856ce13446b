/*
 * test_parallel_mutants.c -- checkpoints of Megatron-Core, and of DeepSpeed with experts, tensor
 * and pipeline parallelism, with one change that means something: each is refused, or its values
 * are those of the run that saved it.
 *
 * If this fails, a user gets another model than was saved, or other moments, and no verb says a
 * word.
 *
 * usage: test_parallel_mutants [-v] [COUNT [KIND]], as tests/lib/mutate/t_mutants.h says.
 */
#include "tests/lib/mutate/t_mutants.h"

static const struct t_mutant_case cases[] = {
	{ "ds0.19.8-moe-z2-bf16-w4-ep2", T_DEEPSPEED },
	{ "mc0.16.1-qwen3moe-tp2-ep2", T_MEGATRON },
	{ "ds0.19.8-autotp-z2-bf16-w4-qwen2", T_DEEPSPEED },
	{ "mc0.12.3-qwen2-tp2-dp2", T_MEGATRON },
	{ "ds0.19.8-pipe-z1-bf16-w8-tp2-tied", T_DEEPSPEED },
	{ "mc0.16.1-llama-tp2", T_MEGATRON },
	{ "ds0.19.8-autoep-z1-bf16-w4-qwen3moe", T_DEEPSPEED },
	{ "mc0.19.0-qwen3moe-ep2-pp2", T_MEGATRON },
	{ "ds0.19.8-moe-z2-bf16-w4-pyramid", T_DEEPSPEED },
	{ "mc0.14.0-mixtral-ep2-grouped", T_MEGATRON },
	{ "ds0.19.8-megtp-z1-bf16-w4-uci", T_DEEPSPEED },
	{ "mc0.19.0-qwen3-pp2-tied", T_MEGATRON },
	{ "ds0.16.9-moe-z2-bf16-w2-ep2", T_DEEPSPEED },
	{ "mc0.16.1-llama-dp3-singleton", T_MEGATRON },
	{ "ds0.19.8-pipe-z1-bf16-w4-bf16opt", T_DEEPSPEED },
	{ "mc0.14.0-qwen3-tp2-dp2-newtorch", T_MEGATRON },
	{ "ds0.19.8-moe-z2-bf16-w4-dbe", T_DEEPSPEED },
	{ "mc0.15.3-qwen3moe-ep2-grouped", T_MEGATRON },
};

static const struct t_fsdp_kind *const kinds[] = {
	t_fsdp_files, t_fsdp_meta, t_deepspeed, NULL,
};

int main(int argc, char **argv)
{
	const struct t_mutants parallel = {
		.archive = "parallel", .cases = cases, .ncases = sizeof(cases) / sizeof(cases[0]),
		.kinds = kinds, .has_config = 1,
	};

	return t_mutants_run(&parallel, argc, argv);
}
