# What a DeepSpeed configuration says counts, "auto" as the Trainer fills it in; what is said on
# the command line counts more.
cat > ds.json <<'END'
{ # comments are taken, as DeepSpeed does
  "bf16": { "enabled": true }, "train_batch_size": 64, "gradient_accumulation_steps": 2,
  "zero_optimization": { "stage": 3, "offload_optimizer": { "device": "cpu", "pin_memory": false },
    "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
    "stage3_param_persistence_threshold": "auto", "sub_group_size": 1e9, },
}
END
zckpt plan -v qwen2.5-7b -n 8 --ds-config ds.json | sed -n '/^run/,$p'
zckpt plan qwen2.5-7b -n 8 --ds-config ds.json --stage 2 --offload none --micro 1 --dtype fp16 | sed -n '/^run/,/^$/p'
echo '== the buckets of a number of parameters are not known'
zckpt plan 135000 -n 8 --ds-config ds.json
echo "exit $?"
echo '{ "zero_optimization": { "stage": 3, "offload_param": { "device": "nvme" } } }' > nvme.json
zckpt plan 8B --ds-config nvme.json
echo "exit $?"
