#!/bin/bash
# `make demo`: zckpt on two checkpoints that DeepSpeed 0.19.8 wrote
# (tests/fixtures/README.md), then a training run that is killed and resumed on
# fewer ranks (demo-train.sh).  Each command is shown before its output.  Ends
# with status 1 if a command does not do what the text says.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1
root=$PWD
program=${ZCKPT:-$PWD/build/zckpt}
fixtures=${ZCKPT_FIXTURES:-$PWD/build/fixtures}/deepspeed
scratch=build/demo
rm -rf $scratch && mkdir -p $scratch && cd $scratch || exit 1
PATH=$(dirname "$program"):$PATH
export PATH

bold='' plain=''
if [ -t 1 ]; then bold=$'\033[1m' plain=$'\033[0m'; fi
say() { printf '\n%s\n' "# $*"; }
# show STATUS COMMAND...: the command, what it prints, and whether it ended so.
show() {
	local want=$1 rc
	shift
	printf '%s$ %s%s\n' "$bold" "$*" "$plain"
	eval "$*" 2>&1
	rc=$?
	if [ $rc != "$want" ]; then
		printf '\nThe demo expected exit status %s and got %s.\n' "$want" $rc
		exit 1
	fi
	[ "$want" = 0 ] || printf '(exit status %s)\n' $rc
}
# agree OURS THEIRS: prints the root digest of both; they must be the same.
agree() {
	show 0 "zckpt digest $1 | tail -n 1" | tee ours.txt
	show 0 "zckpt digest $2 | tail -n 1" | tee theirs.txt
	if ! grep -q ' root$' ours.txt || [ "$(tail -n 1 ours.txt)" != "$(tail -n 1 theirs.txt)" ]; then
		echo 'They differ.'
		exit 1
	fi
	echo 'The two are bit-identical.'
}
case_of() {
	cp -r "$fixtures/$2/ckpt" "$1" || exit 1
	cp "$fixtures/$2/expected_fp32.safetensors" "$1-by-deepspeed.safetensors" || exit 1
}
case_of zero2 ds0.19.8-z2-bf16-w8-tiny
case_of zero3 ds0.19.8-z3-bf16-w2-tied3

say 'DeepSpeed saved this folder with ZeRO stage 2 on 8 ranks. What is in it?'
show 0 zckpt inspect zero2
say 'Write the fp32 master weights to one safetensors file.'
show 0 zckpt convert zero2 model.safetensors
say "DeepSpeed's zero_to_fp32 wrote a file too. Are names, shapes and bytes the same?"
agree model.safetensors zero2-by-deepspeed.safetensors

say 'ZeRO stage 3 on 2 ranks, with one weight under three names.'
show 0 zckpt inspect zero3
show 0 zckpt convert --tied dup zero3 model3.safetensors
agree model3.safetensors zero3-by-deepspeed.safetensors
say 'Write a folder for transformers, in bf16.'
show 0 zckpt convert --dtype bf16 zero3 hf
show 0 ls hf
say 'Write the optimizer states of every parameter, by name.'
show 0 zckpt convert --state master,exp_avg,exp_avg_sq zero3 states
show 0 ls states

say 'Prepare the run on 8 ranks for 4 ranks and stage 3. The state does not change.'
show 0 "zckpt reshard '8->4' --stage 3 zero2 four"
agree zero2 four
show 0 zckpt diff zero2 four
show 0 zckpt verify --full four

say 'A rank file is lost. zckpt writes nothing and names the missing file.'
rm -f "$(find zero2 -name '*pp_rank_5_*optim_states.pt')"
show 3 zckpt convert zero2 broken.safetensors
if [ -e broken.safetensors ]; then
	echo 'broken.safetensors was written, although a file is missing.'
	exit 1
fi

. "$root/tools/demo-train.sh"

printf '\nThe demo is complete (%d s). Its files are in %s.\n' $SECONDS "$scratch"
