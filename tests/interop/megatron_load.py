"""Weights that `zckpt shard --to megatron` wrote, loaded by stock Megatron-Core on CPU ranks.

    megatron_load.py WORK [--zckpt PATH] [--megatron DIR] [--long]

For tiny models with random weights, saved by transformers, each at several tensor, pipeline and
expert parallel sizes (gloo ranks, the layers of Megatron-Core itself):
  1. dist_checkpointing.load() finds every key that the model asks for
  2. every parameter of every rank has the bits that the weights of transformers say, by rules
     that are written down here again
  3. the logits of the model are those of transformers within 1e-4, in fp32
megatron-core is imported from DIR, or from the environment; without it everything is skipped.
"""
import argparse
import contextlib
import os
import subprocess
import sys
import traceback
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch
import torch.distributed as dist

warnings.filterwarnings("ignore")
VOCAB, LENGTH = 101, 12
TOKENS = torch.arange(2 * LENGTH).reshape(2, LENGTH) * 7 % VOCAB
SMALL = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=56, num_hidden_layers=4,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
             rms_norm_eps=1e-5, pad_token_id=0, bos_token_id=1, eos_token_id=2, initializer_range=0.2)
FAMILIES = {
    "llama": dict(head_dim=8),
    "qwen2": {},
    "qwen3": dict(head_dim=16),     # not hidden size / heads
    "mixtral": dict(num_local_experts=4, num_experts_per_tok=2, head_dim=8),
    "qwen3_moe": dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
                      norm_topk_prob=True, head_dim=8, decoder_sparse_step=1, mlp_only_layers=[]),
}
DENSE = [(1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 2, 1)]
MOE = [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 1, 2), (1, 2, 2)]
# family, more of its config, type, --tp, --vocab-divisible, (tp, pp, ep) of those that load
SHORT = [
    ("llama", {}, "fp32", 2, 16, DENSE),
    ("qwen2", {"tie_word_embeddings": True}, "fp32", 4, 8, DENSE),
    ("qwen3", {}, "bf16", 1, 128, DENSE),
    ("mixtral", {}, "fp32", 1, 128, MOE),
    ("qwen3_moe", {}, "fp32", 2, 16, MOE),
    ("qwen3_moe", {"mlp_only_layers": [0, 2]}, "fp32", 1, 128, [(1, 1, 1), (1, 2, 1), (1, 1, 2)]),
]
LONG = SHORT + [(f, {"tie_word_embeddings": True}, t, 2, 64,
                 MOE if f in ("mixtral", "qwen3_moe") else DENSE)
                for f in FAMILIES for t in ("fp32", "bf16")]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


# ---- transformers ----

def make_model(family, extra, dtype, where):
    from transformers import AutoConfig, AutoModelForCausalLM
    config = AutoConfig.for_model(family, **{**SMALL, **FAMILIES[family], **extra})
    torch.manual_seed(7)
    net = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():       # norms and biases that are all one and zero would prove nothing
        for p in net.parameters():
            if p.ndim == 1:
                p.add_(torch.randn(p.shape) * 0.1)
    net.to(DTYPES[dtype]).save_pretrained(where)
    net = AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32,
                                               attn_implementation="eager")
    with torch.no_grad():
        return net.eval()(TOKENS).logits


def weights_of(folder):
    from safetensors import safe_open
    with safe_open(os.path.join(folder, "model.safetensors"), "pt") as f:
        return {k: f.get_tensor(k) for k in f.keys()}


# ---- what a rank must have ----

