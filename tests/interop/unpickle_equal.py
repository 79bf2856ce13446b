"""Whether two torch files hold the same objects, as real Python sees them.

    unpickle_equal.py SOURCE OUTPUT [--ignore PATH]... [--modes full,weights_only,mmap]

Both files are unpickled with the true classes (so only for files one trusts) and compared
deeply: types, dict order, attributes, floats and tensors by their bits; whatever is one
object, or one storage, in the source must be one in the output, and nothing else may be.
PATH is as printed, e.g. `.dp_world_size` or `.optimizer_state_dict.group_paddings`; a
trailing `*` matches any rest. --modes loads OUTPUT in further ways and wants the same.
Exit 0 equal, 1 different (sentences on stdout), 2 wrong call.
"""
import argparse
import collections
import functools
import io
import struct
import sys
import types

import numpy as np
import torch

ATOMS = (bool, int, str, bytes, complex, type(None), type(Ellipsis), type(NotImplemented),
         range, torch.dtype, torch.device, torch.layout, torch.memory_format)
NAMED = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType,
         types.MethodDescriptorType)


def raw(t):
    """The bytes of a tensor's elements, in their logical order."""
    t = t.detach().contiguous()
    return t.reshape(-1).view(torch.uint8) if t.numel() else torch.empty(0, dtype=torch.uint8)


