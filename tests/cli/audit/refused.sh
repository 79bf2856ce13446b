# Calls that no checkpoint needs are found wherever they stand, and nothing is executed.
cd "$FIXTURES/formats"
for f in pickle/hostile-*.pt legacy/magic-hostile.pt; do
	zckpt audit --json "$f" > out 2> err
	echo "exit $? $(basename "$f"): $(sed -n 's/.*"module": "\([^"]*\)", "name": "\([^"]*\)", "set": "refused".*/\1.\2/p' out | tr '\n' ' ')"
done
echo 'mentioned, not called:'
zckpt audit -q pickle/global-not-called.pt; echo "exit $?"
echo 'bare pickles, one behind the other, and a text:'
printf 'cposix\nsystem\n(S"true"\ntR.' > "$OLDPWD/a.pkl"
printf '\200\002}.cposix\nsystem\n(S"true"\ntR.' > "$OLDPWD/b.pkl"
printf 'collections\nof texts\n' > "$OLDPWD/README"
cd "$OLDPWD"
zckpt audit -q a.pkl; echo "exit $?"
zckpt audit -q b.pkl; echo "exit $?"
zckpt audit -q . ; echo "exit $?"
rm a.pkl b.pkl
zckpt audit . ; echo "exit $?"
echo 'cut short, and no archive:'
head -c 100 "$FIXTURES/formats/pickle/hostile-os.system.pt" > cut.pt
zckpt audit -q cut.pt; echo "exit $?"
printf 'no pickle' > text.bin; zckpt audit -q text.bin; echo "exit $?"
zckpt audit nothing.pt; echo "exit $?"
zckpt audit 2> err; echo "exit $?"
