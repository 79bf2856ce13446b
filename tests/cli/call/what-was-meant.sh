# The last line of a wrong call is a command that works: each is run as it is printed.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-twotags/ckpt" run
mkdir -p out/checkpoint-2 out/checkpoint-4
cp -r run/global_step2 out/checkpoint-2/ && printf global_step2 > out/checkpoint-2/latest
cp -r run/global_step4 out/checkpoint-4/ && printf global_step4 > out/checkpoint-4/latest
zckpt convert -q run m.safetensors
# the call, what it says, and how the command ends that it prints
meant() {
	zckpt "$@" > said 2>&1
	echo "$? $*"
	sed -n 's/^zckpt: //p' said
	sed -n 's/^zckpt: try: //p' said | tail -n 1 > command
	[ ! -s command ] || { sh ./command > done 2>&1; echo "  exit $?"; }
}
meant ds_to_universal --input_folder run --output_folder u1 --num_extract_workers 4 --keep_temp_folder
meant ds_to_universal.py --input_folder=run --output_folder=u2
meant to_universal run u3
meant clean run
meant prune run
meant set-latest run
meant set-latest out
meant set-latest out/checkpoint-2
meant set-latest run/global_step2/
cat out/latest run/latest; echo
meant run new.safetensors
meant -q --dtype bf16 convert run new2.safetensors
meant check m.safetensors run
meant verify run m.safetensors
meant verify --against m.safetensors run
rm run/zero_to_*
meant convert run/* new3.safetensors
meant convert run/global_step4/* new4.safetensors
zckpt inspect help | head -n 1
mkdir adapter && echo '{"peft_type": "LORA", "r": 8}' > adapter/adapter_config.json && cp m.safetensors adapter/adapter_model.safetensors
meant merge adapter merged
echo '-- a command ends its line'
zckpt cat run nix 2>&1 | tail -n 1
zckpt convert --include nix run x.safetensors 2>&1 | tail -n 1
zckpt set-latest run nix 2>&1 | tail -n 1
zckpt doctor run | head -n 2
