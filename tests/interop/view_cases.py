"""The mount and the server, read by stock safetensors and transformers.

    view_cases.py WORK [--zckpt PATH]

A tiny model becomes steps of ZeRO stage 2 and 3. from_pretrained reads a step of the mounted run,
safe_open maps its files into memory, and a client of the server reads single tensors by ranges. All
must have the tensors and logits of what `zckpt convert` writes. Nothing is downloaded.
"""
import argparse
import json
import os
import struct
import subprocess
import sys
import urllib.request

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

TOKENS = torch.arange(24).reshape(2, 12) * 7 % 101
passed = failed = skipped = 0


def check(what, ok):
    global passed, failed
    passed += bool(ok)
    failed += not ok
    print("%s   %s" % ("ok  " if ok else "FAIL", what), flush=True)


def skip(what):
    global skipped
    skipped += 1
    print("skip   %s" % what, flush=True)


def zckpt(*words):
    run = subprocess.run([args.zckpt, *words], capture_output=True, text=True)
    return run.returncode, run.stdout + run.stderr


def at(*parts):
    return os.path.join(args.work, *parts)


def logits(folder, dtype):
    net, info = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, output_loading_info=True,
                                                     local_files_only=True)
    bad = [k for k in ("missing_keys", "unexpected_keys", "mismatched_keys") if info.get(k)]
    assert not bad, (folder, bad)
    with torch.no_grad():
        return net.eval()(TOKENS).logits


def make():
    config = AutoConfig.for_model("qwen3", hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                                  num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                                  vocab_size=101, tie_word_embeddings=False)
    torch.manual_seed(3)
    AutoModelForCausalLM.from_config(config).save_pretrained(at("model"))
    for step, stage in ((1, "2"), (2, "3")):
        code, said = zckpt("shard", "-q", "--world", "3", "--stage", stage, "--lr", "1e-5", "--dtype",
                           "bf16", "--new-tag", f"global_step{step}", at("model"), at(f"run{step}"))
        assert code == 0, said
    os.makedirs(at("run"))
    for step in (1, 2):
        os.rename(at(f"run{step}", f"global_step{step}"), at("run", f"global_step{step}"))
    os.rename(at("run2", "latest"), at("run", "latest"))


def same(a, b):
    return a.keys() == b.keys() and all(a[k].dtype == b[k].dtype and torch.equal(a[k], b[k]) for k in a)


def mounted():
    code, said = zckpt("mount", "-q", "--aux", at("model"), at("run"), at("view"))
    if code:
        return skip(f"mount: {said.strip()}")
    try:
        for step in ("global_step1", "global_step2", "latest"):
            real = "global_step2" if step == "latest" else step
            for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
                out, view = at(f"out-{step}-{name}"), at("view", step, name)
                code, said = zckpt("convert", "-q", "--dtype", name, "--aux", at("model"),
                                   at("run", real), out)
                assert code == 0, said
                check(f"from_pretrained of {step}/{name} in the mount",
                      torch.equal(logits(view, dtype), logits(out, dtype)))
                check(f"load_file of {step}/{name}",
                      same(load_file(view + "/model.safetensors"), load_file(out + "/model.safetensors")))
                with safe_open(view + "/model.safetensors", "pt") as f:
                    name = "model.layers.1.mlp.down_proj.weight"
                    check(f"a slice of {step}", torch.equal(
                        f.get_slice(name)[3:9, 5:], load_file(out + "/model.safetensors")[name][3:9, 5:]))
        with safe_open(at("view", "latest", "state", "exp_avg.safetensors"), "pt") as f:
            check("moments of step 0 are zeros", all(not f.get_tensor(k).any() for k in f.keys()))
    finally:
        zckpt("mount", "-u", at("view"))


def fetch(url, first, last):
    request = urllib.request.Request(url, headers={"Range": f"bytes={first}-{last}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 206
        return answer.read()


def served():
    with subprocess.Popen([args.zckpt, "serve", "-q", "--port", "0", at("run")], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        top = server.stdout.readline().strip()
        if not top:
            return skip(f"serve: {server.stderr.read().strip()}")
        try:
            url = top + "latest/bf16/model.safetensors"
            size = struct.unpack("<Q", fetch(url, 0, 7))[0]
            header = json.loads(fetch(url, 8, 7 + size))
            code, said = zckpt("convert", "-q", "--dtype", "bf16", at("run"), at("served.safetensors"))
            assert code == 0, said
            want, good = load_file(at("served.safetensors")), True
            for name, tensor in want.items():
                a, b = header[name]["data_offsets"]
                raw = bytearray(fetch(url, 8 + size + a, 8 + size + b - 1))
                good = good and torch.equal(torch.frombuffer(raw, dtype=torch.bfloat16).view(tensor.shape),
                                            tensor)
            check("each tensor by a range", good and len(want) + 1 == len(header))
        finally:
            server.terminate()
        server.wait(30)
        check("the server ends with 0", server.returncode == 0)


parser = argparse.ArgumentParser()
parser.add_argument("work")
parser.add_argument("--zckpt", default=os.environ.get("ZCKPT", "build/zckpt"))
args = parser.parse_args()
args.zckpt = os.path.abspath(args.zckpt)
args.work = os.path.abspath(args.work)
os.makedirs(args.work, exist_ok=True)
make()
mounted()
served()
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(1 if failed else 0)
