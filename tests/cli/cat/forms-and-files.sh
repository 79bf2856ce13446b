# .npy, raw and text; a file that is whole or not there.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
zckpt cat "$run" odd.w7 -o w7.npy; head -c 128 w7.npy | tail -c +11; wc -c < w7.npy
zckpt cat "$run" odd.w7 --to raw -q | cmp - w7.npy 0 128 && echo 'raw is the same behind the header'
zckpt cat "$run" odd.w7 --dtype fp32 | head -c 128 | tail -c +11
zckpt cat "$run" odd.w7 --dtype fp32 --to text | head -n 2
zckpt cat "$run" odd.w7 -o w7.npy 2>&1; echo "exit $?"
zckpt cat "$run" odd.w7 -o w7.npy --force -q --state exp_avg; wc -c < w7.npy
zckpt cat "$run" head.weight --to raw > a; zckpt cat "$run" emb.weight --to raw > b
cmp a b && echo 'a tied name gives its tensor'
zckpt cat "$run" flag --to text; zckpt cat "$run" seen --to text
zckpt cat "$run" seen | head -c 128 | tail -c +11
zckpt cat "$run" nothing 2>&1; echo "exit $?"
zckpt cat "$run" odd.w7 --state nothing 2>&1; echo "exit $?"
zckpt cat "$run" flag --dtype fp32 2>&1; echo "exit $?"
zckpt cat "$run" odd.w7 --dtype int8 2>&1 | head -n 1
zckpt cat "$run" 2>&1 | head -n 1
zckpt cat m 'odd.w7' -o no 2>&1; echo "exit $?"
zckpt cat "$run" emb.weight > /dev/full; echo "exit $?"
ls
