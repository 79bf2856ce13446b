# A step goes beside others: nothing that is there is lost, 'latest' is changed last, and what
# stands in the way is named before anything is written.
F="$FIXTURES/deepspeed"
cp -r "$F/ds0.19.8-z2-bf16-w3/ckpt" run
try() { zckpt reshard -q "$@" 2> err; echo "exit $?: $*"; head -n 1 err; }
tag=$(cat run/latest)

echo '-- beside its own source'
try 3:2 run run
try 3:2 run run --force
try 3:2 run run --new-tag ${tag}_w2 --dry-run
ls run
try 3:2 run run --new-tag ${tag}_w2
ls run; cat run/latest; echo
zckpt inspect run | sed -n 's/^format *//p'
zckpt inspect --tag "$tag" run | sed -n 's/^format *//p'
zckpt digest run | tail -n 1; zckpt digest --tag "$tag" run | tail -n 1
echo '-- once more: the tag is there'
try 3:2 run run --tag "$tag" --new-tag ${tag}_w2
echo '-- replaced, other steps stay'
try 3:4 run run --tag "$tag" --new-tag ${tag}_w2 --force
zckpt inspect run | sed -n 's/^format *//p'
ls run run/${tag}_w2

echo '-- into a root of another run'
cp -r "$F/ds0.19.8-z3-bf16-w2-client/ckpt" other
echo mine > other/zero_to_fp32.py
echo theirs > run/zero_to_fp32.py
try 3:1 run other --tag "$tag" --new-tag new
ls other; cat other/latest; echo
try 3:1 run other --tag "$tag" --new-tag new --force
ls other; cat other/latest other/zero_to_fp32.py
try 3:1 run other --tag "$tag" --new-tag newer
cat other/latest; echo

echo '-- files and folders in the way'
mkdir -p run/adapter
echo a > run/adapter/a
echo b > run/notes
cp -r "$F/ds0.19.8-z3-bf16-w2-client/ckpt" third
echo x > third/adapter
try 3:1 run third --tag "$tag" --new-tag new
rm third/adapter third/zero_to_fp32.py
mkdir -p third/notes third/adapter
echo other > third/adapter/b
try 3:1 run third --tag "$tag" --new-tag new --force
rmdir third/notes
ln -s nowhere third/notes
try 3:1 run third --tag "$tag" --new-tag new
rm third/notes
try 3:1 run third --tag "$tag" --new-tag new
ls third third/adapter
echo '-- a folder of another file system'
mv third/adapter kept; ln -s /proc third/adapter
try 3:1 run third --tag "$tag" --new-tag newest
rm third/adapter; mv kept third/adapter
echo '-- --force replaces a step, nothing else of that name'
mkdir third/blank
try 3:1 run third --tag "$tag" --new-tag adapter --force
try 3:1 run third --tag "$tag" --new-tag blank --force
cat third/adapter/b third/latest; echo
echo '-- a step whose files the source links to'
mkdir links links/blank99
for f in "$PWD"/third/blank/*.pt; do ln -s "$f" links/blank99; done
try 1:2 links/blank99 third --new-tag blank --force
echo '-- a name that readers of latest would not find'
try 3:1 run third --tag "$tag" --new-tag ' x'
try 3:1 run third --tag "$tag" --new-tag "x
"
try 3:1 run third --tag "$tag" --new-tag 'x y'
cat third/latest; echo

echo '-- no root'
mkdir plain empty
echo x > plain/letter
try 3:1 run plain --tag "$tag"
try 3:1 run plain --tag "$tag" --force
try 3:1 run empty --tag "$tag"
try 3:1 run "empty/$tag" --tag "$tag" --new-tag in --force
try 3:1 run err --tag "$tag" --force
ls . plain empty

echo '-- the folder given is the step itself, by a name that is none'
(cd run/$tag && zckpt reshard -q 3:1 . ../../dot 2> ../../err; echo "exit $?"); head -n 1 err
(cd run/$tag && zckpt reshard -q 3:1 . ../../dot --new-tag one); ls dot
