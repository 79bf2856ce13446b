# A server that is killed, stopped, or in use; a folder that cannot be mounted on.
. "$(dirname "$0")/lib.inc"
zckpt mount -q -f "$RUN" view & server=$!
# wait_for FILE
wait_for() { for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do [ ! -e "$1" ] || return 0; sleep 0.25; done; echo "$1 is missing"; }
wait_for view/latest
zckpt mount "$RUN" view; echo "a second time: exit $?"
kill -9 $server
wait $server 2> /dev/null
ls view 2>&1 | sed 's/.*: //'
zckpt mount "$RUN" view; echo "exit $?"
ls view
(cd view/latest && zckpt mount -u "$OLDPWD/view" 2>&1 | sed "s|$OLDPWD/||g"; [ -e model.safetensors ] && echo 'still mounted')
zckpt mount -u view; echo "exit $?"
zckpt mount -u view; echo "exit $?"
for signal in TERM HUP; do
	zckpt mount -q -f "$RUN" view & server=$!
	wait_for view/latest
	kill -$signal $server
	wait $server
	echo "$signal: exit $?, $(ls view | wc -l) left"
done
echo '--- wrong calls'
zckpt mount "$RUN"; echo "exit $?"
zckpt mount -u; echo "exit $?"
echo text > file
zckpt mount "$RUN" file; echo "exit $?"
mkdir full && echo mine > full/file
zckpt mount "$RUN" full; echo "exit $?"; cat full/file
zckpt mount missing new; echo "exit $?"; [ -e new ] || echo 'no folder is left'
zckpt mount "$RUN" no/such/folder; echo "exit $?"
cp -r "$RUN" run
chmod -R u+w run
zckpt mount run .; echo "exit $?"
zckpt mount run run/view; echo "exit $?"; [ -e run/view ] || echo 'no folder is left'
