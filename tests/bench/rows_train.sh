# shellcheck shell=bash disable=SC2154
# rows_train.sh - the rows of ztrain; bench.sh sources it.
#
# The model has 25.2 million parameters (V 12288, h 512, I 1536, L 6, 8/4 heads of 64, tied), a step is
# 4 rows of 256 tokens. A run's time is that of its fastest step after the first, as ztrain and
# train_torch.py say themselves: from the tokens to parameters that are ready for the next step. It is
# told per 1024 tokens. "2 ranks" have one thread each, so that all rows use two cores.

train_files() {
	local stage low
	mkdir -p "$w/train/model"
	cat >"$w/train/model/config.json" <<-'END'
	{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 12288,
	 "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 6, "num_attention_heads": 8,
	 "num_key_value_heads": 4, "head_dim": 64, "tie_word_embeddings": true, "rms_norm_eps": 1e-5,
	 "rope_theta": 10000.0, "hidden_act": "silu", "initializer_range": 0.02,
	 "max_position_embeddings": 2048, "attention_bias": false, "mlp_bias": false}
	END
	for stage in 0 1 2 3; do
		for low in false true; do
			cat >"$w/train/$stage-$low.json" <<-END
			{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 1,
			 "gradient_clipping": 1.0, "zero_optimization": {"stage": $stage},
			 "bf16": {"enabled": $low}, "optimizer": {"type": "AdamW", "params":
			 {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}}}
			END
		done
	done
}

# 3 x 4 bytes of each parameter
train_payload=$((12 * (12288 * 512 + 512 + 6 * (2 * 512 + 3 * 512 * 1536 + 2 * 512 * 512 + 2 * 512 * 256))))

# ztrain_run SERIES RANKS THREADS STAGE LOW MICRO OPTION...: what it said is in 'said'
ztrain_run() {
	local series=$1 ranks=$2 threads=$3 config=$w/train/$4-$5.json micro=$6
	shift 6
	set -- "$built/ztrain" --model "$w/train/model" --config "$config" --micro-batch "$micro" \
		--threads "$threads" "$@"
	[ "$ranks" = 1 ] || set -- tests/lib/run/mpirun -n "$ranks" "$@"
	run "$series" "$@"
}

# step SERIES RANKS THREADS STAGE LOW MICRO: seconds for 1024 tokens
step() {
	rm -f "$w/train/log"
	ztrain_run "$1.job" "${@:2}" --seq 256 --steps 5 --log "$w/train/log"
	[ -e "$w/$1.job.bad" ] || inner "$1" "$(fastest)"
}

# The same of the fastest step after the first, out of the log.
fastest() {
	sed -n '2,$s/.*"tokens": \([0-9]*\), "seconds": \([0-9.e-]*\).*/\1 \2/p' "$w/train/log" |
		awk '{ v = $2 / $1 * 1024 } NR == 1 || v < least { least = v } END { printf "%.6f", least }'
}

# peer SERIES OPTION...: the same by train_torch.py, whose steps have 1024 tokens
peer() {
	local series=$1
	shift
	run "$series.job" "$VENV/bin/python" tests/bench/train_torch.py --steps 4 "$@"
	[ -e "$w/$series.job.bad" ] || inner "$series" "$(tail -n 1 "$w/said")"
}

has_torch() { [ -n "$VENV" ] && "$VENV/bin/python" -c 'import torch, transformers' 2>/dev/null; }
has_mpi() { command -v "${MPIRUN:-mpirun}" >/dev/null && "$built/ztrain" --version | grep -q MPI; }

# One process with two threads next to PyTorch.
step_rows() {
	local i s='25.2 M parameters, 2 threads, 4 x 256'
	if ! has_torch; then
		row "step, $s" '' '' '' '>= 1.0 x' 'skipped: no torch in VENV'
		return
	fi
	fresh
	for ((i = 0; i < RUNS; i++)); do
		peer eager --threads 2 eager
		step fp32 1 2 0 false 4
		peer fused --threads 2 fused
		peer eager16 --threads 2 --dtype bf16 fused
		step bf16 1 2 0 true 4
		peer pure16 --threads 2 --dtype pure fused
	done
	speed_row "step, fp32, $s, against PyTorch eager" eager fp32 1.0
	speed_row "  against PyTorch with AdamW in one kernel" fused fp32 1.0
	speed_row "step, bf16, $s, against PyTorch eager, autocast" eager16 bf16 1.0
	aim_row "  against PyTorch all in bf16, without masters (less work)" pure16 bf16 1
}

# Two ranks of a thread each next to one process with two, and next to peers that shard as well.
rank_rows() {
	local i stage low name
	if ! has_mpi; then
		row 'step of 2 ranks' '' '' '' '>= 0.8 x' 'skipped: no mpirun, or ztrain without MPI'
		return
	fi
	fresh
	for ((i = 0; i < RUNS; i++)); do
		for low in false true; do
			step "one.$low" 1 2 0 $low 4
			for stage in 2 3; do
				step "two.$stage.$low" 2 1 $stage $low 2
				step "full.$stage.$low" 2 1 $stage $low 4
			done
		done
	done
	for low in false true; do
		name=$([ $low = true ] && echo bf16 || echo fp32)
		for stage in 2 3; do
			speed_row "ZeRO-$stage, $name, 2 ranks of 2 x 256, against one process" \
				one.$low two.$stage.$low 0.8
			speed_row "  2 ranks of 4 x 256" one.$low full.$stage.$low 0.8
		done
	done
	peer_rows
}

