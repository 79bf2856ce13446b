# A dry run says what the run would read and write and how much room there is, and refuses what it would.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
bytes() { sed -n "s/^ *\"$1\": \([0-9]*\),*$/\1/p"; }
room() { sed 's/; .* free there/; ROOM free there/'; }
zckpt convert --dry-run "$run" out.safetensors 2>&1 | room | tail -n 1
zckpt reshard --dry-run --world 3 "$run" DST 2>&1 | room | grep ' and read'
planned=$(zckpt reshard --dry-run --json --world 3 "$run" DST 2> /dev/null | bytes written_bytes)
zckpt reshard -q --json --world 3 "$run" DST 2> /dev/null | bytes written_bytes > wrote
[ "$planned" = "$(cat wrote)" ] && [ "$planned" -gt 0 ] && echo 'as many as written'
zckpt convert --dry-run --json "$run" out.safetensors 2> /dev/null | bytes free_bytes | grep -c .
zckpt shard --dry-run --world 2 --lr 1e-3 --stage 2 "$FIXTURES/model/models/$(ls "$FIXTURES/model/models" | head -n 1)" S 2>&1 |
	room | tail -n 1
ls
# slim: with a destination
zckpt slim --dry-run --moments "$run" SLIM 2>&1 | room | grep ' and read'
planned=$(zckpt slim --dry-run --json --moments "$run" SLIM | bytes after_bytes)
zckpt slim --dry-run --json --moments "$run" SLIM | grep -c '"would_read_bytes"\|"free_bytes"'
zckpt slim -q --json --moments "$run" SLIM | bytes after_bytes > slimmed
[ "$planned" = "$(cat slimmed)" ] && [ "$planned" -gt 0 ] && echo 'as many as written'
# prune: of the copies without moments, one at a time
mkdir two && cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-twotags/ckpt/." two && cp -r "$run/global_step3" two
zckpt prune --moments-last 1 two 2>&1 | room | grep 'would write'
zckpt prune --moments-last 1 --json two | grep -c '"written_bytes": [1-9]\|"written_at_once_bytes": [1-9]\|"free_bytes"'
zckpt prune --keep-last 1 two 2>&1 | grep -q 'would write' || echo 'no copy, no word'
