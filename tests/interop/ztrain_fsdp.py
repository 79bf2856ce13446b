"""Does stock torch load the DCP folders that ztrain saves, and ztrain resume those of FSDP?

    ztrain_fsdp.py --ztrain PROGRAM --fixtures DIR [--only TEXT] [--keep DIR]

For each case (a model of the fixtures, a precision, a stage, N ranks, one or two param groups):

  1. ztrain trains at N ranks and saves step 3 as a DCP folder; the same run saves it in the universal
     form, whose states dcp.load() must give to the bit, and set_state_dict() must take.  In fp32 the
     next three losses of transformers' model and torch's AdamW must be ztrain's.
  2. transformers' model under fully_shard (FSDP2) trains at 2 ranks with AdamW and a schedule, saves
     step 3 by dcp.save() and makes three more.  ztrain resumes the folder at other numbers of ranks
     and other stages, and must have these losses and rates.  The folder says no number of samples:
     ztrain takes its own batch.  The same of the forms that torchtitan and accelerate write.
  3. Folders that are another model's, lack a moment, or have no count of steps or several
     are refused by name.

The last line is `N passed, N failed, N skipped`.
"""
import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions, get_optimizer_state_dict, get_state_dict, set_state_dict)
from transformers import AutoConfig, AutoModelForCausalLM, get_linear_schedule_with_warmup

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
HERE = os.path.dirname(os.path.abspath(__file__))
ENVRUN = os.path.join(HERE, "..", "lib", "run", "envrun")
SAVED, LAST, TOTAL, BATCH, WARMUP = 3, 6, 20, 8, 2
LOSS = 2e-5                         # fp32, as fixtures/model.md has it
LR, BETAS, EPS, DECAY = 3e-3, (0.9, 0.95), 1e-8, 0.1

# model, precision, stage, ranks, groups; and (ranks, stage) that resume what FSDP saved
CASES = [
    ("qwen3_tied", "fp32", 2, 2, "two", [(1, 0), (4, 3)]),
    ("llama3", "bf16", 3, 4, "one", []),
    ("llama3", "fp32", 1, 1, "one", [(2, 2)]),
]


class Failed(Exception):
    pass


def name_of(c):
    return "%s %s stage %d, %d ranks, groups: %s" % c[:5]


def model_of(a, c):
    return os.path.join(a.fixtures, "model", "models", c[0])


def call(a, c, world, stage, args, model=None):
    """Runs ztrain; its exit code, its text, and {step: (loss, lr)}."""
    config = {"train_batch_size": BATCH, "train_micro_batch_size_per_gpu": 1,
              "gradient_clipping": 1.0, "zero_optimization": {"stage": stage}}
    own = ["--lr", repr(LR), "--beta1", repr(BETAS[0]), "--beta2", repr(BETAS[1]),
           "--weight-decay", repr(DECAY)]
    if c[4] == "one":
        config["optimizer"] = {"type": "AdamW", "params": {
            "lr": LR, "betas": BETAS, "eps": EPS, "weight_decay": DECAY, "torch_adam": True}}
        own = []
    if c[1] == "bf16":
        config["bf16"] = {"enabled": True}
    path = os.path.join(a.work, "z.json")
    with open(path, "w") as f:
        json.dump(config, f)
    cmd = [] if world == 1 else [ENVRUN, "-n", str(world)]
    cmd += [a.ztrain, "--device", "cpu", "--model", model or model_of(a, c), "--config", path,
            "--data", a.data, "--seq", str(a.tokens), "--steps", str(TOTAL), "--exact",
            "--lr-scheduler", "linear", "--warmup-steps", str(WARMUP)]
    r = subprocess.run(cmd + own + args, capture_output=True, text=True, timeout=120,
                       stdin=subprocess.DEVNULL)
    found = re.findall(r"^step (\d+)  loss (\S+)  lr (\S+)", r.stdout, re.M)
    return r.returncode, r.stdout + r.stderr, {int(n): (float(x), float(y)) for n, x, y in found}


def ztrain(a, c, world, stage, args):
    code, text, steps = call(a, c, world, stage, args)
    if code:
        raise Failed("ztrain %s: exit %d: %s" % (" ".join(args), code, text.strip()[-500:]))
    return text, steps


