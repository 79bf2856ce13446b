# What pickles would call, and what torch says of it: a rich step, a plain one, and no pickle.
DS=$FIXTURES/deepspeed
cd "$DS/ds0.19.8-z2-bf16-w2-client/ckpt"
zckpt audit . ; echo "exit $?"
zckpt audit -v global_step3/mp_rank_00_model_states.pt | sed -n '/^data/,/^$/p'
cd "$FIXTURES/formats"
zckpt audit torch/v2.11/nocrc.pt legacy/good.pt; echo "exit $?"
zckpt audit safetensors; echo "exit $?"
zckpt audit --json torch/v2.11/nocrc.pt | head -12
