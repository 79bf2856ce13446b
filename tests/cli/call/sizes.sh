# Sizes are read in decimal and binary units, whole or with a fraction, and both
# spellings of an option name are one. The run stops later, at the missing source.
for size in 4096 5GB 5gb 5G 200MB 512MiB 1.5TB 2TiB '3 GB' 10KiB 7B 1e9 2.5e8 1e-3TB; do
	zckpt convert "--max_shard_size=$size" --mem-limit "$size" nowhere x > out 2>&1
	echo "$size: exit $?"
done
# To the byte, where a double would have rounded; what is below one is cut off.
for size in 1e9 2.5E+8 '1e-3 TB' 1.5e3KiB 0.9007199254740993e16 9007199.254740993GB 1.0000000019999GB; do
	echo "$size: $(zckpt plan --json qwen3-0.6b --overhead "$size" |
		grep -o '"CUDA context[^}]*' | grep -o '"bytes": [0-9]*')"
done
