"""Does transformers' Trainer resume the folders that ztrain saves, and ztrain those of the Trainer?

    trainer_cases.py --ztrain PROGRAM --zckpt PROGRAM --fixtures DIR [--only TEXT] [--keep DIR]

For each case (a model of the fixtures, a schedule, weight decay, micro-batches):

  1. ztrain trains to step 3 at some ranks and a stage and saves checkpoint-3; the Trainer resumes it
     with resume_from_checkpoint, must load every weight, moment and count, and must have the losses,
     norms and rates that ztrain has in the next three steps.  What both then save is compared.
  2. The Trainer trains, saves checkpoint-3 and makes three more steps.  ztrain resumes the folder at
     several numbers of ranks and stages and must have the Trainer's losses.  `zckpt reshard` makes a
     step of each other form of it, and of each the folder again, with the same bits.
  3. The same with the scale of a GradScaler, in scaler.pt.
  4. The same with a Trainer of two processes, whose generators are in a file each.
  5. Folders of other optimizers (Adafactor, SGD, AMSGrad), of frozen parameters, without config.json
     and of another model are refused, or read, by name.

The last line is `N passed, N failed, N skipped`.
"""
import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import torch
from safetensors.numpy import load_file
from transformers import (AutoModelForCausalLM, PrinterCallback, Trainer, TrainerCallback,
                          TrainingArguments)
from transformers.utils import logging

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
logging.disable_progress_bar()
HERE = os.path.dirname(os.path.abspath(__file__))
ENVRUN = os.path.join(HERE, "..", "lib", "run", "envrun")
SAVED, LAST, WARMUP, LR = 3, 6, 2, 3e-3
LOSS = 2e-5                         # fp32, as fixtures/model.md has it
STATE = 1e-4                        # relative L2 of weights and moments after three more steps
ROWS = 8                            # of a step

# model, schedule, weight decay, rows of a micro-batch, (ranks, stage) that save, those that resume
CASES = [
    ("qwen3_tied", "cosine", 0.1, 4, (1, 0), [(1, 0), (2, 2), (4, 3)]),
    ("llama3", "linear", 0.1, 2, (2, 2), [(2, 3)]),
    ("qwen25", "constant_with_warmup", 0.0, 4, (2, 3), [(1, 1)]),
]


class Failed(Exception):
    pass


def name_of(c):
    return "%s %s decay %g, %d rows, saved by %d ranks of stage %d" % (c[:4] + c[4])


def model_of(a, c):
    return os.path.join(a.fixtures, "model", "models", c[0])


def run(cmd):
    return subprocess.run(cmd, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)


def ztrain_call(a, c, world, stage, args, model=None):
    """Runs ztrain; its exit code, its text, and {step: (loss, lr, norm)}."""
    config = {"train_batch_size": ROWS, "train_micro_batch_size_per_gpu": ROWS // max(world, ROWS // c[3]),
              "gradient_clipping": 1.0, "zero_optimization": {"stage": stage}}
    path = os.path.join(a.work, "z.json")
    with open(path, "w") as f:
        json.dump(config, f)
    cmd = [] if world == 1 else [ENVRUN, "-n", str(world)]
    cmd += [a.ztrain, "--device", "cpu", "--model", model or model_of(a, c), "--config", path,
            "--data", a.data, "--seq", str(a.tokens), "--steps", str(LAST), "--exact", "--lr", repr(LR),
            "--weight-decay", repr(c[2]), "--lr-scheduler", c[1], "--warmup-steps", str(WARMUP)]
    r = run(cmd + args)
    found = re.findall(r"^step (\d+)  loss (\S+)  lr (\S+)  norm (\S+)", r.stdout, re.M)
    return r.returncode, r.stdout + r.stderr, {int(n): (float(x), float(y), float(z))
                                               for n, x, y, z in found}


def ztrain(a, c, world, stage, args):
    code, text, steps = ztrain_call(a, c, world, stage, args)
    if code:
        raise Failed("ztrain %s: exit %d: %s" % (" ".join(args), code, text.strip()[-500:]))
    return text, steps


