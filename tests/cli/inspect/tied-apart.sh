# Stages of a pipeline can train a shared tensor apart, and weights in one file have one of the two.
# Who is not warned takes half of a model for the model.
pipe=$FIXTURES/parallel/ds0.19.8-pipe-z1-bf16-w8-tp2-tied/ckpt
zckpt inspect "$pipe" 2>&1 | grep -e '^[0-9,]* parameters' -e TIED_DIFFERS -e BUFFERS_DIFFER
zckpt convert -q "$pipe" out.safetensors 2> /dev/null && echo written
zckpt convert -q --strict "$pipe" strict.safetensors 2>&1 | cut -c 1-60
echo 'equal copies:'
zckpt inspect "$FIXTURES/parallel/ds0.19.8-pipe-z1-bf16-w4-tied/ckpt" 2>&1 | grep DIFFER || echo no warning
