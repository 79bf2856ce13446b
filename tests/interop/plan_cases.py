#!/usr/bin/env python3
"""zckpt plan against DeepSpeed's own memory estimators, its live tensors, and transformers' models.

usage: plan_cases.py WORK   (ZCKPT names the program)

The estimators are called over a handful of sizes and hosts and must agree to the byte; a model
of every architecture that plan knows is built without memory, and its parameters, those active for
a token, tensors and largest module must be those that plan reads from its config.json. Engines of DeepSpeed train on
CPU ranks, and all tensors that live there are summed up at three moments: plan must say as many
bytes. The last line is `N passed, N failed, N skipped`.
"""
import gc
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
QWEN_MOE = dict(LLAMA, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24)
QWEN2_MOE = dict(QWEN_MOE, shared_expert_intermediate_size=40)
DEEPSEEK = dict(LLAMA, num_key_value_heads=4, n_routed_experts=8, num_experts_per_tok=3,
                n_shared_experts=2, moe_intermediate_size=24, kv_lora_rank=16, qk_nope_head_dim=8,
                qk_rope_head_dim=4, v_head_dim=12)
DEEPSEEK3 = dict(DEEPSEEK, q_lora_rank=24, n_group=2, topk_group=1)
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
    ("mixtral", dict(LLAMA, num_local_experts=4)),
    ("mixtral", dict(LLAMA, num_local_experts=5, num_experts_per_tok=1, head_dim=24,
                     tie_word_embeddings=True)),
    ("qwen2_moe", QWEN2_MOE), ("qwen2_moe", dict(QWEN2_MOE, num_experts=0)),
    ("qwen2_moe", dict(QWEN2_MOE, decoder_sparse_step=2, qkv_bias=False)), ("qwen3_moe", QWEN_MOE),
    ("qwen3_moe", dict(QWEN_MOE, mlp_only_layers=[0, 2], attention_bias=True, head_dim=24)),
    ("qwen3_moe", dict(QWEN_MOE, decoder_sparse_step=2, tie_word_embeddings=True)),
    ("deepseek_v2", dict(DEEPSEEK, q_lora_rank=24, first_k_dense_replace=1)),
    ("deepseek_v2", dict(DEEPSEEK, q_lora_rank=None, attention_bias=True, mlp_bias=True)),
    ("deepseek_v3", DEEPSEEK3), ("deepseek_v3", dict(DEEPSEEK3, first_k_dense_replace=1)),
    ("deepseek_v3", dict(DEEPSEEK3, q_lora_rank=None, first_k_dense_replace=2, n_shared_experts=1,
                         attention_bias=True)),
]
QWEN3_MOE = dict(vocab_size=151936, num_key_value_heads=4, head_dim=128, num_experts=128,
                 num_experts_per_tok=8, decoder_sparse_step=1, mlp_only_layers=[])
# The numbers of the published config.json; those of DeepSeek-V3 are transformers' defaults.
PUBLISHED = [
    ("mixtral-8x7b", "mixtral", dict(
        vocab_size=32000, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, num_local_experts=8,
        num_experts_per_tok=2)),
    ("mixtral-8x22b", "mixtral", dict(
        vocab_size=32768, hidden_size=6144, intermediate_size=16384, num_hidden_layers=56,
        num_attention_heads=48, num_key_value_heads=8, num_local_experts=8,
        num_experts_per_tok=2)),
    ("qwen3-30b-a3b", "qwen3_moe", dict(
        QWEN3_MOE, hidden_size=2048, intermediate_size=6144, moe_intermediate_size=768,
        num_hidden_layers=48, num_attention_heads=32)),
    ("qwen3-235b-a22b", "qwen3_moe", dict(
        QWEN3_MOE, hidden_size=4096, intermediate_size=12288, moe_intermediate_size=1536,
        num_hidden_layers=94, num_attention_heads=64)),
    ("deepseek-v3", "deepseek_v3", {}),
]