class Expected:
    """Parameters of one rank, of the weights of transformers."""

    def __init__(self, config, hf, padded, tp, tp_rank, etp, etp_rank, ep, ep_rank, first_layer):
        self.c, self.hf, self.padded = config, hf, padded
        self.tp, self.tp_rank, self.etp, self.etp_rank = tp, tp_rank, etp, etp_rank
        self.ep, self.ep_rank, self.first = ep, ep_rank, first_layer

    def rows(self, w, n, rank):
        return w.chunk(n, 0)[rank]

    def vocabulary(self, w):
        pad = w[-1:].expand(self.padded - w.shape[0], -1)
        return self.rows(torch.cat([w, pad]), self.tp, self.tp_rank)

    def qkv(self, at, kind):
        q, k, v = (self.hf[f"{at}.self_attn.{x}_proj.{kind}"] for x in "qkv")
        groups = self.c.num_key_value_heads
        q, k, v = (x.reshape(groups, -1, *x.shape[1:]) for x in (q, k, v))
        w = torch.cat([q, k, v], 1)
        return self.rows(w.reshape(-1, *w.shape[2:]), self.tp, self.tp_rank)

    def gated(self, gate, up, n, rank):
        return torch.cat([self.rows(self.hf[gate], n, rank), self.rows(self.hf[up], n, rank)])

    def expert(self, at, name):
        number, what = name.split(".")[:2]
        e = int(number) + self.ep_rank * (self.experts() // self.ep)
        mixtral = self.c.model_type == "mixtral"
        at = f"{at}.block_sparse_moe.experts.{e}" if mixtral else f"{at}.mlp.experts.{e}"
        gate, up, down = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
        if what == "linear_fc1":
            return self.gated(f"{at}.{gate}.weight", f"{at}.{up}.weight", self.etp, self.etp_rank)
        return self.hf[f"{at}.{down}.weight"].chunk(self.etp, 1)[self.etp_rank]

    def experts(self):
        return getattr(self.c, "num_local_experts", None) or self.c.num_experts

    def layer(self, at, name):
        hf, columns = self.hf, lambda w: w.chunk(self.tp, 1)[self.tp_rank]
        if name.startswith("mlp.experts.local_experts."):
            return self.expert(at, name.removeprefix("mlp.experts.local_experts."))
        if name == "mlp.router.weight":
            return hf.get(f"{at}.block_sparse_moe.gate.weight", hf.get(f"{at}.mlp.gate.weight"))
        return {
            "input_layernorm.weight": lambda: hf[f"{at}.input_layernorm.weight"],
            "pre_mlp_layernorm.weight": lambda: hf[f"{at}.post_attention_layernorm.weight"],
            "self_attention.linear_qkv.weight": lambda: self.qkv(at, "weight"),
            "self_attention.linear_qkv.bias": lambda: self.qkv(at, "bias"),
            "self_attention.q_layernorm.weight": lambda: hf[f"{at}.self_attn.q_norm.weight"],
            "self_attention.k_layernorm.weight": lambda: hf[f"{at}.self_attn.k_norm.weight"],
            "self_attention.linear_proj.weight":
                lambda: columns(hf[f"{at}.self_attn.o_proj.weight"]),
            "mlp.linear_fc1.weight":
                lambda: self.gated(f"{at}.mlp.gate_proj.weight", f"{at}.mlp.up_proj.weight",
                                   self.tp, self.tp_rank),
            "mlp.linear_fc2.weight": lambda: columns(hf[f"{at}.mlp.down_proj.weight"]),
        }[name]()

    def get(self, name):
        if name.startswith("decoder.layers."):
            number, rest = name.removeprefix("decoder.layers.").split(".", 1)
            return self.layer(f"model.layers.{int(number) + self.first}", rest)
        if name == "decoder.final_layernorm.weight":
            return self.hf["model.norm.weight"]
        if name == "embedding.word_embeddings.weight" or "lm_head.weight" not in self.hf:
            return self.vocabulary(self.hf["model.embed_tokens.weight"])
        return self.vocabulary(self.hf["lm_head.weight"])


# ---- Megatron-Core on CPU ----

def prepare():
    """It asks for a GPU in places where it needs none."""
    torch.cuda.current_device = lambda: "cpu"
    torch.Tensor.cuda = lambda self, *a, **k: self
    from megatron.core.tensor_parallel import random

    class Tracker:
        def fork(self, *_):
            return contextlib.nullcontext()

        def get_states(self):
            return {}

    random.get_cuda_rng_tracker = lambda *a, **k: Tracker()
    import megatron.core.tensor_parallel as tp
    from megatron.core.transformer.moe import moe_utils
    if not hasattr(moe_utils, "te_general_gemm"):   # 0.16.1 without TransformerEngine
        moe_utils.te_general_gemm = None
    tp.get_cuda_rng_tracker = random.get_cuda_rng_tracker


def config_of(c, tp, pp, ep, etp):
    from megatron.core.transformer.transformer_config import TransformerConfig
    experts = getattr(c, "num_local_experts", None) or getattr(c, "num_experts", None)
    more = {}
    if experts:
        only = set(getattr(c, "mlp_only_layers", None) or [])
        more = dict(num_moe_experts=experts, moe_router_topk=c.num_experts_per_tok,
                    moe_ffn_hidden_size=getattr(c, "moe_intermediate_size", c.intermediate_size),
                    moe_token_dispatcher_type="allgather", moe_router_load_balancing_type="none",
                    expert_model_parallel_size=ep, expert_tensor_parallel_size=etp)
        if only:
            more["moe_layer_freq"] = [int(i not in only) for i in range(c.num_hidden_layers)]
    return TransformerConfig(
        num_layers=c.num_hidden_layers, hidden_size=c.hidden_size,
        ffn_hidden_size=c.intermediate_size, num_attention_heads=c.num_attention_heads,
        num_query_groups=c.num_key_value_heads,
        kv_channels=getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads,
        normalization="RMSNorm", layernorm_epsilon=c.rms_norm_eps, gated_linear_unit=True,
        activation_func=torch.nn.functional.silu, add_bias_linear=False,
        add_qkv_bias=c.model_type == "qwen2", qk_layernorm=c.model_type.startswith("qwen3"),
        use_cpu_initialization=True, hidden_dropout=0, attention_dropout=0,
        params_dtype=torch.float32, pipeline_dtype=torch.float32,
        tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp,
        masked_softmax_fusion=False,
        bias_activation_fusion=False, bias_dropout_fusion=False, apply_rope_fusion=False,
        gradient_accumulation_fusion=False, **more)


def build(c, padded, tp, pp, ep, etp):
    from megatron.core import parallel_state as ps
    from megatron.core.models.gpt import GPTModel, gpt_layer_specs as specs
    config = config_of(c, tp, pp, ep, etp)
    if config.num_moe_experts:
        spec = specs.get_gpt_decoder_block_spec(config, use_transformer_engine=False)
    else:
        spec = specs.get_gpt_layer_local_spec(qk_layernorm=config.qk_layernorm,
                                              normalization="RMSNorm")
    base = (getattr(c, "rope_parameters", None) or {}).get("rope_theta") or c.rope_theta
    return GPTModel(config, spec, padded, 64, position_embedding_type="rope",
                    rotary_base=base,
                    share_embeddings_and_output_weights=c.tie_word_embeddings,
                    parallel_output=False, pre_process=ps.is_pipeline_first_stage(),
                    post_process=ps.is_pipeline_last_stage())


def logits_of(net):
    """Through all stages; None but on ranks of the last."""
    from megatron.core import parallel_state as ps
    s, b, h = LENGTH, TOKENS.shape[0], net.config.hidden_size
    if not ps.is_pipeline_first_stage():
        hidden = torch.empty(s, b, h)
        dist.recv(hidden, ps.get_pipeline_model_parallel_prev_rank())
        net.set_input_tensor(hidden)
    mask = torch.triu(torch.ones(1, 1, LENGTH, LENGTH), 1).bool()
    with torch.no_grad():
        out = net(TOKENS, torch.arange(LENGTH)[None].expand(b, -1), mask)
    if ps.is_pipeline_last_stage():
        return out
    dist.send(out.contiguous(), ps.get_pipeline_model_parallel_next_rank())
    return None


def check_rank(rank, case, port):
    (tp, pp, ep), folder, hf_folder, padded, logits = case
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank),
                      WORLD_SIZE=str(world_of(tp, pp, ep)), OMP_NUM_THREADS="1")
    dist.init_process_group("gloo")
    prepare()
    from megatron.core import dist_checkpointing, parallel_state as ps
    from transformers import AutoConfig
    c = AutoConfig.from_pretrained(hf_folder)
    etp = 1 if ep > 1 else tp
    ps.initialize_model_parallel(tp, pp, expert_model_parallel_size=ep,
                                 expert_tensor_parallel_size=etp)
    net = build(c, padded, tp, pp, ep, etp).eval()
    with torch.no_grad():
        for p in net.parameters():
            p.fill_(float("nan"))
    loaded = dist_checkpointing.load({"model": net.sharded_state_dict()}, folder)
    net.load_state_dict(loaded["model"])
    first = ps.get_pipeline_model_parallel_rank() * (c.num_hidden_layers // pp)
    want = Expected(c, weights_of(hf_folder), padded, tp, ps.get_tensor_model_parallel_rank(),
                    etp, ps.get_expert_tensor_parallel_rank(), ep,
                    ps.get_expert_model_parallel_rank(), first)
    different = [n for n, p in net.named_parameters()
                 if not torch.equal(p, want.get(n).to(p.dtype))]
    compared = sum(1 for _ in net.named_parameters())
    args = loaded["args"]
    if args.padded_vocab_size != padded or args.num_layers != c.num_hidden_layers or not args.no_save_optim:
        different.append("args")
    out = logits_of(net)
    far = 0.0 if out is None else (out[..., :c.vocab_size] - logits).abs().max().item()
    return compared, different, far


def world_of(tp, pp, ep):
    return max(tp, ep) * pp


def rank_main(rank, case, port, results):
    try:
        results.put((rank, check_rank(rank, case, port), None))
    except BaseException:
        results.put((rank, None, traceback.format_exc()))
    os._exit(0)


def run_ranks(case, port):
    """The number of tensors, those that differ, the largest difference of logits; or a text."""
    import torch.multiprocessing as mp
    context = mp.get_context("fork")
    results = context.SimpleQueue()
    ranks = [context.Process(target=rank_main, args=(r, case, port, results))
             for r in range(world_of(*case[0]))]
    for p in ranks:
        p.start()
    got = [results.get() for _ in ranks]
    for p in ranks:
        p.join()
    texts = [t for _, _, t in got if t]
    if texts:
        return texts[0]
    return (sum(g[1][0] for g in got), sorted({n for g in got for n in g[1][1]}),
            max(g[1][2] for g in got))


# ---- cases ----

def check_case(number, family, extra, dtype, tp, divisor, sizes, args):
    """How many sizes loaded it as they must, and how many did not."""
    name = f"{family}-{dtype}-tp{tp}-div{divisor}" + "".join(f"-{k}" for k in extra)
    work = os.path.join(args.work, f"{number:02d}-{name}")
    logits = make_model(family, extra, dtype, work + "/hf")
    subprocess.run([args.zckpt, "shard", "-q", "--to", "megatron", "--tp", str(tp),
                    "--vocab-divisible", str(divisor), work + "/hf", work + "/mg"], check=True)
    with open(work + "/mg/latest_checkpointed_iteration.txt") as f:
        assert f.read() == "release"
    padded = -(-VOCAB // (divisor * tp)) * divisor * tp
    passed = failed = 0
    for k, size in enumerate(sizes):
        assert padded % size[0] == 0
        result = run_ranks((size, work + "/mg/release", work + "/hf", padded, logits),
                           29700 + number * 16 + k)
        label = f"{name} read at tp {size[0]} pp {size[1]} ep {size[2]}"
        if isinstance(result, str):
            print(f"not ok {label}: {result}", flush=True)
            failed += 1
            continue
        compared, different, far = result
        ok = not different and far < 1e-4
        passed, failed = passed + ok, failed + (not ok)
        print(f"{'ok    ' if ok else 'not ok'} {label}: {compared} tensors of all ranks, "
              f"{len(different)} differ {different[:4] if different else ''}, logits within "
              f"{far:.1e}", flush=True)
    return passed, failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("work")
    parser.add_argument("--zckpt", default=os.environ.get("ZCKPT", "build/zckpt"))
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--megatron")
    args = parser.parse_args()
    if args.megatron:
        sys.path.append(args.megatron)
    try:
        import megatron.core
        from megatron.core import dist_checkpointing
        from megatron.core.models.gpt import gpt_layer_specs
    except ImportError as error:
        print(f"skipped: megatron-core cannot be imported ({error})")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    print(f"Megatron-Core {megatron.core.__version__}, torch {torch.__version__}")
    torch.set_num_threads(1)
    passed = failed = 0
    for number, case in enumerate(LONG if args.long else SHORT):
        if args.only in case[0]:
            good, bad = check_case(number, *case, args)
            passed, failed = passed + good, failed + bad
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
