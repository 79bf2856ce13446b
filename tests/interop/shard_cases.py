"""Weights that `zckpt shard` made a ZeRO step of, resumed by stock DeepSpeed on CPU ranks.

    shard_cases.py WORK [--zckpt PATH] [--long]

For tiny models with random weights, saved by transformers:
  1. for every type whose order zckpt knows, param_shapes of the step must name the parameters in
     the order of named_parameters(), and tied names must be tied
  2. an engine whose net has other weights and whose optimizer has another learning rate loads the
     step; weights, masters, moments, hyper-parameters and steps must be those that were asked for
  3. its next two losses must be those of an engine that began with the weights: bit for bit where
     they were saved in the precision of the run
"""
import argparse
import json
import os
import subprocess
import sys

import dsrank
import torch
from transformers import AutoConfig, AutoModelForCausalLM

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp16": torch.float16}
SMALL = dict(vocab_size=101, hidden_size=32, intermediate_size=56, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, head_dim=8,
             pad_token_id=0, bos_token_id=1, eos_token_id=2)
ORDERS = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "granite", "olmo",
          "olmo2", "smollm3", "phi3")
LR, DECAY, BETAS, EPS = 0.0025, 0.125, (0.875, 0.96875), 1e-7
TOKENS = torch.arange(96).reshape(8, 12) * 7 % 101

# model type, tied, weights as saved, precision of the run, stage, world, groups, scheduler
SHORT = [
    ("llama", False, "bf16", "bf16", "2", 2, "one", "none"),
    ("qwen2", True, "bf16", "bf16", "3", 3, "decay", "lambda"),
    ("qwen3", False, "fp32", "bf16", "1", 1, "decay", "warmup"),
    ("llama", True, "fp32", "fp32", "2", 4, "one", "lambda"),
    ("qwen3", True, "bf16", "fp16", "2", 2, "one", "none"),
    ("qwen2", False, "fp32", "bf16", "bf16", 2, "decay", "none"),
    ("llama", False, "fp32", "fp16", "3", 2, "one", "warmup"),
]
LONG = SHORT + [(m, t, s, p, z, w, g, "none")
                for m in ("llama", "qwen3") for t in (False, True) for s in ("bf16", "fp32")
                for p, z in (("bf16", "1"), ("bf16", "3"), ("fp32", "3"), ("bf16", "bf16"))
                for w, g in ((1, "decay"), (4, "one"))]


def config(model, tied=None):
    extra = {} if tied is None else {"tie_word_embeddings": tied}
    return AutoConfig.for_model(model, **SMALL, **extra)


def net_of(model, tied, dtype, seed):
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config(model, tied), attn_implementation="eager").to(dtype)


def is_undecayed(name):
    """As the Trainer of the installed transformers decides it."""
    from transformers import Trainer
    return name not in is_undecayed.by.setdefault(
        id(is_undecayed.net), Trainer.get_decay_parameter_names(None, is_undecayed.net))


is_undecayed.by = {}


def zckpt(exe, *args):
    r = subprocess.run([exe, *args], capture_output=True, text=True, timeout=120,
                       stdin=subprocess.DEVNULL)
    return "" if r.returncode == 0 else "zckpt %s: exit %d: %s" % (
        args[0], r.returncode, r.stderr.strip()[-300:])


# ------------------------------------------------------------------ the order of parameters
def check_order(exe, work, model):
    folder, out = os.path.join(work, "order-" + model), os.path.join(work, "step-" + model)
    net = net_of(model, None, torch.bfloat16, 3)
    net.save_pretrained(folder)
    said = zckpt(exe, "shard", folder, out, "--world", "2", "--stage", "2", "--lr", "1", "-q")
    if said:
        return [said]
    root = torch.load(os.path.join(out, "global_step0", "mp_rank_00_model_states.pt"),
                      weights_only=False)
    want, got = [n for n, _ in net.named_parameters()], list(root["param_shapes"][0])
    said = [] if want == got else ["%s where the model has %s" % next(
        (a, b) for a, b in zip(got + [None], want + [None]) if a != b)]
    if set(net.state_dict()) != set(root["module"]):
        said.append("names of module: %s" % sorted(set(net.state_dict()) ^ set(root["module"])))
    shapes = {n: tuple(p.shape) for n, p in net.named_parameters()}
    if any(tuple(s) != shapes[n] for n, s in root["param_shapes"][0].items()):
        said.append("a shape is another one")
    return said


# ------------------------------------------------------------------ running it
def ds_config(case, world):
    _, _, _, precision, stage, _, _, sched = case
    cfg = {"train_micro_batch_size_per_gpu": 8 // world if 8 % world == 0 else 2,
           "zero_optimization": {"stage": 1 if stage == "bf16" else int(stage), "overlap_comm": False,
                                 "stage3_param_persistence_threshold": 50},
           "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
           "gradient_clipping": 1.0, "steps_per_print": 10 ** 6}
    if precision != "fp32":
        cfg[precision] = {"enabled": True}
    if precision == "fp16":
        cfg["fp16"].update(initial_scale_power=9, loss_scale_window=7, hysteresis=3)
    if stage == "bf16":
        cfg["data_types"] = {"grad_accum_dtype": "fp32"}
    if sched == "warmup":
        cfg["scheduler"] = {"type": "WarmupLR", "params": {
            "warmup_min_lr": 0.0, "warmup_max_lr": LR, "warmup_num_steps": 4}}
    return cfg


