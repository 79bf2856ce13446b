# Verbs by meaning, a path without a verb, beginnings of options, and spellings of other tools.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt" run
for word in merge consolidate export to_fp32 zero_to_fp32 info show check validate fsck compare list hash checksum clean \
	delete status estimate memory resume resize repartition 'extract' conver; do
	zckpt $word run > said 2>&1; echo "$? $word: $(sed -n 's/^zckpt: try: //p' said)"
done
zckpt extract run.tar.zst 2>&1 | tail -n 1
zckpt info 'a b' --json 2>&1 | tail -n 1
zckpt run; echo "exit $?"
zckpt help merge; echo "exit $?"
echo '* beginnings'
zckpt convert -q --dt bf16 --st master run a.safetensors 2>&1 | head -n 1
zckpt convert -q --dt bf16 run a.safetensors && echo done
zckpt convert -f -q -j 1 --no-prog --bf16 run --output_dir a.safetensors && echo done
zckpt convert -q --half run b.safetensors && zckpt inspect --json b.safetensors | grep -c '"F16"' | sed 's/[0-9][0-9]*/some/'
zckpt convert -q --half --bf16 run c.safetensors 2>&1 | head -n 1
zckpt convert --m 5GB run c.safetensors 2>&1 | head -n 1
zckpt convert --no-s run c.safetensors > /dev/null 2>&1; echo "exit $?"
ls
