# Every command in docs/errors.md is run where its case can be: on a step of 8 ranks, whole or
# with what the comment in its section says is wrong, and spread over two folders. A wrong
# option, a verb that is gone, a command that fails or prints something else ends up here.
doc=$(cd "$(dirname "$0")/../../.." && pwd)/docs/errors.md
cp -r "$FIXTURES/deepspeed/ds0.19.8-z3-bf16-w8/ckpt" keep && chmod -R u+w keep
step=RUN/global_step3
shard=$step/bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt
model=$step/zero_pp_rank_0_mp_rank_00_model_states.pt

prepare() {
	rm -rf RUN DST NODE0 NODE1 model.safetensors
	cp -r keep RUN
	mkdir -p NODE0 NODE1 && cp $step/*rank_[0-3]_* NODE0 && cp $step/*rank_[4-7]_* NODE1
	case $1 in
	whole) ;;
	'ranks 4 to 7 are on another machine') rm $step/*rank_[4-7]_* ;;
	'step 3 is cut short, step 2 is whole')
		cp -r $step RUN/global_step2
		head -c 3000 RUN/global_step2/${shard##*/} > $shard
		;;
	'a byte of a tensor is changed')
		at=$(zckpt map --include emb.weight --state master RUN | sed -n 's/.*rank_2_.* at byte \([0-9]*\) .*/\1/p')
		printf x | dd of=$shard bs=1 seek=$((at + 9)) conv=notrunc 2> /dev/null
		;;
	'a shard is empty') : > $shard ;;
	'a file is a pointer of git-lfs')
		printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 9\n' 1 > $model
		;;
	'latest is gone') rm RUN/latest ;;
	*) echo "no such case: $1" ;;
	esac
}

awk 'BEGIN { run = "whole" }
	/^##/ { run = "whole" }
	/^<!-- RUN: / { run = $0; sub(/^<!-- RUN: /, "", run); sub(/ -->$/, "", run) }
	/^    zckpt / { print "run\t" run; print "command\t" substr($0, 5) }
	/^    > / { print "prints\t" substr($0, 7) }' "$doc" > todo
[ "$(grep -c ^command todo)" -gt 50 ] || echo 'where are the commands?'
while IFS="$(printf '\t')" read -r what text; do
	case $what in
	run)
		prepare "$text"
		[ "$text" = "${before-whole}" ] || echo "# $text"
		before=$text
		;;
	command)
		case $text in	# DST is there for those that compare with it
		*--expect*) zckpt convert -q RUN DST ;;
		esac
		line=$(echo "$text" | sed "s|STEP|$step|; s|TAG|global_step3|; s|FILE|$model|")
		eval "$line" > out 2>&1 < /dev/null
		echo "exit $? $text"
		;;
	prints) grep -qF -- "$text" out && echo "    > $text" || { echo "    LACKS $text"; cat out; } ;;
	esac
done < todo
echo "other commands in the text:"
grep -o '`zckpt [a-z-]*' "$doc" | sort -u | cut -c8- | while read -r verb; do
	zckpt "$verb" -h > /dev/null && echo "$verb"
done
