# layouts.sh -- folders as trainers lay them out, around steps that DeepSpeed wrote.
#
#   hf_trainer OUT CASE...      transformers' Trainer: OUT/checkpoint-N, each with its own 'latest'
#   llama_factory OUT CASE      LLaMA-Factory: a Trainer's folder and its own logs, weights of the end
#   accelerate_state OUT CASE   accelerator.save_state(): the tag is 'pytorch_model'
#   two_nodes CASE A B          each node kept the files of its own ranks on a local disk
#
# A case's number of steps comes from its tag; a case with two tags gives two checkpoints.

model_files() {
	echo '{"architectures": ["ToyForCausalLM"], "dtype": "bfloat16", "hidden_size": 24, "model_type": "toy", "vocab_size": 37}' > "$1/config.json"
	echo '{"do_sample": true}' > "$1/generation_config.json"
	echo '{"version": "1.0", "model": {"type": "BPE"}}' > "$1/tokenizer.json"
	echo '{"model_max_length": 128}' > "$1/tokenizer_config.json"
	echo '{"eos_token": "</s>"}' > "$1/special_tokens_map.json"
}
trainer_files() {
	local dir=$1 step=$2 rank
	model_files "$dir"
	echo "{\"global_step\": $step, \"epoch\": 1.0, \"log_history\": [], \"max_steps\": 100}" > "$dir/trainer_state.json"
	for rank in 0 1; do printf 'rng %s' "$rank" > "$dir/rng_state_$rank.pth"; done
	printf 'not read' > "$dir/training_args.bin"
	printf 'import torch\n' > "$dir/zero_to_fp32.py"
}
hf_trainer() {
	local out=$1 case tag step dir
	shift
	mkdir -p "$out"
	for case; do
		for tag in "$steps/$case/ckpt"/global_step*; do
			step=${tag##*global_step}
			dir=$out/checkpoint-$step
			mkdir "$dir"
			cp -r "$tag" "$dir/"
			printf 'global_step%s' "$step" > "$dir/latest"
			trainer_files "$dir" "$step"
		done
	done
}
llama_factory() {
	hf_trainer "$1" "$2"
	model_files "$1"
	echo '{"current_steps": 3, "loss": 2.5}' > "$1/trainer_log.jsonl"
	echo '{"train_loss": 2.5}' > "$1/all_results.json"
	printf 'not read' > "$1/training_args.bin"
	printf '# card\n' > "$1/README.md"
}
accelerate_state() {
	local tag
	mkdir -p "$1"
	for tag in "$steps/$2/ckpt"/global_step*; do cp -r "$tag" "$1/pytorch_model"; done
	printf 'pytorch_model' > "$1/latest"
	printf 'r0' > "$1/random_states_0.pkl"
	printf 'r1' > "$1/random_states_1.pkl"
	printf 's' > "$1/scheduler.bin"
	printf 'import torch\n' > "$1/zero_to_fp32.py"
}
two_nodes() {
	local case=$1 a=$2 b=$3 tag name rank half
	tag=$(basename "$(echo "$steps/$case/ckpt"/global_step*)")
	half=$(($(find "$steps/$case/ckpt/$tag" -name '*_optim_states.pt' | wc -l) / 2))
	mkdir -p "$a/$tag" "$b/$tag"
	printf '%s' "$tag" | tee "$a/latest" > "$b/latest"
	for name in "$steps/$case/ckpt/$tag"/*; do
		rank=${name##*pp_rank_}
		rank=${rank%%_*}
		case $rank in
		*[!0-9]*) rank=0 ;;	# the model file of stages 0 to 2: on the first node
		esac
		if [ "$rank" -lt "$half" ]; then cp "$name" "$a/$tag/"; else cp "$name" "$b/$tag/"; fi
	done
}
