"""Does stock DeepSpeed resume what `zckpt reshard` writes?

    resume_cases.py --zckpt PROGRAM --fixtures DIR [--old DIR] [--count 60] [--seed S]
                    [--long] [--unchanged] [--only TEXT]

A combination is a fixture (a checkpoint that real DeepSpeed wrote at N ranks, with the state
of its engine and the losses of the steps after it) and a target: M ranks, a stage. For each:

  1. `zckpt reshard N->M [--stage S] SRC DST`
  2. DeepSpeed, of the fixture's version, at M ranks and stage S, with the fixture's own
     configuration: engine.load_checkpoint(DST), no flag. Its net starts from other values.
  3. the live weights, masters, moments and buffers must be the fixture's, bit for bit; step,
     lr, loss scale, scheduler and counters equal
  4. the next three steps on the same global batches must give the recorded losses
  5. zero_to_fp32 and ds_to_universal of that DeepSpeed must take DST, with the same bits
  6. the client's objects in the model files must be those of SRC

--unchanged leaves zckpt out and resumes the fixtures as they are: the proof that this program
itself rebuilds model, data and engine rightly. All combinations of one version and world run
in one process group. The last line is `N passed, N failed, N skipped`.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from resume_plan import (LONG_WORLDS, WORLDS, NEED, combinations, fixtures_of, sample)

HERE = os.path.dirname(os.path.abspath(__file__))
VERSIONS = ("0.19.8", "0.18.9", "0.17.6", "0.16.9", "0.15.4", "0.14.5")
ALWAYS = ("0.19.8", "0.16.9", "0.14.5")         # said to be skipped when they are not there


# ------------------------------------------------------------------ zckpt
def reshard(exe, c, out):
    """Runs zckpt. Returns "" or what it said."""
    f = c["fixture"]
    source, ranks = os.path.join(f.folder, "ckpt"), f.world
    if "native" in c:
        said = call(exe, ["--to", "native", "--world", str(c["native"]), source, out + ".native"])
        if said:
            return said
        source, ranks = out + ".native", c["native"]
    form = ("%d->%d", "%d:%d", "%dto%d")[len(c["id"]) % 3] % (ranks, c["world"])
    args = [form]
    if c["stage"] != f.stage:
        args += ["--stage", c["stage"]]
    return call(exe, args + c["args"] + [source, out])


def call(exe, args):
    args = [exe, "reshard"] + args
    try:
        r = subprocess.run(args, capture_output=True, text=True, timeout=120,
                           stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return "zckpt reshard did not end within 120 s"
    if r.returncode:
        return "zckpt reshard: exit %d: %s" % (r.returncode,
                                               (r.stderr or r.stdout).strip()[-400:])
    return ""


# ------------------------------------------------------------------ one version's process
def environments(old, python, wanted):
    """{version: (python, PYTHONPATH)} and {version: why it cannot be run}."""
    have, lack = {}, {}
    for v in wanted:
        if v == "0.19.8":
            have[v] = (python, "")
        elif not old:
            lack[v] = "no folder of older versions (setup-venv-old.sh)"
        elif os.path.exists(os.path.join(old, "venv-" + v, "zckpt-resume-pins")):
            have[v] = (os.path.join(old, "venv-" + v, "bin", "python"), "")
        elif os.path.exists(os.path.join(old, "ds-" + v, "zckpt-resume-pins")):
            have[v] = (python, os.path.join(old, "ds-" + v))
        else:
            lack[v] = "setup-venv-old.sh has not made it"
    return have, lack


def run_version(version, env, jobs, work, with_tools):
    """All results of one version: {id: result}, and what its process said."""
    python, extra = env
    plan = os.path.join(work, "plan-%s.json" % version)
    results = os.path.join(work, "results-%s.jsonl" % version)
    with open(plan, "w") as f:
        json.dump({"version": version, "jobs": jobs, "results": results,
                   "tools": with_tools}, f)
    environ = dict(os.environ, PYTHONPATH=extra, DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1",
                   PYTHONDONTWRITEBYTECODE="1", TORCH_EXTENSIONS_DIR=os.path.join(
                       work, "extensions-" + version))
    if version == "0.15.4":         # its own files are not loaded by torch 2.6 and later
        environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"
    r = subprocess.run([python, os.path.join(HERE, "resume_worker.py"), plan],
                       env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    out = {}
    if os.path.exists(results):
        with open(results) as f:
            for line in f:
                one = json.loads(line)
                into = out.setdefault(one["id"], {"said": []})
                said = into["said"] + one.pop("said")
                into.update(one, said=said)
    return out, "" if r.returncode == 0 else (r.stderr or r.stdout)[-800:]


# ------------------------------------------------------------------ all of it
def yes(v):
    return "-" if v is None else "yes" if v else "NO"


def print_table(rows):
    print("| case | N | M | stages | options | DeepSpeed | states equal | losses off by |"
          " zero_to_fp32 | universal | |")
    print("| --- | ---: | ---: | --- | --- | --- | ---: | ---: | --- | --- | --- |")
    for c, r in rows:
        f = c["fixture"]
        loss = "-" if r.get("losses") is None else "%.1e" % r["losses"]
        print("| %s | %d | %d | %s to %s | %s | %s | %d/%d | %s | %s | %s | %s |" % (
            f.name, f.world, c["world"], f.stage, c["stage"], " ".join(c["args"]), c["version"],
            r.get("equal", 0), r.get("wanted", 0), loss, yes(r.get("z2f")),
            yes(r.get("universal")), "FAILED" if r["said"] else "ok"))


def refusals(exe, fixtures, work):
    """What cannot be cut honestly must be refused by name, and nothing may be left behind."""
    out = []
    for f in fixtures:
        if f.opt != "muon" or f.stage == "3":
            continue
        dst = os.path.join(work, "refused-" + f.name)
        r = subprocess.run([exe, "reshard", "%d:%d" % (f.world, f.world + 1),
                            os.path.join(f.folder, "ckpt"), dst], capture_output=True,
                           text=True, timeout=120, stdin=subprocess.DEVNULL)
        said = []
        if r.returncode != 3:
            said.append("exit %d, want 3" % r.returncode)
        if not any(w in r.stderr.lower() for w in ("muon", "momentum_buffer")):
            said.append("the message does not name what it refuses: %.200r" % r.stderr)
        if os.path.exists(dst):
            said.append("it left %s" % os.listdir(dst))
        out.append((f.name, said))
    return out


def job_of(c, ckpt, every):
    f = c["fixture"]
    alike = [o.folder for o in every if o.version == c["version"] and o.stage == c["stage"] and
             not o.why_not()]
    zero = json.dumps({**({} if c["stage"] == "3" else f.zero), **c["zero"]})
    rr = '"round_robin_gradients": true' in zero
    return {"id": c["id"], "fixture": os.path.abspath(f.folder), "ckpt": ckpt,
            "world": c["world"], "stage": c["stage"], "zero": c["zero"],
            "version": c["version"], "reset": "--reset-optimizer" in c["args"], "zero_text": "round_robin" if rr else "",
            "alike": os.path.abspath(alike[0]) if alike else None}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--zckpt", default=os.environ.get("ZCKPT"))
    ap.add_argument("--fixtures", default=os.environ.get("ZCKPT_FIXTURES"))
    ap.add_argument("--old", default=os.environ.get("ZCKPT_VENV_OLD"))
    ap.add_argument("--count", type=int, default=60)
    ap.add_argument("--seed", type=int, default=20)
    ap.add_argument("--same-stage", action="store_true", help="no change of the stage")
    ap.add_argument("--long", action="store_true", help="every combination")
    ap.add_argument("--unchanged", action="store_true", help="the fixtures as they are")
    ap.add_argument("--only", action="append", help="part of a fixture's name")
    ap.add_argument("--version", action="append", choices=VERSIONS)
    ap.add_argument("--id", action="append", help="part of a combination's name")
    ap.add_argument("--keep", help="a folder to keep the new checkpoints in")
    ap.add_argument("--list", action="store_true", help="only say what would be run")
    a = ap.parse_args()
    if not a.fixtures or not (a.zckpt or a.unchanged):
        ap.error("--fixtures (ZCKPT_FIXTURES) and --zckpt (ZCKPT) are needed")

    have, lack = environments(a.old, sys.executable, a.version or VERSIONS)
    usable, n = [], {"passed": 0, "failed": 0, "skipped": 0}
    every_fixture = fixtures_of(a.fixtures)
    for f in [f for f in every_fixture if not a.only or any(o in f.name for o in a.only)]:
        if f.version in have and not f.why_not():
            usable.append(f)
    for v in [v for v in lack if v in ALWAYS or a.version or a.long]:
        print("skipped: DeepSpeed %s: %s" % (v, lack[v]))
        n["skipped"] += 1
    if a.unchanged:
        chosen = [{"fixture": f, "world": f.world, "stage": f.stage, "args": [], "zero": {},
                   "version": f.version,
                   "traits": f.traits(f.stage, f.world), "id": f.name} for f in usable]
    else:
        every = combinations(usable, LONG_WORLDS if a.long else WORLDS)
        every = [c for c in every if c["version"] in have]
        if a.same_stage:
            every = [c for c in every if c["stage"] == c["fixture"].stage != "0"]
        if a.id:
            every = [c for c in every if any(i in c["id"] for i in a.id)]
        chosen = every if a.long or a.id else sample(every, a.count, a.seed)
    if a.list:
        for c in chosen:
            print(c["id"])
        print("%d combinations" % len(chosen))
        return 0
    if not chosen:
        print("0 passed, 1 failed, 0 skipped")
        return 1

    work = tempfile.mkdtemp(prefix="zckpt-resume-")
    began = time.time()
    rows, jobs = [], collections.defaultdict(list)
    made = {}

    def make(ic):
        i, c = ic
        if a.unchanged:
            return c, os.path.abspath(os.path.join(c["fixture"].folder, "ckpt")), ""
        into = a.keep or work
        os.makedirs(into, exist_ok=True)
        out = os.path.abspath(os.path.join(into, "dst-%04d" % i))
        return c, out, reshard(a.zckpt, c, out)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for c, ckpt, said in pool.map(make, enumerate(chosen)):
            if said:
                rows.append((c, {"said": [said]}))
            else:
                jobs[c["version"]].append(job_of(c, ckpt, every_fixture))
                made[c["id"]] = c
    print("resume: %d combinations (seed %d), %d checkpoints made in %.1f s" % (
        len(chosen), a.seed, len(made), time.time() - began), flush=True)
    if not (a.unchanged or a.only or a.id or a.version):
        for name, said in refusals(a.zckpt, every_fixture, work):
            n["failed" if said else "passed"] += 1
            print("refused by name: %s: %s" % (name, "; ".join(said) or "ok"))
    for v in sorted(jobs, reverse=True):
        t = time.time()
        results, trouble = run_version(v, have[v], jobs[v], work, not a.unchanged)
        if trouble:
            print("resume: the process of DeepSpeed %s failed: %s" % (v, trouble))
            n["failed"] += 1
        for j in jobs[v]:
            r = results.get(j["id"], {"said": ["it was not run"]})
            if "equal" not in r and not r["said"]:
                r["said"] = ["it was not run"]
            rows.append((made[j["id"]], r))
        print("resume: DeepSpeed %s: %d combinations, %.1f s" % (v, len(jobs[v]),
                                                                time.time() - t), flush=True)
    shutil.rmtree(work, ignore_errors=True)
    order = {c["id"]: i for i, c in enumerate(chosen)}
    rows.sort(key=lambda cr: order[cr[0]["id"]])
    print_table(rows)
    for c, r in rows:
        n["failed" if r["said"] else "passed"] += 1
        for s in r["said"][:4]:
            print("FAILED %s: %.400s" % (c["id"], s))
    if not (a.unchanged or a.only or a.id or a.version):
        count = collections.Counter(t for c in chosen for t in c["traits"])
        for t in NEED:
            between = t.split(" to ")
            if a.same_stage and len(between) == 2 and between[0] != between[1]:
                continue
            if not count[t]:
                print("FAILED the sample has no combination of: %s" % t)
                n["failed"] += 1
    print("%(passed)d passed, %(failed)d failed, %(skipped)d skipped" % n)
    return 1 if n["failed"] or not n["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
