# The help of audit, on stdout, with exit 0.
zckpt audit -h