# ------------------------------------------------------------------ torch
def decays(name):
    return not (name.endswith("bias") or "norm" in name)


class Run:
    def __init__(self, a, c, mesh=None):
        if mesh:
            from torch.distributed.fsdp import fully_shard
            self.net = AutoModelForCausalLM.from_pretrained(
                model_of(a, c), dtype=torch.float32, attn_implementation="eager")
            for layer in self.net.model.layers:
                fully_shard(layer, mesh=mesh)
            fully_shard(self.net, mesh=mesh)
        else:   # other weights, all of which are to be loaded
            torch.manual_seed(99)
            self.net = AutoModelForCausalLM.from_config(
                AutoConfig.from_pretrained(model_of(a, c)), dtype=torch.float32,
                attn_implementation="eager")
        named = list(self.net.named_parameters())
        groups = [{"params": [p for n, p in named if decays(n)], "weight_decay": DECAY},
                  {"params": [p for n, p in named if not decays(n)], "weight_decay": 0.0}]
        if c[4] == "one":
            groups = [{"params": [p for _, p in named], "weight_decay": DECAY}]
        self.opt = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS)
        self.sched = get_linear_schedule_with_warmup(self.opt, WARMUP, TOTAL)

    def state(self):
        model, optimizer = get_state_dict(self.net, self.opt)
        return {"model": model, "optimizer": optimizer, "lr_scheduler": self.sched.state_dict()}

    def step(self, a, step, rank=0, world=1):
        """Step number 'step' + 1: the mean of the losses, and the rate."""
        rate, rows = self.opt.param_groups[0]["lr"], BATCH // world
        x = a.rows[BATCH * step + rank * rows:][:rows]
        loss = self.net(input_ids=x, labels=x, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.opt.step()
        self.sched.step()
        self.opt.zero_grad()
        all_losses = loss.detach().double().reshape(1) / world
        if world > 1:
            dist.all_reduce(all_losses)
        return float(all_losses), rate


def fsdp_rank(a, c, rank, world, out):
    dist.init_process_group("gloo", init_method="file://%s.meet" % out, rank=rank,
                            world_size=world)
    mesh = dist.init_device_mesh("cpu", (world,))
    run = Run(a, c, mesh)
    for n in range(SAVED):
        run.step(a, n, rank, world)
    state = run.state()
    dcp.save(state, checkpoint_id=out)
    # as torchtitan and accelerate write them; the latter keeps the schedule in a file of its own
    flat = get_optimizer_state_dict(run.net, run.opt, options=StateDictOptions(
        flatten_optimizer_state_dict=True))
    dcp.save({**state["model"], **flat, "lr_scheduler": state["lr_scheduler"],
              "train_state": {"step": SAVED}}, checkpoint_id=out + ".titan")
    for part, folder in (("model", "pytorch_model_fsdp_0"), ("optimizer", "optimizer_0")):
        dcp.save({part: state[part]}, checkpoint_id=os.path.join(out + ".accelerate", folder))
    bare = {"model": state["model"], "optimizer": dict(state["optimizer"])}
    bare["optimizer"]["state"] = {n: {k: v for k, v in s.items() if k != "step"}
                                  for n, s in state["optimizer"]["state"].items()}
    dcp.save(bare, checkpoint_id=out + ".uncounted")
    first, *_, last = bare["optimizer"]["state"]
    state["optimizer"]["state"] = {n: dict(s) for n, s in state["optimizer"]["state"].items()}
    del state["optimizer"]["state"][first]["exp_avg_sq"]
    dcp.save(state, checkpoint_id=out + ".torn")
    state = run.state()
    state["optimizer"]["state"][last]["step"] -= 1
    dcp.save(state, checkpoint_id=out + ".mixed")
    state["optimizer"]["state"][last]["step"] += 1
    after = [run.step(a, n, rank, world) for n in range(SAVED, LAST)]
    if rank == 0:
        with open(out + ".json", "w") as f:
            json.dump({"after": after, "first": first, "last": last}, f)
    dist.destroy_process_group()


def fsdp(a, c, out, world=2):
    """A run of FSDP2 in forked ranks, which share what is imported.  Torch's threads do not survive
    a fork, so this process has computed nothing before."""
    pids = []
    for rank in range(world):
        pid = os.fork()
        if not pid:
            try:
                signal.alarm(100)
                torch.set_num_threads(1)  # remakes the thread pool before autograd's threads do
                fsdp_rank(a, c, rank, world, out)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        pids.append(pid)
    if any([os.waitpid(p, 0)[1] for p in pids]):
        raise Failed("FSDP did not save")


# ------------------------------------------------------------------ the cases
def near(what, have, want):
    if len(have) != len(want):
        raise Failed("%s: %d steps, want %d" % (what, len(have), len(want)))
    worst = 0.0
    for n, (x, y) in enumerate(zip(have, want)):
        worst = max(worst, abs(x[0] - y[0]))
        if not abs(x[0] - y[0]) <= LOSS:
            raise Failed("%s: loss of step %d is %.9g, want %.9g" % (what, SAVED + n + 1, x[0], y[0]))
        if not abs(x[1] - y[1]) <= 1e-12:
            raise Failed("%s: rate of step %d is %.17g, want %.17g" % (what, SAVED + n + 1, x[1], y[1]))
    return worst


def check_states(state, zero):
    """What was loaded has the bits of the universal form."""
    n = 0
    for name in sorted(os.listdir(zero)):
        for file, have in (("fp32", state["model"]), ("exp_avg", None), ("exp_avg_sq", None)):
            path = os.path.join(zero, name, file + ".pt")
            if not os.path.exists(path):
                continue
            want = torch.load(path, weights_only=False)
            want = want["param"] if isinstance(want, dict) else want
            t = have[name] if have else state["optimizer"]["state"][name][file]
            if t.dtype != want.dtype or not torch.equal(t.reshape(-1), want.reshape(-1)):
                raise Failed("%s of %s has other bits" % (file, name))
            n += 1
    for name, s in state["optimizer"]["state"].items():
        if float(s["step"]) != SAVED:
            raise Failed("%s is at step %s, want %d" % (name, s["step"], SAVED))
    if len(state["optimizer"]["state"]) * 3 != n:
        raise Failed("%d states were compared" % n)
    return n


def loads(a, c):
    """What ztrain saved, in torch."""
    for form in ("dcp", "universal"):
        ztrain(a, c, c[3], c[2], ["--stop-at", str(SAVED), "--save", os.path.join(a.work, form),
                                  "--save-format", form])
    folder = os.path.join(a.work, "dcp", "global_step%d" % SAVED)
    run = Run(a, c)
    state = run.state()
    for s in state["optimizer"]["state"].values():
        s["step"] = torch.tensor(-1.0)
    dcp.load(state, checkpoint_id=folder, no_dist=True)
    n = check_states(state, os.path.join(a.work, "universal", "global_step%d" % SAVED, "zero"))
    set_state_dict(run.net, run.opt, model_state_dict=state["model"],
                   optim_state_dict=state["optimizer"])
    run.sched.load_state_dict(state["lr_scheduler"])
    if c[1] != "fp32":
        return "%d states equal" % n
    _, steps = ztrain(a, c, 1, 0, ["--stop-at", str(LAST), "--resume",
                                   os.path.join(a.work, "dcp")])
    worst = near("loaded by torch", [run.step(a, k) for k in range(SAVED, LAST)],
                 [steps[k] for k in sorted(steps)])
    return "%d states equal, losses off by %.1e" % (n, worst)


def resumes(a, c, out):
    """What FSDP saved, in ztrain."""
    with open(out + ".json") as f:
        truth = json.load(f)
    worst = 0.0
    for world, stage in c[5]:
        text, steps = ztrain(a, c, world, stage, ["--stop-at", str(LAST), "--resume", out])
        if "continuing at row %d, after %d steps of %d rows" % (SAVED * BATCH, SAVED, BATCH) not in text:
            raise Failed("ztrain does not say where the data continues: %s" % text[-600:])
        worst = max(worst, near("%d ranks of stage %d" % (world, stage),
                                [steps[k] for k in sorted(steps)], truth["after"]))
    _, steps = ztrain(a, c, 1, 0, ["--stop-at", str(LAST), "--resume", out + ".titan"])
    worst = max(worst, near("of torchtitan's form", [steps[k] for k in sorted(steps)],
                            truth["after"]))
    text, steps = ztrain(a, c, 1, 0, ["--stop-at", str(SAVED + 1), "--resume", out + ".accelerate"])
    if "schedule: the step has none" not in text or \
            not abs(steps[SAVED + 1][0] - truth["after"][0][0]) <= LOSS:
        raise Failed("of accelerate's form: loss %.9g, want %.9g; it says %s" % (
            steps[SAVED + 1][0], truth["after"][0][0], text[-600:]))
    return truth, "losses off by %.1e" % worst


def refuses(a, c, out, truth):
    """Folders that ztrain must not begin with."""
    other = os.path.join(a.work, "other")
    os.makedirs(other, exist_ok=True)
    with open(os.path.join(model_of(a, c), "config.json")) as f:
        config = json.load(f)
    layers = config["num_hidden_layers"]
    for what, folder, change, words in (
            ("another width", out, {"intermediate_size": config["intermediate_size"] + 8},
             ["mlp.", "elements"]),
            ("fewer layers", out, {"num_hidden_layers": layers - 1, "layer_types": None},
             ["model.layers.%d." % (layers - 1)]),
            ("more layers", out, {"num_hidden_layers": layers + 1, "layer_types": None},
             ["model.layers.%d." % layers]),
            ("a moment is missing", out + ".torn", {}, [truth["first"], "exp_avg_sq"]),
            ("no count of steps", out + ".uncounted", {}, ["has a count of steps"]),
            ("counts that differ", out + ".mixed", {},
             [truth["last"], "%d times" % (SAVED - 1), "%d times" % SAVED])):
        mine = {k: v for k, v in dict(config, **change).items() if v is not None}
        with open(os.path.join(other, "config.json"), "w") as f:
            json.dump(mine, f)
        code, text, _ = call(a, c, 1, 0, ["--stop-at", str(LAST), "--resume", folder], model=other)
        if code == 0 or not all(w in text for w in words):
            raise Failed("%s: exit %d, and it says %s" % (what, code, text.strip()[-400:]))
    return "6 folders refused"


def run_case(a, c):
    said = [loads(a, c)]
    if c[5]:
        out = os.path.join(a.work, "fsdp")
        truth, text = resumes(a, c, out)
        said += [text, refuses(a, c, out, truth)]
    return "; ".join(said)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--ztrain", default=os.environ.get("ZTRAIN"))
    ap.add_argument("--fixtures", default=os.environ.get("ZCKPT_FIXTURES"))
    ap.add_argument("--only", help="part of a case's name")
    ap.add_argument("--keep", help="a folder to keep everything in")
    a = ap.parse_args()
    from safetensors.numpy import load_file
    top = os.path.abspath(a.keep or tempfile.mkdtemp(prefix="zckpt-fsdp-"))
    os.makedirs(top, exist_ok=True)
    rows = load_file(os.path.join(a.fixtures, "model", "train", "data.safetensors"))["input_ids"]
    a.rows, a.tokens = torch.from_numpy(rows.astype(np.int64)), rows.shape[1]
    a.data = os.path.join(top, "data.u16")
    rows.astype("<u2").tofile(a.data)
    passed = failed = 0
    cases = [(os.path.join(top, "case%d" % i), c) for i, c in enumerate(CASES)
             if not a.only or a.only in name_of(c)]
    for a.work, c in cases:
        os.makedirs(a.work)
        if c[5]:
            fsdp(a, c, os.path.join(a.work, "fsdp"))
    for a.work, c in cases:
        try:
            print("ok %s: %s" % (name_of(c), run_case(a, c)))
            passed += 1
        except Exception as e:
            if not isinstance(e, Failed):
                traceback.print_exc()
            print("FAILED %s: %s: %.900s" % (name_of(c), type(e).__name__, e))
            failed += 1
        sys.stdout.flush()
    if not a.keep:
        shutil.rmtree(top, ignore_errors=True)
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
