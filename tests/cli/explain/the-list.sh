# Without a name all findings are listed, each on one line; a part of a name lists those that have it.
zckpt explain > list
awk 'length($0) > 80' list
sed -n '1,3p; $p' list
grep -c '^  [A-Z]' list
zckpt explain latest
# a call that is almost right says what is
for word in RANK_FILE_MISING manifest-hash nonsense; do
	zckpt explain "$word"
	echo "exit $?"
done 2>&1
zckpt FILE_DAMAGED
echo "exit $?"
