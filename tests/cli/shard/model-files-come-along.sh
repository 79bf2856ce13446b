# config.json and tokenizer are beside the step that is made of a model, so that a convert of the run
# finds them: by way of every reshard.
cp -r "$FIXTURES/model/models/$(ls "$FIXTURES/model/models" | head -n 1)" model && chmod -R u+w model
echo '{}' > model/tokenizer.json
zckpt shard -q --world 2 --lr 1e-3 --stage 2 model run && ls run/global_step0
zckpt reshard -q --world 3 run run3 && zckpt convert -q run3 back && ls back
cmp model/tokenizer.json back/tokenizer.json && cmp model/config.json run3/global_step0/config.json && echo same
zckpt doctor run3 | sed -n 2p
