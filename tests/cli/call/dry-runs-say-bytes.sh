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
zckpt convert --dry-run "$run" no/such/out.safetensors; echo "exit $?"
zckpt shard --dry-run --world 2 --lr 1e-3 --stage 2 "$FIXTURES/model/models/$(ls "$FIXTURES/model/models" | head -n 1)" S 2>&1 |
	room | tail -n 1
ls
