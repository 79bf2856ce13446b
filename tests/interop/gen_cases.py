"""Random checkpoints that real DeepSpeed writes, each with the state of the live engine.

    gen_cases.py OUT [--cases N] [--seed S] [--only NAME]

Writes OUT/NAME/ckpt, OUT/NAME/truth.safetensors ("PARAM|state", full tensors taken from the
running engine) and OUT/NAME/case.json. The same seed and count give the same cases. One
process group per world size runs all the cases of that size.
"""
import argparse
import gc
import json
import math
import os
import random
import shutil
import sys
import time

import dsrank
import torch
import torch.nn as nn
from safetensors.torch import save_file

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
ODD_NAMES = ("w-1", "größe", "a b", "weight_v2", "x/y", "50%")


# ------------------------------------------------------------------ what to make
def random_shape(r):
    kind = r.random()
    if kind < 0.30:
        return [r.randint(1, 40)]
    if kind < 0.38:
        return [1]
    if kind < 0.75:
        return [r.randint(1, 13), r.randint(1, 17)]
    if kind < 0.85:
        return [r.randint(1, 4), r.randint(1, 5), r.randint(1, 6)]
    if kind < 0.90:
        return [r.randint(1, 3), r.randint(1, 3), 3, 3]
    return [r.randint(20, 60), r.randint(7, 31)]


def random_model(r, spec):
    """Cells of parameters, tied pairs, frozen names, buffers."""
    cells, names = [], []
    for c in range(r.randint(2, 5)):
        cell = {}
        for p in range(r.randint(1, 4)):
            name = "p%d" % p if r.random() < 0.85 else r.choice(ODD_NAMES)
            cell[name] = random_shape(r)
        cells.append(cell)
        names += ["cells.%d.%s" % (c, n) for n in cell]
    if r.random() < 0.35:
        cells[0]["tiny"] = [r.randint(1, 3)]
        names.append("cells.0.tiny")
    tied = []
    if r.random() < 0.45:
        for k in range(2 if len(cells) > 2 and r.random() < 0.3 else 1):
            tied.append(["cells.%d.tied%d" % (len(cells) - 1 - k, k), names[0]])
    frozen = []
    if r.random() < 0.45:
        frozen = [n for n in names if r.random() < 0.35 and not (tied and n == names[0])]
        if tied and r.random() < 0.15 and len(names) > len(frozen) + 1:
            frozen.append(names[0])
        frozen = frozen[:len(names) - 1]
    spec.update(cells=cells, tied=tied, frozen=sorted(frozen, key=names.index),
                buffers=r.random() < 0.5)
    spec["groups"] = random_groups(r, [n for n in names if n not in frozen])
    if spec["stage"] in (1, 2) and r.random() < 0.12:    # stage 3 cannot gather such a one
        cells[-1]["none"] = r.choice(([0], [3, 0]))
        g = r.choice(spec["groups"])
        g.insert(r.randint(0, len(g)), "cells.%d.none" % (len(cells) - 1))


def random_groups(r, train):
    """1 to 4 optimizer groups, often in an order that is not the model's."""
    count = min(r.choice((1, 1, 2, 2, 3, 4)), len(train))
    last = []
    if "cells.0.tiny" in train and count > 1:       # a group smaller than the world
        last = [["cells.0.tiny"]]
        train = [n for n in train if n != "cells.0.tiny"]
        count -= 1
    if r.random() < 0.3:
        r.shuffle(train)
    cuts = sorted(r.sample(range(1, len(train)), count - 1))
    return [train[a:b] for a, b in zip([0] + cuts, cuts + [len(train)])] + last


def lengthen(r, spec):
    """Round robin changes the order only where a group has more parameters than ranks."""
    more = spec["world"] + 2 - max(len(g) for g in spec["groups"])
    if more > 0:
        where = len(spec["cells"])
        spec["cells"].append({"q%d" % k: random_shape(r) for k in range(more)})
        longest = max(spec["groups"], key=len)
        longest += ["cells.%d.q%d" % (where, k) for k in range(more)]


