#!/bin/sh
# zckpt against the real torch, safetensors, transformers and DeepSpeed:
#
#	ZCKPT=path/to/zckpt tests/interop/run.sh [--long]
#
# ZTRAIN       the trainer (default build/ztrain)
# ZCKPT_VENV   the Python environment, kept between runs (setup-venv.sh)
# ZCKPT_VENV_OLD  the same for older DeepSpeed versions (setup-venv-old.sh);
#              default: a folder beside ZCKPT_VENV
# ZCKPT_VENV_TORCH  environments of other torches from 2.4 on, with spaces
#              between (setup-venv-torch.sh): they load DCP folders as well
# ZCKPT_FIXTURES  the unpacked fixtures (default build/fixtures)
# ZCKPT_SEED   another series of generated checkpoints (printed, default 20)
# ZCKPT_KEEP   a folder to keep the generated checkpoints in
# ZCKPT_LONG=1 the same as --long: 400 checkpoints, 36 models, every resume
#
# The last line is `N passed, N failed, N skipped`. Exit 0, 1, or 77 when the
# environment cannot be made here (reason on stderr).
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
top=$(cd "$here/../.." && pwd) || exit 1
ZCKPT=${ZCKPT:-$top/build/zckpt}
ZTRAIN=${ZTRAIN:-$top/build/ztrain}
ZCKPT_VENV=${ZCKPT_VENV:-${HOME:-/root}/.cache/zckpt/venv}
ZCKPT_VENV_OLD=${ZCKPT_VENV_OLD:-$ZCKPT_VENV-old}
ZCKPT_FIXTURES=${ZCKPT_FIXTURES:-$top/build/fixtures}
seed=${ZCKPT_SEED:-20}

cases=63 need=2 long=
case ${1-} in
--long) long=--long ;;
'') if [ "${ZCKPT_LONG:-0}" = 1 ]; then long=--long; fi ;;
*)
	echo "usage: run.sh [--long]" >&2
	exit 2
	;;
esac
if [ -n "$long" ]; then
	cases=400 need=20
fi
if [ ! -x "$ZCKPT" ]; then
	echo "interop: there is no program at $ZCKPT" >&2
	exit 1
fi
ZCKPT=$(cd "$(dirname "$ZCKPT")" && pwd)/$(basename "$ZCKPT")
sh "$here/setup-venv.sh" "$ZCKPT_VENV" || exit $?

