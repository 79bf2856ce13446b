# An address where a path belongs: what to type instead. A stream goes to a store without a file here.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt" run
try() { zckpt "$@" 2>&1; echo "exit $?"; }
try convert run s3://bucket/model.safetensors
try convert -o gs://bucket/model.safetensors run
try pack run s3://bucket/run.tar.zst
try reshard --world 4 run s3://bucket/run-on-4
try convert s3://bucket/run model.safetensors
try inspect s3://bucket/model.safetensors
try doctor hf://Qwen/Qwen2.5-7B
try verify https://example.org/model.safetensors
try ls hdfs://host/run
try convert --json s3://bucket/run model.safetensors 2> /dev/null | grep -e exit -e message
ls
