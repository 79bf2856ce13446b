# Things that are no checkpoint, or not yet, or not this folder.
DS=$FIXTURES/deepspeed
look() { zckpt doctor "$@" 2>&1; echo "exit $?"; echo; }
echo '* nothing there'; look gone
echo '* an empty folder'; mkdir empty; look empty
echo '* pointers of git-lfs'
mkdir hub && printf 'version https://git-lfs.github.com/spec/v1\nsize 5\n' > hub/model.safetensors
cp hub/model.safetensors hub/pytorch_model.bin
look hub/model.safetensors; look hub
echo '* left by a killed run'; mkdir out.safetensors.zckpt-partial
look out.safetensors.zckpt-partial; look out.safetensors
echo '* too high'; mkdir -p up/there && cp -r "$DS/ds0.19.8-z2-bf16-w2/ckpt" up/there/run; look up
echo '* too deep'
cp -r "$DS/ds0.19.8-z2-bf16-w2-uci/universal" uni
zckpt doctor uni/global_step3_universal/zero/pos | sed "s|$PWD|.|"
echo '* remains of a copy'
cp -r up/there/run copy && chmod -R u+w copy && cp copy/latest copy/global_step3/x.part && look copy
echo '* weights that were not gathered, with and without the step'
mkdir -p trainer && cp -r "$DS/ds0.19.8-z3-bf16-w2/ckpt" trainer/checkpoint-3
printf '\130\000\000\000\000\000\000\000{"a":{"dtype":"BF16","shape":[0],"data_offsets":[0,0]}}                                 ' > trainer/checkpoint-3/model.safetensors
cp trainer/checkpoint-3/model.safetensors alone.safetensors
look trainer/checkpoint-3/model.safetensors; look alone.safetensors
echo '* the same beside a step that no latest names, in the folder that is given, or in the one above'
mkdir -p bare/weights && cp -r "$DS/ds0.19.8-z3-bf16-w2/ckpt/global_step3" bare
cp alone.safetensors bare/weights/model.safetensors
zckpt doctor bare/weights | tail -1; mv bare/weights/model.safetensors bare; zckpt doctor bare | tail -1
zckpt inspect -q trainer/checkpoint-3/model.safetensors > text && zckpt inspect trainer/checkpoint-3/model.safetensors | tail -1
eval "$(zckpt doctor trainer/checkpoint-3/model.safetensors | sed -n 's/.*: \(zckpt convert .*\)/\1/p') -q" && echo 'it was run:' && ls model.safetensors
echo '* a text, a folder of texts'; echo text > notes.txt; look notes.txt
mkdir texts && cp notes.txt texts; look texts
look; look a b
