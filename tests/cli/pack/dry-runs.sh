# Dry runs of pack and unpack say the bytes and the room, and refuse a folder that is missing.
zckpt unpack x y 2>&1 | grep -q 'has no packs' && { echo 'packs are not built' >&2; exit 77; }
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
bytes() { sed -n "s/^ *\"$1\": \([0-9]*\),*$/\1/p"; }
room() { sed 's/; .* free there/; ROOM free there/'; }
zckpt pack --dry-run "$run" p.tar.zst 2>&1 | room
zckpt pack --dry-run "$run" - 2>&1 | tail -n 1
most=$(zckpt pack --dry-run --json "$run" p.tar.zst | bytes would_write_bytes)
zckpt pack -q "$run" p.tar.zst
[ "$(wc -c < p.tar.zst)" -le "$most" ] && echo 'no more than was said'
zckpt unpack --dry-run p.tar.zst U 2>&1 | sed 's/and read .*; .* are/and read N; ROOM are/'
planned=$(zckpt unpack --dry-run --json p.tar.zst U | bytes would_write_bytes)
zckpt unpack --dry-run --json p.tar.zst U | bytes would_read_bytes > read
[ "$(cat read)" = "$(wc -c < p.tar.zst)" ] && echo 'the whole pack is read'
zckpt unpack -q p.tar.zst U
[ "$(find U -type f -exec cat {} + | wc -c)" = "$planned" ] && echo 'as many as written'
# by another program, without an index: it is read twice
(cd U && tar -cf ../u.tar *)
zckpt unpack --dry-run u.tar V 2>&1 | sed -n 's/and read .*; .* are/and read N; ROOM are/p'
[ "$(zckpt unpack --dry-run --json u.tar V | bytes would_read_bytes)" = $((2 * $(wc -c < u.tar))) ] && echo 'twice'
ls
