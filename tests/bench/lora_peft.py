"""usage: python lora_peft.py CONFIG.json ROWS TOKENS STEPS [--fp32] [--whole] [--recompute]
           [--dropout]

A LoRA step (r 16, alpha 32, all linear layers) of a Hugging Face model by transformers and PEFT on
one GPU, each layer compiled: the peer of ztrain --lora.  Frozen weights in bf16; adapters in bf16,
or with --fp32 in fp32 under autocast, as the Trainer has them.  --whole compiles the model as one
graph.  --dropout drops 0.05 of what goes into the adapters.  Fused AdamW, clipping, random tokens.
"""
import json
import statistics
import sys
import time

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Qwen3Config

path, rows, tokens, steps = sys.argv[1], *map(int, sys.argv[2:5])
high, whole, recompute, drops = (f"--{x}" in sys.argv
                                 for x in ("fp32", "whole", "recompute", "dropout"))
torch.manual_seed(1)
config = Qwen3Config(**{k: v for k, v in json.load(open(path)).items() if k != "architectures"})
config.use_cache = False
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16,
                                             attn_implementation="sdpa")
lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05 * drops, task_type="CAUSAL_LM",
                  target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
                                  "down_proj"])
model = get_peft_model(model, lora, autocast_adapter_dtype=high)
if not high:
    for name, p in model.named_parameters():
        if p.requires_grad:
            p.data = p.data.to(torch.bfloat16)
inner = model.base_model.model.model
if recompute:
    model.gradient_checkpointing_enable(dict(use_reentrant=False))
    model.enable_input_require_grads()
model.train()
run = torch.compile(model) if whole else model
if not whole:
    for layer in inner.layers:
        layer.compile()
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
took = []
for step in range(steps):
    ids = torch.randint(0, config.vocab_size, (rows, tokens), device="cuda")
    torch.cuda.synchronize()
    began = time.perf_counter()
    with torch.autocast("cuda", torch.bfloat16, enabled=high):
        loss = run(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    took.append(time.perf_counter() - began)
half = statistics.median(took[steps // 3:])
print(f"peft {'fp32' if high else 'bf16'} adapters{' whole' if whole else ''}"
      f"{' recompute' if recompute else ''}{' dropout' if drops else ''}: {rows} x {tokens}: "
      f"{rows * tokens / half:.0f} tokens/s, "
      f"{half:.3f} s, loss {loss.item():.3f}, {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB",
      flush=True)
