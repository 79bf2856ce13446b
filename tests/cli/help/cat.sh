# The help of cat, on stdout, with exit 0.
zckpt cat -h
