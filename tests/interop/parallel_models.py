"""The models of the parallel fixtures, for DeepSpeed: experts, tensor parallelism, pipelines.

A fixture's case.json has the spec of its run. build(job, facts, rank) makes an engine for the same
model on another layout: job["tp"], job["pp"], job["ep"], job["dp"]. Ranks count tensor ranks first,
then data ranks, then stages. Values come from a seed of their own: a resumed model must owe nothing
to them. The expressions of forward() must not be reordered: the recorded losses depend on them.
"""
import math

import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

import dsmodel


# ------------------------------------------------------------------ what all of them share
class Mix(nn.Module):
    def __init__(self, d, hidden):
        super().__init__()
        self.ln = nn.LayerNorm(d)
        self.up = nn.Linear(d, hidden)
        self.down = nn.Linear(hidden, d, bias=False)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.ln(x))))


class Head(nn.Module):
    def __init__(self, d, vocab):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.out = nn.Linear(d, vocab)

    def forward(self, x):
        return self.out(self.norm(x))


def cross_entropy(logits, y):
    return F.cross_entropy(logits.float().reshape(-1, logits.shape[-1]), y.reshape(-1))


class Groups:
    """The tensor ranks and the data ranks of this rank, and what DeepSpeed asks an mpu for."""

    def __init__(self, tp, rank, world):
        self.tp, self.tp_rank = tp, rank % tp
        for first in range(0, world, tp):
            group = dist.new_group(list(range(first, first + tp)))
            if first == rank - self.tp_rank:
                self.tensor = group
        for t in range(tp):
            group = dist.new_group(list(range(t, world, tp)))
            if t == self.tp_rank:
                self.data = group

    def get_model_parallel_rank(self):
        return self.tp_rank

    def get_model_parallel_world_size(self):
        return self.tp

    def get_model_parallel_group(self):
        return self.tensor

    get_tensor_model_parallel_rank = get_model_parallel_rank
    get_tensor_model_parallel_world_size = get_model_parallel_world_size
    get_tensor_model_parallel_group = get_model_parallel_group

    def get_data_parallel_rank(self):
        return dist.get_rank(self.data)

    def get_data_parallel_world_size(self):
        return dist.get_world_size(self.data)

    def get_data_parallel_group(self):
        return self.data


# ------------------------------------------------------------------ Megatron's manner of tensor parallelism
class ToTensorRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, groups):
        ctx.groups = groups
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.groups.tensor)
        return grad, None


class SumOfTensorRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, groups):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=groups.tensor)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class JoinTensorRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, groups):
        ctx.groups = groups
        parts = [torch.empty_like(x) for _ in range(groups.tp)]
        dist.all_gather(parts, x.contiguous(), group=groups.tensor)
        return torch.cat(parts, -1)

    @staticmethod
    def backward(ctx, grad):
        return grad.chunk(ctx.groups.tp, -1)[ctx.groups.tp_rank].contiguous(), None


