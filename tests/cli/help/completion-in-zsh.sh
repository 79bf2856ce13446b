# zsh completes commands, options, values, tags and tensors; the program says what.
# Without zsh: skipped.
command -v zsh > /dev/null || { echo 'zsh is not installed' >&2; exit 77; }
zsh -f -c 'zmodload zsh/zpty' 2> /dev/null || { echo 'zsh has no zpty' >&2; exit 77; }
cp -r "$FIXTURES/deepspeed/ds0.10.3-z1-bf16-w2/ckpt" 'my run'
touch a-file
# Each line is typed with a tab at its end; the zsh on the terminal then writes down what it has.
cat > start <<'END'
autoload -U compinit
compinit -D -u
bindkey '^I' complete-word
note() { print -r -- "$BUFFER|" >> noted; BUFFER= }
zle -N note
bindkey '^X' note
END
cat > try.zsh <<'END'
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "stty cols 200; fpath=($1 \$fpath); . ./start"
shift
for ((n = 1; $#; n++)); do
	zpty -w -n z "$1"$'\t\x18'
	for ((i = 0; i < 500; i++)); do
		while zpty -r -t z x; do :; done
		[[ ! -e noted || $(grep -c . noted) -lt $n ]] || break
		sleep 0.02
	done
	shift
done
zpty -w z exit
while zpty -r z > /dev/null; do :; done
END
TERM=xterm timeout 60 zsh -f try.zsh "$(cd "$(dirname "$0")/../../../tools/completions" && pwd)" \
	'zckpt conv' 'zckpt convert --max' 'zckpt convert --dtype=b' 'zckpt digest --che' \
	'zckpt convert --only trainable,fr' 'zckpt convert --limit zip_e' 'zckpt inspect a-' \
	'zckpt convert --output=a-' 'zckpt set-latest my\ run ' "zckpt cat 'my run' fl" \
	'ztrain --prec' 'ztrain --config a-' > /dev/null 2>&1
cat noted
