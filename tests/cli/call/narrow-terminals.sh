# On a narrow terminal tables and help fit its width; in a pipe no name is cut.
command -v script > /dev/null || { echo 'script is not installed' >&2; exit 77; }
unset COLUMNS
export TERM=dumb
cp -r "$FIXTURES/deepspeed/ds0.10.3-z1-bf16-w2/ckpt" run
# at COLUMNS COMMAND: the widest line on a terminal of that width
on_terminal() { script -qec "stty cols $1; $2" /dev/null < /dev/null | tr -d '\r'; }
widest() { awk 'length($0) > n { n = length($0) } END { print n }'; }
zckpt inspect -v run > piped
for columns in 60 55; do
	on_terminal $columns 'zckpt inspect -v run' > on
	awk -v n=$columns '/^TENSOR/ { on = 1 } on && /^next/ { on = 0 } on && length($0) > n' on
	grep '^TENSOR' on
	grep 'master\|^emb' on | sed 3q
	for c in ls convert reshard; do
		[ "$(on_terminal $columns "zckpt $c -h" | sed '/^examples/,/^$/d; /^usage/d' | widest)" -le $columns ] ||
			echo "$c: its help is wider than $columns"
	done
done
[ "$(on_terminal 70 'ztrain -h --all' | sed '/^usage/,/^examples/d; /^  [a-z]* /d; /^ztrain/d' | widest)" -le 70 ] ||
	echo 'ztrain: its help is wider than 70'
echo 'COLUMNS is the width where it is set:'
on_terminal 200 'COLUMNS=50 zckpt inspect -v run' | grep '^TENSOR\|^blocks' | sed 2q
echo 'In a pipe:'
COLUMNS=50 zckpt inspect -v run | cmp - piped && grep '^TENSOR\|^blocks' piped | sed 2q
on_terminal 50 'zckpt inspect -v run | cat' | cmp - piped && echo same
# what tells rows apart stays
on_terminal 50 'zckpt inspect --explain-size run' > on
awk 'NR > 2 && !/^next/ && length($0) > 50' on
grep -c '^exp_avg of \|^exp_avg_sq of ' on
on_terminal 50 'zckpt audit run' | grep -c 'optim_stat\|model_stat'
for c in 'ls run' 'map run norm.bias'; do
	echo "$c: $(on_terminal 50 "zckpt $c" | grep -v '_states.pt$' | widest)"
done
