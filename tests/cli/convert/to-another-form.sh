# convert writes weights. Who asks it for training state, or for a type by another option, gets the command.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt" run
try() { zckpt convert "$@" 2>&1; echo "exit $?"; }
for form in universal native deepspeed; do try --to $form run out; done
zckpt convert --to universal run out 2>&1 | sed -n 's/^zckpt: try: //p' > command
sh command > said 2>&1 && zckpt inspect out | grep ^path
try --to bf16 run out.safetensors
try --format gguf run out
try run
try
