"""Folders of torch.distributed.checkpoint that torch writes are read, and those that zckpt writes load.

    dcp_folders.py [--alone]

A model is trained, with and without a scheduler, and saved by dcp.save().  zckpt makes a DCP folder of
other ranks of it, a step of DeepSpeed, a native step, and a DCP folder of each again.  torch loads every
folder into a model of other weights, with its own keys and dcp.load(): parameters, buffers, moments,
counts and param groups must be those of the run, and so must be its next losses.  The layouts of torchtitan
and accelerate are loaded as these load theirs, and so is the form of torch 2.1.  --alone leaves DeepSpeed out:
the torch to judge may be any from 2.4 on.  DeepSpeed resumes the
step that zckpt makes of the folder.  What zckpt converts must be the state dict.
"""
import inspect
import os
import subprocess
import sys
import tempfile
import warnings

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict

ZCKPT = os.environ["ZCKPT"]
warnings.filterwarnings("ignore")
torch.set_num_threads(1)
passed = failed = 0
LAYOUTS = {"titan": ("--layout", "titan"), "accelerate": ("--layout", "accelerate"), "pair": ("--layout", "net.a,opt"),
           "2.1": ("--torch", "2.1")}


def alone(fn):
    """Without a process group, which torch before 2.9 finds out itself."""
    return {"no_dist": True} if "no_dist" in inspect.signature(fn).parameters else {}


def save(state, folder):
    dcp.save(state, checkpoint_id=folder, **alone(dcp.save))


def load(state, folder):
    dcp.load(state, checkpoint_id=folder, **alone(dcp.load))


class Net(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.emb = torch.nn.Embedding(13, 6)
        self.norm = torch.nn.LayerNorm(6)
        self.body = torch.nn.Sequential(torch.nn.Linear(6, 7), torch.nn.Tanh(), torch.nn.Linear(7, 6))
        self.scale = torch.nn.Parameter(scale)
        self.head = torch.nn.Linear(6, 13, bias=False)
        self.head.weight = self.emb.weight
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, ids):
        self.seen += ids.numel()
        return self.head(self.body(self.norm(self.emb(ids))) * self.scale)


class Run:
    def __init__(self, seed, scheduled, dtype):
        torch.manual_seed(seed)
        # DeepSpeed takes no parameter without dimensions on a CPU
        self.net = Net(torch.tensor([1.5] if scheduled else 1.5)).to(dtype)
        flat = [p for p in self.net.parameters() if p.ndim < 2]
        deep = [p for p in self.net.parameters() if p.ndim >= 2]
        self.opt = torch.optim.AdamW([{"params": deep, "weight_decay": 0.1}, {"params": flat, "weight_decay": 0.0}], lr=1e-2)
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, lambda n: 1 / (1 + n)) if scheduled else None

    def step(self, number):
        g = torch.Generator().manual_seed(number)
        ids = torch.randint(0, 13, (4, 5), generator=g)
        loss = torch.nn.functional.cross_entropy(self.net(ids).flatten(0, 1).float(), ids.flatten())
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        if self.sched:
            self.sched.step()
        return loss.item()

    def state(self):
        model, optimizer = get_state_dict(self.net, self.opt)
        state = {"model": model, "optimizer": optimizer}
        if self.sched:
            state["lr_scheduler"] = self.sched.state_dict()
        return state

    def load(self, folder, keys, layout="plain"):
        """As a program of this layout loads it, with its own keys."""
        state = {k: v for k, v in self.state().items() if k in keys}
        sched = state.get("lr_scheduler")
        if layout == "titan":
            return self.load_titan(folder, sched)
        if layout == "accelerate":
            for key, name in ("model", "pytorch_model_fsdp_0"), ("optimizer", "optimizer_0"):
                one = {key: state[key]}
                load(one, os.path.join(folder, name))
                state[key] = one[key]
            if sched:
                state["lr_scheduler"] = torch.load(os.path.join(folder, "scheduler.bin"), weights_only=True)
        elif layout == "pair":
            renamed = {"net": {"a": state["model"]}, "opt": state["optimizer"]}
            load(renamed, folder)
            state = {"model": renamed["net"]["a"], "optimizer": renamed["opt"]}
            if sched:
                one = {"lr_scheduler": sched}
                load(one, folder)
                state.update(one)
        else:
            load(state, folder)
        set_state_dict(self.net, self.opt, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        if self.sched and "lr_scheduler" in state:
            self.sched.load_state_dict(state["lr_scheduler"])


    def load_titan(self, folder, sched):
        flat = StateDictOptions(flatten_optimizer_state_dict=True)
        model, optimizer = get_state_dict(self.net, self.opt, options=flat)
        state = {**model, "optimizer": optimizer}
        if sched:
            state["lr_scheduler"] = sched
        load(state, folder)
        set_state_dict(self.net, self.opt, model_state_dict={k: state[k] for k in model},
                       optim_state_dict=state["optimizer"], options=flat)
        if sched:
            self.sched.load_state_dict(state["lr_scheduler"])


def cannot(layout):
    """What this torch does not load, of its own folders either."""
    version = tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2])
    if layout == "titan" and version < (2, 7):
        return "a flat optimizer of a tied weight: KeyError in torch before 2.7"
    if layout == "2.1" and version < (2, 6):
        return "torch 2.4 looks for param groups one by one"
    return None


