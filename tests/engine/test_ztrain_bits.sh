#!/bin/bash
# usage: test_ztrain_bits.sh
#
# One run of ztrain, in any layout: 1, 2, 4 and 8 ranks under mpirun, stages 0 to 3, one thread and
# two, with and without recomputation end with one digest, and have the same losses and norms on the
# way: in fp32, bf16 and fp16, tied and not.  If this fails, a run that was moved is another run, and
# docs/ztrain/bits.md promises too much.
#
# With 3, 5 and 7 ranks sums have another order: what is loaded is exact, losses and norms are those
# of one rank within rounding, and the program says so when it begins.
#
# A table, one line a model and precision.  Some of the runs, by ZCKPT_SEED; with ZCKPT_LONG=1 all.
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/ztrain.sh"
need_models
need_ranks
fixtures=${models%/models}
bad() {
	failed=$((failed + 1))
	echo "FAILED $*"
	grep -v '^ *-*$' said | sed 's/^/    /' | tail -n 12
}

# train FOLDER MODEL TYPE WORLD STAGE UNITS OPTION...: 'steps' gets losses and norms
train() {
	local folder=$1 model=$2 type=$3 world=$4 stage=$5 units=$6 extra=
	shift 6
	[ "$type" = fp32 ] || extra=", \"$type\": {\"enabled\": true}"
	[ "$type" != fp16 ] || extra=", \"fp16\": {\"enabled\": true, \"initial_scale_power\": 12, \"loss_scale_window\": 1}"
	echo "{\"train_batch_size\": $units, \"train_micro_batch_size_per_gpu\": 1, \"gradient_clipping\": 1.0," \
		"\"zero_optimization\": {\"stage\": $stage}$extra}" > z.json
	set -- "$ztrain" --model "$fixtures/models/$model" --config z.json --seq 33 --lr 3e-3 \
		--data "$fixtures/train/data.safetensors" --save "$folder" --exact "$@"
	[ "$world" = 1 ] || set -- "$mpirun" -n "$world" "$@"
	timeout -k 5 200 "$@" > said 2>&1 < /dev/null || return
	sed -n '/^step/p' said > steps
}
rows=$(train probe llama3 fp32 1 0 8 --steps 1 || cat said)
if [ -n "$rows" ]; then
	echo "$rows"
	exit 1
fi

runs() {
	local world stage threads recompute
	for world in 1 2 4 8; do
		for stage in 0 1 2 3; do
			for threads in 1 2; do
				for recompute in '' --recompute; do
					echo "$world $stage --threads $threads $recompute"
				done
			done
		done
	done
}
RANDOM=${ZCKPT_SEED:-$(date +%j)}
[ "${ZCKPT_LONG:-0}" != 0 ] || echo "seed ${ZCKPT_SEED:-$(date +%j)}"
# A few: each number of ranks once, and stage 3 among them.
some() {
	if [ "${ZCKPT_LONG:-0}" != 0 ]; then
		runs
		return
	fi
	local world
	for world in 2 4 8; do
		runs | sed -n "/^$world $1 /p" | sed -n "$((RANDOM % 4 + 1))p"
		set -- $(($1 % 3 + 1))
	done
}
first=0
echo '| model | precision | runs | same bits | digest |'
echo '| --- | --- | ---: | ---: | --- |'
for type in fp32 bf16 fp16; do
	for model in llama3 qwen3_tied; do
		rm -rf base
		train base $model $type 1 0 8 --steps 3 || { bad "$model in $type: one rank"; continue; }
		mv steps want
		digest=$(digest base)
		first=$((first % 3 + 1)) n=1 same=1
		while read -r world stage options; do
			rm -rf other
			n=$((n + 1))
			# shellcheck disable=SC2086
			if train other $model $type "$world" "$stage" 8 --steps 3 $options &&
				cmp -s want steps && [ "$(digest other)" = "$digest" ]; then
				good
				same=$((same + 1))
			else
				bad "$model in $type: $world ranks at stage $stage, $options"
				diff want steps | head -n 4
			fi
		done < <(some $first)
		echo "| $model | $type | $n | $same | ${digest% root} |"
	done
done

# Loaded to the bit by any number of ranks, and then near.
train four qwen3_tied bf16 4 2 8 --steps 2 || bad '4 ranks'
digest=$(digest four)
train alone qwen3_tied fp32 1 0 105 --steps 3 || bad 'one rank of 105 units'
mv steps want
echo '| ranks | loaded to the bit | loss off by | norm off by, relative |'
echo '| ---: | --- | ---: | ---: |'
for world in 3 5 7; do
	rm -rf loaded odd
	exact=no
	# ends where it begins, and saves what it has
	if train loaded qwen3_tied bf16 $world 3 $((world * 2)) --steps 2 --resume four &&
		[ "$(digest loaded)" = "$digest" ]; then
		exact=yes
		good
	else
		bad "$world ranks load another state than 4 saved: $(digest loaded), not $digest"
	fi
	grep -q "resumed state is bit-identical; later steps" said && good || bad "$world ranks promise the bits of 4"
	train odd qwen3_tied fp32 $world 3 105 --steps 3 || bad "$world ranks"
	grep -q "bits: $world ranks is not a power of two" said && good || bad "$world ranks do not say that they sum otherwise"
	awk -v world=$world -v exact=$exact 'FNR == NR { loss[FNR] = $4; norm[FNR] = $8; next }
		{ a = $4 - loss[FNR]; b = $8 / norm[FNR] - 1; a = a < 0 ? -a : a; b = b < 0 ? -b : b
		  x = a > x ? a : x; y = b > y ? b : y; n++ }
		END { printf "| %d | %s | %.1e | %.1e |\n", world, exact, x, y
		      exit n != 3 || x > 2e-5 || y > 1e-5 }' want steps && good || bad "$world ranks are not near one"
done
finish
