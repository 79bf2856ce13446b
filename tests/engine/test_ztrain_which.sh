#!/bin/bash
# usage: test_ztrain_which.sh
#
# From which step a run resumes, and which steps it may replace.  If this fails, days of training are
# replaced by a run that started over, or a run resumes from another run's step, and nothing says so.
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/ztrain.sh"

cat > model.json <<'END_OF_CONFIG'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128,
 "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false,
 "hidden_act": "silu"}
END_OF_CONFIG
# train OPTION...: said has what it said
train() {
	# shellcheck disable=SC2086
	${launch-} "$ztrain" --model model.json --micro-batch 1 --accumulation 1 --seq 16 --synthetic --device cpu \
		--seed 1 --lr 1e-3 "$@" > said 2>&1
}
# says WORDS RE: the last run said it
says() { grep -q -e "$2" said && good || bad "$1"; }
# refused WORDS RE OPTION...: it ends before the first step
refused() {
	local words=$1 re=$2
	shift 2
	train "$@" && bad "$words: it runs" || good
	says "$words" "$re"
	grep -q '^step' said && bad "$words: it trained" || good
}
# sums DIR: all that is in there
sums() { (cd "$1" && find . -type f -exec sha256sum {} + | sort); }
latest() { [ "$(cat "$1/latest")" = "$2" ] && good || bad "latest of $1 is $(cat "$1/latest"), not $2: $3"; }

# no step is whole: it is said, and nothing is written (bug: step 1 again, over them)
train --steps 8 --save-every 2 --save whole || bad 'a run'
digest whole/global_step8 > want
mkdir none && cp -r whole/global_step4 none && echo global_step4 > none/latest && rm none/global_step4/rest.pt
sums none > before
refused 'no whole step' 'global_step4.*none is complete.*: RANK_FILE_MISSING: rest.pt: missing' --steps 4 --save-every 2 --save none --resume auto
sums none > after; cmp -s before after && good || bad 'no whole step: the folder is another one'
refused 'no whole step in DIR' 'global_step4.*none is complete' --steps 4 --resume none

# a step that is not whole is passed over, with the reason, and is saved again
cp -r whole broken && rm broken/global_step8/rest.pt
train --steps 8 --save-every 2 --save broken --resume auto || bad 'a broken newest step'
says 'passed over' 'skipped broken/global_step8: '
says 'the one before' 'resumed at step 6 from broken/global_step6'
digest broken/global_step8 > got; cmp -s want got && good || bad 'a broken newest step, saved again'

# one that only its bytes show to be damaged: found as it is loaded, by one rank of several too
for ranks in 1 2; do
	[ $ranks = 1 ] || has_ranks || continue
	rm -rf flipped && cp -r whole flipped
	printf 'x' | dd of=flipped/global_step8/rank-00000.safetensors bs=1 seek=300001 conv=notrunc 2> dd.said
	start=; [ $ranks = 1 ] || start="$mpirun -n 2"
	launch=$start train --steps 8 --save-every 2 --save flipped --resume auto || bad "a flipped bit, $ranks ranks"
	says "a flipped bit, $ranks ranks" 'skipped flipped/global_step8, which rank [01] found damaged while loading'
	says "a flipped bit, $ranks ranks" 'resumed at step 6 from flipped/global_step6'
	"$zckpt" verify -q --full flipped && latest flipped global_step8 'a flipped bit' || bad "a flipped bit, $ranks ranks: verify"
done

