"""Training files of torch, {"model", "optimizer", ...}: to ZeRO steps, to ztrain, and back.

    training_files.py WORK [--zckpt PATH] [--ztrain PATH --fixtures DIR]

torch trains a small net and saves, in the forms that people use (AdamW, Adam, amsgrad, fused, groups
with and without decay, names in the groups, prefixes of wrappers, tied and frozen parameters, one
without dimensions, bf16 weights, other keys). For each file:

  1. zckpt names every state as torch has it; verify --full finds nothing
  2. shard --with-states and reshard make ZeRO steps of 1 to 3 ranks, stages 1 to 3; and each of the
     other forms; convert --to torch-training of all of them has the file's bits
  3. torch loads that file into a new net and AdamW, and the next step equals, bit for bit
  4. stock DeepSpeed resumes the ZeRO step: masters, moments and counts are the file's
  5. ztrain resumes a file of transformers at 1 and 2 ranks, stages 0 to 3; its losses are torch's. So
     are those of a file whose optimizer has the parameters backward, with --resume-order
Files whose states cannot be given to parameters, and damaged ones, are refused.
"""
import argparse
import copy
import json
import os
import shutil
import subprocess
import sys

import torch
import torch.nn as nn

HERE = os.path.dirname(os.path.abspath(__file__))
PASSED, FAILED = [0], [0]


class Net(nn.Module):
    def __init__(self, scalar=False, tied=False, frozen=False):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.up = nn.Linear(8, 24)
        self.norm = nn.LayerNorm(24)
        self.batch = nn.BatchNorm1d(24)
        self.down = nn.Linear(24, 8)
        self.head = nn.Linear(8, 11, bias=False)
        self.scale = nn.Parameter(torch.tensor(1.5)) if scalar else 1.0
        if tied:
            self.head.weight = self.embed.weight
        self.up.bias.requires_grad_(not frozen)

    def forward(self, x):
        h = self.batch(self.norm(torch.tanh(self.up(self.embed(x)))))
        return self.head(self.down(h) * self.scale)


def step(net, opt, seed, scaler=None):
    g = torch.Generator().manual_seed(seed)
    x, y = torch.randint(0, 11, (16,), generator=g), torch.randint(0, 11, (16,), generator=g)
    loss = nn.functional.cross_entropy(net(x).float(), y)
    if scaler:
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
    else:
        loss.backward()
        opt.step()
    opt.zero_grad()
    return loss.item()


def is_undecayed(name):
    return name.endswith("bias") or "norm" in name or "batch" in name or name == "scale"


def groups_of(net, kind):
    named = [(n, p) for n, p in net.named_parameters() if p.requires_grad]
    named = named[::-1] if kind == "backward" else named
    if kind in ("two", "backward"):
        return [{"params": [p for n, p in named if not is_undecayed(n)], "weight_decay": 0.125},
                {"params": [p for n, p in named if is_undecayed(n)], "weight_decay": 0.0}]
    return named if kind == "names" else [p for _, p in named]


# name: net, class, options, groups, key of the model, of the optimizer, prefix, dtype
FORMS = {
    "adamw": ({}, torch.optim.AdamW, {}, "one", "model", "optimizer", "", None),
    "adam": ({}, torch.optim.Adam, {}, "one", "model_state_dict", "optimizer_state_dict", "", None),
    "amsgrad": ({}, torch.optim.AdamW, {"amsgrad": True}, "one", "module", "optim", "", None),
    "fused": ({}, torch.optim.AdamW, {"fused": True}, "two", "model", "optimizer", "", None),
    "two": ({}, torch.optim.AdamW, {}, "two", "state_dict", "optimizer", "module.", None),
    "names": ({"tied": True}, torch.optim.AdamW, {}, "names", "model", "optim_state_dict",
              "_orig_mod.", None),
    "scalar": ({"scalar": True}, torch.optim.AdamW, {}, "two", "model", "optimizer",
               "module._orig_mod.", None),
    "bf16": ({}, torch.optim.AdamW, {}, "one", "model", "optimizer", "", torch.bfloat16),
    "fp16": ({}, torch.optim.AdamW, {"eps": 1e-4}, "two", "model", "optimizer", "", torch.float16),
    "amp": ({}, torch.optim.AdamW, {}, "one", "model", "optimizer", "", None),
}
# What the user has to say of: the optimizer has the parameters backwards, and one is frozen.
ORDERED = {"backward": ({"frozen": True}, torch.optim.AdamW, {}, "backward", "model", "optimizer", "",
                        None)}
SCALED = {"amp"}    # by a GradScaler, which they save as "scaler"


