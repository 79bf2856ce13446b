# The help of map, on stdout, with exit 0.
zckpt map -h
