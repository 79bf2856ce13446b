# One file, one rank, one thread: a sentence about one thing has no plural.
m=$FIXTURES/model/models; m=$m/$(ls "$m" | head -n 1)
zckpt shard --world 1 --lr 1e-3 --stage 2 --threads 1 "$m" S > said 2>&1; sed 's/in [0-9.]* s/in N s/' said
zckpt reshard --world 1 --threads 1 --to native S N 2>&1 | sed 's/in [0-9.]* s/in N s/'
zckpt reshard --world 1 --threads 1 S R 2>&1 | sed 's/in [0-9.]* s/in N s/'
zckpt reshard --world 1 --from 2 S X 2>&1 | tail -n 1
zckpt convert -q S w.safetensors
zckpt pack --dry-run w.safetensors w.tar.zst 2>&1 | head -n 1
zckpt verify w.safetensors
