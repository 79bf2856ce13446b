#!/bin/bash
# usage: make-seeds.sh OUT
#
# Seeds of every fuzz target in OUT/TARGET, from the fixtures ($ZCKPT_FIXTURES, $ZCKPT_BUILD and
# $ZCKPT as the Makefile sets them). Larger files than a target takes are left out.
set -eu
export LC_ALL=C
out=$1
fix=$ZCKPT_FIXTURES
pack=$ZCKPT_BUILD/tests/fuzz/fz_pack
work=$(mktemp -d "${TMPDIR:-/tmp}/zckpt-seeds.XXXXXX")
trap 'rm -rf "$work"' EXIT

# copy TARGET BYTES FILE...: those of at most so many bytes, numbered.
copy() {
	local target=$1 max=$2 file
	shift 2
	mkdir -p "$out/$target"
	for file; do
		[ "$(stat -c %s "$file")" -gt "$max" ] ||
			cp "$file" "$out/$target/$(printf %s "${file#"$fix"/}" | tr / +)"
	done
}
mapfile -t pt < <(find "$fix/formats/zip" "$fix/formats/pickle" "$fix/formats/torch" \
	"$fix/formats/legacy" -name '*.pt' -size -17k | sort)
zips=() streams=()
for file in "${pt[@]}"; do
	case $(head -c 2 "$file" | od -An -tx1 | tr -d ' ') in
	504b) zips+=("$file") ;;
	*) streams+=("$file") ;;
	esac
done
copy zip 6000 "$fix"/formats/zip/*.pt "$fix"/formats/zip/{flip,trunc}/*.pt
copy legacy 16000 "${streams[@]}"
copy safetensors 8000 "$fix"/formats/safetensors/*.safetensors
find "$fix/formats/hf" "$fix/formats/detect" -name '*.json' -size -16k > "$work/json"
mapfile -t json < "$work/json"
copy json 8000 "${json[@]}"

mkdir -p "$out/torch" "$out/pickle" "$out/hf" "$out/step" "$out/universal" "$out/hjson"
for file in "${zips[@]}"; do
	name=$(printf %s "${file#"$fix"/formats/}" | tr / +)
	if "$pack" "$file" > "$work/seed" 2> /dev/null && [ "$(stat -c %s "$work/seed")" -lt 20000 ]; then
		mv "$work/seed" "$out/torch/$name"
		sed -n '1!p' "$out/torch/$name" > "$out/pickle/$name"
	fi
done
# What contains itself, what is written in a way of its own, and great depth.
n=0
while read -r text; do
	n=$((n + 1))
	printf "$text" > "$out/pickle/by-hand-$n"
done <<'END'
\200\002]q\000h\000a.
\200\002}q\000K\001h\000s.
\200\002]q\000h\000\205q\001a0h\001.
\200\002]q\000(h\000h\000h\000h\000tq\001a0h\001.
\200\002czoo\nState\nq\000]q\001h\000h\001\205q\002Rq\003a0h\002R0h\003.
\200\002czoo\nState\nq\000)\201q\001}q\002X\001\000\000\000aq\003h\001sb.
\200\002ccollections\nOrderedDict\n]](K\001K\002ea\205R.
\200\002ccollections\nOrderedDict\n](](K\001K\002e](K\003K\004ee\205R.
\200\004cbuiltins\nbytearray\n)R.
\200\005\226\001\000\000\000\000\000\000\000x.
\200\002c__builtin__\nbytearray\nX\002\000\000\000\303\251X\007\000\000\000latin-1\206R.
\200\002c__builtin__\ndict\n}K\001K\002s\205R.
\200\002c__builtin__\ndict\n)R.
\200\002c__builtin__\nset\n]K\001a\205R.
\200\002c__builtin__\ncomplex\nG\000\000\000\000\000\000\000\000G\077\360\000\000\000\000\000\000\206R.
\200\004czoo\nState\n)}\214\001kK\001s\222.
(izoo\nOld\n.
(czoo\nOld\no.
\200\002c__builtin__\ngetattr\nq\000czoo\nMode\nq\001X\004\000\000\000FASTq\002\206q\003Rq\004.
\200\002c__builtin__\ngetattr\nq\000h\000czoo\nOuter\nX\005\000\000\000Inner\206RX\001\000\000\000A\206R.
\200\002c__builtin__\ngetattr\nczoo\nMode\nX\004\000\000\000FAST\206R)R.
\200\002cfunctools\npartial\nc__builtin__\ngetattr\nczoo\nMode\nX\004\000\000\000FAST\206R\205R.
\200\004\217\224(K\001\220.
\200\004(K\001K\002\221.
END
depth() { for i in $(seq 1 "$2"); do printf "$1"; done; }
{ depth ']' 990; depth a 989; printf .; } > "$out/pickle/depth-990"
{ depth ']' 1100; depth a 1099; printf .; } > "$out/pickle/depth-1100"
{ printf 'K\001'; depth '\205' 1100; printf .; } > "$out/pickle/depth-tuples"
for dir in "$fix"/formats/hf/*/; do
	"$pack" "$dir" > "$work/seed" && [ "$(stat -c %s "$work/seed")" -lt 20000 ] &&
		mv "$work/seed" "$out/hf/$(basename "$dir")"
