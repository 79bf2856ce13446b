# The help of commit, on stdout, with exit 0.
zckpt commit -h
