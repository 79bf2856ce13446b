# Values of options that are none of the values, exit 2, before anything is read.
try() {
	zckpt "$@" > out 2>&1
	echo "exit $?: zckpt $*"
	sed -n '1s/^/  /p' out
}
try convert --dtype bf17 run x
try convert --dtype '*norm*=int8' run x
try convert --dtype run x
try convert --dtype '=fp32' run x
try convert --tied both run x
try convert --sync never run x
try convert --only weights run x
try convert --max-shard-size 5XB run x
try convert --max-shard-size 0 run x
try convert --max-shard-size -1GB run x
try convert --max-shard-size 99999999999TB run x
for size in 1e 1e- 1e1.5 1eB e9 1e-9 1e20 1.8446744073709551616e19 1e10TB 1e9999; do
	try convert --mem-limit $size run x
done
try convert --mem-limit Ki run x
try convert --threads many run x
try convert --threads 99999999999 run x
try convert --state 'master,,exp_avg' run x
try convert --state all,master run x
try convert --rename abc run x
try convert --part 5/4 run x
try convert --part 0/4 run x
try convert --part 1of4 run x
try commit --timeout soon x
