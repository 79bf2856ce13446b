# A full disk is said: what was saved there last may be cut short. One with room is not, nor one
# that nobody writes to. In a mount namespace of its own, where that is allowed.
unshare -m sh -c 'mount -t tmpfs -o size=64k none /mnt' 2> why ||
	{ echo "no tmpfs can be mounted here: $(tail -n 1 why)" >&2; exit 77; }
export one="$FIXTURES/formats/safetensors/one.safetensors"
mkdir disk
try() {
	unshare -m sh -c "mount -t tmpfs -o $1 none disk && cp \"\$one\" disk/m.safetensors && $2"
	echo "exit $?"
}
fill='head -c 1M /dev/zero > disk/rest 2> /dev/null;'
echo '== room'
try size=64k 'zckpt doctor disk/m.safetensors'
echo '== no room'
try size=64k "$fill zckpt doctor disk/m.safetensors"
echo '== little room on a larger one'
try size=4m 'head -c 4177920 /dev/zero > disk/rest; zckpt doctor disk/m.safetensors | grep -o DISK_FULL'
echo '== no room for another file'
try size=1m,nr_inodes=2 'zckpt doctor --json disk/m.safetensors | grep -o DISK_FULL'
echo '== read-only'
try size=64k "$fill mount -o remount,ro disk; zckpt doctor disk/m.safetensors"
