# demo-train.sh -- sourced by demo.sh, in its scratch folder: a tiny Qwen3 learns a text, is killed,
# and is resumed on half the ranks and at another stage, bit-identical to the uninterrupted run.

steps=120 every=30 dies=70	# it is killed after that step
ranks=8 fewer=4 launch='mpirun -n 8 ' launch_fewer='mpirun -n 4 ' many=s
MPIRUN=${MPIRUN:-$(command -v mpirun)}
if [ -n "$MPIRUN" ] && ztrain --version | grep -q MPI; then
	PATH=$root/tests/lib/run:$PATH	# mpirun for root, and for more ranks than cores
	export MPIRUN PATH
else
	ranks=1 fewer=1 launch='' launch_fewer='' many=
fi

# ---- the model, its text, its configurations ----

say 'Train a tiny Qwen3 from random weights on a text. Each token is a byte.'
mkdir tiny
cat > tiny/config.json << 'EOF'
{
  "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "float32",
  "vocab_size": 256, "hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
  "max_position_embeddings": 512, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
  "hidden_act": "silu", "initializer_range": 0.05, "tie_word_embeddings": true
}
EOF
cat > text << 'EOF'
A model is split into eight parts. Each rank keeps one part of the weights, of the gradients and of
the optimizer state, and gathers the rest for a moment when it needs it. To save a step, every rank
writes its own shard, and training continues meanwhile. When a rank dies, the others name it and
stop. Then four ranks read the same step, each its own part, and continue as if nothing had
happened: the same sums in the same order, and so the same numbers to the last bit.
EOF
# config STAGE BF16
config() {
	cat << EOF
{
  "train_batch_size": 16, "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0,
  "zero_optimization": {"stage": $1}, "bf16": {"enabled": $2},
  "optimizer": {"type": "AdamW", "params": {"lr": 5e-3, "betas": [0.9, 0.95], "weight_decay": 0.01}},
  "scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 10, "total_num_steps": $steps}}
}
EOF
}
for stage in 0 1 2 3; do
	config $stage false > z$stage.json
	config $stage true > bf16-$stage.json
done
show 0 cat text
show 0 "for i in \$(seq 64); do cat text; done | tr '\\n' ' ' | iconv -f ASCII -t UTF-16LE > text.u16"
show 0 cat z3.json
if [ $ranks = 1 ]; then
	say 'mpirun is not installed, or ztrain was built without MPI (tools/deps.sh --mpi installs it).'
	echo '# So one process runs instead of eight ranks. The demo omits the change to four ranks and the'
	echo '# traffic between ranks.'
fi

# A rank that writes its process id, so that it can be killed.
cat > rank << 'EOF'
#!/bin/sh
echo $$ >> pids
exec ztrain "$@"
EOF
chmod +x rank
common="--model tiny --data text.u16 --seq 128 --shuffle --steps $steps --save-every $every"

# ---- the uninterrupted run ----

say "Train $steps steps with $ranks rank$many at ZeRO stage 3, with an unchanged DeepSpeed configuration."
show 0 "${launch}ztrain --config z3.json $common --save full --log full.log > full.out"
show 0 "grep -v '^step' full.out; grep '^step' full.out | awk 'NR % 30 == 0'"

# ---- the one that is killed ----

say "Start the same run again and kill all its processes after step $dies, with SIGKILL."
printf '%s$ %s%s\n' "$bold" "$launch./rank --config z3.json $common --save run --log run.log &" "$plain"
$launch./rank --config z3.json $common --save run --log run.log > run.out 2>&1 &
job=$!
for i in $(seq 6000); do
	if [ -e run.log ] && [ "$(wc -l < run.log)" -ge $dies ]; then break; fi
	sleep 0.05
done
pids=$(tr '\n' ' ' < pids | sed 's/ $//')
printf '%s$ %s%s\n' "$bold" "kill -KILL $pids" "$plain"
kill -KILL $pids
{ wait $job; } 2> /dev/null
rc=$?
if [ $rc = 0 ]; then
	echo 'The run ended before it was killed.'
	exit 1
fi
printf '(exit status %s)\n' $rc
cp run.log killed.log
say "It reached step $(wc -l < killed.log). Its saved steps are complete."
show 0 zckpt ls run
show 0 zckpt verify --full run
from=$(basename "$(zckpt latest run)" | tr -dc 0-9)

# ---- resuming ----

