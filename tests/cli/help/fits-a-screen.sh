# No help is wider than 79 columns, and the common options fit on 50 lines. Help asked for in any place is
# help, on stdout, with nothing on stderr. -h says how many options --all adds, and that is true.
# Each command has the whole text in a case of this folder.
here=$(dirname "$0")
for c in $(zckpt help | sed -n '/^commands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p'); do
	grep -q "^usage: zckpt $c " "$here"/*.stdout || echo "$c: its help is in no case"
	zckpt $c --help > text 2> err || echo "$c --help: exit $?"
	zckpt help $c | cmp text - && zckpt $c SRC -q -h | cmp text - && echo "$c: same"
	cat err
	awk -v c=$c 'length($0) > 79 { print c ": " length($0) " columns: " $0 }
		END { if (NR > 50) print c ": " NR " lines" }' text
	zckpt $c -h --all > all 2>&1 && zckpt help $c --all | cmp all -
	awk -v c=$c 'length($0) > 79 { print c " --all: " length($0) " columns: " $0 }' all
	more=$(($(grep -cE '^ {2,6}-' all) - $(grep -cE '^ {2,6}-' text)))
	[ $more = 0 ] || grep -q "^'zckpt $c -h --all' lists $more more option" text || echo "$c: $more more with --all"
done
