# bash completion of zckpt. Commands and options are asked of the program's own
# help, so they are always those of the program that is installed.
_zckpt()
{
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
	local program=${COMP_WORDS[0]} verb=${COMP_WORDS[1]-} words=
	COMPREPLY=()
	if [ "$COMP_CWORD" = 1 ]; then
		words="help --help --version $("$program" help 2> /dev/null |
			sed -n '/^commands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p')"
	elif [ "$verb" = help ]; then
		words=$("$program" help 2> /dev/null | sed -n '/^commands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p')
	elif [ "$verb" = explain ] && [[ $cur != -* ]]; then
		words=$("$program" explain 2> /dev/null | sed -n 's/^  \([A-Z_]*\)  .*/\1/p')
		cur=${cur^^}
	elif [[ $cur == -* ]]; then
		words=$("$program" "$verb" -h --all 2> /dev/null |
			sed -n '/^  *-/p' | grep -o -- '--[a-z][a-z-]*')
	else
		case $prev in
		--dtype) words='fp32 bf16 fp16 keep' ;;
		--state) words='all weight master exp_avg exp_avg_sq' ;;
		--only) words='trainable frozen buffers' ;;
		--tied | --sync)
			words=$("$program" "$verb" -h --all 2> /dev/null |
				sed -n "s/^ *$prev \([a-z|]*\).*/\1/p" | tr '|' ' ')
			;;
		esac
	fi
	if [ -n "$words" ]; then
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
	else
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		compopt -o filenames 2> /dev/null
	fi
}
complete -F _zckpt zckpt
