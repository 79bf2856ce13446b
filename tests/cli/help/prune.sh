# The help of prune, on stdout, with exit 0.
zckpt prune -h
