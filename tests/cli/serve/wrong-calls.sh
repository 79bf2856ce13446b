# What serve answers to calls that cannot work.
. "$(dirname "$0")/lib.inc"
zckpt serve; echo "exit $?"
zckpt serve a b; echo "exit $?"
zckpt serve missing; echo "exit $?"
zckpt serve --port 65536 "$RUN"; echo "exit $?"
zckpt serve --bind example.com "$RUN"; echo "exit $?"
zckpt serve "$FIXTURES/formats/pickle/hostile-__builtin__.eval.pt" 2> /dev/null; echo "exit $?"
mkdir empty; zckpt serve empty; echo "exit $?"
serve -q "$RUN" || exit 1
zckpt serve --port ${at##*:} "$RUN" 2>&1 | sed "s/${at##*:}/PORT/"
end
serve --bind 0.0.0.0 "$RUN" || exit 1
sed "s/port [0-9]*/port PORT/" said
sed 's/0:[0-9]*\//0:PORT\//' urls | head -1
end > /dev/null
