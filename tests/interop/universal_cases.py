"""Does stock DeepSpeed take what `zckpt reshard --to universal` writes, and what zckpt makes of
DeepSpeed's own universal checkpoints?

    universal_cases.py --zckpt PROGRAM --fixtures DIR [--old DIR] [--seed S] [--long]
                       [--only TEXT]

  1. A fixture (a checkpoint that real DeepSpeed wrote at N ranks) becomes a universal checkpoint.
     DeepSpeed, of the fixture's version, with `checkpoint: {load_universal: true}`, loads it at
     M ranks: live masters and moments must be the fixture's, bit for bit, scalars and next
     losses too. Buffers and frozen parameters, which its loader drops, are set aside (buffers
     are put back by hand for the losses; frozen parameters a new run has from the same seed).
     At stage 3 all groups get the first one's hyper-parameters, so there only the first
     loss is compared.
  2. A fixture's universal/ folder, which DeepSpeed's converter made, becomes a step of M ranks,
     which DeepSpeed resumes without a flag.

The last line is `N passed, N failed, N skipped`.
"""
import argparse
import collections
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

import resume_cases
from resume_plan import fixtures_of

WORLDS = (1, 2, 3, 4)


# ------------------------------------------------------------------ what DeepSpeed can load
def groups_of(f):
    return {p.get("group") for p in f.facts["params"] if p["requires_grad"]}


def why_not(f, stage, version):
    """Why this DeepSpeed cannot load a universal checkpoint of this case, or None."""
    version = tuple(int(x) for x in version.split("."))
    if stage not in ("1", "2", "3", "bf16") or stage not in f.targets():
        return "no such engine"
    if f.spec.get("save_kw", {}).get("exclude_frozen_parameters"):
        return "frozen parameters are nowhere"
    if stage != "3":
        return None
    many = len(groups_of(f)) > 1 or "sub_group_size" in f.zero
    if version < (0, 18, 0) and many:
        return "one group and one sub-group before 0.18"
    if f.opt not in ("adam", "adamw") or "amsgrad" in str(f.spec["opt"]) or \
            not f.facts["data_step"]:
        return "stage 3 loads exp_avg and exp_avg_sq only, and needs them"
    return None


def combinations(fixtures):
    out = []
    for f in fixtures:
        zero = {"round_robin_gradients": False} if f.zero.get("round_robin_gradients") else {}
        for stage in ("1", "2", "3", "bf16"):
            mode = "first group" if stage == "3" and len(groups_of(f)) > 1 else "all"
            others = f.other_versions(stage) if not why_not(f, stage, "0.19.8") else ()
            for v, world in [(v, w) for v in (f.version,) + others for w in WORLDS
                             if not why_not(f, stage, v)]:
                out.append({"fixture": f, "stage": stage, "world": world, "universal": mode,
                            "zero": zero if stage in ("1", "2") else {}, "version": v,
                            "args": ["--to", "universal", "--stage", stage] +
                            (["--ds-version", v] if v != f.version else []), "src": "ckpt",
                            "id": "%s to universal %s:%d in %s" % (f.name, stage, world, v)})
    for f in fixtures:
        if not os.path.isdir(os.path.join(f.folder, "universal")) or \
                f.zero.get("round_robin_gradients"):
            continue
        for stage in [s for s in f.targets() if s != "0"]:
            for world in WORLDS:
                out.append({"fixture": f, "stage": stage, "world": world, "universal": None,
                            "zero": {}, "src": "universal", "version": f.version,
                            "args": ["--world", str(world), "--stage", stage],
                            "id": "%s/universal to %s:%d" % (f.name, stage, world)})
    return out


def sample(every, seed):
    """Each version and stage twice, each universal folder and each odd case once."""
    pool = sorted(every, key=lambda c: c["id"])
    random.Random(seed).shuffle(pool)
    have, out = collections.Counter(), []
    for c in pool:
        f = c["fixture"]
        wants = [(("to", f.version, c["stage"]), 2)] if c["src"] == "ckpt" else \
            [(("from", f.name), 1), (("from", c["stage"]), 2)]
        if c["version"] != f.version:
            wants = [(("other version", c["version"], c["stage"]), 1)]
        elif c["src"] == "ckpt":
            wants += [((f.opt,), 1)] if f.opt != "adamw" else []
            wants += [(("round robin",), 1)] if c["zero"] else []
            wants += [(("aligned",), 1)] if f.zero.get("parameter_alignment") else []
            wants += [(("sub-groups",), 1)] if "sub_group_size" in f.zero else []
        if any(have[k] < n for k, n in wants):
            out.append(c)
            have.update(k for k, _ in wants)
    return out


