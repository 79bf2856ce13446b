"""Rank files of FSDP2 that torch writes are read, and those that zckpt writes load.

    fsdp_ranks.py

Ranks on CPUs (gloo) train a model under FSDP2 and save it as verl does: a file of the model, of the optimizer and of the extra
state for each rank.  zckpt makes rank files of other ranks of it, a step of DeepSpeed, a native step and a DCP folder, and rank
files of each again.  Ranks load every result into a model of other weights as verl does, with the model's and the optimizer's own
load_state_dict(): parameters, buffers, moments, counts, param groups and the scheduler must be those of the run, and so must be its
next losses.  The parts are also put together without any process group, as verl's model merger does.
"""
import logging
import os
import subprocess
import sys
import tempfile
import traceback
import warnings

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

ZCKPT = os.environ["ZCKPT"]
warnings.filterwarnings("ignore")
logging.getLogger("torch.distributed.device_mesh").setLevel(logging.ERROR)  # merged() has no process group
torch.set_num_threads(1)
passed = failed = 0


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(6)
        self.up = torch.nn.Linear(6, 7)
        self.down = torch.nn.Linear(7, 6)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = torch.nn.Embedding(13, 6)
        self.layers = torch.nn.ModuleList([Block(), Block()])
        self.scale = torch.nn.Parameter(torch.tensor([1.5]))
        self.head = torch.nn.Linear(6, 13, bias=False)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, ids):
        self.seen += ids.numel()
        x = self.emb(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x * self.scale)


class Run:
    """A model and its optimizer on the ranks of this process group."""

    def __init__(self, seed, scheduled, dtype, frozen):
        torch.manual_seed(seed)
        self.net = Net().to(dtype)
        if frozen:
            self.net.layers[0].up.weight.requires_grad_(False)
        mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("fsdp",))
        for layer in self.net.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(self.net, mesh=mesh)
        trained = [(n, p) for n, p in self.net.named_parameters() if p.requires_grad]
        flat = [p for p in trained if p[1].ndim < 2]
        deep = [p for p in trained if p[1].ndim >= 2]
        if frozen:  # the optimizer has names, which shapes in this order do not prove
            deep, flat = deep[::-1], flat[::-1]
        else:
            deep, flat = [p for _, p in deep], [p for _, p in flat]
        self.opt = torch.optim.AdamW([{"params": deep, "weight_decay": 0.1}, {"params": flat, "weight_decay": 0.0}], lr=1e-2)
        self.sched = torch.optim.lr_scheduler.StepLR(self.opt, 2, 0.5) if scheduled else None

    def step(self, number):
        ids = torch.randint(0, 13, (4, 5), generator=torch.Generator().manual_seed(number))
        loss = torch.nn.functional.cross_entropy(self.net(ids).flatten(0, 1).float(), ids.flatten())
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        if self.sched:
            self.sched.step()
        return loss.item()

    def save(self, folder):
        rank, world = dist.get_rank(), dist.get_world_size()
        os.makedirs(folder, exist_ok=True)
        extra = {"lr_scheduler": self.sched.state_dict() if self.sched else None, "rng": {"cpu": torch.get_rng_state()}}
        for kind, what in ("model", self.net.state_dict()), ("optim", self.opt.state_dict()), ("extra_state", extra):
            torch.save(what, os.path.join(folder, f"{kind}_world_size_{world}_rank_{rank}.pt"))

    def load(self, folder):
        rank, world = dist.get_rank(), dist.get_world_size()
        model, optim, extra = [
            torch.load(os.path.join(folder, f"{kind}_world_size_{world}_rank_{rank}.pt"), weights_only=False)
            for kind in ("model", "optim", "extra_state")]
        self.net.load_state_dict(model)
        self.opt.load_state_dict(optim)
        if "rng" in extra:
            torch.set_rng_state(extra["rng"]["cpu"])
        if extra["lr_scheduler"] is not None and self.sched:
            self.sched.load_state_dict(extra["lr_scheduler"])

    def state(self):
        """All of it, whole, by plain names."""
        names = {p: n for n, p in self.net.named_parameters()}
        out = {"model": {k: whole(v) for k, v in self.net.state_dict().items()}, "groups": [], "optim": {}}
        for group in self.opt.param_groups:
            values = {k: v for k, v in group.items() if k not in ("params", "param_names", "initial_lr")}
            out["groups"].append({**values, "names": [names[p] for p in group["params"]]})
        for p, state in self.opt.state.items():
            out["optim"][names[p]] = {k: whole(v) for k, v in state.items()}
        out["sched"] = self.sched.state_dict() if self.sched else None
        return out


def whole(v):
    return (v.full_tensor() if isinstance(v, DTensor) else v).detach().clone() if torch.is_tensor(v) else v


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
        same = torch.equal(x, y) and x.dtype == y.dtype if torch.is_tensor(x) else x == y
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


