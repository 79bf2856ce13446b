# Same files of neighbouring steps become one: frozen parameters of native steps, and large files.
DS=$FIXTURES/deepspeed
mkdir run
zckpt reshard -q --to native "$DS/ds0.19.8-z2-bf16-w2-frozen/ckpt" run --new-tag step1
zckpt reshard -q --to native --reset-optimizer "$DS/ds0.19.8-z2-bf16-w2-frozen/ckpt" run --new-tag step2
zckpt reshard -q --to native --world 3 "$DS/ds0.19.8-z2-bf16-w2-frozen/ckpt" run --new-tag step3
head -c 1048576 /dev/zero > run/step1/large; cp -p run/step1/large run/step2/large; cp -p run/step1/large run/step3/large
head -c 1048575 /dev/zero > run/step1/small; cp -p run/step1/small run/step2
printf x | dd of=run/step3/large bs=1 seek=1048575 conv=notrunc status=none
shared() { (cd run && find . -type f -links +1 | sort); }
zckpt prune --link hard run | awk 'NR > 1 { print $5, $6 }'; shared
md5sum run/*/* > before
: > run/step2/.large.zckpt-link
zckpt prune -q --link hard --apply run > out; echo "exit $?"; shared; md5sum -c --quiet before && echo 'the same bytes'
ls -a run/step2 | grep zckpt-link
for s in 1 2 3; do zckpt verify -q --full run/step$s; echo "exit $?"; done
zckpt prune --link hard --apply run 2>&1 | tail -n 1
# what a step without moments has to itself is linked again; a removed one takes nothing along
zckpt prune -q --moments-last 1 --link hard --apply run > out; echo "exit $?"; shared
zckpt prune -q --keep-last 1 --apply run > out; shared; zckpt verify -q --full run; echo "exit $?"
# without a file system that can share blocks it is an error, and nothing is changed
cp -r run/step3 run/step2; zckpt prune --link reflink --apply run > out 2> err
case $? in 0) ;; 3) grep -q 'cannot share blocks' err || cat err ;; *) cat err ;; esac
find run -name '*zckpt*'; cmp run/step2/large run/step3/large
zckpt prune --link soft run 2>&1 | head -n 1
