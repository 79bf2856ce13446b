# Folders of transformers' Trainer: what inspect, doctor, ls and verify say of them, and of one without
# what the Trainer needs.
T=$FIXTURES/trainer
zckpt inspect $T/qwen3-tied/ckpt
zckpt inspect $T/frozen/ckpt | grep -A6 ROLE
zckpt inspect $T/gpt2/ckpt 2>&1 | grep -v '^$'
zckpt inspect $T/adafactor/ckpt 2>&1 | grep -v '^$' | head -n 4
mkdir run && cp -r $T/llama/ckpt run/checkpoint-3 && cp -r $T/qwen2-biases/ckpt run/checkpoint-6
zckpt ls run 2>&1 | sed 's/20..-..-.. ..:../DATE       TIME/'
zckpt inspect run 2>&1 | head -n 5
zckpt doctor run/checkpoint-3
zckpt convert -q run/checkpoint-3 hf && ls hf
# the Trainer loads no optimizer without its schedule
cp -r run/checkpoint-3 bare && rm bare/scheduler.pt && zckpt verify -q bare
# files of two saves in one folder
cp $T/llama/ckpt/trainer_state.json run/checkpoint-6
sed -i 's/"global_step": 3/"global_step": 6/' run/checkpoint-6/trainer_state.json
zckpt verify -q run/checkpoint-6
cp $T/qwen2-biases/ckpt/optimizer.pt run/checkpoint-3
zckpt verify -q run/checkpoint-3
# cut, and not a torch file
truncate -s 3000 run/checkpoint-6/optimizer.pt
zckpt verify -q run/checkpoint-6
echo '{}' > run/checkpoint-6/trainer_state.json
cp $T/qwen2-biases/ckpt/optimizer.pt run/checkpoint-6
zckpt verify -q run/checkpoint-6
