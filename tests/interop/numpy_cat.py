"""Tensors and slices that `zckpt cat` writes, read by numpy; differences, counted by numpy.

    numpy_cat.py [--seed N]

Files of random tensors of every type that numpy has, BF16 and 0-dim and empty ones among them.
Slices are random, and numpy cuts the same ones with the same words.  `zckpt diff` of two such
files must count what numpy counts.
"""
import argparse
import io
import json
import os
import random
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import save_file

ZCKPT = os.environ["ZCKPT"]
TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int16,
         torch.int32, torch.int64, torch.uint8, torch.bool]


def cat(*args):
    return subprocess.run([ZCKPT, "cat", "-q", *args], check=True, stdout=subprocess.PIPE).stdout


def random_tensor(rng, dtype):
    shape = [rng.choice((0, 1, 2, 3, 5, 40)) for _ in range(rng.randrange(5))]
    n = int(np.prod(shape))
    size = torch.empty((), dtype=dtype).element_size()
    raw = torch.tensor([rng.randrange(256) for _ in range(n * size)], dtype=torch.uint8)
    if dtype is torch.bool:
        raw &= 1
    return raw.view(dtype).reshape(shape) if n else torch.empty(shape, dtype=dtype)


def random_slice(rng, shape):
    def place(n):
        if n and rng.random() < 0.25:
            return str(rng.randrange(-n, n))
        ends = [rng.choice(("", str(rng.randrange(-n - 2, n + 3)))) for _ in range(2)]
        step = rng.choice(("", ":", ":2", ":-1", ":-3", ":7"))
        return f"{ends[0]}:{ends[1]}{step}"
    words = [place(n) for n in shape[:rng.randrange(len(shape) + 1)]]
    if rng.random() < 0.3:
        tail = shape[len(words):]
        k = rng.randrange(len(tail) + 1)
        words += ["..."] + [place(n) for n in tail[len(tail) - k:]]
    return ", ".join(words)


def as_numpy(t):
    return t.view(torch.int16).numpy().view(np.uint16) if t.dtype is torch.bfloat16 else t.numpy()


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def check_slices(rng, path, tensors):
    for name, t in tensors.items():
        whole = as_numpy(t)
        for k in range(6):
            cut = random_slice(rng, t.shape) if k else ""
            want = np.ascontiguousarray(eval(f"whole[{cut}]") if cut else whole)
            want = want.reshape(np.shape(eval(f"whole[{cut}]") if cut else whole))
            word = f"{name}[{cut}]" if cut else name
            assert same(np.load(io.BytesIO(cat(path, word))), want), (word, t.dtype, t.shape)
            assert cat(path, word, "--to", "raw") == want.tobytes(), word
            if t.is_floating_point():
                check_text(path, word, t.dtype, want)
    return 6 * len(tensors)


def check_text(path, word, dtype, want):
    """As few digits as read back: text to the type again is the same, NaN aside."""
    got = torch.tensor([float(x) for x in cat(path, word, "--to", "text").split()],
                       dtype=torch.float64).to(dtype)
    if not want.size:
        assert not len(got), word
        return
    bits = torch.from_numpy(np.frombuffer(want.tobytes(), np.uint8).copy()).view(dtype)
    nan = bits.isnan()
    assert torch.equal(got.isnan(), nan), word
    assert torch.equal(got[~nan].view(torch.uint8), bits[~nan].view(torch.uint8)), word


def check_diff(rng, folder, tensors):
    other = {}
    for name, t in tensors.items():
        t = t.clone()
        for _ in range(rng.randrange(4) if t.numel() else 0):
            t.view(-1)[rng.randrange(t.numel())] = rng.randrange(2)
        other[name] = t
    a, b = os.path.join(folder, "a.safetensors"), os.path.join(folder, "b.safetensors")
    save_file(tensors, a)
    save_file(other, b)
    run = subprocess.run([ZCKPT, "diff", "--json", "-v", a, b], stdout=subprocess.PIPE)
    rows = {r["name"]: r for r in json.loads(run.stdout)["rows"]}
    assert set(rows) == set(tensors)
    for name, t in tensors.items():
        x, y, row = as_numpy(t), as_numpy(other[name]), rows[name]
        size = x.dtype.itemsize
        differ = (np.frombuffer(x.tobytes(), np.uint8).reshape(-1, size) !=
                  np.frombuffer(y.tobytes(), np.uint8).reshape(-1, size)).any(1)
        assert row["differ"] == differ.sum(), name
        if not differ.any():
            assert row["what"] == "same"
            continue
        assert row["first"] == differ.argmax(), name
        p, q = t.double().reshape(-1), other[name].double().reshape(-1)
        if t.dtype is torch.int64:
            continue
        gap = (p - q).abs()[torch.from_numpy(differ)]
        gap = gap[~gap.isnan()]
        assert float(row["max_abs"]) == (gap.max().item() if len(gap) else 0), name
    assert run.returncode == any(r["what"] != "same" for r in rows.values())
    return len(tensors)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=1)
    rng = random.Random(ap.parse_args().seed)
    passed = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "t.safetensors")
        for _ in range(3):
            tensors = {f"t{i}": random_tensor(rng, dtype) for i, dtype in enumerate(TYPES)}
            save_file(tensors, path)
            passed += check_slices(rng, path, tensors)
            passed += check_diff(rng, folder, tensors)
    print(f"{passed} passed, 0 failed, 0 skipped")


if __name__ == "__main__":
    sys.exit(main())
