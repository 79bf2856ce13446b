# A trainer's folders, native and universal steps, and names with odd characters.
DS=$FIXTURES/deepspeed
show() { zckpt prune "$@" 2>&1 | sed 's|; .* are free there|; ROOM are free there|' | awk '$1 == "STEP" { next } { $2 = $3 = ""; print }' | sed 's|  *| |g'; }
mkdir -p out/checkpoint-2 out/checkpoint-3 out/checkpoint-4
cp -r "$FIXTURES/trainer/llama/ckpt" out/checkpoint-5
cp -r "$DS/ds0.19.8-z2-bf16-w2-twotags/ckpt/global_step2" out/checkpoint-2
cp -r "$DS/ds0.19.8-z2-bf16-w2/ckpt/global_step3" out/checkpoint-3
cp -r "$DS/ds0.19.8-z2-bf16-w2-twotags/ckpt/global_step4" out/checkpoint-4
for n in 2 3 4; do printf global_step$n > out/checkpoint-$n/latest; done
sed -e 's|"global_step": 3|"global_step": 5|' \
	-e 's|"best_model_checkpoint": null|"best_model_checkpoint": "/elsewhere/out/checkpoint-2"|' \
	"$FIXTURES/trainer/llama/ckpt/trainer_state.json" > out/checkpoint-5/trainer_state.json
show --keep-last 1 out
show --keep-last 4 --moments-last 1 --apply out
ls out out/checkpoint-3; zckpt verify -q out/checkpoint-3; echo "exit $?"
# native and universal steps beside each other
mkdir run
zckpt reshard -q --to native "$DS/ds0.19.8-z2-bf16-w2/ckpt" run; echo mine > run/global_step3/notes
zckpt reshard -q --to universal --new-tag 'odd [1]' "$DS/ds0.19.8-z2-bf16-w2/ckpt" uni 2> err || head -n 1 err
cp -r "$DS/ds0.16.9-z2-bf16-w2/universal/"* run
cp -r "$DS/ds0.19.8-z2-bf16-w2/ckpt/global_step3" 'run/it is [a] "step"'
cp -r "$DS/ds0.19.8-z2-fp16-w2-overflow/ckpt/global_step5" run
printf global_step5 > run/latest; rm -f run/latest_universal
show --keep-last 9 --moments-last 1 run
zckpt prune -q --keep-last 9 --moments-last 1 --apply run > out.txt; echo "exit $?"
(cd run && ls -a . global_step3)
for s in global_step3 global_step3_universal 'it is [a] "step"'; do
	zckpt verify -q --full "run/$s"; echo "exit $?, $(zckpt inspect "run/$s" | grep -c exp_avg)"
done
show --keep 'it is [a] "step"' --apply run
# folders of the Trainer alone have one file of moments and weights beside it: they stay whole, the others do not
mkdir mixed
for n in 1 2 4; do
	cp -r "$FIXTURES/trainer/llama/ckpt" mixed/checkpoint-$n
	sed "s|\"global_step\": [0-9]*|\"global_step\": $n|" "$FIXTURES/trainer/llama/ckpt/trainer_state.json" > mixed/checkpoint-$n/trainer_state.json
done
mkdir mixed/checkpoint-3
cp -r "$DS/ds0.19.8-z2-bf16-w2/ckpt/global_step3" mixed/checkpoint-3; printf global_step3 > mixed/checkpoint-3/latest
show --keep-last 3 --moments-last 1 mixed
zckpt prune -q --keep-last 3 --moments-last 1 --apply mixed > out.txt; echo "exit $?"
for n in 2 3 4; do
	zckpt verify -q mixed/checkpoint-$n 2> err; echo "exit $?, $(zckpt inspect mixed/checkpoint-$n 2> err | grep -c exp_avg)"
done
ls mixed mixed/checkpoint-2
zckpt prune --moments-last 1 --json mixed | grep -o '"why":[^}]*'