def make(form, seed=7):
    net_of, cls, options, groups, _, _, _, dtype = {**FORMS, **ORDERED}[form]
    torch.manual_seed(seed)
    net = Net(**net_of)
    if dtype:
        net.to(dtype)
    options = {"eps": 1e-7, **options}
    return net, cls(groups_of(net, groups), lr=0.01, betas=(0.875, 0.96875), **options)


def scaler_of(form):
    return torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2) \
        if form in SCALED else None


def trained(form):
    net, opt = make(form)
    sched, scaler = torch.optim.lr_scheduler.StepLR(opt, 2), scaler_of(form)
    for s in range(3):
        step(net, opt, s, scaler)
        sched.step()
    return net, opt, sched, scaler


def save(form, path):
    _, _, _, _, model, optimizer, prefix, _ = {**FORMS, **ORDERED}[form]
    net, opt, sched, scaler = trained(form)
    more = {"scaler": scaler.state_dict()} if scaler else {}
    torch.save({model: {prefix + k: v for k, v in net.state_dict().items()},
                optimizer: opt.state_dict(), "scheduler": sched.state_dict(), "epoch": 2,
                "args": {"lr": 0.01, "name": form}, "rng": torch.get_rng_state(), **more}, path)
    return net, opt


def run(*words, fails=None, cwd=None):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, cwd=cwd,
                          timeout=300)
    said = done.stdout + done.stderr
    if fails is None and done.returncode:
        raise RuntimeError("%s: exit %d: %s" % (" ".join(map(str, words)), done.returncode, said))
    if fails is not None and (not done.returncode or fails not in said):
        raise RuntimeError("%s: exit %d, not refused by '%s': %s" %
                           (" ".join(map(str, words)), done.returncode, fails, said))
    return said


def case(name, f, *args):
    try:
        f(*args)
    except Exception as e:        # noqa: BLE001: every failure is counted and named
        FAILED[0] += 1
        print("FAILED %s: %s: %s" % (name, type(e).__name__, e), flush=True)
    else:
        PASSED[0] += 1
        print("passed %s" % name, flush=True)


# ------------------------------------------------------------------ the file itself
def by_name(net, opt):
    names = {id(p): n for n, p in net.named_parameters()}
    return {names[id(p)]: opt.state[p] for g in opt.param_groups for p in g["params"]}


def named(zckpt, path, net, opt):
    shown = json.loads(run(zckpt, "inspect", "--json", "-v", path))
    text = json.dumps(shown)
    for name, states in by_name(net, opt).items():
        for state in states:
            want = name in text and (state == "step" or state in text)
            assert want, "%s of %s is not shown" % (state, name)
    assert shown["step"] == 3, shown["step"]
    run(zckpt, "verify", "--full", path)


# ------------------------------------------------------------------ back to torch
def same(a, b, what):
    assert a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b), \
        "%s differs: %s %s, %s %s" % (what, a.dtype, tuple(a.shape), b.dtype, tuple(b.shape))


def loads(path, form):
    """A new net and optimizer that load it have the run's next step."""
    old, opt, _, scaler = trained(form)
    file = torch.load(path, weights_only=True)
    assert file["epoch"] == 2 and file["args"]["name"] == form, list(file)
    assert not scaler or file["scaler"] == scaler.state_dict(), file["scaler"]
    assert file["step"] == 3 and file["lr_scheduler"]["last_epoch"] == 3, list(file)
    new, fresh = make(form, seed=8)
    new.load_state_dict(file["model"])
    fresh.load_state_dict(file["optimizer"])
    a, b = by_name(old, opt), by_name(new, fresh)
    assert set(a) == set(b)
    for name in a:
        assert set(a[name]) == set(b[name]), (name, set(a[name]), set(b[name]))
        for state in a[name]:
            same(torch.as_tensor(a[name][state]), torch.as_tensor(b[name][state]),
                 name + " " + state)
    for g, h in zip(opt.param_groups, fresh.param_groups):
        for key in ("lr", "betas", "eps", "weight_decay", "amsgrad"):
            assert g[key] == h[key], (key, g[key], h[key])
    la, lb = step(old, opt, 9), step(new, fresh, 9)
    assert la == lb, (la, lb)
    for name, p in old.state_dict().items():
        same(p, new.state_dict()[name], "after the next step: " + name)


