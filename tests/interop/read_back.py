"""What zckpt writes, read by safetensors, torch and numpy: one file, shards, streams, dtypes.

    read_back.py CASES [--zckpt PATH]

CASES is a folder of gen_cases.py. Of its cases a handful are taken that together have every
stage, ties, frozen parameters, integer buffers and 16-bit weights.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback

import torch
from check_cases import Case, Fail, compare, opened, zckpt
from safetensors import safe_open
from safetensors.numpy import load_file as load_numpy
from safetensors.torch import load as load_bytes
from safetensors.torch import load_file

WANTED = ("stage 0", "stage 1", "stage 2", "stage 3", "tied", "frozen", "buffers", "16-bit",
          "legacy stream", "round robin", "sub-groups")


def pick(folder):
    """The fewest cases, taken greedily, that have all that is wanted and is there."""
    left, taken, pool = set(WANTED), [], []
    for n in sorted(os.listdir(folder)):
        if os.path.exists(os.path.join(folder, n, "case.json")):
            c = Case(os.path.join(folder, n))
            has = set(c.facts["traits"]) | {"stage %d" % c.stage}
            has |= {"16-bit"} if c.facts["precision"] != "fp32" else set()
            pool.append((has, c))
    while left:
        has, best = max(pool, key=lambda p: (len(p[0] & left), p[1].name))
        if not has & left:
            break
        left -= has
        taken.append(best)
    return taken


def plain(case, exe):
    """The truth of a default convert, tied names left out."""
    return case.full(exe)


def drop_tied(case, got):
    return {k: t for k, t in got.items() if k not in case.alias}


def single_file(case, exe, work):
    """One .safetensors file: torch, numpy and the lazy reader see the same tensors."""
    out = os.path.join(work, "one.safetensors")
    zckpt(exe, "convert", case.ckpt, out)
    got = load_file(out)
    compare("single file", drop_tied(case, got), plain(case, exe))
    for name, a in load_numpy(out).items():
        if list(a.shape) != list(got[name].shape) or a.tobytes() != \
                got[name].contiguous().view(-1).view(torch.uint8).numpy().tobytes():
            raise Fail("numpy reads %s differently" % name)
    with safe_open(out, "pt") as f:
        meta = f.metadata() or {}
        if meta.get("format") != "pt":
            raise Fail("metadata has format %r; transformers refuses that" % meta.get("format"))
        for name in f.keys():
            s = f.get_slice(name)
            if list(s.get_shape()) != list(got[name].shape):
                raise Fail("slice of %s has shape %s" % (name, s.get_shape()))


def stream(case, exe, work):
    """`-o -` gives the bytes of a whole file, and nothing else, on standard output."""
    r = subprocess.run([exe, "convert", case.ckpt, "-o", "-"], capture_output=True, timeout=120)
    if r.returncode != 0:
        raise Fail("exit %d: %s" % (r.returncode, r.stderr.decode(errors="replace")[-400:]))
    compare("stream", drop_tied(case, load_bytes(r.stdout)), plain(case, exe))


def shards_small(case, exe, work):
    """Shards: an index that names every tensor once, right sizes, no shard too large."""
    out, limit = os.path.join(work, "sharded"), 2000
    zckpt(exe, "convert", "--max-shard-size", "2KB", case.ckpt, out)
    files = sorted(f for f in os.listdir(out) if f.endswith(".safetensors"))
    got, _ = opened(out)
    compare("sharded", drop_tied(case, got), plain(case, exe))
    total = sum(t.numel() * t.element_size() for t in got.values())
    if total <= limit:
        if files != ["model.safetensors"]:
            raise Fail("%d bytes need one file, found %s" % (total, files))
        return
    want = ["model-%05d-of-%05d.safetensors" % (i + 1, len(files)) for i in range(len(files))]
    if files != want:
        raise Fail("shard names %s" % files[:3])
    with open(os.path.join(out, "model.safetensors.index.json")) as f:
        index = json.load(f)
    if index["metadata"]["total_size"] != total:
        raise Fail("total_size %s, the tensors have %d bytes" % (index["metadata"], total))
    if set(index["weight_map"].values()) != set(files):
        raise Fail("weight_map and the folder name different files")
    for one in files:
        held = load_file(os.path.join(out, one))
        for k in held:
            if index["weight_map"].get(k) != one:
                raise Fail("%s is in %s, the index says %s" % (k, one, index["weight_map"].get(k)))
        size = sum(t.numel() * t.element_size() for t in held.values())
        if size > limit and len(held) > 1:
            raise Fail("%s holds %d bytes in %d tensors" % (one, size, len(held)))


def dtypes(case, exe, work):
    """bf16 and fp16 round as torch rounds; integers stay what they are."""
    for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        out = os.path.join(work, name + ".safetensors")
        zckpt(exe, "convert", "--dtype", name, case.ckpt, out)
        want = {k: t.to(dtype) if t.is_floating_point() else t for k, t in plain(case, exe).items()}
        compare("--dtype " + name, drop_tied(case, load_file(out)), want)


def one_pattern(case, exe, work):
    """`--dtype NAME=bf16` changes that tensor and leaves the others in fp32."""
    name = next((n for n in case.state("master") if re.fullmatch(r"[\w.]+", n)), None)
    if name is None:
        return
    out = os.path.join(work, "pattern.safetensors")
    zckpt(exe, "convert", "--dtype", name + "=bf16", case.ckpt, out)
    want = plain(case, exe)
    want[name] = want[name].bfloat16()
    compare("--dtype %s=bf16" % name, drop_tied(case, load_file(out)), want)


def tied_names(case, exe, work):
    """`--tied dup` writes every name with the same bits, `drop` neither name nor metadata."""
    for how in ("dup", "drop"):
        out = os.path.join(work, how + ".safetensors")
        zckpt(exe, "convert", "--tied", how, case.ckpt, out)
        got, meta = opened(out)
        want = plain(case, exe)
        if how == "dup":
            want.update({a: want[k] for a, k in case.alias.items()})
        compare("--tied " + how, got, want)
        if how == "drop" and set(meta) & set(case.alias):
            raise Fail("--tied drop: the metadata still names %s" % sorted(
                set(meta) & set(case.alias)))


CHECKS = (single_file, stream, shards_small, dtypes, one_pattern, tied_names)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("cases")
    ap.add_argument("--zckpt", default=os.environ.get("ZCKPT"))
    a = ap.parse_args()
    if not a.zckpt:
        ap.error("--zckpt or ZCKPT is needed")
    torch.set_num_threads(1)
    n = [0, 0, 0]
    for case in pick(a.cases):
        for check in CHECKS:
            if check is tied_names and (not case.alias or not case.stage):
                n[2] += 1
                continue
            with tempfile.TemporaryDirectory(prefix="zckpt-read-") as work:
                try:
                    check(case, a.zckpt, work)
                    n[0] += 1
                except Fail as e:
                    n[1] += 1
                    print("FAILED %s %s: %s" % (case.name, check.__name__, e), flush=True)
                except Exception:
                    n[1] += 1
                    print("FAILED %s %s: %s" % (case.name, check.__name__,
                                                traceback.format_exc(limit=3)), flush=True)
    print("%d passed, %d failed, %d skipped" % tuple(n))
    return 1 if n[1] or not n[0] else 0


if __name__ == "__main__":
    sys.exit(main())
