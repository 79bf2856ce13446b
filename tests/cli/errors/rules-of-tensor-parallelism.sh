# Rules of tensor parallelism given in a file: wrong ones are refused by name, and what they cut is joined part by part.
P=$FIXTURES/parallel
run=$P/ds0.19.8-megtp-z2-fp16-w2/ckpt uci=$P/ds0.19.8-megtp-z1-bf16-w4-uci/ckpt
rep='".*layernorm[.](weight|bias)", ".*position_embeddings[.]weight", ".*dense[.]bias", ".*dense_4h_to_h[.]bias"'
row='".*dense[.]weight", ".*dense_4h_to_h[.]weight"'
base='"tp_replicated_parameter_patterns": ['$rep'], "parameter_with_row_parallelism_patterns": ['$row']'
# try RULES [SOURCE]: what convert says with these rules
try() {
	printf '%s\n' "$1" > rules.json
	zckpt convert -q --tp-rules rules.json "${2-$run}" out.safetensors 2>&1 || echo "exit $?"
	test ! -e out.safetensors || echo 'written'
	rm -f out.safetensors
}
echo '* no rules, no such file, no JSON, no object'
zckpt convert -q "$run" out.safetensors 2>&1
zckpt convert -q --tp-rules none.json "$run" out.safetensors 2>&1
try ''
try '{"tp_replicated_parameter_patterns": ["a"'
try '[]'
try '"a"'
echo '* keys and values of another kind'
try '{"replicated": []}'
try '{"tp_replicated_parameter_pattern": []}'
try '{"tp_replicated_parameter_patterns": "a"}'
try '{"tp_replicated_parameter_patterns": [1]}'
try '{"tp_replicated_parameter_patterns": {"a": 1}}'
try '{"parameter_with_sub_params": ["a"]}'
try '{"parameter_with_sub_params": [{"patterns": "a"}]}'
try '{"parameter_with_sub_params": [{"patterns": ["a"]}], "sub_param_shard_widths": []}'
try '{"sub_param_shard_widths": []}'
try '{"universal_checkpoint_version": "x"}'
try '{"affine_map": []}'
try '{"autotp_unsupported_parameter_patterns": []}'
echo '* patterns'
try '{"tp_replicated_parameter_patterns": [".*norm.weight{2}"]}'
try '{"tp_replicated_parameter_patterns": ["(a"]}'
try '{"tp_replicated_parameter_patterns": ["[b-a]"]}'
echo '* right ones'
try "{$base, \"parameter_with_2_sub_params_cat_dim_0\": [\".*dense_h_to_4h[.]weight\"]}"
echo '* patterns of nothing'
try "{$base, \"parameter_to_average_patterns\": [\".*gate[.]weight\", \"^lm_head\$\"]}"
echo '* the shapes contradict'
try '{"parameter_with_row_parallelism_patterns": ['"$row, $rep"']}'
try '{"tp_replicated_parameter_patterns": ['"$rep, $row"']}'
try "{$base, \"parameter_with_2_sub_params_cat_dim_0\": [\".*position_embeddings[.]weight\"]}"
try "{$base, \"parameter_with_sub_params\": [{\"patterns\": [\".*dense_h_to_4h[.]weight\"], \"shape\": [5, -1], \"partition_dim\": 0}]}"
echo '* two kinds for one tensor'
try "{$base, \"parameter_to_average_patterns\": [\".*dense[.]weight\"]}"
try "{\"tp_replicated_parameter_patterns\": [\".*\"], \"parameter_with_row_parallelism_patterns\": [$row]}"
try "{$base, \"vocabulary_parameter_patterns\": [\".*position_embeddings[.]weight\", \".*word_emb.*\"]}"
echo '* other rules than the files have'
try "{$base}" "$uci"
echo '* parts'
parts() { try "{$base, \"parameter_with_sub_params\": [{\"patterns\": [\".*query_key_value[.]weight\"], \"shape\": $1, \"partition_dim\": $2}]$3}"; }
parts '[[12, 12, 12], 12]' 0
parts '[3, 12]' 0
parts '[[12, 12], 12]' 0
parts '[[13, 12, 11], 12]' 0
parts '[[12, 24, -1], 12]' 0
parts '[[], 12]' 0
parts '[0, 12]' 0
parts '[12, 12]' 1
parts '[12, 12]' 2
parts '[12, 12]' -1
parts '"x"' 0
echo '* widths'
w=', "universal_checkpoint_version": 0.4, "sub_param_shard_widths": '
key='".*query_key_value[.]weight"'
parts '[[18, 10, 8], 12]' 0 "$w{$key: [[8, 10], [6, 4], [4, 4]]}"
parts '[[18, 10, 8], 12]' 0 "$w{$key: [[8, 10], [6, 4], [4, 5]]}"
parts '[[18, 10, 8], 12]' 0 "$w{$key: [[8, 10, 0], [6, 4, 0], [4, 4, 0]]}"
parts '[[18, 10, 8], 12]' 0 "$w{$key: [[8, 10], [6, 4]]}"
parts '[[18, 10, 8], 12]' 0 "$w{$key: [8, 10]}"
parts '[[18, 10, 8], 12]' 0 "$w{$key: [[8, -10], [6, 4], [4, 24]]}"
parts '[[18, 10, 8], 12]' 0 "$w{$key: []}"
parts '[[18, 10, 8], 12]' 0 "$w{\"other\": [[8, 10], [6, 4], [4, 4]]}"
parts '[[18, 10, 9], 12]' 0 "$w{$key: [[8, 10], [6, 4], [4, 4]]}"
parts '[[18, 10, 8], 12]' 0 ', "universal_checkpoint_version": 0.4'
echo '* fused widths that are not equal: the parts of rank 0 and 1 follow each other, in every state'
name=language_model.encoder.layers.0.self_attention.query_key_value.weight
printf '{%s}\n' "$base" > plain.json
printf '{%s, "parameter_with_sub_params": [{"patterns": [%s], "shape": [[18, 10, 8], 12], "partition_dim": 0}], "sub_param_shard_widths": {%s: [[8, 10], [6, 4], [4, 4]]}}\n' \
	"$base" "$key" "$key" > fused.json
for state in weight master exp_avg exp_avg_sq; do
	for rows in 0:8 18:28 8:14 28:32 14:18 32:36; do
		zckpt cat --to raw --state $state --tp-rules plain.json "$run" "$name[$rows]"
	done > want
	zckpt cat --to raw --state $state --tp-rules fused.json "$run" "$name" > got
	cmp want got && zckpt cat --to raw --state $state --tp-rules plain.json "$run" "$name" > plain
	cmp -s plain got && echo "$state: the parts are not joined"
	wc -c < got
done
