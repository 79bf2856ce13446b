#!/bin/bash
# usage: test_ztrain_terminal.sh
#
# What ztrain shows on a terminal while it prints nothing.  If this fails, a long step or save looks
# like a run that hangs, or the line gets into logs.
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/ztrain.sh"
need_models
command -v script > /dev/null || { echo 'script is not installed' >&2; exit 77; }
export TERM=xterm
unset COLUMNS NO_COLOR
# a step of some seconds, on a terminal, in a pipe, and on a terminal that cannot rewrite a line
n=1500
while
	call=$(printf '%q ' "$ztrain" --model "$models/llama3" --random --steps 1 --seq 64 --accumulation $n)
	SECONDS=0
	sh -c "$call" > /dev/null 2>&1 < /dev/null
	[ $? -eq 0 ] && [ $SECONDS -lt 5 ]
do
	n=$((n * 2))
done
sh -c "$call" > piped 2>&1 < /dev/null &
TERM=dumb script -qec "$call" /dev/null < /dev/null > dumb &
script -qec "stty cols 30; $call" /dev/null < /dev/null > seen
wait
tr '\r' '\n' < seen | tr -d '\033' > said
has_text 'a long step on a terminal' 'ztrain: first step: 3 s[K' 'step 1/1 '
awk '/^ztrain: / && length($0) > 31 { bad = 1 } END { exit bad }' said && good ||
	bad 'the line is longer than the terminal is wide'
awk '/^ztrain: first/ { n = NR } /^\[Kstep 1/ { end = NR } END { exit !(n && end > n) }' said && good ||
	bad 'the line is not cleared before the step is printed'
for one in piped dumb; do
	cp $one said
	lacks_text "$one" 'ztrain: first step' '[K'
	has_text "$one" 'step 1/1 '
done
"$ztrain" --color=always --no-such > said 2>&1
[ "$(head -c 13 said | tr '\033' '~')" = '~[1;31mztrain' ] && good || bad '--color=always: no red'
"$ztrain" --no-such > said 2>&1
lacks_text 'an error in a pipe' '[1;31m'
script -qec "$ztrain --no-such" /dev/null < /dev/null > said
has_text 'an error on a terminal' '[1;31m'
NO_COLOR=1 script -qec "$ztrain --no-such" /dev/null < /dev/null > said
lacks_text 'NO_COLOR' '[1;31m'
finish
