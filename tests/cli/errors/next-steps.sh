# The last line leads on: another step, the right folder, or what is true if nothing helps.
DS=$FIXTURES/deepspeed
two=$DS/ds0.19.8-z2-bf16-w2-twotags/ckpt
for n in 2 4; do
	mkdir -p out/checkpoint-$n
	cp -r "$two/global_step$n" out/checkpoint-$n
	printf 'global_step%s' $n > out/checkpoint-$n/latest
done
model=out/checkpoint-4/global_step4/mp_rank_00_model_states.pt
last() { zckpt "$@" 2>&1 | sed -n '$p'; }
echo '* an empty model file'
: > $model
zckpt convert out x 2>&1
last convert out/checkpoint-4 x
last inspect out
last verify out
last doctor out/checkpoint-4
echo '* a pointer of git-lfs'
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n' > $model
zckpt doctor out/checkpoint-4
zckpt convert out x 2>&1
echo '* the folder that lacks files, of two'
cp -r "$DS/ds0.19.8-z3-bf16-w8/ckpt" half; rm half/*/*_rank_[4-7]_*
last diff half "$DS/ds0.19.8-z3-bf16-w8/ckpt"
echo '* a step without files'
mkdir -p empty/global_step3; echo global_step3 > empty/latest
zckpt convert empty x 2>&1
zckpt doctor empty; echo "exit $?"
