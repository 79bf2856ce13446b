# findings.awk -- docs/findings.md as the table of `zckpt explain`, in C.
#
#	awk -f tools/findings.awk docs/findings.md > findings.c
#
# A section is "## ID", then "SEVERITY (WHEN). GIST. MORE", then paragraphs; lines indented by 4 stay
# as they are.  Backquotes become quotes.  Fails at a section without severity or gist.
function fail(text) {
	printf "docs/findings.md:%d: %s: %s\n", FNR, id, text > "/dev/stderr"
	bad = 1
}
function literal(s) {
	gsub(/\\/, "\\\\", s)
	gsub(/"/, "\\\"", s)
	gsub(/`/, "'", s)
	gsub(/\n/, "\\n", s)
	return "\"" s "\""
}
function add(block) {
	text = text (text == "" ? "" : "\n\n") block
}
function end_paragraph() {
	if (paragraph != "")
		add(paragraph)
	if (commands != "")
		add(commands)
	paragraph = commands = ""
}
function end_section(   rest, severity, when, at) {
	end_paragraph()
	if (id == "")
		return
	rest = text
	severity = rest
	sub(/[^a-z].*/, "", severity)
	rest = substr(rest, length(severity) + 1)
	when = ""
	if (match(rest, /^ \([^)]*\)/)) {
		when = substr(rest, 3, RLENGTH - 3)
		rest = substr(rest, RLENGTH + 1)
	}
	if (severity !~ /^(error|warning|info)$/ || !sub(/^\. */, "", rest))
		fail("it begins with no severity")
	at = match(rest, /\.([ \n]|$)/)
	if (!at)
		fail("it has no first sentence")
	printf "\t{ \"%s\", \"%s\", %s,\n\t  %s,\n\t  %s },\n", id, severity, literal(when),
		literal(substr(rest, 1, at - 1)), literal(rest)
	id = text = ""
}
BEGIN {
	print "/* Made from docs/findings.md by tools/findings.awk. */"
	print "#include \"cli_explain.h\"\n\nconst struct finding_page finding_pages[] = {"
}
/^#/ {
	end_section()
	if ($1 == "##")
		id = $2
	text = ""
	next
}
id == "" { next }
/^    / {
	commands = commands (commands == "" ? "" : "\n") $0
	next
}
/^[ \t]*$/ { end_paragraph(); next }
{ paragraph = paragraph (paragraph == "" ? "" : " ") $0 }
END {
	end_section()
	print "\t{ 0 },\n};"
	exit bad
}
