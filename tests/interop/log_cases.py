"""Logs in TensorBoard: every value that ztrain log writes is what TensorBoard reads.

    log_cases.py WORK --ztrain PATH --fixtures DIR

A run of ztrain with evaluations that is stopped and resumed, a log with odd values and names, and a
trainer_state.json that transformers itself writes become event files. TensorBoard's own reader
loads them, and each point is compared with the log: step, time and the value as a 32-bit float. A
second call must not add points. Nothing is downloaded.
"""
import argparse
import json
import math
import os
import subprocess
import sys

import numpy

passed = failed = 0


def check(what, ok):
    global passed, failed
    passed += bool(ok)
    failed += not ok
    print("%s   %s" % ("ok  " if ok else "FAIL", what), flush=True)


def ztrain(*words):
    run = subprocess.run([args.ztrain, *words], capture_output=True, text=True)
    if run.returncode:
        print(run.stdout + run.stderr, file=sys.stderr)
    return run.returncode == 0


def number(v):
    words = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    return words.get(v, v) if isinstance(v, str) else v


def tag_of(key):
    known = {"seconds": "perf/seconds_per_step", "tokens_per_second": "perf/tokens_per_second",
             "samples_per_hour": "perf/samples_per_hour", "seconds_left": "perf/seconds_left",
             "memory_bytes": "memory/counted", "learning_rate": "train/lr"}
    if key in known:
        return known[key]
    if key.startswith("eval_"):
        return "eval/" + key[5:]
    return key if "/" in key else "train/" + key


def expected(entries):
    """{tag: {step: (time or None, value)}} of lines or of log_history"""
    out = {}
    for e in entries:
        for key, v in e.items():
            v = number(v)
            if isinstance(v, list):
                name = {"rank_memory_bytes": "memory/rank", "rank_device_bytes": "memory/device"}[key]
                points = {name + str(i): x for i, x in enumerate(v)}
            elif isinstance(v, (int, float)) and key not in ("step", "time", "resumed"):
                points = {tag_of(key): v}
            else:
                continue
            for tag, x in points.items():
                out.setdefault(tag, {})[e["step"]] = (e.get("time"), float(numpy.float32(x)))
    return out


def read(folder):
    """the same, by TensorBoard"""
    acc = EventAccumulator(folder, size_guidance={"scalars": 0})
    acc.Reload()
    return {tag: [(s.step, s.wall_time, s.value) for s in acc.Scalars(tag)]
            for tag in acc.Tags()["scalars"]}


def same(want, have):
    if sorted(want) != sorted(have):
        print("tags: %s, expected %s" % (sorted(have), sorted(want)), file=sys.stderr)
        return False
    for tag, points in want.items():
        if sorted(points) != [p[0] for p in have[tag]]:
            return False
        for step, time, value in have[tag]:
            t, v = points[step]
            if (t is not None and t != time) or not (v == value or (math.isnan(v) and math.isnan(value))):
                print("%s, step %d: %r at %r, expected %r at %r" % (tag, step, value, time, v, t), file=sys.stderr)
                return False
    return True


def board(name, log, entries):
    """TensorBoard has the points of the entries, also after a second call"""
    run = os.path.join("tb", name)
    check("%s: event file" % name, ztrain("log", "--tensorboard", "tb", log))
    want = expected(entries)
    have = read(run)
    check("%s: %d points in %d tags" % (name, sum(map(len, want.values())), len(want)), same(want, have))
    check("%s: a second call" % name, ztrain("log", "--tensorboard", "tb", log) and same(want, read(run)))
    return have


def trained():
    model = os.path.join(args.fixtures, "model/models/llama3")
    run = ("--model", model, "--random", "--steps", "12", "--save", "run", "--log", "run/log.jsonl", "-q",
           "--data", os.path.join(args.fixtures, "model/train/data.safetensors"), "--eval-rows", "2",
           "--eval-every", "3")
    check("a run that stops and resumes",
          ztrain(*run, "--stop-at", "7") and ztrain(*run, "--resume", "auto"))
    with open("run/log.jsonl") as f:
        lines = [json.loads(line) for line in f]
    have = board("run/log", "run/log.jsonl", lines)
    check("losses, evaluations and memory are there",
          {"train/loss", "eval/loss", "train/lr", "perf/tokens_per_second", "memory/rank0"} <= set(have))
    check("12 losses", len(have["train/loss"]) == 12)


def odd():
    lines = [{"step": s, "loss": v, "reward/\u00e9<b>": s, "time": 1e9 + s / 8}
             for s, v in enumerate([0.1, "NaN", "Infinity", "-Infinity", 1e300, 1e-300, 16777217, 0, -0.0])]
    lines.append({"step": 2 ** 40, "loss": 1, "eval_set_loss": 2, "time": 2e9})
    with open("odd.jsonl", "w") as f:
        f.write("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 5, "lo')
    board("odd", "odd.jsonl", lines)


def trainer():
    from transformers import TrainerState
    history = [{"loss": 3.5 / s, "grad_norm": math.nan if s == 3 else 1 / s, "learning_rate": 1e-4 / s,
                "epoch": s / 10, "step": s} for s in range(1, 6)]
    history.append({"eval_loss": 0.5, "eval_runtime": 0.25, "epoch": 0.5, "step": 5})
    state = TrainerState(max_steps=10, global_step=5, log_history=history)
    os.makedirs("out/checkpoint-5")
    state.save_to_json("out/checkpoint-5/trainer_state.json")
    board("checkpoint-5/trainer_state", "out", history)
    run = subprocess.run([args.ztrain, "report", "out"], capture_output=True, text=True)
    check("ztrain report of it", run.returncode == 0 and "0.5000 at 5" in run.stdout
          and "the log ends at step 5 of 10" in run.stdout)


parser = argparse.ArgumentParser()
parser.add_argument("work")
parser.add_argument("--ztrain", required=True)
parser.add_argument("--fixtures", required=True)
args = parser.parse_args()
numpy.seterr(over="ignore")
try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as e:
    print("skipped: TensorBoard is not installed and could not be fetched (%s)" % e)
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)
args.ztrain = os.path.abspath(args.ztrain)
args.fixtures = os.path.abspath(args.fixtures)
os.makedirs(args.work, exist_ok=True)
os.chdir(args.work)
trained()
odd()
trainer()
print("%d passed, %d failed, 0 skipped" % (passed, failed))
sys.exit(failed != 0)
