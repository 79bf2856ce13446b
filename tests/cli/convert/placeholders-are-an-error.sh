# A model file that ZeRO stage 3 wrote without gathering holds tensors of shape [0]. Every
# verb says so; a model of empty tensors is never written with status 0.
DS=$FIXTURES/deepspeed
cp -r "$DS/ds0.19.8-z3-bf16-w2/ckpt" checkpoint-3 && chmod -R u+w checkpoint-3
# st FILE HEADER [BYTES]: a safetensors file of a header, padded, and zero bytes
st() {
	n=$(printf %s "$2" | wc -c)
	pad=$((512 - n))
	{ printf '\000\002\000\000\000\000\000\000%s%*s' "$2" $pad ''
	  head -c "${3:-0}" /dev/zero; } > "$1"
}
e() { printf '"%s":{"dtype":"BF16","shape":[0],"data_offsets":[%s,%s]}' "$1" "${2:-0}" "${2:-0}"; }
m() { printf '"%s":{"dtype":"F32","shape":[2,2],"data_offsets":[%s,%s]}' "$1" "$2" $(($2 + 16)); }
try() { echo "* $*"; zckpt "$@" > out 2> err; echo "exit $?"; grep -h PLACEHOLDERS_ONLY out err | head -1; }
M=checkpoint-3/model.safetensors
st $M "{$(e a.weight),$(e b.weight),$(e c.weight)}"
try convert $M made.safetensors
tail -1 err
try convert --dry-run $M made.safetensors
try verify $M
try inspect $M
try doctor $M
try digest $M
try diff $M $M
try cat $M a.weight
try shard $M made --world 2 --lr 1e-3 --stage 2
try reshard --world 2 $M made
try pack $M made.tar.zst
ls -d made* 2> /dev/null
echo '* norms and biases are full, matrices are not'
st norms.safetensors "{$(e a.weight 8),$(e b.weight 8),\"n.weight\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}" 8
try convert norms.safetensors made.safetensors
mkdir hub && cp norms.safetensors hub/model.safetensors
try verify hub
echo '* it is the user who says otherwise'
zckpt convert -q --as-warning PLACEHOLDERS_ONLY norms.safetensors kept.safetensors 2> /dev/null; echo "exit $?"
zckpt convert -q --as-warning PLACEHOLDERS_ONLY norms.safetensors kept.pt 2> /dev/null
try verify kept.pt
cp kept.pt hub/pytorch_model.bin && rm hub/model.safetensors && try verify hub
echo '* a few empty ones among full ones'
st few.safetensors "{$(m a 0),$(m b 16),$(m c 32),$(m d 48),$(e x 64)}" 64
zckpt verify few.safetensors; echo "exit $?"
zckpt convert -q few.safetensors few2.safetensors; echo "exit $?"
echo '* an honest empty tensor of integers'
st ints.safetensors '{"g_idx":{"dtype":"I32","shape":[0],"data_offsets":[0,0]}}'
zckpt verify -q ints.safetensors; echo "exit $?"
echo '* doctor looks beside the step'
zckpt doctor checkpoint-3; echo "exit $?"
mkdir up && mv checkpoint-3 up && zckpt doctor up | grep -A 1 PLACEHOLDERS
zckpt doctor up/checkpoint-3/global_step3 | grep -A 1 PLACEHOLDERS
eval "$(zckpt doctor up | sed -n 's/.*next: \(zckpt convert .*\)/\1/p') -q" && ls model.safetensors
