# bash completes commands, options and words of options from the program's help.
cat > try.bash <<'END'
source "$1"
complete_at_end() {
	COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
	_zckpt 2> err
	cat err
	echo "$*: ${COMPREPLY[*]}"
}
complete_at_end zckpt con
complete_at_end zckpt convert --max
complete_at_end zckpt convert --no
complete_at_end zckpt convert --pro
complete_at_end zckpt digest --ch
complete_at_end zckpt convert --tied ''
complete_at_end zckpt help m
complete_at_end zckpt explain rank_
touch a-file
complete_at_end zckpt inspect a-
END
bash try.bash "$(cd "$(dirname "$0")/../../../tools/completions" && pwd)/zckpt.bash"
