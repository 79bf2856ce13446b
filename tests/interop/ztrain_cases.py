"""Does stock DeepSpeed go on with what ztrain saved, and ztrain with what DeepSpeed saved?

    ztrain_cases.py --ztrain PROGRAM --fixtures DIR [--only TEXT] [--keep DIR]

For each case (a model of the fixtures, a precision, a stage, N ranks, one or two param groups):

  1. ztrain trains at N ranks and saves step 3 in DeepSpeed's form; the same run saves it in the
     universal form, which is what states are compared with; and it goes on.
  2. DeepSpeed, with transformers' own model of that config.json and the same configuration, loads
     the step, no flag: masters, moments, weights to the bit; counters, rate, loss scale and client
     state equal. The next three steps on the same tokens must have the losses, norms, rates and
     loss scales of ztrain's.
  3. Some load the universal form (load_universal) in the same way.
  4. DeepSpeed saves step 6 and makes two more. ztrain resumes that at another number of ranks and
     another stage, and must have the losses of those two.

All engines of one world size run in one group of forked ranks. The last line is
`N passed, N failed, N skipped`.
"""
import argparse
import copy
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
MPIRUN = os.path.join(HERE, "..", "lib", "run", "mpirun")
SAVED, TAUGHT, AFTER = 3, 3, 2      # steps of ztrain, then of DeepSpeed, then of both
BATCH, TOTAL = 8, 20
# Losses: as fixtures/model.md has it (fp32 2e-5; 16 bits 0.01). Norms: relative.
LOSS = {"fp32": 2e-5, "bf16": 1e-2, "fp16": 1e-2}
NORM = {"fp32": 2e-5, "bf16": 3e-2, "fp16": 3e-2}
HYPER = {"lr": 3e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}

# model, precision, stage, ranks, rows of a micro-batch, groups; ranks and stage for the way back
CASES = [
    ("qwen3_tied", "bf16", 2, 2, 2, "one", 4, 3),
    ("llama3", "bf16", 3, 2, 1, "two", 1, 0),
    ("qwen25_tied", "bf16", 1, 4, 2, "two", 2, 2),
    ("qwen25", "fp32", 3, 4, 1, "one", 2, 1),
    ("llama3_tied", "fp32", 2, 2, 2, "two", 1, 3),
    ("qwen3", "fp32", 1, 1, 4, "two", 2, 2),
    ("llama3", "fp16", 2, 4, 1, "one", 1, 1),
    ("qwen3_tied", "fp16", 1, 2, 2, "two", 4, 2),
    ("qwen25_tied", "fp16", 3, 1, 8, "one", 2, 3),
    ("qwen25", "bf16", 3, 1, 2, "two", 4, 1),
]
UNIVERSAL = (0, 1, 3)               # stages 2, 3 (two groups), 3 (one)


def name_of(c):
    return "%s %s stage %d, %d ranks, %s group%s" % (c[0], c[1], c[2], c[3], c[5],
                                                     "" if c[5] == "one" else "s")


def config_of(c, stage=None, rows=None):
    model, precision, own, world, micro, groups, _, _ = c
    out = {"train_batch_size": BATCH, "train_micro_batch_size_per_gpu": rows or micro,
           "gradient_clipping": 1.0,
           "zero_optimization": {"stage": own if stage is None else stage},
           "scheduler": {"type": "WarmupDecayLR", "params": {
               "warmup_num_steps": 2, "total_num_steps": TOTAL, "warmup_max_lr": HYPER["lr"]}}}
    if groups == "one":
        out["optimizer"] = {"type": "AdamW", "params": dict(HYPER, torch_adam=True)}
    if precision == "bf16":
        out["bf16"] = {"enabled": True}
    if precision == "fp16":
        # One rank with one micro-batch: the first steps are skipped, it grows later, and is halved
        # again. Else DeepSpeed sums in 16 bits, over micro-batches and before it divides by the
        # number of ranks, and overflows at lower scales than ztrain, which sums in fp32: there it
        # begins low and grows.
        out["fp16"] = {"enabled": True, "initial_scale_power": 21 if world == 1 else 9,
                       "loss_scale_window": 2, "hysteresis": 1}
    return out


# ------------------------------------------------------------------ ztrain
class Failed(Exception):
    pass