def there_and_back(zckpt, path, form, work):
    out = os.path.join(work, form)
    for world, stage in ((2, 1), (3, 2), (2, 3)):
        d = "%s-%d-%d" % (out, world, stage)
        run(zckpt, "shard", path, d, "--world", world, "--stage", stage, "--with-states")
        run(zckpt, "verify", "--full", d)
        run(zckpt, "convert", "--to", "torch-training", d, d + ".pth")
        loads(d + ".pth", form)
    d = out + "-0"
    run(zckpt, "reshard", "--world", 2, "--stage", "0", path, d)
    run(zckpt, "convert", "--to", "torch-training", d, d + ".pth")
    loads(d + ".pth", form)
    for to in ("universal", "native", "dcp", "fsdp-ranks"):
        d = out + "-" + to
        run(zckpt, "reshard", "--to", to, "--world", 2, path, d)
        run(zckpt, "convert", "--to", "torch-training", d, d + ".pth")
        loads(d + ".pth", form)
    run(zckpt, "convert", "--to", "torch-training", path, out + "-same.pth")
    loads(out + "-same.pth", form)


# ------------------------------------------------------------------ fp16
def same_file(a, b, form):
    """The model, the states and the scale of two files, with their types."""
    _, _, _, _, model, optimizer, prefix, _ = FORMS[form]
    a, b = torch.load(a, weights_only=True), torch.load(b, weights_only=True)
    assert len(a[model]) == len(b["model"])
    for name, p in a[model].items():
        same(p, b["model"][name[len(prefix):]], name)
    for i, states in a[optimizer]["state"].items():
        for state, v in states.items():
            same(v, b["optimizer"]["state"][i][state], "%s of %d" % (state, i))
    assert a.get("scaler", b.get("scaler")) == b.get("scaler"), (a["scaler"], b.get("scaler"))


def half_model(form, path):
    """A run in fp32 whose loop saves model.half(), as many do: fp32 states, fp16 weights."""
    save(form, path)
    file = torch.load(path, weights_only=True)
    file[FORMS[form][4]] = {k: v.half() if v.is_floating_point() else v
                            for k, v in file[FORMS[form][4]].items()}
    torch.save(file, path)


def halves_return(zckpt, path, form, work):
    """A model in fp16: every form, and back with --dtype fp16, has the file's bits and types."""
    out = os.path.join(work, "half-" + os.path.basename(path))
    ways = [("--stage", s, "--world", w) for s, w in (("0", 2), (1, 2), (2, 3), (3, 2))]
    ways += [("--to", to, "--world", 2) for to in ("universal", "native", "dcp", "fsdp-ranks")]
    for way in ways:
        d = "%s-%s" % (out, way[1])
        run(zckpt, "reshard", *way, path, d)
        run(zckpt, "verify", "--full", d)
        run(zckpt, "convert", "--to", "torch-training", "--dtype", "fp16", d, d + ".pth")
        same_file(path, d + ".pth", form)
    run(zckpt, "convert", "--to", "torch-training", path, out + "-same.pth")
    same_file(path, out + "-same.pth", form)
    assert ("scaler" in torch.load(out + "-same.pth", weights_only=True)) == (form in SCALED)


# ------------------------------------------------------------------ refused
def refused(zckpt, work):
    torch.manual_seed(1)
    net = Net()
    cut = [p for n, p in net.named_parameters() if n != "norm.weight"]
    opt = torch.optim.AdamW(cut, lr=0.01)
    for s in range(2):
        step(net, opt, s)
    path = os.path.join(work, "ambiguous.pth")
    torch.save({"model": net.state_dict(), "optimizer": opt.state_dict()}, path)
    run(zckpt, "reshard", "--world", 2, path, path + ".d",
        fails="it has 9 parameters in 1 group, by number and without names, the model has 10")
    # with names it is certain
    opt = torch.optim.AdamW([(n, p) for n, p in net.named_parameters() if n != "norm.weight"])
    step(net, opt, 3)
    torch.save({"model": net.state_dict(), "optimizer": opt.state_dict()}, path)
    said = run(zckpt, "reshard", "--world", 2, "--stage", 3, path, path + ".n")
    assert "written as frozen" in said, said
    run(zckpt, "verify", "--full", path + ".n")
    # two models' states
    other = nn.Linear(5, 3)
    opt = torch.optim.AdamW(other.parameters())
    other(torch.ones(2, 5)).sum().backward()
    opt.step()
    torch.save({"model": net.state_dict(), "optimizer": opt.state_dict()}, path)
    run(zckpt, "reshard", "--world", 2, path, path + ".o", fails="it has 2 parameters in 1 group")
    # before the first step; weights alone
    torch.save({"model": net.state_dict(), "optimizer": torch.optim.AdamW(
        net.parameters()).state_dict()}, path)
    run(zckpt, "shard", path, path + ".e", "--world", 2, "--stage", 2, "--with-states",
        fails="weights and no training state")
    torch.save(net.state_dict(), path)
    run(zckpt, "reshard", "--world", 2, path, path + ".w", fails="weights and no training state")