done
mkdir -p "$out/manifest"
for dir in "$fix"/formats/hf/{good,single,good-bin,tied-bin}; do
	rm -rf "$work/with"
	cp -r "$dir" "$work/with"
	chmod -R u+w "$work/with"
	"$ZCKPT" verify -q --write-manifest "$work/with" > /dev/null 2>&1 || continue
	"$pack" -r "$work/with" > "$out/manifest/$(basename "$dir")"
done
# The text of a safetensors header is JSON as well.
for file in "$fix"/formats/safetensors/*.safetensors; do
	[ "$(stat -c %s "$file")" -gt 4000 ] || tail -c +9 "$file" > "$out/json/$(basename "$file").json"
done
cp "$out"/json/* "$out/hjson/"
cat > "$out/hjson/by-hand" <<'END'
{
  # a comment
  zero_optimization: { stage: 2, // to the end
    'offload': none  /* and this */ },
  bf16: { enabled: true, }
  train_batch_size: 8 # eight
  path: a string, without # quotes
}
END
copy config 8000 "$fix"/config/odd/*.json "$fix"/config/user*.json "$fix"/config/fragments/*.txt
copy accelerate 8000 "$fix"/config/odd/*.yaml "$fix"/config/user*.yaml "$fix"/config/fragments/*.yaml
# What to reshard to changes from step to step: world, stage, flags, version (fz_files.c).
n=0
for dir in "$fix"/deepspeed/*/; do
	name=$(basename "$dir")
	n=$((n + 1))
	wish="$((n % 5)) $((n % 6)) $((n / 3 % 8)) $((n / 2 % 5))"
	if "$pack" "$dir/ckpt" "$wish" > "$work/seed" &&
		[ "$(stat -c %s "$work/seed")" -lt 60000 ]; then
		mv "$work/seed" "$out/step/$name"
	fi
	case $name in
	*-z0-*)	# every stage can be made of stage 0
		for stage in 1 2 3 4 5; do
			"$pack" "$dir/ckpt" "2 $stage" > "$out/step/$name-to-$stage"
		done
		;;
	ds0.19.8-z2-bf16-w2 | ds0.19.8-z3-bf16-w2 | ds0.19.8-z2-fp32-w2 | ds0.15.4-z1-bf16-w2-bf16opt)
		for stage in 0 3 5; do
			"$pack" "$dir/ckpt" "3 $stage 0 3" > "$out/step/$name-to-$stage"
		done
		;;
	esac
	case $name in
	ds0.19.8-z[0123]-*-w2* | ds0.15.4-* | ds0.17.6-*)
		rm -rf "$work/uni"
		"$ZCKPT" reshard -q --to universal "$dir/ckpt" "$work/uni" > /dev/null 2>&1 || continue
		"$pack" "$work/uni" "$wish" > "$work/seed"
		[ "$(stat -c %s "$work/seed")" -gt 60000 ] || mv "$work/seed" "$out/universal/$name"
		;;
	esac
