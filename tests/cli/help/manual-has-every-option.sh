# Each option of a command's help stands in its manual page, and no other does.
man=$(cd "$(dirname "$0")/../../../docs/man" && pwd)
for c in $(zckpt help | sed -n '/^commands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p'); do
	zckpt $c -h --all | sed -n 's/^ \{1,\}\(-[a-z], \)\{0,1\}\(--[a-z][a-z-]*\).*/\2/p' |
		sed 's|^--no-|--|' | sort -u > help
	sed 's/\\-/-/g; s/\\f.//g' "$man/zckpt-$c.1" | awk '/^.TP/ { getline; print }' |
		grep -o -- '--[a-z][a-z-]*' | sed 's/^--no-/--/' | sort -u > manual
	diff help manual && echo "$c: $(grep -c . help) options, all in the manual"
done
zckpt help | sed -n '/^commands:/,/^$/s/^  \([a-z-]*\) .*/zckpt\\-\1/p' |
	sed 's/set-/set\\-/' | sort > help
grep -o '^.BR zckpt[a-z\\-]* (1)$' "$man/zckpt.1" | sed 's/.BR //; s/ (1)//' | sort -u > manual
diff help manual && echo 'every command is in zckpt.1'