def ztrain(a, c, work, world, stage, args):
    """Runs it. Returns {step: (loss, lr, norm, scale)}."""
    path = os.path.join(work, "z%d-%d.json" % (stage, world))
    rows = c[4] if world == c[3] else 1
    with open(path, "w") as f:
        json.dump(config_of(c, stage, rows), f)
    cmd = [] if world == 1 else [MPIRUN, "-n", str(world)]
    cmd += [a.ztrain, "--model", os.path.join(a.fixtures, "model", "models", c[0]), "--config",
            path, "--data", a.data, "--seq", str(a.tokens), "--steps", str(TOTAL), "--exact"]
    if c[5] == "two":
        cmd += ["--lr", repr(HYPER["lr"]), "--beta1", repr(HYPER["betas"][0]), "--beta2",
                repr(HYPER["betas"][1]), "--weight-decay", repr(HYPER["weight_decay"])]
    r = subprocess.run(cmd + args, capture_output=True, text=True, timeout=120,
                       stdin=subprocess.DEVNULL)
    if r.returncode:
        raise Failed("ztrain %s: exit %d: %s" % (" ".join(args), r.returncode,
                                                 (r.stderr or r.stdout).strip()[-500:]))
    out = {}
    for line in r.stdout.splitlines():
        m = re.match(r"step (\d+)  loss (\S+)  lr (\S+)  norm (\S+)(?:  scale (\S+))?", line)
        if m:
            out[int(m[1])] = tuple(float(x) for x in m.groups()[1:4]) + (float(m[5] or 1),)
    return out


def first_part(a, c, work):
    """Steps 1 to SAVED in two forms, and the steps that come after."""
    for form in ("deepspeed", "universal"):
        ztrain(a, c, work, c[3], c[2], ["--stop-at", str(SAVED), "--save", os.path.join(work, form),
                                        "--save-format", form])
    return ztrain(a, c, work, c[3], c[2], [
        "--stop-at", str(SAVED + TAUGHT), "--save", os.path.join(work, "on"),
        "--resume", os.path.join(work, "deepspeed")])


def truth_of(work):
    import torch
    out = {}
    zero = os.path.join(work, "universal", "global_step%d" % SAVED, "zero")
    for n in sorted(os.listdir(zero)):
        for state, what in (("fp32", "master"), ("exp_avg", "exp_avg"),
                            ("exp_avg_sq", "exp_avg_sq")):
            path = os.path.join(zero, n, state + ".pt")
            if os.path.exists(path):
                t = torch.load(path, weights_only=False)
                out[n + "|" + what] = t["param"] if isinstance(t, dict) else t
    return out


# ------------------------------------------------------------------ DeepSpeed, on every rank
def decays(name):
    return not (name.endswith("bias") or "norm" in name)


def build(a, c, universal):
    import deepspeed
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    config = copy.deepcopy(config_of(c))
    config["steps_per_print"] = 1 << 30
    if universal:
        config["checkpoint"] = {"load_universal": True}
    torch.manual_seed(99)
    net = AutoModelForCausalLM.from_config(
        AutoConfig.from_pretrained(os.path.join(a.fixtures, "model", "models", c[0])),
        dtype=torch.float32, attn_implementation="eager")
    optimizer = None
    if c[5] == "two":
        named = list(net.named_parameters())
        optimizer = torch.optim.AdamW(
            [{"params": [p for n, p in named if decays(n)], "weight_decay": HYPER["weight_decay"]},
             {"params": [p for n, p in named if not decays(n)], "weight_decay": 0.0}],
            lr=HYPER["lr"], betas=tuple(HYPER["betas"]), eps=HYPER["eps"])
    engine, _, _, _ = deepspeed.initialize(model=net, optimizer=optimizer, config=config,
                                           model_parameters=net.parameters())
    return engine, net


def train(a, c, engine, step, rank, world):
    """One step: the mean of its micro-batches' losses over all ranks, and the norm."""
    import torch
    import torch.distributed as dist
    micro, loss_sum = c[4], 0.0
    acc = BATCH // (world * micro)
    ids = torch.from_numpy(a.rows.astype(np.int64))
    for m in range(acc):
        at = BATCH * step + (m * world + rank) * micro
        x = ids[at:at + micro]
        loss = engine(input_ids=x, labels=x, use_cache=False).loss
        loss_sum += float(loss.detach().float()) / acc
        engine.backward(loss)
        engine.step()
    t = torch.tensor([loss_sum / world], dtype=torch.float64)
    dist.all_reduce(t)
    norm = engine.get_global_grad_norm()
    return float(t), float(norm) if norm is not None else None


def scale_of(engine):
    return float(getattr(engine.optimizer, "cur_scale", 1.0) or 1.0)


def check_states(got, truth):
    said, equal = [], 0
    for k, t in truth.items():
        g = got.get(k)
        if g is None:
            said.append("%s is missing" % k)
        elif g.dtype != t.dtype or g.numel() != t.numel() or \
                not g.reshape(-1).equal(t.reshape(-1)):     # stage 3's converter makes them flat
            said.append("%s has other bits" % k)
        else:
            equal += 1
    said += ["%s came from nowhere" % k for k in got
             if k not in truth and not k.endswith(("|weight", "|buffer"))]
    return equal, said


