"""The model, the data and the engine of the DeepSpeed fixtures, rebuilt from `spec`.

A fixture's case.json keeps the spec it was trained with. Everything here is a function of
that spec alone: values are seeded by parameter name, a batch by (seed, step), and a rank
takes a contiguous slice of the batch. So a checkpoint can be resumed in real DeepSpeed, at
any world size and stage, and the losses of the next steps compared with those of the run
that was not stopped. The expressions of forward(), of the batches and of the hand-written
optimizers must not be reordered: the recorded losses depend on their rounding.
"""
import math
import re
import sys
import types
import zlib

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

import dsrank


# ------------------------------------------------------------------ the model
class LowRank(nn.Module):
    """A linear layer with a trainable product of two thin matrices beside it."""

    def __init__(self, wide, out, rank):
        super().__init__()
        self.base = nn.Linear(wide, out)
        self.lora_A = nn.Parameter(torch.empty(rank, wide))
        self.lora_B = nn.Parameter(torch.empty(out, rank))

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.lora_A), self.lora_B)


class Block(nn.Module):
    """One head of causal attention and a tanh feed-forward, both behind a LayerNorm."""

    def __init__(self, d, hidden, rank):
        super().__init__()
        linear = (lambda i, o: LowRank(i, o, rank)) if rank else nn.Linear
        self.ln1 = nn.LayerNorm(d)
        self.qkv = linear(d, 3 * d)
        self.out = nn.Linear(d, d, bias=False)
        self.ln2 = nn.LayerNorm(d)
        self.up = linear(d, hidden)
        self.down = nn.Linear(hidden, d)

    def forward(self, x):
        q, k, v = self.qkv(self.ln1(x)).chunk(3, -1)
        score = (q @ k.transpose(-1, -2)).float() / math.sqrt(q.shape[-1])
        past = torch.ones(score.shape[-2:], dtype=torch.bool).tril()
        score = score.masked_fill(~past, -1e4).softmax(-1).to(v.dtype)
        x = x + self.out(score @ v)
        return x + self.down(torch.tanh(self.up(self.ln2(x))))


class Odd(nn.Module):
    """Parameters of awkward shapes; each adds some of its elements to the stream."""

    def __init__(self, shapes):
        super().__init__()
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.empty(tuple(shape))))

    def forward(self, h, x):
        for name, w in self.named_parameters():
            flat = w.reshape(-1)
            pick = (x * 131 + len(name) * 17 + torch.arange(x.shape[-1]) * 7) % flat.numel()
            h = h + (flat[pick] * 0.5).unsqueeze(-1)
        return h


class Net(nn.Module):
    def __init__(self, m):
        super().__init__()
        vocab, d = m["vocab"], m["d"]
        self.emb = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList(
            [Block(d, m["hid"], m.get("lora", 0)) for _ in range(m["layers"])])
        if m.get("odd"):
            self.odd = Odd(m["odd"])
        self.norm = nn.LayerNorm(d)
        for head in ("head", "head2") if m.get("head2") else ("head",):
            setattr(self, head, nn.Linear(d, vocab, bias=False))
            if m.get("tied"):
                getattr(self, head).weight = self.emb.weight
        if m.get("buffers"):
            self.register_buffer("pos", torch.empty(m["seq"], d))
            self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
            self.register_buffer("table", torch.arange(11, dtype=torch.int32))
            self.register_buffer("flag", torch.tensor([True, False, True]))
            self.register_buffer("scratch", torch.ones(9), persistent=False)
            self.norm.register_buffer("ema", torch.zeros(3))

    def forward(self, x, y, spike=1.0):
        h = self.emb(x)
        if hasattr(self, "pos"):
            h = h + self.pos.to(h.dtype)
            if self.training:
                self.seen += 1
                self.norm.ema.mul_(0.75).add_(0.125)
        for block in self.blocks:
            h = block(h)
        if hasattr(self, "odd"):
            h = self.odd(h, x)
        h = self.norm(h)
        z = self.head(h)
        if hasattr(self, "head2"):
            z = z + 0.5 * self.head2(h)
        loss = F.cross_entropy(z.float().reshape(-1, z.shape[-1]), y.reshape(-1))
        return loss * spike if spike != 1.0 else loss


