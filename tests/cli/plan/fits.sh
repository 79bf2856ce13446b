# Which stages fit a GPU, and what to change where the one that was asked for does not.
zckpt plan qwen2.5-7b -n 8 --gpu-mem 80GiB --seq 4096 | sed -n '1p; /^run/p; /^STAGE/,/^$/p'
echo "exit $?"
zckpt plan qwen2.5-7b -n 8 --gpu-mem 40GiB --stage 2 --micro 4 --seq 4096 > out
echo "exit $?"
sed -n '1,/^$/p; /^run/p' out
echo '== nothing alone is enough'
zckpt plan llama-3-70b -n 8 --gpu-mem 80GiB --stage 2 --micro 4 --seq 4096 > out
echo "exit $?"
sed -n '1,/^$/p' out
echo '== nothing at all is enough'
zckpt plan llama-3-70b -n 8 --gpu-mem 8GiB --host-mem 100GiB --seq 65536 > out
echo "exit $?"
sed -n '1,/^$/p' out
echo '== a host that is too small: no offload, or more hosts'
zckpt plan llama-3-8b --world-size 16 --offload params --host-mem 60GiB | sed -n '1,/^$/p'
echo '== no two options are equal, and each that is named fits'
for args in '--stage 0' '--stage 1 --micro 8' '--stage 3 --recompute --micro 2' '--world 2 --seq 32768'; do
	zckpt plan 8B -n 8 --gpu-mem 40GiB $args | sed -n '2,/^$/s/^  \(.*: \|or \)\(--.*\) (\(.*\))/\2/p' > options
	[ "$(sort options | uniq -d)" ] && echo "$args: equal options"
	[ $(wc -l < options) -le 3 ] || echo "$args: more than three"
	while read -r more; do
		zckpt plan 8B -n 8 --gpu-mem 40GiB $args $more > out && echo "$args: $more fits" || head -n 1 out
	done < options
done