# with vision towers; the numbers of text_config, vision_config and outside
VL_TEXT = dict(vocab_size=301, hidden_size=64, intermediate_size=171, num_hidden_layers=3,
               num_attention_heads=4, num_key_value_heads=2, rope_parameters={
                   "rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]})
INTERN_TEXT = dict(LLAMA, model_type="qwen2")
QWEN3_VL_TEXT = dict(VL_TEXT, head_dim=24)
VISION = [
    ("qwen2_vl", VL_TEXT, dict(depth=3, embed_dim=48, hidden_size=64, mlp_ratio=3, num_heads=4,
                               patch_size=8), {}),
    ("qwen2_vl", dict(VL_TEXT, tie_word_embeddings=True), dict(depth=1, embed_dim=32,
                                                               hidden_size=64, num_heads=2), {}),
    ("qwen2_5_vl", VL_TEXT, dict(depth=3, hidden_size=48, intermediate_size=70, num_heads=4,
                                 out_hidden_size=64, spatial_merge_size=3), {}),
    ("qwen2_5_vl", VL_TEXT, dict(depth=2, hidden_size=48, intermediate_size=70, num_heads=4,
                                 out_hidden_size=64, temporal_patch_size=1),
     dict(tie_word_embeddings=True)),
    ("qwen3_vl", QWEN3_VL_TEXT, dict(depth=4, hidden_size=48, intermediate_size=70, num_heads=4,
                                     out_hidden_size=64, num_position_embeddings=49,
                                     deepstack_visual_indexes=[0, 2]), {}),
    ("qwen3_vl", dict(QWEN3_VL_TEXT, attention_bias=True), dict(
        depth=2, hidden_size=48, intermediate_size=70, num_heads=4, out_hidden_size=64,
        num_position_embeddings=16, deepstack_visual_indexes=[]), dict(tie_word_embeddings=True)),
    ("internvl", INTERN_TEXT, dict(hidden_size=48, num_hidden_layers=3, num_attention_heads=4,
                                   intermediate_size=70, image_size=[56, 28], patch_size=[14, 7]),
     dict(tie_word_embeddings=False)),
    ("internvl", dict(LLAMA, model_type="qwen3", head_dim=24), dict(
        hidden_size=48, num_hidden_layers=1, num_attention_heads=4, intermediate_size=70,
        attention_bias=True, use_qk_norm=True, norm_type="rms_norm", use_mean_pooling=False,
        image_size=[28, 28]), dict(downsample_ratio=0.25)),
    ("internvl", dict(LLAMA, model_type="llama"), dict(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=70,
        use_absolute_position_embeddings=False, use_mask_token=True, image_size=[28, 28]), {}),
]
# those of the published config.json
PUBLISHED_VISION = [
    ("Qwen2.5-VL-7B", 8292166656, "qwen2_5_vl", dict(
        vocab_size=152064, hidden_size=3584, intermediate_size=18944, num_hidden_layers=28,
        num_attention_heads=28, num_key_value_heads=4), dict(
            depth=32, hidden_size=1280, intermediate_size=3420, num_heads=16,
            out_hidden_size=3584), {}),
]


def counted(config):
    """Parameters, tensors, largest module, and parameters that a token passes."""
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    auto = AutoModelForImageTextToText if hasattr(config, "vision_config") else AutoModelForCausalLM
    with torch.device("meta"):
        model = auto.from_config(config)
    experts = [n for n in (getattr(config, k, None) for k in (
        "num_local_experts", "num_experts", "n_routed_experts")) if n]
    return (sum(p.numel() for p in model.parameters()), len(list(model.parameters())),
            max(sum(p.numel() for p in m.parameters(recurse=False)) for m in model.modules()),
            sum(p.numel() * config.num_experts_per_tok // experts[0] if ".experts." in n else
                p.numel() for n, p in model.named_parameters()))


def architectures(work):
    from transformers import AutoConfig
    for i, (name, kind, keys) in enumerate([(None, *case) for case in CASES] + PUBLISHED):
        folder = os.path.join(work, f"plan-{i}")
        config = AutoConfig.for_model(kind, **keys)
        config.save_pretrained(folder)
        want = counted(config)
        for source in [os.path.join(folder, "config.json")] + [name] * bool(name):
            said = plan(source)["model"]
            got = (said["params"], said["tensors"], said["largest_module"], said["active"])
            judge(f"{kind} {keys} {name}", got == want, f"plan reads {got}, the model has {want}")


def towers(work):
    """As architectures(), of which the tower; weights of the same model, and one that is frozen."""
    from transformers import AutoConfig, AutoModelForImageTextToText
    cases = [(None, None, *case) for case in VISION] + PUBLISHED_VISION
    for i, (name, total, kind, text, vision, more) in enumerate(cases):
        folder = os.path.join(work, f"vision-{i}")
        config = AutoConfig.for_model(kind, text_config=text, vision_config=vision, **more)
        config.save_pretrained(folder)
        want = counted(config)
        said = plan(os.path.join(folder, "config.json"), "--freeze-tower", "-n", 2, "--stage", 2)
        model = said["model"]
        got = (model["params"], model["tensors"], model["largest_module"], model["active"])
        judge(f"{kind} {i} {name}", got == want and total in (None, got[0]),
              f"plan reads {got}, the model has {want}")
        judge(f"{kind} {i} frozen", model["trainable"] == model["params"] - model["tower"],
              f"{model}")
        if name:
            continue
        net = AutoModelForImageTextToText.from_config(config)
        net.save_pretrained(folder)
        tower = sum(p.numel() for n, p in net.named_parameters()
                    if "language_model" not in n and "lm_head" not in n)
        read = plan(folder)["model"]
        judge(f"{kind} {i} weights", tower == model["tower"] == read["tower"] and
              read["params"] == model["params"], f"{tower}, {model['tower']}, {read}")


WIDE = dict(TOKENS, vocab_size=64, hidden_size=256, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=768, use_cache=False)
WIDE_MOE = dict(WIDE, num_experts=16, num_experts_per_tok=4, moe_intermediate_size=128)
# PEFT's adapters beside frozen matrices: as zckpt is given them, and as PEFT is
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTED = [(kind, attention, r, modules, dropout) for kind in ("llama", "qwen3")
           for attention in ("sdpa", "eager")
           for r, modules in ((4, ALL), (8, ["q_proj", "v_proj"]), (16, ["o_proj", "down_proj"]),
                              (3, ["up_proj"])) for dropout in (0, 0.1)]
KEPT = [("llama", WIDE), ("mixtral", dict(WIDE, num_local_experts=8)),
        ("qwen3_moe", dict(WIDE_MOE, head_dim=64)),
        ("qwen2_moe", dict(WIDE_MOE, shared_expert_intermediate_size=512))] + [
    ("deepseek_v3", dict(WIDE, num_key_value_heads=4, n_routed_experts=16, num_experts_per_tok=4,
                         n_shared_experts=1, moe_intermediate_size=128, kv_lora_rank=64,
                         qk_nope_head_dim=48, qk_rope_head_dim=16, v_head_dim=64, n_group=4,
                         topk_group=2, first_k_dense_replace=0, q_lora_rank=rank))
    for rank in (96, None)]
LENGTH = 512


def kept(kind, keys, layers, adapt=None, attention="sdpa"):
    """Bytes of all tensors that the forward pass in bf16 keeps, each storage once, no weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(kind, num_hidden_layers=layers, **keys),
        attn_implementation=attention).to(torch.bfloat16).train()
    if adapt:
        model = adapt(model)
    own = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
    seen = {}

    def pack(t):
        storage = t.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage      # held, or its place would be used again
        return t
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = (model.base_model.model if adapt else model).model(
            input_ids=torch.randint(3, 60, (1, LENGTH)))
    del out
    return sum(s.nbytes() for s in seen.values())


def activations(work):
    """A layer's, as the difference of models of 3 and 2 layers; small numbers a token are left out."""
    path = os.path.join(work, "kept.json")
    for kind, keys in KEPT:
        real = kept(kind, keys, 3) - kept(kind, keys, 2)
        with open(path, "w") as f:
            json.dump(dict(keys, model_type=kind, num_hidden_layers=1), f)
        said = [t["bytes"] for t in plan(path, "--seq", LENGTH)["gpu"]["terms"]
                if t["name"] == "activations"][0]
        judge(f"activations of {kind}", 0.99 * real <= said <= real,
              f"plan says {said}, {real} are kept")


def adapters(work):
    """The same with adapters, as DeepSpeed trains them: in bf16, like the model."""
    global skipped
    try:
        import torch
        from peft import LoraConfig, get_peft_model
    except ImportError as why:
        skipped += 1
        print(f"SKIP activations beside adapters: {why!r}")
        return
    # as on a GPU, where the mask is a byte an element
    plain = torch.nn.functional.dropout
    torch.nn.functional.dropout = lambda x, p=0.5, training=True, inplace=False: \
        torch.native_dropout(x, p, training)[0] if p and training else x
    path = os.path.join(work, "adapted.json")
    for kind, attention, r, modules, dropout in ADAPTED:
        keys = dict(WIDE, head_dim=64)

        def adapt(model):
            return get_peft_model(model, LoraConfig(
                task_type="CAUSAL_LM", r=r, target_modules=modules, lora_dropout=dropout),
                autocast_adapter_dtype=False)
        real = kept(kind, keys, 3, adapt, attention) - kept(kind, keys, 2, adapt, attention)
        with open(path, "w") as f:
            json.dump(dict(keys, model_type=kind, num_hidden_layers=1), f)
        more = ["--attention", "matrix"] if attention == "eager" else []
        said = [t["bytes"] for t in plan(path, "--seq", LENGTH, "--lora", "r=%d,target=%s%s" % (
            r, "+".join(modules), ",dropout=%g" % dropout if dropout else ""), *more)["gpu"]["terms"]
                if t["name"] == "activations"][0]
        judge(f"activations of {kind} ({attention}), adapters of {'+'.join(modules)}, dropout {dropout}",
              0.99 * real <= said <= real, f"plan says {said}, {real} are kept")
    torch.nn.functional.dropout = plain


NET = dict(SMALL, intermediate_size=171, num_key_value_heads=2, tie_word_embeddings=False,
           use_cache=False)
# stage, ranks, precision, offload, accumulation
LIVE = [(stage, world, "bf16", 0, 1) for stage in (0, 1, 2, 3) for world in (1, 2, 3)] + \
    [(stage, 2, "fp32", 0, 1) for stage in (1, 2, 3)] + \
    [(2, 2, "fp16", 0, 1), (3, 2, "fp16", 0, 1), (2, 2, "bf16", 1, 1), (2, 3, "bf16", 1, 1),
     (3, 2, "bf16", 1, 1), (3, 3, "bf16", 1, 1), (2, 2, "bf16", 0, 3), (3, 2, "bf16", 0, 3)]


def live_bytes():
    """Of all tensors that Python can see, each storage once."""
    import torch
    gc.collect()
    seen = {}
    for o in gc.get_objects():
        if isinstance(o, torch.Tensor) and o.device.type == "cpu":
            storage = o.untyped_storage()
            seen[storage.data_ptr()] = storage.nbytes()
    return sum(seen.values())


def trained(case, config, out):
    """What a rank does: three steps, looking at the last one."""
    import deepspeed
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    accumulation = case[4]

    def work(rank, _):
        torch.manual_seed(1)
        net = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **NET))
        buffers = sum(b.untyped_storage().nbytes() for b in net.buffers())
        engine = deepspeed.initialize(
            model=net, optimizer=torch.optim.AdamW(net.parameters(), lr=1e-3, foreach=False),
            config=config, dist_init_required=False)[0]
        # The padding token's row is zero: its norms multiply gradients by 1000, to fp16's infinity.
        inner, x, seen = engine.optimizer.optimizer, torch.arange(16, 32).reshape(2, 8), {}
        plain = inner.step

        def step(*args, **kw):
            seen["step"] = max(live_bytes() - buffers, seen.get("step", 0))
            return plain(*args, **kw)
        for _ in range(2 * accumulation):
            engine.backward(engine(input_ids=x, labels=x).loss)
            engine.step()
        for _ in range(accumulation):
            loss = engine(input_ids=x, labels=x).loss
            seen["loss"] = live_bytes() - buffers
            inner.step = step
            engine.backward(loss)
            del loss
            engine.step()
        seen["rest"] = live_bytes() - buffers
        if rank == 0:
            with open(out, "w") as f:
                json.dump(seen, f)
    return work