def _values(name, shape, seed):
    """What a parameter or float buffer starts with: norms about 1, the rest about 0."""
    key = (zlib.crc32(name.encode()) ^ (seed * 2654435761)) & 0xFFFFFFFF
    count = math.prod(shape)
    v = np.random.RandomState(key).standard_normal(count).astype(np.float32).reshape(shape)
    if re.search(r"(ln\d|norm)\.weight$", name):
        v = np.array(1.0 + 0.1 * v, np.float32)
    else:
        v = np.array(0.0 + (0.3 if len(shape) < 2 else 1.0 / math.sqrt(shape[-1])) * v, np.float32)
    return torch.from_numpy(v).reshape(shape)


def frozen(spec, name):
    return any(re.search(p, name) for p in spec["model"].get("frozen", []))


def build_net(spec, other=0):
    """The model. `other` shifts the seed: a resumed net must owe nothing to its start.

    Frozen weights that the save left out are the exception, as they are for a user.
    """
    net = Net(spec["model"])
    kept = spec.get("save_kw", {}).get("exclude_frozen_parameters", False)
    with torch.no_grad():
        for n, t in list(net.named_parameters()) + list(net.named_buffers()):
            if t.is_floating_point() and n != "norm.ema":
                shift = 0 if kept and frozen(spec, n) else other
                t.copy_(_values(n, tuple(t.shape), spec["seed"] + shift))
    for n, p in net.named_parameters():
        if frozen(spec, n):
            p.requires_grad_(False)
    return net


def batch(spec, step):
    """The global batch of a step: tokens, and the tokens that follow them."""
    m = spec["model"]
    r = np.random.RandomState((spec["seed"] * 7919 + step * 104729 + 1) & 0x7FFFFFFF)
    t = r.randint(0, m["vocab"], size=(spec["batch"], m["seq"] + 1))
    t = torch.from_numpy(t.astype(np.int64))
    return t[:, :-1].contiguous(), t[:, 1:].contiguous()


# ------------------------------------------------------------------ optimizers
class SignMomentum(torch.optim.Optimizer):
    """Lion by hand: one state tensor, no step counter."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            b1, b2 = g["betas"]
            for p in g["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                m = state["exp_avg"]
                p.mul_(1 - g["lr"] * g["weight_decay"])
                p.add_(m.mul(b1).add(p.grad, alpha=1 - b1).sign_(), alpha=-g["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


class CountingAdamW(torch.optim.AdamW):
    """AdamW that counts its steps in the groups too, as fused optimizers do."""

    def __init__(self, *args, **kw):
        super().__init__(*args, **kw)
        for g in self.param_groups:
            g["step"] = 0

    def step(self, closure=None):
        out = super().step(closure)
        for g in self.param_groups:
            g["step"] += 1
        return out


def param_groups(net, kind, decay, lr):
    named = list(net.named_parameters())
    train = [(n, p) for n, p in named if p.requires_grad]
    plain = lambda n, p: p.dim() < 2 or "ln" in n or "norm" in n
    outer = lambda n: n.startswith(("emb", "head"))
    stem = lambda n: ".".join(n.split(".")[:2 if n.startswith("blocks") else 1])
    take = lambda want: [p for n, p in train if want(n, p)]
    if kind == "one":               # frozen ones too, as many scripts do
        return [{"params": [p for _, p in named], "weight_decay": decay}]
    if kind == "decay":
        return [{"params": take(lambda n, p: not plain(n, p)), "weight_decay": decay},
                {"params": take(plain), "weight_decay": 0.0}]
    if kind == "three":
        return [{"params": take(lambda n, p: outer(n)), "weight_decay": 0.0, "lr": lr * 0.5},
                {"params": take(lambda n, p: not outer(n) and not plain(n, p)),
                 "weight_decay": decay},
                {"params": take(lambda n, p: not outer(n) and plain(n, p)),
                 "weight_decay": 0.0}]
    if kind == "mixed":             # a group of nothing but frozen ones in the middle
        return [{"params": take(lambda n, p: not plain(n, p)), "weight_decay": decay},
                {"params": [p for _, p in named if not p.requires_grad],
                 "weight_decay": 0.0, "lr": lr * 3},
                {"params": take(plain), "weight_decay": 0.0}]
    if kind == "reversed":
        return [{"params": [p for _, p in reversed(train)], "weight_decay": decay}]
    if kind == "per_layer":
        stems = list(dict.fromkeys(stem(n) for n, _ in train))
        return [{"params": take(lambda n, p: stem(n) == s), "weight_decay": decay * i,
                 "lr": lr * 0.9 ** i} for i, s in enumerate(stems)]
    raise ValueError("unknown groups %r in the spec" % kind)


def build_optimizer(net, o):
    """(an optimizer or None, the model_parameters argument for DeepSpeed or None)."""
    lr, kind = o.get("lr", 1e-2), o.get("kind", "adamw")
    if kind == "muon":              # DeepSpeed makes it from the config
        for n, p in net.named_parameters():
            p.use_muon = p.dim() == 2 and not n.startswith(("emb", "head"))
        return None, [p for p in net.parameters() if p.requires_grad]
    groups = param_groups(net, o.get("groups", "decay"), o.get("wd", 0.01), lr)
    if kind == "config":
        return None, groups
    if kind == "cpuadam":
        from deepspeed.ops.adam import DeepSpeedCPUAdam as make
    else:
        make = {"adamw": torch.optim.AdamW, "stepadamw": CountingAdamW,
                "adam": torch.optim.Adam, "sgd": torch.optim.SGD, "lion": SignMomentum,
                "adagrad": torch.optim.Adagrad, "rmsprop": torch.optim.RMSprop}[kind]
    kw = dict(o.get("kw", {}))
    if "betas" in kw:
        kw["betas"] = tuple(kw["betas"])
    return make(groups, lr=lr, **kw), None


# ------------------------------------------------------------------ the engine
def accumulation(spec, world):
    """Micro-batches per step that keep the global batch at this world size."""
    gas = spec.get("gas", 1)
    return gas if spec["batch"] % (world * gas) == 0 else 1


def keeps_batch(spec, world):
    """Whether the global batch can be shared out evenly, so that losses can be compared."""
    return spec["batch"] % world == 0


def _version(text):
    return tuple(int(x) for x in text.split("+")[0].split(".")[:3])


# what a stage does not know, or would turn into another optimizer
NOT_AT = {"3": ("round_robin_gradients", "elastic_checkpoint", "parameter_alignment"),
          "bf16": ("round_robin_gradients", "elastic_checkpoint", "parameter_alignment"),
          "2": ("offload_param", "sub_group_size"), "1": ("offload_param", "sub_group_size")}


def stage_of(spec):
    """The spec's stage as the command line names it: 0, 1, 2, 3 or bf16 (BF16_Optimizer)."""
    wide = spec.get("cfg", {}).get("data_types", {}).get("grad_accum_dtype") == "fp32"
    if spec["stage"] == 1 and spec["precision"] == "bf16" and wide:
        return "bf16"
    return str(spec["stage"])


