# What a client downloads is what convert writes, in each type, of each step and each state.
. "$(dirname "$0")/lib.inc"
serve "$RUN" || exit 1
sed 's/1:[0-9]*\//1:PORT\//' urls
for step in global_step2 global_step4 latest; do
	for type in keep fp32 bf16 fp16; do
		of=$step
		[ $step != latest ] || of=global_step4
		zckpt convert -q -f --no-sums --dtype $type "$RUN/$of" want.safetensors
		folder=$type/
		[ $type != keep ] || folder=
		curl -s -o got "$at/$step/${folder}model.safetensors"
		cmp got want.safetensors && echo "$step $type: same"
	done
	zckpt convert -q -f --no-sums --state all "$RUN/$of" states
	for file in states/*; do
		curl -s -o got "$at/$step/state/${file#*/}"
		cmp got "$file" && echo "$step ${file#*/}: same"
	done
done
end
# A single file, with the files of a model beside it; config.json names the type.
cp -r "$FIXTURES/model/models/qwen3" model
serve --aux model "$RUN/global_step2" -q || exit 1
curl -s "$at/bf16/config.json" | grep -o '"\(torch_\)\?dtype": *"[a-z0-9]*"'
curl -s "$at/fp32/config.json" | grep -o '"\(torch_\)\?dtype": *"[a-z0-9]*"'
curl -s "$at/index.json" | grep -c '"name": "model.safetensors"'
ask /model.safetensors -I | head -1
end
# The page of report, of the step that is asked for.
serve -q "$RUN" || exit 1
curl -s "$at/report" | grep -o '<title>[a-z]*_step[0-9]*'
curl -s "$at/global_step2/report" | grep -o '<title>[a-z]*_step[0-9]*'
end
