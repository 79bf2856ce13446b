# fish offers commands, options, values, tags and tensors; the program says what.
# Without fish: skipped.
command -v fish > /dev/null || { echo 'fish is not installed' >&2; exit 77; }
export HOME="$PWD" XDG_CONFIG_HOME="$PWD" XDG_DATA_HOME="$PWD"
cp -r "$FIXTURES/deepspeed/ds0.10.3-z1-bf16-w2/ckpt" run
touch a-file
fish=$(cd "$(dirname "$0")/../../../tools/completions" && pwd)/zckpt.fish
at_end() {
	echo "$1"
	fish --no-config -c "source $fish; complete -C'$1'" 2>&1 | sed 's/^/    /; s/\t..*/ (and what it is)/'
}
at_end 'zckpt conv'
at_end 'zckpt convert --max'
at_end 'zckpt convert --dtype='
at_end 'zckpt convert --only trainable,f'
at_end 'zckpt inspect a-'
at_end 'zckpt convert --output=a-'
at_end 'zckpt set-latest run '
at_end 'zckpt cat run fl'
at_end 'ztrain --prec'
at_end 'ztrain --config a-'
