# Other layouts are refused by name, exit 3, without output.
for case in "$FIXTURES"/deepspeed/*pipeline "$FIXTURES"/deepspeed/*autotp; do
	zckpt convert "$case/ckpt" out.safetensors > out 2> err
	echo "$(basename "$case"): exit $?, $(grep -o -w -m 1 LAYOUT_UNSUPPORTED err)"
done
rm out err; ls
