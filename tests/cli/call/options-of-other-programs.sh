# An option or a verb of another program, or with one dash: the call that was meant, ready to paste.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt" run
try() {
	zckpt "$@" > out 2>&1
	echo "exit $?: zckpt $*"
	sed 's/^/  /' out
}
try inspect --colour run
try inspect --colour always run
try convert -dtype bf16 run x.pt
try convert -force run x.pt
try convert --precision bf16 run x
try convert --torch_dtype=bf16 run x
try convert -q --dry-run --dtype torch.bfloat16 run x
try shard --learning-rate 1e-5 model x
try diff --rtol 1e-3 run run
try convert --overwrite run x
try convert -y run x
try convert --lazy_mode run x
try convert --base model run x
try convert --config model run x
try convert --tokenizer model run x
try convert --lora run x
try reshard -q --zero 2 run x
try prune --dry-run --keep-last 1 run
try prune --last 2 run
try verify --deep run
try convert --format pt run x
try convert --to hf run x.pt
try zero_to_fp32.py run x
try tensors run
try keys run
try du run
try size run
try version
try gguf run
try explain RANK_FILE_MISING
try explain CKPT_E_FORMAT
try --quiet inspect run
zckpt convert --all -h > first; zckpt convert -h --all | diff - first && echo 'the same help'
test -e x || echo 'nothing is written'