def zckpt(a, *args):
    r = run([a.zckpt, *args])
    if r.returncode:
        raise Failed("zckpt %s: exit %d: %s" % (" ".join(args), r.returncode, r.stderr.strip()[-500:]))
    return r.stdout


# ------------------------------------------------------------------ the Trainer
class Rows(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i], "labels": self.rows[i]}


class Watch(TrainerCallback):
    def __init__(self):
        self.lr = {}

    def on_pre_optimizer_step(self, args, state, control, optimizer=None, **_):
        self.lr[state.global_step + 1] = optimizer.param_groups[0]["lr"]


class Exact(Trainer):
    """Its log rounds losses to four digits."""
    seen = None

    def training_step(self, *args, **kw):
        loss = super().training_step(*args, **kw)
        if self.seen is None:
            self.seen = {}
        at = self.state.global_step + 1
        self.seen[at] = self.seen.get(at, 0.0) + float(loss)
        return loss


def trainer(a, c, out, prepare=None, **more):
    torch.manual_seed(99)
    net = AutoModelForCausalLM.from_pretrained(model_of(a, c), dtype=torch.float32,
                                               attn_implementation="eager")
    if prepare:
        net = prepare(net) or net
    args = TrainingArguments(**dict(dict(
        output_dir=out, max_steps=LAST, save_steps=SAVED, logging_steps=1, report_to=[], use_cpu=True,
        per_device_train_batch_size=c[3], gradient_accumulation_steps=ROWS // c[3],
        learning_rate=LR, weight_decay=c[2], lr_scheduler_type=c[1], warmup_steps=WARMUP,
        max_grad_norm=1.0, train_sampling_strategy="sequential", disable_tqdm=True), **more))
    watch = Watch()
    t = Exact(model=net, args=args, train_dataset=Rows(a.rows), callbacks=[watch])
    t.remove_callback(PrinterCallback)
    t.watch = watch
    return t


def spoil(net):
    """Weights that are not loaded would show."""
    with torch.no_grad():
        for p in net.parameters():
            p.fill_(0.5)


def near(what, got, want):
    worst = 0.0
    for n in sorted(k for k in want if k > SAVED):
        if n not in got or n not in want:
            raise Failed("%s: step %d is missing" % (what, n))
        off = abs(got[n] - want[n]) / max(abs(want[n]), 1e-30)
        if not off <= LOSS:
            raise Failed("%s: step %d has %.9g, want %.9g" % (what, n, got[n], want[n]))
        worst = max(worst, off)
    return worst


def rel(x, y):
    x, y = x.double().flatten(), y.double().flatten()
    return float((x - y).norm() / y.norm().clamp_min(1e-30))


def same_folders(mine, theirs, weights="model.safetensors"):
    """Weights and optimizer of two folders checkpoint-N."""
    worst = 0.0
    x, y = (load_file(os.path.join(d, weights)) for d in (mine, theirs))
    if x.keys() != y.keys():
        raise Failed("other tensors: %s" % sorted(x.keys() ^ y.keys()))
    for k in y:
        worst = max(worst, rel(torch.from_numpy(x[k]), torch.from_numpy(y[k])))
    x, y = (torch.load(os.path.join(d, "optimizer.pt"), weights_only=True) for d in (mine, theirs))
    if [g["params"] for g in x["param_groups"]] != [g["params"] for g in y["param_groups"]]:
        raise Failed("param groups have other parameters")
    for i, s in y["state"].items():
        if float(x["state"][i]["step"]) != float(s["step"]):
            raise Failed("parameter %d is at step %s, want %s" % (i, x["state"][i]["step"], s["step"]))
        for k in ("exp_avg", "exp_avg_sq"):
            if x["state"][i][k].shape != s[k].shape:
                raise Failed("%s of parameter %d has another shape" % (k, i))
            worst = max(worst, rel(x["state"][i][k], s[k]))
    for g, h in zip(x["param_groups"], y["param_groups"]):
        for k in ("lr", "betas", "eps", "weight_decay", "initial_lr"):
            if not np.allclose(g[k], h[k], rtol=1e-12, atol=0):
                raise Failed("a param group has %s %s, want %s" % (k, g[k], h[k]))
    if worst > STATE:
        raise Failed("weights or moments differ by %.2e" % worst)
    return worst


