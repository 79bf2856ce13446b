# --force replaces weights; what stays in the folder may be of another model, which is said.
run=$FIXTURES/deepspeed/ds0.19.8-z3-bf16-w2/ckpt
mkdir model && echo '{"model_type": "other", "dtype": "float16"}' > model/config.json && echo '{}' > model/tokenizer.json
zckpt convert "$run" model 2>&1 | sed -n '$p'
zckpt convert --dry-run "$run" model 2>&1 | sed -n '$p'
zckpt convert -f "$run" model 2>&1 | grep warning
cat model/config.json
zckpt convert --dtype bf16 "$run" . 2>&1
cd model && zckpt convert "$run" -o ../ 2>&1
ls ..
