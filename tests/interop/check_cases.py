"""Runs zckpt over the generated checkpoints and compares every state with the truth, bit by bit.

    check_cases.py CASES [--zckpt PATH] [--only NAME] [--need N] [--truth-only]

Per case:
  truth    the generated truth agrees with shards.py, a second and independent reader
  states   `convert --state all`: every state of every parameter, no name more or less
  fp32     `convert` as a user calls it: masters, else weights widened
  keep     `convert --dtype keep`: what the model computed with
  reshard  to some other number of ranks, to another stage and back again: the same digest each
           time, and back at its own ranks the same bytes as if it had never been away
  stock    DeepSpeed's own zero_to_fp32 and zckpt give the same bits
Ends with a table of the traits that were met, and with `N passed, N failed, N skipped`.
"""
import argparse
import collections
import contextlib
import filecmp
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

import dsrank
import shards
import torch
from safetensors import safe_open
from safetensors.torch import load_file

ROWS = ("several groups", "odd sizes", "empty ranks", "tied", "frozen", "round robin",
        "sub-groups") + tuple("world %d" % w for w in range(1, 10))


class Fail(Exception):
    """A sentence on what zckpt got wrong."""


def zckpt(exe, *args):
    r = subprocess.run([exe, *args], capture_output=True, text=True, timeout=120)
    if r.returncode != 0:
        raise Fail("zckpt %s: exit %d: %s" % (" ".join(args), r.returncode,
                                              (r.stderr or r.stdout).strip()[-600:]))
    return r


def opened(path):
    """{name: tensor} and the metadata of a safetensors file or a folder of them."""
    files = [path]
    if os.path.isdir(path):
        index = os.path.join(path, "model.safetensors.index.json")
        if os.path.exists(index):
            with open(index) as f:
                files = sorted(set(json.load(f)["weight_map"].values()))
            files = [os.path.join(path, n) for n in files]
        else:
            files = [os.path.join(path, "model.safetensors")]
    tensors, meta = {}, {}
    for one in files:
        for k, t in load_file(one).items():
            if k in tensors:
                raise Fail("%s is in two shards" % k)
            tensors[k] = t
        with safe_open(one, "pt") as f:
            meta.update(f.metadata() or {})
    return tensors, meta


def compare(what, got, want):
    """Fails unless both have the same names, dtypes, shapes and bits."""
    said = ["%s is missing" % k for k in want if k not in got]
    said += ["%s should not be there" % k for k in got if k not in want]
    for k in want:
        if k in got and not shards.same_bits(got[k], want[k]):
            same = got[k].dtype == want[k].dtype and got[k].shape == want[k].shape
            said.append("%s: %s %s, want %s %s%s" % (
                k, got[k].dtype, list(got[k].shape), want[k].dtype, list(want[k].shape),
                ", other bits" if same else ""))
    if said:
        raise Fail("%s: %s" % (what, "; ".join(said[:5]) +
                               ("; and %d more" % (len(said) - 5) if len(said) > 5 else "")))


# ------------------------------------------------------------------ what is to be expected
class Case:
    def __init__(self, folder):
        with open(os.path.join(folder, "case.json")) as f:
            self.facts = json.load(f)
        self.folder = folder
        self.name = self.facts["case"]
        self.ckpt = os.path.join(folder, "ckpt")
        self.truth = load_file(os.path.join(folder, "truth.safetensors"))
        self.lost = set(self.facts["not_in_checkpoint"])
        self.held = {k: t for k, t in self.truth.items() if k not in self.lost}
        self.stage = self.facts["stage"]
        self.alias = {a: kept for a, kept in self.facts["tied"]
                      if kept + "|weight" in self.held}

    def state(self, what):
        return {k[:-len(what) - 1]: t for k, t in self.held.items() if k.endswith("|" + what)}

    def masters(self, exe):
        """The masters that zckpt must use. Stage 0 files hold no names for them: there it is
        those that zckpt could name (check_states judges whether it was right)."""
        master = self.state("master")
        if self.stage or not master:
            return master
        with tempfile.TemporaryDirectory() as work:
            out = os.path.join(work, "states")
            zckpt(exe, "convert", "-q", "--state", "all", self.ckpt, out)
            named = os.path.join(out, "master.safetensors")
            return {n: master[n] for n in load_file(named)} if os.path.exists(named) else {}

    def full(self, exe=None):
        """The whole model: trained parameters, frozen ones, buffers; fp32 if exe is given."""
        weight, master = self.state("weight"), self.masters(exe) if exe else {}
        out = dict(self.state("buffer"))
        for n, t in weight.items():
            out[n] = master.get(n, t)
        if exe:
            out = {n: t.float() if t.is_floating_point() else t for n, t in out.items()}
        return out

    def without_aliases(self, what, got, meta):
        """Takes tied names out of what was written; fails when one is in neither place.

        Stage 0 files do not say which names are tied, so there both are right."""
        got = dict(got)
        for name, kept in self.alias.items():
            if name in got:
                if self.stage:
                    raise Fail("%s: tied name %s was written again" % (what, name))
                if not shards.same_bits(got.pop(name), got[kept]):
                    raise Fail("%s: tied name %s has other bits" % (what, name))
            elif meta.get(name) != kept:
                raise Fail("%s: metadata says %s -> %s, want %s" % (
                    what, name, meta.get(name), kept))
        return got


