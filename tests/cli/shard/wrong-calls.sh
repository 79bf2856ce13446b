# What is left out or wrong is said before anything is written.
step=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w3/ckpt
zckpt convert -q --dtype keep --tied drop "$step" model.safetensors
try() { zckpt shard -q "$@" 2> err > /dev/null; echo "exit $?: $*"; head -n 2 err; }
try model.safetensors out
try
try model.safetensors
try model.safetensors out --world 2
try model.safetensors out --gpus 2 --stage 3
try model.safetensors out --lr 1e-4 --ds-config ds.json
try model.safetensors out --world 0
try model.safetensors out --world 2 --lr 1e-3
try model.safetensors out --world 2 --lr fast --stage 2
try model.safetensors out --world 2 --lr 1e-3 --stage 2 --betas 0.9
try model.safetensors out --world 2 --lr 1e-3 --stage 2 --betas 0.9,1
try model.safetensors out --world 2 --lr 1e-3 --stage 0
try model.safetensors out --world 2 --lr 1e-3 --stage 2 --dtype int8
echo '{"model_type": "unheard", "num_hidden_layers": 2}' > config.json
try model.safetensors out --world 2 --lr 1e-3 --stage 2 --buffer seen,table,flag
echo '{"model_type": "llama", "num_hidden_layers": 2}' > config.json
try model.safetensors out --world 2 --lr 1e-3 --stage 2 --buffer seen,table,flag
try model.safetensors out --world 2 --lr 1e-3 --stage 2
try model.safetensors out --world 2 --lr 1e-3 --stage 2 --frozen 'nothing*'
printf 'emb.weight\nno.such\n' > order
try model.safetensors out --world 2 --lr 1e-3 --stage 2 --order order --buffer seen,table,flag
printf 'emb.weight\nemb.weight\n' > order
try model.safetensors out --world 2 --lr 1e-3 --stage 2 --order order --buffer seen,table,flag
printf 'emb.weight\n' > order
try model.safetensors out --world 2 --lr 1e-3 --stage 2 --order order --buffer seen,table,flag
echo '{"optimizer": {"type": "Lamb"}}' > ds.json
try model.safetensors out --world 2 --lr 1e-3 --stage 2 --order order --ds-config ds.json
rm config.json; try model.safetensors out --world 2 --lr 1e-3 --stage 2 --buffer seen,table,flag
ls
