#!/bin/bash
# usage: test_ztrain_memory.sh
#
# Memory of ztrain as the system sees it (VmHWM of every rank), with mpirun at 1, 2 and 4 ranks and
# stages 0 to 3 of a model whose states dominate.  If this fails, ZeRO saves memory in a counter
# only.
#
#   held      parameters and optimizer are what the stage leaves a rank, to the byte
#   beside    VmHWM is what is held, and the program and its libraries: 8 to 40 MiB
#   falls     from world to world, and from stage 2 to 3, VmHWM falls as what is held falls (10 %);
#             what MPI has at that number of ranks is taken from a model of almost nothing
#   even      of the ranks of stages 1 to 3 the largest has at most 1.05 times the smallest
#   save      the buffer of a save is a kind of its own, and is there
#   plan      `zckpt plan --engine ztrain` has the same bytes of every kind, and VmHWM to 10 %
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/ztrain.sh"
need_ranks
if grep -q -e '^SAN=.*address' <<< "SAN=${SAN:-}" || grep -aq __asan_init "$ztrain"; then
	skip 'a sanitizer has memory of its own'
fi

layers=8 hidden=256 inter=1024 vocab=2048
model() {	# LAYERS HIDDEN INTER VOCAB
	cat <<END
{
	"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
	"hidden_size": $2, "intermediate_size": $3, "num_hidden_layers": $1,
	"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": $4,
	"rms_norm_eps": 1e-5, "max_position_embeddings": 512, "rope_theta": 10000.0,
	"tie_word_embeddings": false, "initializer_range": 0.02
}
END
}
model $layers $hidden $inter $vocab > config.json
model 1 64 64 64 > tiny.json
for stage in 0 1 2 3; do
	cat > "z$stage.json" <<END
{
	"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},
	"zero_optimization": {"stage": $stage}
}
END
done

declare -A ran
# run NAME STAGE RANKS MODEL OPTION...: what it says goes to NAME
run() {
	local name=$1 stage=$2 ranks=$3 model=$4
	ran[$name]="$*"
	shift 4
	"$mpirun" -n "$ranks" "$ztrain" --model "$model" --config "z$stage.json" \
		--steps 1 --seq 8 --counters -q "$@" > "$name" 2>&1 || { bad "$name"; cat "$name"; }
}
# held NAME KIND [RANK], resident NAME: most over ranks
held() { sed -n "s/^rank ${3:-0}  held  $2 *\([0-9]*\) bytes/\1/p" "$1"; }
resident() { sed -n 's/.*resident peak  \([0-9]*\) bytes (VmHWM)/\1/p' "$1" | sort -n; }
most() { resident "$1" | tail -n 1; }

# elements RANKS: of all blocks, each padded to a multiple of 4096 a rank
elements() {
	local unit=$((4096 * $1)) sum=0 n
	for n in $((vocab * hidden)) $((vocab * hidden + hidden)); do
		sum=$((sum + (n + unit - 1) / unit * unit))
	done
	n=$((4 * hidden * hidden + 3 * hidden * inter + 2 * hidden))
	echo $((sum + layers * ((n + unit - 1) / unit * unit)))
}

for ranks in 1 2 4; do
	run tiny-$ranks 0 $ranks tiny.json
done
for stage in 0 1 2 3; do
	for ranks in 1 2 4; do
		name=s$stage-$ranks
		run "$name" $stage $ranks config.json
		[ "$(resident "$name" | wc -l)" = $ranks ] && good || bad "$name: a rank is silent"
		n=$(elements $ranks)
		params=$((2 * n)) optimizer=$((12 * n))
		[ $stage = 3 ] && params=$((params / ranks))
		[ $stage = 0 ] || optimizer=$((optimizer / ranks))
		[ "$(held "$name" parameters)" = $params ] && good ||
			bad "$name: $(held "$name" parameters) bytes of parameters, not $params"
		[ "$(held "$name" optimizer)" = $optimizer ] && good ||
			bad "$name: $(held "$name" optimizer) bytes of optimizer, not $optimizer"
		beside=$((($(most "$name") - $(held "$name" total)) >> 20))
		[ $beside -ge 8 ] && [ $beside -le 40 ] && good || bad "$name: $beside MiB beside"
	done
