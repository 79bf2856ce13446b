# messages.awk -- the texts in C sources that a user can read, one line each:
#
#	FILE:LINE	KIND	LENGTH	TEXT
#
# KIND is "message" (the format of a function that reports: see CALLS), "help" (a line of a table
# of options), "about" (the description of a command), or "text" (any other literal of two words
# or more).  Adjacent literals are one
# text; a conversion counts as it is written, PRIu64 as "u".  -v calls="NAME:ARG ..." adds
# functions whose argument number ARG is a message.
#
# The scanner knows comments, literals, parentheses and braces, and no more of C: a text that a
# macro makes is listed where its literals are.
BEGIN {
	CALLS = "ck_fail:5 ck_fail_limit:6 ck_findings_add:4 ck_pkl_fail:3 differ:2 " \
		"cli_say:1 cli_say_error:1 cli_wrong:2 cli_try:3 opt_wrong:2 fputs:1 fprintf:2 zt_say:2 zt_say_error:2 refuse:2 " \
		"zt_wrong_value:4 zt_wrong_call:2 en_rule:5 en_refuse:6 en_differ_say:2 " \
		"en_join_fail:4 en_join_say:2 en_derive:5"
	split(CALLS " " calls, list, " ")
	for (i in list) {
		split(list[i], part, ":")
		argument[part[1]] = part[2]
	}
}

# What the literals gathered so far are; then none are gathered.
function flush(    kind, i, name) {
	if (!gathered)
		return
	gathered = 0
	macro = ""
	if (text !~ /[A-Za-z][a-z]+[,;:)]* [("%]*[A-Za-z-]/)
		return
	kind = "text"
	name = call[depth]
	if (name ~ /^(strcmp|strncmp|strstr|memcmp|sscanf)$/)
		return
	if (name in argument && argument[name] == commas[depth] + 1)
		kind = "message"
	else if (assigned == "about" || assigned == "notes")
		kind = "about"
	else if (option[braces] || name ~ /^ZT_/)
		kind = "help"
	print FILENAME ":" first "\t" kind "\t" length(text) "\t" text
}

function literal(body) {
	if (!gathered) {
		gathered = 1
		first = FNR
		text = ""
	} else if (macro ~ /^PRI[dioux]/)
		text = text substr(macro, 4, 1)
	else if (macro != "")
		text = text "{" macro "}"
	macro = ""
	gsub(/\\"/, "\"", body)
	text = text body
}

FNR == 1 {
	flush()
	comment = depth = braces = 0
	word = ""
	delete option
}
/^[ \t]*#[ \t]*include/ { next }
{
	rest = $0
	while (rest != "") {
		if (comment) {
			end = index(rest, "*/")
			if (!end)
				break
			rest = substr(rest, end + 2)
			comment = 0
		} else if (match(rest, /^[ \t\\]+/)) {
			rest = substr(rest, RLENGTH + 1)
		} else if (rest ~ /^\/\*/) {
			comment = 1
			rest = substr(rest, 3)
		} else if (match(rest, /^"([^"\\]|\\.)*"/)) {
			literal(substr(rest, 2, RLENGTH - 2))
			rest = substr(rest, RLENGTH + 1)
		} else if (match(rest, /^'([^'\\]|\\.)+'/)) {
			flush()
			rest = substr(rest, RLENGTH + 1)
		} else if (match(rest, /^[A-Za-z_][A-Za-z_0-9]*/)) {
			word = substr(rest, 1, RLENGTH)
			rest = substr(rest, RLENGTH + 1)
			if (word ~ /^OPT_/)
				option[braces] = 1
			if (gathered && macro == "" && word ~ /^[A-Z][A-Z_0-9]*[a-z0-9]*$/) {
				macro = word
				continue
			}
			flush()
		} else {
			c = substr(rest, 1, 1)
			rest = substr(rest, 2)
			flush()
			if (c == "(") {
				call[++depth] = word
				commas[depth] = 0
			} else if (c == ")" && depth) {
				depth--
			} else if (c == ",") {
				commas[depth]++
			} else if (c == "{") {
				option[++braces] = 0
			} else if (c == "}" && braces) {
				braces--
			} else if (c == ";") {
				if (!braces) depth = 0
			}
			assigned = c == "=" ? word : c ~ /[,;{}]/ ? "" : assigned
			word = ""
		}
	}
}
END { flush() }
