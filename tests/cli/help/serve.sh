# The help of serve, on stdout, with exit 0.
zckpt serve -h
