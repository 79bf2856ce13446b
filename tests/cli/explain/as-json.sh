# Scripts get the same pages, as one object.
zckpt explain --json placeholders
zckpt explain --json | grep -c '"id": '
zckpt explain | grep -c '^  [A-Z]'
zckpt explain --json nonsense 2> err
echo "exit $?"
