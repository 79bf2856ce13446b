# The page in a real browser: its parts are drawn, a tensor opens by its name, nothing is logged.
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
	{ echo "no chromium is installed" >&2; exit 77; }
# page FILE#HASH: the DOM after the scripts, and what the console got
page() {
	timeout 120 "$browser" --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage \
		--user-data-dir="$PWD/profile" --enable-logging=stderr --v=0 --dump-dom "file://$PWD/$1" \
		> dom 2> console
	echo "$?: $(grep -c 'data-ready=' dom) page"
	grep 'CONSOLE' console
	grep -o '<h2>[^<]*' dom | sed 's/<h2>/  /'
}
zckpt report -q "$FIXTURES/deepspeed/ds0.19.8-z3-bf16-w2-tied3/ckpt"
page 'report.html#tensor=emb.weight'
sed -n 's/.*\(<h3[^>]*id="tensor-name"[^>]*>[^<]*\).*/\1/p' dom
grep -c 'class="bars' dom
zckpt report -q -o diff.html --tag2 global_step2 "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-twotags/ckpt"
page diff.html
header='{"</script><img src=x onerror=alert(1)>":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}'
n=$(printf %s "$header" | wc -c)
{ printf "\\$(printf %03o "$n")\0\0\0\0\0\0\0%s\0\0\200\077" "$header"; } > odd.safetensors
zckpt report -q -o odd.html odd.safetensors
page odd.html
grep -c '<img' dom
rm -rf profile