def ds_config(spec, world, stage=None, zero=None, universal=False):
    """The case's own configuration; only its stage and the batch keys follow the arguments.

    stage: one of stage_of(); zero: further keys of zero_optimization that go with a choice
    made on zckpt's command line (sub_group_size, round_robin_gradients).
    """
    own = stage_of(spec)
    stage = own if stage is None else stage
    gas = accumulation(spec, world)
    micro = spec["batch"] // world // gas
    number = 1 if stage == "bf16" else int(stage)
    z = {"stage": number}
    if number:
        z.update(reduce_bucket_size=4000, allgather_bucket_size=4000, overlap_comm=False)
        if number == 3:
            z.update(stage3_param_persistence_threshold=20, stage3_prefetch_bucket_size=2000,
                     stage3_max_live_parameters=20000)
        z.update(spec.get("zero", {}))
        if stage != own:
            for key in NOT_AT.get(stage, ()):
                z.pop(key, None)
        z.update(zero or {})
    c = {"train_batch_size": micro * gas * world, "train_micro_batch_size_per_gpu": micro,
         "gradient_accumulation_steps": gas, "zero_optimization": z,
         "zero_allow_untested_optimizer": True, "steps_per_print": 1000000}
    if _version(spec["ds"]) >= (0, 10, 0):
        c["zero_force_ds_cpu_optimizer"] = False
    if spec["precision"] == "bf16":
        c["bf16" if _version(spec["ds"]) >= (0, 6, 0) else "bfloat16"] = {"enabled": True}
    if spec["precision"] == "fp16":
        c["fp16"] = {"enabled": True, "initial_scale_power": 6, "loss_scale_window": 3,
                     "hysteresis": 2, "min_loss_scale": 1}
    for k, v in spec.get("cfg", {}).items():
        both = isinstance(v, dict) and isinstance(c.get(k), dict)
        c[k] = dict(c[k], **v) if both else v
    if stage != own and stage != "bf16":
        c.pop("data_types", None)
    if stage == "bf16":
        c["data_types"] = {"grad_accum_dtype": "fp32"}
    if isinstance(spec.get("sched"), dict):
        c["scheduler"] = spec["sched"]
    if universal:
        c["checkpoint"] = dict(c.get("checkpoint", {}), load_universal=True)
    return c


