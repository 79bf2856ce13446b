# The help of doctor, on stdout, with exit 0.
zckpt doctor -h
