# The help of diff, on stdout, with exit 0.
zckpt diff -h
