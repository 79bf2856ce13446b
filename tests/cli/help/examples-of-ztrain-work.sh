# Each example in the help of ztrain works as it is printed. Under mpirun only where this build has MPI.
command -v ztrain > /dev/null || { echo 'ztrain is not built' >&2; exit 77; }
cp -r "$FIXTURES/model/models/qwen3" my-model
chmod -R u+w my-model
cp my-model/config.json .
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
	echo "{\"input_ids\": [$i, 2, 3, 4, 5, 6, 7, 8]}"
done > rows.jsonl
echo '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 1}' > ds.json
cp rows.jsonl held-out.jsonl
mkdir -p run run1 run2 out/checkpoint-500
for d in run run1 run2; do
	echo '{"step": 1, "loss": 2}' > $d/log.jsonl
done
printf '{\n"log_history": [{"step": 1, "loss": 2}]}' > out/checkpoint-500/trainer_state.json
for p in ztrain 'ztrain bench' 'ztrain eval' 'ztrain generate' 'ztrain report' 'ztrain log'; do
	$p -h | sed -n '/^examples:/,/^$/s/^  //p' > examples
	grep -v '^mpirun' examples > runs
	while IFS= read -r line; do
		eval "$line" > said 2>&1 < /dev/null && continue
		echo "status $?: $line"
		cat said
	done < runs
	sed -n 's/^mpirun -n 8 \(.*\)/\1 --steps 101/p' examples > runs
	while IFS= read -r line; do
		eval "$line" > said 2>&1 < /dev/null && continue
		echo "status $?: $line"
		cat said
	done < runs
	echo "$p: $(grep -c . examples) examples"
done