def random_spec(seed, i):
    r = random.Random("%d/%d" % (seed, i))
    world = 1 + i % 9
    stage = r.choice((0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3))
    spec = {"world": world, "stage": stage, "seed": r.randrange(1 << 30)}
    spec["precision"] = r.choice(("bf16", "bf16", "bf16", "bf16", "fp16", "fp32"))
    random_model(r, spec)
    spec["steps"] = r.choice((0, 1, 1, 2, 2, 2))
    zero, cfg = {}, {}
    opt = r.choice(("adamw", "adamw", "adamw", "adamw", "adamw", "amsgrad", "sgdm", "sgd",
                    "lion", "adagrad"))
    if opt == "adagrad" and len(spec["groups"]) > 1:
        opt = "adamw"
    bf16 = spec["precision"] == "bf16"
    spec["bf16opt"] = stage == 1 and bf16 and r.random() < 0.5
    if stage == 0:
        opt = r.choice(("adamw", "sgdm", "lion"))
        if len(spec["groups"]) == 1:       # no names are stored: only the model's own order
            spec["groups"] = [[n for n in all_names(spec) if n not in spec["frozen"]]]
    if spec["bf16opt"]:
        cfg["data_types"] = {"grad_accum_dtype": "fp32"}
    elif stage in (1, 2):
        if r.random() < 0.5:
            zero["round_robin_gradients"] = True
            lengthen(r, spec)
        if r.random() < 0.25:
            zero["parameter_alignment"] = True
        elif r.random() < 0.1:
            zero["elastic_checkpoint"] = True
        if r.random() < 0.1:
            zero["contiguous_gradients"] = False
        zero["reduce_bucket_size"] = r.choice((500, 4000, 100000))
    elif stage == 3:
        if r.random() < 0.6:
            zero["sub_group_size"] = r.choice((1, 20, 50, 90, 150, 300))
        zero["stage3_param_persistence_threshold"] = r.choice((0, 20, 100000))
        zero["stage3_prefetch_bucket_size"] = r.choice((200, 2000))
        zero["reduce_bucket_size"] = 4000
    if stage in (2, 3) and bf16 and r.random() < 0.1 and opt == "adamw":
        cfg["bf16"] = {"bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
    elif stage in (2, 3) and r.random() < 0.08:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": False}
    if r.random() < 0.08:
        cfg["checkpoint"] = {"checkpoint_serialization": False}
    spec["gas"] = 2 if r.random() < 0.12 else 1
    if spec["precision"] == "fp16" and spec["steps"] and r.random() < 0.3:
        spec["overflow_at"] = r.randrange(spec["steps"])
    spec["in_optimizer"] = bool(spec["frozen"]) and 1 <= stage <= 3 and \
        not spec["bf16opt"] and opt != "adagrad" and r.random() < 0.3
    spec["exclude_frozen"] = bool(spec["frozen"]) and r.random() < 0.25 and \
        not any(kept in spec["frozen"] for _, kept in spec["tied"])
    spec["scheduler"] = r.random() < 0.2
    spec["client"] = r.random() < 0.2
    spec["rank_buffers"] = stage == 3 and spec["buffers"] and r.random() < 0.3
    spec.update(opt=opt, zero=zero, cfg=cfg)
    spec["name"] = "c%03d-z%d-%s-w%d%s%s" % (
        i, stage, spec["precision"], world, "-bf16opt" if spec["bf16opt"] else "",
        "-rr" if zero.get("round_robin_gradients") else "")
    return spec


def all_names(spec):
    return ["cells.%d.%s" % (c, n) for c, cell in enumerate(spec["cells"]) for n in cell]


# ------------------------------------------------------------------ model and optimizer
class Cell(nn.Module):
    """Parameters of any shape; each element has a gradient that depends on the batch."""

    def __init__(self, shapes):
        super().__init__()
        for n, s in shapes.items():
            self.register_parameter(n, nn.Parameter(torch.randn(s) * 0.5))

    def forward(self, h, x):
        for w in self._parameters.values():
            k = torch.arange(w.numel(), dtype=torch.float32)
            c = torch.cos(k * 0.7 + x.float().mean() * 0.01)
            z = (w.reshape(-1).float() * c).sum() / math.sqrt(max(1, w.numel()))
            h = torch.tanh(h + 0.3 * z)
        return h


class Net(nn.Module):
    def __init__(self, spec):
        super().__init__()
        self.cells = nn.ModuleList([Cell(c) for c in spec["cells"]])
        for alias, kept in spec["tied"]:
            self._place(alias)._parameters[alias.split(".", 2)[2]] = \
                self._place(kept)._parameters[kept.split(".", 2)[2]]
        if spec["buffers"]:
            self.register_buffer("scale", torch.randn(3, 5))
            self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
            self.register_buffer("table", torch.arange(11, dtype=torch.int32))
            self.register_buffer("flag", torch.tensor([True, False, True]))
            self.register_buffer("scratch", torch.ones(9), persistent=False)
            self.cells[0].register_buffer("ema", torch.zeros(3))
        by_name = dict(self.named_parameters())
        for n in spec["frozen"]:
            by_name[n].requires_grad_(False)

    def _place(self, name):
        return self.cells[int(name.split(".", 2)[1])]

    def forward(self, x):
        if hasattr(self, "seen") and self.training:
            self.seen += 1
            self.cells[0].ema.mul_(0.75).add_(0.125)
        h = torch.linspace(-1.0, 1.0, x.shape[-1]).expand(x.shape)
        for cell in self.cells:
            h = cell(h, x)
        return ((h - torch.sin(x.float())) ** 2).mean()


class Lion(torch.optim.Optimizer):
    """Sign momentum: one state tensor and no step counter."""

    def __init__(self, params, lr):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.add_((m * 0.9 + p.grad * 0.1).sign_(), alpha=-g["lr"])
                m.mul_(0.99).add_(p.grad, alpha=0.01)


def make_optimizer(net, spec):
    by_name = dict(net.named_parameters())
    groups = [{"params": [by_name[n] for n in g], "lr": 0.01 * 0.8 ** i,
               "weight_decay": 0.0 if i else 0.01} for i, g in enumerate(spec["groups"])]
    if spec["in_optimizer"]:
        groups[0]["params"] += [by_name[n] for n in spec["frozen"]]
    kind = spec["opt"]
    if kind in ("adamw", "amsgrad"):
        return torch.optim.AdamW(groups, lr=0.01, amsgrad=kind == "amsgrad")
    if kind == "adagrad":
        return torch.optim.Adagrad(groups, lr=0.01)
    if kind in ("sgd", "sgdm"):
        return torch.optim.SGD(groups, lr=0.01, momentum=0.9 if kind == "sgdm" else 0.0)
    return Lion([{k: v for k, v in g.items() if k != "weight_decay"} for g in groups], lr=0.01)


def ds_config(spec):
    zero = {"stage": spec["stage"], "allgather_bucket_size": 4000, "overlap_comm": False}
    zero.update(spec["zero"])
    cfg = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": spec["gas"],
           "train_batch_size": 2 * spec["gas"] * spec["world"],
           "zero_optimization": zero, "zero_allow_untested_optimizer": True,
           "zero_force_ds_cpu_optimizer": False, "steps_per_print": 1000000}
    if spec["precision"] == "bf16":
        cfg["bf16"] = {"enabled": True}
    if spec["precision"] == "fp16":
        cfg["fp16"] = {"enabled": True, "initial_scale_power": 6, "loss_scale_window": 3,
                       "hysteresis": 1}
    for k, v in spec["cfg"].items():
        cfg[k] = dict(cfg.get(k, {}), **v)
    if spec["scheduler"]:
        cfg["scheduler"] = {"type": "WarmupLR", "params": {
            "warmup_min_lr": 0.001, "warmup_max_lr": 0.01, "warmup_num_steps": 5}}
    return cfg