# ------------------------------------------------------------------ the checks
def check_truth(case, exe, work):
    said = shards.differences(case.facts, case.truth,
                              shards.read(case.ckpt, case.facts["tag"]))
    if said:
        raise Fail("; ".join(said[:5]))


def check_states(case, exe, work):
    out = os.path.join(work, "states")
    zckpt(exe, "convert", "--state", "all", case.ckpt, out)
    made = {f[:-len(".safetensors")] for f in os.listdir(out) if f.endswith(".safetensors")}
    want = {s for s in case.facts["states"] if case.state(s)}
    may_lack = set(case.facts["may_lack"])
    trained = set(case.state("master"))
    if case.stage == 0:                  # the files hold no names for these
        may_lack |= want - {"weight"}
    if case.stage == 3 and not case.state("buffer") and trained >= set(case.state("weight")):
        may_lack.add("weight")           # nothing of it is stored, all of it follows
    if case.state("buffer"):
        want.add("weight")
    if made - want or want - made - may_lack:
        raise Fail("states written: %s, want %s" % (sorted(made), sorted(want)))
    for s in sorted(made):
        got, meta = opened(os.path.join(out, s + ".safetensors"))
        truth = case.state(s)
        if s == "weight":
            truth.update(case.state("buffer"))
            if case.stage == 3 and not trained & set(got):
                truth = {n: t for n, t in truth.items() if n not in trained}
        if case.stage == 0 and s != "weight":
            truth = {n: t for n, t in truth.items() if n in got}
        tied = {a: k for a, k in case.alias.items() if k in truth}
        part = case.without_aliases(s, got, meta) if tied == case.alias else got
        compare(s, part, truth)


def check_fp32(case, exe, work):
    out = os.path.join(work, "fp32.safetensors")
    zckpt(exe, "convert", case.ckpt, out)
    got, meta = opened(out)
    compare("fp32", case.without_aliases("fp32", got, meta), case.full(exe))


def check_keep(case, exe, work):
    out = os.path.join(work, "keep")
    zckpt(exe, "convert", "--dtype", "keep", case.ckpt, out)
    got, meta = opened(out)
    compare("keep", case.without_aliases("keep", got, meta), case.full())


class Skip(Exception):
    pass


def check_stock(case, exe, work):
    """zero_to_fp32 against zckpt. Known to differ, and taken into account:

    it fails on stage 0, BF16_Optimizer and legacy streams; leaves frozen parameters and
    16-bit masters in 16 bits; drops what was not trained (empty parameters too) at stage 1
    and where frozen ones were excluded; writes aliases out.
    """
    traits = set(case.facts["traits"])
    for t in ("BF16_Optimizer", "legacy stream"):
        if t in traits:
            raise Skip("zero_to_fp32 cannot read: %s" % t)
    if case.stage == 0:
        raise Skip("zero_to_fp32 cannot read: stage 0")
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint as stock
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        theirs = {k: t.detach().contiguous() for k, t in stock(case.ckpt).items()}
    theirs = {k: t.float() if t.is_floating_point() else t for k, t in theirs.items()
              if k not in case.alias}
    if exe is None:
        mine = case.full(exe)
    else:
        out = os.path.join(work, "fp32.safetensors")
        if not os.path.exists(out):
            zckpt(exe, "convert", case.ckpt, out)
        mine, meta = opened(out)
        mine = case.without_aliases("stock", mine, meta)
    if case.stage == 1 or case.facts["spec"]["exclude_frozen"]:
        known = {**case.state("master"), **case.state("buffer")}
        mine = {k: t for k, t in mine.items() if k in known}
    compare("zero_to_fp32 (as want) and zckpt", mine, theirs)


def digest(exe, path, new_masters):
    """Lines of all states; without the masters where a step without any gets them."""
    return [line for line in zckpt(exe, "digest", path).stdout.splitlines()[:-1]
            if not (new_masters and " master " in line)]