def check_counters(c, engine, client, on):
    loss, lr, norm, scale = on[SAVED + 1]
    said = []
    for what, have, want in (("global_steps", engine.global_steps, SAVED),
                             ("global_samples", engine.global_samples, SAVED * BATCH),
                             ("rate", engine.get_lr()[0], lr)):
        if have != want:
            said.append("%s is %s, want %s" % (what, have, want))
    if c[1] == "fp16" and scale_of(engine) != scale:
        said.append("loss scale %s, want %s" % (scale_of(engine), scale))
    if "ztrain_data" not in client or json.loads(client["ztrain_data"])["consumed"] != \
            SAVED * BATCH:
        said.append("the client's state is %s" % list(client))
    return said


def count_with_tensors(engine):
    """The universal loader hands torch's AdamW the number that DeepSpeed's own optimizers count
    with; its step() wants a tensor. Returns what was not the number of updates."""
    import torch
    base = getattr(engine.optimizer, "optimizer", engine.optimizer)
    said = []
    for state in base.state.values():
        if "step" in state:
            if int(state["step"]) != SAVED:
                said.append("the optimizer counts %s, want %d" % (state["step"], SAVED))
            state["step"] = torch.tensor(float(state["step"]))
    return said


def same_norm(c, theirs, mine):
    """In a step in which the loss scale grows, DeepSpeed's stage 3 tells half of the norm."""
    if theirs is None or not math.isfinite(theirs) or not math.isfinite(mine):
        return theirs is None or math.isfinite(theirs) == math.isfinite(mine)
    factors = (1, 2) if c[1] == "fp16" and c[2] == 3 else (1,)
    return any(abs(theirs * k - mine) <= NORM[c[1]] * mine for k in factors)


def go_on(a, c, engine, on, steps, rank, world):
    """(worst difference of a loss, sentences)"""
    said, worst = [], 0.0
    for s in range(SAVED, SAVED + steps):
        loss, lr, norm, scale = on[s + 1]
        had_lr, had_scale = engine.get_lr()[0], scale_of(engine)
        got, got_norm = train(a, c, engine, s, rank, world)
        worst = max(worst, abs(got - loss) if got == got else math.inf)
        if not abs(got - loss) <= LOSS[c[1]]:
            said.append("loss of step %d is %.9g, ztrain's %.9g" % (s + 1, got, loss))
        if not same_norm(c, got_norm, norm):
            said.append("norm of step %d is %.9g, ztrain's %.9g" % (s + 1, got_norm, norm))
        if had_lr != lr:
            said.append("rate of step %d is %.17g, ztrain's %.17g" % (s + 1, had_lr, lr))
        if c[1] == "fp16" and had_scale != scale:
            said.append("loss scale of step %d is %g, ztrain's %g" % (s + 1, had_scale, scale))
    return worst, said


def resume(a, c, job, rank, world, report):
    import dsrank
    work, on = job["work"], job["on"]
    began = time.time()
    engine, net = build(a, c, job["universal"])
    src = os.path.join(work, "universal" if job["universal"] else "deepspeed")
    path, client = engine.load_checkpoint(src)
    if path is None:
        raise RuntimeError("load_checkpoint found nothing in %s" % src)
    state = dsrank.gather(engine, net)
    equal, said = check_states(state, truth_of(work)) if rank == 0 else (0, [])
    wanted = len(job["truth"])
    if not job["universal"]:
        said += check_counters(c, engine, client, on)
    else:
        said += count_with_tensors(engine)
    # Of a universal step, stage 3 gives all groups the first one's hyper-parameters.
    steps = TAUGHT if not job["universal"] else 0 if c[2] == 3 and c[5] == "two" else 1
    worst, more = go_on(a, c, engine, on, steps, rank, world)
    result = {"id": job["id"], "equal": equal, "wanted": wanted, "worst": worst,
              "said": said + more, "after": []}
    if not job["universal"]:
        engine.save_checkpoint(os.path.join(work, "back"), tag="global_step%d" % (SAVED + TAUGHT),
                               client_state={})
        for s in range(SAVED + TAUGHT, SAVED + TAUGHT + AFTER):
            result["after"].append((engine.get_lr()[0],) + train(a, c, engine, s, rank, world))
    if rank == 0:
        report(dict(result, seconds=time.time() - began))
    if hasattr(engine, "destroy"):
        engine.destroy()


