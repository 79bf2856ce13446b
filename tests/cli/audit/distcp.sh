# A data file of torch.distributed.checkpoint is several archives of torch.save, one after the
# other. Each is asked; under another name two archives in one file stay refused.
cd "$FIXTURES/formats/dcp"
for step in v2.1/one v2.6/basic v2.6/mesh2d v2.11/basic v2.11/fsdp2 v2.11/mesh2d v2.15/basic v2.15/fsdp2; do
	zckpt audit -q "$step"/*.distcp > "$OLDPWD/out" 2>&1 || cat "$OLDPWD/out"
done
echo 'no file is accused'
zckpt audit v2.6/mesh2d/__3_0.distcp; echo "exit $?"
zckpt doctor v2.6/mesh2d/__3_0.distcp; echo "exit $?"
zckpt verify v2.6/mesh2d/__3_0.distcp 2>&1; echo "exit $?"
zckpt convert v2.6/mesh2d/__3_0.distcp "$OLDPWD/out.safetensors" 2>&1; echo "exit $?"
echo 'hostile: in the first, in the last, and under another name'
cd "$OLDPWD"
good="$FIXTURES/formats/dcp/v2.6/one/__0_0.distcp" bad="$FIXTURES/formats/pickle/hostile-os.system.pt"
cat "$bad" "$good" > first.distcp; zckpt audit -q first.distcp; echo "exit $?"
cat "$good" "$good" "$bad" > last.distcp; zckpt audit -q last.distcp; echo "exit $?"
cat "$good" "$good" > two.pt; zckpt audit -q two.pt 2>&1; echo "exit $?"
echo 'damaged: cut short, and bytes between two archives'
cat "$good" "$good" "$bad" | head -c 3000 > cut.distcp; zckpt audit -q cut.distcp 2>&1; echo "exit $?"
(cat "$good"; printf gap; cat "$good" "$bad") > gap.distcp; zckpt audit -q gap.distcp 2>&1; echo "exit $?"
