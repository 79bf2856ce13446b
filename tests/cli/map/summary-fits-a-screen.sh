# Bytes of each rank and state, a line for ranks that have the same, never more than a screen; the sum of
# all shares is what the states take.
DS=$FIXTURES/deepspeed
zckpt map "$DS/ds0.19.8-z2-bf16-w2/ckpt"; echo "exit $?"
zckpt map "$DS/ds0.19.8-z3-bf16-w8/ckpt" --state master,exp_avg
zckpt reshard -q --world 200 "$DS/ds0.19.8-z3-bf16-w2/ckpt" wide 2> /dev/null
zckpt map wide > text; [ $(wc -l < text) -le 22 ] && head -n 1 text
zckpt map wide --json > json
grep -c '"rank": [0-9]*, "bytes": [0-9]*, "files": 2' json
echo '* no ranks: a line for each file'
zckpt convert -q --max-shard-size 6kB "$DS/ds0.19.8-z3-bf16-w2/ckpt" hf
zckpt map hf
zckpt map -q hf; echo "exit $?"
echo '* nothing belongs to a single rank; a file goes by its name'
zckpt map "$DS/ds0.19.8-z0-bf16-w2/ckpt" | sed -n '1p; 4,$p'
zckpt map "$PWD/hf/model-00001-of-00002.safetensors" 2> /dev/null | tail -n 1
