# A config.json of an unknown type is beside weights or a step. These are enough, and a note says that
# the config.json is not used. Given by name it is an error.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
cp -r "$run" step && chmod -R u+w step && zckpt convert -q "$run" weights
printf '{"model_type": "strange", "architectures": ["X"]}' | tee step/config.json > weights/config.json
for what in step weights; do
	zckpt plan --gpus 2 $what > out 2> err; echo "$what: exit $?"
	cut -c 1-60 err; sed -n 1p out
	grep -o 'give its weights' err # which were given
done
zckpt plan --gpus 2 --config step/config.json step > out 2> err; echo "exit $?"
