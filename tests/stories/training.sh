# training.sh -- read by stories of training, after story.sh: models, data and ranks.
#
#   model NAME           a Hugging Face folder of the fixtures
#   tokens               rows that a model is trained on
#   settings FILE JSON   a DeepSpeed JSON
#   ranks N COMMAND...   N ranks, started as torchrun does
#   trains STATUS DIR STEPS OPTION...   Qwen2.5, by ds.json where there is one, saved to DIR
[ -x "$build/ztrain" ] || { echo "$build/ztrain is missing: run 'make train'" >&2; exit 77; }
[ -d "$fixtures/model/models" ] || { echo "$fixtures/model/models is missing" >&2; exit 77; }
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
tokens=$fixtures/model/train/data.safetensors
model() { echo "$fixtures/model/models/$1"; }
settings() { printf '%s\n' "$2" > "$1"; }
ranks() {
	local n=$1
	shift
	"$root/tests/lib/run/envrun" -n "$n" "$@"
}
trains() {
	local status=$1 dir=$2 count=$3
	shift 3
	[ ! -e ds.json ] || set -- --config ds.json "$@"
	types "$status" ztrain --model "$(model qwen25)" --data "$tokens" --seq 33 --lr 1e-3 --steps "$count" \
		--save "$dir" --exact "$@"
}
# losses: 'step N/M loss ...' lines of the last answer, without times
losses() { sed -n 's/^\(step [0-9]*\)\/[0-9]* *\(.*\)$/\1 \2/p' "$said"; }