scratch=$(mktemp -d "${TMPDIR:-/tmp}/zckpt-interop.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
work=$scratch
if [ -n "${ZCKPT_KEEP:-}" ]; then
	mkdir -p "$ZCKPT_KEEP" || exit 1
	work=$ZCKPT_KEEP
fi
export ZCKPT
export DS_ACCELERATOR=cpu OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1
export TORCH_EXTENSIONS_DIR="$ZCKPT_VENV/extensions"
python=$ZCKPT_VENV/bin/python
passed=0 failed=0 skipped=0

# part NAME COMMAND...: shows its output, adds its last line to the sums
part() {
	name=$1
	shift
	began=$(date +%s)
	echo "== interop: $name"
	"$@" >"$scratch/log" 2>"$scratch/err"
	rc=$?
	cat "$scratch/log"
	sum=$(tail -n 1 "$scratch/log")
	if echo "$sum" | grep -qE '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$'; then
		# shellcheck disable=SC2046
		set -- $(echo "$sum" | tr -cd '0-9 ')
		passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
		if [ $rc -ne 0 ] && [ "$2" -eq 0 ]; then
			failed=$((failed + 1))
		fi
	elif [ $rc -eq 0 ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
	fi
	if [ $rc -ne 0 ]; then
		tail -n 15 "$scratch/err"
		{
			echo "failed: $name: exit $rc"
			grep -iE '^(fail|not ok|error)|: (fail|error)' "$scratch/log" | tail -n 10
			tail -n 15 "$scratch/err"
		} >>"$scratch/failed"
	fi
	echo "== interop: $name: exit $rc, $(($(date +%s) - began)) s"
}

# stock Megatron-Core, beside the environment: 17 MB of Python that needs nothing more; without it
# what loads with it is skipped
megatron=$ZCKPT_VENV-megatron
if [ ! -f "$megatron/.made" ]; then
	"$python" -m pip install -q --disable-pip-version-check --retries 2 --timeout 60 \
		--no-deps --target "$megatron" megatron-core==0.16.1 \
		>"$scratch/log" 2>&1 && : >"$megatron/.made"
fi

# what honest_files.py can use beside the environment; without it those files are skipped
honest=$ZCKPT_VENV-honest
if [ ! -f "$honest/.made" ]; then
	"$python" -m pip install -q --disable-pip-version-check --retries 2 --timeout 60 \
		--no-deps --target "$honest" accelerate==1.15.0 peft==0.18.1 \
		pytorch-lightning==2.5.5 lightning-utilities==0.15.2 torchmetrics==1.8.2 \
		>"$scratch/log" 2>&1 && : >"$honest/.made"
fi
part "honest files of many libraries, which audit does not accuse" \
	env PYTHONPATH="$honest" "$python" "$here/honest_files.py" "$work/honest"
part "checkpoints that DeepSpeed writes (seed $seed)" \
	"$python" "$here/gen_cases.py" "$work/cases" --cases $cases --seed "$seed"
part "every state against the live engine" \
	"$python" "$here/check_cases.py" "$work/cases" --need $need
part "read by safetensors, torch and numpy" \
	"$python" "$here/read_back.py" "$work/cases"
part "tensors and differences, by numpy (seed $seed)" \
	"$python" "$here/numpy_cat.py" --seed "$seed"
part "state dicts loaded by torch" \
	"$python" "$here/torch_files.py" "$work/cases" $long
if [ -n "${ZCKPT_BUILD:-}" ] && [ -x "$ZCKPT_BUILD/tests/unit/test_pickle_emit" ]; then
	part "pickles written again, unpickled by Python" \
		"$python" "$here/reemit.py" "$ZCKPT_BUILD/tests/unit/test_pickle_emit"
fi
part "DCP folders of torch, read, and loaded by torch" \
	"$python" "$here/dcp_folders.py"
for venv in ${ZCKPT_VENV_TORCH:-}; do
	part "DCP folders, loaded by the torch of $venv" \
		"$venv/bin/python" "$here/dcp_folders.py" --alone
done
part "rank files of FSDP2, read, and loaded by torch" \
	"$python" "$here/fsdp_ranks.py"
part "steps made of weights, resumed by DeepSpeed" \
	"$python" "$here/shard_cases.py" "$work/sharded" $long
part "weights to Megatron-Core" \
	"$python" "$here/megatron_load.py" "$work/megatron" --megatron "$megatron" $long
part "a large folder of Megatron-Core, sparse, in little memory" \
	"$python" "$here/megatron_sparse.py" 4
part "models loaded by transformers" \
	"$python" "$here/hf_models.py" "$work/models" $long
if [ -d "$ZCKPT_FIXTURES/parallel" ]; then
	part "checkpoints of Megatron-Core, loaded by transformers" \
		"$python" "$here/megatron_cases.py" --zckpt "$ZCKPT" --fixtures "$ZCKPT_FIXTURES"
fi
part "vision-language models, sharded, trained and loaded" \
	"$python" "$here/vl_cases.py" "$work/vl" --ztrain "$([ -x "$ZTRAIN" ] && echo "$ZTRAIN")"
# PEFT, beside the environment: without it the part says so
peft=$ZCKPT_VENV-peft
if [ ! -f "$peft/.made" ]; then
	"$python" -m pip install -q --disable-pip-version-check --retries 2 --timeout 60 \
		--no-deps --target "$peft" peft==0.21.2 accelerate==1.15.0 \
		>"$scratch/log" 2>&1 && : >"$peft/.made"
fi
part "LoRA runs: adapters made and merged, by PEFT" \
	env PYTHONPATH="$peft" "$python" "$here/peft_cases.py" "$work/peft"
part "mounted and served steps, read by safetensors and transformers" \
	"$python" "$here/view_cases.py" "$work/view"
part "files with sums, read and rewritten by other programs" \
	"$python" "$here/sums.py" "$work/sums"
if [ -n "${ZCKPT_BUILD:-}" ] && [ -x "$ZCKPT_BUILD/tests/bench/save_from" ] &&
	[ -d "$ZCKPT_FIXTURES/deepspeed" ]; then
	part "steps that a trainer's ranks saved, resumed by DeepSpeed" \
		"$python" "$here/save_cases.py" --save "$ZCKPT_BUILD/tests/bench/save_from" \
		--zckpt "$ZCKPT" --fixtures "$ZCKPT_FIXTURES"
fi
if [ -n "${ZCKPT_BUILD:-}" ] && [ -e "$ZCKPT_BUILD/libckpt.so" ] && [ -d "$ZCKPT_FIXTURES/deepspeed" ]; then
	part "the Python package" \
		bash "$here/python_package.sh" "$python" "$ZCKPT_VENV-pytest" "$ZCKPT_BUILD/libckpt.so" "$ZTRAIN" \
		"$ZCKPT_FIXTURES"
else
	echo "== interop: the Python package: skipped: no libckpt.so in the folder ZCKPT_BUILD, or no fixtures"
	skipped=$((skipped + 1))
fi
if [ -d "$ZCKPT_FIXTURES/deepspeed" ]; then
	part "pages of report, in Chromium" \
		"$python" "$here/page_cases.py" --fixtures "$ZCKPT_FIXTURES" "$work/pages"
fi
if [ -x "$ZTRAIN" ] && [ -d "$ZCKPT_FIXTURES/model" ]; then
	part "what ztrain exports and says, by transformers" \
		"$python" "$here/out_cases.py" --ztrain "$ZTRAIN" --fixtures "$ZCKPT_FIXTURES" \
		"$work/out"
fi
if [ -x "$ZTRAIN" ] && [ -d "$ZCKPT_FIXTURES/model" ]; then
	part "ztrain's DCP folders in torch, and FSDP's in ztrain" \
		"$python" "$here/ztrain_fsdp.py" --ztrain "$ZTRAIN" --fixtures "$ZCKPT_FIXTURES"
fi
# the Trainer needs accelerate, which is not of the environment: in a folder beside it
accel=$ZCKPT_VENV-accelerate
if [ -x "$ZTRAIN" ] && [ ! -f "$accel/.made" ]; then
	"$python" -m pip install -q --disable-pip-version-check --retries 2 --timeout 60 --no-deps \
		--target "$accel" accelerate==1.15.0 >"$scratch/log" 2>&1 && : >"$accel/.made"
fi
if [ -x "$ZTRAIN" ] && [ -d "$ZCKPT_FIXTURES/model" ]; then
	part "ztrain's folders in transformers' Trainer, and the Trainer's in ztrain" \
		env PYTHONPATH="$accel" "$python" "$here/trainer_cases.py" --ztrain "$ZTRAIN" --zckpt "$ZCKPT" \
		--fixtures "$ZCKPT_FIXTURES"
fi
if [ -x "$ZTRAIN" ] && [ -d "$ZCKPT_FIXTURES/model" ]; then
	part "ztrain started by torchrun and deepspeed" \
		"$here/launchers.sh" "$ZTRAIN" "$ZCKPT_FIXTURES" "$(dirname "$python")"
fi
if [ -x "$ZTRAIN" ] && [ -d "$ZCKPT_FIXTURES/model" ]; then
	part "adapters of ztrain in transformers' Trainer, and the Trainer's in ztrain" \
		env PYTHONPATH="$peft" "$python" "$here/trainer_lora.py" --ztrain "$ZTRAIN" --zckpt "$ZCKPT" \
		--fixtures "$ZCKPT_FIXTURES"
	part "adapters and frozen parameters of ztrain, by PEFT, transformers and DeepSpeed" \
		env PYTHONPATH="$peft" "$python" "$here/ztrain_lora.py" --ztrain "$ZTRAIN" --zckpt "$ZCKPT" \
		--fixtures "$ZCKPT_FIXTURES"
fi
# TensorBoard is not of the environment: in a folder beside it; without it the part says so
board=$ZCKPT_VENV-tensorboard
if [ -x "$ZTRAIN" ] && [ ! -f "$board/.made" ]; then
	"$python" -m pip install -q --disable-pip-version-check --retries 2 --timeout 60 \
		--target "$board" tensorboard==2.21.0 >"$scratch/log" 2>&1 && : >"$board/.made"
fi
if [ -x "$ZTRAIN" ] && [ -d "$ZCKPT_FIXTURES/model" ]; then
	part "logs of ztrain and of the Trainer, in TensorBoard" \
		env PYTHONPATH="$board" "$python" "$here/log_cases.py" --ztrain "$ZTRAIN" \
		--fixtures "$ZCKPT_FIXTURES" "$work/logs"
fi
if [ -x "$ZTRAIN" ] && "$ZTRAIN" --version | grep -q MPI &&
	[ -d "$ZCKPT_FIXTURES/model" ]; then
	part "packed rows, next to transformers and to rows of their own" \
		"$python" "$here/packed_cases.py" --ztrain "$ZTRAIN" --zckpt "$ZCKPT"
	part "ztrain's steps in DeepSpeed, and DeepSpeed's in ztrain" \
		"$python" "$here/ztrain_cases.py" --ztrain "$ZTRAIN" --fixtures "$ZCKPT_FIXTURES"
else
	echo "== interop: ztrain: skipped: no ztrain with MPI at $ZTRAIN"
	skipped=$((skipped + 1))
fi
part "training files of torch, to DeepSpeed and ztrain and back" \
	"$python" "$here/training_files.py" "$work/training-files" --zckpt "$ZCKPT" \
	--ztrain "$ZTRAIN" --fixtures "$ZCKPT_FIXTURES"
part "memory estimates, by DeepSpeed and transformers" \
	env PYTHONPATH="$peft" "$python" "$here/plan_cases.py" "$work/plans"
part "values of configurations, by PyYAML, hjson and pydantic" \
	"$python" "$here/config_cases.py" check
part "patterns of names, by Python's re" \
	"$python" "$here/regex_cases.py"

# resume: what reshard writes, in real DeepSpeed of several versions
if ! "$ZCKPT" reshard -h >/dev/null 2>&1; then
	echo "== interop: resume: skipped: this zckpt has no reshard"
	skipped=$((skipped + 1))
elif [ ! -d "$ZCKPT_FIXTURES/deepspeed" ]; then
	echo "== interop: resume: skipped: no fixtures at $ZCKPT_FIXTURES"
	skipped=$((skipped + 1))
else
	versions="0.16.9 0.14.5"
	if [ -n "$long" ]; then
		versions="$versions 0.18.9 0.17.6 0.15.4"
	fi
	for v in $versions; do
		sh "$here/setup-venv-old.sh" "$ZCKPT_VENV_OLD" "$v" "$ZCKPT_VENV"
		rc=$?
		if [ $rc -ne 0 ] && [ $rc -ne 77 ]; then
			echo "== interop: resume: DeepSpeed $v cannot be set up"
			failed=$((failed + 1))
		fi
	done
	part "the fixtures as DeepSpeed wrote them" \
		"$python" "$here/resume_cases.py" --unchanged \
		--fixtures "$ZCKPT_FIXTURES" --old "$ZCKPT_VENV_OLD"
	part "resumed by DeepSpeed after reshard (seed $seed)" \
		"$python" "$here/resume_cases.py" --zckpt "$ZCKPT" $long --seed "$seed" \
		--fixtures "$ZCKPT_FIXTURES" --old "$ZCKPT_VENV_OLD"
	if [ -d "$ZCKPT_FIXTURES/parallel" ]; then
		part "expert, tensor and pipeline parallel steps, resumed by DeepSpeed" \
			"$python" "$here/parallel_resume.py" --zckpt "$ZCKPT" --fixtures "$ZCKPT_FIXTURES"
	fi
	part "universal checkpoints, to and from DeepSpeed (seed $seed)" \
		"$python" "$here/universal_cases.py" --zckpt "$ZCKPT" $long --seed "$seed" \
		--fixtures "$ZCKPT_FIXTURES" --old "$ZCKPT_VENV_OLD"
fi

# once more at the end, where a cut log still shows it
if [ -s "$scratch/failed" ]; then
	echo "== interop: what failed"
	cat "$scratch/failed"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