# ------------------------------------------------------------------ cases
def loads(a, c):
    """What ztrain saved, in the Trainer."""
    out = os.path.join(a.work, "ours")
    ztrain(a, c, c[4][0], c[4][1], ["--stop-at", str(SAVED), "--save", out, "--save-format", "trainer"])
    _, want = ztrain(a, c, c[4][0], c[4][1], ["--save", out, "--save-format", "trainer", "--resume",
                                             os.path.join(out, "checkpoint-%d" % SAVED)])
    t = trainer(a, c, os.path.join(a.work, "theirs"), spoil)
    t.train(resume_from_checkpoint=os.path.join(out, "checkpoint-%d" % SAVED))
    if min(t.seen) != SAVED + 1:
        raise Failed("the Trainer begins at step %d" % min(t.seen))
    worst = near("loss of the Trainer", t.seen, {n: v[0] for n, v in want.items()})
    near("rate of the Trainer", t.watch.lr, {n: v[1] for n, v in want.items()})
    norms = {int(h["step"]): h["grad_norm"] for h in t.state.log_history if "grad_norm" in h}
    near("norm of the Trainer", norms, {n: v[2] for n, v in want.items()})
    off = same_folders(os.path.join(out, "checkpoint-%d" % LAST),
                       os.path.join(a.work, "theirs", "checkpoint-%d" % LAST))
    return "losses off by %.1e, states by %.1e" % (worst, off)


def resumes(a, c):
    """What the Trainer saved, in ztrain."""
    out = os.path.join(a.work, "full")
    t = trainer(a, c, out)
    t.train()
    folder = os.path.join(out, "checkpoint-%d" % SAVED)
    worst = 0.0
    for world, stage in c[5]:
        text, steps = ztrain(a, c, world, stage, ["--resume", folder])
        if "resumed at step %d" % SAVED not in text:
            raise Failed("ztrain does not say where it resumes: %s" % text[-600:])
        worst = max(worst, near("%d ranks of stage %d" % (world, stage),
                                {n: v[0] for n, v in steps.items()}, t.seen))
        near("rates", {n: v[1] for n, v in steps.items()}, t.watch.lr)
    zckpt(a, "verify", "-q", "--full", folder)
    forms = ("native", "universal", "deepspeed", "dcp", "fsdp-ranks")
    for form in forms:
        there, back = os.path.join(a.work, form), os.path.join(a.work, form + ".back")
        zckpt(a, "reshard", "-q", "--to", form, "--world", "2", folder, there)
        zckpt(a, "reshard", "-q", "--to", "trainer", there, back)
        back = os.path.join(back, "checkpoint-%d" % SAVED)
        if same_folders(back, folder) != 0:
            raise Failed("by way of %s: other bits" % form)
    return "losses off by %.1e; %d forms and back" % (worst, len(forms))


def freeze(net):
    for p in net.model.embed_tokens.parameters():
        p.requires_grad_(False)


def expect(what, code, text, words):
    if code == 0 or not all(w in text for w in words):
        raise Failed("%s: exit %d, and it says %s" % (what, code, text.strip()[-500:]))


