# The help of shard, on stdout, with exit 0.
zckpt shard -h
