# A run of Megatron-Core that begins with weights in other rows than its own trains on nonsense.
case=$FIXTURES/parallel
for c in mc0.16.1-llama-tp2 mc0.16.1-qwen2-pp2-dp2-tied mc0.16.1-qwen3-tp2-pp2 mc0.16.1-mixtral-ep2 \
	mc0.16.1-qwen3moe-tp2-ep2 mc0.16.1-qwen3moe-freq; do
	tp=$(sed -n 's/^ "tp": \([0-9]*\),$/\1/p' "$case/$c/case.json")
	zckpt convert -q --dtype bf16 --model-config "$case/$c/config.json" "$case/$c/ckpt" $c-hf 2> err || cat err
	cp "$case/$c/config.json" $c-hf
	zckpt shard -q --to megatron --tp $tp --vocab-divisible 16 $c-hf $c-mg
	zckpt verify -q --full $c-mg && cat $c-mg/latest_checkpointed_iteration.txt && echo
	# Megatron's own tensors; rows of padding are of no model
	zckpt digest -q --naming native "$case/$c/ckpt" 2> err | grep ' weight ' | grep -v 'word_emb\|output_l' > own
	zckpt digest -q --naming native $c-mg 2> err | grep ' weight ' | grep -v 'word_emb\|output_l' | cmp - own &&
		echo "$c: $(wc -l < own) tensors as Megatron-Core wrote them"
	zckpt digest -q $c-hf | grep ' weight ' > hf
	zckpt digest -q $c-mg 2> err | grep ' weight ' | cmp - hf && echo "$c: $(wc -l < hf) tensors as before"
done
c=mc0.16.1-llama-tp2
ls $c-mg/release
# the padding repeats the last row
zckpt cat -q --to text --naming native $c-mg 'embedding.word_embeddings.weight[36:64]' 2> err |
	sort | uniq -c | awk '{ print $1, "equal rows" }'
# another type, the usual padding, and what is refused
zckpt shard -q --to megatron --dtype fp32 $c-hf wide && zckpt inspect wide 2> err | grep '^weight'
try() { zckpt shard -q --to megatron "$@" 2> err > /dev/null; echo "exit $?: $*"; head -n 2 err; }
try $c-hf
try --world 4 --lr 1e-5 $c-hf out
try --tp 0 $c-hf out
try --vocab-divisible 0 $c-hf out
# the release's name is not the caller's: another destination or --force helps, --new-tag does not
try $c-hf $c-mg
mkdir -p run odd/release && cp -r $case/$c/ckpt/. run && touch odd/release/notes
try $c-hf run
try --force $c-hf odd
try --force $c-hf run && ls run && cat run/latest_checkpointed_iteration.txt && echo
zckpt shard -q --tp 2 $c-hf out 2>&1
zckpt convert -q --exclude 'model.norm.*' $c-hf less 2> err
cp $c-hf/config.json less; try less out
sed 's/"vocab_size": 37/"vocab_size": 38/' $c-hf/config.json > more.json
try --config more.json $c-hf out
sed 's/LlamaForCausalLM/PhiForCausalLM/' $c-hf/config.json > phi.json
try --config phi.json $c-hf out
try --config no.json $c-hf out
rm $c-hf/config.json; try $c-hf out
ls -d out 2> err || echo nothing is left