def differing(a, b, without):
    """Files of two folders that are not the same bytes."""
    out = []
    for folder, _, files in os.walk(a):
        for n in files:
            path = os.path.join(folder, n)
            other = os.path.join(b, os.path.relpath(path, a))
            if not n.endswith(without) and not (os.path.exists(other) and
                                                filecmp.cmp(path, other, shallow=False)):
                out.append(os.path.relpath(path, a))
    return out


REFUSED = ("no optimizer shards", "without names", "is frozen, which DeepSpeed supports", "in no optimizer group",
           "elastic")


def check_reshard(case, exe, work):
    pick = random.Random(case.name)
    n, m = case.facts["world"], pick.randint(1, 16)
    there, back, same, staged = (os.path.join(work, x) for x in (
        "there", "back", "same", "staged"))
    new = case.stage == 0 and case.facts["precision"] == "fp32"
    want = digest(exe, case.ckpt, new)

    def reshard(src, dst, world, *more):
        try:
            zckpt(exe, "reshard", "-q", "--sync", "none", "--world", str(world), *more, src, dst)
        except Fail as e:
            if ": exit 3: " in str(e) and any(w in str(e) for w in REFUSED):
                raise Skip(str(e))
            raise
        if digest(exe, dst, new) != want:
            raise Fail("%s ranks to %d %s: another digest" % (n, world, " ".join(more)))

    reshard(case.ckpt, there, m)
    reshard(there, back, n)
    reshard(case.ckpt, same, n)
    # what is a rank's own is lost where there is no such rank
    lost = "model_states.pt" if case.stage == 3 and m < n else "\0"
    differ = differing(same, back, lost) + differing(back, same, lost)
    if differ:
        raise Fail("%d to %d ranks and back: other bytes in %s" % (n, m, differ[:3]))
    stage = pick.choice([s for s in ("1", "2", "3", "bf16") if s != str(case.stage) and
                         (s != "bf16" or case.facts["precision"] == "bf16")])
    with contextlib.suppress(Skip):
        reshard(there, staged, pick.randint(1, 9), "--stage", stage)


CHECKS = (("truth", check_truth), ("states", check_states), ("fp32", check_fp32),
          ("keep", check_keep), ("reshard", check_reshard), ("stock", check_stock))


def table(cases, need):
    """Prints how often each trait was met. False when one is rarer than asked for."""
    count = collections.Counter()
    for c in cases:
        count.update(c.facts["traits"])
        count.update(["world %d" % c.facts["world"], "stage %d" % c.stage,
                      c.facts["precision"]])
    rest = sorted(set(count) - set(ROWS))
    print("| trait | cases |\n| --- | ---: |")
    for row in list(ROWS) + rest:
        print("| %s | %d |" % (row, count[row]))
    rare = [row for row in ROWS if count[row] < need]
    if rare:
        print("FAILED too few cases (fewer than %d) of: %s" % (need, ", ".join(rare)))
    return not rare


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("cases")
    ap.add_argument("--zckpt", default=os.environ.get("ZCKPT"))
    ap.add_argument("--only")
    ap.add_argument("--need", type=int, default=1, help="least cases per row of the table")
    ap.add_argument("--truth-only", action="store_true",
                    help="judge the generator: truth, shards.py and zero_to_fp32 agree")
    a = ap.parse_args()
    checks = CHECKS
    if a.truth_only:
        a.zckpt, checks = None, (CHECKS[0], CHECKS[-1])
    elif not a.zckpt:
        ap.error("--zckpt or ZCKPT is needed")
    torch.set_num_threads(1)
    names = sorted(n for n in os.listdir(a.cases)
                   if os.path.exists(os.path.join(a.cases, n, "case.json")))
    cases = [Case(os.path.join(a.cases, n)) for n in names if a.only in (None, n)]
    tally = {n: [0, 0, 0] for n, _ in checks}
    for case in cases:
        work = tempfile.mkdtemp(prefix="zckpt-check-")
        for name, check in checks:
            try:
                check(case, a.zckpt, work)
                tally[name][0] += 1
            except Skip:
                tally[name][2] += 1
            except Exception as e:
                tally[name][1] += 1
                said = str(e) if isinstance(e, Fail) else "%s: %s" % (type(e).__name__, e)
                print("FAILED %s %s: %s" % (case.name, name, said), flush=True)
        shutil.rmtree(work, ignore_errors=True)
    good = table(cases, a.need) if not a.only else True
    for name, n in tally.items():
        print("%s: %d passed, %d failed, %d skipped" % (name, *n))
    n = [sum(t[i] for t in tally.values()) for i in range(3)]
    n[0 if good else 1] += 1
    print("%d passed, %d failed, %d skipped" % tuple(n))
    return 1 if n[1] or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
