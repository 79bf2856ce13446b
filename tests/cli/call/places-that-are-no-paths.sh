# A host, stdout as a device, swapped words, an unset variable, a file of another kind: what to type instead.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt" run
chmod -R u+w run
try() { echo "zckpt $*"; zckpt "$@" 2>&1; echo "exit $?"; }
try convert run user@host:/tmp/x.safetensors
try convert run user@host:m.pt
try reshard --world 1 run host:/data/run-on-1
try inspect user@host:run
try convert run /dev/stdout
try convert missing.safetensors run
try convert run ''
try inspect ''
zckpt convert run - 2>&1 > stream | grep '^zckpt: wrote'
: > is:a-file
try inspect is:a-file
echo text > README.md
try ls README.md
try latest run/global_step3/mp_rank_00_model_states.pt
try doctor nothing.safetensors.zckpt-partial
mkdir out.safetensors.zckpt-partial
try inspect out.safetensors
try doctor run run
zckpt convert -q run model
try ls model
mkdir several
cp -r run several/a; cp -r run several/b; printf GGUF > several/m.gguf
try inspect several
# a step and weights in one folder, without 'latest'
zckpt convert -q run run/pytorch_model.bin
rm run/latest
try convert --dry-run run x | sed "s/; .* are free there//"
try reshard --world 1 run x