class Compare:
    """Walks two object graphs in step. `said` collects the differences (at most `limit`)."""

    def __init__(self, ignore=(), limit=20, storages=True):
        self.ignore, self.limit, self.storages = tuple(ignore), limit, storages
        self.said, self.there, self.back = [], {}, {}
        self.keep = []                  # ids stay valid only as long as the objects live

    def differ(self, path, what):
        if len(self.said) < self.limit:
            self.said.append("%s: %s" % (path or "(root)", what))

    def ignored(self, path):
        return any(path == i or i.endswith("*") and path.startswith(i[:-1])
                   for i in self.ignore)

    def paired(self, a, b, path, what="object"):
        """True when this pair was met before. Says so when only one side was."""
        ka, kb = (what, id(a)), (what, id(b))
        return self.paired_keys(ka, kb, a, b, path, what)

    def paired_keys(self, ka, kb, a, b, path, what):
        self.keep += [a, b]
        known, known_back = self.there.get(ka), self.back.get(kb)
        if known is None and known_back is None:
            self.there[ka], self.back[kb] = (kb, path), (ka, path)
            return False
        if known is None:
            self.differ(path, "is the same %s as %s in the output, not in the source"
                        % (what, known_back[1]))
        elif known[0] != kb:
            self.differ(path, "is the same %s as %s in the source, not in the output"
                        % (what, known[1]))
        return True

    def go(self, a, b, path=""):
        if self.ignored(path) or len(self.said) >= self.limit:
            return
        if type(a) is not type(b):
            self.differ(path, "a %s became a %s" % (type(a).__name__, type(b).__name__))
        elif isinstance(a, NAMED):
            if a is not b:
                self.differ(path, "%r became %r" % (a, b))
        elif isinstance(a, float) and type(a) is float:
            if struct.pack("<d", a) != struct.pack("<d", b):
                self.differ(path, "%r became %r" % (a, b))
        elif isinstance(a, ATOMS):
            if a != b or repr(a) != repr(b):
                self.differ(path, "%.80r became %.80r" % (a, b))
        elif a is not b and not self.shared_constant(a) and not self.paired(a, b, path):
            self.inside(a, b, path)

    @staticmethod
    def shared_constant(a):
        return isinstance(a, (tuple, frozenset)) and not a

    def inside(self, a, b, path):
        if isinstance(a, torch.Tensor):
            self.tensors(a, b, path)
        elif isinstance(a, (torch.UntypedStorage, torch.TypedStorage)):
            if bytes(a.untyped() if hasattr(a, "untyped") else a) != \
                    bytes(b.untyped() if hasattr(b, "untyped") else b):
                self.differ(path, "a storage has other bytes")
        elif isinstance(a, (np.ndarray, np.generic)):
            self.arrays(a, b, path)
        elif isinstance(a, dict):
            self.dicts(a, b, path)
        elif isinstance(a, (list, tuple, collections.deque)):
            if len(a) != len(b):
                self.differ(path, "length %d became %d" % (len(a), len(b)))
            for i, (x, y) in enumerate(zip(a, b)):
                self.go(x, y, "%s[%d]" % (path, i))
        elif isinstance(a, (set, frozenset, bytearray)):
            if a != b:
                self.differ(path, "%.80r became %.80r" % (a, b))
        elif isinstance(a, io.BytesIO):
            if a.getvalue() != b.getvalue() or a.tell() != b.tell():
                self.differ(path, "a BytesIO has other bytes or another position")
        elif isinstance(a, functools.partial):
            for k in ("func", "args", "keywords"):
                self.go(getattr(a, k), getattr(b, k), path + "." + k)
        elif not hasattr(a, "__dict__") and not self.slots(a):
            self.reduced(a, b, path)
        self.attributes(a, b, path)

    def tensors(self, a, b, path):
        for what in ("dtype", "layout", "requires_grad", "is_leaf"):
            if getattr(a, what) != getattr(b, what):
                self.differ(path, "%s %s became %s" % (what, getattr(a, what), getattr(b, what)))
                return
        if a.shape != b.shape or a.stride() != b.stride():
            self.differ(path, "shape %s, strides %s became %s, %s" % (
                list(a.shape), a.stride(), list(b.shape), b.stride()))
        elif not torch.equal(raw(a), raw(b)):
            self.differ(path, "a tensor of %d elements has other bits" % a.numel())
        elif self.storages:
            sa, sb = a.untyped_storage(), b.untyped_storage()
            if sa.nbytes() != sb.nbytes() or a.storage_offset() != b.storage_offset():
                self.differ(path, "offset %d in a storage of %d bytes became %d in %d" % (
                    a.storage_offset(), sa.nbytes(), b.storage_offset(), sb.nbytes()))
            elif sa.nbytes():
                self.paired_keys(("storage", sa.data_ptr()), ("storage", sb.data_ptr()),
                                 a, b, path, "storage")

    def arrays(self, a, b, path):
        if a.dtype != b.dtype or a.shape != b.shape:
            self.differ(path, "array %s %s became %s %s" % (a.dtype, a.shape, b.dtype, b.shape))
        elif a.dtype.hasobject:
            self.go(np.asarray(a).tolist(), np.asarray(b).tolist(), path)
        elif a.tobytes() != b.tobytes():
            self.differ(path, "an array has other bytes")

    def dicts(self, a, b, path):
        ka, kb = list(a), list(b)
        gone = [k for k in ka if k not in b and not self.ignored("%s.%s" % (path, k))]
        new = [k for k in kb if k not in a and not self.ignored("%s.%s" % (path, k))]
        for k in gone:
            self.differ(path, "key %r is gone" % (k,))
        for k in new:
            self.differ(path, "key %r is new" % (k,))
        if not gone and not new:
            order = [[k for k in ks if not self.ignored("%s.%s" % (path, k))] for ks in (ka, kb)]
            if order[0] != order[1]:
                self.differ(path, "the keys have another order: %.200r became %.200r"
                            % tuple(order))
        if isinstance(a, collections.defaultdict):
            self.go(a.default_factory, b.default_factory, path + ".default_factory")
        for k in ka:
            if k in b:
                self.go(a[k], b[k], "%s.%s" % (path, k))

    @staticmethod
    def slots(a):
        names = []
        for c in type(a).__mro__:
            s = c.__dict__.get("__slots__", ())
            names += [s] if isinstance(s, str) else list(s)
        return [n for n in names if n not in ("__dict__", "__weakref__")]

    def attributes(self, a, b, path):
        da, db = getattr(a, "__dict__", None), getattr(b, "__dict__", None)
        if isinstance(da, dict) and isinstance(db, dict) and (da or db):
            self.dicts(da, db, path + ".__dict__")
        if isinstance(a, torch.Tensor):
            return
        for n in self.slots(a):
            if hasattr(a, n) != hasattr(b, n):
                self.differ(path, "attribute %s came or went" % n)
            elif hasattr(a, n):
                self.go(getattr(a, n), getattr(b, n), "%s.%s" % (path, n))

    def reduced(self, a, b, path):
        """Types of C modules: what pickle itself would take them apart into."""
        try:
            ra, rb = a.__reduce_ex__(2), b.__reduce_ex__(2)
        except TypeError:
            if a != b:
                self.differ(path, "%.80r became %.80r" % (a, b))
            return
        if isinstance(ra, str) or isinstance(rb, str):
            if ra != rb:
                self.differ(path, "%r became %r" % (ra, rb))
        else:
            for i, (x, y) in enumerate(zip(ra, rb)):
                if i < 3 and not isinstance(x, types.MethodType):
                    # made for this look: never the same object twice
                    inner = Compare(self.ignore, self.limit, self.storages)
                    inner.go(x, y, "%s<%d>" % (path, i))
                    self.said += inner.said


def differences(a, b, ignore=(), storages=True):
    """Sentences on how b differs from a; [] when it does not."""
    c = Compare(ignore, storages=storages)
    c.go(a, b)
    return c.said


def load(path, mode="full"):
    kw = {"map_location": "cpu", "weights_only": mode == "weights_only"}
    if mode == "mmap":
        kw["mmap"] = True
    return torch.load(path, **kw)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("source")
    ap.add_argument("output")
    ap.add_argument("--ignore", action="append", default=[], metavar="PATH")
    ap.add_argument("--modes", default="full")
    ap.add_argument("--no-storages", action="store_true",
                    help="do not ask for the same storages and offsets")
    a = ap.parse_args()
    import dsmodel
    dsmodel.install_user_classes()
    bad = 0
    for mode in a.modes.split(","):
        if mode not in ("full", "weights_only", "mmap"):
            ap.error("unknown mode %r" % mode)
        said = differences(load(a.source), load(a.output, mode), a.ignore, not a.no_storages)
        for s in said:
            print("%s: %s" % (mode, s))
        bad += len(said)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