def refuses(a, c):
    folder = os.path.join(a.work, "full", "checkpoint-%d" % SAVED)
    n = 0
    for optim, words in (("adafactor", ["exp_avg_sq_row", "AdamW"]), ("sgd", ["AdamW"])):
        out = os.path.join(a.work, optim)
        trainer(a, c, out, optim=optim, max_steps=1, save_steps=1).train()
        bad = os.path.join(out, "checkpoint-1")
        code, text, _ = ztrain_call(a, c, 1, 0, ["--resume", bad])
        expect(optim, code, text, words)
        r = run([a.zckpt, "reshard", "--to", "native", bad, out + ".native"])
        expect(optim + ", reshard", r.returncode, r.stderr, ["zckpt convert"])
        zckpt(a, "convert", "-q", bad, out + ".hf")
        n += 2
    # without config.json nothing says what the numbers are; the weights can be read
    torn = os.path.join(a.work, "torn")
    shutil.copytree(folder, torn)
    os.remove(os.path.join(torn, "config.json"))
    code, text, _ = ztrain_call(a, c, 1, 0, ["--resume", torn])
    expect("no config.json", code, text, ["config.json"])
    zckpt(a, "convert", "-q", torn, torn + ".hf")
    # frozen parameters are not in the optimizer, which the shapes show
    out = os.path.join(a.work, "frozen")
    trainer(a, c, out, freeze, max_steps=1, save_steps=1).train()
    said = zckpt(a, "inspect", os.path.join(out, "checkpoint-1"))
    if not re.search(r"frozen +1 ", said):
        raise Failed("frozen: inspect says %s" % said[-800:])
    # another model
    other = os.path.join(a.work, "other")
    os.makedirs(other)
    with open(os.path.join(model_of(a, c), "config.json")) as f:
        config = json.load(f)
    config["intermediate_size"] += 8
    with open(os.path.join(other, "config.json"), "w") as f:
        json.dump(config, f)
    code, text, _ = ztrain_call(a, c, 1, 0, ["--resume", folder], model=other)
    expect("another model", code, text, ["mlp."])
    return "%d folders refused" % (n + 3)


def scaled(a, c, out, init=2.0 ** 10, begin=None):
    """A Trainer with a GradScaler, as fp16=True gives it on a GPU; 'begin' gets its state there."""
    class Begin(TrainerCallback):
        def on_step_begin(self, args, state, control, **_):
            if begin is not None and not begin:
                begin.update(t.accelerator.scaler.state_dict())
    t = trainer(a, c, out, max_grad_norm=0.0)
    t.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=init, growth_interval=2)
    t.add_callback(Begin())
    return t


def odd_scales(a, folder, saved):
    """Files that are not torch's, and a client that has a 'scaler' of its own."""
    def loaded(d, name):
        return torch.load(os.path.join(d, name), weights_only=True)
    odd, out = os.path.join(a.work, "odd"), os.path.join(a.work, "odd.out")
    for what in (dict(saved, x=torch.ones(4), y=[torch.ones(2)]), [1.0], dict(saved, scale=float("inf"))):
        shutil.rmtree(odd, ignore_errors=True)
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(folder, odd)
        torch.save(what, os.path.join(odd, "scaler.pt"))
        r = run([a.zckpt, "reshard", "-q", "--to", "trainer", odd, out])
        there = os.path.join(out, "checkpoint-%d" % SAVED)
        if r.returncode or ("NOT_IN_CHECKPOINT" in r.stderr) != ("x" not in what) or \
                os.path.exists(os.path.join(there, "scaler.pt")) != ("x" in what):
            raise Failed("scaler.pt with %s: %s" % (what, r.stderr))
        if "x" in what and (loaded(there, "scaler.pt") != saved or
                            loaded(there, "zckpt-step.pt")["scaler"] != saved):
            raise Failed("scaler.pt with tensors: %s" % loaded(there, "scaler.pt"))
    own = loaded(os.path.join(a.work, "native.back16", "checkpoint-%d" % SAVED), "zckpt-step.pt")
    own["scaler"] = {"mean": 1.5}
    shutil.copy(os.path.join(folder, "scaler.pt"), odd)
    torch.save(own, os.path.join(odd, "zckpt-step.pt"))
    shutil.rmtree(out, ignore_errors=True)
    zckpt(a, "reshard", "-q", "--to", "native", odd, out)
    zckpt(a, "reshard", "-q", "--to", "trainer", out, out + ".back")
    there = os.path.join(out + ".back", "checkpoint-%d" % SAVED)
    own = loaded(there, "zckpt-step.pt")
    if (own["scaler"], own["grad_scaler"], loaded(there, "scaler.pt")) != ({"mean": 1.5}, saved, saved):
        raise Failed("a client's scaler: %s" % own)


