# Findings of one cause are one line, whatever the number; -v lists them, and --json has each.
# The last line is a command that works as it is printed.
DS=$FIXTURES/deepspeed
fresh() { rm -rf "$2" && cp -r "$DS/$1/ckpt" "$2" && chmod -R u+w "$2"; }
last() { zckpt "$@" 2>&1 | sed -n '$p'; }

fresh ds0.19.8-z3-bf16-w8 half; rm half/*/*_rank_[4-7]_*
echo '* half of 8'
for verb in inspect verify doctor ls; do
	zckpt $verb half 2>&1 | grep -e MISSING -e '^global_step3: ' | cut -d' ' -f1-60
done
zckpt convert half out.safetensors 2>&1
zckpt reshard --world 4 half out 2>&1 | sed -n '$p'
zckpt inspect -v half | grep -c _MISSING
zckpt inspect --json half | grep -o '"id": "[A-Z_]*MISSING"' | sort | uniq -c | tr -s ' '

echo '* 34 of 64'
zckpt reshard -q --world 64 "$DS/ds0.19.8-z3-bf16-w8/ckpt" wide
for r in $(seq 1 2 60) 60 61 62 63; do rm wide/*/*_rank_"$r"_*; done
zckpt convert wide out.safetensors 2>&1 | grep MISSING
for verb in inspect verify doctor ls; do
	[ "$(zckpt $verb wide 2>&1 | wc -l)" -le 40 ] || echo "$verb: more than a screen"
done

echo '* other ranks lack the other file'
fresh ds0.19.8-z3-bf16-w8 odd; rm odd/*/*_rank_[13]_*_optim* odd/*/zero_pp_rank_[56]_*_model*
zckpt ls odd | tail -n 1
zckpt doctor odd | grep MISSING

echo '* one damaged file: another step is complete'
fresh ds0.19.8-z2-bf16-w2-twotags two
truncate -s 3000 two/global_step4/*rank_0_mp*optim*
zckpt convert two out.safetensors 2>&1 | grep -c "error"
last convert --dtype bf16 two 'an out.safetensors'
eval "$(last convert --dtype bf16 two 'an out.safetensors' | sed 's/.*is complete: //') -q" && ls ./*out*
last convert -q --tag=global_step4 two/ out.pt
last convert two/global_step4 out.pt
last reshard 2:4 two out
last inspect two
last verify two
last doctor two
echo none > two/latest; last convert two out.pt

echo '* all shards are damaged'
fresh ds0.19.8-z3-bf16-w8 eight; truncate -s 3000 eight/*/*optim*
zckpt convert eight out.pt 2>&1 | cut -d' ' -f1-40
rm -r eight

echo '* names that a shell would take apart'
odd=$(printf "a 'b\nc")
mv two "$odd"
last convert "$odd" out.pt
bash -c "$(last convert "$odd" out.pt | sed 's/.*is complete: //') -q" && ls out.pt

echo '* a folder around one checkpoint means that one'
mkdir -p around/it && fresh ds0.19.8-z2-bf16-w2 around/it/run
zckpt convert -q around over.safetensors
zckpt inspect around 2>&1 | sed -n 1p
zckpt verify around 2>&1 | head -2
fresh ds0.19.8-z2-bf16-w2 around/it/run2
zckpt convert around over2.safetensors 2>&1 | sed -n '$p'
rm -r half wide odd "$odd" around
