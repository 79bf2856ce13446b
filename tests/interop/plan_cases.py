#!/usr/bin/env python3
"""zckpt plan against DeepSpeed's own memory estimators and transformers' own models.

usage: plan_cases.py WORK   (ZCKPT names the program)

The estimators are called over a handful of sizes and hosts and must agree to the byte; a model
of every architecture that plan knows is built without memory, and its parameters, tensors and
largest module must be those that plan reads from its config.json. The last line is
`N passed, N failed, N skipped`.
"""
import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stdout

ZCKPT = os.environ["ZCKPT"]
passed = failed = skipped = 0


def judge(name, good, said=""):
    global passed, failed
    if good:
        passed += 1
    else:
        failed += 1
        print(f"FAIL {name}: {said}")


def plan(*args):
    done = subprocess.run([ZCKPT, "plan", "--json", *map(str, args)], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def estimators():
    """Every choice of offload of both functions, and the tables that the _all_cold ones print."""
    global skipped
    try:
        from deepspeed.runtime.zero import stage3, stage_1_and_2
    except Exception as why:  # no DeepSpeed here, or none that can be imported without a GPU
        skipped += 1
        print(f"SKIP DeepSpeed's estimators: {why!r}")
        return
    two = stage_1_and_2.estimate_zero2_model_states_mem_needs
    three = stage3.estimate_zero3_model_states_mem_needs
    for model in ("qwen2.5-7b", "llama-3-70b", "llama-3.2-1b", "123456789"):
        for gpus, node in ((1, 1), (3, 8), (8, 8), (24, 8), (96, 8), (7, 1)):
            where = ("-n", gpus, "--gpus-per-node", node)
            node = min(node, gpus)
            nodes = (gpus + node - 1) // node
            for offload in ("none", "optimizer", "params"):
                said = plan(model, *where, "--stage", 3, "--offload", offload)
                params, largest = said["model"]["params"], said["model"]["largest_module"]
                cpu, gpu, layer = three(params, largest, node, nodes, offload != "none",
                                        offload == "params", True)
                judge(f"zero3 {model} {gpus} {offload}", said["deepspeed"] == {
                    "cpu_bytes_per_node": cpu, "gpu_bytes": gpu, "largest_layer_bytes": layer},
                    f"{said['deepspeed']}, not {cpu, gpu, layer}")
            for offload in ("none", "optimizer"):
                said = plan(model, *where, "--stage", 2, "--offload", offload)
                cpu, gpu = two(params, node, nodes, offload != "none")
                judge(f"zero2 {model} {gpus} {offload}", said["deepspeed"] == {
                    "cpu_bytes_per_node": cpu, "gpu_bytes": gpu}, f"{said['deepspeed']}")
    printed = io.StringIO()
    with redirect_stdout(printed):
        stage_1_and_2.estimate_zero2_model_states_mem_needs_all_cold(7615616512, 8, 2)
        stage3.estimate_zero3_model_states_mem_needs_all_cold(7615616512, 544997376, 8, 2)
    said = plan("qwen2.5-7b", "-n", 16, "--stage", 3)["deepspeed"]
    judge("all_cold prints it", f"{said['gpu_bytes'] / 2**30:6.2f}GB" in printed.getvalue() and
          f"{said['cpu_bytes_per_node'] / 2**30:7.2f}GB" in printed.getvalue(), printed.getvalue())


TOKENS = dict(vocab_size=301, pad_token_id=0, bos_token_id=1, eos_token_id=2)
SMALL = dict(TOKENS, hidden_size=64, num_hidden_layers=3, num_attention_heads=4)
LLAMA = dict(SMALL, intermediate_size=171, num_key_value_heads=2)
CASES = [
    ("llama", LLAMA), ("llama", dict(LLAMA, attention_bias=True, mlp_bias=True)),
    ("llama", dict(LLAMA, head_dim=24, tie_word_embeddings=True)), ("mistral", LLAMA),
    ("qwen2", LLAMA), ("qwen2", dict(LLAMA, tie_word_embeddings=True)), ("qwen3", LLAMA),
    ("qwen3", dict(LLAMA, head_dim=24, attention_bias=True)), ("gemma", LLAMA),
    ("gemma", dict(LLAMA, attention_bias=True)), ("gemma2", LLAMA), ("gemma3_text", LLAMA),
    ("granite", dict(LLAMA, attention_bias=True, mlp_bias=True)), ("olmo", LLAMA), ("olmo2", LLAMA),
    ("smollm3", LLAMA), ("phi3", LLAMA),
    ("starcoder2", LLAMA), ("starcoder2", dict(LLAMA, use_bias=False)),
    ("gpt2", dict(TOKENS, n_embd=64, n_layer=3, n_head=4, n_positions=77)),
    ("gpt2", dict(TOKENS, n_embd=64, n_layer=3, n_head=4, n_positions=77, n_inner=99)),
    ("gpt_neox", dict(SMALL, intermediate_size=130)),
    ("gpt_neox", dict(SMALL, intermediate_size=130, attention_bias=False)),
    ("opt", dict(SMALL, ffn_dim=130, max_position_embeddings=50, word_embed_proj_dim=64)),
    ("opt", dict(SMALL, ffn_dim=130, max_position_embeddings=50, word_embed_proj_dim=64,
                 enable_bias=False)),
]


def architectures(work):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    for i, (kind, keys) in enumerate(CASES):
        folder = os.path.join(work, f"plan-{i}")
        config = AutoConfig.for_model(kind, **keys)
        config.save_pretrained(folder)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        want = (sum(p.numel() for p in model.parameters()), len(list(model.parameters())),
                max(sum(p.numel() for p in m.parameters(recurse=False)) for m in model.modules()))
        said = plan(os.path.join(folder, "config.json"))["model"]
        got = (said["params"], said["tensors"], said["largest_module"])
        judge(f"{kind} {keys}", got == want, f"plan reads {got}, the model has {want}")


def main():
    work = sys.argv[1]
    os.makedirs(work, exist_ok=True)
    estimators()
    architectures(work)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
