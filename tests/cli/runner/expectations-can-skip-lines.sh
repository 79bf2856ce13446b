# `...` stands for any lines, $HERE and $FIXTURES for paths, .exit for the status.
echo first
seq 20
echo "this case runs in $PWD"
echo "and reads $FIXTURES/deepspeed" >&2
ls
exit 3
