# The help of verify, on stdout, with exit 0.
zckpt verify -h