# given by itself such a step is refused, as is one with a file of another step
flip() { # FILE BYTE
	printf "\\x$(printf %02x $((0x$(xxd -s "$2" -l 1 -p "$1") ^ 64)))" |
		dd of="$1" bs=1 seek="$2" conv=notrunc 2> /dev/null
}
rm -rf flipped && cp -r whole flipped && flip flipped/global_step8/rank-00000.safetensors 20000
refused 'one bit' 'MANIFEST_HASH_WRONG' --steps 9 --resume flipped/global_step8
train --steps 8 --save-every 2 --save flipped --resume auto || bad 'one bit, --resume auto'
says 'one bit, passed over' 'skipped flipped/global_step8, which rank 0 found damaged.*MANIFEST_HASH_WRONG'
says 'one bit, the one before' 'resumed at step 6 from flipped/global_step6'
digest flipped/global_step8 > got; cmp -s want got && good || bad 'one bit, saved again'
cp -r whole mixed && cp whole/global_step2/rank-00000.safetensors mixed/global_step8
refused 'a file of another step' 'MANIFEST_HASH_WRONG' --steps 9 --resume mixed/global_step8
train --steps 4 --save-every 2 --save zipped --save-format deepspeed || bad 'a run, deepspeed'
file=zipped/global_step4/mp_rank_00_model_states.pt && flip $file $(($(stat -c %s $file) / 2))
refused 'one bit, deepspeed' 'CRC_WRONG' --steps 9 --resume zipped/global_step4
train --steps 4 --save-every 2 --save zipped --save-format deepspeed --resume auto || bad 'one bit, deepspeed, auto'
says 'one bit, deepspeed, passed over' 'skipped zipped/global_step4.*CRC_WRONG'
says 'one bit, deepspeed, the one before' 'resumed at step 2 from zipped/global_step2'

# 'latest' decides; the later ones are named; what this run saved may be replaced
cp -r whole back && "$zckpt" set-latest -q back global_step4
train --steps 8 --stop-at 6 --save-every 2 --save back --resume auto || bad 'set-latest'
says 'set-latest' 'resumed at step 4 from back/global_step4'
says 'later ones' 'skipped back/global_step8, although it is later'
latest back global_step6 'the rolled back run'
train --steps 8 --save-every 2 --save back --resume auto || bad 'set-latest, once more'
says 'set-latest, once more' 'resumed at step 6 from back/global_step6'
digest back/global_step8 > got; cmp -s want got && good || bad 'set-latest: another end'
# back once more: what the branch in between saved is not replaced, and the reason is the true one
"$zckpt" set-latest -q back global_step4
train --steps 8 --stop-at 6 --save-every 2 --save back --resume auto && bad 'back once more'
says 'back once more' 'global_step6 exists, and it is from a branch of this run that was rolled back.*--overwrite-steps'
train --steps 8 --stop-at 6 --save-every 2 --save back --resume auto --overwrite-steps && good || bad 'the branch replaced'
# without 'latest' the two branches are no longer one run
cp -r whole two && "$zckpt" set-latest -q two global_step4
train --steps 8 --stop-at 6 --save-every 2 --save two --resume auto && rm two/latest || bad 'two branches'
refused 'two branches' 'is from run .* from run .*set-latest' --steps 8 --save two --resume auto

# another run in the same folder
cp -r whole other; sums other > before
refused 'a new run' 'this run starts at step 1: add --resume auto' --steps 12 --stop-at 4 --save-every 2 --save other
sums other > after; cmp -s before after && good || bad 'a new run: the folder is another one'
train --steps 12 --stop-at 4 --save-every 2 --save other --overwrite-steps && good || bad '--overwrite-steps'
latest other global_step4 '--overwrite-steps'
train --steps 12 --stop-at 6 --save-every 2 --save other --resume auto
[ $? = 1 ] && good || bad "another run's step 6"
says "another run's step 6" 'global_step6 exists, and it is from another run.*--overwrite-steps'
refused 'from elsewhere' 'global_step8 exists' --steps 8 --save whole --resume other
train --steps 8 --save whole2 --resume whole && latest whole2 global_step8 'elsewhere' || bad 'to an empty folder'

# the end of a save that a kill cut short
cp -r whole late && echo global_step6 > late/latest
train --steps 8 --save-every 2 --save late --resume auto || bad 'killed before latest'
latest late global_step8 'killed before latest'
cp -r whole over && rm over/latest && mkdir over/global_step8.zckpt-partial
train --steps 8 --save-every 2 --save over --resume auto || bad 'nothing left to train'
latest over global_step8 'nothing left to train'
[ ! -e over/global_step8.zckpt-partial ] && good || bad 'nothing left to train: the partial folder stays'