# ------------------------------------------------------------------ one case, on every rank
def train(engine, spec, rank):
    engine.train()
    for step in range(spec["steps"]):
        for micro in range(spec["gas"]):
            g = torch.Generator().manual_seed(spec["seed"] + step * 1000 + micro * 100 + rank)
            x = torch.randint(0, 97, (2, 5), generator=g)
            loss = engine(x)
            if spec.get("overflow_at") == step:
                loss = loss * float("inf")
            engine.backward(loss)
            engine.step()


def facts(spec, truth, net, engine, tag):
    """case.json: what was made, what of it no reader can find, and which traits it has."""
    aliases = [a for a, _ in spec["tied"]]
    persistent = set(net.state_dict().keys())
    buffers = [{"name": n, "persistent": n in persistent,
                "dtype": str(b.dtype).replace("torch.", "")} for n, b in net.named_buffers()]
    lost = [b["name"] + "|buffer" for b in buffers if not b["persistent"]]
    if spec["exclude_frozen"]:
        lost += [n + "|weight" for n in spec["frozen"]]
    states = sorted({k.rsplit("|", 1)[1] for k in truth} - {"buffer"})
    # Adagrad fills its state when it is made, and DeepSpeed then gives it the same tensors
    # twice: until a step has cleaned that up, states are numbered from the second copies
    odd = spec["opt"] == "adagrad" and spec["stage"] == 3 and not spec["steps"]
    return {"case": spec["name"], "deepspeed": "0.19.8", "stage": spec["stage"],
            "world": spec["world"], "precision": spec["precision"], "tag": tag,
            "optimizer": spec["opt"], "wrapper": type(engine.optimizer).__name__,
            "params": [{"name": n, "shape": list(truth[n + "|weight"].shape),
                        "requires_grad": p.requires_grad}
                       for n, p in net.named_parameters()],
            "tied": spec["tied"], "aliases": aliases, "buffers": buffers, "states": states,
            "frozen": spec["frozen"], "global_steps": engine.global_steps,
            "may_lack": ["sum"] if odd else [],
            "not_in_checkpoint": sorted(lost), "traits": traits(spec, truth), "spec": spec}


