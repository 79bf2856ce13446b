# Each command, and each option that a help lists, is offered to shells, and nothing else.
for c in $(zckpt help | sed -n '/^commands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p'); do
	echo "$c"
	zckpt $c -h --all | sed -n 's/^  \(-[a-z], \|    \)\(--[a-z][a-z0-9-]*\).*/\2/p' | sort > help
	# --no-NAME of an option that is in the help
	zckpt __complete $c -- | sed 1d | cut -f 1 | awk '{ all[$0] } END {
		for (one in all) {
			plain = one
			sub(/^--no-/, "--", plain)
			if (plain == one || !(plain in all)) print one
		}
	}' | sort > offered
	diff help offered >&2 || echo "differs: $c" >&2
done > helped
zckpt __complete '' | sed 1d | cut -f 1 | grep -v help | grep -v '^--' | cmp - helped && echo same
for c in '' bench eval generate; do
	ztrain $c -h --all | sed -n 's/^  --\([a-z0-9_-]*\).*/--\1/p' | sort > help
	ztrain __complete $c -- | sed 1d | cut -f 1 | grep -v '^--help$' | sort > offered
	diff help offered && echo "ztrain $c: $(grep -c . help | sed 's/[0-9][0-9]*/N/') options"
done
for c in report log; do
	ztrain $c -h | sed -n 's/^  \(-[a-z], \|    \|\)\(--[a-z][a-z0-9-]*\).*/\2/p' | sort > help
	ztrain __complete $c -- | sed 1d | cut -f 1 | grep -v '^--help$' | sort > offered
	diff help offered && echo "ztrain $c: $(grep -c . help | sed 's/[0-9][0-9]*/N/') options"
	ztrain __complete $c ''
done
# what a value may be comes from the same tables
zckpt __complete convert --tied ''
zckpt __complete plan --offload=
# and no call of it fails, whatever is there
for words in '' 'no-such -' 'cat no-such -' 'convert --tag -' 'help' 'set-latest . -'; do
	zckpt __complete $words > all && ztrain __complete $words > all || echo "$words: exit $?"
done
