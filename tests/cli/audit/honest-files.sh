# Files that torch, transformers, Lightning, accelerate, PEFT, FSDP1 and FSDP2 wrote: neither audit
# nor doctor accuses one of them. torch itself writes getattr(ShardedTensor, 'ProcessGroupState').
accused='UNSAFE|somebody may|do not load|refused name|FILE_DAMAGED|CORRUPT|not be read to its end'
zckpt audit -q "$FIXTURES/honest"; echo "audit of all: exit $?"
find "$FIXTURES/honest" -type f | sort > files
while read -r file; do
	for verb in audit doctor; do
		zckpt $verb "$file" 2>&1 | grep -E "$accused"
	done
done < files
echo 'no file is accused'
zckpt audit "$FIXTURES"/honest/fsdp/t2.1-fsdp1-verl-w4/model_* | grep -v "^ *torch"
for step in "$FIXTURES"/deepspeed/ds0.5.10-z3-fp32-w2 "$FIXTURES"/deepspeed/ds0.19.8-z*-bf16-w2; do
	zckpt audit -q "$step/ckpt" || echo "$step"
	zckpt doctor "$step/ckpt" | grep -E "$accused"
done
echo 'nor is a step'
