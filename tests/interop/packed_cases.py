"""Do packed rows train as transformers trains them, and as rows of their own?

    packed_cases.py --ztrain PROGRAM --zckpt PROGRAM [--keep DIR]

For Llama, Qwen2.5 and Qwen3 in fp32 on the CPU:

  mask      Rows of several documents, said by position_ids, by numbers in attention_mask, or by
            cu_seqlens; transformers' own model is given the same positions and a mask that ends
            at the seams. Losses of three AdamW steps, the gradients of the first one (from the
            moments that were saved) and the masters after the third must be the same.
  rows      The same documents one a row, and packed by --pack-documents: the same.

The last line is `N passed, N failed, N skipped`.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

TOKENS, ROWS, STEPS, VOCAB = 40, 4, 3, 199
RATE, BETAS, EPS = 1e-3, (0.9, 0.95), 1e-8
SMALL = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
             initializer_range=0.05)
MODELS = {"llama": LlamaConfig(**SMALL, head_dim=16, tie_word_embeddings=False),
          "qwen2": Qwen2Config(**SMALL, tie_word_embeddings=True),
          "qwen3": Qwen3Config(**SMALL, head_dim=16, tie_word_embeddings=True)}
# Lengths of the documents of each row; what is left of 40 is padding.
LENGTHS = [[17, 1, 22], [40], [3, 3, 3, 3, 3, 3, 3, 3, 16], [11, 20]]
passed = failed = 0


def say(name, ok, detail=""):
    global passed, failed
    passed, failed = passed + ok, failed + (not ok)
    print(f"{'ok  ' if ok else 'FAIL'}  {name}{': ' + detail if detail else ''}", flush=True)


def documents():
    g = torch.Generator().manual_seed(7)
    return [[torch.randint(0, VOCAB, (n,), generator=g) for n in row] for row in LENGTHS]


def packed(docs):
    """ids, labels, positions, numbers of documents (0: padding)"""
    ids = torch.zeros(ROWS, TOKENS, dtype=torch.long)
    labels = torch.full((ROWS, TOKENS), -100)
    positions, number = torch.zeros_like(ids), torch.zeros_like(ids)
    for r, row in enumerate(docs):
        at = 0
        for d, doc in enumerate(row):
            end = at + len(doc)
            ids[r, at:end] = doc
            labels[r, at + 1:end] = doc[1:]
            positions[r, at:end] = torch.arange(len(doc))
            number[r, at:end] = d + 1
            at = end
    return ids, labels, positions, number


def torch_run(model, ids, labels, positions, number):
    """Losses, gradients of the first step, parameters after the last."""
    i = torch.arange(TOKENS)
    see = (number[:, :, None] == number[:, None, :]) & (i[:, None] >= i[None, :])
    see |= torch.eye(TOKENS, dtype=torch.bool)
    mask = torch.zeros(ROWS, 1, TOKENS, TOKENS).masked_fill(~see[:, None], float("-inf"))
    opt = torch.optim.AdamW(model.parameters(), lr=RATE, betas=BETAS, eps=EPS, weight_decay=0.0)
    losses, grads = [], None
    for _ in range(STEPS):
        logits = model(input_ids=ids, position_ids=positions, attention_mask=mask).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1),
                                                 labels[:, 1:].flatten(), ignore_index=-100)
        loss.backward()
        grads = grads or {n: p.grad.clone() for n, p in model.named_parameters()}
        opt.step()
        opt.zero_grad()
        losses.append(loss.item())
    return losses, grads, {n: p.detach() for n, p in model.named_parameters()}


def ztrain(a, work, model, rows, *args):
    """Losses, gradients of the first step, masters after the last."""
    run = tempfile.mkdtemp(dir=work)
    cmd = [a.ztrain, "--model", model, "--steps", str(STEPS), "--micro-batch", str(rows), "--lr",
           repr(RATE), "--beta1", repr(BETAS[0]), "--beta2", repr(BETAS[1]), "--eps", repr(EPS),
           "--weight-decay", "0", "--clip", "1e9", "--exact", "--save", run, "--save-every", "1", *args]
    r = subprocess.run(cmd, capture_output=True, text=True, timeout=120)
    if r.returncode:
        raise RuntimeError(r.stderr[-600:])
    losses = [float(x) for x in re.findall(r"^step \d+  loss (\S+)", r.stdout, re.M)]
    out = []
    for step, state in ((1, "exp_avg"), (STEPS, "master")):
        path = os.path.join(run, state + ".safetensors")
        subprocess.run([a.zckpt, "convert", "-q", "--state", state, "--tag",
                        f"global_step{step}", run, path], check=True)
        out.append(load_file(path))
    return losses, {n: g / (1 - BETAS[0]) for n, g in out[0].items()}, out[1]


def worst(a, b):
    """The largest relative L2 difference of a tensor."""
    return max(((a[n].double() - b[n].double()).norm() /
                b[n].double().norm().clamp_min(1e-12)).item() for n in b)


def compare(name, got, want):
    loss = max(abs(x - y) for x, y in zip(got[0], want[0]))
    same = len(got[0]) == len(want[0]) == STEPS and set(got[1]) == set(want[1])
    grad, master = worst(got[1], want[1]), worst(got[2], want[2])
    say(name, same and loss < 2e-5 and grad < 1e-5 and master < 1e-4,
        f"losses within {loss:.1e}, gradients {grad:.1e}, masters {master:.1e}")


def jsonl(path, rows):
    with open(path, "w") as f:
        f.writelines(json.dumps(r) + "\n" for r in rows)
    return path


def data_files(work, docs):
    """Name -> file and options: ways to say the same."""
    ids, labels, positions, number = packed(docs)
    both = {"input_ids": ids.int(), "labels": labels.int()}
    files = {}
    for name, more in (("position_ids", {"position_ids": positions,
                                         "attention_mask": (number > 0).to(torch.uint8)}),
                       ("numbered mask", {"attention_mask": number.to(torch.uint8)})):
        path = os.path.join(work, name.replace(" ", "-") + ".safetensors")
        save_file({**both, **more}, path)
        files[name] = path
    seqlens = []
    for r, row in enumerate(docs):
        ends = [0]
        for doc in row:
            ends.append(ends[-1] + len(doc))
        n = ends[-1]
        seqlens.append({"input_ids": ids[r, :n].tolist(), "cu_seqlens": ends})
    files["cu_seqlens"] = jsonl(os.path.join(work, "seqlens.jsonl"), seqlens)
    return files


def case(a, work, name, config):
    folder = os.path.join(work, name)
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for n, p in model.named_parameters():
            if "bias" in n or "norm" in n:
                p.add_(torch.randn_like(p) * 0.1)
    model.save_pretrained(folder)
    docs = documents()
    want = torch_run(model, *packed(docs))
    for way, path in data_files(work, docs).items():
        compare(f"{name}, {way}", ztrain(a, work, folder, ROWS, "--data", path, "--seq",
                                         str(TOKENS)), want)
    flat = jsonl(os.path.join(work, "flat.jsonl"), [d.tolist() for row in docs for d in row])
    alone = ztrain(a, work, folder, sum(map(len, docs)), "--data", flat, "--seq", str(TOKENS))
    rows = ztrain(a, work, folder, ROWS, "--data", flat, "--seq", str(TOKENS), "--pack-documents")
    compare(f"{name}, documents packed against one a row", rows, alone)
    compare(f"{name}, documents packed against transformers", rows, want)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--ztrain", required=True)
    p.add_argument("--zckpt", required=True)
    p.add_argument("--keep")
    a = p.parse_args()
    torch.set_num_threads(1)
    work = a.keep or tempfile.mkdtemp(prefix="packed.")
    os.makedirs(work, exist_ok=True)
    try:
        for name, config in MODELS.items():
            case(a, work, name, config)
    finally:
        if not a.keep:
            shutil.rmtree(work)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
