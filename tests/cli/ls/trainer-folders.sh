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