def build_engine(spec, world, stage=None, zero=None, universal=False, other=0):
    """(engine, net) of the spec at this world size and stage, before anything is loaded."""
    import deepspeed
    torch.manual_seed(spec["seed"])
    net = build_net(spec, other)
    opt, params = build_optimizer(net, spec["opt"])
    kw = {} if params is None else {"model_parameters": params}
    if spec.get("sched") == "lambda":
        kw["lr_scheduler"] = lambda o: torch.optim.lr_scheduler.StepLR(o, step_size=2, gamma=0.5)
    engine = deepspeed.initialize(
        model=net, optimizer=opt, dist_init_required=False,
        config=ds_config(spec, world, stage, zero, universal), **kw)[0]
    return engine, net


def train_step(engine, spec, step, world, rank):
    """One step on this rank's share of the global batch; the loss of the whole batch."""
    x, y = batch(spec, step)
    gas = accumulation(spec, world)
    micro = spec["batch"] // world // gas
    spike = float("inf") if step in spec.get("overflow_at", []) else 1.0
    total = 0.0
    engine.train()
    for i in range(gas):
        at = (rank * gas + i) * micro
        loss = engine(x[at:at + micro], y[at:at + micro], spike)
        total += float(loss.detach().double()) / gas
        engine.backward(loss)
        engine.step()
    t = torch.tensor([total], dtype=torch.float64)
    dist.all_reduce(t)
    return float(t[0]) / world


# ------------------------------------------------------------------ the live state
def _scalar(v):
    if torch.is_tensor(v):
        return {"tensor": str(v.dtype).replace("torch.", ""), "shape": list(v.shape),
                "value": v.tolist()}
    return {"python": type(v).__name__, "value": v}


def _flats(engine):
    o, kind = engine.optimizer, dsrank.kind_of(engine)
    if kind == "stage3":
        return o.fp32_partitioned_groups_flat
    if kind == "stage12":
        return o.single_partition_of_fp32_groups
    if kind == "bf16opt":
        return o.fp32_groups_flat_partition
    if kind == "fused":
        return o.fp32_groups_flat
    if kind == "unfused":
        return [t for group in o.fp32_groups for t in group]
    return [p for g in o.param_groups for p in g["params"]]


def scalars(engine):
    """What of the running engine is no tensor of parameter length, as case.json's `live`."""
    o = engine.optimizer
    base = getattr(o, "optimizer", o)
    states = {}
    for i, flat in enumerate(_flats(engine)):
        for k, v in base.state.get(flat, {}).items():
            if not torch.is_tensor(v) or v.dim() == 0 < flat.dim() or k == "step":
                states["%d.%s" % (i, k)] = _scalar(v)
    scaler = getattr(o, "loss_scaler", None)
    scale, inner = None, {}
    if scaler is not None:
        scale = float(scaler.cur_scale)
        inner = {k: v if isinstance(v, (int, float, bool)) else str(v)
                 for k, v in vars(scaler).items()}
    elif not isinstance(getattr(type(o), "cur_scale", None), property) and \
            hasattr(o, "cur_scale"):
        scale = float(o.cur_scale)
    elif hasattr(o, "loss_scale_config"):
        scale = float(o.loss_scale_config.cur_scale)
    sched = engine.lr_scheduler.state_dict() if engine.lr_scheduler is not None else None
    return {"scalars": states, "lr": [float(g["lr"]) for g in
                                      getattr(o, "param_groups", base.param_groups)],
            "loss_scale": scale, "loss_scaler": inner, "global_steps": engine.global_steps,
            "skipped_steps": engine.skipped_steps, "global_samples": engine.global_samples,
            "lr_scheduler": sched, "optimizer_wrapper": type(o).__name__,
            "inner_optimizer": type(base).__name__}


# ------------------------------------------------------------------ classes in client state
def install_user_classes():
    """The module that some fixtures' client_state names, with its two classes."""
    m = types.ModuleType("zoouser")

    class TrainerState:
        def __init__(self, epoch, best, history):
            self.epoch, self.best, self.history = epoch, best, history

    class Slotted:
        __slots__ = ("a", "b")

        def __init__(self, a, b):
            self.a, self.b = a, b

    for c in (TrainerState, Slotted):
        c.__module__, c.__qualname__ = "zoouser", c.__name__
        setattr(m, c.__name__, c)
    sys.modules["zoouser"] = m
