"""Does transformers' Trainer resume the adapters that ztrain saves, and ztrain those of the Trainer?

    trainer_lora.py --ztrain PROGRAM --zckpt PROGRAM --fixtures DIR [--only TEXT] [--keep DIR]

A Trainer saves a model of PEFT as adapter_model.safetensors, adapter_config.json and the optimizer of
the adapters, whose states have numbers.  For each case (a model of the fixtures, LoRA, ranks, stages):

  1. ztrain trains to step 3 and saves checkpoint-3, with the frozen parameters and without.  A Trainer
     whose adapters are spoilt resumes it and must have ztrain's losses, norms and rates; what both then
     save is compared.  PEFT loads the folder's adapter.
  2. The Trainer saves checkpoint-3 and makes three more steps.  ztrain resumes the folder at several
     numbers of ranks and stages and must have the Trainer's losses.  `zckpt reshard` makes a step of
     each other form of it, and of each the folder again, with the same bits; the Trainer resumes that
     one with the same bits.
  3. What must be refused, by name: another alpha, no --lora, a model that is no folder here.

DoRA and a trained head are checked as files alone, since ztrain has neither.

The last line is `N passed, N failed, N skipped`.
"""
import json
import os
import shutil
import sys
import warnings

import numpy as np
import torch

import trainer_cases as T
from trainer_cases import SAVED, LAST, Failed

ADAPTER = "adapter_model.safetensors"

# model, schedule, weight decay, rows of a micro-batch, (ranks, stage) that save, those that resume,
# --lora, the same for PEFT
CASES = [
    ("qwen3_tied", "cosine", 0.1, 4, (1, 0), [(1, 0), (2, 2), (4, 3)], "r=4,alpha=8,target=all-linear",
     dict(r=4, lora_alpha=8, target_modules="all-linear")),
    ("llama3", "linear", 0.1, 2, (2, 2), [(2, 3)], "r=3,alpha=6,target=q_proj+v_proj,rslora",
     dict(r=3, lora_alpha=6, target_modules=["q_proj", "v_proj"], use_rslora=True)),
    ("qwen25", "constant_with_warmup", 0.0, 4, (2, 3), [(1, 1)], "r=8,target=up_proj+k_proj",
     dict(r=8, lora_alpha=8, target_modules=["k_proj", "up_proj"])),
]


def adapted(c, spoil=False, **more):
    """What makes a model of PEFT of the Trainer's."""
    from peft import LoraConfig, get_peft_model

    def make(net):
        net = get_peft_model(net, LoraConfig(task_type="CAUSAL_LM", **dict(c[7], **more)))
        with torch.no_grad():
            for name, p in net.named_parameters():
                if spoil and "lora_" in name:
                    p.fill_(0.5)
        return net
    return make


def trainer(a, c, out, spoil=False, **more):
    return T.trainer(a, c, out, adapted(c, spoil, **more))


def at(folder, step):
    return os.path.join(folder, "checkpoint-%d" % step)


