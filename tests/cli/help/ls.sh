# The help of ls, latest and set-latest, on stdout, with exit 0.
zckpt ls -h && zckpt latest -h && zckpt set-latest -h
