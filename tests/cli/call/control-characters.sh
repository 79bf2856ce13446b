# What a file says never reaches the terminal as it is: escape sequences of hostile files are printed
# as text, in every message; commands for odd names can be typed.
esc=$(printf '\033[31m')
seen() {
	"$@" > out 2> err; echo "$1 $2: exit $?"
	cat out err | LC_ALL=C grep -c "$(printf '\033')" | sed 's/^0$/clean/'
	LC_ALL=C grep -ho '[^ ]*x1b[^ ]*' out err | head -n 1
}
st() { { printf '\000\001\000\000\000\000\000\000%s%*s' "$2" $((256 - ${#2})) ''
	head -c 64 /dev/zero; } > "$1"; }
echo '* latest'; mkdir -p q/global_step1; printf 'x%sy' "$esc" > q/latest; seen zckpt inspect q
printf 'x\nzckpt: whole' > q/latest; zckpt inspect q 2>&1 | head -n 2 | cut -c 1-60
echo '* a type of safetensors'
st d.safetensors '{"a":{"dtype":"F\u001b[31m","shape":[1],"data_offsets":[0,4]}}'; seen zckpt inspect d.safetensors
echo '* weight_map'
mkdir hf; printf '{"metadata":{},"weight_map":{"a":"m\\u001b[31m.safetensors"}}' > hf/model.safetensors.index.json
seen zckpt verify hf
echo '* what a pickle calls'
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt/global_step3
printf '\200\002cos\033[31m\nsystem\nX\001\000\000\000x\205R.' > p.pkl; seen zckpt audit p.pkl
echo '* a name in a tar'
mkdir "t$esc" && cp "$run"/* "t$esc" && tar -cf t.tar "t$esc"; seen zckpt inspect t.tar; seen zckpt doctor t.tar
echo '* JSON keeps its own escapes'
zckpt inspect --json q 2> /dev/null | grep -o 'x.nzckpt' ; zckpt inspect --json d.safetensors 2> /dev/null | grep -c 'u001b'
echo '* a command that can be typed'
odd=$(printf 'nl\nx'); cp -r "$run" "$odd"
zckpt doctor "$odd" | sed -n 's/^next: .*: //p' > command; cat command
if command -v bash > /dev/null; then bash -c "$(cat command) -q" && ls model.safetensors; else echo model.safetensors; fi
echo '* ztrain'
seen ztrain --model "q$esc" --synthetic --steps 1
echo '* ztrain, texts of a configuration'
printf '{"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":8,"intermediate_size":8,
"num_hidden_layers":1,"num_attention_heads":1,"num_key_value_heads":1,"vocab_size":8,"rms_norm_eps":1e-5,
"rope_theta":1e4,"max_position_embeddings":8,"hidden_act":"silu","tie_word_embeddings":false}' > c.json
printf '{"train_micro_batch_size_per_gpu":1,"x\\u001b[31m":2,"optimizer":{"type":"A\\u001b[31m"}}' > ds.json
seen ztrain --model c.json --config ds.json --random --synthetic --steps 1
