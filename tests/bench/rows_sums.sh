# shellcheck shell=bash disable=SC2154
# rows_sums.sh - what sums and checks cost; bench.sh sources it.

# cpu SERIES: user and system seconds of a run, the median
cpu() { awk '{ print $6 + $7 }' "$w/$1.tm" | sort -g | awk '{ v[NR] = $1 }
	END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

# cost_row NAME SERIES PEER: processor time, and how many times the peer's
cost_row() {
	if bad "$2" || bad "$3"; then
		row "$1" failed '' '' '' failed
		return
	fi
	row "$1" "cpu $(printf %.3f "$(cpu "$2")") s" "cpu $(printf %.3f "$(cpu "$3")") s" \
		"$(printf %.2f "$(calc "$(cpu "$2") / $(cpu "$3")")")" '' ''
}

# sums_of SRC NAME OPTION...: a conversion with sums of what it writes against one without
sums_of() {
	local src=$1 name=$2 i
	shift 2
	fresh
	for ((i = 0; i < RUNS; i++)); do
		rm -f "$w/out.safetensors"
		run with "$ZCKPT" convert -q --threads 1 "$@" "$src" "$w/out.safetensors"
		rm -f "$w/out.safetensors"
		run without "$ZCKPT" convert -q --threads 1 --no-sums "$@" "$src" "$w/out.safetensors"
	done
	rm -f "$w/out.safetensors"
	cost_row "$name with sums, against --no-sums" with without
}

# A native step, whose sums are compared as it is read, against loops that compare nothing: a copy
# of a file of as many bytes as are written, cp -r of the step.
native_rows() {
	local step=$1 i
	fresh
	"$ZCKPT" convert -q "$step" "$w/truth.safetensors" >"$w/said" 2>&1
	for ((i = 0; i < RUNS; i++)); do
		rm -rf "$w/out.safetensors" "$w/dst"
		run rw "$w/rwloop" -t 1 -x 4 "$w/truth.safetensors" "$w/out.safetensors"
		rm -f "$w/out.safetensors"
		run conv "$ZCKPT" convert -q --threads 1 "$step" "$w/out.safetensors"
		rm -f "$w/out.safetensors"
		run cp cp -r --reflink=never "$step" "$w/dst"
		rm -rf "$w/dst"
		run resh "$ZCKPT" reshard -q --threads 1 --world 4 "$step" "$w/dst"
		rm -rf "$w/dst"
		run nat "$ZCKPT" reshard -q --threads 1 --to native --world 4 "$step" "$w/dst"
	done
	rm -rf "$w/out.safetensors" "$w/truth.safetensors" "$w/dst"
	cost_row "convert of a native step, sums compared and made, against a copy and XXH3" conv rw
	cost_row "reshard 8->4 of a native step, sums compared, against cp -r" resh cp
	cost_row "reshard 8->4 --to native of it, against cp -r" nat cp
}

# reading_rows STEP NAME: digest, diff and verify --full against pread and CRC-32 of the same files
reading_rows() {
	local i
	mapfile -t files < <(find "$1" -name '*.pt' -o -name '*.safetensors' | sort)
	fresh
	for ((i = 0; i < RUNS; i++)); do
		run crc "$w/crcloop" -t 1 "${files[@]}"
		run dig "$ZCKPT" digest -q --threads 1 "$1"
		run ver "$ZCKPT" verify --full -q --threads 1 "$1"
	done
	cost_row "digest of $2, sums compared, against pread and CRC-32" dig crc
	cost_row "verify --full of $2, against the same" ver crc
}

sums_rows() {
	local i
	wants sums || return 0
	gen --model llama-0.2b --stage 2 --world 8 "$w/src"
	"$ZCKPT" reshard -q --to native --world 8 "$w/src" "$w/native" >"$w/said" 2>&1
	"$ZCKPT" convert -q "$w/src" "$w/one.safetensors" >"$w/said" 2>&1
	sums_of "$w/src" 'convert fp32, 0.8 GB,'
	sums_of "$w/src" 'convert bf16, 0.8 GB,' --dtype bf16
	sums_of "$w/one.safetensors" 'convert of safetensors with sums, 0.8 GB,'
	reading_rows "$w/src" 'a ZeRO step, 2.4 GB'
	fresh
	for ((i = 0; i < RUNS; i++)); do
		run crc "$w/crcloop" -t 1 "${files[@]}" "${files[@]}"
		run diff "$ZCKPT" diff -q --threads 1 "$w/src" "$w/native"
	done
	cost_row 'diff of it and a native step, against pread and CRC-32 of twice the bytes' diff crc
	rm -rf "$w/src" "$w/one.safetensors"
	native_rows "$w/native"
	reading_rows "$w/native" 'a native step, 2.4 GB'
	rm -rf "$w/native"
}
