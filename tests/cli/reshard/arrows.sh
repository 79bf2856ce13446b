# Every way to write 'N->M' that means one thing, and what is said of an arrow without quotes.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z3-bf16-w3/ckpt" run
try() { zckpt reshard -q --dry-run "$@" 2> err > /dev/null; echo "exit $?: $*"; cat err; }
for arrow in '3->4' '3=>4' '3→4' '3:4' '3 to 4' '3 -> 4' 3to4 3,4 3-4; do
	try "$arrow" run out
	try run out "$arrow"
done
echo '-- without quotes: the shell makes a file, and the command removes it'
zckpt reshard run -> run4; ls run4
zckpt reshard 3->4 run out
rm -f run4 4
zckpt reshard 3 -> 4 run out
rm -f 4
try run -
try run out 3 -
echo '-- the command that is printed works'
zckpt reshard 3 -> 4 run out 2> err
sed -n 's/^zckpt: try: //p' err > command && sh ./command 2> /dev/null; echo "exit $?"; zckpt inspect out | head -n 1
rm -f 4
echo '-- numbers without an arrow'
try 3 4 run out2
try run out2 4
try 4 run out2
try 3/4 run out2
try run
try '3->4' run
echo '-- stages, and options of others'
try '3->2' run out2
try '2->1' run out2
mkdir other && cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w3/ckpt" other/run
try '2->1' other/run out2
try --to 4 run out2
try --ranks 4 run out2
try --dp 4 run out2
try --zero-stage 2 run out2
zckpt convert --stage 2 run out2 2>&1
zckpt convert --gpus 2 run out2 2>&1
true
