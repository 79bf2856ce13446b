# Names from a file end no script and open no element; what a JSON reader gets is the name.
name='</script><img src=x onerror=alert(1)><!--'
header='{"'$name'":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a\"'"'"'&b":{"dtype":"BOOL","shape":[],"data_offsets":[8,9]},"__proto__":{"dtype":"I64","shape":[1],"data_offsets":[9,17]}}'
n=$(printf %s "$header" | wc -c)
pad=$(((8 - n % 8) % 8))
{
	printf "\\$(printf %03o $(((n + pad) % 256)))\\$(printf %03o $(((n + pad) / 256)))\0\0\0\0\0\0"
	printf "%s%${pad}s" "$header" ''
	printf '\0\0\200\077\0\0\0\100\001\007\0\0\0\0\0\0\0'
} > 'x<b>"&.safetensors'
zckpt report 'x<b>"&.safetensors'
grep -c '<img\|<b>' report.html
grep -o '<title>.*</title>' report.html
# as many script elements as the page has itself
zckpt report -q -o plain.html "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt"
[ "$(grep -c '</script>' report.html)" = "$(grep -c '</script>' plain.html)" ] && echo "no script more"
zckpt report --json 'x<b>"&.safetensors' | sed -n '/"tensors"/,/^  }/p' | head -n 8
zckpt report --json 'x<b>"&.safetensors' | grep -o '\[[0-9],"weight",[^[]*'
