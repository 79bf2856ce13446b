"""Tiny Hugging Face models, trained by DeepSpeed on CPU ranks, converted, loaded by transformers.

    hf_models.py WORK [--zckpt PATH] [--long] [--generate-only]

Llama, Qwen2 and Qwen3 with random weights take three steps at stages 2 and 3 on two ranks.
The folder that save_checkpoint leaves (config.json beside it) is converted to a Hugging Face
folder; AutoModelForCausalLM.from_pretrained must find every key and no other, and the logits
must be those of the live model. Nothing is downloaded.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import dsrank
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
SMALL = dict(vocab_size=101, hidden_size=32, intermediate_size=56, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
             bos_token_id=1, eos_token_id=2)
LINEAR = torch.nn.functional.linear
TOKENS = torch.arange(24).reshape(2, 12) * 7 % 101


def plan(long):
    """(model type, tied, stage, precision); every type, tying, stage and precision is in both."""
    short = [("llama", False, 2, "bf16"), ("llama", True, 3, "bf16"), ("qwen2", True, 2, "bf16"),
             ("qwen2", False, 3, "fp32"), ("qwen3", False, 2, "fp32"), ("qwen3", True, 3, "bf16")]
    if not long:
        return short
    return [(m, t, s, p) for m in ("llama", "qwen2", "qwen3") for t in (False, True)
            for s in (1, 2, 3) for p in ("bf16", "fp32")]


def named(job):
    m, tied, stage, precision = job
    return "%s-%s-z%d-%s" % (m, "tied" if tied else "untied", stage, precision)


def build(job, dtype=torch.float32):
    m, tied, _, _ = job
    extra = {"head_dim": 8} if m == "qwen3" else {}
    config = AutoConfig.for_model(m, tie_word_embeddings=tied, **SMALL, **extra)
    torch.manual_seed(len(named(job)) * 7 + tied)
    return AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="eager")


def ds_config(job, world):
    _, _, stage, precision = job
    cfg = {"train_micro_batch_size_per_gpu": 2, "train_batch_size": 2 * world,
           "zero_optimization": {"stage": stage, "overlap_comm": False,
                                 "stage3_param_persistence_threshold": 50},
           "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
           "steps_per_print": 1000000}
    if precision == "bf16":
        cfg["bf16"] = {"enabled": True}
    return cfg


def train_and_save(job, out, rank, world):
    import deepspeed
    net = build(job)
    decay = [p for p in net.parameters() if p.dim() > 1]
    plain = [p for p in net.parameters() if p.dim() < 2]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1},
                             {"params": plain, "weight_decay": 0.0}], lr=1e-2)
    engine = deepspeed.initialize(model=net, optimizer=opt, config=ds_config(job, world),
                                  dist_init_required=False)[0]
    engine.train()
    for step in range(3):
        g = torch.Generator().manual_seed(100 * step + rank)
        ids = torch.randint(0, SMALL["vocab_size"], (2, 12), generator=g)
        engine.backward(engine(input_ids=ids, labels=ids, use_cache=False).loss)
        engine.step()
    truth = dsrank.gather(engine, net)
    engine.eval()
    # stage 3 puts its own linear() into torch for good; it rounds before it adds the bias,
    # which no other user of these weights does
    torch.nn.functional.linear = LINEAR
    with torch.no_grad():
        logits = engine(input_ids=TOKENS, use_cache=False).logits
    where = os.path.join(out, named(job))
    engine.save_checkpoint(where)
    torch.distributed.barrier()
    if rank == 0:
        net.config.save_pretrained(where)
        truth = {k: t for k, t in truth.items() if not k.endswith("|buffer")}
        truth["live logits"] = logits.contiguous()
        save_file(truth, os.path.join(where, "truth.safetensors"))
    engine.destroy()
    torch.distributed.barrier()


def generate(jobs, out):
    dsrank.prepare()

    def work(rank, world):
        for job in jobs:
            train_and_save(job, out, rank, world)
    said = dsrank.fork_ranks(2, work)
    if said:
        raise SystemExit("hf_models: generating failed: " + said)


# ------------------------------------------------------------------ judging
def logits_of(net):
    net.eval()
    with torch.no_grad():
        return net(input_ids=TOKENS, use_cache=False).logits


def wanted_logits(job, truth, dtype):
    """What the live state gives when put into a fresh model without any file between."""
    net = build(job, dtype)
    what = "|master" if dtype is torch.float32 else "|weight"
    state = {k[:-len(what)]: t for k, t in truth.items() if k.endswith(what)}
    missing, unexpected = net.load_state_dict(state, strict=False)
    tied = {"lm_head.weight"} if job[1] else set()
    if set(missing) - tied or unexpected:
        raise RuntimeError("truth does not fill the model: %s %s" % (missing, unexpected))
    net.tie_weights()
    return logits_of(net)


def load(folder, dtype):
    """The converted folder, as a user loads it, refusing anything transformers papers over."""
    net, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", output_loading_info=True,
        local_files_only=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        if info.get(key):
            raise RuntimeError("%s: %s" % (key, sorted(map(str, info[key]))[:4]))
    return net


def judge(job, src, dtype, exe, work, extra=()):
    truth = load_file(os.path.join(src, "truth.safetensors"))
    out = os.path.join(work, "hf-%s-%d" % (dtype, len(extra)))
    r = subprocess.run([exe, "convert", "--dtype", dtype, *extra, src, out],
                       capture_output=True, text=True, timeout=120)
    if r.returncode != 0:
        raise RuntimeError("zckpt convert: exit %d: %s" % (r.returncode, r.stderr.strip()[-500:]))
    if extra and not os.path.exists(os.path.join(out, "model.safetensors.index.json")):
        raise RuntimeError("no index was written for a model larger than a shard")
    with open(os.path.join(out, "config.json")) as f:
        if json.load(f)["tie_word_embeddings"] != job[1]:
            raise RuntimeError("config.json is not the one beside the checkpoint")
    net = load(out, DTYPES[dtype])
    got = logits_of(net)
    if not torch.equal(got, wanted_logits(job, truth, DTYPES[dtype])):
        raise RuntimeError("logits are not those of the live %s state" % dtype)
    if job[3] == dtype and not torch.equal(got, truth["live logits"]):
        d = (got.float() - truth["live logits"].float()).abs().max().item()
        raise RuntimeError("logits differ from the live model's by %g" % d)


def self_check(job, src):
    """Before zckpt is judged: the live logits follow from the gathered state."""
    truth = load_file(os.path.join(src, "truth.safetensors"))
    if not torch.equal(wanted_logits(job, truth, DTYPES[job[3]]), truth["live logits"]):
        raise RuntimeError("the gathered state does not give the live logits")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("work")
    ap.add_argument("--zckpt", default=os.environ.get("ZCKPT"))
    ap.add_argument("--long", action="store_true")
    ap.add_argument("--generate-only", action="store_true")
    a = ap.parse_args()
    if not a.zckpt and not a.generate_only:
        ap.error("--zckpt or ZCKPT is needed")
    torch.set_num_threads(1)
    jobs, begin = plan(a.long), time.time()
    os.makedirs(a.work, exist_ok=True)
    for job in jobs:
        shutil.rmtree(os.path.join(a.work, named(job)), ignore_errors=True)
    generate(jobs, a.work)
    print("hf: %d models trained in %.0f s" % (len(jobs), time.time() - begin), flush=True)
    passed = failed = 0
    for job in jobs:
        src = os.path.join(a.work, named(job))
        todo = [("live state", lambda w: self_check(job, src))]
        if not a.generate_only:
            todo += [("as " + d, lambda w, d=d: judge(job, src, d, a.zckpt, w)) for d in DTYPES]
            todo.append(("as bf16 in shards", lambda w: judge(
                job, src, "bf16", a.zckpt, w, ("--max-shard-size", "20KB"))))
        for what, check in todo:
            tmp = tempfile.mkdtemp(prefix="zckpt-hf-")
            try:
                check(tmp)
                passed += 1
                print("ok %s %s" % (named(job), what), flush=True)
            except Exception as e:
                failed += 1
                print("FAILED %s %s: %s" % (named(job), what, e), flush=True)
            shutil.rmtree(tmp, ignore_errors=True)
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