def flat(tree, name=""):
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from flat(value, f"{name}.{key}")
    elif isinstance(tree, (list, tuple)):
        for key, value in enumerate(tree):
            yield from flat(value, f"{name}.{key}")
    else:
        yield name, tree


def differing(a, b):
    a, b = dict(flat(a)), dict(flat(b))
    bad = sorted(set(a) ^ set(b))
    for key in set(a) & set(b):
        x, y = a[key], b[key]
        same = torch.equal(x, y) if torch.is_tensor(x) else x == y
        if not same:
            bad.append(f"{key}: {x} {y}")
    return bad


def check(what, bad):
    global passed, failed
    if bad:
        failed += 1
        print(f"FAIL {what}: {bad[:4]}")
    else:
        passed += 1


def zckpt(*args):
    done = subprocess.run([ZCKPT, *args], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"zckpt {' '.join(args)}: {done.stderr}")


def only(folder):
    names = [n for n in os.listdir(folder) if os.path.isdir(os.path.join(folder, n))]
    assert len(names) == 1, names
    return os.path.join(folder, names[0])


def engine_of(run, stage):
    """DeepSpeed around the model and the optimizer of a run, on this process alone."""
    import deepspeed

    config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_allow_untested_optimizer": True,
              "zero_optimization": {"stage": stage}, "steps_per_print": 10**9, "gradient_clipping": 0.0}
    engine, *_ = deepspeed.initialize(model=run.net, optimizer=run.opt, config=config,
                                      lr_scheduler=run.sched, dist_init_required=False)
    return engine


