# Checkpoints that zckpt does not read are named for what they are, with what helps, by every verb.
# Real folders: the names in them are what accelerate, verl, torch, Megatron-Core and others write.
make_in() {
	mkdir -p "$1"
	for name in $2; do
		case $name in
		*/) mkdir -p "$1/$name" ;;
		*) echo x > "$1/$name" ;;
		esac
	done
}
make_in 'run 1/checkpoint-3' 'config.json scheduler.pt context/ weights/ rng_state_0.pth'
for verb in inspect doctor ls 'latest --valid' verify map 'convert -q'; do
	echo "== $verb"
	case $verb in convert*) out=m.safetensors ;; *) out= ;; esac
	zckpt $verb 'run 1' $out 2>&1
	echo "exit $?"
done
echo '== each of them'
one() {
	rm -rf it
	make_in it "$1"
	zckpt inspect it 2>&1 | sed 's/^zckpt: //'
}
one '.metadata __0_0.distcp'
one '.metadata __0_0.distcp meta.pt'
one '.metadata.tmp'
one '__0_0.distcp'
one 'iter_0000002/ iter_0000010/ iter_0000010/.metadata iter_0000010/metadata.json iter_0000010/__0_0.distcp latest_checkpointed_iteration.txt'
one 'iter_0000010/ iter_0000010/mp_rank_00/ latest_checkpointed_iteration.txt'
one 'context/ weights/'
one 'model-Q4_K_M.gguf'
one '_CHECKPOINT_METADATA'
one 'saved_model.pb'
one 'optimizer.pt scheduler.pt rng_state.pth trainer_state.json'
one 'optimizer.bin'
one 'scheduler.bin random_states_0.pkl'
one 'rng_state_0.pth'
one 'random_states_0.pkl'
one 'adapter_config.json'
one 'config.json tokenizer.json'
one 'tokenizer.json tokenizer_config.json'
one 'notes'
one 'case.json truth.txt ckpt/ ckpt/.metadata ckpt/__0_0.distcp'
one 'notes logs/ logs/config.json'
echo '== files'
printf 'GGUF\003\0\0\0' > m.gguf
printf '\010\007' > m.onnx
for file in m.gguf m.onnx; do zckpt inspect $file 2>&1 | sed 's/^zckpt: //'; done
echo '== DeepSpeed'
for dir in "$FIXTURES"/deepspeed/ds0.19.8-z1-bf16-w4-pipeline "$FIXTURES"/deepspeed/ds0.19.8-z1-bf16-w4-autotp; do
	zckpt doctor "$dir/ckpt"
done
true
