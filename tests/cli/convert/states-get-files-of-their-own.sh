# --state writes a file per state, named after it, in the stored type.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
zckpt convert -q --state all "$run" all
zckpt convert -q --state master,exp_avg "$run" two
ls all two
for state in master exp_avg exp_avg_sq weight; do
	zckpt digest --state $state "$run" | sed '$d; s/ [^ ]* / /' > step
	zckpt digest all/$state.safetensors | sed '$d; s/ [^ ]* / /' | cmp step - &&
		echo "$state: as in the step"
done
zckpt convert -q --state moment "$run" none 2> err
echo "unknown state: exit $?"
test -e none || echo 'and nothing is written'
echo '-- weights in shards: the folder is a model, and what is not read of it is named'
zckpt convert -q --state all --max-shard-size 2kB "$FIXTURES/deepspeed/ds0.19.8-z3-bf16-w2-lora/ckpt" shards
ls shards && zckpt verify --full shards 2>&1
