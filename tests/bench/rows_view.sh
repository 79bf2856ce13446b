# shellcheck shell=bash disable=SC2154
# rows_view.sh - reading through `zckpt mount` and `zckpt serve`; bench.sh sources it.

# same_bytes FILE CONVERTED ROW
same_bytes() { cmp -s "$1" "$2" || row "$3" '' '' '' 'right bytes' 'wrong bytes'; }

# Reads of the mounted file against reads of the converted one: out of the kernel's pages, and made
# again after they were dropped, and for the first time, when every record is compared with its sum.
mount_rows() {
	local src=$1 name=$2 type=$3 i server at
	mkdir -p "$w/view"
	fresh
	for ((i = 0; i < RUNS; i++)); do
		"$ZCKPT" mount -q -f "$src" "$w/view" >"$w/said" 2>&1 &
		server=$!
		for _ in {1..150}; do [ ! -e "$w/view/latest" ] || break; sleep 0.1; done
		at=$w/view/latest/$type/model.safetensors
		if [ ! -e "$at" ]; then
			kill "$server" 2>/dev/null
			row "mount, $name" '' '' '' '>= 0.5 x' "skipped: $(head -n 1 "$w/said")"
			return
		fi
		stat "$at" >"$w/said"
		# shellcheck disable=SC2016
		run first bash -c 'cat "$0" >/dev/null' "$at"
		# shellcheck disable=SC2016
		run cat bash -c 'cat "$0" >/dev/null' "$w/truth.safetensors"
		# shellcheck disable=SC2016
		run pages bash -c 'cat "$0" >/dev/null' "$at"
		"$w/dropcache" "$at"
		# shellcheck disable=SC2016
		run made bash -c 'cat "$0" >/dev/null' "$at"
		[ $i -gt 0 ] || same_bytes "$at" "$w/truth.safetensors" "mount, $name"
		kill "$server"
		wait "$server"
	done
	speed_row "mount, $name, from the kernel's pages, against cat" cat pages 0.5
	note_row "  the same, made from the checkpoint, against cat" made cat
	note_row "  the first time, compared with sums, against cat" first cat
}

serve_rows() {
	local src=$1 name=$2 type=$3 i server at
	if ! command -v curl >/dev/null; then
		row "serve, $name" '' '' '' '<= 3.00' 'skipped: no curl'
		return
	fi
	fresh
	for ((i = 0; i < RUNS; i++)); do
		: >"$w/urls"
		"$ZCKPT" serve -q --port 0 "$src" >"$w/urls" 2>"$w/said" &
		server=$!
		for _ in {1..150}; do ! grep -q ^try: "$w/urls" || break; sleep 0.1; done
		at=$(head -n 1 "$w/urls")latest/$type/model.safetensors
		if ! grep -q ^try: "$w/urls"; then
			kill "$server" 2>/dev/null
			row "serve, $name" '' '' '' '<= 3.00' "skipped: $(head -n 1 "$w/said")"
			return
		fi
		rm -f "$w/got"
		run first curl -sf -o "$w/got" "$at"
		[ $i -gt 0 ] || same_bytes "$w/got" "$w/truth.safetensors" "serve, $name"
		rm -f "$w/got"
		run cp cp --reflink=never "$w/truth.safetensors" "$w/got"
		rm -f "$w/got"
		run again curl -sf -o "$w/got" "$at"
		rm -f "$w/got"
		kill "$server"
		wait "$server"
	done
	time_row "serve, $name, curl to a file, against cp" again cp 3.00
	note_row "  the first time, compared with sums, against cp" first cp
}

view_rows() {
	local stage type
	wants view || return 0
	for stage in 2 3; do
		gen --model llama-0.2b --stage "$stage" --world 8 --no-moments-data "$w/src"
		for type in fp32 bf16; do
			"$ZCKPT" convert -q -f --no-sums --dtype $type "$w/src" "$w/truth.safetensors" >"$w/said" 2>&1
			mount_rows "$w/src" "stage $stage, $type" $type
			serve_rows "$w/src" "stage $stage, $type" $type
		done
		rm -rf "$w/src" "$w/truth.safetensors"
	done
}
