# A user with a name in capitals gets its page, however they type it; nothing is wider than a screen.
zckpt explain RANK_FILE_MISSING
for id in rank-file-missing Rank_File_Missing RANK_FILE_MISSING: 'rank file missing'; do
	# shellcheck disable=SC2086
	zckpt explain $id | cksum
done | sort | uniq -c | sed 's/^ *\([0-9]*\) .*/\1 the same/'
zckpt help rank_file_missing > help && zckpt explain RANK_FILE_MISSING | cmp - help && echo 'help: the same'
for id in $(zckpt explain | sed -n 's/^  \([A-Z_]*\)  .*/\1/p'); do
	zckpt explain "$id" > page || echo "$id: exit $?"
	head -n 1 page | grep -q "^$id: \(error\|warning\|info\)" || echo "$id: $(head -n 1 page)"
	grep -q '^What to do: ' page || echo "$id: what to do?"
	awk -v id="$id" 'length($0) > 80 { print id ": " length($0) " columns: " $0 }' page
	# what it says to type exists
	sed -n 's/^    zckpt //p' page | while read -r verb rest; do
		zckpt "$verb" -h --all > help || echo "$id: zckpt $verb"
		for word in $rest; do
			case $word in --?*) grep -q -- " $word\( \|$\)" help || echo "$id: zckpt $verb $word" ;; esac
		done
	done
done
