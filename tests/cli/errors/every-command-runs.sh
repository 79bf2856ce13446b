# Every command in docs/errors.md is run where its case can be: on a step of 8 ranks, whole and
# spread over two folders. A wrong option, a verb that is gone or a command that fails ends up here.
doc=$(cd "$(dirname "$0")/../../.." && pwd)/docs/errors.md
cp -r "$FIXTURES/deepspeed/ds0.19.8-z3-bf16-w8/ckpt" keep && chmod -R u+w keep
sed -n 's/^    \(zckpt .*\)/\1/p' "$doc" | sort -u > commands
[ "$(wc -l < commands)" -gt 15 ] || echo 'where are the commands?'
while read -r command; do
	rm -rf RUN DST NODE0 NODE1 model.safetensors && cp -r keep RUN
	mkdir -p NODE0 NODE1 && cp RUN/global_step3/*rank_[0-3]_* NODE0 && cp RUN/global_step3/*rank_[4-7]_* NODE1
	set -- RUN/global_step3/zero_pp_rank_0_mp_rank_00_model_states.pt
	line=$(echo "$command" | sed "s|STEP|RUN/global_step3|; s|TAG|global_step3|; s|FILE|$1|")
	eval "$line" > out 2>&1 < /dev/null
	echo "exit $? $command"
done < commands
echo "other commands in the text:"
grep -o '`zckpt [a-z-]*' "$doc" | sort -u | cut -c8- | while read -r verb; do
	zckpt "$verb" -h > /dev/null && echo "$verb"
done
