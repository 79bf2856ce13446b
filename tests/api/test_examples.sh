#!/bin/bash
# The programs of examples/ do what their first comments say, with files that DeepSpeed wrote; what
# they read, load, save and convert is what zckpt says of the same files.  If this fails, a user who
# begins with an example begins with a wrong one.  Skipped where they are not built.
set -u
cd "$(dirname "$0")/../.." || exit 1
examples=${ZCKPT_EXAMPLES:-$ZCKPT_BUILD/examples}
[ -x "$examples/read-range" ] || { echo "$examples/read-range is not built (make examples)" >&2; exit 77; }
zckpt=$ZCKPT
run=$ZCKPT_FIXTURES/deepspeed/ds0.19.8-z3-bf16-w2/ckpt
work=$(mktemp -d "${TMPDIR:-/tmp}/zckpt-examples.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
failed=0
bad() {
	echo "$*"
	failed=1
}

# read-range: nine digits, where cat has as few as read back to the same float (half an ulp)
for state in weight master exp_avg; do
	"$examples/read-range" "$run" emb.weight $state 12 24 > "$work/range" || bad "read-range $state: exit $?"
	"$zckpt" cat --state $state --dtype fp32 --to text "$run" 'emb.weight[1:3]' | tr ' ' '\n' > "$work/text"
	paste "$work/range" "$work/text" | awk '
		{ d = $1 - $2; d = d < 0 ? -d : d; m = $2 < 0 ? -$2 : $2; if (d > 6e-8 * m) exit 1; n++ }
		END { exit n != 24 }' || bad "read-range: emb.weight $state is not what cat prints"
done
"$examples/read-range" "$run" emb.weight exp_av 0 1 2> "$work/err" && bad 'read-range: there is no exp_av'
grep -q '^read-range: emb.weight: it has no state exp_av; it has .*exp_avg' "$work/err" || bad "$(cat "$work/err")"

# load-states: the shares of three ranks together are the states of all trainable tensors
"$zckpt" map --json "$run" > "$work/map" || bad 'map fails'
awk -F'"' '/"role": "trainable"/ { for (i = 1; i < NF; i++) if ($i == "name") { print $(i + 2); next } }' "$work/map" > "$work/names"
[ -s "$work/names" ] || bad 'map names no trainable tensor'
for rank in 0 1 2; do
	"$examples/load-states" "$run" $rank 3 "$work/share.$rank" > "$work/said" || bad "load-states $rank: exit $?"
	grep -q "^rank $rank of 3: [1-9][0-9]* ranges, $(stat -c %s "$work/share.$rank") bytes" "$work/said" ||
		bad "load-states says: $(cat "$work/said")"
done
at=(0 0 0)
while read -r name; do
	for state in master exp_avg exp_avg_sq; do
		"$zckpt" cat --state $state --dtype fp32 --to raw "$run" "$name" > "$work/want" || bad "cat $name: exit $?"
		n=$(($(stat -c %s "$work/want") / 4))
		: > "$work/got"
		for rank in 0 1 2; do
			bytes=$(((n * (rank + 1) / 3 - n * rank / 3) * 4))
			tail -c +$((at[rank] + 1)) "$work/share.$rank" | head -c $bytes >> "$work/got"
			at[rank]=$((at[rank] + bytes))
		done
		cmp -s "$work/want" "$work/got" || bad "load-states: $name $state is not what cat writes"
	done
done < "$work/names"
[ ${at[0]} = "$(stat -c %s "$work/share.0")" ] || bad 'load-states: a share has more than the tensors'

# save-step: two processes make one step, which is whole and holds what they put
"$examples/save-step" "$work/ROOT" 0 2 & first=$!
"$examples/save-step" "$work/ROOT" 1 2 || bad "save-step of rank 1: exit $?"
wait $first || bad "save-step of rank 0: exit $?"
"$zckpt" verify -q --full "$work/ROOT" || bad "the saved step is not whole"
[ "$("$zckpt" latest -q "$work/ROOT")" = "$work/ROOT/global_step1" ] || bad 'save-step does not name its step in latest'
for state in 'master 0' 'exp_avg 100' 'exp_avg_sq 200'; do
	set -- $state
	"$examples/read-range" "$work/ROOT" w "$1" 0 24 | tr '\n' ' ' > "$work/got"
	seq "$2" $(($2 + 23)) | tr '\n' ' ' | cmp -s - "$work/got" || bad "save-step: $1 is $(cat "$work/got")"
done

# convert-progress: the weights that zckpt convert writes; and nothing, when it is stopped
"$examples/convert-progress" "$run" "$work/a.safetensors" > "$work/said" 2> "$work/err" || bad "convert-progress: exit $?"
[ "$(cat "$work/said")" = "$work/a.safetensors" ] || bad "convert-progress prints $(cat "$work/said")"
grep -q '100.0 %' "$work/err" || bad "convert-progress shows $(cat "$work/err")"
"$zckpt" convert -q --dtype bf16 "$run" "$work/b.safetensors" || bad 'convert fails'
"$zckpt" digest "$work/a.safetensors" > "$work/a.digest" && "$zckpt" digest "$work/b.safetensors" | cmp -s - "$work/a.digest" ||
	bad 'convert-progress writes other weights than zckpt convert'
truncate -s 64M "$work/data" && header='{"t":{"dtype":"F32","shape":[16777216],"data_offsets":[0,67108864]}}' &&
	printf "\\$(printf '%03o' ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header" | cat - "$work/data" > "$work/big.safetensors"
"$examples/convert-progress" "$work/big.safetensors" "$work/c.safetensors" 0 2> "$work/err"
[ $? = 1 ] || bad 'convert-progress is not stopped by its time limit'
grep -q 'stopped, nothing is written' "$work/err" || bad "convert-progress shows $(cat "$work/err")"
ls "$work"/c.safetensors* 2> /dev/null && bad 'a stopped conversion leaves files'
exit $failed
