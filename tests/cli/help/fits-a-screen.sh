# No help is wider than 80 columns or longer than 50 lines; help asked for in any
# place is help, on stdout, with nothing on stderr.
for c in convert inspect map digest commit ls latest set-latest audit diff doctor cat; do
	zckpt $c --help > text 2> err || echo "$c --help: exit $?"
	zckpt help $c | cmp text - && zckpt $c SRC -q -h | cmp text - && echo "$c: same"
	cat err
	awk -v c=$c 'length($0) > 80 { print c ": " length($0) " columns: " $0 }
		END { if (NR > 50) print c ": " NR " lines" }' text
	grep -c . text > /dev/null || echo "$c: no help"
done
