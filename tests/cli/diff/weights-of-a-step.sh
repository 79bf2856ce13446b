# A step against files of its weights: states of another name, types that are wider.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
zckpt convert -q "$run" master.safetensors
zckpt convert -q --dtype keep "$run" keep.safetensors
zckpt convert -q "$run" hf
zckpt convert -q "$run" model.pt
zckpt diff "$run" keep.safetensors --state weight; echo "exit $?"
zckpt diff "$run" master.safetensors --state master=weight --only trainable; echo "exit $?"
zckpt diff hf model.pt; echo "exit $?"
zckpt diff "$run" master.safetensors --state weight --include 'odd.w*'; echo "exit $?"
zckpt diff "$run" master.safetensors --state weight --tolerance rel:0.00390625 | head -n 1
zckpt diff "$run" keep.safetensors > out; echo "exit $?"
head -n 1 out
