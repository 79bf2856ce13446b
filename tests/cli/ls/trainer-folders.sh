# A Trainer's folders: the step in a checkpoint-N is listed, or its weights where it has none.
export TZ=UTC
DS=$FIXTURES/deepspeed
mkdir -p out/checkpoint-3 out/checkpoint-10 out/checkpoint-9
cp -r "$DS/ds0.19.8-z3-bf16-w2/ckpt/." out/checkpoint-3
cp -r "$DS/ds0.19.8-z3-bf16-w2/ckpt/global_step3" out/checkpoint-10/pytorch_model
zckpt convert -q "$DS/ds0.19.8-z2-bf16-w2/ckpt" out/checkpoint-9/model.safetensors
find out -type f -exec touch -d '2026-03-01 12:30' {} +
zckpt ls out
zckpt latest out
zckpt latest --valid out
# the name that ls prints, the path that a shell completes, and a number: set-latest knows them all
mkdir own && cd own
for n in 2 4; do
	mkdir -p out/checkpoint-$n
	cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt/global_step3" out/checkpoint-$n/global_step$n
	echo global_step$n > out/checkpoint-$n/latest
done
zckpt ls -q out | awk '{ print $NF }'
for tag in checkpoint-2/global_step2 out/checkpoint-2/ out/checkpoint-2/global_step2; do
	zckpt set-latest -q out "$tag" 2>&1; cat out/latest; echo
done
zckpt set-latest -q . out/checkpoint-4/global_step4 && cat out/latest; echo
for tag in 4 global_step2 checkpoint-9; do zckpt set-latest out $tag 2>&1; done
zckpt set-latest -q out checkpoint-2; zckpt latest --valid out 2>&1
zckpt prune --keep 4 out 2>&1 | head -n 1
zckpt prune -q --keep checkpoint-4/global_step4 out | awk '{ print $6, $7, $8 }'
