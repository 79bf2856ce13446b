# What a failed download or copy left under the name of a model is named for what it is.
try() { zckpt "$@" 2>&1; echo "exit $?"; }
printf 'Entry not found' > a.safetensors; try inspect a.safetensors
printf '404' > b.safetensors; try inspect b.safetensors
head -c 4096 /dev/zero > c.safetensors; try inspect c.safetensors; try verify c.safetensors
: > d.safetensors; try inspect d.safetensors; try doctor d.safetensors
: > e.pt; try inspect e.pt; try doctor e.pt
mkdir f; : > f/model.safetensors; echo '{}' > f/config.json; try inspect f; try doctor f
