# The help of slim, on stdout, with exit 0.
zckpt slim -h