def traits(spec, truth):
    """Only what really shows in the files counts: an option without effect does not."""
    world, stage, out = spec["world"], spec["stage"], set()
    size = {n: truth[n + "|weight"].numel() for g in spec["groups"] for n in g}
    if len(spec["groups"]) > 1:
        out.add("several groups")
    for g in spec["groups"]:
        g = [n for n in g if size[n]]       # DeepSpeed leaves empty parameters out
        total = sum(size[n] for n in g)
        if stage in (1, 2):
            part = 2 * math.ceil(total / (2 * world))
            out.update(["odd sizes"] if total % (2 * world) else [])
            out.update(["empty ranks"] if part * (world - 1) >= total else [])
            order = [g[i] for j in range(world) for i in range(j, len(g), world)]
            if spec["zero"].get("round_robin_gradients") and order != g:
                out.add("round robin")
            if spec["zero"].get("parameter_alignment"):
                out.add("alignment gaps")
        if stage == 3:
            piece = {n: math.ceil(size[n] / world) for n in g}
            out.update(["odd sizes"] if any(size[n] % world for n in g) else [])
            if any(piece[n] * (world - 1) >= size[n] > 0 for n in g) and world > 1:
                out.add("empty ranks")
            if spec["zero"].get("sub_group_size", 1e9) < sum(piece.values()) and len(g) > 1:
                out.add("sub-groups")
    for key, name in (("tied", "tied"), ("frozen", "frozen"), ("buffers", "buffers"),
                      ("bf16opt", "BF16_Optimizer"), ("exclude_frozen", "excluded frozen"),
                      ("in_optimizer", "frozen in optimizer"), ("client", "client state"),
                      ("rank_buffers", "buffers differ")):
        if spec[key]:
            out.add(name)
    if spec["zero"].get("elastic_checkpoint"):
        out.add("elastic")
    if "bf16" in spec["cfg"]:
        out.add("16-bit masters")
    if "checkpoint" in spec["cfg"]:
        out.add("legacy stream")
    if "offload_optimizer" in spec["zero"]:
        out.add("offload")
    if not spec["steps"]:
        out.add("no step yet")
    if 0 in size.values():
        out.add("zero elements")
    out.add("optimizer " + spec["opt"])
    return sorted(out)


