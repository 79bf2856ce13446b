#!/bin/bash
# Really full disks: a small tmpfs that fills at one point after the other, in bytes or in inodes,
# under every verb that writes.  If this fails, a full disk loses what stood there before, leaves
# half a result that is in the way of the next run, or ends without a sentence.  With more room
# the same command runs to its end.
#
# A sample of sizes, by ZCKPT_SEED, which is printed; ZCKPT_LONG=1: all of them.
set -u
here=$(cd "$(dirname "$0")" && pwd)
zckpt=${ZCKPT:-$here/../../build/zckpt}
gen=${ZCKPT_BUILD:-$(dirname "$(readlink -f "$zckpt")")}/tests/bench/gen_zero
save_from=$(dirname "$gen")/save_from
try_mount='d=$(mktemp -d) && mount -t tmpfs -o size=64k zckpt "$d" && umount "$d"; rc=$?; rmdir "$d"; exit $rc'

if [ "${1-}" != inside ]; then
	for how in -m -rm; do
		if unshare $how bash -c "$try_mount" 2> /dev/null; then
			exec unshare $how bash "$0" inside
		fi
	done
	echo 'no file system can be mounted here: that takes root, or user namespaces' >&2
	exit 77
fi
for program in "$gen" "$save_from"; do
	[ -x "$program" ] || { echo "$program is not built" >&2; exit 1; }
done
: "${ZCKPT_SEED:=$(date +%s)}"
RANDOM=$((ZCKPT_SEED % 32768))
long=${ZCKPT_LONG:-0}
echo "ZCKPT_SEED=$ZCKPT_SEED"
W=$(mktemp -d /dev/shm/zckpt-full.XXXXXX 2> /dev/null || mktemp -d) || exit 1
D=$W/disk
mkdir "$D" "$W/old" "$W/good" || exit 1
trap 'umount "$D" 2> /dev/null; rm -rf "$W"' EXIT
trap 'exit 130' INT TERM
wrong=0

# ------------------------------------------------------------------ what is run
"$gen" -q --params 1M --world 2 --stage 2 "$W/step" || exit 1
"$zckpt" reshard -q 2:2 "$W/step" "$W/run" --new-tag source || exit 1
"$zckpt" convert -q "$W/run" "$W/model.safetensors" --dtype bf16 || exit 1
"$zckpt" digest -q "$W/model.safetensors" | awk '$2 == "weight" { print $3 }' > "$W/order"
name=$(head -n 1 "$W/order")
reshard() { "$zckpt" reshard -q "$W/run" "$D/run" "$@"; }

# NAME; run_NAME is the verb, before_NAME (if there is one) makes what stands there before.
cases='pt pt_force folder states step step_into step_force universal universal_in shard part commit set_latest cat verify slim prune save save_into'
run_pt() { "$zckpt" convert -q "$W/run" "$D/w.pt"; }
before_pt_force() { echo old > "$D/w.pt"; }
run_pt_force() { "$zckpt" convert -q "$W/run" "$D/w.pt" --force; }
before_folder() { mkdir "$D/hf"; echo '{}' > "$D/hf/config.json"; echo old > "$D/hf/model.safetensors"; }
run_folder() { "$zckpt" convert -q "$W/run" "$D/hf" --max-shard-size 200K --force; }
run_states() { "$zckpt" convert -q "$W/run" "$D/states" --state all; }
run_step() { reshard --world 3; }
older() { "$zckpt" reshard -q "$W/run" "$D/run" --world 1 --new-tag "$1"; echo theirs > "$D/run/notes"; }
before_step_into() { older older; }
run_step_into() { reshard --world 3; }
before_step_force() { older source; }
run_step_force() { reshard --world 3 --force; }
run_universal() { reshard --to universal; }
run_universal_in() { "$zckpt" reshard -q "$W/universal" "$D/run" --world 3 --stage 3; }
run_shard() { "$zckpt" shard -q "$W/model.safetensors" "$D/run" --world 2 --stage 3 --lr 1e-3 --order "$W/order"; }
run_part() { "$zckpt" convert -q "$W/run" "$D/w.pt" --part 1/2; }
before_commit() { run_part && "$zckpt" convert -q "$W/run" "$D/w.pt" --part 2/2; }
run_commit() { "$zckpt" commit -q "$D/w.pt" --timeout 0; }
before_set_latest() { older a; older b; }
run_set_latest() { "$zckpt" set-latest -q "$D/run" a; }
before_cat() { echo old > "$D/w.npy"; }
run_cat() { "$zckpt" cat -q "$W/run" "$name" -o "$D/w.npy" --force; }
before_verify() { older a; }
run_verify() { "$zckpt" verify -q "$D/run" --write-manifest; }
run_slim() { "$zckpt" slim -q --moments "$W/run" "$D/run"; }
before_prune() { older a1; older a2; }
run_prune() { "$zckpt" prune -q --moments-last 1 --apply "$D/run"; }
# One rank: of several, records stay for the next save to drop.
run_save() { "$save_from" "$W/run" "$D/run" s native 2 2 1; }
before_save() { mkdir "$D/run"; }
before_save_into() { older older; }
run_save_into() { "$save_from" "$W/run" "$D/run" s deepspeed 3 2 1; }
"$zckpt" reshard -q "$W/run" "$W/universal" --to universal || exit 1

