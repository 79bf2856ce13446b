# A message for a closed stderr must not get into the result that was opened in its
# place; a result for a closed stdout, or beyond a limit of file sizes, is not lost silently.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
zckpt convert -q "$run" right.safetensors
zckpt convert -v --progress "$run" out.safetensors 2>&-; echo "exit $?"
cmp right.safetensors out.safetensors && echo 'the same bytes'
rm out.safetensors
zckpt convert -v --progress "$run" out.safetensors <&- >&- 2>&-
cmp right.safetensors out.safetensors && echo 'the same bytes'
zckpt digest "$run" >&- 2> err; echo "no stdout: exit $?"
rm out.safetensors err
(ulimit -f 4; zckpt convert -q "$run" out.safetensors 2> /dev/null; echo "a limit: exit $?")
ls
