"""Does ztrain train adapters and parts of a model as PEFT and transformers do?

    ztrain_lora.py --ztrain PROGRAM --zckpt PROGRAM --fixtures DIR [--only TEXT] [--keep DIR]

For each case (a model of the fixtures, what is trained, a stage, N ranks), in fp32:

  1. PEFT makes the adapters with random A and B and saves them; ztrain begins with that folder
     (--lora-from) and trains one step without clipping. The loss is torch's, and the gradients,
     taken from the first moments, are torch's with a relative L2 of 1e-5 each; names are those of
     PEFT's module.
  2. ztrain exports the adapter: PeftModel.from_pretrained loads it without a warning, and its
     logits are those of torch's module with ztrain's masters. --merge exports a model that stock
     transformers loads without a warning, equal to merge_and_unload within one rounding.
     `zckpt convert --to peft` of the step, in each form that ztrain saves, makes the same adapter
     from the step alone, and PEFT loads that too.
  3. Frozen parameters without adapters: the same of requires_grad = False.
  4. DeepSpeed, at as many ranks and the same stage, loads the step that ztrain saved in its layout
     (frozen fragments) into PEFT's module, strict, and has ztrain's losses of the next two steps; it
     saves, with frozen parameters and without, and ztrain resumes both at another number of ranks and
     another stage, with DeepSpeed's loss of the step after.

  5. transformers' Trainer, with PEFT's module, resumes the folder that ztrain saved in its layout, and
     has ztrain's losses of the next two steps.

Where a case has lora_dropout, PEFT's dropout modules drop what ztrain drops: the masks are made here,
from the description in kernels/include/kn_train.h. The Trainer and DeepSpeed, which draw their own, are
left out.

The last line is `N passed, N failed, N skipped`.
"""
import argparse
import fnmatch
import json
import logging
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

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
MPIRUN = os.path.join(HERE, "..", "lib", "run", "mpirun")
GRAD, LOSS, LOGIT = 1e-5, 2e-5, 1e-4
BETA1, LR = 0.9, 1e-3
ROWS, TOKENS = 4, 33

# model, LoraConfig's arguments or None, frozen, stage, ranks
CASES = [
    ("llama3", dict(r=4, lora_alpha=8), [], 0, 1),
    ("qwen25", dict(r=4, lora_alpha=16, target_modules="all-linear"), [], 2, 2),
    ("qwen3_tied", dict(r=3, lora_alpha=5, use_rslora=True, target_modules=[
        "q_proj", "k_proj", "o_proj", "up_proj", "down_proj"]), [], 3, 4),
    ("qwen25_tied", dict(r=8, lora_alpha=8, target_modules=["gate_proj"]), [], 1, 2),
    ("qwen25", dict(r=4, lora_alpha=16, lora_dropout=0.1, target_modules="all-linear"), [], 1, 2),
    ("qwen3_tied", dict(r=3, lora_alpha=5, lora_dropout=0.5, target_modules=[
        "k_proj", "o_proj", "down_proj"]), [], 3, 1),
    ("qwen3_tied", None, ["*embed*", "*norm*"], 3, 2),
    ("llama3", None, ["*embed*", "model.layers.0.*", "*up_proj*"], 0, 1),
    ("qwen25", None, ["model.*"], 2, 2),
]


class Failed(Exception):
    pass


def name_of(c):
    what = ("LoRA " + " ".join("%s=%s" % (k, "+".join(v) if isinstance(v, list) else v)
                               for k, v in c[1].items()) if c[1] else "frozen " + " ".join(c[2]))
    return "%s, %s, stage %d, %d rank%s" % (c[0], what, c[3], c[4], "" if c[4] == 1 else "s")


def rel(a, b):
    return float((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-30))