# ------------------------------------------------------------------ all of it
def make(exe, c, out):
    """Runs zckpt. Returns "" or what it said."""
    r = subprocess.run([exe, "reshard", "-q"] + c["args"] +
                       [os.path.join(c["fixture"].folder, c["src"]), out],
                       capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    return "" if not r.returncode else "zckpt reshard: exit %d: %s" % (
        r.returncode, (r.stderr or r.stdout).strip()[-400:])


def job_of(c, ckpt):
    return {"id": c["id"], "fixture": os.path.abspath(c["fixture"].folder), "ckpt": ckpt,
            "world": c["world"], "stage": c["stage"], "zero": c["zero"], "zero_text": "",
            "alike": None, "universal": c["universal"], "version": c["version"]}


def run_all(chosen, exe, have, work):
    """[(combination, what went wrong)]"""
    jobs, made, rows = collections.defaultdict(list), {}, []
    for i, c in enumerate(chosen):
        out = os.path.join(work, "u%04d" % i)
        said = make(exe, c, out)
        if said:
            rows.append((c, {"said": [said]}))
            continue
        jobs[c["version"]].append(job_of(c, out))
        made[c["id"]] = c
    for v in sorted(jobs, reverse=True):
        t = time.time()
        results, trouble = resume_cases.run_version(v, have[v], jobs[v], work, False)
        for j in jobs[v]:
            r = results.get(j["id"], {"said": ["it was not run: " + trouble]})
            rows.append((made[j["id"]], r))
        print("universal: DeepSpeed %s: %d combinations, %.1f s" % (v, len(jobs[v]),
                                                                   time.time() - t), flush=True)
    return rows


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--zckpt", default=os.environ.get("ZCKPT"))
    ap.add_argument("--fixtures", default=os.environ.get("ZCKPT_FIXTURES"))
    ap.add_argument("--old", default=os.environ.get("ZCKPT_VENV_OLD"))
    ap.add_argument("--seed", type=int, default=20)
    ap.add_argument("--long", action="store_true", help="every combination")
    ap.add_argument("--only", action="append", help="part of a combination's name")
    a = ap.parse_args()
    if not a.fixtures or not a.zckpt:
        ap.error("--fixtures (ZCKPT_FIXTURES) and --zckpt (ZCKPT) are needed")
    versions = resume_cases.VERSIONS if a.long or a.only else resume_cases.ALWAYS
    have, lack = resume_cases.environments(a.old, sys.executable, versions)
    for v in lack:
        print("skipped: DeepSpeed %s: %s" % (v, lack[v]))
    usable = [f for f in fixtures_of(a.fixtures) if f.version in have and not f.why_not()]
    chosen = [c for c in combinations(usable) if c["version"] in have]
    if a.only:
        chosen = [c for c in chosen if any(o in c["id"] for o in a.only)]
    elif not a.long:
        chosen = sample(chosen, a.seed)
    print("universal: %d combinations (seed %d)" % (len(chosen), a.seed), flush=True)
    work = tempfile.mkdtemp(prefix="zckpt-universal-")
    rows = run_all(chosen, a.zckpt, have, work)
    shutil.rmtree(work, ignore_errors=True)
    failed = 0
    for c, r in sorted(rows, key=lambda cr: cr[0]["id"]):
        loss = "-" if r.get("losses") is None else "%.1e" % r["losses"]
        print("%-6s %s: %d of %d states equal, losses off by %s" % (
            "FAILED" if r["said"] else "ok", c["id"], r.get("equal", 0), r.get("wanted", 0),
            loss))
        failed += bool(r["said"])
        for s in r["said"][:4]:
            print("       %.400s" % s)
    print("%d passed, %d failed, %d skipped" % (len(rows) - failed, failed, len(lack)))
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