# ------------------------------------------------------------------ said by the user
def named_states(zckpt, d, net, opt):
    """The step's file has torch's states under their names."""
    run(zckpt, "verify", "--full", d)
    run(zckpt, "convert", "--to", "torch-training", d, d + ".pth")
    file = torch.load(d + ".pth", weights_only=True)["optimizer"]
    got = {n: file["state"][i] for g in file["param_groups"]
           for n, i in zip(g["param_names"], g["params"])}
    want = by_name(net, opt)
    assert set(got) == set(want), set(got) ^ set(want)
    for name, states in want.items():
        for state, v in states.items():
            same(torch.as_tensor(v), got[name][state], name + " " + state)


class Buffered(Net):
    """With a buffer in the shape of parameters, and of a name that says nothing."""
    def __init__(self):
        super().__init__()
        self.norm.register_buffer("mask", torch.ones(24))

    def forward(self, x):
        return super().forward(x) * self.norm.mask[0]


def given_by_user(zckpt, work):
    def save_as(name, net, opt):
        for s in range(3):
            step(net, opt, s)
        path = os.path.join(work, name)
        torch.save({"model": net.state_dict(), "optimizer": opt.state_dict()}, path)
        return path

    def reshard(path, *more, fails=None):
        d = "%s.%d" % (path, len(os.listdir(work)))
        said = run(zckpt, "reshard", "--world", 2, "--stage", 3, *more, path, d, fails=fails)
        assert fails is None or not os.path.exists(d)
        return d, said

    # frozen, with twins of its shape
    torch.manual_seed(2)
    net = Net()
    net.norm.weight.requires_grad_(False)
    opt = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=0.01)
    path = save_as("frozen.pth", net, opt)
    reshard(path, fails="the model has 10 tensors")
    d, said = reshard(path, "--frozen", "norm.w*")
    named_states(zckpt, d, net, opt)
    assert "frozen      " in run(zckpt, "inspect", d)
    reshard(path, "--frozen", "norm.*", fails="has 9 parameters in 1 group")
    reshard(path, "--frozen", "norm.*,up.*,down.*", fails="excludes too many?")
    reshard(path, "--frozen", "head.weight,embed.weight", "--buffer", "up.bias",
            fails="the model has 7 tensors")
    reshard(path, "--frozen", "batch.weight,head.weight", fails="the model has 8 tensors")
    reshard(path, "--frozen", "head.weight", fails="the first is number 6, batch.bias")
    reshard(path, "--frozen", "nrom.*", fails="nrom.* matches none of the 13 tensors")
    # a buffer
    net = Buffered()
    opt = torch.optim.AdamW(net.parameters(), lr=0.01)
    path = save_as("buffer.pth", net, opt)
    reshard(path, fails="the model has 11 tensors")
    d, said = reshard(path, "--buffer", "*.mask")
    named_states(zckpt, d, net, opt)
    # in another order, in two groups; and a frozen one in the midst
    net = Net()
    net.up.bias.requires_grad_(False)
    back = [(n, p) for n, p in reversed(list(net.named_parameters())) if p.requires_grad]
    groups = [[(n, p) for n, p in back if is_undecayed(n) == u] for u in (False, True)]
    opt = torch.optim.AdamW([{"params": [p for _, p in g], "weight_decay": w}
                             for g, w in zip(groups, (0.1, 0.0))], lr=0.01)
    path = save_as("backward.pth", net, opt)
    names = [n for g in groups for n, _ in g]
    order = os.path.join(work, "order")

    def with_order(names, *more, fails=None, end="\n"):
        with open(order, "w", newline="") as f:
            f.write(end.join(names) + end)
        return reshard(path, "--order", order, *more, fails=fails)

    reshard(path, fails="cannot be given to parameters")
    for end in ("\n", "\r\n"):
        named_states(zckpt, with_order(names, end=end)[0], net, opt)
    d, said = with_order(names, "--frozen", "up.bias")
    named_states(zckpt, d, net, opt)
    assert "FORMAT_NOTE" not in said, said
    with_order(names[:-1], fails="the list has 8 names and the optimizer 9 parameters; the first "
               "that does not fit is number 8, which has no line")
    with_order(names + ["up.bias"], fails="the list has 10 names and the optimizer 9 parameters; "
               "the first that does not fit is line 10, up.bias")
    with_order(names[1:] + names[:1], fails="the first that does not fit is line 1, %s" % names[1])
    with_order(names[:1] + names, fails="line 2: the list has %s twice" % names[0])
    with_order(["heda.weight"] + names[1:], fails="line 1: the model has no heda.weight")
    with_order(names, "--frozen", "up.*", fails="up.weight is excluded by --frozen")
    # of the file that is written: it has names
    d, _ = with_order(names)
    run(zckpt, "convert", "--to", "torch-training", "--order", order, path, path + ".named.pth")
    file, plain = (torch.load(p, weights_only=True) for p in (path + ".named.pth", path))
    assert [n for g in file["optimizer"]["param_groups"] for n in g["param_names"]] == names
    for i, states in plain["optimizer"]["state"].items():
        for state, v in states.items():
            same(v, file["optimizer"]["state"][i][state], "%s of %d" % (state, i))
    path += ".named.pth"
    with_order(names)
    twins = list(names)
    a, b = twins.index("norm.bias"), twins.index("norm.weight")
    twins[a], twins[b] = twins[b], twins[a]
    with_order(twins, fails="it needs no --order")
    reshard(path, "--frozen", "norm.bias", fails="--frozen excludes it, but the optimizer has it")
    # where they mean nothing
    for word in (("--order", order), ("--frozen", "up.bias"), ("--buffer", "up.bias")):
        run(zckpt, "reshard", "--world", 2, *word, d, d + ".x", fails="for one file of torch")
    torch.save(net.state_dict(), path)
    reshard(path, "--frozen", "up.bias", fails="has no states of an optimizer beside a model")


