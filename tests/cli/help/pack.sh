# The help of pack, on stdout, with exit 0.
zckpt pack -h