class Embedding(nn.Module):
    """Word embeddings cut by rows of a padded vocabulary, and position embeddings."""

    def __init__(self, m, groups):
        super().__init__()
        self.groups = groups
        self.word_embeddings = nn.Embedding(m["pvocab"] // groups.tp, m["d"])
        self.position_embeddings = nn.Embedding(8, m["d"])

    def forward(self, x):
        rows = self.word_embeddings.num_embeddings
        at = x - self.groups.tp_rank * rows
        out = (at < 0) | (at >= rows)
        h = self.word_embeddings(at.masked_fill(out, 0)).masked_fill(out.unsqueeze(-1), 0)
        h = SumOfTensorRanks.apply(h, self.groups)
        return h + self.position_embeddings(torch.arange(x.shape[-1]))

    def logits(self, h):
        h = ToTensorRanks.apply(h, self.groups)
        return JoinTensorRanks.apply(F.linear(h, self.word_embeddings.weight), self.groups)


class Row(nn.Module):
    """A linear layer cut by columns; its bias is whole."""

    def __init__(self, wide, out, groups):
        super().__init__()
        self.groups = groups
        self.weight = nn.Parameter(torch.randn(out, wide // groups.tp) * 0.1)
        self.bias = nn.Parameter(torch.randn(out) * 0.1)

    def forward(self, x):
        return SumOfTensorRanks.apply(F.linear(x, self.weight), self.groups) + self.bias


class Attention(nn.Module):
    def __init__(self, m, groups):
        super().__init__()
        self.heads, self.size, self.groups = m["heads"] // groups.tp, m["d"] // m["heads"], groups
        self.query_key_value = nn.Linear(m["d"], 3 * m["d"] // groups.tp)
        self.dense = Row(m["d"], m["d"], groups)

    def forward(self, x):
        x = self.query_key_value(ToTensorRanks.apply(x, self.groups))
        n, length = x.shape[:2]
        q, k, v = (t.transpose(1, 2) for t in
                   x.view(n, length, self.heads, 3 * self.size).chunk(3, -1))
        score = (q @ k.transpose(-1, -2)).float() / math.sqrt(self.size)
        past = torch.ones(length, length, dtype=torch.bool).tril()
        score = score.masked_fill(~past, -1e4).softmax(-1).to(v.dtype)
        return self.dense((score @ v).transpose(1, 2).reshape(n, length, -1))


class SwiGLU(nn.Module):
    def __init__(self, m, groups):
        super().__init__()
        self.groups = groups
        self.dense_h_to_4h = nn.Linear(m["d"], 2 * m["hid"] // groups.tp, bias=False)
        self.dense_4h_to_h = Row(m["hid"], m["d"], groups)

    def forward(self, x):
        gate, up = self.dense_h_to_4h(ToTensorRanks.apply(x, self.groups)).chunk(2, -1)
        return self.dense_4h_to_h(F.silu(gate) * up)


class Layer(nn.Module):
    def __init__(self, m, groups):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(m["d"])
        self.self_attention = Attention(m, groups)
        self.post_attention_layernorm = nn.LayerNorm(m["d"])
        self.mlp = SwiGLU(m, groups)

    def forward(self, x):
        x = x + self.self_attention(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Encoder(nn.Module):
    def __init__(self, m, groups):
        super().__init__()
        self.layers = nn.ModuleList([Layer(m, groups) for _ in range(m["layers"])])
        self.final_layernorm = nn.LayerNorm(m["d"])


class Megatron(nn.Module):
    def __init__(self, m, groups):
        super().__init__()
        self.language_model = nn.ModuleDict(
            {"embedding": Embedding(m, groups), "encoder": Encoder(m, groups)})

    def forward(self, x, y):
        embedding, encoder = self.language_model["embedding"], self.language_model["encoder"]
        h = embedding(x)
        for layer in encoder.layers:
            h = layer(h)
        return cross_entropy(embedding.logits(encoder.final_layernorm(h)), y)


# ------------------------------------------------------------------ pipelines
class FinalNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.final_layernorm = nn.LayerNorm(d)

    def forward(self, x):
        return self.final_layernorm(x)


def pipe_layers(m, groups):
    from deepspeed.pipe import LayerSpec, TiedLayerSpec
    if m.get("mega"):
        return [TiedLayerSpec("embed", Embedding, m, groups,
                              tied_weight_attr=["word_embeddings.weight"])] + \
            [LayerSpec(Layer, m, groups) for _ in range(m["layers"])] + \
            [LayerSpec(FinalNorm, m["d"]),
             TiedLayerSpec("embed", Embedding, m, groups, forward_fn=Embedding.logits,
                           tied_weight_attr=["word_embeddings.weight"])]
    mixes = [LayerSpec(Mix, m["d"], m["hid"]) for _ in range(m["layers"])]
    if m.get("tied"):
        embed = lambda **kw: TiedLayerSpec("embed", nn.Embedding, m["vocab"], m["d"], **kw)
        return [embed()] + mixes + [embed(forward_fn=lambda e, h: F.linear(h, e.weight))]
    return [LayerSpec(nn.Embedding, m["vocab"], m["d"])] + mixes + \
        [LayerSpec(Head, m["d"], m["vocab"])]


def pipe_model(m, job, groups):
    from deepspeed.pipe import PipelineModule
    from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology
    topology = PipeModelDataParallelTopology(num_pp=job["pp"], num_mp=job["tp"], num_dp=job["dp"])
    return PipelineModule(pipe_layers(m, groups), topology=topology, loss_fn=cross_entropy,
                          partition_method="uniform", base_seed=77)


# ------------------------------------------------------------------ experts
class Experts(nn.Module):
    def __init__(self, m, experts, ep):
        from deepspeed.moe.layer import MoE
        super().__init__()
        self.mix = Mix(m["d"], m["hid"])
        expert = nn.Sequential(nn.Linear(m["d"], m["ehid"]), nn.ReLU(), nn.Linear(m["ehid"], m["d"]))
        self.moe = MoE(m["d"], expert, num_experts=experts, ep_size=ep, k=m.get("k", 1),
                       use_residual=bool(m.get("residual")), drop_tokens=False)

    def forward(self, x):
        x = self.mix(x)
        y, aux, _ = self.moe(x)
        return x + y, aux


class ExpertNet(nn.Module):
    def __init__(self, m, ep):
        super().__init__()
        self.emb = nn.Embedding(m["vocab"], m["d"])
        self.layers = nn.ModuleList([Experts(m, n, ep or k) for n, k in zip(m["experts"], m["ep"])])
        self.head = Head(m["d"], m["vocab"])

    def forward(self, x, y):
        h, balance = self.emb(x), 0.0
        for layer in self.layers:
            h, aux = layer(h)
            balance = balance + aux
        return cross_entropy(self.head(h), y) + 0.01 * balance


# ------------------------------------------------------------------ transformers
def hf_model(m):
    import transformers
    common = dict(vocab_size=m["vocab"], hidden_size=m["d"], num_hidden_layers=m["layers"],
                  num_attention_heads=m["heads"], num_key_value_heads=m["kv"],
                  max_position_embeddings=64, tie_word_embeddings=False, intermediate_size=m["hid"])
    if m["family"] == "qwen2":
        return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**common))
    if m["family"] == "llama":
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**common))
    by_name_of_class()
    if m["family"] == "qwen3_moe":
        return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(
            moe_intermediate_size=m["hid"], num_experts=m["experts"], num_experts_per_tok=2,
            head_dim=m["d"] // m["heads"], norm_topk_prob=True, **common))
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(
        num_local_experts=m["experts"], num_experts_per_tok=2, **common))


def by_name_of_class():
    """transformers 5 looks a module's class up where DeepSpeed asks for the name of one."""
    from transformers.utils import output_capturing
    registry = output_capturing._CanRecordRegistry
    key = lambda m: m if isinstance(m, str) else str(m.__class__)
    registry.get = lambda s, m, d=None: dict.get(s, key(m), {} if d is None else d) or {}
    registry.__setitem__ = lambda s, m, v: dict.__setitem__(s, key(m), v)


# ------------------------------------------------------------------ the engine
def by_decay(net):
    own = list(net.parameters())
    return [{"params": [p for p in own if p.ndim > 1], "weight_decay": 0.1},
            {"params": [p for p in own if p.ndim < 2], "weight_decay": 0.0}]


def config_of(spec, job):
    micro = spec["batch"] // job["dp"]
    gas = 2 if spec["kind"] == "pipe" and micro > 1 else 1
    c = {"train_micro_batch_size_per_gpu": micro // gas, "gradient_accumulation_steps": gas,
         "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
         "steps_per_print": 1000000,
         "zero_optimization": {"stage": spec["stage"], "reduce_bucket_size": 4000,
                               "allgather_bucket_size": 4000}}
    if spec["precision"] == "bf16":
        c["bf16"] = {"enabled": True}
    else:
        c["fp16"] = {"enabled": True, "initial_scale_power": 6, "loss_scale_window": 3}
    c.update(spec.get("cfg", {}))
    if spec["kind"] == "autotp":
        c["tensor_parallel"] = {"autotp_size": job["tp"]}
    if spec["kind"] == "autoep":
        c["expert_parallel"] = {"enabled": True, "autoep_size": job["ep"], "use_grouped_mm": False,
                                "preset_model": spec["model"]["family"]}
        c["optimizer"] = {"type": "AdamW",
                          "params": {"lr": 0.01, "weight_decay": 0.1, "torch_adam": True}}
    if job["universal"]:
        c["checkpoint"] = {"load_universal": True}
    return c


def build(job, facts, rank):
    """An engine; engine.tp_rank and engine.dp_rank say where this rank is."""
    spec = facts["spec"]
    m, kind, tp = spec["model"], spec["kind"], job["tp"]
    torch.manual_seed(99)
    groups = Groups(tp, rank, dist.get_world_size()) if kind in ("megtp", "pipe") else None
    kw, groups_of = {}, by_decay
    if kind == "moe":
        from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer as split
        net = ExpertNet(m, job["ep"])
        groups_of = lambda n: split({"params": list(n.parameters()), "name": "parameters"})
    elif kind == "megtp":
        net = Megatron(m, groups)
        kw["mpu"] = groups
    elif kind == "pipe":
        net = pipe_model(m, job, groups)
    else:
        net = hf_model(m)
        if kind == "autotp":
            net = net.to(torch.bfloat16)
    if kind == "autoep":
        kw["model_parameters"] = list(net.parameters())
    else:
        kw["optimizer"] = torch.optim.AdamW(groups_of(net), lr=0.01)
    engine = deepspeed.initialize(model=net, config=config_of(spec, job), dist_init_required=False,
                                  **kw)[0]
    engine.tp_rank = rank % tp
    engine.dp_rank = rank // tp % job["dp"]
    engine.pp_rank = rank // tp // job["dp"]
    return engine


def train_step(engine, facts, step, job):
    """One step on this rank's share of the fixture's batch; the loss of the whole batch."""
    spec = facts["spec"]
    x, y = dsmodel.batch(spec, step)
    micro = engine.train_micro_batch_size_per_gpu()
    gas = engine.gradient_accumulation_steps()
    at = engine.dp_rank * gas * micro
    parts = [(x[i:i + micro], y[i:i + micro]) for i in range(at, at + gas * micro, micro)]
    if spec["kind"] == "pipe":
        return float(engine.train_batch(iter(parts)))
    x, y = parts[0]
    engine.train()
    loss = engine(x, y) if spec["kind"] in ("moe", "megtp") else engine(input_ids=x, labels=x).loss
    engine.backward(loss)
    engine.step()
    total = loss.detach().double()
    dist.all_reduce(total)
    return float(total) / dist.get_world_size()
