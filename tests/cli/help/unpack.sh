# The help of unpack, on stdout, with exit 0.
zckpt unpack -h
