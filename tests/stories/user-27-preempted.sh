# kill -9 in the midst of a reshard; the same command again.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
run=$steps/ds0.19.8-z3-bf16-w8/ckpt

zckpt reshard -q '8->4' "$run" whole || fails 'reshard'
for wait in 0.002 0.005 0.01 0.02 0.04; do
	rm -rf four
	zckpt reshard -q '8->4' "$run" four > "$said" 2>&1 &
	sleep $wait
	kill -9 $! 2> /dev/null
	wait $! 2> /dev/null
	[ ! -e four ] || diff -r whole four > "$said" || fails 'a torn result is in place'
	# killed before the result was in place, or between that and the end of the tidying
	if [ ! -e four ] || ls -a | grep -q partial; then
		types 0 zckpt reshard '8->4' "$run" four
	fi
	holds 'the result is that of an undisturbed run' diff -r whole four
	holds 'nothing is left' [ "$(ls -a | grep -c partial)" = 0 ]
done
