# embed.awk -- style sheets and scripts of pages as strings of C.
#
#	awk -v header=NAME.h -f tools/embed.awk FILE... > parts.c
#
# base.css becomes `const char page_base_css[]`.  Fails at text that would end a <style> or a
# <script>, since the files become the inside of one.
function literal(s) {
	gsub(/\\/, "\\\\&", s)	# two of one
	gsub(/"/, "\\\"", s)
	gsub(/\t/, "\\t", s)
	gsub(/\?/, "\\?", s)	# no trigraphs
	return "\"" s "\\n\""
}
FNR == 1 {
	if (NR == 1)
		printf "/* Made by tools/embed.awk. */\n#include \"%s\"\n", header
	else
		print "\t;"
	name = FILENAME
	sub(/.*\//, "", name)
	gsub(/[^a-zA-Z0-9]/, "_", name)
	printf "\nconst char page_%s[] =\n", name
}
/<\/[sS][cCtT]|<!--/ {
	printf "%s:%d: it would end the <script> or <style> that it becomes\n", FILENAME, FNR > "/dev/stderr"
	bad = 1
}
{ print "\t" literal($0) }
END {
	print "\t;"
	exit bad
}