def live(work):
    global skipped
    try:
        import dsrank
        dsrank.prepare()
    except Exception as why:
        skipped += 1
        print(f"SKIP live tensors: {why!r}")
        return
    model, ds, out = (os.path.join(work, n) for n in ("net.json", "ds.json", "seen.json"))
    with open(model, "w") as f:
        json.dump(dict(NET, model_type="llama"), f)
    for case in LIVE:
        stage, world, kind, offload, accumulation = case
        config = {"train_micro_batch_size_per_gpu": 2, "steps_per_print": 10 ** 6,
                  "gradient_accumulation_steps": accumulation,
                  "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
                  "zero_optimization": {
                      "stage": stage, "reduce_bucket_size": 30000, "overlap_comm": False,
                      "stage3_prefetch_bucket_size": 5000,
                      "stage3_param_persistence_threshold": 100}}
        if kind != "fp32":
            config[kind] = {"enabled": True}
        if kind == "fp16":
            config[kind]["initial_scale_power"] = 4     # no step is skipped
        if offload:
            config["zero_optimization"]["offload_optimizer"] = {"device": "cpu", "pin_memory": False}
        with open(ds, "w") as f:
            json.dump(config, f)
        said = plan(model, "-n", world, "--gpus-per-node", 1, "--ds-config", ds, "--seq", 8)
        terms = [t for t in said["gpu"]["terms"] if "CUDA" not in t["name"]]
        always = sum(t["bytes"] for t in terms if len(t["phases"]) == 4) + said["host"]["bytes"]
        # A rank was seen to hold gradients still that it had let go of at all other times.
        for _ in range(3):
            wrong = dsrank.fork_ranks(world, trained(case, config, out))
            if wrong:
                break
            with open(out) as f:
                seen = json.load(f)
            if seen["rest"] - always <= 512:
                break
        if wrong:
            judge(f"live {case}", False, wrong)
            continue
        judge(f"live {case} between steps", 0 <= seen["rest"] - always <= 512,
              f"{seen['rest']} bytes live, plan says {always}")
        fp32 = [t["bytes"] for t in terms if "fp32" in t["name"]]
        if fp32 and not offload:
            more = seen["step"] - seen["rest"]
            judge(f"live {case} in the step", fp32[0] - 1024 <= more <= fp32[0] + sum(
                t["bytes"] for t in terms if "step" in t["phases"]) - fp32[0] + 1024,
                f"{more} bytes more, of them {fp32[0]} gradients in fp32")
        gathered = [t["bytes"] for t in terms if t["name"] == "gathered parameters"]
        if gathered and accumulation == 1:
            more = seen["loss"] - seen["rest"]
            judge(f"live {case} at the loss", gathered[0] <= more <= gathered[0] + 400000,
                  f"{more} bytes more, of them {gathered[0]} parameters")


def main():
    work = sys.argv[1]
    os.makedirs(work, exist_ok=True)
    estimators()
    live(work)
    architectures(work)
    towers(work)
    activations(work)
    adapters(work)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
