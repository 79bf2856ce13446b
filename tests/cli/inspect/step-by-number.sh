# "--tag 2" is global_step2; a name that is almost right is answered with the right one.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-twotags/ckpt" run
chmod -R u+w run
zckpt inspect --tag 2 run 2>&1 | head -n 2; echo "exit $?"
zckpt convert --dry-run --tag 4 run out.safetensors 2>&1 | head -n 1
zckpt reshard --dry-run --tag 4 --world 1 run out 2>&1 | head -n 1
zckpt verify --tag globl_step2 run 2>&1; echo "exit $?"
zckpt diff --tag 2 --tag2 globalstep4 run 2>&1; echo "exit $?"
zckpt verify --tag 3 run 2>&1; echo "exit $?"
zckpt set-latest run 4; cat run/latest; echo
zckpt set-latest run globl_step2 2>&1; echo "exit $?"
zckpt convert --include emb.wieght run out.safetensors 2>&1 | grep 'no tensor'
zckpt digest --include emb.wieght run 2>&1 | grep 'no tensor'
cp -r run/global_step2 run/checkpoint-2
zckpt verify --tag 2 run 2>&1; echo "exit $?"
zckpt set-latest run 2 2>&1; echo "exit $?"
rm -r run/global_step2 run/global_step4
zckpt verify --tag 2 run 2>&1 | head -n 1
mkdir empty; : > empty/zero_to_fp32.py
zckpt verify --tag 2 empty 2>&1; echo "exit $?"
