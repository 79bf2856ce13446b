# A wrong call is a sentence and a hint on stderr, exit 2; the nearest word is named.
try() {
	zckpt "$@" > out 2>&1
	echo "exit $?: zckpt $*"
	sed 's/^/  /' out
}
try
try conver
try covnert
try xyzzy
try -q inspect
try inspect
try map
try digest
try commit
try commit a b
try inspect --tensor run
try inspect --josn run
try inspect --json=1 run
try convert --outptu x run
try convert --max_shard_sise 5GB run x
try convert --frobnicate run x
try convert -qx run x
try convert run -o
try convert run --tied
