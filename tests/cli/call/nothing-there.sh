# A source that is not there: exit 3, the path in the message, nothing on stdout;
# with --json the error is the object.
for verb in inspect map digest 'convert -o x'; do
	zckpt $verb no-such-folder > out 2> err
	echo "$verb: exit $?, $(grep -c . out) lines, $(grep -c '^zckpt: no-such-folder: ' err) message"
	zckpt $verb --json no-such-folder 2> err | grep '"code"'
done
