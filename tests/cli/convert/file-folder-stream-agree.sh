# One file, a folder, shards and a stream hold the same tensors; a stream and a
# file are the same bytes.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
zckpt convert -q "$run" one.safetensors
zckpt convert -q "$run" -o folder
zckpt convert -q --max_shard_size 4KB "$run" shards/
# a stream sends its header before the sums in it could be known
zckpt convert -q --no-sums "$run" bare.safetensors
zckpt convert -q "$run" -o - > stream.safetensors
cmp bare.safetensors stream.safetensors && echo 'the stream is the file'
zckpt digest one.safetensors > one
for other in folder shards; do
	zckpt digest $other | cmp one - && echo "$other: the same tensors"
done
ls folder
ls shards | sed 's/-of-0*[0-9]*\./-of-N./' | sort | sed '2,$d'
ls shards | grep -c 'model-.*safetensors$' | awk '$1 > 1 { print "more than one shard" }'
ls shards | grep index
