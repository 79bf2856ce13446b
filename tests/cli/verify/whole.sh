# A whole step: exit 0, what was looked at; -q says nothing, --json one object.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w3/ckpt
zckpt verify "$run"; echo "exit $?"
zckpt verify --full "$run"; echo "exit $?"
zckpt verify --full --threads 3 -q "$run"; echo "exit $?"
zckpt verify --full --json "$run" | grep -e '"ok"' -e '"errors"' -e checksums -e elements
# the other kinds of sources
zckpt verify --full -q "$FIXTURES/deepspeed/ds0.19.8-z3-bf16-w2/ckpt" && echo stage 3
zckpt convert -q "$run" m.safetensors && zckpt verify --full -q m.safetensors && echo safetensors
zckpt convert -q "$run" m.pt && zckpt verify --full -q m.pt && echo torch
zckpt convert -q "$run" hf && zckpt verify --full -q hf && echo Hugging Face
zckpt reshard -q --to universal "$run" uni && zckpt verify --full -q uni && echo universal
