# What users type wrong first: an arrow that the shell took, no number, the wrong world.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w3/ckpt" run
try() { zckpt reshard -q "$@" 2> err > /dev/null; echo "exit $?: $*"; head -n 2 err; }
try 3->4 run out	# the shell makes '3-' of it, and a file
cat 4 err
rm -f 4
try run out
try '2->4' run out
try '3->5000' run out
try '3->0' run out
try '3 -> 4' run out
try 4 run out
try '3->4' --world 5 run out
try '3->4' --stage 7 run out
try '3->4' --stage 0x run out
try '3->4' run
try '3->4' --world 0 run out
try --world 0 run out
try --gpus 5000 run out
try --reset-optimizer run
zckpt convert -q run model.safetensors
try --world 4 model.safetensors out
try --stage 3 model.safetensors out
for tag in a/b ../x . .. latest 'a[1]' ''; do try '3->4' run out --new-tag "$tag"; done
ls
echo '* one JSON object each'
for call in 'run dst' '7:2 run dst'; do
	zckpt reshard --json $call 2> /dev/null | grep -c '"schema"'
done
