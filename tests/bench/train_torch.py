"""The peers of ztrain in the benches: one training step by PyTorch, or by DeepSpeed.

    train_torch.py [--ranks N] [--dtype fp32|bf16] [--micro ROWS] [--seq TOKENS]
                   [--steps N] [--threads N] HOW

HOW: eager, fused (the same, AdamW in one kernel), fsdp2, fsdp3 (PyTorch's fully_shard without
and with resharding after the forward pass, which is ZeRO-2 and ZeRO-3), zero2, zero3
(DeepSpeed). The model, data shape and settings are those of tests/bench/rows_train.sh; more than
one rank are forked processes over gloo. bf16: fsdp and eager keep fp32 masters and compute in
bf16 (mixed precision, autocast); DeepSpeed's bf16 as its configuration has it.

Prints the fastest step of the run in seconds, of rank 0, the first (which warms up) left out:
from the batch to parameters that are ready for the next. 'pure' has neither masters nor moments
in fp32: all is bf16.
"""
import argparse
import contextlib
import os
import sys
import time
import warnings

warnings.filterwarnings("ignore")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "interop"))

VOCAB = 12288
ADAM = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("how", choices=["eager", "fused", "fsdp2", "fsdp3", "zero2", "zero3"])
    p.add_argument("--ranks", type=int, default=1)
    p.add_argument("--dtype", choices=["fp32", "bf16", "pure"], default="fp32")
    p.add_argument("--micro", type=int, default=4)
    p.add_argument("--seq", type=int, default=256)
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--threads", type=int, default=1)
    return p.parse_args()


def make_model():
    import torch
    import transformers

    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=512, intermediate_size=1536, num_hidden_layers=6,
        num_attention_heads=8, num_key_value_heads=4, head_dim=64, tie_word_embeddings=True,
        rms_norm_eps=1e-5, use_cache=False)
    return transformers.LlamaForCausalLM(config).float().train()


def batch(a, step, rank):
    import torch

    ids = torch.arange(a.micro * a.seq) * 2654435761 + (step * a.ranks + rank) * 97
    return ids.remainder(VOCAB).view(a.micro, a.seq)


def timed(a, rank, step):
    """The fastest of the steps but the first."""
    took = []
    for i in range(a.steps + 1):
        ids = batch(a, i, rank)
        begin = time.perf_counter()
        step(ids)
        took.append(time.perf_counter() - begin)
    return min(took[1:])


def adam(a, model):
    import torch

    return torch.optim.AdamW(model.parameters(), fused=True if a.how == "fused" else None, **ADAM)


def plain(a, rank):
    import torch

    model = make_model()
    if a.how.startswith("fsdp"):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        low = a.dtype == "bf16"
        how = dict(mesh=init_device_mesh("cpu", (a.ranks,)),
                   reshard_after_forward=a.how == "fsdp3")
        if low:
            how["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16,
                                                    reduce_dtype=torch.bfloat16)
        for layer in model.model.layers:
            fully_shard(layer, **how)
        fully_shard(model, **how)
        cast = contextlib.nullcontext
    else:
        if a.dtype == "pure":
            model = model.bfloat16()

        def cast():
            return torch.autocast("cpu", torch.bfloat16, enabled=a.dtype == "bf16")
    optimizer = adam(a, model)

    def step(ids):
        with cast():
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return timed(a, rank, step)


def deepspeed(a, rank):
    import deepspeed as ds

    stage = int(a.how[-1])
    config = {
        "train_micro_batch_size_per_gpu": a.micro, "gradient_accumulation_steps": 1,
        "zero_optimization": {"stage": stage}, "gradient_clipping": 1.0,
        "bf16": {"enabled": a.dtype == "bf16"}, "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    model = make_model()
    engine, _, _, _ = ds.initialize(model=model, optimizer=adam(a, model), config=config)

    def step(ids):
        loss = engine(input_ids=ids, labels=ids).loss
        engine.backward(loss)
        engine.step()
        return loss.item()

    return timed(a, rank, step)


def main():
    a = arguments()
    os.environ["OMP_NUM_THREADS"] = str(a.threads)
    work = deepspeed if a.how.startswith("zero") else plain
    if a.ranks == 1 and work is plain:
        import torch

        torch.set_num_threads(a.threads)
        print("%.6f" % work(a, 0))
        return
    import dsrank
    import torch

    dsrank.prepare(widen=False)
    torch.set_num_threads(a.threads)
    out = os.memfd_create("took")

    def rank_work(rank, world):
        took = work(a, rank)
        if rank == 0:
            os.pwrite(out, b"%.6f\n" % took, 0)

    said = dsrank.fork_ranks(a.ranks, rank_work)
    if said:
        sys.exit("train_torch.py: " + said)
    print(os.pread(out, 64, 0).decode().strip())


main()
