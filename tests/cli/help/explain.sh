# The help of explain, on stdout, with exit 0.
zckpt explain -h
