"""LoRA runs of PEFT under DeepSpeed: `zckpt convert --to peft` and `--merge-lora`, against PEFT.

    peft_cases.py WORK [--zckpt PATH] [--only TEXT]

  1. a PEFT model trains under ZeRO on CPU ranks; what --to peft makes of its step is loaded by
     PEFT without a warning, and every matrix is the master of the live engine, bit for bit
  2. --merge-lora of that folder, and of the step itself, into the base: every tensor is W + s B A
     in fp64 rounded once, and no further from merge_and_unload() than one rounding
  3. adapters that PEFT saved itself: rank_pattern, alpha_pattern, rsLoRA, embeddings,
     modules_to_save, Conv1D (fan_in_fan_out), biases, 16-bit matrices, several adapters
  4. methods that are not LoRA are refused by name
"""
import argparse
import json
import logging
import math
import os
import re
import subprocess
import sys
import warnings

try:
    import peft
except ImportError as why:
    print("SKIP every case: no peft here (%s)" % why)
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)
import dsrank
import safetensors.torch
import torch
from transformers import AutoConfig, AutoModelForCausalLM

SMALL = dict(vocab_size=101, hidden_size=32, intermediate_size=56, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, head_dim=8,
             pad_token_id=0, bos_token_id=1, eos_token_id=2, tie_word_embeddings=False)
