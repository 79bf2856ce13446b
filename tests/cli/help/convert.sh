# The help of convert, on stdout, with exit 0.
zckpt convert -h
