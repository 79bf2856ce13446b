#!/bin/bash
# usage: test_ztrain_bench.sh
#
# `ztrain bench`: numbers that belong together, on one rank and on two; what is held is what is
# expected and what `zckpt plan` says; a timeline that can be read; stages compared under a bound;
# the picture, with gnuplot and without; wrong calls.  If this fails, a stage is recommended for
# what it does not do.
#
# ZTRAIN=build/ztrain-gpu DEVICE=cuda: the same on GPUs (two ranks want two of them).
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/ztrain.sh"
need_models
device=${DEVICE:-cpu}
python=$(command -v python3)

config() {
	cat <<-END
	{
		"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0,
		"zero_optimization": {"stage": $1}, "bf16": {"enabled": true},
		"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}
	}
	END
}
for stage in 0 1 2 3; do config $stage > z$stage.json; done
# bench RANKS OPTION...
bench() {
	local ranks=$1
	shift
	set -- "$ztrain" bench --device "$device" --seq 33 --steps 4 --warmup 1 "$@"
	[ "$ranks" = 1 ] || set -- "$mpirun" -n "$ranks" "$@"
	"$@" > said 2> told
}
# holds WORDS: the last call ended well, and python's 'd' is its object, of which WORDS are true
holds() {
	[ -n "$python" ] || return 0
	"$python" - "$1" > bad 2>&1 << 'END' && good || { cat bad >> said; bad "not so: $1"; }
import json, sys
d = json.load(open('said'))
r = d['runs']
sys.exit(0 if eval(sys.argv[1]) else 1)
END
}
# sums: bytes that the last call's reduce-scatter sent in a step
sums() { sed -n 's/^sent  *\([0-9,]*\) bytes of a step, by reduce-scatter$/\1/p' said | tr -d ,; }
# refused STATUS TEXT OPTION...
refused() {
	local want=$1 text=$2 rc
	shift 2
	"$ztrain" bench "$@" > said 2>&1
	rc=$?
	{ [ $rc = "$want" ] && grep -qF -- "$text" said; } && good ||
		bad "exit status $rc, $want is wanted, with '$text'"
}

# ---- --overflow: what a run with it sends, which is half of it in fp16 at stages 0 and 1
refused 1 '--overflow needs fp16; the precision is bf16' --model "$models/qwen3" --config z1.json --device cpu --overflow units
if has_ranks && [ "$device" = cpu ]; then
	sed 's/bf16/fp16/' z1.json > f1.json
	bench 2 --model "$models/qwen3" --config f1.json && good || bad 'fp16'
	units=$(sums)
	for how in 'units 1' 'deepspeed 2'; do
		set -- $how
		bench 2 --model "$models/qwen3" --config f1.json --overflow "$1" && good || bad "--overflow $1"
		[ -n "$units" ] && [ "$(sums)" = $((units / $2)) ] && good || bad "$1 sends $(sums), not $units / $2"
		! grep -q 'not equal' said && good || bad "$1: memory"
	done
fi

ranks=1
has_ranks && ranks='1 2'
for n in $ranks; do
	for stage in 0 3; do
		bench $n --model "$models/qwen3" --config z$stage.json --json --peak-tflops 0.5 && good ||
			bad "stage $stage on $n ranks"
		holds "len(r) == 1 and r[0]['ran'] and r[0]['stage'] == $stage and d['ranks'] == $n"
		holds "abs(r[0]['tokens_per_second'] * r[0]['seconds'] - 2 * 2 * 33) < 1e-6"
		holds "abs(r[0]['mfu'] * 0.5e12 - r[0]['tokens_per_second'] * r[0]['flop_per_token']) < 1"
		holds "r[0]['held'] == r[0]['expected']"
		[ "$device" = cuda ] || holds "r[0]['held'] == r[0]['plan']"
		holds "sum(r[0]['held'].values()) == 2 * r[0]['held']['total'] == 2 * r[0]['peak_most']"
		holds "(r[0]['sent']['reduce-scatter'] > 0) == ($n > 1)"
		holds "r[0]['seconds_least'] <= r[0]['seconds_low'] <= r[0]['seconds'] <= r[0]['seconds_high']"
		holds "0 <= r[0]['waited_gathers'] + r[0]['waited_reductions'] <= r[0]['traced_seconds']"
	done