def run_case(spec, out, rank):
    import deepspeed
    torch.manual_seed(spec["seed"])
    net = Net(spec)
    engine = deepspeed.initialize(model=net, optimizer=make_optimizer(net, spec),
                                  config=ds_config(spec), dist_init_required=False)[0]
    train(engine, spec, rank)
    if spec["rank_buffers"]:
        net.cells[0].ema.add_(rank)
    truth = dsrank.gather(engine, net)
    where = os.path.join(out, spec["name"])
    client = {}
    if spec["client"]:
        client = {"iteration": 7, "args": argparse.Namespace(lr=0.1, name="x"),
                  "history": [1.5, None, (2, "three")]}
    engine.save_checkpoint(os.path.join(where, "ckpt"), client_state=client,
                           exclude_frozen_parameters=spec["exclude_frozen"])
    torch.distributed.barrier()
    if rank == 0:
        for n in ("zero_to_fp32.py", "zero_to_torch.py"):
            if os.path.exists(os.path.join(where, "ckpt", n)):
                os.remove(os.path.join(where, "ckpt", n))
        save_file(truth, os.path.join(where, "truth.safetensors"))
        tag = open(os.path.join(where, "ckpt", "latest")).read().strip()
        info = facts(spec, truth, net, engine, tag)
        with open(os.path.join(where, "case.json.tmp"), "w") as f:
            json.dump(info, f, indent=1)
        os.rename(os.path.join(where, "case.json.tmp"), os.path.join(where, "case.json"))
    engine.destroy()
    del engine, net, truth
    gc.collect()
    torch.distributed.barrier()


# ------------------------------------------------------------------ all of them
def run_world(world, specs, out):
    """All cases of one world size. Returns [(name, what went wrong)]."""
    bad = []
    todo = list(specs)
    while todo:
        def work(rank, _):
            for s in todo:
                run_case(s, out, rank)
        said = dsrank.fork_ranks(world, work)
        made = lambda s: os.path.exists(os.path.join(out, s["name"], "case.json"))
        if not said:
            break
        todo = [s for s in todo if not made(s)]
        if not todo:
            bad.append(("world %d" % world, said))
            break
        bad.append((todo[0]["name"], said))
        shutil.rmtree(os.path.join(out, todo[0]["name"]), ignore_errors=True)
        todo = todo[1:]
    return bad


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("out")
    ap.add_argument("--cases", type=int, default=63)
    ap.add_argument("--seed", type=int, default=20)
    ap.add_argument("--only", help="make just this case of the series")
    a = ap.parse_args()
    specs = [random_spec(a.seed, i) for i in range(a.cases)]
    if a.only:
        specs = [s for s in specs if s["name"] == a.only]
    os.makedirs(a.out, exist_ok=True)
    for s in specs:
        shutil.rmtree(os.path.join(a.out, s["name"]), ignore_errors=True)
    dsrank.prepare()
    begin, bad = time.time(), []
    for world in range(1, 10):
        mine = [s for s in specs if s["world"] == world]
        if mine:
            t = time.time()
            bad += run_world(world, mine, os.path.abspath(a.out))
            print("gen: world %d: %d cases, %.1f s" % (world, len(mine), time.time() - t),
                  flush=True)
    for name, why in bad:
        print("gen: FAILED %s\n%s" % (name, why))
    print("gen: seed %d, %d of %d cases made in %.0f s" % (
        a.seed, len(specs) - len(bad), len(specs), time.time() - begin))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
