"""Files with sums in __metadata__, read and rewritten by other programs.

    sums.py WORK [--zckpt PATH]

A tiny model of transformers is converted to a file, a folder and shards. from_pretrained, load_file,
and safe_open as loaders of serving engines use it (names, slices, metadata) take them unchanged.
What another program saves with the old metadata is damage or an edit: verify must say so, and
must read the file if an option says so. Nothing is downloaded.
"""
import argparse
import json
import os
import subprocess
import sys

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

TOKENS = torch.arange(24).reshape(2, 12) * 7 % 101
failed = 0


# of one file; of a folder the tensors' files are read, a config.json is not
READ = ("every byte read, ", "every byte of the tensors read, ")
COMPLETE = tuple(r + "complete" for r in READ)
NO_SUMS = tuple(r + "looks complete (no checksums" for r in READ)


def check(what, ok):
    global failed
    failed += not ok
    print("%s   %s" % ("ok  " if ok else "FAIL", what), flush=True)


def zckpt(*words):
    run = subprocess.run([args.zckpt, *words], capture_output=True, text=True)
    return run.returncode, run.stdout + run.stderr


def at(*parts):
    return os.path.join(args.work, *parts)


def logits(folder):
    net, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                     output_loading_info=True,
                                                     local_files_only=True)
    bad = [k for k in ("missing_keys", "unexpected_keys", "mismatched_keys") if info.get(k)]
    if bad:
        raise RuntimeError("%s: %s" % (folder, bad))
    with torch.no_grad():
        return net.eval()(input_ids=TOKENS, use_cache=False).logits


def stream_weights(folder):
    """As serving engines do: file by file, name by name, rows by slices."""
    out = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".safetensors"):
            continue
        with safe_open(os.path.join(folder, name), framework="pt") as f:
            assert f.metadata()["format"] == "pt"
            for key in f.keys():
                part = f.get_slice(key)
                out[key] = torch.cat([part[:1], part[1:]])
    return out


def make():
    config = AutoConfig.for_model(
        "llama", vocab_size=101, hidden_size=32, intermediate_size=56, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
    torch.manual_seed(3)
    AutoModelForCausalLM.from_config(config).save_pretrained(at("model"))


def reads():
    want, tensors = logits(at("model")), load_file(at("model", "model.safetensors"))
    for name, words in (("one", []), ("shards", ["--max-shard-size", "20KB"]),
                        ("bare", ["--no-sums"])):
        code, said = zckpt("convert", *words, at("model"), at(name))
        check("%s: converted" % name, code == 0)
        check("%s: from_pretrained gives the same logits" % name,
              torch.equal(logits(at(name)), want))
        got = stream_weights(at(name))
        check("%s: safe_open gives the same tensors" % name, got.keys() == tensors.keys() and
              all(torch.equal(got[k], tensors[k]) for k in tensors))
        code, said = zckpt("verify", "--full", at(name))
        check("%s: verify --full" % name, code == 0 and
              said.startswith(NO_SUMS if words[:1] == ["--no-sums"] else COMPLETE))
    code, said = zckpt("convert", "--dtype", "bf16", at("model"), at("b.safetensors"))
    got = load_file(at("b.safetensors"))
    check("one file in bf16: load_file", code == 0 and
          all(torch.equal(got[k], tensors[k].to(torch.bfloat16)) for k in tensors))


def resaved(name, tensors, metadata, finding):
    path = at(name + ".safetensors")
    save_file(tensors, path, metadata=metadata)
    code, said = zckpt("verify", "--full", path)
    check("%s: %s" % (name, finding), code == 1 and finding in said)
    code, said = zckpt("verify", "--full", "--as-warning", finding, path)
    check("%s: --as-warning takes it" % name, code == 0)
    code, said = zckpt("convert", "-q", "--as-warning", finding, path, at(name + "-2.safetensors"))
    check("%s: and it is converted" % name, code == 0)
    code, said = zckpt("verify", "--full", at(name + "-2.safetensors"))
    check("%s: to a file with sums of its own" % name, code == 0 and said.startswith(COMPLETE))


def rewrites():
    path = at("one", "model.safetensors")
    with safe_open(path, framework="pt") as f:
        meta = f.metadata()
    old = load_file(path)
    # the same header, or another order of keys in it: which of the two is not ours to say
    save_file({k: 2 * t for k, t in old.items()}, at("doubled.safetensors"), metadata=meta)
    code, said = zckpt("verify", "--full", at("doubled.safetensors"))
    check("values changed, metadata kept: not silent", code == 1 and "SUM_WRONG" in said)
    resaved("renamed", {"x." + k: t for k, t in old.items()}, meta, "HEADER_SUM_WRONG")
    resaved("fewer", dict(list(old.items())[:5]), meta, "HEADER_SUM_WRONG")
    resaved("other-type", {k: t.half() for k, t in old.items()}, meta, "HEADER_SUM_WRONG")
    save_file(old, at("plain.safetensors"), metadata={"format": "pt"})
    code, said = zckpt("verify", "--full", at("plain.safetensors"))
    check("saved without the metadata: no sums", code == 0 and said.startswith(NO_SUMS))


def edits():
    path = at("shards", "config.json")
    with open(path) as f:
        config = json.load(f)
    config["rope_theta"] = 5e5
    with open(path, "w") as f:
        json.dump(config, f)
    code, said = zckpt("verify", "--full", at("shards"))
    check("an edited config.json is a warning", code == 0 and "BESIDE_CHANGED" in said and
          "config.json" in said)


parser = argparse.ArgumentParser()
parser.add_argument("work")
parser.add_argument("--zckpt", default=os.environ.get("ZCKPT", "build/zckpt"))
args = parser.parse_args()
args.zckpt = os.path.abspath(args.zckpt)
os.makedirs(args.work, exist_ok=True)
make()
reads()
rewrites()
edits()
sys.exit(1 if failed else 0)
