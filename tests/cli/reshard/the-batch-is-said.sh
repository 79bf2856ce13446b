# What depends on the number of ranks and is no state: the micro-batch that keeps the batch, what
# the configuration in the step does there, the place in the data.
F="$FIXTURES/deepspeed"
say() { zckpt reshard --dry-run "$@" out 2>&1 | grep -v -e 'would write' -e "'latest'"; }
root="$F/ds0.19.8-z2-bf16-w2-gas2/ckpt"
for m in 1 3 7 2; do echo "-- 2:$m"; say 2:$m "$root"; done
echo '-- with a trainer'
cp -r "$root" checkpoint-3
echo '{"epoch": 0.25, "global_step": 3, "log_history": [{"loss": NaN, "a\\": \"Infinity": -Infinity}]}' > checkpoint-3/trainer_state.json
say 2:4 checkpoint-3
zckpt reshard --dry-run --json 2:7 checkpoint-3 out 2> /dev/null | sed -n '/batch/,$p'
echo '-- quiet, and without a number in it'
zckpt reshard -q 2:4 checkpoint-3 quiet
echo '{' > checkpoint-3/trainer_state.json
say 2:4 checkpoint-3 | tail -n 1
say 2:1 "$F/ds0.5.10-z2-bf16-w2/ckpt"
