# bash completion of zckpt and ztrain.  The program itself says what may come next
# ("zckpt __complete WORD..."), so this file knows no command and no option.
_zckpt()
{
	local words=() word kind line before="" joined="" i
	# bash takes --dtype=bf16 and 8:4 apart: put them together again
	for ((i = 1; i <= COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		if ((${#words[@]})) && [[ $joined || $word == [=:] ]]; then
			before=${words[${#words[@]} - 1]}
			words[${#words[@]} - 1]=$before$word
			if [[ $word == [=:] ]]; then joined=1 before=$before$word; else joined=; fi
		else
			words+=("$word") before=
		fi
	done
	# the program wants words as it would get them: without quotes
	words=("${words[@]//[\\\'\"]/}")
	COMPREPLY=()
	{
		read -r kind
		while IFS= read -r line; do
			line=${line%%$'\t'*} line=${line#"$before"}
			[[ $line != *[!A-Za-z0-9_./,:=+@-]* ]] || printf -v line %q "$line"
			COMPREPLY+=("$line")
		done
	} < <("${COMP_WORDS[0]/#\~/$HOME}" __complete "${words[@]}" 2> /dev/null)
	case $kind in
	files) compopt -o default ;;
	folders) compopt -o dirnames ;;
	nospace) compopt -o nospace ;;
	esac
} 2> /dev/null
complete -F _zckpt zckpt zckpt-mpi ztrain