say "Resume from step $from with $fewer rank$many at stage 2."
show 0 "zckpt reshard '$ranks->$fewer' --stage 2 run run4"
show 0 "${launch_fewer}ztrain --config z2.json $common --save run4 --resume auto --log run.log > run4.out"
show 0 "grep -v '^step' run4.out | grep -e resumed -e bits"
say 'Compare weights, moments and losses of both runs:'
agree full run4
losses() { sed 's/^{"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/' "$1"; }
losses full.log > full.txt
losses killed.log > killed.txt
losses run.log | awk -v from="$from" '$1 > from' > resumed.txt
awk -v from="$from" '$1 > from' full.txt > rest.txt
if ! cmp rest.txt resumed.txt || [ ! -s rest.txt ]; then
	echo 'The losses differ.'
	exit 1
fi
echo "$(wc -l < rest.txt) losses from step $((from + 1)) on are equal in every digit; the last one: $(tail -n 1 rest.txt)"

# ---- what the model learnt ----

say 'Write the step as one file of fp32 weights, and let the model continue a prompt.'
show 0 zckpt convert run4 tiny.safetensors
prompt='When a rank dies, '
show 0 "ztrain generate --model tiny.safetensors --config tiny --bytes --prompt '$prompt' --max-new-tokens 100 | tee said"
case "$(tr '\n' ' ' < text)" in
*"$prompt$(head -c 40 said)"*) echo 'This is how the text continues.' ;;
*)
	echo 'This is not how the text continues.'
	exit 1
	;;
esac

# ---- what a stage costs ----

# counters FILE: of rank 0, bytes by kind, under names without spaces
counters() {
	sed -n 's/^rank 0  *\(held\|sent\)  *\(.*[^ ]\)  *\([0-9][0-9]*\) bytes.*/\1 \2;\3/p' "$1" | tr ' ' '_'
}
say "Memory and traffic of a rank by stage: the same model with 12 layers, bf16, 4 steps, $ranks rank$many."
sed 's/"num_hidden_layers": 2/"num_hidden_layers": 12/' tiny/config.json > deep.json
for stage in 0 1 2 3; do
	show 0 "${launch}ztrain --model deep.json --config bf16-$stage.json --data text.u16 --seq 32 --stop-at 4 --counters -q > stage$stage.out"
	counters stage$stage.out > stage$stage.txt
done
# stage 3 first, for the order: it has all kinds
awk -F ';' '
	FNR == 1 { file++ }
	{
		if (!($1 in seen)) { seen[$1] = 1; order[++n] = $1 }
		value[$1, file - 1] = $2
	}
	END {
		printf "\nrank 0, KiB            stage 0    stage 1    stage 2    stage 3\n"
		for (i = 1; i <= n; i++) {
			name = order[i]; gsub(/_/, " ", name)
			printf "%-18s", name
			for (f = 1; f < file; f++)
				printf " %10.1f", value[order[i], f] / 1024
			printf "\n"
		}
	}' stage3.txt stage0.txt stage1.txt stage2.txt stage3.txt | tee stages.txt
[ "$(wc -l < stages.txt)" -ge 6 ] || { echo 'The counters are missing.'; exit 1; }

# ---- a plot ----

if ! command -v gnuplot > /dev/null 2>&1; then
	say 'gnuplot is not installed, so the losses are not plotted (tools/deps.sh --demo installs it).'
	return 0
fi
say 'Plot the losses of both runs.'
cat > loss.gp << EOF
set title "A killed and resumed run equals the uninterrupted run"
set xlabel "step"
set ylabel "loss, mean over the step's tokens (nats)"
set logscale y
set yrange [0.02:8]
set xrange [0:$steps]
set ytics (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
set grid lc rgb "#d0d0d0"
set border 3
set tics nomirror out
set key top right samplen 2 spacing 1.2
set arrow 1 from $(wc -l < killed.txt), 0.02 to $(wc -l < killed.txt), 8 nohead dt 2 lc rgb "#c03020"
set label 1 "killed" at $(wc -l < killed.txt), 3.2 offset 0.6, 0 tc rgb "#c03020"
set arrow 2 from $from, 0.02 to $from, 8 nohead dt 2 lc rgb "#207040"
set label 2 "saved; resumed from here" at $from, 3.2 right offset -0.6, 0 tc rgb "#207040"
plot "full.txt" with lines lw 5 lc rgb "#a9c1e0" title "$ranks ranks, stage 3, uninterrupted", \\
	"killed.txt" with lines lw 2 lc rgb "#c03020" title "$ranks ranks, stage 3, killed", \\
	"resumed.txt" with points pt 7 ps 0.55 lc rgb "#207040" title "$fewer ranks, stage 2, resumed"
EOF
if [ $ranks = 1 ]; then sed -i.bak 's/1 ranks/1 rank/g' loss.gp; fi
show 0 "gnuplot -e 'set terminal pngcairo size 1000, 600 font \"sans,12\"; set output \"loss.png\"' loss.gp"
show 0 "gnuplot -e 'set terminal svg size 1000, 600 font \"sans,14\"; set output \"loss.svg\"' loss.gp"
show 0 ls -s loss.png loss.svg
