# A preempted SLURM job: SIGTERM saves, the requeued job types the same command.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
# shellcheck source=tests/stories/training.sh
. "$root/tests/stories/training.sh"
# job NAME: ends the shell that calls it, so that a signal to the process it was reaches ztrain itself
job() {
	exec ztrain --model "$(model qwen25)" --data "$tokens" --seq 33 --lr 1e-3 --steps 400 --save-every 100 --exact \
		--log "$1.jsonl" --save "$1" --resume auto > "$1.out" 2>&1
}
# stepped: a step of this start is on the screen, so SIGTERM finds a run
stepped() {
	local i
	for i in $(seq 3000); do
		! grep -q '^step' run.out || return 0
		sleep 0.01
	done
	return 1
}
(job whole) || { cp whole.out "$said"; fails 'the undisturbed run'; }
# Two starts get the signal while they train, three at any moment, and the last one ends.
starts=0 stopped=0
for when in stepped stepped 'sleep 0.1' 'sleep 0.2' 'sleep 0.05' true; do
	starts=$((starts + 1)) rc=0
	: > run.out
	job run &
	pid=$!
	$when || { cp run.out "$said"; kill -KILL $pid; fails "start $starts takes no step"; }
	[ "$when" = true ] || kill -TERM $pid 2> /dev/null
	wait $pid || rc=$?
	cp run.out "$said"
	# 143: the signal came before ztrain had a handler for it
	[ $rc = 0 ] || { [ $rc = 143 ] && [ "${when#sleep}" != "$when" ]; } || fails "start $starts ends with status $rc"
	! grep -q 'stopped by a signal after step' run.out || stopped=$((stopped + 1))
done
holds 'SIGTERM stopped runs that had begun' [ $stopped -ge 1 ]
present run/global_step400
same_state whole run
holds 'latest names the last step' [ "$(cat run/latest)" = global_step400 ]
holds 'the log has each step once' [ "$(grep -o '"step": *[0-9]*' run.jsonl | sort | uniq -d | wc -l)" = 0 ]