peer_rows() {
	local i n=3 how stage
	has_torch || return 0
	[ "$RUNS" -lt 3 ] && n=$RUNS
	fresh
	for ((i = 0; i < n; i++)); do
		for how in fsdp2 zero2 fsdp3 zero3; do
			peer $how --ranks 2 --micro 2 $how
		done
		for stage in 2 3; do
			step ours$stage 2 1 $stage false 2
		done
	done
	for stage in 2 3; do
		aim_row "ZeRO-$stage, fp32, 2 ranks, against PyTorch's fully_shard over gloo" fsdp$stage ours$stage 1
		aim_row "  against DeepSpeed over gloo" zero$stage ours$stage 1
	done
}

# What saves take from the steps, against a copy of as many bytes by as many processes at once.
stall_rows() {
	local i ranks
	build copyloop
	for ranks in 1 2; do
		[ $ranks = 1 ] || has_mpi || continue
		fresh
		for ((i = 0; i < RUNS; i++)); do
			run copy.job "$w/copyloop" $ranks $((train_payload / ranks)) 5
			[ -e "$w/copy.job.bad" ] || inner copy "$(tail -n 1 "$w/said")"
			rm -rf "$w/run"
			ztrain_run save.job $ranks $((2 / ranks)) 1 false $((4 / ranks)) --seq 256 \
				--steps 6 --save "$w/run" --save-every 2 --sync none
			[ -e "$w/save.job.bad" ] || inner save "$(awk '/saves took/ { print $4 / $1 }' "$w/said")"
		done
		rm -rf "$w/run"
		time_row "save in training, $ranks rank$([ $ranks = 1 ] || echo s), $((train_payload >> 20)) MiB: stall, against memcpy" \
			save copy 1.2
	done
}

# read_row NAME SERIES: bytes that all ranks read, out of what 'said' of the run that resumed
read_row() {
	local bytes ratio
	if [ -e "$w/$2.bad" ]; then
		row "$1" failed '' '' '<= 1.01' failed
		return
	fi
	bytes=$(sed -n 's/.* \([0-9]*\) bytes read by all ranks.*/\1/p' "$w/said")
	ratio=$(calc "$bytes / $train_payload")
	row "$1" "$bytes" "$train_payload" "$(printf %.4f "$ratio")" '<= 1.01' "$(judge "$ratio" '<=' 1.01)"
}

resume_rows() {
	local s='resume: bytes read by all ranks, of those in the step'
	if ! has_mpi; then
		row "$s" '' '' '' '<= 1.01' 'skipped: no mpirun, or ztrain without MPI'
		return
	fi
	fresh
	rm -rf "$w/run"
	ztrain_run first 8 1 2 false 1 --seq 16 --steps 1 --save "$w/run" --sync none
	ztrain_run equal 8 1 3 false 1 --seq 16 --steps 1 --resume "$w/run"
	read_row "$s, 8 ranks as saved" equal
	ztrain_run fewer 4 1 2 false 1 --seq 16 --steps 1 --resume "$w/run"
	read_row "$s, 8 -> 4" fewer
	rm -rf "$w/run"
}

start_row() {
	local beyond ours bare
	if ! has_mpi || [ ! -x "$built/tests/engine/mpi_comm" ]; then
		row 'start of 8 ranks' '' '' '' '<= 0.3 s' 'skipped: no mpirun, or no mpi_comm (make tests)'
		return
	fi
	ZCKPT_BUILD=$built tests/engine/start-up.sh 8 "$RUNS" >"$w/said" 2>&1 || {
		row 'start of 8 ranks' failed '' '' '<= 0.3 s' failed
		return
	}
	read -r beyond ours bare < <(sed 's/[^0-9. ]//g; s/^8 *[0-9]* *//' "$w/said")
	row 'start of 8 ranks beyond a bare MPI_Init, inside' "$beyond s" '' '' '<= 0.3 s' \
		"$(judge "$beyond" '<=' 0.3)"
	row '  whole job, with the table and bare' "$ours s" "$bare s" \
		"$(calc "$ours - $bare" | xargs printf '%+.3f s')" '<= 0.3 s' \
		"$(judge "$(calc "$ours - $bare")" '<=' 0.3)"
}

train_rows() {
	wants train || return 0
	if [ ! -x "$built/ztrain" ]; then
		row 'training' '' '' '' '' 'skipped: no ztrain beside the program'
		return
	fi
	train_files
	step_rows
	rank_rows
	stall_rows
	resume_rows
	start_row
	rm -rf "$w/train"
}
