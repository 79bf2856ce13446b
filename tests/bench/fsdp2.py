"""usage: torchrun --nproc-per-node N fsdp2.py CONFIG.json ROWS TOKENS STEPS [--keep] [--recompute] [--float8]

A training step of a Hugging Face model by PyTorch's FSDP2, each layer compiled: the peer of ztrain on
GPUs.  bf16 compute, fp32 parameters and moments, fused AdamW, clipping, random tokens.  --keep: the
parameters of a layer stay gathered after the forward pass (gradients and optimizer sharded only).
--float8: the layers' linear modules are torchao's Float8Linear, tensorwise.
"""
import functools
import json
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoModelForCausalLM, Qwen3Config

path, rows, tokens, steps = sys.argv[1], *map(int, sys.argv[2:5])
keep, recompute = "--keep" in sys.argv, "--recompute" in sys.argv
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank % torch.cuda.device_count())
torch.manual_seed(1)
config = Qwen3Config(**{k: v for k, v in json.load(open(path)).items() if k != "architectures"})
config.use_cache = False
with torch.device("meta"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32,
                                             attn_implementation="sdpa")
if "--float8" in sys.argv:
    from torchao.float8 import convert_to_float8_training
    convert_to_float8_training(model, module_filter_fn=lambda m, name: "lm_head" not in name)
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
if recompute:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    for i, layer in enumerate(model.model.layers):
        model.model.layers[i] = checkpoint_wrapper(layer)
for layer in model.model.layers:
    layer.compile()
    fully_shard(layer, mp_policy=policy, reshard_after_forward=not keep)
fully_shard(model, mp_policy=policy, reshard_after_forward=not keep)
model.to_empty(device="cuda")
with torch.no_grad():
    for name, p in model.named_parameters():
        (p.fill_(1) if "norm" in name else p.normal_(0, 0.02))
    rotary = model.model.rotary_emb
    model.model.rotary_emb = type(rotary)(config=config, device="cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1,
                              fused=True)
took = []
for step in range(steps):
    ids = torch.randint(0, config.vocab_size, (rows, tokens), device="cuda")
    torch.cuda.synchronize()
    dist.barrier()
    began = time.perf_counter()
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    took.append(time.perf_counter() - began)
half = statistics.median(took[steps // 3:])
if not rank:
    print(f"fsdp2 {'keep' if keep else 'shard'}{' recompute' if recompute else ''}"
          f"{' float8' if '--float8' in sys.argv else ''}: {world} GPUs, "
          f"{rows} x {tokens}: {rows * tokens / half:.0f} tokens/s/GPU, {half:.3f} s, loss "
          f"{loss.item():.3f}, {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB", flush=True)
dist.destroy_process_group()
