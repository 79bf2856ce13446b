"""Does stock DeepSpeed resume what a save session wrote, and safetensors read its native steps?

    save_cases.py --save PROGRAM --zckpt PROGRAM --fixtures DIR

PROGRAM (tests/bench/save_from.c) reads a fixture's step and saves it through a session of three
ranks, with the values of the fixture's engine. At stages 1, 2 and 3 DeepSpeed loads that, and
states, scalars and the next losses must be the fixture's, as in resume_cases.py; all in one process
group. A native step is opened by safetensors, file by file. The last line is
`N passed, N failed, N skipped`.
"""
import argparse
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

import torch
from safetensors import safe_open

from resume_cases import environments, job_of, print_table, run_version
from resume_plan import fixtures_of

FIXTURES = ("ds0.19.8-z2-bf16-w2", "ds0.19.8-z3-bf16-w2")
RANKS = 3               # that save; not those of the layout


def groups_in(tree):
    """The first list of param groups anywhere in what torch loads."""
    if isinstance(tree, dict):
        groups = tree.get("param_groups")
        if isinstance(groups, list) and groups and "lr" in groups[0]:
            return groups
        tree = list(tree.values())
    for one in tree if isinstance(tree, (list, tuple)) else []:
        found = groups_in(one)
        if found:
            return found
    return None


def values_of(fixture, out):
    """The lines that save_from takes."""
    ckpt = os.path.join(fixture.folder, "ckpt", fixture.facts["latest"])
    optim = sorted(glob.glob(os.path.join(ckpt, "*optim_states.pt")))[0]
    live = fixture.facts["live"]
    with open(out, "w") as f:
        for i, g in enumerate(groups_in(torch.load(optim, map_location="cpu",
                                                   weights_only=False))):
            step = live["scalars"].get("%d.step" % i, {"value": live["global_steps"]})["value"]
            f.write("group %r %r %r %r %r %r %d\n" % (
                g["lr"], g.get("initial_lr", g["lr"]), g["weight_decay"], g["betas"][0],
                g["betas"][1], g["eps"], step))
        f.write("steps %d %d %d\n" % (live["global_steps"], live["global_samples"],
                                      live["skipped_steps"]))
        f.write("config %s\n" % json.dumps(fixture.facts["ds_config"]))
        if live["lr_scheduler"]:
            f.write("scheduler %s\n" % json.dumps(live["lr_scheduler"]))
    return out


def call(args):
    r = subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=120,
                       stdin=subprocess.DEVNULL)
    return "" if r.returncode == 0 else "%s: exit %d: %s" % (
        os.path.basename(args[0]), r.returncode, (r.stderr or r.stdout).strip()[-400:])


def read_native(zckpt, src, root):
    """What is wrong with a native step: its files for safetensors, its states for zckpt."""
    said = []
    with open(os.path.join(root, "s", "manifest.json")) as f:
        listed = {one["name"]: one for one in json.load(f)["files"]}
    files = sorted(n for n in listed if n.endswith(".safetensors"))
    if len([n for n in files if n.startswith("rank-")]) != RANKS:
        said.append("files %s, want one of each of %d ranks" % (files, RANKS))
    for name in files:
        with safe_open(os.path.join(root, "s", name), framework="pt") as f:
            data = sum(f.get_tensor(k).nbytes for k in f.keys())
        size = os.path.getsize(os.path.join(root, "s", name))
        if size != listed[name]["bytes"] or data > size or not data and "rank-" in name:
            said.append("%s: %d bytes of tensors in %d" % (name, data, size))
    one, other = [subprocess.run([zckpt, "digest", d], capture_output=True, text=True,
                                 stdin=subprocess.DEVNULL).stdout for d in (src, root)]
    if not one or one != other:
        said.append("its digests are not those of its source")
    return said


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--save", required=True)
    ap.add_argument("--zckpt", default=os.environ.get("ZCKPT"))
    ap.add_argument("--fixtures", default=os.environ.get("ZCKPT_FIXTURES"))
    a = ap.parse_args()
    every = fixtures_of(a.fixtures)
    work = tempfile.mkdtemp(prefix="zckpt-save-")
    rows, jobs, made, failed, passed = [], [], {}, 0, 0
    for f in [f for f in every if f.name in FIXTURES]:
        values = values_of(f, os.path.join(work, f.name + ".values"))
        src = os.path.join(f.folder, "ckpt")
        for stage in ("1", "2", "3"):
            c = {"id": "%s saved at stage %s" % (f.name, stage), "fixture": f, "stage": stage,
                 "world": f.world, "args": [], "zero": {}, "version": f.version}
            out = os.path.join(work, "%s-%s" % (f.name, stage))
            said = call([a.save, src, out, "global_step3", "deepspeed", stage, f.world, RANKS,
                         values])
            if said:
                rows.append((c, {"said": [said]}))
            else:
                made[c["id"]] = c
                jobs.append(job_of(c, out, every))
        out = os.path.join(work, f.name + "-native")
        said = call([a.save, src, out, "s", "native", f.stage, RANKS, RANKS, values])
        said = [said] if said else read_native(a.zckpt, src, out)
        print("native, %s: %s" % (f.name, "; ".join(said) or "ok"))
        failed += bool(said)
        passed += not said
    have, lack = environments(None, sys.executable, ["0.19.8"])
    results, trouble = run_version("0.19.8", have["0.19.8"], jobs, work, True)
    if trouble:
        print("save: the process of DeepSpeed failed: %s" % trouble)
        failed += 1
    for j in jobs:
        r = results.get(j["id"], {"said": ["it was not run"]})
        rows.append((made[j["id"]], r))
    shutil.rmtree(work, ignore_errors=True)
    print_table(rows)
    for c, r in rows:
        failed += bool(r["said"])
        passed += not r["said"]
        for s in r["said"][:4]:
            print("FAILED %s: %.400s" % (c["id"], s))
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return 1 if failed or len(rows) < 6 else 0


if __name__ == "__main__":
    sys.exit(main())