GPT2 = dict(vocab_size=101, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1,
            eos_token_id=2)
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
TOKENS = torch.arange(96).reshape(8, 12) * 7 % 101
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class Noise(logging.Handler):
    """Every line that PEFT or transformers would print as a warning."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def quiet(work):
    """What 'work' returns, and the warnings that it gave."""
    noise = Noise()
    loggers = [logging.getLogger(n) for n in ("transformers", "peft", None)]
    for log in loggers:
        log.addHandler(noise)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        out = work()
    for log in loggers:
        log.removeHandler(noise)
    return out, noise.lines + [str(w.message) for w in caught
                               if not issubclass(w.category, (DeprecationWarning, FutureWarning))]


def net_of(model, seed, dtype=torch.float32):
    torch.manual_seed(seed)
    config = AutoConfig.for_model(model, **(GPT2 if model == "gpt2" else SMALL))
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager").to(dtype)


def zckpt(exe, *args):
    return subprocess.run([exe, "convert", *args], capture_output=True, text=True, timeout=120,
                          stdin=subprocess.DEVNULL)


def trouble(run):
    return "" if run.returncode == 0 else "zckpt %s: exit %d: %s" % (
        " ".join(run.args[1:]), run.returncode, run.stderr.strip()[-400:])


def load_base(folder, dtype):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")


# ------------------------------------------------------------------ merged weights
def ulp(x, dtype):
    """The distance of neighbours at |x| in a type."""
    digits = {torch.float32: 23, torch.bfloat16: 7, torch.float16: 10}[dtype]
    least = {torch.float32: -126, torch.bfloat16: -126, torch.float16: -14}[dtype]
    e = torch.frexp(x.double().abs().clamp_min(2.0 ** least))[1] - 1
    return torch.ldexp(torch.ones_like(x, dtype=torch.float64), (e - digits).to(torch.int32))


def exact(base, adapter, adapter_name="default"):
    """W + s B A of each module in fp64: {name: (W, delta, the sum of |terms|)}."""
    out = {}
    for name, mod in adapter.base_model.model.named_modules():
        if not hasattr(mod, "lora_A") or not hasattr(mod, "get_base_layer"):
            continue
        scale = mod.scaling.get(adapter_name)
        if adapter_name in mod.lora_A:
            a, b = mod.lora_A[adapter_name].weight, mod.lora_B[adapter_name].weight
            flip = mod.fan_in_fan_out
        elif adapter_name in mod.lora_embedding_A:
            a, b, flip = mod.lora_embedding_A[adapter_name], mod.lora_embedding_B[adapter_name], True
        else:
            continue
        a, b = a.detach().double(), b.detach().double()
        delta, size = b @ a * scale, b.abs() @ a.abs() * scale
        out[name + ".weight"] = (base[name + ".weight"].double(),
                                 delta.T if flip else delta, size.T if flip else size)
    return out


def check_merged(folder, base_dir, adapter_dir, dtype, adapter_name="default", sub=None):
    """A merged folder against merge_and_unload() and fp64."""
    said = []
    base = load_base(base_dir, dtype)
    before = load_base(base_dir, "auto").state_dict()
    kw = {"subfolder": sub} if sub else {}
    wrapped = peft.PeftModel.from_pretrained(base, adapter_dir, **kw)
    sums = exact(before, wrapped)
    want = wrapped.merge_and_unload().state_dict()
    ours, noise = quiet(lambda: load_base(folder, dtype))
    said += ["loading the merged model: %s" % n for n in noise[:2]]
    got = ours.state_dict()
    if set(got) != set(want):
        return said + ["names differ: %s" % sorted(set(got) ^ set(want))[:4]]
    changed = 0
    for n, w in want.items():
        g = got[n]
        if g.dtype != dtype or g.shape != w.shape:
            said.append("%s is %s %s" % (n, g.dtype, tuple(g.shape)))
            continue
        if n not in sums:
            if not torch.equal(g, w):
                said.append("%s is not what PEFT has" % n)
            continue
        base_w, delta, size = sums[n]
        changed += 1
        off = (g.double() - (base_w + delta)).abs() / ulp(base_w + delta, dtype)
        if not off.max().item() <= 0.5 + 1e-6:
            said.append("%s is %.3g units from the exact sum" % (n, off.max().item()))
        room = ulp(torch.maximum(torch.maximum(base_w.abs(), delta.abs()), w.double().abs()), dtype)
        if before[n].dtype != dtype:    # PEFT begins with a base that was rounded already
            room = room * 1.5
        room = room + size * 64 * 2.0 ** -24    # PEFT's product is of fp32
        off = ((g.double() - w.double()).abs() / room).max().item()
        if not off <= 1:
            said.append("%s is %.3g roundings from PEFT's" % (n, off))
    if not changed:
        said.append("no tensor has an adapter")
    for f in ("adapter_config.json", "adapter_model.safetensors"):
        if os.path.exists(os.path.join(folder, f)):
            said.append("%s is in the merged folder" % f)
    return said


def merge_all(exe, work, name, base_dir, source, adapter_dir, dtypes, *options):
    said = []
    for d in dtypes:
        out = os.path.join(work, "merged-%s-%s" % (name, d))
        run = zckpt(exe, "--merge-lora", base_dir, source, out, "--dtype", d, "--max-shard-size",
                    "20KB", "-q", *options)
        said += [trouble(run)] if trouble(run) else \
            ["%s: %s" % (d, s) for s in check_merged(out, base_dir, adapter_dir, DTYPES[d])]
        if not trouble(run) and not os.path.exists(os.path.join(out, "config.json")):
            said.append("no config.json")
    return said


# ------------------------------------------------------------------ 1, 2: steps of DeepSpeed
def lora(**more):
    kw = dict(r=4, lora_alpha=10, target_modules=["q_proj", "v_proj", "down_proj"],
              lora_dropout=0.0, task_type="CAUSAL_LM")
    kw.update(more)
    return peft.LoraConfig(**kw)


# name, model, LoraConfig, stage, world, precision, exclude frozen, with adapter_config.json
STEPS = [
    ("zero2", "llama", {}, 2, 2, "bf16", False, True),
    ("zero2 excluded, no config", "llama", {"target_modules": ALL}, 2, 2, "bf16", True, False),
    ("zero3", "qwen3", {"r": 5, "use_rslora": True}, 3, 3, "bf16", False, True),
    ("zero3 fp32, no config", "llama", {"target_modules": ["model.layers.1.mlp.up_proj", "o_proj"]},
     3, 2, "fp32", False, False),
    ("zero1 saved head", "llama", {"modules_to_save": ["lm_head"]}, 1, 2, "fp32", False, False),
    ("zero0 dora", "llama", {"use_dora": True}, 0, 1, "fp32", False, True),
    ("zero2 ranks", "llama", {"rank_pattern": {"v_proj": 2}, "alpha_pattern": {"v_proj": 3}}, 2, 1,
     "fp32", False, True),
    ("zero2 biases", "qwen2", {"bias": "lora_only"}, 2, 2, "fp32", False, False),
]


def train(case, base_dir, folder, truth):
    """Trains and saves on every rank; masters of the engine go to 'truth'."""
    _, model, kw, stage, world, precision, excluded, with_config = case

    def work_of(rank, size):
        import deepspeed
        torch.manual_seed(11)
        net = peft.get_peft_model(load_base(base_dir, torch.float32), lora(**kw))
        config = {"train_micro_batch_size_per_gpu": 2,
                  "zero_optimization": {"stage": stage, "overlap_comm": False,
                                        "stage3_param_persistence_threshold": 50},
                  "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
                  "steps_per_print": 10 ** 6}
        if precision != "fp32":
            config[precision] = {"enabled": True}
        params = [p for p in net.parameters() if p.requires_grad]
        opt = torch.optim.AdamW(params, lr=0.02)
        engine = deepspeed.initialize(model=net, optimizer=opt, config=config,
                                      model_parameters=params, dist_init_required=False)[0]
        for _ in range(3):
            x = TOKENS[rank * 2:rank * 2 + 2]
            engine.backward(engine(input_ids=x, labels=x).loss)
            engine.step()
        state = dsrank.gather(engine, net)
        engine.save_checkpoint(folder, exclude_frozen_parameters=excluded)
        if rank == 0:
            keep = {}
            for n, p in net.named_parameters():
                if p.requires_grad:
                    t = state.get(n + "|master", state.get(n + "|weight", p))
                    keep[n] = t.detach().float().clone().contiguous()
            torch.save(keep, truth)
            if with_config:
                net.peft_config["default"].save_pretrained(folder)

    return dsrank.fork_ranks(world, work_of)


def check_adapter(out, base_dir, truth):
    """PEFT loads it without a warning, and has the masters."""
    net, noise = quiet(lambda: peft.PeftModel.from_pretrained(
        load_base(base_dir, torch.float32), out, is_trainable=True))
    said = ["PEFT says: %s" % n for n in noise[:2]]
    have = dict(net.named_parameters())
    for n, t in truth.items():
        if n not in have:
            said.append("PEFT's model has no %s" % n)
        elif not torch.equal(have[n].detach().float(), t):
            said.append("%s is not the master" % n)
    more = [n for n, p in have.items() if p.requires_grad and n not in truth]
    return said + ["%s was not trained" % n for n in more[:2]]


def run_step(exe, work, case):
    name, model, kw, stage, world, precision, excluded, with_config = case
    at = os.path.join(work, "step-" + re.sub(r"\W+", "-", name))
    base_dir, folder, out, truth = (os.path.join(at, n) for n in ("base", "run", "out", "truth.pt"))
    os.makedirs(at)
    net_of(model, 5, torch.bfloat16 if precision == "bf16" else torch.float32) \
        .save_pretrained(base_dir)
    died = train(case, base_dir, folder, truth)
    if died:
        return [died[-600:]]
    options = [] if with_config else ["--lora-alpha", "10", "--lora-task", "CAUSAL_LM"]
    if not with_config:
        run = zckpt(exe, "--to", "peft", folder, out)
        if run.returncode != 2 or "--lora-alpha" not in run.stderr:
            return ["without alpha: exit %d: %s" % (run.returncode, run.stderr)]
    said = trouble(zckpt(exe, "--to", "peft", folder, out, "-q", *options))
    if said:
        return [said]
    said = check_adapter(out, base_dir, torch.load(truth))
    if kw.get("use_dora"):
        run = zckpt(exe, "--merge-lora", base_dir, out, os.path.join(at, "m"))
        return said + ([] if run.returncode and "DoRA" in run.stderr else ["DoRA: " + run.stderr])
    said += merge_all(exe, at, "folder", base_dir, out, out, ("fp32", "bf16", "fp16"))
    said += merge_all(exe, at, "step", base_dir, folder, out, ("bf16",), *options[:2])
    if not excluded:    # the frozen base is in the step too
        said += merge_step(exe, at, folder, options[:2], base_dir)
    return said


def merge_step(exe, at, folder, options, base_dir):
    """A run that saved its frozen weights is base and adapter at once."""
    a, b = os.path.join(at, "merged-step-bf16"), os.path.join(at, "alone")
    said = trouble(zckpt(exe, "--merge-lora", folder, folder, b, "--dtype", "bf16", "-q", "--aux",
                         base_dir, *options))
    if said:
        return [said]
    want, got = load_base(a, torch.bfloat16).state_dict(), load_base(b, torch.bfloat16).state_dict()
    return ["%s differs when the base is the step" % n for n in want
            if n not in got or not torch.equal(want[n], got[n])][:2]


# ------------------------------------------------------------------ 3: adapters of PEFT
def shake(net, seed):
    torch.manual_seed(seed)
    with torch.no_grad():
        for p in net.parameters():
            if p.requires_grad:
                p.add_(torch.randn_like(p, dtype=torch.float32).to(p.dtype) * 0.05)


SAVED = [
    ("all linear", "llama", {"target_modules": ALL, "r": 8}),
    ("r 1", "llama", {"target_modules": ALL, "r": 1}),
    ("patterns", "llama", {"target_modules": ALL, "rank_pattern": {"q_proj": 7, "layers.1.mlp.up_proj": 3},
                           "alpha_pattern": {"^model.layers.0.self_attn.k_proj": 5, "o_proj": 1}}),
    ("rslora", "qwen3", {"use_rslora": True, "r": 6, "rank_pattern": {"down_proj": 3}}),
    ("embedding", "llama", {"target_modules": ["embed_tokens", "q_proj"]}),
    ("saved", "llama", {"modules_to_save": ["lm_head", "embed_tokens"]}),
    ("head", "llama", {"target_modules": ["lm_head", "v_proj"]}),
    ("conv1d", "gpt2", {"target_modules": ["c_attn", "c_proj", "c_fc"], "fan_in_fan_out": True}),
    ("conv1d unsaid", "gpt2", {"target_modules": ["c_attn", "c_proj", "c_fc"]}),
    ("biases", "qwen2", {"bias": "all"}),
]


def run_saved(exe, work, case, half):
    name, model, kw = case
    at = os.path.join(work, "saved-%s-%s" % (re.sub(r"\W+", "-", name), "half" if half else "full"))
    base_dir, adapter = os.path.join(at, "base"), os.path.join(at, "adapter")
    os.makedirs(at)
    net_of(model, 9, torch.bfloat16).save_pretrained(base_dir, max_shard_size="20KB")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = peft.get_peft_model(load_base(base_dir, torch.float32), lora(**kw))
        shake(net, 4)
        if half:
            for n, p in net.named_parameters():
                if p.requires_grad:
                    p.data = p.data.bfloat16()
        net.save_pretrained(adapter, save_embedding_layers=False)
        return merge_all(exe, at, "m", base_dir, adapter, adapter, ("fp32", "bf16", "fp16"))


def run_several(exe, work):
    """Two adapters in one state dict: one must be chosen."""
    at = os.path.join(work, "several")
    base_dir, file = os.path.join(at, "base"), os.path.join(at, "model.pt")
    os.makedirs(at)
    net_of("llama", 9).save_pretrained(base_dir)
    net = peft.get_peft_model(load_base(base_dir, torch.float32), lora(), adapter_name="one")
    net.add_adapter("two", lora(r=3, target_modules=["k_proj"]))
    for n, p in net.named_parameters():
        p.requires_grad = "lora_" in n
    shake(net, 3)
    torch.save(net.state_dict(), file)
    net.save_pretrained(os.path.join(at, "want"))
    out = os.path.join(at, "out")
    run = zckpt(exe, "--to", "peft", file, out, "--lora-alpha", "10")
    said = [] if run.returncode == 2 and "one, two" in run.stderr and "--adapter" in run.stderr \
        else ["not asked which: " + run.stderr]
    for who in ("one", "two"):
        out = os.path.join(at, "out-" + who)
        bad = trouble(zckpt(exe, "--to", "peft", file, out, "--lora-alpha", "10", "--adapter", who,
                            "-q"))
        if bad:
            return said + [bad]
        want = safetensors.torch.load_file(os.path.join(at, "want", who, "adapter_model.safetensors"))
        got = safetensors.torch.load_file(os.path.join(out, "adapter_model.safetensors"))
        if set(want) != set(got) or any(not torch.equal(want[n], got[n]) for n in want):
            said.append("%s is not what PEFT saves" % who)
        _, noise = quiet(lambda: peft.PeftModel.from_pretrained(
            load_base(base_dir, torch.float32), out))
        said += noise[:2]
    return said


# ------------------------------------------------------------------ 4: refused
def run_refused(exe, work):
    at = os.path.join(work, "refused")
    base_dir = os.path.join(at, "base")
    os.makedirs(at)
    net_of("llama", 9).save_pretrained(base_dir)
    said = []
    others = [
        ("LoHa", peft.LoHaConfig(r=4, target_modules=["q_proj"])),
        ("LoKr", peft.LoKrConfig(r=4, target_modules=["q_proj"])),
        ("IA3", peft.IA3Config(target_modules=["k_proj", "down_proj"],
                               feedforward_modules=["down_proj"])),
        ("AdaLoRA", peft.AdaLoraConfig(init_r=4, target_r=2, total_step=10, target_modules=["q_proj"])),
        ("lora_bias", lora(lora_bias=True, target_modules=["q_proj"], init_lora_weights=False)),
        ("pissa", lora(init_lora_weights="pissa")),
    ]
    for name, config in others:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            net = peft.get_peft_model(load_base(base_dir, torch.float32), config)
            net.save_pretrained(os.path.join(at, name))
        run = zckpt(exe, "--merge-lora", base_dir, os.path.join(at, name), os.path.join(at, "m"))
        if run.returncode == 0 or name.lower() not in run.stderr.lower():
            said.append("%s: exit %d: %s" % (name, run.returncode, run.stderr))
    # another model: both sizes are in the message
    net_of("gpt2", 9).save_pretrained(os.path.join(at, "other"))
    small = dict(SMALL, hidden_size=48, head_dim=12)
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **small)) \
        .save_pretrained(os.path.join(at, "wide"))
    peft.get_peft_model(load_base(base_dir, torch.float32), lora()).save_pretrained(
        os.path.join(at, "lora"))
    for other, words in (("wide", ("[48, 56]", "[32, 4]")), ("other", ("base has no",))):
        run = zckpt(exe, "--merge-lora", os.path.join(at, other), os.path.join(at, "lora"),
                    os.path.join(at, "m"))
        if run.returncode == 0 or any(w not in run.stderr for w in words):
            said.append("%s: exit %d: %s" % (other, run.returncode, run.stderr))
    return said


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("work")
    ap.add_argument("--zckpt", default=os.environ.get("ZCKPT"))
    ap.add_argument("--only")
    a = ap.parse_args()
    os.makedirs(a.work, exist_ok=True)
    dsrank.prepare()
    jobs = [("step " + c[0], lambda c=c: run_step(a.zckpt, a.work, c)) for c in STEPS]
    jobs += [("%s%s" % (c[0], " bf16" if half else ""),
              lambda c=c, half=half: run_saved(a.zckpt, a.work, c, half))
             for c in SAVED for half in (False, True)]
    jobs += [("several adapters", lambda: run_several(a.zckpt, a.work)),
             ("refused by name", lambda: run_refused(a.zckpt, a.work))]
    passed = failed = 0
    for name, job in jobs:
        if a.only and not re.search(a.only, name):
            continue
        said = job()
        passed, failed = passed + (not said), failed + bool(said)
        for s in said[:4]:
            print("FAILED %s: %s" % (name, s))
        if not said:
            print("ok %s" % name)
        sys.stdout.flush()
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