def run_all(a, jobs, results):
    """Everything of one world size in one group; what ends a group is that job's failure."""
    import dsrank
    dsrank.prepare()
    done = {}

    def report(result):
        with open(results, "a") as f:
            f.write(json.dumps(result) + "\n")

    for world in sorted({j["case"][3] for j in jobs}):
        todo = [j for j in jobs if j["case"][3] == world]
        while todo:
            said = dsrank.fork_ranks(world, lambda rank, size: [
                resume(a, j["case"], j, rank, size, report) for j in todo])
            if os.path.exists(results):
                with open(results) as f:
                    done = {r["id"]: r for r in map(json.loads, f)}
            left = [j for j in todo if j["id"] not in done]
            if left and said:
                report({"id": left[0]["id"], "equal": 0, "wanted": 0, "worst": math.inf,
                        "said": [said[-700:]], "after": []})
                left = left[1:]
            todo = left if said else []
    with open(results) as f:
        return {r["id"]: r for r in map(json.loads, f)}


# ------------------------------------------------------------------ and back
def way_back(a, c, job, result):
    """ztrain goes on with DeepSpeed's step, at another number of ranks and another stage."""
    first = SAVED + TAUGHT
    got = ztrain(a, c, job["work"], c[6], c[7], [
        "--stop-at", str(first + AFTER), "--save", os.path.join(job["work"], "mine"), "--resume",
        os.path.join(job["work"], "back")])
    worst, said = 0.0, []
    for i, (lr, loss, norm) in enumerate(result["after"]):
        have = got.get(first + i + 1)
        if have is None:
            said.append("back: there is no step %d" % (first + i + 1))
            continue
        # micro-batches are cut otherwise, but all labels count: the mean is the same
        worst = max(worst, abs(have[0] - loss))
        if not abs(have[0] - loss) <= LOSS[c[1]]:
            said.append("back: loss of step %d is %.9g, DeepSpeed's %.9g" % (first + i + 1,
                                                                            have[0], loss))
        if have[1] != lr:
            said.append("back: rate of step %d is %.17g, DeepSpeed's %.17g" % (first + i + 1,
                                                                              have[1], lr))
        if not same_norm(c, norm, have[2]):
            said.append("back: norm of step %d is %.9g, DeepSpeed's %.9g" % (first + i + 1,
                                                                            have[2], norm))
    return worst, said


def prepare(a, work):
    from safetensors.numpy import load_file
    rows = load_file(os.path.join(a.fixtures, "model", "train", "data.safetensors"))["input_ids"]
    a.rows, a.tokens = rows, rows.shape[1]
    a.data = os.path.join(work, "data.u16")
    rows.astype("<u2").tofile(a.data)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--ztrain", default=os.environ.get("ZTRAIN"))
    ap.add_argument("--fixtures", default=os.environ.get("ZCKPT_FIXTURES"))
    ap.add_argument("--only", help="part of a case's name")
    ap.add_argument("--keep", help="a folder to keep everything in")
    a = ap.parse_args()
    work = a.keep or tempfile.mkdtemp(prefix="zckpt-ztrain-")
    os.makedirs(work, exist_ok=True)
    prepare(a, work)
    jobs, failed, passed = [], [], 0
    for i, c in enumerate(CASES):
        if a.only and a.only not in name_of(c):
            continue
        folder = os.path.join(work, "case%d" % i)
        os.makedirs(folder)
        try:
            on = first_part(a, c, folder)
        except (Failed, subprocess.TimeoutExpired) as e:
            failed.append("%s: %s" % (name_of(c), e))
            continue
        job = {"id": name_of(c), "case": c, "work": folder, "on": on, "universal": False}
        jobs.append(dict(job, truth=truth_of(folder)))
        if i in UNIVERSAL:
            jobs.append(dict(jobs[-1], id=name_of(c) + ", universal", universal=True))
    results = run_all(a, jobs, os.path.join(work, "results"))
    print("| case | states equal | losses off by | back: ranks, stage | losses off by | |")
    print("| --- | ---: | ---: | --- | ---: | --- |")
    for j in jobs:
        c, r = j["case"], results.get(j["id"], {"said": ["it was not run"], "after": []})
        said, back, where = list(r["said"]), None, "-"
        if r["after"]:
            where = "%d, %d" % (c[6], c[7])
            try:
                back, more = way_back(a, c, j, r)
                said += more
            except (Failed, subprocess.TimeoutExpired) as e:
                said.append(str(e))
        if r.get("equal", 0) != r.get("wanted", -1) or not r.get("wanted"):
            said.append("%s of %s states are equal" % (r.get("equal"), r.get("wanted")))
        print("| %s | %d/%d | %.1e | %s | %s | %s |" % (
            j["id"], r.get("equal", 0), r.get("wanted", 0), r.get("worst", math.inf), where,
            "-" if back is None else "%.1e" % back, "FAILED" if said else "ok"))
        failed += ["%s: %.600s" % (j["id"], s) for s in said[:4]]
        passed += not said
    if not a.keep:
        shutil.rmtree(work, ignore_errors=True)
    for s in failed:
        print("FAILED %s" % s)
    print("%d passed, %d failed, 0 skipped" % (passed, len(failed)))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
