#!/bin/bash
# usage: test_gpusim_flow.sh
#
# Settings that say what moves between GPUs, how early and how long it stays do what they say, on
# simulated GPUs (tests/gpusim): the bits are the same whatever they are, and gathers
# and memory are those that docs/internals/gpu.md works out.  If this fails, a key of the
# configuration is taken and comes to nothing, or changes the run.
#
# Two ranks at stage 3, 10 blocks of which 8 are layers, two micro-batches a step, three steps.
# With every block gathered for each use that is 18 a micro-batch: 9 forward, the head's, 8 back.
set -u
# shellcheck source=tests/gpu/gpusim.sh
. "$(dirname "$0")/gpusim.sh"
need_ranks
RANDOM=${ZCKPT_SEED:-$(date +%j)}
mkdir model
cat > model/config.json <<'END'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 512, "hidden_size": 64,
 "intermediate_size": 192, "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
 "head_dim": 16, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
 "tie_word_embeddings": false, "hidden_act": "silu", "initializer_range": 0.02}
END
layer=$((64 * 128 + 64 * 64 + 3 * 64 * 192 + 2 * 64))	# elements
room=57344						# of two ranks: 7 pieces of 2 x 4096
table=32768 end=40960					# of the embedding; of the head with its norm

# train STAGE SETTINGS
train() {
	rm -rf save
	echo "{\"train_batch_size\": 4, \"train_micro_batch_size_per_gpu\": 1, \"bf16\": {\"enabled\": true}," \
		"\"zero_optimization\": {\"stage\": $1${2:+, $2}}}" > z.json
	FAKE_GPU_STATS=1 FAKE_GPU_SEED=$RANDOM timeout -k 5 100 "$mpirun" -n 2 "$ztrain" --device cuda \
		--model model/config.json --config z.json --seq 17 --steps 3 --exact --save save --counters \
		> said 2>&1 < /dev/null || { bad "stage $1, $2"; return; }
	gathers=$(sed -n 's/^rank 0 .*sent  all-gather .* in \([0-9]*\) messages.*/\1/p' said)
	held=$(sed -n 's/^rank 0 .*held  gathered  *\([0-9]*\) bytes.*/\1/p' said)
	waits=$(sed -n 's/^fake GPU: .* \([0-9]*\) waits.*/\1/p' said | sort -n | tail -n 1)
	digest=$("$zckpt" digest -q save | tail -n 1)
	want=${want:-$digest}
	[ "$digest" = "$want" ] && good || bad "other bits with stage $1, $2: $digest, not $want"
}
# is GATHERS ELEMENTS WORDS: what train() found
is() {
	[ "$gathers" = "$1" ] && [ "$held" = $(($2 * 2)) ] && good ||
		bad "$3: $gathers gathers and $held bytes, not $1 and $(($2 * 2))"
}
key() { echo "\"stage3_$1\": $2"; }
none="$(key param_persistence_threshold 0), $(key max_reuse_distance 0)"
all=$((2 * 18 * 3))

want=
train 3 "$none, $(key prefetch_bucket_size 0)"
is $all $room 'nothing beforehand: one room'
train 3 "$none, \"overlap_comm\": false"
is $all $room 'nothing overlaps: one room'
train 3 "$none, $(key prefetch_bucket_size 1)"
is $((all + 2)) $((2 * room)) 'one block beforehand, also of the step that does not come'
train 3 "$none, $(key prefetch_bucket_size $((3 * layer)))"
is $((all + 4)) $((4 * room)) 'three layers beforehand'
train 3 "$none, $(key prefetch_bucket_size $((9 * layer))), $(key max_live_parameters $((4 * layer)))"
is $((all + 4)) $((4 * room)) 'no more live than four layers'
train 3 "$(key max_reuse_distance 0), $(key prefetch_bucket_size 1), $(key param_persistence_threshold $((layer - 1)))"
is $((2 * 16 * 3 + 2 * 3 + 2)) $((2 * room + table + end)) 'the ends stay'
train 3 "$(key max_reuse_distance 0), $(key param_persistence_threshold 100000)"
is $((10 * 3 + 2)) $((table + end + 8 * room)) 'all stay: each is gathered once a step'
train 3 "$(key max_reuse_distance 0), $(key prefetch_bucket_size 1), $(key param_persistence_threshold 100000), $(key model_persistence_threshold $((table + layer)))"
once=$gathers
[ "$once" -lt $all ] && [ "$held" = $(((table + room + 2 * room) * 2)) ] && good ||
	bad "two stay: $once gathers, $held bytes"
# the last layer is still there in the backward pass, and the first one when the next pass begins
train 3 "$(key param_persistence_threshold 0), $(key prefetch_bucket_size 1), $(key max_reuse_distance $((3 * end)))"
[ "$gathers" -lt $((all + 2)) ] && [ "$held" = $((2 * 2 * room)) ] && good ||
	bad "used again soon: $gathers gathers, $held bytes"
some=$gathers
train 3 "$(key param_persistence_threshold 0), $(key prefetch_bucket_size $((3 * layer)))"
[ "$gathers" -lt "$some" ] && [ "$held" = $((4 * 2 * room)) ] && good ||
	bad "used again in four rooms: $gathers gathers, $held bytes"

# Stages 1 and 2 move with the update and the gradients only.
for stage in 1 2; do
	train $stage
	plain=$waits
	train $stage '"overlap_comm": true'
	[ "$waits" = "$plain" ] && good || bad "stage $stage overlaps: $waits waits, not $plain"
	train $stage '"overlap_comm": false'
	[ "$waits" -gt "$plain" ] && good || bad "stage $stage in place: $waits waits, not more than $plain"
done
grep -q 'on GPUs: false waits for each transfer' said && good || bad 'the screen says where it has an effect'
finish
