# Colour goes to terminals only, and nowhere if NO_COLOR or TERM=dumb says so; --color decides.
# A log full of escapes, or JSON with one of them, would be read by no program.
command -v script > /dev/null || { echo 'script is not installed' >&2; exit 77; }
unset NO_COLOR CLICOLOR_FORCE
export TERM=xterm
cp -r "$FIXTURES/deepspeed/ds0.10.3-z1-bf16-w2/ckpt" run
count() { tr '\033' '~' | grep -c '~\['; }
on_terminal() { script -qec "$1" /dev/null < /dev/null; }
echo "pipe: $( (zckpt ls run; zckpt ls nowhere; ztrain --nope) 2>&1 | count)"
echo "pipe, always: $( (zckpt ls --color=always run; zckpt ls nowhere --color always) 2>&1 | count)"
echo "pipe, CLICOLOR_FORCE: $(CLICOLOR_FORCE=1 zckpt ls run | count)"
echo "terminal: $(on_terminal 'zckpt ls run; zckpt ls nowhere; ztrain --nope' | count)"
echo "terminal, NO_COLOR: $(NO_COLOR=1 on_terminal 'zckpt ls run; zckpt ls nowhere; ztrain --nope' | count)"
echo "terminal, NO_COLOR empty: $(NO_COLOR= on_terminal 'zckpt ls run' | count)"
echo "terminal, dumb: $(TERM=dumb on_terminal 'zckpt ls run; zckpt ls nowhere' | count)"
echo "terminal, never: $(on_terminal 'zckpt ls run --color never; ztrain --color=never --nope' | count)"
echo "terminal, JSON: $(on_terminal 'zckpt ls --json run; zckpt inspect --json run' | count)"
echo "terminal into a file: $(on_terminal 'zckpt ls run > list; zckpt inspect -v run > all'; cat list all | count)"
NO_COLOR=1 zckpt ls --color=always run | tr '\033' '~' | sed 's/[0-9:-]* [0-9:]* *[0-9.]* kB/WHEN/'
zckpt ls --color=always nowhere 2>&1 | tr '\033' '~'
zckpt --color 2>&1 | tr '\033' '~'
zckpt ls --color=red run; echo "exit $?"
