"""Do checkpoints of Megatron-Core become models of transformers that compute the same?

    megatron_cases.py --zckpt PROGRAM --fixtures DIR [--only TEXT]

For every readable case of DIR/parallel (Megatron-Core wrote it; truth.safetensors is the live model
under names of transformers, whose logits were those of the run):

  1. `zckpt convert --dtype fp32` makes a folder, AutoModelForCausalLM loads it, with no key missing
     or left over, and its logits are within 1e-4 of those of a model filled with the truth.
  2. the same as bf16, whose weights must be the truth's, bit for bit.

The last line is `N passed, N failed, N skipped`.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

TOLERANCE = 1e-4


def truth_of(case, state):
    end = "|" + state
    tensors = load_file(os.path.join(case, "truth.safetensors"))
    return {k[:-len(end)]: v for k, v in tensors.items() if k.endswith(end)}


def spoilt(case):
    """States that Megatron-Core wrote wrong: weights take their place."""
    with open(os.path.join(case, "case.json")) as f:
        said = json.load(f)
    return said["not_in_checkpoint"] if said.get("writer_fault") else ()


def logits_of(model):
    tokens = torch.arange(24).reshape(2, 12) * 7 % model.config.vocab_size
    with torch.no_grad():
        return model.eval()(tokens).logits.float()


def load(folder, dtype):
    """A model, and which of its tensors the folder did not fill, or filled and it has not."""
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, output_loading_info=True)
    odd = [k for what in ("missing_keys", "unexpected_keys", "mismatched_keys")
           for k in info.get(what) or ()]
    return model, odd


def from_truth(case, work, dtype):
    """transformers loads a folder of the truth: the names are its own, so it knows how."""
    folder = os.path.join(work, "truth")
    weights = truth_of(case, "weight")
    if dtype == torch.float32:
        masters = truth_of(case, "master")
        weights.update({k: v for k, v in masters.items() if k + "|master" not in spoilt(case)})
    os.mkdir(folder)
    save_file({k: v.to(dtype).contiguous() for k, v in weights.items()},
              os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    shutil.copy(os.path.join(case, "config.json"), folder)
    return load(folder, dtype)[0], weights


def check(zckpt, case, name, dtype, work):
    """None, or what is wrong."""
    out = os.path.join(work, "hf")
    done = subprocess.run([zckpt, "convert", "--dtype", name, "--sync", "none", "--find-states", "--model-config",
                           os.path.join(case, "config.json"), os.path.join(case, "ckpt"), out],
                          capture_output=True, text=True)
    if done.returncode:
        return done.stderr
    mine, odd = load(out, dtype)
    if odd:
        return "transformers finds other keys: %s" % odd[:4]
    with open(os.path.join(out, "config.json")) as f:
        said = json.load(f)
    theirs, weights = from_truth(case, work, dtype)
    if said["vocab_size"] != theirs.config.vocab_size:
        return "vocab_size is %s" % said["vocab_size"]
    if dtype == torch.bfloat16:
        got = load_file(os.path.join(out, "model.safetensors"))
        bad = [k for k, v in weights.items()
               if not torch.equal(got[k].view(torch.int16), v.to(dtype).view(torch.int16))]
        if bad or set(got) != set(weights):
            return "other bits: %s" % (bad or sorted(set(got) ^ set(weights)))[:4]
    a, b = logits_of(mine), logits_of(theirs)
    far = (a - b).abs().max().item()
    if a.shape != b.shape or not far <= TOLERANCE or not b.abs().max() > 0.1:
        return "logits differ by %g (largest %g)" % (far, b.abs().max())
    return None


def cases(root, only):
    for name in sorted(os.listdir(root)):
        path = os.path.join(root, name, "case.json")
        if name.startswith("mc") and only in name and os.path.exists(path):
            with open(path) as f:
                if not json.load(f).get("refuse"):
                    yield name


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--zckpt", required=True)
    p.add_argument("--fixtures", required=True)
    p.add_argument("--only", default="")
    args = p.parse_args()
    transformers.utils.logging.disable_progress_bar()
    root = os.path.join(args.fixtures, "parallel")
    passed = failed = 0
    for name in cases(root, args.only):
        for dtype, kind in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
            with tempfile.TemporaryDirectory() as work:
                why = check(args.zckpt, os.path.join(root, name), dtype, kind, work)
            passed += not why
            failed += bool(why)
            if why:
                print("FAIL %s as %s: %s" % (name, dtype, why))
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return failed or not passed


if __name__ == "__main__":
    sys.exit(bool(main()))