def damaged(zckpt, path, work):
    data = open(path, "rb").read()
    for i, n in enumerate((len(data) // 2, len(data) - 1, 700, 40)):
        bad = os.path.join(work, "cut%d.pth" % i)
        open(bad, "wb").write(data[:n])
        run(zckpt, "reshard", "--world", 2, bad, bad + ".d", fails="cut%d.pth" % i)
    missed = 0
    for i in range(40):
        at = (i * 2654435761) % len(data)
        bad = os.path.join(work, "flip.pth")
        open(bad, "wb").write(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1:])
        shutil.rmtree(bad + ".d", ignore_errors=True)
        done = subprocess.run([zckpt, "reshard", "--world", "2", bad, bad + ".d"],
                              capture_output=True, text=True, timeout=60)
        if done.returncode < 0 or done.returncode > 8:
            raise RuntimeError("byte %d: exit %d: %s" % (at, done.returncode, done.stderr))
        missed += not done.returncode
    assert missed < 40, "no flip was found"


# ------------------------------------------------------------------ DeepSpeed
def torch_updates(scaler, overflow):
    p = nn.Parameter(torch.zeros(1))
    opt = torch.optim.SGD([p], lr=0.1)
    scaler.scale(p.sum() * (float("inf") if overflow else 1)).backward()
    scaler.step(opt)
    scaler.update()


def scale_differs(engine, grad):
    """The scaler of DeepSpeed and GradScaler, if the file has one, after the same steps.

    Then DeepSpeed trains on: its states are as its optimizer needs them.
    """
    scaler, said = copy.copy(engine.optimizer.loss_scaler), []
    want = grad["scale"] if grad else 65536.0
    if not scaler.dynamic or scaler.loss_scale != want:
        said.append("scale %s, not %s" % (scaler.loss_scale, want))
    x, y = torch.randint(0, 11, (2,)), torch.randint(0, 11, (2,))
    engine.backward(nn.functional.cross_entropy(engine(x).float(), y))
    engine.step()
    if engine.global_steps != 4:
        said.append("no step after the third")
    if not grad:
        return said
    twin = torch.amp.GradScaler("cpu")
    twin.load_state_dict(grad)
    for overflow in (False, False, False, False, False, True, True):
        torch_updates(twin, overflow)
        scaler.update_scale(overflow)
        if scaler.cur_scale != twin.get_scale():
            said.append("scale %s after an update, GradScaler's %s" %
                        (scaler.cur_scale, twin.get_scale()))
    return said


def deepspeed_worker(folder, path, form, dtype, stage):
    def work(rank, world):
        import deepspeed
        import dsrank
        net, opt = make(form, seed=8)
        cfg = {"train_batch_size": 2 * world, "train_micro_batch_size_per_gpu": 2,
               "zero_optimization": {"stage": stage, "overlap_comm": False},
               "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
               "steps_per_print": 10 ** 6}
        if dtype == "bf16":
            cfg["bf16"] = {"enabled": True}
            net.to(torch.bfloat16)
        elif dtype == "fp16":
            cfg["fp16"] = {"enabled": True}
            net.half()      # its buffers, too, which DeepSpeed leaves and batch norms need
        engine = deepspeed.initialize(model=net, optimizer=opt, config=cfg,
                                      dist_init_required=False)[0]
        engine.load_checkpoint(folder)
        state = dsrank.gather(engine, net)
        file = torch.load(path, weights_only=True)
        how = {**FORMS, **ORDERED}[form]
        weights, prefix = file[how[4]], how[6]
        said = []
        old, o = make(form)
        o.load_state_dict(file[how[5]])
        for name, states in by_name(old, o).items():
            want = {"exp_avg": states["exp_avg"], "exp_avg_sq": states["exp_avg_sq"],
                    "master": weights[prefix + name]}
            for what, w in want.items():
                got = state.get(name + "|" + what)
                if got is None and what == "master" and dtype == "fp32":
                    got = state.get(name + "|weight")
                if got is None or not torch.equal(got.float().reshape(w.shape), w.float()):
                    said.append("%s|%s" % (name, what))
            p = dict(net.named_parameters())[name]
            if dtype == "fp16" and stage < 3 and \
                    not torch.equal(p.detach(), weights[prefix + name].half()):
                said.append("%s|weight" % name)
        if engine.global_steps != 3:
            said.append("global_steps %d" % engine.global_steps)
        base = getattr(engine.optimizer, "optimizer", engine.optimizer)
        for s in base.state.values():
            if float(s.get("step", 3)) != 3:
                said.append("step %s" % s.get("step"))
        if dtype == "fp16":
            said += scale_differs(engine, file.get("scaler"))
        assert not said, said       # what a rank returns is lost
    return work


def said_of(form, path):
    """The options that a user gives: the order of the optimizer, and what it has not."""
    if form not in ORDERED:
        return []
    net, opt = make(form)
    names = {id(p): n for n, p in net.named_parameters()}
    with open(path + ".order", "w") as f:
        f.writelines(names[id(p)] + "\n" for g in opt.param_groups for p in g["params"])
    return ["--order", path + ".order", "--frozen", "up.bias"]


def deepspeed_resumes(zckpt, path, form, dtype, stage, world, work):
    import dsrank
    d = os.path.join(work, "ds-%s-%s-%d" % (os.path.basename(path), dtype, stage))
    run(zckpt, "shard", path, d, "--world", world, "--stage", stage, "--with-states", "--dtype",
        dtype, *said_of(form, path))
    said = dsrank.fork_ranks(world, deepspeed_worker(d, path, form, dtype, stage))
    assert not said, said


# ------------------------------------------------------------------ ztrain
def llama(fixtures, work, name):
    """A model's folder, rows of tokens, the file of them, the model in fp32 and its AdamW"""
    from transformers import AutoModelForCausalLM
    folder = os.path.join(fixtures, "model", "models", "llama3_tied")
    ids = torch.randint(0, 257, (64, 32), generator=torch.Generator().manual_seed(0))
    rows = os.path.join(work, name)
    with open(rows, "w") as f:
        for r in ids.tolist():
            f.write(json.dumps({"input_ids": r}) + "\n")
    net = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                               attn_implementation="eager")
    return folder, ids, rows, net, torch.optim.AdamW(net.parameters(), lr=1e-3,
                                                     betas=(0.9, 0.95), weight_decay=0.1)


