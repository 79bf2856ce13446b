# Files of experts that are missing, exchanged or of another run are found and refused, each by its name.
P=$FIXTURES/parallel
moe=$P/ds0.19.8-moe-z2-bf16-w4-ep2/ckpt auto=$P/ds0.19.8-autoep-z2-bf16-w2-mixtral/ckpt
expert() { echo "$1/global_step2/layer_$2_expert_$3_mp_rank_00_model_states.pt"; }
swap() { mv "$1" swap && mv "$2" "$1" && mv swap "$2"; }
# both FOLDER: what verify says; convert refuses it
both() {
	zckpt verify "$1" 2>&1 | grep -v '^  ' | grep -v NOT_IN_CHECKPOINT
	zckpt convert -q "$1" out.safetensors 2>&1 | grep -c . > lines
	test -e out.safetensors && echo 'convert wrote it'
	rm -rf "$1" lines
}
echo '* one is missing; two that follow each other, of which one is damaged'
cp -r "$moe" one && rm "$(expert one 1 2)" && both one
cp -r "$moe" one && rm "$(expert one 1 2)" && truncate -s 900 "$(expert one 1 1)" && both one
echo '* all of a layer, all of all layers'
cp -r "$moe" layer && rm layer/global_step2/layer_1_expert_* && both layer
cp -r "$moe" all && rm all/global_step2/layer_?_expert_* && both all
echo '* two of a layer are exchanged'
cp -r "$moe" two && swap "$(expert two 0 1)" "$(expert two 0 3)" && both two
echo '* two of different layers'
cp -r "$moe" two && swap "$(expert two 0 1)" "$(expert two 1 1)" && both two
echo '* the first ones of two layers'
cp -r "$moe" two && swap "$(expert two 0 0)" "$(expert two 1 0)" && both two
echo '* all of two layers'
cp -r "$moe" two && for e in 0 1 2 3; do swap "$(expert two 0 $e)" "$(expert two 1 $e)"; done && both two
echo '* one is renamed, one is copied over another'
cp -r "$moe" name && mv "$(expert name 0 3)" "$(expert name 0 4)" && both name
cp -r "$moe" over && cp "$(expert over 0 0)" "$(expert over 0 2)" && both over
echo '* one is of a run of the same model, one of another model'
cp -r "$moe" run && cp "$(expert "$P/ds0.19.8-moe-z1-bf16-w4-ep4/ckpt" 0 2)" "$(expert run 0 2)" && both run
cp -r "$moe" model && cp "$(expert "$auto" 0 2)" "$(expert model 0 2)" && both model
echo '* AutoEP'
cp -r "$auto" one && rm "$(expert one 1 3)" && both one
cp -r "$auto" two && swap "$(expert two 0 1)" "$(expert two 0 2)" && both two
cp -r "$auto" two && swap "$(expert two 0 1)" "$(expert two 1 1)" && both two
cp -r "$auto" run && cp "$(expert "$P/ds0.19.8-autoep-z1-bf16-w4-qwen3moe/ckpt" 0 2)" "$(expert run 0 2)" && both run
