# The help of report, on stdout, with exit 0.
zckpt report -h
