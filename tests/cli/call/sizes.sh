# Sizes are read in decimal and binary units, whole or with a fraction, and both
# spellings of an option name are one. The run stops later, at the missing source.
for size in 4096 5GB 5gb 5G 200MB 512MiB 1.5TB 2TiB '3 GB' 10KiB 7B; do
	zckpt convert "--max_shard_size=$size" --mem-limit "$size" nowhere x > out 2>&1
	echo "$size: exit $?"
done
