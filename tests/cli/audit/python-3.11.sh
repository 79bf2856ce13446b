# Python 3.11.0 to 3.11.3 pickles members of enums as getattr(CLASS, 'MEMBER'), also the stage of a
# ZeRO step: such files are honest, every verb reads them, and no abuse of getattr hides in them.
P=$FIXTURES/honest/python-3.11.2
zckpt audit "$P"; echo "exit $?"
zckpt diff "$P/global_step3" "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w1/ckpt" | grep same
zckpt convert -q "$P/members.pt" model.safetensors; echo "convert: exit $?"
zckpt reshard -q --world 2 "$P/global_step3" two; echo "reshard: exit $?"
zckpt reshard -q --stage 1 --world 1 "$P/global_step3" one; echo "another stage: exit $?"
for dst in two one; do zckpt diff "$P/global_step3" $dst | grep same; done
echo 'mutants:'
member='c__builtin__\ngetattr\nczoo\nMode\nX\004\0\0\0FAST\206R'
mutant() {
	printf "$1" > mutant.pkl
	zckpt audit -q mutant.pkl > out 2>&1
	echo "exit $? $(grep -c 'builtins.getattr  called' out) $2"
}
mutant "\200\002$member." 'a member'
mutant "\200\002$member)R." 'called'
mutant "\200\002$member}X\001\0\0\0aK\001sb." 'changed'
mutant "\200\002cbuiltins\nmap\n$member]\206R." 'given to map()'
mutant '\200\002c__builtin__\ngetattr\ncos\nPath\nX\006\0\0\0system\206R.' 'of a refused module'
mutant '\200\002c__builtin__\ngetattr\nczoo\nMode\nX\007\0\0\0__add__\206R.' 'with underscores'