def torch_model(a, c):
    """transformers' model with PEFT's adapters, or with frozen parameters."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM
    torch.manual_seed(7)
    m = AutoModelForCausalLM.from_pretrained(os.path.join(a.models, c[0]), dtype=torch.float32,
                                             attn_implementation="eager")
    if c[1]:
        m = get_peft_model(m, LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **c[1]))
    for n, p in m.named_parameters():
        if any(fnmatch.fnmatchcase(n, f) for f in c[2]):
            p.requires_grad = False
    return m


# -------------------------------------------------------------------- dropout
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SEED = 42                                       # ztrain's --seed


def philox(c, key):
    """Philox 4x32-10 of numpy counters [4, ...], of 32 bits each."""
    import numpy as np
    c = [np.asarray(x, np.uint64) for x in np.broadcast_arrays(*c)]
    k0, k1, low = key & 0xffffffff, key >> 32, np.uint64(0xffffffff)
    for _ in range(10):
        a, b = np.uint64(0xd2511f53) * c[0], np.uint64(0xcd9e8d57) * c[2]
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), b & low,
             (a >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), a & low]
        k0, k1 = (k0 + 0x9e3779b9) & 0xffffffff, (k1 + 0xbb67ae85) & 0xffffffff
    return c


def mask_of(shape, sample, layer, linear, p):
    """What a module's input [rows, tokens, width] is multiplied by; row 0 is 'sample'."""
    import numpy as np
    import torch
    rows, tokens, width = shape
    key = (SEED + 0x9e3779b97f4a7c15 * (layer * len(LINEARS) + linear + 1)) % (1 << 64)
    words = philox([np.arange((width + 7) // 8)[None, None, :], np.arange(tokens)[None, :, None],
                    np.arange(sample, sample + rows)[:, None, None], 0], key)
    halves = np.stack([w >> np.uint64(s) & np.uint64(0xffff) for w in words for s in (0, 16)], -1)
    below = min(int(p * 65536 + 0.5), 65535)
    kept = halves.reshape(rows, tokens, -1)[:, :, :width] >= below
    return torch.from_numpy(kept).to(torch.float32) * (65536 / (65536 - below))


def drop_as_ztrain(m, p):
    """Replaces PEFT's dropout modules; returns what says of which sample the next row is."""
    import torch
    at = [0]

    class Drop(torch.nn.Module):
        def __init__(self, layer, linear):
            super().__init__()
            self.layer, self.linear = layer, linear

        def forward(self, x):
            return x * mask_of(x.shape, at[0], self.layer, self.linear, p) if self.training else x
    count = 0
    for name, module in m.named_modules():
        if hasattr(module, "lora_dropout") and len(module.lora_dropout):
            module.lora_dropout["default"] = Drop(int(re.search(r"layers\.(\d+)\.", name)[1]),
                                                  LINEARS.index(name.split(".")[-1]))
            count += 1
    if not count:
        raise Failed("PEFT's model has no dropout")
    m.train()
    return at


def batch_of(a):
    import torch
    from safetensors.torch import load_file
    d = load_file(a.data)
    key = "input_ids" if "input_ids" in d else sorted(d)[0]
    return d[key][:ROWS, :TOKENS].to(torch.long), d


def ztrain(a, c, work, args, rows=1):
    path = os.path.join(work, "z.json")
    with open(path, "w") as f:
        json.dump({"train_batch_size": ROWS, "train_micro_batch_size_per_gpu": rows,
                   "gradient_clipping": 0.0, "zero_optimization": {"stage": c[3]}}, f)
    cmd = [] if c[4] == 1 else [MPIRUN, "-n", str(c[4])]
    cmd += [a.ztrain, "--model", os.path.join(a.models, c[0]), "--config", path, "--data", a.data,
            "--seq", str(TOKENS), "--lr", repr(LR), "--seed", str(SEED), "--exact"]
    for f in c[2]:
        cmd += ["--freeze", f]
    r = subprocess.run(cmd + args, capture_output=True, text=True, timeout=120,
                       stdin=subprocess.DEVNULL)
    if r.returncode:
        raise Failed("ztrain: exit %d: %s" % (r.returncode, (r.stderr or r.stdout)[-600:]))
    return {int(m[1]): float(m[2]) for m in re.finditer(r"^step (\d+)  loss (\S+)", r.stdout, re.M)}


def states(root, step):
    """{state: {name: tensor}} of a universal step."""
    import torch
    out = {}
    zero = os.path.join(root, "global_step%d" % step, "zero")
    for n in sorted(os.listdir(zero)):
        for state in ("fp32", "exp_avg", "exp_avg_sq"):
            path = os.path.join(zero, n, state + ".pt")
            if os.path.exists(path):
                t = torch.load(path, weights_only=False)
                out.setdefault(state, {})[n] = t["param"] if isinstance(t, dict) else t
    return out


def loss_of(m, ids, at=(0,)):
    """The mean of the rows' means, as DeepSpeed has it; -100 is not in these rows."""
    total = 0
    for i in range(len(ids)):
        if isinstance(at, list):
            at[0] = i
        total = total + m(input_ids=ids[i:i + 1], labels=ids[i:i + 1]).loss
    return total / len(ids)


def check_gradients(m, got):
    want = {n: p.grad for n, p in m.named_parameters() if p.requires_grad}
    if sorted(want) != sorted(got):
        raise Failed("names differ: %s" % sorted(set(want) ^ set(got))[:4])
    worst = max((rel(got[n].reshape(want[n].shape) / (1 - BETA1), want[n]), n) for n in want)
    if worst[0] > GRAD:
        raise Failed("gradient of %s: relative L2 %.2e" % (worst[1], worst[0]))
    return worst[0]


def set_masters(m, masters):
    import torch
    with torch.no_grad():
        for n, p in m.named_parameters():
            if n in masters:
                p.copy_(masters[n].reshape(p.shape))


class Kept(logging.Handler):
    """Keeps what libraries log as warnings."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.said = []

    def emit(self, record):
        self.said.append(record.getMessage())


def quiet(make):
    """What make() returns; a warning of PEFT's or transformers' fails."""
    import transformers
    transformers.logging.set_verbosity_warning()
    kept, loggers = Kept(), [logging.getLogger(n) for n in ("transformers", "peft", "accelerate")]
    for log in loggers:
        log.addHandler(kept)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        out = make()
    for log in loggers:
        log.removeHandler(kept)
    said = kept.said + [str(w.message) for w in seen
                        if "is_gradient_checkpointing" not in str(w.message)]
    if said:
        raise Failed("a warning: %s" % said[0][:300])
    return out


def check_adapter(a, c, m, ids, folder):
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM
    base = AutoModelForCausalLM.from_pretrained(os.path.join(a.models, c[0]), dtype=torch.float32,
                                                attn_implementation="eager")
    p = quiet(lambda: PeftModel.from_pretrained(base, folder))
    with torch.no_grad():
        d = rel(p(input_ids=ids).logits, m(input_ids=ids).logits)
    if d > LOGIT:
        raise Failed("the exported adapter: logits differ by %.2e" % d)
    have = {k: v for k, v in p.state_dict().items() if ".lora_" in k}
    for k, v in m.state_dict().items():
        if ".lora_" in k and not torch.equal(have[k], v):
            raise Failed("the exported adapter: %s is another" % k)


def check_merged(a, c, m, folder):
    import torch
    from transformers import AutoModelForCausalLM
    got = quiet(lambda: AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32))
    want = m.merge_and_unload().state_dict()
    for k, v in got.state_dict().items():
        d = (v - want[k]).abs().max().item()
        if d > 1.2e-7 * want[k].abs().max().item() * 4:
            raise Failed("the merged model: %s differs by %.2e" % (k, d))


FORMS = ["native", "deepspeed", "universal", "dcp", "trainer"]


def check_converted(a, c, work, begin, m, ids):
    """Of every form of step, without --lora-alpha: the adapter of --export, as PEFT loads it."""
    import torch
    from safetensors.torch import load_file
    want = load_file(os.path.join(work, "ad", "adapter_model.safetensors"))
    for form in FORMS:
        step, out = os.path.join(work, "as-" + form), os.path.join(work, "peft-" + form)
        ztrain(a, c, work, ["--steps", "1", "--save", step, "--save-format", form] + begin)
        r = subprocess.run([a.zckpt, "convert", "--to", "peft", step, out], capture_output=True,
                           text=True, timeout=60)
        if r.returncode:
            raise Failed("%s: convert --to peft: exit %d: %s" % (form, r.returncode, r.stderr[-300:]))
        got = load_file(os.path.join(out, "adapter_model.safetensors"))
        if sorted(got) != sorted(want) or not all(torch.equal(got[k], want[k]) for k in want):
            raise Failed("%s: convert --to peft: tensors are not those of --export" % form)
        text = [open(os.path.join(d, "adapter_config.json")).read()
                for d in (out, os.path.join(work, "ad"))]
        if text[0] != text[1]:
            raise Failed("%s: convert --to peft: adapter_config.json is not that of --export" % form)
        check_adapter(a, c, m, ids, out)


# ------------------------------------------------------------------ DeepSpeed
def ds_config(c, stage):
    return {"train_batch_size": ROWS, "train_micro_batch_size_per_gpu": 1,
            "gradient_clipping": 0.0, "zero_optimization": {"stage": stage},
            "optimizer": {"type": "AdamW", "params": {
                "lr": LR, "betas": [BETA1, 0.999], "eps": 1e-8, "weight_decay": 0.0,
                "torch_adam": True}}, "steps_per_print": 1 << 30}


def ds_part(a, c, work, rank, world):
    """On every rank: resumes ztrain's step 1, makes two steps, saves, makes one more."""
    import deepspeed
    import torch
    import torch.distributed as dist
    m = torch_model(a, c)
    with torch.no_grad():
        for p in m.parameters():
            p.mul_(0.5)                         # what is loaded must replace it
    engine, _, _, _ = deepspeed.initialize(
        model=m, config=ds_config(c, c[3]),
        model_parameters=[p for p in m.parameters() if p.requires_grad])
    path, _ = engine.load_checkpoint(os.path.join(work, "z"))
    if path is None:
        raise RuntimeError("load_checkpoint found nothing")
    _, d = batch_of(a)
    ids = next(iter(d.values()))[:, :TOKENS].to(torch.long)
    losses = []

    def step(number):
        total, acc = 0.0, ROWS // world
        for i in range(acc):
            x = ids[(number * ROWS + i * world + rank) % len(ids)][None]
            loss = engine(input_ids=x, labels=x, use_cache=False).loss
            total += float(loss.detach()) / acc
            engine.backward(loss)
            engine.step()
        t = torch.tensor([total / world], dtype=torch.float64)
        dist.all_reduce(t)
        losses.append(float(t))
    step(1)
    step(2)
    engine.save_checkpoint(os.path.join(work, "ds"), tag="global_step3")
    engine.save_checkpoint(os.path.join(work, "ds_bare"), tag="global_step3",
                           exclude_frozen_parameters=True)
    step(3)
    if rank == 0:
        with open(os.path.join(work, "losses.json"), "w") as f:
            json.dump(losses, f)
    if hasattr(engine, "destroy"):
        engine.destroy()


def check_deepspeed(a, c, work, begin):
    import dsrank
    on = ztrain(a, c, work, begin + ["--steps", "3", "--stop-at", "1", "--save",
                                     os.path.join(work, "z"), "--save-format", "deepspeed"], 1)
    on.update(ztrain(a, c, work, begin + ["--steps", "4", "--resume", os.path.join(work, "z")], 1))
    dsrank.prepare()
    said = dsrank.fork_ranks(c[4], lambda rank, size: ds_part(a, c, work, rank, size))
    if said:
        raise Failed("DeepSpeed: %s" % said[-700:])
    with open(os.path.join(work, "losses.json")) as f:
        losses = json.load(f)
    for i, loss in enumerate(losses[:2]):
        if abs(loss - on[i + 2]) > LOSS * abs(loss):
            raise Failed("step %d: DeepSpeed's loss %.9g, ztrain's %.9g" % (i + 2, loss, on[i + 2]))
    other = (c[0], c[1], c[2], (c[3] + 2) % 4, 1 if c[4] > 1 else 2)
    for folder in ("ds", "ds_bare"):
        got = ztrain(a, other, work, begin + ["--steps", "4", "--resume",
                                              os.path.join(work, folder)], 1)
        if abs(got[4] - losses[2]) > LOSS * abs(losses[2]):
            raise Failed("%s, step 4: ztrain's loss %.9g, DeepSpeed's %.9g" % (folder, got[4],
                                                                               losses[2]))
    return ", DeepSpeed both ways"


# ---------------------------------------------------------------- the Trainer
def check_trainer(a, c, work, begin):
    import torch
    import trainer_cases
    from transformers import PrinterCallback, TrainingArguments
    out = os.path.join(work, "trainer")
    args = begin + ["--steps", "4", "--save-format", "trainer", "--save", out]
    ztrain(a, c, work, args + ["--stop-at", "2"])
    want = ztrain(a, c, work, args + ["--resume", "auto"])
    m = torch_model(a, c)
    with torch.no_grad():
        for p in m.parameters():
            if p.requires_grad:
                p.mul_(0.5)                     # what is loaded must replace it
    _, d = batch_of(a)
    t = trainer_cases.Exact(model=m, args=TrainingArguments(
        output_dir=os.path.join(work, "theirs"), max_steps=4, save_strategy="no", logging_steps=1,
        report_to=[], use_cpu=True, per_device_train_batch_size=1, gradient_accumulation_steps=ROWS,
        learning_rate=LR, weight_decay=0.0, lr_scheduler_type="constant", max_grad_norm=0.0,
        train_sampling_strategy="sequential", disable_tqdm=True),
        train_dataset=trainer_cases.Rows(next(iter(d.values()))[:, :TOKENS].to(torch.long)))
    t.remove_callback(PrinterCallback)
    t.train(resume_from_checkpoint=os.path.join(out, "checkpoint-2"))
    if sorted(t.seen) != [3, 4]:
        raise Failed("the Trainer made the steps %s" % sorted(t.seen))
    for n, loss in t.seen.items():
        if abs(loss - want[n]) > LOSS * abs(loss):
            raise Failed("step %d: the Trainer's loss %.9g, ztrain's %.9g" % (n, loss, want[n]))
    return ", the Trainer"


def one(a, c, work):
    import torch
    m = torch_model(a, c)
    ids, _ = batch_of(a)
    args = ["--steps", "1", "--save", os.path.join(work, "u"), "--save-format", "universal"]
    if c[1]:
        m.save_pretrained(os.path.join(work, "begin"))
        args += ["--lora-from", os.path.join(work, "begin"), "--export", os.path.join(work, "ad")]
    losses = ztrain(a, c, work, args)
    drops = bool(c[1]) and c[1].get("lora_dropout", 0) > 0
    loss = loss_of(m, ids, drop_as_ztrain(m, c[1]["lora_dropout"])) if drops else loss_of(m, ids)
    loss.backward()
    if abs(losses[1] - loss.item()) > LOSS * abs(loss.item()):
        raise Failed("loss %.9g, torch has %.9g" % (losses[1], loss.item()))
    got = states(os.path.join(work, "u"), 1)
    worst = check_gradients(m, got["exp_avg"])
    m.eval()
    set_masters(m, got["fp32"])
    if c[1]:
        check_adapter(a, c, m, ids, os.path.join(work, "ad"))
        check_converted(a, c, work, args[6:8], m, ids)
        ztrain(a, c, work, args[:2] + ["--lora-from", os.path.join(work, "begin"), "--merge",
                                       "--export", os.path.join(work, "merged")])
        check_merged(a, c, m, os.path.join(work, "merged"))
    said = "worst gradient %.1e" % worst
    if drops:
        return said + ", with dropout"
    if c[1]:
        said += check_trainer(a, c, work, args[6:8])
    if c[3] in (1, 2, 3):
        said += check_deepspeed(a, c, work, args[6:8] if c[1] else [])
    return said


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--ztrain", required=True)
    p.add_argument("--zckpt", required=True)
    p.add_argument("--fixtures", required=True)
    p.add_argument("--only", default="")
    p.add_argument("--keep")
    a = p.parse_args()
    a.models = os.path.join(a.fixtures, "model", "models")
    a.data = os.path.join(a.fixtures, "model", "train", "data.safetensors")
    try:
        import peft
        print("peft %s" % peft.__version__)
    except ImportError:
        print("skipped: peft is not installed (pip install peft)")
        print("0 passed, 0 failed, %d skipped" % len(CASES))
        return 0
    passed = failed = 0
    for i, c in enumerate(CASES):
        if a.only not in name_of(c):
            continue
        work = tempfile.mkdtemp(prefix="zckpt-lora-")
        try:
            print("ok      %s: %s" % (name_of(c), one(a, c, work)))
            passed += 1
        except Exception as e:
            failed += 1
            print("FAILED  %s: %s" % (name_of(c), e))
            if not isinstance(e, Failed):
                traceback.print_exc()
        if a.keep:
            shutil.move(work, os.path.join(a.keep, str(i)))
        shutil.rmtree(work, ignore_errors=True)
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
