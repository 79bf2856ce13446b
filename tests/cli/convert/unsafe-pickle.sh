# A pickle that asks for a call is refused, exit 4, by every verb; nothing is run.
grep '"hostile-global"' "$FIXTURES/formats/manifest.json" | grep '"must-refuse"' | grep -v '"also"\|"alt"' |
	sed -n 's/^.*"file": *"\(pickle\/[^"]*\)".*/\1/p' | sort > files
test -s files || echo 'no hostile file in the fixtures'
while read -r file; do
	for verb in inspect map digest 'convert -o out.safetensors'; do
		zckpt $verb "$FIXTURES/formats/$file" > out 2> err
		rc=$?
		[ $rc = 4 ] || echo "$file: $verb: exit $rc: $(head -n 1 err)"
	done
done < files
rm files out err; ls
