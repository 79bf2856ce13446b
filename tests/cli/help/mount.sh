# The help of mount, on stdout, with exit 0.
zckpt mount -h