def scales(a, c):
    """The loss scale of fp16: scaler.pt, in both directions."""
    out = os.path.join(a.work, "scaled")
    scaled(a, c, out).train()
    folder, last = (os.path.join(out, "checkpoint-%d" % n) for n in (SAVED, LAST))
    saved = torch.load(os.path.join(folder, "scaler.pt"), weights_only=True)
    # by way of other forms the Trainer has the same scale, and then the same bits
    for form in ("native", "deepspeed", "torch-training"):
        there, back, again = (os.path.join(a.work, form + x) for x in (".pt", ".back16", ".more"))
        zckpt(a, "reshard", "-q", "--to", form, folder, there)
        zckpt(a, "reshard", "-q", "--to", "trainer", there, back)
        begin = {}
        scaled(a, c, again, 7.0, begin).train(
            resume_from_checkpoint=os.path.join(back, "checkpoint-%d" % SAVED))
        if begin != saved:
            raise Failed("by way of %s the Trainer begins with %s, want %s" % (form, begin, saved))
        again = os.path.join(again, "checkpoint-%d" % LAST)
        if same_folders(again, last) != 0:
            raise Failed("by way of %s: other bits" % form)
        if torch.load(os.path.join(again, "scaler.pt")) != torch.load(os.path.join(last, "scaler.pt")):
            raise Failed("by way of %s: another scale at the end" % form)
    odd_scales(a, folder, saved)
    # in ztrain, whose scale grows at the same steps, and what it saves in the Trainer
    config = os.path.join(a.work, "z16.json")
    with open(config, "w") as f:
        json.dump({"train_batch_size": ROWS, "train_micro_batch_size_per_gpu": c[3],
                   "fp16": {"enabled": True}}, f)
    ours = os.path.join(a.work, "ours16")
    r = run([a.ztrain, "--device", "cpu", "--model", model_of(a, c), "--config", config, "--data", a.data,
             "--seq", str(a.tokens), "--steps", str(LAST), "--lr", repr(LR), "--weight-decay", repr(c[2]),
             "--lr-scheduler", c[1], "--warmup-steps", str(WARMUP), "--resume", folder, "--exact",
             "--save", ours, "--save-format", "trainer", "--save-every", "1"])
    got = [float(x) for x in re.findall(r"^step .*  scale (\S+)", r.stdout, re.M)]
    want, tracker = [], saved["_growth_tracker"]
    scale = saved["scale"]
    for _ in range(SAVED, LAST):
        want.append(scale)
        tracker += 1
        if tracker == saved["growth_interval"]:
            scale, tracker = scale * 2, 0
    if r.returncode or got != want:
        raise Failed("ztrain has scales %s, want %s: %s" % (got, want, (r.stdout + r.stderr)[-500:]))
    begin = {}
    scaled(a, c, os.path.join(a.work, "theirs16"), 7.0, begin).train(
        resume_from_checkpoint=os.path.join(ours, "checkpoint-%d" % (LAST - 1)))
    at = torch.load(os.path.join(ours, "checkpoint-%d" % (LAST - 1), "scaler.pt"), weights_only=True)
    if begin != at or begin["scale"] != want[-1]:
        raise Failed("the Trainer begins with %s, want %s and a scale of %g" % (begin, at, want[-1]))
    return "scales of fp16 as GradScaler has them"


