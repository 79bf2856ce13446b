# The list of commands, the same three ways, and the version.
zckpt help
zckpt help > a; zckpt -h > b; zckpt --help > c
cmp a b && cmp a c && echo 'help, -h and --help print the same'
zckpt --version | sed 's/[0-9][0-9.]*[0-9]/N/g'
