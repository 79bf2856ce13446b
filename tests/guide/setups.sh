# shellcheck shell=bash disable=SC2154
# setups.sh -- read by test_guide.sh: the folders that pages speak of, by the words after 'setup:'.
#
#   deepspeed/CASE as DIR      a folder that DeepSpeed saved to
#   converted CASE as FILE     what zero_to_fp32.py made of it
#   export DIR as FILE         its weights
#   trainer CASE as DIR        an output folder of transformers' Trainer, with checkpoint-N in it
#   plain_trainer NAME as DIR  of one without DeepSpeed: checkpoint-3
#   llama_factory CASE as DIR  of LLaMA-Factory
#   accelerate CASE as DIR     of accelerator.save_state()
#   nodes CASE as A B          each node kept the files of its own ranks
#   model NAME as DIR          a Hugging Face model
#   tokens as FILE             rows to train on
#   offloaded/CASE as DIR      the same, with states on NVMe
#   fsdp/CASE as DIR           the folder that a case of FSDP wrote
#   hostile as FILE            a pickle that would run a program
#   placeholders as FILE       a model of empty tensors, as ZeRO-3 saves it without gathering
#   peft as DIR                a step of stage 3 of 2 ranks whose adapter has PEFT's names
#   vision as DIR              a small Qwen2.5-VL, as transformers saves it
#   peft_base as DIR           the base of that run, a folder
#   cut FILE                   cut a file off in the middle
#   flip FILE                  flip a bit in the middle of it
#   remove PATTERN...          files that were lost
#   move A B
#   text WORDS... as FILE      a file of one line
#   fresh                      empty the folder; nothing of the setups before stays
writable() { chmod -R u+w "$@"; }
setup_converted() { cp "$steps/$1/expected_fp32.safetensors" "$3"; }
setup_export() { zckpt convert -q "$1" "$3"; }
setup_trainer() { hf_trainer "$3" "$1" && writable "$3"; }
setup_plain_trainer() { mkdir -p "$3" && cp -r "$fixtures/trainer/$1/ckpt" "$3/checkpoint-3" && writable "$3"; }
setup_llama_factory() { mkdir -p "$(dirname "$3")" && llama_factory "$3" "$1" && writable "$3"; }
setup_accelerate() { mkdir -p "$(dirname "$3")" && accelerate_state "$3" "$1" && writable "$3"; }
setup_nodes() { two_nodes "$1" "$3" "$4" && writable "$3" "$4"; }
setup_model() { cp -r "$fixtures/model/models/$1" "$3" && writable "$3"; }
setup_tokens() { cp "$fixtures/model/train/data.safetensors" "$2"; }
setup_hostile() { cp "$fixtures/formats/pickle/hostile-os.system.pt" "$2"; }
setup_placeholders() {
	local header='{"a.weight":{"dtype":"BF16","shape":[0],"data_offsets":[0,0]},"b.weight":{"dtype":"BF16","shape":[0],"data_offsets":[0,0]}}'
	# shellcheck disable=SC2059
	{ printf "\\$(printf '%03o' ${#header})\\0\\0\\0\\0\\0\\0\\0"; printf %s "$header"; } > "$2"
}
setup_peft() {
	local case=$steps/ds0.19.8-z3-bf16-w2-lora/ckpt flags=() pattern
	zckpt convert -q --rename 'lora_A=lora_A.default.weight' --rename 'lora_B=lora_B.default.weight' \
		--rename .base.=.base_layer. \
		--tied drop "$case" peft.safetensors || return 1
	for pattern in '*.ln?.*' '*.base_layer.*' 'emb*' 'norm*' '*.out.*' '*.down.*'; do flags+=(--frozen "$pattern"); done
	zckpt map --all peft.safetensors | sed -n 's/^\([^ ]*lora[^ ]*\) .*/\1/p' > peft.order
	zckpt shard -q peft.safetensors "$2" --world 2 --stage 3 --lr 1e-4 --dtype bf16 --order peft.order "${flags[@]}" &&
		rm peft.safetensors peft.order
}
# The language model is a fixture; of the tower there is an element of each tensor.
setup_vision() {
	local dir=$2 json='' at=0 name n tower='patch_embed.proj.weight blocks.0.attn.qkv.weight merger.ln_q.weight
		merger.mlp.0.weight merger.mlp.2.weight'
	mkdir -p "$dir" && zckpt convert -q "$fixtures/model/models/qwen25" "$dir/model-00001-of-00002.safetensors" || return 1
	for name in $tower; do
		json="$json,\"visual.$name\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[$at,$((at + 4))]}"
		at=$((at + 4))
	done
	json="{${json#,}}" n=${#json}
	# shellcheck disable=SC2059
	{ printf "\\$(printf %o $((n % 256)))\\$(printf %o $((n / 256)))\0\0\0\0\0\0%s" "$json"
	  head -c $at /dev/zero; } > "$dir/model-00002-of-00002.safetensors"
	{
		printf '{"metadata": {"total_size": 500000}, "weight_map": {'
		zckpt digest "$dir/model-00001-of-00002.safetensors" |
			sed '$d; s/^[^ ]* [^ ]* \(.*\)/"\1": "model-00001-of-00002.safetensors",/'
		printf '"visual.%s": "model-00002-of-00002.safetensors",' $tower | sed 's/,$//'
		echo '}}'
	} > "$dir/model.safetensors.index.json"
	sed -e 's/Qwen2ForCausalLM/Qwen2_5_VLForConditionalGeneration/' -e 's/"model_type": "qwen2"/"model_type": "qwen2_5_vl"/' \
		-e '1s/{/{ "vision_config": {"depth": 1},/' "$fixtures/model/models/qwen25/config.json" > "$dir/config.json"
	cp "$fixtures/model/train/data.safetensors" .
}
setup_peft_base() {
	zckpt convert -q --only frozen --rename .base.=. --tied drop \
		"$steps/ds0.19.8-z3-bf16-w2-lora/ckpt" "$2"
}
setup_move() { mv "$1" "$2"; }
setup_cut() { truncate -s $(($(wc -c < "$1") / 2)) "$1"; }
setup_flip() {
	local at byte
	at=$(($(wc -c < "$1") / 2))
	byte=$(od -An -tu1 -j $at -N 1 "$1" | tr -d ' ')
	# shellcheck disable=SC2059
	printf "\\$(printf '%03o' $((byte ^ 64)))" | dd of="$1" bs=1 seek=$at conv=notrunc status=none
}
# shellcheck disable=SC2086
setup_remove() { eval "rm -r $*"; }
setup_text() {
	local file=${!#}
	mkdir -p "$(dirname "$file")"
	echo "${*:1:$#-2}" > "$file"
}
# deepspeed/CASE has its case in the first word
setup_one() {
	set -f
	# shellcheck disable=SC2086
	set -- $1
	set +f
	case $1 in
	deepspeed/* | fsdp/* | parallel/* | offloaded/*) set -- "${1%%/*}" "${1#*/}" "${@:2}" ;;
	esac
	"setup_$1" "${@:2}" > "$work/setup" 2>&1 || { fails "setup: $*"; cat "$work/setup"; }
}
setup_fsdp() { mkdir -p "$(dirname "$3")" && cp -r "$fixtures/fsdp/$1/ckpt" "$3" && writable "$3"; }
# parallel/CASE as RUN: and beside it the model's folder, "model", if the case has its configuration
setup_parallel() {
	mkdir -p "$(dirname "$3")" && cp -r "$fixtures/parallel/$1/ckpt" "$3" && writable "$3" || return 1
	[ ! -e "$fixtures/parallel/$1/config.json" ] ||
		{ mkdir -p "$(dirname "$3")/model" && cp "$fixtures/parallel/$1/config.json" "$(dirname "$3")/model"; }
}
setup_offloaded() { setup_deepspeed "$@" && mkdir "$3/global_step3/offloaded_tensors"; }
setup_deepspeed() { mkdir -p "$(dirname "$3")" && cp -r "$steps/$1/ckpt" "$3" && writable "$3"; }
# library: libckpt as 'make install' leaves it, for programs of the pages
library() {
	local from
	[ ! -e "$work/lib/libckpt.so.0" ] || return 0
	[ -e "$build/libckpt.so" ] && ! ldd "$program" | grep -qE 'lib[at]san' || return 1
	case $build in *-address* | *-thread*) return 1 ;; esac
	mkdir -p "$work/lib/pkgconfig"
	from=$(find "$root" -maxdepth 2 -name libckpt.pc.in | head -n 1)
	ln -s "$(dirname "$(find "$root" -maxdepth 3 -name ckpt.h | head -n 1)")" "$work/include"
	sed -e "s|@PREFIX@|$work|; s|@LIBDIR@|$work/lib|; s|@VERSION@|0|; s| *@PACK_LIBS@||; /^Requires.private/d" "$from" > "$work/lib/pkgconfig/libckpt.pc"
	cp -P "$build"/libckpt.so* "$work/lib/"
	export PKG_CONFIG_PATH=$work/lib/pkgconfig LD_LIBRARY_PATH=$work/lib
}