def try_deepspeed(sources, dir, scheduled, next_losses):
    """A run of torch, and a step that was a DCP folder of some layout, resume in DeepSpeed."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29671", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    import deepspeed

    if not torch.distributed.is_initialized():
        deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    for number, (name, stage) in enumerate(sources):
        folder = os.path.join(dir, f"ds{number}")
        zckpt("reshard", "-q", "--stage", str(stage), "--world", "1", name, folder)
        run = Run(7, scheduled, torch.float32)
        engine = engine_of(run, stage)
        where, _ = engine.load_checkpoint(folder)
        check(f"DeepSpeed loads stage {stage} of {name}", [] if where else ["nothing was loaded"])
        losses = []
        for n in 3, 4:
            ids = torch.randint(0, 13, (4, 5), generator=torch.Generator().manual_seed(n))
            loss = torch.nn.functional.cross_entropy(engine(ids).flatten(0, 1).float(), ids.flatten())
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
        near = all(abs(a - b) <= 2e-5 * abs(b) for a, b in zip(losses, next_losses))
        check(f"DeepSpeed resumes stage {stage} of {name}", [] if near else [losses, next_losses])


def try_run(dir, scheduled, dtype):
    label = f"{'with' if scheduled else 'without'} a scheduler, {dtype}"
    run = Run(1, scheduled, dtype)
    for n in range(3):
        run.step(n)
    want = run.state()
    save(want, os.path.join(dir, "theirs"))
    want = {k: dict(flat(v)) for k, v in torch.load(dump(want, dir), weights_only=False).items()}
    made = {"theirs": os.path.join(dir, "theirs")}

    zckpt("convert", "-q", "--dtype", "keep", "--tied", "dup", made["theirs"], os.path.join(dir, "m.safetensors"))
    got = load_file(os.path.join(dir, "m.safetensors"))
    check(f"convert, {label}", differing(run.net.state_dict(), got))
    layouts = {}
    for layout, options in LAYOUTS.items():
        if cannot(layout):
            continue
        for source in "theirs", "deepspeed":
            name = f"{layout} of {source}"
            if source == "deepspeed":
                folder = os.path.join(dir, "z")
                if not os.path.exists(folder):
                    zckpt("reshard", "-q", "--stage", "2", "--world", "2", made["theirs"], folder)
            else:
                folder = made["theirs"]
            made[name] = reshard(folder, dir, name.replace(" ", "-"), "--to", "dcp", "--world", "3", *options)
            layouts[name] = layout
    # back from each: this torch's form again, in the usual layout
    for layout in LAYOUTS:
        if cannot(layout):
            continue
        made[f"dcp of {layout}"] = reshard(made[f"{layout} of theirs"], dir, f"back-{layout}", "--to", "dcp", "--layout",
                                           "model,optimizer", "--world", "2")
    for world in 1, 3, 16:
        made[f"dcp of {world} ranks"] = reshard(made["theirs"], dir, f"dcp{world}", "--to", "dcp", "--world", str(world))
    for stage in 1, 2:
        step = os.path.join(dir, f"z{stage}")
        zckpt("reshard", "-q", "--stage", str(stage), "--world", "2", made["theirs"], step)
        made[f"dcp of ZeRO stage {stage}"] = reshard(step, dir, f"dcpz{stage}", "--to", "dcp", "--world", "2")
    native = os.path.join(dir, "native")
    zckpt("reshard", "-q", "--to", "native", made["theirs"], native)
    made["dcp of a native step"] = reshard(native, dir, "dcpn", "--to", "dcp", "--world", "2")
    next_losses = [run.step(n) for n in (3, 4)]

    for name, folder in made.items():
        other = Run(7, scheduled, dtype)
        other.load(folder, want, layouts.get(name, "plain"))
        state = {k: dict(flat(v)) for k, v in other.state().items()}
        if layouts.get(name) == "2.1":  # groups are one value, with keys that only DeepSpeed has
            state["optimizer"] = {k: v for k, v in state["optimizer"].items() if k in want["optimizer"]}
        check(f"{name}, {label}", differing(want, state))
        losses = [other.step(n) for n in (3, 4)]
        check(f"losses of {name}, {label}", [] if losses == next_losses else [losses, next_losses])
    if dtype is torch.float32 and scheduled and "--alone" not in sys.argv:
        sources = [(made["theirs"], stage) for stage in (1, 2, 3)]
        sources += [(made[f"{layout} of deepspeed"], 1 + i % 3) for i, layout in enumerate(LAYOUTS)]
        try_deepspeed(sources, dir, scheduled, next_losses)


def reshard(source, dir, name, *options):
    zckpt("reshard", "-q", *options, source, os.path.join(dir, name))
    return only(os.path.join(dir, name))


def dump(state, dir):
    """What a state is now: training goes on in its tensors."""
    path = os.path.join(dir, "state.pt")
    torch.save(state, path)
    return path


def main():
    for scheduled in False, True:
        for dtype in torch.float32, torch.bfloat16:
            with tempfile.TemporaryDirectory() as dir:
                try:
                    try_run(dir, scheduled, dtype)
                except Exception as error:  # noqa: BLE001
                    check(f"{scheduled} {dtype}", [repr(error)[:1500]])
    for layout in LAYOUTS:
        if cannot(layout):
            print(f"skipped: {layout}: {cannot(layout)}")
    print(f"{passed} passed, {failed} failed, {sum(bool(cannot(layout)) for layout in LAYOUTS)} skipped")
    return failed != 0


sys.exit(main())
