# Distributed checkpoints of Megatron-Core under its own names: every verb reads an iteration of a
# run, finds which one is meant, and refuses what is damaged, incomplete or hostile.
M=$FIXTURES/parallel
N='--names native'
mkdir run
cp -r "$M/mc0.16.1-llama-w1/ckpt/." run
cp -r run/iter_0000003 run/iter_0000012
echo '== which'
zckpt ls run | awk 'NR > 1 { print $1, $6, $8, $9, $10, $11 }'
zckpt latest run
zckpt latest --valid run
zckpt inspect run 2> /dev/null | grep -E '^(path|tag|chosen|format|written|optimizer|step|files) ' | grep -v groups
for tag in 3 12 iter_0000012 4; do
	zckpt inspect --tag $tag run 2>&1 | grep -E '^tag|TAG_STEP|no step'
done
zckpt doctor run 2>&1 | grep LATEST
zckpt verify --full $N run | head -n 1
zckpt prune --keep-last 1 run 2>&1 | grep iter_
echo '== verbs'
zckpt cat $N -q --to text run 'decoder.final_layernorm.weight[:3]' 2>&1
zckpt digest $N -q run | head -n 3
zckpt diff $N run/iter_0000003 run/iter_0000012 > /dev/null && echo the same
zckpt diff $N -q run "$M/mc0.16.1-llama-dp3-singleton/ckpt" > /dev/null 2>&1 || echo not the same
zckpt map $N -q run decoder.final_layernorm.weight 2>&1 | head -n 6
zckpt convert $N -q run native.safetensors && zckpt inspect -q native.safetensors | grep -c weight
echo '== the file that names it'
printf 12 > run/latest_checkpointed_iteration.txt
zckpt latest run
printf 5 > run/latest_checkpointed_iteration.txt
zckpt inspect run 2>&1
zckpt latest run 2>&1
zckpt verify run 2>&1 | head -n 1
zckpt doctor run 2>&1 | tail -n 1
zckpt set-latest run iter_0000003 2>&1
mv run/iter_0000012 run/release
printf release > run/latest_checkpointed_iteration.txt
zckpt latest run
rm run/latest_checkpointed_iteration.txt
zckpt latest run
rm -r run/release
zckpt inspect run 2>&1 | grep chosen
echo '== states'
for name in mc0.12.3-mixtral-ep2 mc0.14.0-mixtral-ep2-grouped mc0.14.0-qwen3-tp2-dp2-newtorch \
	mc0.16.1-qwen2-pp2-dp2-tied mc0.16.1-llama-tp2-plainopt mc0.19.0-qwen3moe-ep2-pp2; do
	zckpt inspect "$M/$name/ckpt" 2>&1 | grep -E '^(written|  warning)'
	zckpt inspect --json "$M/$name/ckpt" | grep -E '^    "(layout|optimizer_layout)"'
done
echo '== not whole'
refused() {
	zckpt verify ${2-$N} "$1" > out 2>&1
	printf 'verify %d: ' $?
	head -n 1 out
	zckpt convert ${2-$N} -q "$1" out.safetensors 2>&1 | grep -v hint | head -n 2
	test ! -e out.safetensors || echo written
}
for name in common-hostile common-missing hole; do
	refused "$M/broken-mc-$name/ckpt"
done
for name in metadata.json .metadata __0_0.distcp; do
	rm -rf cut
	cp -r run cut
	rm cut/iter_0000003/$name
	refused cut/iter_0000003
done
cp -r "$M/mc0.19.0-llama-tp2-dp2/ckpt/iter_0000003" new
rm new/metadata.json
refused new ''
zckpt doctor new 2>&1 | grep '^next'
rm run/iter_0000003/metadata.json
for verb in inspect verify doctor ls; do zckpt $verb run 2>&1 | grep -E '^next|hint|metadata.json is'; done
zckpt verify --as-warning MODEL_FILE_MISSING -q run && echo read all the same
cp -r "$M/mc0.16.1-llama-w1/ckpt/iter_0000003" run/iter_0000002
for verb in inspect verify doctor; do zckpt $verb run 2>&1 | tail -n 1; done
rm -r run/iter_0000002
cp "$M/mc0.16.1-llama-w1/ckpt/iter_0000003/metadata.json" run/iter_0000003
rm -rf cut
cp -r run cut
truncate -s 30000 cut/iter_0000003/__0_0.distcp
refused cut/iter_0000003 | cut -c 1-120
printf '{"sharded_backend": "fsdp_dtensor"}' > cut/iter_0000003/metadata.json
refused cut/iter_0000003
printf 'no zip' > run/iter_0000003/common.pt
refused run
