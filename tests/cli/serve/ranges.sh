# RFC 9110: ranges, conditions, HEAD. A loader that gets other bytes than it asked for reads other numbers.
. "$(dirname "$0")/lib.inc"
zckpt convert -q --no-sums --dtype bf16 "$RUN" want.safetensors
serve -q "$RUN" || exit 1
n=$(wc -c < want.safetensors)
file=/latest/bf16/model.safetensors
# part FROM BYTES: the same of the converted file.
part() { tail -c +$(($1 + 1)) want.safetensors | head -c "$2" | cmp - body && echo "same $2 bytes"; }
echo "the file has $n bytes"
ask $file -r 0-7; part 0 8
ask $file -r 1001-1001; part 1001 1
ask $file -r 333-2000; part 333 1668
ask $file -r 5000-; part 5000 $((n - 5000))
ask $file -r -11; part $((n - 11)) 11
ask $file -r -999999; part 0 "$n"
ask $file -r 7000-999999999999999999999; part 7000 $((n - 7000))
echo '--- that no byte can satisfy'
ask $file -r 7965-
ask $file -H 'Range: bytes=-0'
ask $file -H 'Range: bytes=99999-,88888-'
echo '--- that are no ranges of bytes'
for range in 'bytes=9-3' 'bytes=' 'bytes=a-b' 'lines=1-2' 'bytes=1' 'bytes=1-2-3' 'bytes=0-0,1-1,2-2,3-3,4-4,5-5,6-6,7-7,8-8,9-9,10-10,11-11,12-12,13-13,14-14,15-15,16-16'; do
	echo "$range: $(ask $file -H "Range: $range" | head -1)"
done
echo '--- several'
ask $file -H 'Range: bytes=0-3, 100-103, -2, 88888-'
tr -d '\r' < body | grep -a '^Content-Range'
{ head -c 4 want.safetensors; tail -c +101 want.safetensors | head -c 4; tail -c 2 want.safetensors; } > parts
cp parts joined
! command -v python3 > /dev/null || python3 - << 'EOF'
import email
head = open("head", "rb").read().decode().split("\r\n", 1)[1]
m = email.message_from_bytes(head.encode() + open("body", "rb").read())
open("joined", "wb").write(b"".join(p.get_payload(decode=True) for p in m.get_payload()))
EOF
cmp joined parts && echo 'the parts are right'
echo '--- conditions'
tag=$(curl -sI "$at$file" | tr -d '\r' | sed -n 's/^ETag: //p')
other='"0123456789abcdef0123456789abcdef"'
ask $file -H "If-None-Match: $tag" | head -1
ask $file -H "If-None-Match: W/$tag, $other" | head -1
ask $file -H 'If-None-Match: *' | head -1
ask $file -H "If-None-Match: $other" | head -1
ask $file -H "If-Match: $other" | head -1
ask $file -H "If-Match: $other, $tag" | head -1
ask $file -r 0-7 -H "If-Range: $tag" | head -1
ask $file -r 0-7 -H "If-Range: W/$tag" | head -1
ask $file -r 0-7 -H "If-Range: $other" | head -1
echo '--- HEAD, and what is not read-only'
ask $file -I
for method in POST PUT DELETE OPTIONS; do ask $file -X $method -d x | head -1; done
ask $file -X PATCH | grep Allow
end
