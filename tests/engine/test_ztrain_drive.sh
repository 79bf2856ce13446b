#!/bin/bash
# usage: test_ztrain_drive.sh
#
# ztrain with masters and moments in a file (offload_optimizer on NVMe), on CPU ranks: the run of
# states in memory, and less memory.  If this fails, a run on a drive is another run, or what it says
# is on the drive is not.
#
#   same      losses, norms and the saved state are those of states in memory, at 1 and 2 ranks, in
#             fp32 too; saved by one and gone on by the other; exported alike
#   gone      nothing is in the folder while it runs, after it and after SIGKILL
#   memory    VmHWM falls by what is not held
#   full      a drive that is too small: a sentence with both numbers before the first step
#   refused   a folder that cannot be
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/ztrain.sh"
need_models

# config NAME DEVICE PRECISION
config() {
	cat > "$1.json" <<END
{
	"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1.0, $3
	"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "$2", "nvme_path": "$PWD/drive", "buffer_count": 3}},
	"aio": {"block_size": 8192, "queue_depth": 4},
	"optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "betas": [0.9, 0.95], "weight_decay": 0.1}}
}
END
}
config cpu cpu '"bf16": {"enabled": true},'
config nvme nvme '"bf16": {"enabled": true},'
config cpu32 cpu ''
config nvme32 nvme ''

# train NAME CONFIG RANKS OPTION...
train() {
	local name=$1 config=$2 ranks=$3
	shift 3
	set -- "$ztrain" --model "$models/qwen3_tied" --config "$config.json" --steps 6 --seq 33 \
		--save "$name" --exact "$@"
	[ "$ranks" = 1 ] || set -- "$mpirun" -n "$ranks" "$@"
	logged "$name" "$@"
}

# ---- same
train a cpu 1 --export a.hf || bad 'in memory'
train b nvme 1 --export b.hf || bad 'on a drive'
same 'one rank' a b
grep -Eq "masters and moments in $PWD/drive, by (io_uring|[0-9]+ threads)" b.said && good ||
	{ cp b.said said; bad 'the run says where they are'; }
cmp -s a.hf/model.safetensors b.hf/model.safetensors && good || bad 'the exported weights'
train a32 cpu32 1 && train b32 nvme32 1 && same 'fp32' a32 b32 || bad 'fp32'
for format in native deepspeed; do
	train half nvme 1 --stop-at 3 --save-format $format || bad "half a run, $format"
	train half cpu 1 --resume auto --save-format native && same "gone on in memory, $format" a half ||
		bad "gone on in memory, $format"
	rm -rf half
	train half cpu 1 --stop-at 3 --save-format $format && train half nvme 1 --resume auto \
		--save-format native && same "gone on on a drive, $format" a half ||
		bad "gone on on a drive, $format"
	rm -rf half
done
if has_ranks; then
	train c nvme 2 && same 'two ranks' a c || bad 'two ranks'
	train d nvme 2 --stop-at 3 && train d nvme 1 --resume auto && same 'two ranks, then one' a d ||
		bad 'two ranks, then one'
fi

# ---- gone
[ -d drive ] && [ -z "$(ls -A drive)" ] && good || bad 'the folder is there, and empty'
: > said
"$ztrain" --model "$models/qwen3_tied" --config nvme.json --steps 100000 --seq 33 --exact > said 2>&1 &
pid=$!
for _ in $(seq 200); do [ "$(grep -c '^step' said)" -ge 2 ] && break; sleep 0.05; done
[ -z "$(ls -A drive)" ] && ls -l /proc/$pid/fd | grep -q "drive/zckpt-.*deleted" && good ||
	bad 'a file without a name'
kill -KILL $pid
wait $pid 2> /dev/null
[ -z "$(ls -A drive)" ] && good || bad 'nothing is left of a killed run'

# ---- memory
cat > config.json <<END
{
	"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
	"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 16,
	"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 2048,
	"rms_norm_eps": 1e-5, "max_position_embeddings": 512, "rope_theta": 10000.0,
	"tie_word_embeddings": false, "initializer_range": 0.02
}
END
held() { sed -n "s/^rank 0  held  $2 *\([0-9]*\) bytes.*/\1/p" "$1"; }
resident() { sed -n 's/^rank 0 .*resident peak  \([0-9]*\) bytes (VmHWM)/\1/p' "$1"; }
for device in cpu nvme; do
	"$ztrain" --model config.json --config $device.json --steps 2 --seq 8 --counters -q \
		> $device.held 2>&1 || { cp $device.held said; bad "$device: counters"; }
done
if grep -q -e '^SAN=.*address' <<< "SAN=${SAN:-}" || grep -aq __asan_init "$ztrain"; then
	: a sanitizer has memory of its own
else
	less=$(($(held cpu.held 'host optimizer') - $(held nvme.held 'host optimizer')))
	fell=$(($(resident cpu.held) - $(resident nvme.held)))
	echo "held: $less bytes less, VmHWM: $fell bytes less" > said
	cat said
	[ $less -gt 150000000 ] && [ $fell -gt $((less - less / 10)) ] && good || bad 'memory falls'
fi

# ---- full
if unshare -rm true 2> /dev/null; then
	mkdir -p small
	sed "s|$PWD/drive|$PWD/small|" nvme.json > small.json
	unshare -rm sh -c 'mount -t tmpfs -o size=1m none small && exec "$@"' sh \
		"$ztrain" --model config.json --config small.json --steps 1 --seq 8 > said 2>&1
	{ [ $? = 1 ] && grep -Eq "this rank's optimizer states need [0-9]+ bytes there, and [0-9]+ are free" said &&
		! grep -q '^step' said; } && good || bad 'a drive that is too small'
	grep -q "$PWD/small" said && good || bad 'its name'
else
	echo 'no file system of our own here: a full drive is left to test_nvme'
fi

# ---- refused
sed "s|$PWD/drive|$PWD/no/where|" nvme.json > odd.json
"$ztrain" --model "$models/qwen3_tied" --config odd.json --steps 1 --seq 33 > said 2>&1
{ [ $? = 1 ] && grep -q "no/where: cannot create: No such file" said; } && good || bad 'a folder that cannot be'

finish
