"""usage: bench_torch.py [THREADS [STEPS]]: the step of bench_model.c by PyTorch and transformers."""
import sys
import time

import torch
import transformers

threads = int(sys.argv[1]) if len(sys.argv) > 1 else 2
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 10
torch.set_num_threads(threads)
torch.manual_seed(1)
config = transformers.LlamaConfig(
    vocab_size=12288, hidden_size=512, intermediate_size=1536, num_hidden_layers=6,
    num_attention_heads=8, num_key_value_heads=4, head_dim=64, tie_word_embeddings=True,
    rms_norm_eps=1e-5, use_cache=False)
model = transformers.LlamaForCausalLM(config).float().train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1,
                              fused="--fused" in sys.argv or None)
took = []
for step in range(steps):
    ids = (torch.arange(1024) * 2654435761 + step * 97).remainder(12288).view(4, 256)
    began = time.perf_counter()
    work = time.process_time()
    loss = model(input_ids=ids, labels=ids).loss
    forward = time.perf_counter()
    loss.backward()
    backward = time.perf_counter()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    end = time.perf_counter()
    took.append((end - began, forward - began, backward - forward, end - backward,
                 time.process_time() - work))
print(f"step 1 to {steps}: loss {loss.item():.4f}; attention {config._attn_implementation}")
best = min(took)
print(f"{threads} threads, torch {torch.__version__}: best {best[0] * 1e3:.1f} ms "
      f"(median {sorted(took)[steps // 2][0] * 1e3:.1f}): forward {best[1] * 1e3:.1f}, "
      f"backward {best[2] * 1e3:.1f}, norm and AdamW {best[3] * 1e3:.1f}; "
      f"least processor time {min(t[4] for t in took) * 1e3:.1f}")
