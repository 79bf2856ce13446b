# maps.awk -- tables of names as strings of C.
#
#	awk -f formats/megatron/maps.awk FILE.map... > maps.c
BEGIN {
	print "/* Made by formats/megatron/maps.awk. */"
	print "#include \"formats/megatron/mg_map.h\"\n"
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
	print "const char *ck_mg_map_text(size_t i, const char **name_out)\n{"
	print "\tif (i >= sizeof(maps) / sizeof(*maps))\n\t\treturn NULL;"
	print "\t*name_out = maps[i].name;\n\treturn maps[i].text;\n}"
}
