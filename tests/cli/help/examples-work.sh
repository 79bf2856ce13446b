# Each example in the help of a command works as it is printed: a user pastes one first.
cp -r "$FIXTURES/model/models/qwen3" my-model
chmod -R u+w my-model
for step in 100 200 300; do
	zckpt shard -q --world 8 --stage 2 --lr 1e-5 --dtype bf16 --new-tag global_step$step my-model run-$step
	mkdir -p run
	mv run-$step/global_step$step run && mv run-$step/latest run && rmdir run-$step
done
{
	zckpt convert run model.safetensors
	zckpt convert run pytorch_model.bin
	zckpt reshard 8:4 run run-on-4
} > setup 2>&1 || cat setup
(cd run && tar -cf ../step200.tar global_step200)
(cd run && tar -cf ../run.tar global_step300 latest) && mv run.tar run.tar.zst
cp my-model/config.json config.json
echo '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}' > ds.json
mkdir ../made
rm setup
mv ./* ../made

# Does this machine let this user mount?
can_mount() { [ -d ../mounts ] || { zckpt mount -q run ../try && zckpt mount -u ../try && mkdir ../mounts; } > /dev/null 2>&1; }

# try VERB: its examples, one after the other in one folder
try() {
	rm -rf ./* && cp -r ../made/* .
	rm -rf run-8 run-ds restored
	case $1 in
	commit) rm model.safetensors ;;
	convert) rm -r model.safetensors pytorch_model.bin my-model ;;
	digest) zckpt digest run > run.digest ;;
	reshard) rm -r run-on-4 ;;
	unpack) rm -r run/global_step200 ;;
	pack) rm run.tar.zst ;;
	esac
	while IFS= read -r line; do
		case "$line $(zckpt pack x y 2>&1)" in
		'zckpt pack '*'has no packs'*) continue ;;
		esac
		case "$line $(zckpt serve x 2>&1; zckpt mount -u x 2>&1)" in
		'zckpt serve '*'built without libmicrohttpd'*) continue ;;
		'zckpt serve '*) line="timeout -k 9 --preserve-status -s TERM 2 $line --port 0" ;;	# till it is stopped
		'zckpt mount '*'built without libfuse3'* | 'ls -l view/'*'built without libfuse3'*) continue ;;
		'zckpt mount '* | 'ls -l view/'*) can_mount || continue ;;
		esac
		eval "$line" > ../said 2>&1 < /dev/null && continue
		echo "$1: status $?: $line"
		cat ../said
	done
}
for c in $(zckpt help | sed -n '/^commands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p'); do
	zckpt $c -h | sed -n '/^examples:/,/^$/s/^  //p' > ../examples
	try $c < ../examples
	echo "$c: $(grep -c "^zckpt $c " ../examples) of $(grep -c . ../examples)"
done
