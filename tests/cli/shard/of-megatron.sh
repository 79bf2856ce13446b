# A step of Megatron-Core can begin a run of DeepSpeed: its weights.  Who is sent from shard to
# reshard and back has no way to do it.
case=$FIXTURES/parallel/mc0.16.1-llama-w1
cp -r "$case/ckpt" run
try() { zckpt "$@" 2>&1 | grep -v -e '^zckpt: step' -e '^zckpt: read'; }
try reshard --world 2 run out
try shard --world 2 --stage 2 --lr 1e-5 run out
try shard --world 2 --stage 2 --lr 1e-5 --config "$case/config.json" run out
ls out 2> err || echo nothing is written
# the file that names the tensors orders them
try shard --world 2 --stage 2 --lr 1e-5 --model-config "$case/config.json" run out
try shard --world 2 --stage 2 --lr 1e-5 --model-config "$case" run again
diff -r out again && echo the same
zckpt digest -q out | grep ' weight ' > made
zckpt digest -q --model-config "$case/config.json" run | grep ' weight ' | cmp - made && echo 'the same weights'
