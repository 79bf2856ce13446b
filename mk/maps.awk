# maps.awk -- tables of names as strings of C.
#
#	awk -v header=FILE.h -v made=FUNCTION -f mk/maps.awk FILE.map... > maps.c
BEGIN {
	print "/* Made by mk/maps.awk. */"
	print "#include \"" header "\"\n"
	print "static const struct {\n\tconst char *name, *text;\n} maps[] = {"
}
FNR == 1 {
	if (NR != 1)
		print "\t},"
	name = FILENAME
	sub(/.*\//, "", name)
	printf "\t{ \"%s\",\n", name
}
{
	gsub(/\\/, "\\\\&")
	gsub(/"/, "\\\"")
	gsub(/\t/, "\\t")
	print "\t  \"" $0 "\\n\""
}
END {
	print "\t},\n};\n"
	print "const char *" made "(size_t i, const char **name_out)\n{"
	print "\tif (i >= sizeof(maps) / sizeof(*maps))\n\t\treturn NULL;"
	print "\t*name_out = maps[i].name;\n\treturn maps[i].text;\n}"
}
