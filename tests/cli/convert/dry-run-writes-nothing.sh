# --dry-run prints the files that a run would write, with their true sizes, and
# makes none.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
bytes() { sed -n 's/^.*"path": "\(.*\)", "bytes": \([0-9]*\),.*/\2 \1/p'; }
zckpt convert -q --dry-run "$run" out.safetensors | sed 's/: .*//'
zckpt convert -q --dry-run --state master,exp_avg "$run" states | sed 's/: .*//'
ls
zckpt convert -q --dry-run --json "$run" out.safetensors | bytes > plan
zckpt convert -q --json "$run" out.safetensors | bytes | cmp plan - && echo 'as planned'
wc -c < out.safetensors | tr -d ' ' > size
cut -d ' ' -f 1 plan | cmp size - && echo 'of that size'