done

# ---- bytes that are sent: those of `ztrain --counters`, a step of it
if [ "$ranks" != 1 ] && [ "$device" = cpu ]; then
	for steps in 1 2; do
		"$mpirun" -n 2 "$ztrain" --model "$models/qwen3" --config z2.json --seq 33 --random --quiet \
			--steps $steps --counters > counters$steps 2>&1
	done
	bench 2 --model "$models/qwen3" --config z2.json --json
	for kind in all-gather reduce-scatter; do
		one=$(awk -v kind=$kind '$2 == 0 && $3 == "sent" && $4 == kind { print $5 }' counters1)
		two=$(awk -v kind=$kind '$2 == 0 && $3 == "sent" && $4 == kind { print $5 }' counters2)
		holds "r[0]['sent']['$kind'] == ${two:-0} - ${one:-0} > 0"
	done
fi

# ---- the table, and a timeline
for n in $ranks; do
	bench $n --model "$models/llama3" --config z3.json --table --trace trace$n.json && good || bad "a table of $n"
	for word in 'a step ' 'tokens/s ' 'waited ' 'optimizer ' 'total ' 'timeline of 3 steps'; do
		grep -q "^$word" said && good || bad "no line '$word'"
	done
	! grep -q MFU said && good || bad 'an MFU of a processor that is not known'
	! grep -q 'not equal' said && good || bad 'memory is not what was expected'
	[ -z "$python" ] || "$python" - trace$n.json $n > said 2>&1 << 'END' && good || bad "the timeline of $n ranks"
import json, sys
events = json.load(open(sys.argv[1]))['traceEvents']
ranks = int(sys.argv[2])
spans = [e for e in events if e['ph'] == 'X']
names = {(e['pid'], e['tid']): e['args']['name'] for e in events if e['name'] == 'thread_name'}
assert {e['pid'] for e in events} == set(range(ranks))
rows = {}
for e in spans:
    rows.setdefault((e['pid'], e['tid']), []).append(e)
    assert e['dur'] >= 0 and names[e['pid'], e['tid']].startswith(('compute', 'communication', 'copies', 'host'))
for row in rows.values():
    row.sort(key=lambda e: e['ts'])
    for a, b in zip(row, row[1:]):
        assert a['ts'] + a['dur'] <= b['ts'] + 0.0021, (a, b)
for rank in range(ranks):
    own = [e['name'] for e in spans if e['pid'] == rank]
    for what in ['forward 0', 'backward 0', 'adam 1', 'norm', 'head', 'embed']:
        assert what in own, what
    assert ranks == 1 or 'gather 1' in own and 'reduce 1' in own
END
done

# ---- stages
for n in $ranks; do
	bench $n --model "$models/qwen3" --precision bf16 --stages 0,1,2,3 --rows 3 --json && good || bad "stages of $n"
	holds "[x['stage'] for x in r] == [0, 1, 2, 3] and all(x['ran'] and x['rows'] == 3 for x in r)"
	holds "d['recommended'] in (0, 1, 2, 3) and d['why'].startswith('stage %d: ' % d['recommended'])"
	holds "all(x['held'] == x['expected'] and x['fit_bytes'] == x['held']['total'] for x in r)"
done
bench 1 --model "$models/qwen3" --precision bf16 --stages 3,1 --rows 3 --plot stages.png && good || bad 'a plot'
for word in '    3       3 ' '    1       3 ' 'recommended: stage '; do
	grep -q "^$word" said && good || bad "no line '$word'"
