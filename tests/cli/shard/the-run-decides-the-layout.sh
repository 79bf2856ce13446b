# Alignment and optimizer follow from the configuration, not from the type that the weights are stored in.
step=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w3/ckpt
zckpt convert -q --dtype keep --tied drop "$step" bf16.safetensors
zckpt convert -q --dtype fp32 --tied drop "$step" fp32.safetensors
zckpt map --all "$step" | awk '$NF == "trainable" { print $1 }' > order
shard() { zckpt shard -q --lr 1e-3 --order order --buffer pos,seen,table,flag,norm.ema --world 3 "$@"; }
pieces() { zckpt map --all --state master "$1" | sed -n 's/ at byte .*//; /^ *element/p'; }
cat > aligned.json << 'EOF'
{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "parameter_alignment": true}}
EOF
shard --ds-config aligned.json bf16.safetensors a
shard --ds-config aligned.json fp32.safetensors b
pieces a > want
pieces b | cmp - want && echo "the same layout, $(wc -l < want | tr -d ' ') pieces"
kind() { zckpt inspect --json "$1" | grep -o '"optimizer": *"[A-Za-z0-9_]*"'; }
for type in fp32 float32 torch.float32 bf16; do
	for device in none cpu; do
		cat > run.json << EOF
{"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "$type"},
 "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "$device"}}}
EOF
		rm -rf out
		shard --ds-config run.json bf16.safetensors out
		echo "$type, offload $device: $(kind out)"
	done
done