done

# is_near A B: |A - B| is at most a tenth of B, and B is something
is_near() {
	awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(b > 8e6 && d * d <= b * b / 100) }'
}
near() {	# WHAT A B
	is_near "$2" "$3" && good || bad "$1: VmHWM falls by $2, and $3 bytes less are held"
}
# of_states NAME: VmHWM without what the same ranks have without a model
of_states() {
	local tiny=tiny-${1#*-}
	echo $(($(most "$1") - $(most "$tiny") + $(held "$tiny" total)))
}
# What MPI has in flight differs from run to run: up to three runs, of which one must be so.
falls() {
	local seen less try name
	for try in 1 2 3; do
		seen=$(($(of_states "$1") - $(of_states "$2")))
		less=$(($(held "$1" total) - $(held "$2" total)))
		is_near $seen $less && break
		[ $try = 3 ] && break
		for name in "$1" "$2" "tiny-${1#*-}" "tiny-${2#*-}"; do
			# shellcheck disable=SC2086 # words of a command
			run ${ran[$name]}
		done
	done
	near "$1 to $2" $seen $less
}
for stage in 1 2 3; do	# stage 0 cuts nothing
	falls s$stage-1 s$stage-2
	falls s$stage-2 s$stage-4
done
# Parameters alone are little of the model above: MPI's own memory, which goes with what happens to
# be in flight, would be a tenth of what they are.  So a deeper one.
model 32 $hidden $inter $vocab > deep.json
run d2-4 2 4 deep.json
run d3-4 3 4 deep.json
falls d2-4 d3-4
for name in s1-2 s1-4 s2-2 s2-4 s3-2 s3-4; do
	resident $name | awk '{ if (NR == 1) low = $1; high = $1 } END { exit !(high <= 1.05 * low) }' &&
		good || bad "$name: ranks have" $(resident $name)
done

run saved 3 4 config.json --save steps
[ "$(held saved 'save buffer')" -gt $((12 * $(elements 4) / 4)) ] && good || bad 'the save buffer'
near 'with and without a save' $(($(most saved) - $(most s3-4))) "$(held saved 'save buffer')"
[ "$(held s3-4 'save buffer')" = '' ] && good || bad 'a save buffer where nothing is saved'

# plan NAME STAGE RANKS SAVES: its terms, without the names of what is not counted
plan() {
	"$zckpt" plan --engine ztrain config.json --json --stage "$2" -n "$3" --seq 8 \
		--accumulation $((4 / $3)) > plan || { bad "plan of $1"; return; }
	grep -o '"name": "[^"]*", "bytes": [0-9]*' plan |
		sed 's/"name": "\(.*\)", "bytes": /\1=/' > terms
	sed -n "s/^rank 0  held  *\(.*[a-z]\) *\([0-9]*\) bytes/\1=\2/p" "$1" | sed 's/ *=/=/' |
		grep -v '^total=' > counted
	grep -v -e '^program' -e '^ranks=' -e "^${4:-save buffer}=" terms | sort > a
	sort counted > b
	cmp -s a b && good || { bad "plan of $1"; diff a b; }
	awk -F= -v seen="$(most "$1")" -v no="${4:-save buffer}" '
		$1 != no && $1 != "ranks" { sum += $2 }
		END { exit !(sum > 0.9 * seen && sum < 1.1 * seen) }' terms && good ||
		bad "plan of $1: not within 10 % of $(most "$1")"
}
for stage in 0 1 2 3; do
	for ranks in 1 2 4; do
		plan s$stage-$ranks $stage $ranks
	done
done
plan saved 3 4 nothing

for name in tiny-? s?-? d?-? saved; do
	echo "$name held $(held $name total) resident" $(resident $name)
done
finish