done
{ [ "$(grep -c '^"' stages.png.txt)" = 2 ] && [ -s stages.png.gp ]; } && good || bad 'the numbers of the plot'
if command -v gnuplot > /dev/null 2>&1; then
	{ head -c 8 stages.png | od -An -c | grep -q 'P *N *G'; } && good || bad 'the picture'
else
	grep -q 'no plot: ' told && good || bad 'no picture, and nobody says so'
fi
mkdir none
PATH=$work/none "$ztrain" bench --device "$device" --model "$models/qwen3" --stages 2 --rows 1 --seq 9 --steps 1 \
	--plot nothing.png > said 2>&1
{ [ $? = 0 ] && grep -q 'no plot: gnuplot is not installed' said && [ ! -e nothing.png ] &&
	[ -s nothing.png.txt ]; } && good || bad 'without gnuplot'
if [ "$device" = cpu ]; then
	bench 1 --model "$models/qwen3" --precision bf16 --stages 0,3 --memory 5MB --json && good || bad 'a bound'
	holds "d['limit_bytes'] == 5000000 and all(0 < x['rows'] < 16 and x['held']['total'] <= 5000000 for x in r)"
	bench 1 --model "$models/qwen3" --stages 1,2 --memory 100K --json && good || bad 'nothing fits'
	holds "d['recommended'] is None and not any(x['ran'] for x in r) and 'no stage fits' in d['why']"
	bench 1 --model "$models/qwen3" --stages 1 --memory 0.1e6 --json && good || bad 'a size with an exponent'
	holds "d['limit_bytes'] == 100000"
	bench 1 --model "$models/qwen3" --stages 1 --memory 100K && grep -q 'stage 1: a row needs .* are free' said &&
		good || bad 'why nothing fits'
	bench 1 --model "$models/qwen3" --precision bf16 --stages 0,3 --rows 1 --offload --json
	holds "'host optimizer' in r[1]['held'] and 'host parameters' in r[1]['held'] and 'optimizer' in r[0]['held']"
fi

# ---- wrong calls
refused 2 '--model is required' --table
refused 2 'give one of them' --model x --table --stages 1
refused 2 '--trace records one' --model x --trace y --stages 1
refused 2 '--plot needs --stages' --model x --plot y
refused 2 '--memory needs --stages' --model x --memory 1G
refused 2 'expected a list of stages from 0,1,2,3' --stages 0,4
refused 2 'expected a list of stages from 0,1,2,3' --stages 0,
refused 2 'expected a list of stages from 0,1,2,3' --stages 01
refused 2 'stage listed twice' --stages 1,2,1
refused 2 'expected a size' --memory much
refused 2 'expected a size' --memory 1e20
refused 2 'whole number from 1' --steps 0
refused 2 'a number above 0' --model x --peak-tflops 0
refused 2 'unknown argument: more' --model x more
refused 2 'ztrain bench: there is no option --save' --save here
# as deepspeed's launcher starts it
"$ztrain" --local_rank=1 bench --stages 7 > said 2>&1
{ [ $? = 2 ] && grep -q 'stages from 0,1,2,3' said; } && good || bad 'bench behind --local_rank'
refused 1 'max_position_embeddings' --model "$models/qwen3" --seq 1000000 --device "$device"
refused 1 'no-such' --model no-such
refused 1 'trace.json' --model "$models/qwen3" --seq 9 --steps 1 --warmup 0 --trace not/there/trace.json --device "$device"

# ---- the manual has every option, and no other
"$ztrain" bench --help --all | grep -o '^  --[a-z0-9-]*' | tr -d ' ' | sort -u > options
tr -d '\\' < "$root/docs/man/ztrain-bench.1" | grep '^[.]\(BI\|B\|BR\) -' | grep -o -- '--[a-z0-9-]*' |
	grep -vx -e --stages | sort -u > manual
echo --stages | sort -u - manual | diff options - > said && good || bad 'the manual and --help'

finish