def six_steps(net, opt, ids, path, **more):
    """Losses of six steps; the third is saved, with 'more' in the file."""
    losses = []
    for s in range(6):
        x = ids[8 * s:8 * s + 8]
        loss = net(input_ids=x, labels=x).loss
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        losses.append(loss.item())
        if s == 2:
            torch.save(dict({"model": net.state_dict(), "optimizer": opt.state_dict()}, **more), path)
    return losses


def ztrain_resumes(zckpt, ztrain, fixtures, work):
    from transformers import AutoModelForCausalLM
    folder, ids, rows, net, opt = llama(fixtures, work, "rows.jsonl")
    path = os.path.join(work, "hf.pth")
    losses = six_steps(net, opt, ids, path, epoch=0, step=3)
    for world, stage in ((1, 0), (1, 2), (2, 1), (2, 3)):
        cfg = os.path.join(work, "ds%d.json" % stage)
        with open(cfg, "w") as f:
            json.dump({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 4,
                       "gradient_clipping": 1.0, "zero_optimization": {"stage": stage},
                       "optimizer": {"type": "AdamW", "params": {
                           "lr": 1e-3, "betas": [0.9, 0.95], "weight_decay": 0.1}}}, f)
        log = os.path.join(work, "log-%d-%d.jsonl" % (world, stage))
        words = [ztrain, "--model", folder, "--config", cfg, "--data", rows, "--resume", path,
                 "--steps", 6, "--log", log, "--save", log + ".run"]
        if world > 1:
            words = [os.path.join(HERE, "..", "lib", "run", "mpirun"), "-n", world] + words
        run(*words)
        got = [json.loads(line) for line in open(log)]
        got = [r["loss"] for r in got if "loss" in r and "step" in r]
        assert len(got) == 3, got
        for a, b in zip(got, losses[3:]):
            assert abs(a - b) < 2e-5, (world, stage, got, losses)
        back = log + ".pth"
        run(zckpt, "convert", "--to", "torch-training", log + ".run", back)
        file = torch.load(back, weights_only=True)
        new = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        o = torch.optim.AdamW(new.parameters())
        new.load_state_dict(file["model"])
        o.load_state_dict(file["optimizer"])
        for (n, p), q in zip(net.named_parameters(), new.parameters()):
            assert torch.allclose(p, q, atol=1e-4), n
            assert torch.allclose(opt.state[p]["exp_avg"], o.state[q]["exp_avg"], atol=1e-4), n
        assert o.param_groups[0]["weight_decay"] == 0.1 and float(o.state[q]["step"]) == 6


