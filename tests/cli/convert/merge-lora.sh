# --merge-lora: W + alpha / r B A, by hand: W = [1 2; 3 4; 5 6], A = [1 2], B = [1; 2; 3] of r = 1
# and alpha = 2 give [3 6; 7 12; 11 18].  Sizes that do not fit are refused with both.
f32() {
	for x in "$@"; do
		case $x in
		0) printf '\0\0\0\0' ;; 1) printf '\0\0\200\077' ;; 2) printf '\0\0\0\100' ;;
		3) printf '\0\0\100\100' ;; 4) printf '\0\0\200\100' ;; 5) printf '\0\0\240\100' ;;
		6) printf '\0\0\300\100' ;;
		esac
	done
}
# FILE NAME SHAPE VALUES...: one tensor
file() {
	out=$1 name=$2 shape=$3
	shift 3
	header="{\"$name\":{\"dtype\":\"F32\",\"shape\":$shape,\"data_offsets\":[0,$(($# * 4))]}}"
	{ printf "\\$(printf %03o ${#header})\0\0\0\0\0\0\0"; printf %s "$header"; f32 "$@"; } > "$out"
}
# DIR A B: an adapter of x.fc
adapter() {
	mkdir "$1"
	a="{\"dtype\":\"F32\",\"shape\":$2,\"data_offsets\":[0,8]}"
	b="{\"dtype\":\"F32\",\"shape\":$3,\"data_offsets\":[8,20]}"
	p=base_model.model.x.fc.lora_
	header="{\"${p}A.weight\":$a,\"${p}B.weight\":$b}   "
	{ printf "\\$(printf %03o ${#header})\0\0\0\0\0\0\0"; printf %s "$header"; f32 1 2 1 2 3; } \
		> "$1/adapter_model.safetensors"
	echo '{"peft_type": "LORA", "r": 1, "lora_alpha": 2}' > "$1/adapter_config.json"
}
mkdir base && file base/model.safetensors x.fc.weight '[3,2]' 1 2 3 4 5 6
echo '{"model_type": "x", "dtype": "float32"}' > base/config.json
echo '{}' > base/tokenizer.json
adapter lora '[1,2]' '[3,1]'
zckpt convert --merge-lora base lora merged 2>&1 | sed 's/^zckpt: read .*/zckpt: read .../'
ls merged
zckpt cat --to raw merged x.fc.weight | od -An -tf4 | tr -s ' '
zckpt verify -q --full merged && echo whole
echo '* the type of the base, or another one; a file, a stream, threads and parts agree'
zckpt convert -q --merge-lora base --dtype bf16 lora m.safetensors && zckpt inspect --tensors m.safetensors | grep fc
zckpt convert -q --merge-lora base lora one.safetensors
zckpt convert -q --merge-lora base --no-sums lora s.safetensors
zckpt convert -q --merge-lora base lora - | cmp - s.safetensors && echo stream
for part in 2 1; do zckpt convert -q --merge-lora base --part $part/2 lora parts.safetensors; done
zckpt commit -q parts.safetensors && cmp one.safetensors parts.safetensors && echo parts
zckpt convert -q --merge-lora base --threads 1 lora t.safetensors && cmp one.safetensors t.safetensors && echo threads
echo '* alpha of the call, rsLoRA'
zckpt convert -q --merge-lora base --lora-alpha 1 lora half && zckpt cat --to raw half x.fc.weight | od -An -tf4 | tr -s ' '
echo '* stored as in x out'
mkdir conv && file conv/model.safetensors x.fc.weight '[2,3]' 1 2 3 4 5 6
zckpt convert -q --merge-lora conv lora flipped && zckpt cat --to raw flipped x.fc.weight | od -An -tf4 | tr -s ' '
echo '* refused'
mkdir small && file small/model.safetensors x.fc.weight '[2,2]' 1 2 3 4
zckpt convert --merge-lora small lora no
mkdir far && file far/model.safetensors y.weight '[2,2]' 1 2 3 4
zckpt convert --merge-lora far lora no
adapter odd '[1,2]' '[1,3]'
zckpt convert --merge-lora base odd no
for text in '"r": 4, "lora_alpha": 2' '"r": 1, "lora_alpha": 2, "use_dora": true' '"r": 1' \
	'"r": 1, "lora_alpha": 2, "init_lora_weights": "pissa"' \
	'"r": 1, "lora_alpha": 2, "alpha_pattern": {"x.[fg]c": 3}'; do
	echo "{\"peft_type\": \"LORA\", $text}" > lora/adapter_config.json
	zckpt convert --merge-lora base lora no
done
echo '{"peft_type": "IA3"}' > lora/adapter_config.json
zckpt convert --merge-lora base lora no
zckpt convert --merge-lora base missing no
zckpt convert --merge-lora base --state exp_avg lora no
zckpt convert --merge-lora base base no
ls
