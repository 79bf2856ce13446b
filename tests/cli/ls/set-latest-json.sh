# set-latest --json says what went wrong as JSON too: a folder that is missing, one that is no step.
mkdir -p run/empty
zckpt set-latest --json run global_step9 2> err; echo "exit $?"
zckpt set-latest --json run empty 2> err; echo "exit $?"
ls run