# the same folder, written in another way: the step is not saved once more, and it is one run
cp -r whole same && stat -c '%i' same/global_step8/* > before
train --steps 8 --save-every 2 --save same --resume "$PWD/./same/" || bad 'another spelling'
stat -c '%i' same/global_step8/* > after; cmp -s before after && good || bad 'another spelling: saved once more'
train --steps 10 --save same --resume ./same && rm same/latest && train --steps 10 --save same --resume auto && good ||
	bad 'another spelling: it is called another run'

# ids that are none are not taken over: their text would be keys of the next step
if command -v python3 > /dev/null; then
	train --steps 2 --save forged --save-format deepspeed || bad 'a run, deepspeed'
	python3 - forged/global_step2/mp_rank_00_model_states.pt <<'END_OF_SCRIPT' || bad 'a forged id'
import re, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as z:
    files = [(i.filename, z.read(i)) for i in z.infolist()]
with zipfile.ZipFile(sys.argv[1], 'w') as z:
    for name, b in files:
        if name.endswith('data.pkl'):
            at = re.compile(b'[0-9a-f]{16}').search(b, b.index(b'ztrain_run_id')).start()
            b = b[:at] + b'0", "forged": "7' + b[at + 16:]
        z.writestr(name, b)
END_OF_SCRIPT
	train --steps 4 --save forged2 --save-format deepspeed --resume forged || bad 'a forged id, resumed'
	grep -q forged forged2/global_step4/mp_rank_00_model_states.pt && bad 'a forged id is a key of the next step' || good
fi

# a log of a run that was killed before its first save
echo '{"step": 1, "loss": 1.0, "lr": 0.001, "grad_norm": 1.0, "skipped": false, "samples": 1, "tokens": 16, "seconds": 0.1, "tokens_per_second": 160.0}' > log
train --steps 2 --save logged --log log && bad 'a new run and an old log' || good
train --steps 2 --save logged --log log --resume auto && [ "$(wc -l < log)" = 2 ] && good || bad 'the log is started again'

# a Trainer's output folder
mkdir -p out/checkpoint-2 out/checkpoint-4 out/checkpoint-9
for n in 2 4; do cp -r whole/global_step$n out/checkpoint-$n && echo global_step$n > out/checkpoint-$n/latest; done
train --steps 5 --resume out && says "a Trainer's folder" 'resumed at step 4 from out/checkpoint-4' || bad "a Trainer's folder"
"$zckpt" set-latest -q out checkpoint-2
train --steps 5 --resume out && says "a Trainer's folder, set-latest" 'resumed at step 2 from out/checkpoint-2' ||
	bad "a Trainer's folder, set-latest"

# the other forms say whose they are; reshard keeps it
for form in deepspeed universal dcp; do
	train --steps 4 --save-every 2 --save "f-$form" --save-format $form || bad "$form"
	train --steps 6 --save-every 2 --save "f-$form" --save-format $form --resume auto && good || bad "$form, resumed"
	refused "$form, a new run" 'this run starts at step 1' --steps 6 --save "f-$form" --save-format $form
done
"$zckpt" reshard -q --to native --world 2 whole/global_step6 moved && train --steps 8 --save moved --resume auto && good ||
	bad 'resharded'

# two at the same time
train --steps 1000000 --save at-once --save-every 1 --quiet &
first=$!
for ((i = 0; i < 300; i++)); do [ -e at-once/latest ] && break; sleep 0.1; done
"$ztrain" --model model.json --micro-batch 1 --accumulation 1 --seq 16 --synthetic --device cpu --steps 3 \
	--save at-once --resume auto > second 2>&1
[ $? = 1 ] && grep -q 'another run saves in this folder (process' second && good || { cp second said; bad 'two at once'; }
pkill -TERM -P $first
wait $first
[ ! -e at-once/.ztrain.zckpt-lock ] && good || bad 'the lock stays'

# a lock that is a link: what it points to stays as it is
mkdir linked && echo precious > victim && ln -s "$PWD/victim" linked/.ztrain.zckpt-lock
refused 'a lock that is a link' 'the lock file is a symbolic link' --steps 2 --save linked
[ "$(cat victim)" = precious ] && good || bad 'a lock that is a link: the file is written over'
finish