def on_ranks(world, dir, job):
    """job() in a process for each rank; what rank 0 returns."""
    store, out = tempfile.mktemp(dir=dir), tempfile.mktemp(dir=dir)
    pids = []
    for rank in range(world):
        pid = os.fork()
        if not pid:
            code = 1
            try:
                # Torch makes its thread pool anew after a fork.  Two threads of autograd that do it at once fail.
                torch.set_num_threads(1)
                dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
                result = job()
                if not rank:
                    torch.save(result, out)
                dist.barrier()
                code = 0
            except BaseException:  # noqa: BLE001
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(code)
        pids.append(pid)
    if any([os.waitpid(pid, 0)[1] for pid in pids]):
        raise RuntimeError(f"a rank of {world} failed")
    return torch.load(out, weights_only=False)


def zckpt(*args):
    done = subprocess.run([ZCKPT, *args], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"zckpt {' '.join(args)}: {done.stderr}")


def reshard(source, dir, name, *options):
    out = os.path.join(dir, name)
    zckpt("reshard", "-q", "--sync", "none", *options, source, out)
    found = [d for d, _, files in os.walk(out) if "fsdp_config.json" in files]
    return found[0] if found else out


def merged(folder, world):
    """The weights as verl's model merger puts them together: no process group, nothing but the files."""
    parts, placed = {}, {}
    for rank in range(world):
        state = torch.load(os.path.join(folder, f"model_world_size_{world}_rank_{rank}.pt"), map_location="cpu", weights_only=False)
        for key, value in state.items():
            if isinstance(value, DTensor):
                assert value.device_mesh.mesh_dim_names == ("fsdp",), value.device_mesh.mesh_dim_names
                assert value.device_mesh.mesh.tolist() == list(range(world)), value.device_mesh.mesh
                assert placed.setdefault(key, tuple(value.placements)) == tuple(value.placements)
                parts.setdefault(key, []).append(value._local_tensor)
            else:
                parts[key] = [value]
    return {k: torch.cat(v, dim=placed[k][0].dim) if k in placed else v[0] for k, v in parts.items()}


def try_run(dir, scheduled, dtype, frozen, others):
    label = f"{'with' if scheduled else 'without'} a scheduler, {dtype}{', frozen' if frozen else ''}"
    theirs = os.path.join(dir, "theirs")

    def train():
        run = Run(1, scheduled, dtype, frozen)
        for number in range(3):
            run.step(number)
        run.save(theirs)
        return run.state(), [run.step(number) for number in (3, 4)]

    want, next_losses = on_ranks(2, dir, train)
    made = {"rank files of 3": (3, reshard(theirs, dir, "r3", "--to", "fsdp-ranks", "--world", "3"))}
    made["of 3, then of 1"] = 1, reshard(made["rank files of 3"][1], dir, "r1", "--to", "fsdp-ranks", "--world", "1")
    for name in others:
        step = reshard(theirs, dir, name, "--world", "2", "--to", name)
        made[f"of {name}"] = 2, reshard(step, dir, f"r-{name}", "--to", "fsdp-ranks", "--device", "cpu", "--world", "2")
    for name, (world, folder) in made.items():
        def load(folder=folder):
            run = Run(7, scheduled, dtype, frozen)
            run.load(folder)
            return run.state(), [run.step(number) for number in (3, 4)]

        try:
            got, losses = on_ranks(world, dir, load)
        except RuntimeError as error:
            check(f"{name}, {label}", [repr(error)])
            continue
        for group in got["groups"]:
            group.pop("bias_correction", None)  # of DeepSpeed's Adam
        check(f"{name}, {label}", differing(want, got))
        near = 2e-5 if dtype is torch.float32 else 1e-2
        is_near = all(abs(a - b) <= near * abs(b) for a, b in zip(losses, next_losses))
        check(f"losses of {name}, {label}", [] if is_near else [losses, next_losses])
        weights = {k: v.to(want["model"][k].dtype) for k, v in merged(folder, world).items()}  # some are masters
        check(f"merged {name}, {label}", differing(want["model"], weights))


def main():
    for scheduled, dtype, frozen, others in (
            (True, torch.float32, False, ("deepspeed", "native", "dcp")),
            (False, torch.bfloat16, False, ("deepspeed",)),
            (True, torch.float32, True, ("deepspeed",))):
        with tempfile.TemporaryDirectory() as dir:
            try:
                try_run(dir, scheduled, dtype, frozen, others)
            except Exception as error:  # noqa: BLE001
                check(f"{scheduled} {dtype} {frozen}", [repr(error)[:1500]])
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return failed != 0


sys.exit(main())
