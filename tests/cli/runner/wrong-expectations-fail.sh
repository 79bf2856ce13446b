# The runner tells a wrong line, a missing line, a wrong status and a line on
# the wrong stream; it is run here on small cases made for that.
runner=$(dirname "$0")/../run.sh
mkdir toy
try() {
	(ZCKPT=$(command -v zckpt) bash "$runner" toy/t.sh) > log 2>&1
	echo "$1: $?"
}
printf 'echo a; echo b; echo c\n' > toy/t.sh
printf 'a\nb\nc\n' > toy/t.stdout; try 'the same lines'
printf 'a\n...\n' > toy/t.stdout; try 'any lines at the end'
printf '...\nb\n...\n' > toy/t.stdout; try 'any lines on both sides'
printf 'a\n...\nb\nc\n' > toy/t.stdout; try 'no line for ...'
printf 'a\nx\nc\n' > toy/t.stdout; try 'another line'
printf 'a\nb\n' > toy/t.stdout; try 'one line more'
printf 'a\nb\nc\nd\n' > toy/t.stdout; try 'one line less'
printf '...\nd\n' > toy/t.stdout; try 'another end'
rm toy/t.stdout; try 'lines where none are expected'
printf 'a\nb\nc\n' > toy/t.stdout
printf 'x\n' > toy/t.stderr; try 'a line on stderr that does not come'
rm toy/t.stderr
echo 1 > toy/t.exit; try 'another exit status'
rm toy/t.exit
printf 'echo why >&2; exit 77\n' > toy/t.sh; rm toy/t.stdout; try 'skipped'
cat log
