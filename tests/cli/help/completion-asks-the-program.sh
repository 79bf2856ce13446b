# bash completes commands, options, values, tags and tensors; the program says what.
cat > try.bash <<'END'
source "$1"
compopt() { echo "    compopt $*"; }
shift
# words as bash takes them apart: at blanks, = and :
at_end() {
	COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
	_zckpt 2> err
	cat err
	echo "$*: ${COMPREPLY[*]}"
}
at_end zckpt con
at_end zckpt help m
at_end zckpt convert --max
at_end zckpt convert --no
at_end zckpt convert --pro
at_end zckpt digest --ch
at_end zckpt convert --tied ''
at_end zckpt convert --dtype = ''
at_end zckpt convert --dtype =
at_end zckpt convert --dtype = bf
at_end zckpt convert --only frozen,
at_end zckpt reshard --stage b
at_end zckpt convert --limit zip_e
at_end zckpt inspect a-
at_end zckpt inspect --tag = fix --json a-
at_end zckpt convert 'my\ run' --tag ''
at_end zckpt set-latest 'my\ run' global_step2
at_end zckpt cat "'my run'" f
at_end zckpt map "'my run'" --state exp_avg_
at_end zckpt verify --as-warning RANK_FILE_M
at_end zckpt plan llama-3.
at_end zckpt explain rank_file_m
at_end zckpt convert -- --no
at_end ztrain gen
at_end ztrain --precision ''
at_end ztrain bench --sta
at_end ztrain --config ''
at_end ./no-such-program conv
END
cp -r "$FIXTURES/deepspeed/ds0.10.3-z1-bf16-w2/ckpt" 'my run'
bash try.bash "$(cd "$(dirname "$0")/../../../tools/completions" && pwd)/zckpt.bash"
