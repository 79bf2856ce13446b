# A run that begins with weights in another order than its own trains on nonsense, with no message.
step=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w3/ckpt
zckpt convert -q --dtype keep --tied drop "$step" model.safetensors
# the order that the step has, which safetensors does not keep
zckpt map --all "$step" | awk '$NF == "trainable" { print $1 }' > order
wc -l < order
shard() { zckpt shard -q --lr 1e-3 --order order --buffer pos,seen,table,flag,norm.ema "$@"; }
zckpt digest model.safetensors | grep ' weight ' > want
for stage in 1 2 3 bf16; do
	shard model.safetensors out-$stage --world 4 --stage $stage
	zckpt digest out-$stage | grep ' weight ' | cmp - want && echo "stage $stage: the same weights"
	zckpt inspect out-$stage | sed -n '/^format/p; /^step/p; /^master/p; /^exp_avg/p'
done
# as many groups as asked for, the dtype that is asked for
shard model.safetensors two --world 7 --stage 2 --groups decay --dtype fp16
zckpt inspect two | sed -n '/^weight/p; /^optimizer groups/,/^$/p'
# frozen parameters are no part of the optimizer
grep -v emb order > less
zckpt shard -q --lr 1 --order less --buffer pos,seen,table,flag,norm.ema --frozen 'emb*' model.safetensors \
	frozen --world 2 --stage 3
zckpt inspect frozen | sed -n '/^trainable/p; /^frozen/p'
ls out-3 out-3/global_step0
# a step as the source says itself what its buffers are
zckpt shard -q --lr 1e-3 --order order "$step" again --world 2 --stage 3
zckpt digest again | grep ' weight ' | cmp - want && echo "from a step: the same weights"
