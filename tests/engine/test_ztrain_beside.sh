#!/bin/bash
# usage: test_ztrain_beside.sh
#
# config.json and the tokenizer of --model are in every step that ztrain saves, whatever its form,
# so that a later `zckpt convert RUN hf/` finds them. If this fails, such a folder is no model.
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/ztrain.sh"

mkdir model
cat > model/config.json <<'END_OF_CONFIG'
{"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
 "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 97,
 "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": true,
 "hidden_act": "silu", "attention_bias": false, "torch_dtype": "float32"}
END_OF_CONFIG
echo '{"a tokenizer": 1}' > model/tokenizer.json
echo '{"more": 2}' > model/tokenizer_config.json
echo 'a note' > model/NOTES
cat > z.json <<'END_OF_CONFIG'
{"train_batch_size": 2, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2},
 "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
END_OF_CONFIG

# train RANKS OPTION...
train() {
	local ranks=$1
	shift
	set -- "$ztrain" --device cpu --config z.json --seq 8 --sync none "$@"
	[ "$ranks" = 1 ] || set -- "$mpirun" -n "$ranks" "$@"
	"$@" > said 2>&1
}

ranks=1
has_ranks && ranks='1 2'
for n in $ranks; do
	for form in native deepspeed universal dcp; do
		words="$form, $n ranks"
		train "$n" --model model --random --steps 2 --save-every 1 --save run --save-format $form && good ||
			bad "$words: a run"
		for step in 1 2; do
			found=$(cd "run/global_step$step"* && ls | grep -E '^(config|tokenizer|NOTES)')
			[ "$found" = "$(printf 'config.json\ntokenizer.json\ntokenizer_config.json')" ] && good ||
				bad "$words: step $step has '$found'"
		done
		rm -rf hf && "$zckpt" convert run hf > said 2>&1 && cmp model/tokenizer.json hf/tokenizer.json &&
			[ -s hf/config.json ] && good || bad "$words: convert"
		"$zckpt" verify --full run > said 2>&1 && good || bad "$words: verify"
		rm -rf two && "$zckpt" reshard --world 3 run two > said 2>&1 && [ -s two/global_step2*/tokenizer.json ] &&
			good || bad "$words: reshard"
		train "$n" --model model --steps 3 --resume auto --save run --save-format $form && good ||
			bad "$words: resumed"
		rm -rf run
	done
done

# A config.json alone is a model too; and a folder that is gone is no reason to lose a step.
train 1 --model model/config.json --random --steps 1 --save run && cmp -s model/config.json run/global_step1/config.json &&
	[ ! -e run/global_step1/tokenizer.json ] && good || bad 'a config.json alone'
finish
