# Each exit status that a manual page documents, of each verb: 0 done or yes, 1 no, 2 wrong call,
# 3 trouble, 4 refused as unsafe. The statuses are what scripts see; nothing else is compared.
good=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
unsafe=$FIXTURES/formats/pickle/hostile-__builtin__.eval.pt
cp -r "$good" run && chmod -R u+w run
cp -r run cut && head -c 999 "$good"/*/mp_rank_00_model_states.pt > cut/global_step3/mp_rank_00_model_states.pt
cp -r run lies && echo nowhere > lies/latest
mkdir empty
cp -r run lost && rm lost/*/*rank_1*_optim_states.pt
printf '\200\002' > cut.pt
zckpt convert -q --only trainable run model.safetensors
zckpt digest run > run.digest
sed '1s/^....../000000/' run.digest > other.digest
seen=
is() {
	want=$1
	shift
	zckpt "$@" > out 2> err < /dev/null
	got=$?
	[ $got = "$want" ] || echo "zckpt $*: exit $got, not $want: $(head -n 1 err)"
	seen="$seen $1:$want"
}
is 0 audit run; is 1 audit "$unsafe"; is 2 audit; is 3 audit cut.pt
is 0 cat run norm.weight; is 2 cat run no.such; is 3 cat cut norm.weight; is 4 cat "$unsafe" x
is 0 convert run a.safetensors; is 2 convert run a.safetensors; is 3 convert cut b.safetensors
is 1 convert --expect "$FIXTURES/formats/hf/good/model.safetensors.index.json" run b.safetensors
is 4 convert "$unsafe" b.safetensors
zckpt reshard -q --world 4 --part 1/2 run parts; zckpt reshard -q --world 4 --part 2/2 run parts
is 0 commit parts; is 2 commit; is 3 commit --timeout 1 empty
is 0 diff run run; is 1 diff run "$FIXTURES/deepspeed/ds0.10.3-z2-bf16-w2/ckpt"
is 2 diff run; is 3 diff run cut; is 4 diff run "$unsafe"
is 0 digest run; is 0 digest --check run.digest run; is 1 digest --check other.digest run
is 2 digest; is 3 digest cut; is 4 digest "$unsafe"
is 0 doctor run; is 1 doctor cut; is 2 doctor; is 3 doctor nothing-there
is 0 explain; is 2 explain no-such
is 0 inspect run; is 2 inspect; is 3 inspect empty; is 4 inspect "$unsafe"
is 0 latest run; is 1 latest empty; is 2 latest; is 3 latest nothing-there
is 0 ls run; is 1 ls empty; is 2 ls --no-such; is 3 ls nothing-there
is 0 map run; is 2 map; is 3 map empty; is 4 map "$unsafe"
ln -s /nowhere link; tar czf link.tar.gz link
is 0 pack run run.tar.zst; is 2 pack run; is 3 pack empty no.tar.zst; is 4 pack "$unsafe" no.tar.zst
is 0 unpack run.tar.zst unpacked; is 2 unpack run.tar.zst; is 3 unpack cut.pt no; is 4 unpack link.tar.gz no
is 0 plan 8B; is 1 plan 8B --gpus 1 --gpu-mem 1G; is 2 plan; is 3 plan empty
is 0 prune --keep-last 1 run; is 1 prune --keep-last 1 empty; is 2 prune run; is 3 prune --keep-last 1 nothing-there
is 0 report run; is 1 report --verify lost; is 2 report; is 3 report empty; is 4 report "$unsafe"
is 0 reshard '2->3' run three; is 2 reshard '4->3' run four; is 3 reshard --world 3 cut four
is 4 reshard --world 3 "$unsafe" four
is 0 set-latest run global_step3; is 1 set-latest cut global_step3; is 2 set-latest run
is 3 set-latest nothing-there global_step3
zckpt map --all model.safetensors | sed -n 's/^\([^ ][^ ]*\) .*/\1/p' > names
is 0 shard --world 2 --stage 2 --lr 1e-4 --order names model.safetensors made
is 2 shard model.safetensors made; is 3 shard --world 2 --stage 2 --lr 1e-4 empty made2
is 4 shard --world 2 --stage 2 --lr 1e-4 "$unsafe" made2
is 0 slim --moments run slim; is 1 slim run no; is 1 slim --strict "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-exclfrozen/ckpt" no; is 2 slim --moments run slim; is 3 slim cut no
is 4 slim "$unsafe" no.pt
is 0 verify run; is 1 verify cut; is 2 verify; is 3 verify empty; is 4 verify "$unsafe"
is 0 help; is 2 no-such-verb
echo "$seen" | tr ' ' '\n' | awk -F: 'NF { if (!($1 in all)) order[++n] = $1; all[$1] = all[$1] " " $2 }
	END { for (i = 1; i <= n; i++) print order[i] ":" all[order[i]] }'
for verb in $(zckpt help | sed -n '/^commands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p'); do
	case $verb in serve | mount) continue ;; esac	# cli/serve and cli/mount: they run until they are ended
	case "$seen" in *" $verb:0"*) ;; *) echo "$verb has no row" ;; esac
done
