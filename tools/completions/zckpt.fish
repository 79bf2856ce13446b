# fish completion of zckpt and ztrain.  The program itself says what may come next
# ("zckpt __complete WORD..."), so this file knows no command and no option.
function __zckpt_complete
	set -l words (commandline -opc)
	set -l cur (commandline -ct)
	set -l lines (command $words[1] __complete $words[2..-1] "$cur" 2> /dev/null)
	set -q lines[1]; or return
	set -q lines[2]; and printf '%s\n' $lines[2..-1]
	set -l head (string match -r -- '^--[^=]*=' "$cur"); or set head ''
	set -l path (string replace -r -- '^--[^=]*=' '' "$cur")
	switch $lines[1]
	case files
		printf '%s\n' $head(__fish_complete_path "$path")
	case folders
		printf '%s\n' $head(__fish_complete_directories "$path" '')
	end
end
for program in zckpt zckpt-mpi ztrain
	complete -c $program -f -a '(__zckpt_complete)'
end
