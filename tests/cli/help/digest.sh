# The help of digest, on stdout, with exit 0.
zckpt digest -h
