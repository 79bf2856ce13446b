"""State dicts that zckpt writes, loaded by torch in every way it has.

    torch_files.py CASES [--long]

CASES is a folder of gen_cases.py. weights_only on and off, mapped or not, with computed offsets
compared to the headers (TORCH_SERIALIZATION_DEBUG), against a safetensors file of the same
checkpoint. --long adds sparse files with members and an archive beyond 4 GiB.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import zipfile

os.environ["TORCH_SERIALIZATION_DEBUG"] = "1"

import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

ZCKPT = os.environ["ZCKPT"]
WAYS = [dict(weights_only=w, mmap=m) for w in (True, False) for m in (True, False)]


def convert(*args):
    subprocess.run([ZCKPT, "convert", "-q", *args], check=True)


def bits(t):
    return t.contiguous().view(-1).view(torch.uint8) if t.numel() else t.view(-1)


def check(pt, want):
    for way in WAYS:
        got = torch.load(pt, **way)
        assert type(got).__name__ == "OrderedDict"
        assert set(want) == set(got), set(want) ^ set(got)
        for k, t in want.items():
            assert t.dtype == got[k].dtype and t.shape == got[k].shape, k
            assert torch.equal(bits(t), bits(got[k])), k
            assert got[k].is_contiguous() and not got[k].requires_grad, k
    return got


def small(case, work):
    """Every tied name is there, shares its storage, and the archive is sound."""
    ref, pt = os.path.join(work, "ref.safetensors"), os.path.join(work, "model.pt")
    convert("--tied", "dup", case, ref)
    convert(case, pt)
    got = check(pt, load_file(ref))
    with zipfile.ZipFile(pt) as z:
        assert z.testzip() is None
        stored = sum(".data" not in n and "/data/" in n for n in z.namelist())
    shared = len({t.untyped_storage()._cdata for t in got.values()})
    assert stored == shared, (stored, shared)
    os.unlink(ref)
    os.unlink(pt)
    return len(got) - stored


def sparse(path, shapes):
    """A safetensors file of uint8 tensors, all zeros but a mark at either end of each."""
    header, at = {}, 0
    for name, n in shapes.items():
        header[name] = {"dtype": "U8", "shape": [n], "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + at)
        for name, n in shapes.items():
            for place in (header[name]["data_offsets"][0], header[name]["data_offsets"][1] - 1):
                f.seek(8 + len(text) + place)
                f.write(name[:1].encode())


def large(work):
    for shapes in ({"a": 0xFFFFFFFE, "b": 70}, {"a": 0xFFFFFFFF, "b": 70},
                   {"c": 3 << 30, "d": 3 << 30, "e": 5}):
        src, pt = os.path.join(work, "big.safetensors"), os.path.join(work, "big.pt")
        sparse(src, shapes)
        convert("--dtype", "keep", src, pt)
        for way in ({"mmap": True, "weights_only": True}, {"mmap": True, "weights_only": False},
                    {"weights_only": True}):
            got = torch.load(pt, **way)
            for name, n in shapes.items():
                t = got[name]
                assert t.shape == (n,) and t[0] == ord(name) and t[n - 1] == ord(name), name
            del got, t
        with zipfile.ZipFile(pt) as z:
            assert z.testzip() is None
        os.unlink(src)
        os.unlink(pt)


def main():
    folder, long = sys.argv[1], "--long" in sys.argv[2:]
    passed = failed = ties = 0
    with tempfile.TemporaryDirectory() as work:
        jobs = [lambda n=n: small(os.path.join(folder, n, "ckpt"), work)
                for n in sorted(os.listdir(folder))
                if os.path.isdir(os.path.join(folder, n, "ckpt"))]
        jobs += [lambda: large(work) or 0] if long else []
        for i, job in enumerate(jobs):
            try:
                ties += job()
                passed += 1
            except Exception as e:
                print("FAIL %d: %s: %s" % (i, type(e).__name__, e))
                failed += 1
    print("%d tied names share a storage" % ties)
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    sys.exit(failed > 0 or not passed)


main()
