# What only one side has is a line for each state, below the numbers; a prefix of all names is named.
DS=$FIXTURES/deepspeed
run=$DS/ds0.19.8-z2-bf16-w2/ckpt
zckpt diff "$run" $DS/ds0.19.8-z2-bf16-w2-sgd/ckpt | grep -nE '^only|^20 of|differ|scalar  '
echo '* names'
zckpt diff "$run" $DS/ds0.19.8-z2-fp32-w2/ckpt | sed -n '1p; /^only/,$p'
zckpt diff --all "$run" $DS/ds0.19.8-z2-fp32-w2/ckpt | grep '^only' | tr ',' '\n' | grep -c blocks
echo '* a prefix'
zckpt convert -q --include 'blocks.0.ln*' --strip-prefix blocks.0. "$run" cut.safetensors
zckpt convert -q --include 'blocks.0.ln*' "$run" whole.safetensors
zckpt diff cut.safetensors whole.safetensors | sed -n '1p; 4,$p'
zckpt diff --strip-prefix blocks.0. cut.safetensors whole.safetensors | head -n 1
