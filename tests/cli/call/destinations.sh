# Destinations that cannot be, exit 2; nothing is made.
try() {
	zckpt convert "$@" > out 2>&1
	echo "exit $?: $*"
	sed -n '1s/^/  /p' out
}
mkdir run
try run a.ckpt
try run model.gguf
try run model.safetensor
try run model.gguf/
try run a.pt/
try --state all run a.pth
try run
try run -o ''
try run a.safetensors/
try --state all run a.safetensors
try --state master,exp_avg run a.safetensors
try --state master --state exp_avg run -o -
try --json run -o -
try --part 1/2 run -o -
echo '{}' > there.json
try --report there.json run a.safetensors
rm out
ls
