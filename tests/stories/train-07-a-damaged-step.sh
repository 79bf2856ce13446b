# One bit of the newest step flipped on the disk: it is never trained on, nor written again.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
# shellcheck source=tests/stories/training.sh
. "$root/tests/stories/training.sh"

trains 0 run 4 --save-every 2
flip run/global_step4/rank-00000.safetensors 20000
cp -r run/global_step4 damaged
trains 1 other 5 --resume damaged
answers rank-00000.safetensors
absent other/latest other/global_step5
types 1 zckpt verify --full run
types 3 zckpt convert run m.safetensors
absent m.safetensors
types 3 zckpt reshard --world 2 --to native run two
absent two
# auto takes the whole step before, and says why
trains 0 run 4 --resume auto
answers 'resumed at step 2'
answers global_step4
# cut short, and given by its name: both lengths are said
cp -r run/global_step4 short
truncate -s 1000 short/rank-00000.safetensors
trains 1 other 5 --resume short
answers 'rank-00000.safetensors: LENGTH_WRONG: it has 1000 bytes, the manifest says'
absent other/latest other/global_step5