def loads(a, c, frozen):
    """What ztrain saved, in the Trainer and in PEFT."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    out, theirs = (os.path.join(a.work, x + str(frozen)) for x in ("ours", "theirs"))
    call = ["--lora", c[6], "--save", out, "--save-format", "trainer"]
    call += [] if frozen else ["--exclude-frozen"]
    T.ztrain(a, c, c[4][0], c[4][1], call + ["--stop-at", str(SAVED)])
    _, want = T.ztrain(a, c, c[4][0], c[4][1], call + ["--resume", at(out, SAVED)])
    if os.path.exists(os.path.join(at(out, SAVED), "model.safetensors")) != frozen:
        raise Failed("files: %s" % sorted(os.listdir(at(out, SAVED))))
    t = trainer(a, c, theirs, spoil=True)
    t.train(resume_from_checkpoint=at(out, SAVED))
    if min(t.seen) != SAVED + 1:
        raise Failed("the Trainer begins at step %d" % min(t.seen))
    worst = T.near("loss of the Trainer", t.seen, {n: v[0] for n, v in want.items()})
    T.near("rate of the Trainer", t.watch.lr, {n: v[1] for n, v in want.items()})
    norms = {int(h["step"]): h["grad_norm"] for h in t.state.log_history if "grad_norm" in h}
    T.near("norm of the Trainer", norms, {n: v[2] for n, v in want.items()})
    off = T.same_folders(at(out, LAST), at(theirs, LAST), ADAPTER)
    net = AutoModelForCausalLM.from_pretrained(T.model_of(a, c), dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        net = PeftModel.from_pretrained(net, at(out, LAST))
    names = [n for n, _ in net.named_parameters() if "lora_" in n]
    saved = T.load_file(os.path.join(at(out, LAST), ADAPTER))
    if len(names) != len(saved):
        raise Failed("PEFT has %d tensors of the adapter, the file %d" % (len(names), len(saved)))
    for n, p in net.named_parameters():
        if "lora_" in n and not np.array_equal(p.detach().numpy(), saved[n.replace(".default", "")]):
            raise Failed("PEFT loads another %s" % n)
    return "losses off by %.1e, states by %.1e" % (worst, off)


def forms_and_back(a, c, folder, prepare, last, forms):
    """By way of other forms, with the same bits; and then the Trainer resumes."""
    for form in forms:
        there, back = os.path.join(a.work, form + ".pt"), os.path.join(a.work, form + ".back")
        world = [] if form == "torch-training" else ["--world", "2"]
        T.zckpt(a, "reshard", "-q", "--to", form, *world, folder, there)
        T.zckpt(a, "reshard", "-q", "--to", "trainer", there, back)
        if T.same_folders(at(back, SAVED), folder, ADAPTER) != 0:
            raise Failed("by way of %s: other bits" % form)
    T.zckpt(a, "verify", "-q", "--full", at(back, SAVED))
    again = os.path.join(a.work, "again")
    T.trainer(a, c, again, prepare).train(resume_from_checkpoint=at(back, SAVED))
    if T.same_folders(at(again, LAST), last, ADAPTER) != 0:
        raise Failed("the Trainer resumes the folder that came back with other bits")


def resumes(a, c):
    """What the Trainer saved, in ztrain."""
    out = os.path.join(a.work, "full")
    t = trainer(a, c, out)
    t.train()
    worst = 0.0
    for world, stage in c[5]:
        text, steps = T.ztrain(a, c, world, stage, ["--lora", c[6], "--resume", at(out, SAVED)])
        if "resumed at step %d" % SAVED not in text:
            raise Failed("ztrain does not say where it resumes: %s" % text[-600:])
        worst = max(worst, T.near("%d ranks of stage %d" % (world, stage),
                                  {n: v[0] for n, v in steps.items()}, t.seen))
        T.near("rates", {n: v[1] for n, v in steps.items()}, t.watch.lr)
    forms = ("native", "universal", "deepspeed", "dcp", "fsdp-ranks", "torch-training")
    forms_and_back(a, c, at(out, SAVED), adapted(c, True), at(out, LAST), forms)
    pack = os.path.join(a.work, "packed.tar.zst")
    T.zckpt(a, "pack", "-q", at(out, SAVED), pack)
    for path in (pack, os.path.join(a.work, "native.pt"), os.path.join(a.work, "torch-training.pt")):
        _, steps = T.ztrain(a, c, 1, 0, ["--lora", c[6], "--resume", path])
        worst = max(worst, T.near(path, {n: v[0] for n, v in steps.items()}, t.seen))
    return "losses off by %.1e; %d forms and back" % (worst, len(forms))


def refuses(a, c):
    folder = at(os.path.join(a.work, "full"), SAVED)
    for lora, words in (([], ["--lora r=4,alpha=8"]),
                        (["--lora", "r=4,alpha=16,target=all-linear"], ["with r=4,alpha=8", "has r=4,alpha=16"])):
        code, text, _ = T.ztrain_call(a, c, 1, 0, lora + ["--resume", folder])
        T.expect("ztrain %s" % lora, code, text, words)
    # a model of the hub: its order is known by the caller alone
    hub = os.path.join(a.work, "hub")
    shutil.copytree(folder, hub)
    path = os.path.join(hub, "adapter_config.json")
    with open(path) as f:
        config = json.load(f)
    config["base_model_name_or_path"] = "someone/a-model"
    with open(path, "w") as f:
        json.dump(config, f)
    r = T.run([a.zckpt, "reshard", "--to", "native", hub, hub + ".native"])
    T.expect("a model of the hub", r.returncode, r.stderr, ["--model-config"])
    T.zckpt(a, "reshard", "-q", "--to", "native", "--model-config", T.model_of(a, c), hub, hub + ".native")
    T.zckpt(a, "diff", "-q", folder, hub + ".native")
    T.ztrain(a, c, 1, 0, ["--lora", c[6], "--resume", hub])
    # a regular expression: ztrain compares everything else, and the names of the tensors
    config["target_modules"] = r".*\.(?:[qkvo]|gate|up|down)_proj"
    with open(path, "w") as f:
        json.dump(config, f)
    T.ztrain(a, c, 1, 0, ["--lora", c[6], "--resume", hub])
    code, text, _ = T.ztrain_call(a, c, 1, 0, ["--lora", c[6].replace("alpha=8", "alpha=4"), "--resume", hub])
    T.expect("another alpha", code, text, ["has r=4,alpha=4"])
    code, text, _ = T.ztrain_call(a, c, 1, 0, ["--lora-from", hub])
    T.expect("begun with it", code, text, ["target_modules is a regular expression"])
    return "3 folders refused"


def others(a, c):
    """DoRA has a third tensor of a module; a trained head is none of the adapter's."""
    out = os.path.join(a.work, "dora")
    trainer(a, c, out, use_dora=True).train()
    a.work = os.path.join(a.work, "dora.forms")
    os.makedirs(a.work)
    forms_and_back(a, c, at(out, SAVED), adapted(c, True, use_dora=True), at(out, LAST),
                   ("native", "deepspeed"))
    code, text, _ = T.ztrain_call(a, c, 1, 0, ["--lora", c[6], "--resume", at(out, SAVED)])
    T.expect("DoRA", code, text, ["use_dora"])
    head = os.path.join(a.work, "head")
    trainer(a, c, head, modules_to_save=["lm_head"]).train()
    r = T.run([a.zckpt, "reshard", "--to", "native", at(head, SAVED), head + ".native"])
    T.expect("a trained head", r.returncode, r.stderr, ["modules_to_save", "zckpt convert"])
    return "DoRA by 2 forms"


def run_case(a, c):
    said = [loads(a, c, True), loads(a, c, False), resumes(a, c)]
    if c is CASES[0]:
        said.append(refuses(a, c))
    if c is CASES[1]:
        said.append(others(a, c))
    return "; ".join(said)


def name_of(c):
    return "%s %s" % (c[0], c[6])


if __name__ == "__main__":
    sys.exit(T.run_cases(["peft", "accelerate"], CASES, name_of, run_case))