def ztrain_resumes_ordered(ztrain, fixtures, work):
    folder, ids, rows, net, _ = llama(fixtures, work, "rows.jsonl")
    named = list(net.named_parameters())[::-1]
    opt = torch.optim.AdamW([p for _, p in named], lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    path, order = os.path.join(work, "backward-hf.pth"), os.path.join(work, "order")
    with open(order, "w") as f:
        f.writelines(n + "\n" for n, _ in named)
    losses = six_steps(net, opt, ids, path)
    cfg = os.path.join(work, "ordered.json")
    with open(cfg, "w") as f:
        json.dump({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 4,
                   "gradient_clipping": 1.0, "zero_optimization": {"stage": 3},
                   "optimizer": {"type": "AdamW", "params": {
                       "lr": 1e-3, "betas": [0.9, 0.95], "weight_decay": 0.1}}}, f)
    log = os.path.join(work, "ordered.jsonl")
    words = [os.path.join(HERE, "..", "lib", "run", "mpirun"), "-n", 2, ztrain, "--model", folder,
             "--config", cfg, "--data", rows, "--resume", path, "--steps", 6, "--log", log]
    run(*words, fails="--resume-order FILE")
    run(*words, "--resume-order", order)
    got = [r["loss"] for r in map(json.loads, open(log)) if "loss" in r and "step" in r]
    assert len(got) == 3, got
    for a, b in zip(got, losses[3:]):
        assert abs(a - b) < 2e-5, (got, losses)


def ztrain_resumes_fp16(zckpt, ztrain, fixtures, work):
    """In fp16 with the scale of GradScaler, from a file in fp32 and from one saved in fp16."""
    folder, ids, rows, net, opt = llama(fixtures, work, "rows16.jsonl")
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    files = {n: os.path.join(work, n + ".pth") for n in ("amp32", "amp16", "bare16")}
    losses, scales = [], []
    for s in range(6):
        x = ids[8 * s:8 * s + 8]
        loss = net(input_ids=x, labels=x).loss
        scales.append(scaler.get_scale())
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
        losses.append(loss.item())
        if s == 2:
            half = {k: v.half() for k, v in net.state_dict().items()}
            more = {"optimizer": opt.state_dict(), "epoch": 0, "step": 3}
            for name, model in (("amp32", net.state_dict()), ("amp16", half), ("bare16", half)):
                scale = {} if name == "bare16" else {"scaler": scaler.state_dict()}
                torch.save({"model": model, **more, **scale}, files[name])
    for name, precision, world, stage in (("amp32", "fp16", 1, 1), ("amp16", "fp16", 2, 3),
                                          ("bare16", "fp16", 1, 2), ("amp32", "bf16", 1, 2),
                                          ("amp16", None, 1, 0)):
        what = "%s-%s-%d-%d" % (name, precision, world, stage)
        cfg, log = os.path.join(work, what + ".json"), os.path.join(work, what + ".jsonl")
        with open(cfg, "w") as f:
            json.dump({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 4,
                       "gradient_clipping": 1.0, "zero_optimization": {"stage": stage},
                       **({precision: {"enabled": True}} if precision else {}),
                       "optimizer": {"type": "AdamW", "params": {
                           "lr": 1e-3, "betas": [0.9, 0.95], "weight_decay": 0.1}}}, f)
        words = [ztrain, "--model", folder, "--config", cfg, "--data", rows, "--resume",
                 files[name], "--steps", 6, "--log", log, "--save", log + ".run"]
        if world > 1:
            words = [os.path.join(HERE, "..", "lib", "run", "mpirun"), "-n", world] + words
        run(*words)
        got = [json.loads(line) for line in open(log)]
        got = [r for r in got if "loss" in r and "step" in r]
        assert len(got) == 3, got
        for a, b in zip(got, losses[3:]):
            assert abs(a["loss"] - b) < (0.05 if precision == "bf16" else 5e-3), (what, a, b)
        seen = [r.get("loss_scale", 1) for r in got]
        want = scales[3:] if name != "bare16" else [65536.0] * 3
        assert seen == (want if precision == "fp16" else [1, 1, 1]), (what, seen, want)
        back = log + ".pth"
        run(zckpt, "convert", "--to", "torch-training", log + ".run", back)
        file = torch.load(back, weights_only=True)
        if precision == "fp16" and name != "bare16":
            assert file["scaler"] == scaler.state_dict(), (file["scaler"], scaler.state_dict())


def main():
    a = argparse.ArgumentParser()
    a.add_argument("work")
    a.add_argument("--zckpt", default="zckpt")
    a.add_argument("--ztrain")
    a.add_argument("--fixtures")
    a.add_argument("--only", default="")
    o = a.parse_args()
    shutil.rmtree(o.work, ignore_errors=True)
    os.makedirs(o.work)
    import dsrank
    dsrank.prepare()    # it sets the number of threads, on which sums depend
    cases = []
    for form in FORMS:
        path = os.path.join(o.work, form + ".pth")
        net, opt = save(form, path)
        cases.append((form + ": names", named, o.zckpt, path, net, opt))
        cases.append((form + ": there and back", there_and_back, o.zckpt, path, form, o.work))
    for form in ORDERED:
        save(form, os.path.join(o.work, form + ".pth"))
    for form in ("adamw", "amp"):
        path = os.path.join(o.work, "half-%s.pth" % form)
        half_model(form, path)
        cases.append(("fp16 model of %s: there and back" % form, halves_return, o.zckpt, path,
                      form, o.work))
    cases.append(("fp16: there and back, with types", halves_return, o.zckpt,
                  os.path.join(o.work, "fp16.pth"), "fp16", o.work))
    first = os.path.join(o.work, "adamw.pth")
    cases.append(("refused", refused, o.zckpt, o.work))
    cases.append(("said by the user", given_by_user, o.zckpt, o.work))
    cases.append(("damaged", damaged, o.zckpt, first, o.work))
    for form, dtype, stage, world in (("adamw", "fp32", 1, 2), ("fused", "bf16", 2, 2),
                                      ("two", "bf16", 3, 2), ("adamw", "fp32", 3, 1),
                                      ("bf16", "bf16", 1, 2), ("amp", "fp16", 1, 2),
                                      ("amp", "fp16", 2, 2), ("amp", "fp16", 3, 2),
                                      ("fp16", "fp16", 1, 1), ("fp16", "fp16", 2, 2),
                                      ("fp16", "fp16", 3, 1), ("half-amp", "fp16", 2, 2),
                                      ("half-adamw", "fp16", 3, 2), ("backward", "bf16", 2, 2),
                                      ("backward", "fp32", 3, 2)):
        path = os.path.join(o.work, form + ".pth")
        cases.append(("DeepSpeed: %s in %s, stage %d, %d ranks" % (form, dtype, stage, world),
                      deepspeed_resumes, o.zckpt, path, form.split("-")[-1], dtype, stage, world,
                      o.work))
    if o.ztrain and os.access(o.ztrain, os.X_OK) and \
            os.path.isdir(os.path.join(o.fixtures or "", "model")):
        cases.append(("ztrain", ztrain_resumes, o.zckpt, o.ztrain, o.fixtures, o.work))
        cases.append(("ztrain by order", ztrain_resumes_ordered, o.ztrain, o.fixtures, o.work))
        cases.append(("ztrain in fp16", ztrain_resumes_fp16, o.zckpt, o.ztrain, o.fixtures,
                      o.work))
    for c in cases:
        if o.only in c[0]:
            case(*c)
    print("%d passed, %d failed, 0 skipped" % (PASSED[0], FAILED[0]))
    return 1 if FAILED[0] or not PASSED[0] else 0


if __name__ == "__main__":
    sys.path.insert(0, HERE)
    sys.exit(main())
