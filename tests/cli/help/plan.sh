# The help of plan, on stdout, with exit 0.
zckpt plan -h