def engine_of(case, world, net, lr):
    import deepspeed
    groups, sched = case[6], case[7]
    is_undecayed.net = net
    params = [{"params": list(net.parameters()), "weight_decay": DECAY}]
    if groups == "decay":
        params = [{"params": [p for n, p in net.named_parameters() if not is_undecayed(n)],
                   "weight_decay": DECAY},
                  {"params": [p for n, p in net.named_parameters() if is_undecayed(n)],
                   "weight_decay": 0.0}]
    opt = torch.optim.AdamW(params, lr=lr, betas=BETAS, eps=EPS)
    kw = {}
    if sched == "lambda":
        kw["lr_scheduler"] = lambda o: torch.optim.lr_scheduler.LambdaLR(
            o, lambda step: 1.0 / (1 + step))
    return deepspeed.initialize(model=net, optimizer=opt, config=ds_config(case, world),
                                dist_init_required=False, **kw)[0]


def train(engine, rank, world):
    n = engine.train_micro_batch_size_per_gpu()
    losses = []
    for _ in range(2):
        x = TOKENS[rank * n % 8:rank * n % 8 + n]
        loss = engine(input_ids=x, labels=x).loss
        engine.backward(loss)
        engine.step()
        losses.append(float(loss.detach().double()))
    return losses


def check_state(engine, net, weights, case):
    """Against the weights as they were saved."""
    _, _, _, precision, _, _, groups, sched = case
    state = dsrank.gather(engine, net)
    said = []
    for n, w in weights.items():
        if n + "|weight" not in state:      # a tied name
            continue
        for what, want in (("weight", w.to(DTYPES[precision])), ("master", w.float()),
                           ("exp_avg", torch.zeros(w.shape)), ("exp_avg_sq", torch.zeros(w.shape))):
            got = state.get(n + "|" + what)
            if got is None and what == "master" and precision == "fp32":
                continue
            if got is None or got.dtype != want.dtype or not torch.equal(got, want):
                said.append("%s|%s is not what was asked for" % (n, what))
    base = getattr(engine.optimizer, "optimizer", engine.optimizer)
    decays = [DECAY, 0.0] if groups == "decay" else [DECAY]
    for g, decay in zip(base.param_groups, decays):
        have = (g["lr"], g["weight_decay"], tuple(g["betas"]), g["eps"])
        if have != (0.0 if sched == "warmup" else LR, decay, BETAS, EPS):
            said.append("hyper-parameters %s" % (have,))
    if len(base.param_groups) < len(decays):
        said.append("%d groups" % len(base.param_groups))
    for s in base.state.values():
        if float(s.get("step", -1)) != 0:
            said.append("step is %s" % s.get("step"))
    if engine.global_steps != 0:
        said.append("global_steps %d" % engine.global_steps)
    if precision == "fp16" and engine.optimizer.loss_scale != 2 ** 9:
        said.append("loss scale %s" % engine.optimizer.loss_scale)
    return said


def run_case(exe, work, case):
    model, tied, saved, precision, stage, world, groups, _ = case
    name = "-".join(map(str, case))
    folder, out = os.path.join(work, "hf-" + name), os.path.join(work, "zero-" + name)
    source = net_of(model, tied, DTYPES[saved], 5)
    source.save_pretrained(folder)
    weights = {n: p.detach().clone() for n, p in source.named_parameters()}
    with open(os.path.join(work, "ds.json"), "w") as f:
        json.dump(ds_config(case, world), f)
    said = zckpt(exe, "shard", folder, out, "--world", str(world), "--stage", stage, "--lr", str(LR),
                 "--weight-decay", str(DECAY), "--betas", "%r,%r" % BETAS, "--eps", str(EPS),
                 "--groups", groups, "--ds-config", os.path.join(work, "ds.json"), "-q")
    if said:
        return [said]
    result = os.path.join(work, "result-" + name)

    def fresh(seed, lr):
        net = net_of(model, tied, torch.float32, seed)
        if seed == 5:
            net.load_state_dict({n: p.float() for n, p in source.state_dict().items()})
        return engine_of(case, world, net, lr), net

    def work_of(rank, size):
        engine, net = fresh(77, 3.0)
        path, _ = engine.load_checkpoint(out)
        said = ["nothing was loaded"] if path is None else check_state(engine, net, weights, case)
        got = train(engine, rank, size)
        want = train(fresh(5, LR)[0], rank, size)
        # masters keep what 16-bit weights, from which a new engine makes its own, have lost
        off = max(abs(a - b) / b for a, b in zip(got, want))
        if off > (0 if case[2] == case[3] else 2e-3):
            said.append("losses %s, from the weights %s" % (got, want))
        if rank == 0:
            with open(result, "w") as f:
                json.dump(said, f)

    died = dsrank.fork_ranks(world, work_of)
    if died:
        return [died[-600:]]
    with open(result) as f:
        return json.load(f)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("work")
    ap.add_argument("--zckpt", default=os.environ.get("ZCKPT"))
    ap.add_argument("--long", action="store_true")
    ap.add_argument("--only")
    a = ap.parse_args()
    os.makedirs(a.work, exist_ok=True)
    dsrank.prepare()
    passed = failed = 0
    jobs = [("order of " + m, lambda m=m: check_order(a.zckpt, a.work, m)) for m in ORDERS]
    jobs += [(" ".join(map(str, c)), lambda c=c: run_case(a.zckpt, a.work, c))
             for c in (LONG if a.long else SHORT)]
    for name, job in jobs:
        if a.only and a.only not in name:
            continue
        said = job()
        passed, failed = passed + (not said), failed + bool(said)
        for s in said[:3]:
            print("FAILED %s: %s" % (name, s))
        if not said:
            print("ok %s" % name)
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
