# Answers that were missing: JSON where nothing is there, a tokenizer that is no pickle, and steps that are replaced because the call says so.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
for verb in latest ls; do
	zckpt $verb --json NOTHERE 2> /dev/null | grep -E '"(code|where)"'; done
echo '* a folder with a tokenizer'
mkdir tok && printf '\012\016\012\005<unk>' > tok/tokenizer.model && printf '\200\002N.' > tok/a.pkl
zckpt audit -q tok; echo "exit $?"
echo '* a step is replaced where it is named as the destination'
cp -r "$run" mine && chmod -R u+w mine
zckpt convert -q --force "$run" mine; echo "exit $?"
zckpt slim -q --moments --force "$run" mine && zckpt inspect -q mine | grep -c exp_avg
zckpt slim -q --moments --force mine mine; echo "exit $?"
echo '* -h of every program'
for p in "ztrain -h" "ztrain bench -h" "ztrain generate -h"; do $p | head -n 1; done
