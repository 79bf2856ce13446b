# The options of DeepSpeed's script do what they did there.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-twotags/ckpt
tag=$(ls "$run" | grep '^global_step' | sort | head -n 1)
zckpt convert -q -t "$tag" --max_shard_size 5GB --safe_serialization "$run" a
zckpt convert -q --tag="$tag" "$run" b
zckpt digest a > da; zckpt digest b | cmp da - && echo 'the same step'
zckpt convert -q "$run" c
zckpt digest c | cmp -s da - || echo 'not the latest one'
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-frozen/ckpt
zckpt convert -q --exclude_frozen_parameters "$run" d
zckpt convert -q "$run" e
zckpt digest d > dd; zckpt digest e > de
frozen=$(zckpt inspect "$run" | awk '$1 == "frozen" { print $2 }')
echo "$(($(wc -l < de) - $(wc -l < dd) - frozen)) besides the frozen ones"
test "$frozen" -gt 0 && echo 'there are frozen ones'
zckpt convert -d "$run" f > out 2>&1; echo "-d: exit $?"