# ------------------------------------------------------------------ one disk
disk() { mount -t tmpfs -o "$1" zckpt "$D" || exit 1; }
used() { df -k --output=used "$D" | tail -n 1; }
inodes() { df --output=iused "$D" | tail -n 1; }
say() {
	echo "$case, $options: $1"
	sed 's/^/  /' "$W/err"
	find "$D" | sed "s|^$D|  there is |"
	wrong=$((wrong + 1))
}
partial() { find "$D" -name '*.zckpt-partial' -o -name '*.zckpt-new' -o -name '*.tmp'; }

# The record of a part has the number of its process.
is_good() { diff -r -x '*.rec' "$W/good/$case" "$D" > /dev/null; }

# attempt OPTIONS: on a disk like that, then on a large one.
attempt() {
	local rc
	options=$1
	disk "$options"
	if ! cp -a "$W/old/$case/." "$D" 2> /dev/null; then
		umount "$D"	# not even what stood there fits
		return
	fi
	tried=$((tried + 1))
	run_"$case" > /dev/null 2> "$W/err"
	rc=$?
	if [ $rc = 0 ]; then
		is_good || say 'it says it is done, and it is not'
	else
		full=$((full + 1))
		[ $rc = 3 ] || say "exit $rc, not 3"
		grep -q 'No space left on device\|not enough space on this disk' "$W/err" ||
			say 'no sentence says that the disk is full'
		[ "$case" = commit ] || diff -r "$W/old/$case" "$D" > /dev/null ||
			say 'what stood there is not as it was'
		[ "$case" != commit ] || [ ! -e "$D/w.pt" ] || say 'half of a commit'
		[ "$case" = commit ] || [ -z "$(partial)" ] || say 'it left partial output behind'
		mount -o remount,size=64m,nr_inodes=10000 "$D" || exit 1
		run_"$case" > /dev/null 2> "$W/err" || say 'with more room it fails as well'
		is_good || say 'with more room it makes something else'
	fi
	umount "$D"
}

# Numbers from $1 to $2 by $3, or $4 of them.
choose() {
	if [ "$long" != 0 ]; then
		seq "$1" "$3" "$2"
	else
		for ((i = 0; i < $4; i++)); do echo $(($1 + (RANDOM * 32768 + RANDOM) % ($2 - $1 + 1))); done
	fi
}

torture() {
	local k0 k1 i0 i1 size step n
	case=$1 tried=0 full=0
	mkdir "$W/old/$case" "$W/good/$case"
	disk size=64m
	if declare -F "before_$case" > /dev/null; then before_"$case" || exit 1; fi
	cp -a "$D/." "$W/old/$case"
	k0=$(used) i0=$(inodes)
	run_"$case" > /dev/null 2> "$W/err" || say 'with much room it fails'
	cp -a "$D/." "$W/good/$case"
	k1=$(used) i1=$(inodes)
	umount "$D"
	# What is replaced stands beside the new one for a while; folders and the record take some.
	step=$(((k1 + 64) / 96 * 4 + 4))
	for size in $k0 $((k0 + 4)) $(choose $k0 $((k0 + k1 + 64)) $step 3); do
		attempt "size=${size}k"
	done
	# The last pages: the result fits by its bytes, not by its pages.
	for size in $(choose $((k1 - 16)) $((k1 + 48)) 4 1); do
		[ "$size" -lt "$k0" ] || attempt "size=${size}k"
	done
	for n in $(choose $((i0 + 1)) $((i0 + i1 + 6)) 1 3); do
		attempt "size=64m,nr_inodes=$n"
	done
	printf '%-14s %4d disks, %4d of them full\n' "$case" $tried $full
}

# ------------------------------------------------------------------ two runs, room for one and a half
both() {
	local need a b
	case=both options="size=$1k"
	disk "$options"
	"$zckpt" convert -q "$W/run" "$D/a.safetensors" 2> "$W/err.a" & a=$!
	"$zckpt" convert -q "$W/run" "$D/b.safetensors" 2> "$W/err.b" & b=$!
	wait $a; a=$?
	wait $b; b=$?
	cat "$W/err.a" "$W/err.b" > "$W/err"
	for f in a b; do
		if [ ${!f} = 0 ]; then
			cmp -s "$W/good.safetensors" "$D/$f.safetensors" || say "$f is said to be done, and is not"
		else
			full=$((full + 1))
			[ ${!f} = 3 ] || say "$f: exit ${!f}, not 3"
			[ ! -e "$D/$f.safetensors" ] || say "$f is half a file"
			grep -q 'No space left on device\|not enough space on this disk' "$W/err.$f" ||
				say "no sentence of $f says that the disk is full"
		fi
	done
	[ -z "$(partial)" ] || say 'partial output is left behind'
	umount "$D"
}

for case in $cases; do torture "$case"; done
"$zckpt" convert -q "$W/run" "$W/good.safetensors" || exit 1
full=0
size=$(($(stat -c %s "$W/good.safetensors") / 1024))
for ((turn = 0; turn < (long ? 40 : 4); turn++)); do both $((size * 3 / 2)); done
echo "two at once: $full runs met a full disk"
[ $wrong = 0 ]
