# One file of an iteration is no checkpoint: each verb names the folder to give, in the form in which
# the file was given.
cp -r "$FIXTURES/parallel/mc0.16.1-llama-tp2/ckpt" run
dir=run/iter_0000003
for name in common.pt metadata.json .metadata __0_0.distcp; do
	for verb in inspect verify map 'convert -q'; do
		echo "== $verb $name"
		case $verb in convert*) out=m.safetensors ;; *) out= ;; esac
		zckpt $verb $dir/$name $out > out 2>&1
		grep -h -e '^next' -e hint out
	done
	echo "== doctor $name"
	zckpt doctor $dir/$name 2>&1 | grep '^next'
done
(cd $dir && zckpt inspect common.pt | grep '^next')
echo '== no step beside it'
mkdir alone && cp $dir/common.pt alone
zckpt inspect alone/common.pt | grep '^next'
