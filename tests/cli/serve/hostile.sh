# No request leads to a file of the disk, and none stops the server.
. "$(dirname "$0")/lib.inc"
mkdir -p run
cp -r "$RUN/global_step2" 'run/<script>alert(1)&"x'
cp -r "$RUN/global_step4" "run/it's a step 4%41"
echo secret > run/secret.txt
serve run || exit 1
for path in /../../../../etc/passwd /..%2f..%2fetc/passwd /%2e%2e/secret.txt /secret.txt /./index.json //index.json \
	/a%00b /%zz /%4 '/latest/..%5c..%5csecret.txt' /fp32/ /x/model.safetensors '/it'\''s%20a%20step%204%2541/nothing' \
	'/it'\''s%20a%20step%204%2541/bf16/deep/er' /favicon.ico; do
	echo "$path: $(ask "$path" | head -1)"
done
echo "path of 5,000 bytes: $(ask "/$(head -c 5000 /dev/zero | tr '\0' a)" | head -1)"
echo "header of 100,000 bytes: $(ask / -H "X: $(head -c 100000 /dev/zero | tr '\0' a)" | head -1)"
echo '--- names of other machines'
for host in localhost 127.0.0.1:8000 127.9.9.9 '[::1]:80' example.com localhost.example.com 127.0.0.1.example.com 127.0.0.1:80x; do
	echo "$host: $(ask / -H "Host: $host" | head -1)"
done
echo '--- names in the page'
ask / | head -2
grep -c '<script>' body
grep -o 'href="/[^"]*"' body
curl -s "$at/index.json" | grep -o '"url": "[^"]*"'
ask "/it's%20a%20step%204%2541/bf16"
curl -sL -o got "$at/it's%20a%20step%204%2541/bf16/model.safetensors"
zckpt convert -q --no-sums --dtype bf16 "run/it's a step 4%41" want.safetensors
cmp got want.safetensors && echo same
echo '--- many at once, that say nothing'
i=0
while [ $i -lt 80 ]; do
	{ sleep 2 | curl -s -m 2 "telnet://${at#http://}" > /dev/null 2>&1; } &
	i=$((i + 1))
done
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	curl -s -m 1 "$at/findings" && break
	sleep 1
done
end
