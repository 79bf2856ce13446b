# Folders of nodes that kept their own ranks' files: each step is one row, and whole if it is together.
export TZ=UTC
DS=$FIXTURES/deepspeed
mkdir node0 node1
cp -r "$DS/ds0.19.8-z3-bf16-w2/ckpt/." node0 && chmod -R u+w node0
cp -r node0/global_step3 node1
cp -r node0/global_step3 node0/global_step4
rm node0/global_step*/*rank_1_* node1/global_step3/*rank_0_* node0/latest
find . -type f -exec touch -d '2026-03-01 12:30' {} +
zckpt ls -q node0 | awk '{ print $8, $9, $10, $11, $12, $13 }'
zckpt ls -q node0 node1 | awk '{ print $4, $8, $9, $10, $11, $12, $13 }'
zckpt ls --json node0 node1 | grep -o '"\(name\|files\|folders\|whole\)": [^,}]*'
echo 'the tag folders themselves:'
zckpt ls -q node0/global_step3 node1/global_step3 | awk '{ print $8, $9, $10, $11, $12, $13 }'
echo 'another run of equal names is not taken for a part:'
cp -r "$DS/ds0.19.8-z3-bf16-w2/ckpt" whole
zckpt ls -q node0/global_step3 whole/global_step3 | awk '{ print $8, $9, $10, $11, $12, $13 }'
