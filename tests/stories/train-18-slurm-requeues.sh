# A preempted SLURM job: SIGTERM saves, the requeued job types the same command.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
# shellcheck source=tests/stories/training.sh
. "$root/tests/stories/training.sh"
job() {
	ztrain --model "$(model qwen25)" --data "$tokens" --seq 33 --lr 1e-3 --steps 400 --save-every 100 --exact \
		--log "$1.jsonl" --save "$1" --resume auto > "$1.out" 2>&1
}
job whole || { cp whole.out "$said"; fails 'the undisturbed run'; }
starts=0
while [ $starts -lt 30 ]; do
	starts=$((starts + 1))
	job run &
	pid=$!
	[ $starts -gt 5 ] || { sleep 0.1; kill -TERM $pid 2> /dev/null; }
	wait $pid && break
done
cp run.out "$said"
present run/global_step400
same_state whole run
holds 'latest names the last step' [ "$(cat run/latest)" = global_step400 ]
holds 'the log has each step once' [ "$(grep -o '"step": *[0-9]*' run.jsonl | sort | uniq -d | wc -l)" = 0 ]
