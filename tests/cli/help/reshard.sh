# The help of reshard, on stdout, with exit 0.
zckpt reshard -h
