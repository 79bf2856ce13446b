#!/bin/bash
# usage: test_ztrain_packed.sh
#
# Packed rows: several documents in a row, attention that ends at their seams.  A run of them ends
# with the same bits on 1, 2 and 4 ranks, at every stage, with recomputation, and after a resume; it
# evaluates packed rows; what was asked for is said.  That the losses and gradients are those of
# transformers is judged by tests/interop/packed_cases.py.
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/ztrain.sh"
need_models

# 64 documents of 1 to 29 tokens, as JSON lines.
awk 'BEGIN { for (d = 0; d < 64; d++) {
	n = 1 + d * 11 % 29; printf "["
	for (i = 0; i < n; i++) printf "%s%d", i ? "," : "", (d * 7 + i * i * 3 + 1) % 97
	print "]" } }' > docs.jsonl

# train FOLDER WORLD STAGE OPTION...
train() {
	local folder=$1 world=$2 stage=$3
	shift 3
	echo "{\"train_batch_size\": 4, \"train_micro_batch_size_per_gpu\": 1," \
		"\"zero_optimization\": {\"stage\": $stage}}" > z.json
	set -- "$ztrain" --model "$models/qwen3_tied" --config z.json --data docs.jsonl --seq 33 \
		--pack-documents --lr 3e-3 --steps 6 --save "$folder" --exact "$@"
	[ "$world" = 1 ] || set -- "$mpirun" -n "$world" "$@"
	timeout -k 5 200 "$@" > said 2>&1 < /dev/null
}

train one 1 0 --eval docs.jsonl || bad 'a run of packed rows'
grep '^step' said > want
[ "$(wc -l < want)" = 6 ] && good || bad 'six steps'
has_text 'what it says' '32 rows of 33 tokens in docs.jsonl, packed: attention stops between documents'
sum=$(digest one)

train whole 1 0 --threads 2 --recompute || bad 'two threads'
[ "$(digest whole)" = "$sum" ] && good || bad 'two threads, recomputed: other bits'
train half 1 1 --stop-at 3 && train half 1 2 --resume half || bad 'stopped and resumed'
[ "$(digest half)" = "$sum" ] && good || bad 'stopped and resumed: other bits'

# Without seams it is another run; so is the same file in rows of its own.
"$ztrain" --model "$models/qwen3_tied" --data docs.jsonl --seq 33 --pack --lr 3e-3 --steps 6 \
	--micro-batch 4 --exact > said 2>&1
grep '^step' said | cmp -s - want && bad 'the seams change nothing' || good

# A resume must be of the same rows.
"$ztrain" --model "$models/qwen3_tied" --data docs.jsonl --seq 33 --pack --resume one --steps 8 \
	--micro-batch 4 > said 2>&1
[ $? != 0 ] && grep -q 'the state of the data: rows: 32 in the saved run, 28 now' said && good ||
	bad 'resumed with other rows'

if has_ranks; then
	for way in '2 1' '2 3' '4 2' '4 3'; do
		# shellcheck disable=SC2086
		train "${way// /-}" $way || bad "ranks and stage $way"
		[ "$(digest "${way// /-}")" = "$sum" ] && good || bad "ranks and stage $way: other bits"
	done
fi
finish
