"""Is what ztrain hands out the model that transformers loads, and what it says what transformers says?

    out_cases.py --ztrain PROGRAM --fixtures DIR OUT

Each fixture model goes on with two prompts, greedily, as transformers' generate() does with the same
weights in fp32; the logarithms of probabilities agree. Then each is trained for two steps and exported:
transformers loads the folder with no weight missing or left over, in the type that config.json names, and
the loaded model says what `ztrain generate` says from the folder. The last line is
`N passed, N failed, N skipped`.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys

import torch
import transformers

MODELS = ("llama3", "llama3_tied", "qwen25", "qwen25_tied", "qwen3", "qwen3_tied")
PROMPTS = ([1], [5, 77, 130, 9, 9, 201, 44])
NEW = 40
LIMIT = 3e-5            # of a logarithm, fp32
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def call(*args):
    done = subprocess.run(args, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError("%s: status %d\n%s%s" % (" ".join(args), done.returncode,
                                                    done.stdout, done.stderr))
    return done.stdout


def ours(ztrain, folder, prompt, *more):
    return json.loads(call(ztrain, "generate", "--model", folder, "--json", "--max-new-tokens",
                           str(NEW), "--prompt-ids", ",".join(map(str, prompt)), *more))


def theirs(net, prompt, eos):
    """Ids and logarithms of what generate() appends, and the margin of each choice."""
    with torch.no_grad():
        out = net.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)),
                           max_new_tokens=NEW, do_sample=False, eos_token_id=eos, pad_token_id=0,
                           return_dict_in_generate=True, output_logits=True)
    ids = out.sequences[0, len(prompt):].tolist()
    logits = torch.stack(out.logits)[:, 0].double()
    top = logits.topk(2).values
    logs = logits.log_softmax(-1)[range(len(ids)), ids].tolist()
    return ids, logs, (top[:, 0] - top[:, 1]).tolist()


def compare(got, ids, logs, margins):
    for i, (a, b) in enumerate(zip(got["ids"], ids)):
        if a != b:      # two that are as likely: from here on the texts are two
            return None if margins[i] < 2 * LIMIT else "token %d is %d, not %d" % (i, a, b)
        if abs(got["logprobs"][i] - logs[i]) > LIMIT:
            return "the logarithm of token %d is %r, not %r" % (i, got["logprobs"][i], logs[i])
    return None if len(got["ids"]) == len(ids) else "%d tokens, not %d" % (len(got["ids"]), len(ids))


def load(folder):
    net, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype="auto", attn_implementation="eager", output_loading_info=True)
    left = {k: sorted(v) for k, v in info.items() if v}
    if left:
        raise RuntimeError("transformers did not load all: %s" % left)
    return net.eval()


def same_text(ztrain, folder, net):
    eos = net.generation_config.eos_token_id
    for prompt in PROMPTS:
        said = compare(ours(ztrain, folder, prompt), *theirs(net, prompt, eos))
        if said:
            return "prompt %s: %s" % (prompt, said)
        long = ours(ztrain, folder, prompt, "--ignore-eos")
        if len(long["ids"]) != NEW or long["end"] != "length":
            return "prompt %s: --ignore-eos ends after %d" % (prompt, len(long["ids"]))
    return None


def generate_case(args, name):
    folder = os.path.join(args.fixtures, "model", "models", name)
    return same_text(args.ztrain, folder, load(folder).float())


def export_case(args, name, stage, how, dtype, more):
    model = os.path.join(args.fixtures, "model", "models", name)
    out = os.path.join(args.out, "%s-z%d-%s-%s" % (name, stage, how, dtype))
    shutil.rmtree(out, ignore_errors=True)
    config = out + ".json"
    with open(config, "w") as f:
        json.dump({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": stage},
                   "bf16": {"enabled": how == "bf16"}, "fp16": {"enabled": how == "fp16"}}, f)
    call(args.ztrain, "--model", model, "--config", config, "--steps", "2", "--lr", "1e-3", "-q",
         "--export", out, "--export-dtype", dtype, *more)
    net = load(out)
    if net.dtype != TYPES[dtype]:
        return "transformers takes it for %s" % net.dtype
    tied = net.config.tie_word_embeddings
    same = net.lm_head.weight.data_ptr() == net.model.embed_tokens.weight.data_ptr()
    if tied != same:
        return "tied is %s, and head and embedding share memory: %s" % (tied, same)
    return same_text(args.ztrain, out, net.float())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--ztrain", required=True)
    ap.add_argument("--fixtures", required=True)
    ap.add_argument("out")
    args = ap.parse_args()
    os.makedirs(args.out, exist_ok=True)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    cases = [("%s speaks" % m, generate_case, (m,)) for m in MODELS]
    cases += [
        ("qwen3_tied exported in fp32", export_case, ("qwen3_tied", 3, "fp32", "fp32", ())),
        ("llama3 exported in bf16", export_case, ("llama3", 2, "bf16", "bf16", ())),
        ("qwen25 exported in fp16, shards", export_case,
         ("qwen25", 1, "fp16", "fp16", ("--max-shard-size", "100KB"))),
        ("masters of a bf16 llama3_tied", export_case, ("llama3_tied", 3, "bf16", "fp32", ())),
    ]
    passed = failed = 0
    for name, case, more in cases:
        try:
            said = case(args, *more)
        except (RuntimeError, OSError, ValueError) as e:
            said = str(e)
        print("%-40s %s" % (name, said or "ok"))
        failed += bool(said)
        passed += not said
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
