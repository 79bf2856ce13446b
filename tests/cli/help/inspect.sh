# The help of inspect, on stdout, with exit 0.
zckpt inspect -h
