# What depends on the number of ranks and is no state: the micro-batch that keeps the batch, what
# the configuration in the step does there, the place in the data.
F="$FIXTURES/deepspeed"
say() { zckpt reshard --dry-run "$@" out 2>&1 | grep -v -e 'would write' -e "'latest'"; }
root="$F/ds0.19.8-z2-bf16-w2-gas2/ckpt"
for m in 1 3 7 2; do echo "-- 2:$m"; say 2:$m "$root"; done
echo '-- with a trainer'
cp -r "$root" checkpoint-3
echo '{"epoch": 0.25, "global_step": 3, "log_history": [{"loss": NaN, "a\\": \"Infinity": -Infinity}]}' > checkpoint-3/trainer_state.json
say 2:4 checkpoint-3
zckpt reshard --dry-run --json 2:7 checkpoint-3 out 2> /dev/null | sed -n '/batch/,$p'
echo '-- quiet, and without a number in it'
zckpt reshard -q 2:4 checkpoint-3 quiet
echo '{' > checkpoint-3/trainer_state.json
say 2:4 checkpoint-3 | tail -n 1
say 2:1 "$F/ds0.5.10-z2-bf16-w2/ckpt"
echo '-- a native step of ztrain, whose manifest says nothing of it'
cat > config.json <<'E'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 16, "intermediate_size": 16,
 "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 32,
 "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false, "hidden_act": "silu"}
E
ztrain --model config.json --random --synthetic --seq 8 --micro-batch 10 --accumulation 4 --lr 1e-3 --steps 1 --seed 1 \
	--device cpu --save run > /dev/null 2>&1; echo "exit $?"
say 1:2 run
zckpt reshard -q --to native --world 4 "$root" native
say 4:2 native