done
# Folders of FSDP: what each of a run of DCP, and rank files, whose extra states no reader opens.
mkdir -p "$out/dcp" "$out/ranks"
n=0
for dir in "$fix"/formats/dcp/{v2.[16]*,v2.11,v2.15,damaged}/*/; do
	n=$((n + 1))
	[ -e "$dir/.metadata" ] && "$pack" "$dir" "$((n % 4)) $((n % 7)) $((n / 3 % 8)) 0" > "$work/seed" || continue
	[ "$(stat -c %s "$work/seed")" -gt 120000 ] || mv "$work/seed" "$out/dcp/$(echo "${dir#"$fix"/formats/dcp/}" | tr -d /)"
done
rm -rf "$work/two"
mkdir "$work/two"
for sub in pytorch_model_fsdp_0 optimizer_0; do cp -r "$fix/formats/dcp/v2.11/basic" "$work/two/$sub"; done
"$pack" "$work/two" "2 6" > "$out/dcp/two"
for name in ds0.19.8-z{1,2,3}-bf16-w2-lora; do
	[ -d "$fix/deepspeed/$name" ] || continue
	rm -rf "$work/made"
	"$ZCKPT" reshard -q --to dcp "$fix/deepspeed/$name/ckpt" "$work/made" > /dev/null 2>&1 || continue
	"$pack" "$work/made"/*/ "2 2" > "$work/seed"
	[ "$(stat -c %s "$work/seed")" -gt 120000 ] || mv "$work/seed" "$out/dcp/made-$name"
done
for dir in "$fix"/fsdp/t2*-{verl-w[234],fulldcpless-,accel-w3-rank}*; do
	from=$(find "$dir/ckpt" -name '*rank_0.pt' -o -name '*_rank0.bin' -o -name optimizer.bin | head -1)
	rm -rf "$work/ranks"
	mkdir "$work/ranks"
	cp "$(dirname "$from")"/*{model_,optim}* "$work/ranks"
	"$pack" -k "$work/ranks" > "$out/ranks/$(basename "$dir")"
done
# Packs, and the same files as others pack them.
mkdir -p "$out/pack" "$work/step"
i=0
for src in "$fix"/formats/hf/{good,single} "$fix"/deepspeed/ds0.19.8-z{1,2,3}-bf16-w2*/ckpt \
	"$fix"/formats/safetensors/*.safetensors; do
	i=$((i + 1))
	"$ZCKPT" pack -q --level 1 "$src" - > "$work/seed" 2> /dev/null || continue
	[ "$(stat -c %s "$work/seed")" -gt 60000 ] || cp "$work/seed" "$out/pack/$i"
	[ ! -d "$src" ] || [ $i -gt 4 ] || {
		tar -C "$src" -cf "$work/a.tar" . && zstd -q -f "$work/a.tar" -o "$out/pack/$i.tar.zst"
		gzip -c "$work/a.tar" > "$out/pack/$i.tar.gz"
	}
done
echo hello > "$work/step/a"
ln -s /etc "$work/step/b"
tar -C "$work" -cf "$out/pack/link" step
rm "$work/step/b" && mkfifo "$work/step/p" && tar -C "$work" -cf "$out/pack/fifo" step
rm "$work/step/p"
tar -C "$work" -cf "$out/pack/above" --transform 's|^step|../step|' -P step
tar -C "$work" -cf "$out/pack/plain" step
head -c 200 /dev/zero > "$work/step/$(printf 'n%.0s' $(seq 1 120))" && tar -C "$work" --format pax -cf "$out/pack/long" step
# Two with their bytes as they are.
for name in ds0.19.8-z1-bf16-w2-lora ds0.19.8-z2-bf16-w2-lora; do
	"$pack" -r "$fix/deepspeed/$name/ckpt" "3 5" > "$out/step/raw-$name"
done
for dir in "$out"/*/; do
	printf '%s: %s seeds, %s bytes\n' "$(basename "$dir")" "$(find "$dir" -type f | wc -l)" \
		"$(cat "$dir"/* | wc -c)"
done