def train_several(a, c, world, out, resume=None):
    """A Trainer of 'world' processes; {step: loss}."""
    call = out + ".json"
    with open(call, "w") as f:
        json.dump({"fixtures": a.fixtures, "data": a.data, "tokens": a.tokens, "case": CASES.index(c),
                   "out": out, "resume": resume, "spoil": resume is not None}, f)
    os.makedirs(out)
    r = run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world),
             os.path.join(HERE, "trainer_rank.py"), call])
    if r.returncode:
        raise Failed("a Trainer of %d processes: exit %d: %s" % (world, r.returncode, r.stderr[-900:]))
    seen = {}
    for rank in range(world):
        with open(os.path.join(out, "seen.%d.json" % rank)) as f:
            for n, x in json.load(f).items():
                seen[int(n)] = seen.get(int(n), 0.0) + x
    return seen


def several(a, c):
    """A Trainer of two processes, in both directions."""
    out, at = os.path.join(a.work, "two"), "checkpoint-%d" % SAVED
    folder = os.path.join(out, at)
    want = train_several(a, c, 2, out)
    _, steps = ztrain(a, c, 2, 3, ["--resume", folder])
    worst = near("2 ranks of stage 3", {n: v[0] for n, v in steps.items()}, want)
    # by way of another form, with the generators of each process
    there, back = os.path.join(a.work, "two.native"), os.path.join(a.work, "two.back")
    zckpt(a, "reshard", "-q", "--to", "native", folder, there)
    zckpt(a, "reshard", "-q", "--to", "trainer", there, back)
    back = os.path.join(back, at)
    if same_folders(back, folder) != 0:
        raise Failed("two processes: other bits")
    for name in ("rng_state_0.pth", "rng_state_1.pth"):
        with open(os.path.join(folder, name), "rb") as f, open(os.path.join(back, name), "rb") as g:
            if f.read() != g.read():
                raise Failed("two processes: another %s" % name)
    got = train_several(a, c, 2, os.path.join(a.work, "two.again"), back)
    worst = max(worst, near("two processes, resumed", got, want))
    # what ztrain saved
    ours = os.path.join(a.work, "two.ours")
    _, steps = ztrain(a, c, 2, 2, ["--save", ours, "--save-format", "trainer", "--save-every", str(SAVED)])
    got = train_several(a, c, 2, os.path.join(a.work, "two.theirs"), os.path.join(ours, at))
    worst = max(worst, near("two processes, ours", got, {n: v[0] for n, v in steps.items()}))
    return "two processes: losses off by %.1e" % worst


def run_case(a, c):
    said = [loads(a, c), resumes(a, c)]
    if c is CASES[0]:
        said += [refuses(a, c), scales(a, c), several(a, c)]
    return "; ".join(said)


def read_rows(a, folder):
    rows = load_file(os.path.join(a.fixtures, "model", "train", "data.safetensors"))["input_ids"]
    a.rows, a.tokens = torch.from_numpy(rows.astype(np.int64)), rows.shape[1]
    a.data = os.path.join(folder, "data.u16")
    rows.astype("<u2").tofile(a.data)


def run_cases(needs, cases, name_of, run_case):
    """The command of this file and of trainer_lora.py."""
    ap = argparse.ArgumentParser()
    ap.add_argument("--ztrain", default=os.environ.get("ZTRAIN"))
    ap.add_argument("--zckpt", default=os.environ.get("ZCKPT"))
    ap.add_argument("--fixtures", default=os.environ.get("ZCKPT_FIXTURES"))
    ap.add_argument("--only", help="part of a case's name")
    ap.add_argument("--keep", help="a folder to keep everything in")
    a = ap.parse_args()
    for name in needs:
        if importlib.util.find_spec(name) is None:
            print("the Trainer needs %s, which is missing" % name)
            print("0 passed, 0 failed, 1 skipped")
            return 0
    top = os.path.abspath(a.keep or tempfile.mkdtemp(prefix="zckpt-trainer-"))
    os.makedirs(top, exist_ok=True)
    read_rows(a, top)
    passed = failed = 0
    for i, c in enumerate(cases):
        if a.only and a.only not in name_of(c):
            continue
        a.work = os.path.join(top, "case%d" % i)
        os.makedirs(a.work)
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
    sys.exit(run_cases(["accelerate"], CASES, name_of, run_case))
