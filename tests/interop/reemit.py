"""Pickles that zckpt read and wrote again, judged by Python with the true classes.

    reemit.py WRITER

WRITER is the test program test_pickle_emit, which leaves every data.pkl of the fixtures as it was
written again. Each archive is loaded with torch as it is, and with the new pickle in place of
the old one; both must give the same objects, shared in the same places.
"""
import io
import os
import subprocess
import sys
import tempfile
import warnings
import zipfile

import numpy
import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import zoouser  # noqa: E402,F401  the fixtures' client states name it

zipfile.ZipExtFile._update_crc = lambda *a: None	# torch can be told to leave them out
# modules of TorchScript and nested tensors have no equality; jagged ones count per process
UNCOMPARABLE = ("torchscript", "nested-tensor", "jagged")
ATOMS = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device,
         torch.layout, torch.qscheme, type, type(len), type(lambda: 0), slice, range)


class Differ(Exception):
    pass


class Twins:
    """Which object of the one side stands for which of the other."""

    def __init__(self):
        self.there, self.back, self.storages = {}, {}, {}
        self.alive = []	# an id is an object's own only while it lives

    def new(self, a, b, where):
        """False if the pair was met before; an error if either was met with another."""
        known = id(a) in self.there
        if self.there.setdefault(id(a), id(b)) != id(b) or \
                self.back.setdefault(id(b), id(a)) != id(a):
            raise Differ("%s is shared in another way" % where)
        self.alive += [a, b]
        return not known


def storage_key(t):
    return t.untyped_storage()._cdata


def content(t):
    return torch.empty(0, dtype=torch.uint8).set_(t.untyped_storage()).numpy().tobytes()


def same_tensor(a, b, tw, where):
    if type(a) not in (torch.Tensor, torch.nn.Parameter):
        return		# what a subclass wraps is among its attributes
    if a.layout != torch.strided or a.is_quantized or a.device.type == "meta":
        if a.dtype != b.dtype or a.shape != b.shape or repr(a) != repr(b):
            raise Differ("%s: another odd tensor" % where)
        return
    facts = [(t.dtype, t.shape, t.stride(), t.storage_offset(), t.requires_grad, t.is_conj(),
              t.is_neg()) for t in (a, b)]
    if facts[0] != facts[1]:
        raise Differ("%s: %s became %s" % (where, facts[0], facts[1]))
    ka, kb = storage_key(a), storage_key(b)
    if tw.storages.setdefault(ka, kb) != kb:
        raise Differ("%s: its storage is shared in another way" % where)
    if content(a) != content(b):
        raise Differ("%s: other bytes" % where)


def state_of(x):
    """Attributes, from __dict__ and from slots."""
    out = dict(getattr(x, "__dict__", {}))
    for cls in type(x).__mro__:
        for name in [cls.__dict__.get("__slots__", ())]:
            for s in (name,) if isinstance(name, str) else name:
                if hasattr(x, s) and s not in ("__dict__", "__weakref__"):
                    out["slot " + s] = getattr(x, s)
    return out


def same(a, b, tw, where="root"):
    if type(a) is not type(b):
        raise Differ("%s: a %s became a %s" % (where, type(a), type(b)))
    if isinstance(a, float):
        if repr(a) != repr(b):
            raise Differ("%s: %r became %r" % (where, a, b))
        return
    if isinstance(a, ATOMS) or type(a).__module__ == "enum" or isinstance(a, numpy.generic):
        if not (a is b or a == b or repr(a) == repr(b)):
            raise Differ("%s: %r became %r" % (where, a, b))
        return
    if isinstance(a, tuple) and not a or not tw.new(a, b, where):
        return
    if isinstance(a, torch.Tensor):
        same_tensor(a, b, tw, where)
    elif isinstance(a, numpy.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape or \
                (a.dtype != object and a.tobytes() != b.tobytes()):
            raise Differ("%s: another array" % where)
    elif isinstance(a, dict):
        if len(a) != len(b):
            raise Differ("%s: %d keys became %d" % (where, len(a), len(b)))
        for (ka, va), (kb, vb) in zip(a.items(), b.items()):
            same(ka, kb, tw, where + ".key")
            same(va, vb, tw, "%s[%r]" % (where, ka))
    elif isinstance(a, (list, tuple)):
        if len(a) != len(b):
            raise Differ("%s: %d items became %d" % (where, len(a), len(b)))
        for i, (x, y) in enumerate(zip(a, b)):
            same(x, y, tw, "%s[%d]" % (where, i))
    elif isinstance(a, (set, frozenset)):
        if a != b:
            raise Differ("%s: another set" % where)
    elif isinstance(a, bytearray):
        if a != b:
            raise Differ("%s: other bytes" % where)
    sa, sb = state_of(a), state_of(b)
    if sa or sb:
        same(sorted(sa), sorted(sb), tw, where + ".attributes")
        for k in sa:
            same(sa[k], sb[k], tw, "%s.%s" % (where, k))
    elif not isinstance(a, (torch.Tensor, numpy.ndarray)) and \
            type(a).__module__ not in ("builtins", "collections") and \
            hasattr(a, "__eq__") and a != b and repr(a) != repr(b):
        raise Differ("%s: %r became %r" % (where, a, b))


def replaced(path, pickle):
    """The archive with another data.pkl."""
    out = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            new.writestr(name, pickle if name.endswith("/data.pkl") else old.read(name))
    out.seek(0)
    return out


def load(f):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.load(f, map_location="cpu", weights_only=False)


def main():
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([sys.argv[1]], check=True, env=dict(os.environ, ZCKPT_PKL_OUT=out),
                       stdout=subprocess.DEVNULL)
        for name in sorted(os.listdir(out)):
            if not name.endswith(".from"):
                continue
            path = open(os.path.join(out, name), encoding="utf-8").read()
            pickle = open(os.path.join(out, name[:-5] + ".pkl"), "rb").read()
            if any(word in path for word in UNCOMPARABLE):
                skipped += 1
                continue
            try:
                a = load(path)
            except Exception:	# classes that this machine lacks
                skipped += 1
                continue
            try:
                same(a, load(replaced(path, pickle)), Twins())
                passed += 1
            except Exception as e:
                print("FAIL %s: %s: %s" % (path, type(e).__name__, e))
                failed += 1
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    sys.exit(failed > 0 or passed < 1000)


main()
