# No help is wider than 80 columns or longer than 50 lines; help asked for in any
# place is help, on stdout, with nothing on stderr.
# Each command has the whole text in a case of this folder.
here=$(dirname "$0")
for c in $(zckpt help | sed -n '/^commands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p'); do
	grep -q "^usage: zckpt $c " "$here"/*.stdout || echo "$c: its help is in no case"
	zckpt $c --help > text 2> err || echo "$c --help: exit $?"
	zckpt help $c | cmp text - && zckpt $c SRC -q -h | cmp text - && echo "$c: same"
	cat err
	awk -v c=$c 'length($0) > 80 { print c ": " length($0) " columns: " $0 }
		END { if (NR > 50) print c ": " NR " lines" }' text
	grep -c . text > /dev/null || echo "$c: no help"
done
