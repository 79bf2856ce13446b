"""Does stock DeepSpeed resume what `zckpt reshard` writes of expert, tensor and pipeline parallel
steps?

    parallel_resume.py --zckpt PROGRAM --fixtures DIR [--only TEXT]

A case of DIR/parallel is a step that real DeepSpeed wrote, and truth.safetensors what lived in the
run. `zckpt reshard` writes it for another layout, a new engine of the same model (with other values)
loads it, and every weight, master and moment of every rank must have the bits of its part of the
truth. Then two steps: their losses are compared with those that the run had after it saved.
`--to universal` folders are loaded with `load_universal` at other tensor and pipeline sizes.

The last line is `N passed, N failed, N skipped`.
"""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import dsrank
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file

import parallel_models

STEPS = 2
FOUR_HEADS = "autotp-four-kv-heads"     # save_four_heads() makes it
TOLERANCE = 2e-3        # sums in another order, rounded to 16 bits
LIMIT = 100             # seconds for one combination
P = "ds0.19.8-"


# ------------------------------------------------------------------ what is tried
def job(case, args, tp=1, pp=1, ep=0, dp=1, train=True):
    """args: of zckpt reshard; None: the fixture as it is."""
    return {"case": P + case, "args": args, "tp": tp, "pp": pp, "ep": ep, "dp": dp, "train": train,
            "universal": args is not None and "universal" in args}


UNIVERSAL = ("--to", "universal")
RULES = {"tp_replicated_parameter_patterns":
         [".*norm.*", ".*position_embeddings.*", ".*dense\\.bias", ".*h\\.bias"],
         "parameter_with_row_parallelism_patterns": [".*dense\\.weight", ".*4h_to_h\\.weight"],
         "parameter_with_2_sub_params_cat_dim_0": [".*h_to_4h\\.weight"]}
RULED = ("--tp-rules", "RULES")


def world(n, *args):
    return args + ("--world", str(n))


def jobs():
    """Those of one case as it is show that the model here is the fixture's: the same losses."""
    out = [job("moe-z2-bf16-w4-ep2", None, ep=2, dp=4),
           job("moe-z2-bf16-w4-ep2", world(4, "--ep", "4"), ep=4, dp=4),
           job("moe-z2-bf16-w4-ep2", world(2, "--ep", "1"), ep=1, dp=2),
           job("moe-z2-bf16-w4-ep2", world(2), ep=2, dp=2),
           job("moe-z1-bf16-w4-ep4", world(4, "--ep", "2"), ep=2, dp=4),
           job("moe-z2-bf16-w2-ep1", world(4, "--ep", "2"), ep=2, dp=4),
           job("moe-z1-bf16-w2-ep2-residual", world(2, "--ep", "1"), ep=1, dp=2),
           job("moe-z2-bf16-w4-dbe", world(4, "--ep", "4"), ep=4, dp=4),
           job("moe-z2-bf16-w4-pyramid", world(8), ep=0, dp=8),
           job("moe-z2-fp16-w2-ep2", world(4, "--ep", "1"), ep=1, dp=4),
           job("autoep-z1-bf16-w4-qwen3moe", world(4, "--ep", "4"), ep=4, dp=4),
           job("autoep-z2-bf16-w2-mixtral", world(2, "--ep", "1"), ep=1, dp=2),
           job("autotp-z2-bf16-w4-qwen2", world(2), tp=2, dp=1),
           job("autotp-z2-bf16-w4-qwen2", UNIVERSAL, tp=1, dp=2),
           job("autotp-z2-bf16-w4-qwen2", world(2, "--tp", "1"), dp=2),
           job("autotp-z1-bf16-w4-llama", UNIVERSAL, tp=1, dp=2),
           job(FOUR_HEADS, UNIVERSAL, tp=4),
           # two KV heads: two of four tensor ranks have no attention, and torch divides by zero
           job("autotp-z1-bf16-w4-llama", UNIVERSAL, tp=4, train=False)]
    out += [job("megtp-z1-bf16-w4-uci", world(2), tp=2, dp=1),
            job("megtp-z2-fp16-w2", world(4, *RULED), tp=2, dp=2)]
    # the first of each at its own sizes: see run_all()
    out += [job(case, UNIVERSAL + more, tp=tp, dp=2)
            for case, more in (("megtp-z1-bf16-w4-uci", ()), ("megtp-z2-fp16-w2", RULED))
            for tp in (2, 1, 4)]
    out += [job("pipe-z1-bf16-w4-tied", None, pp=2, dp=2),
            job("pipe-z1-bf16-w4-tied", world(2), pp=2, dp=1),
            job("pipe-z1-bf16-w4-bf16opt", world(8), pp=2, dp=4),
            job("pipe-z1-bf16-w3-pp3", world(6), pp=3, dp=2),
            job("pipe-z1-bf16-w8-tp2-tied", world(4), tp=2, pp=2, dp=1)]
    out += [job(case, UNIVERSAL, pp=pp, dp=dp)
            for case in ("pipe-z1-bf16-w4-bf16opt", "pipe-z1-bf16-w3-pp3")
            for pp, dp in ((1, 2), (2, 2), (3, 1), (4, 1))]
    out += [job("pipe-z1-bf16-w4-tied", UNIVERSAL, pp=1, dp=2),
            job("pipe-z1-bf16-w4-tied", UNIVERSAL, pp=2, dp=2)]
    out += [job("pipe-z1-bf16-w8-tp2-tied", UNIVERSAL, tp=tp, pp=pp, dp=dp) for tp, pp, dp in
            ((2, 2, 1), (2, 1, 2), (1, 2, 2), (1, 1, 1), (4, 2, 1), (4, 1, 1), (2, 3, 1))]
    # a last stage of nothing but the tied layer: DeepSpeed hangs in training, loaded step or not
    out += [job("pipe-z1-bf16-w4-tied", UNIVERSAL, pp=3, train=False),
            job("pipe-z1-bf16-w8-tp2-tied", UNIVERSAL, tp=2, pp=4, train=False)]
    return out


# ------------------------------------------------------------------ the live engine against the truth
def flats_of(engine):
    """(16-bit buffer, its parameters, this rank's part of the masters, the data ranks) of each group."""
    o = engine.optimizer
    if hasattr(o, "bf16_groups"):
        rows = zip(o.bf16_groups_flat, o.bf16_groups, o.fp32_groups_flat_partition)
    else:
        rows = zip(o.bit16_groups_flat, o.bit16_groups, o.single_partition_of_fp32_groups)
    return [row + (o.real_dp_process_group[g],) for g, row in enumerate(rows)]


def live(engine):
    """(name, parameter, state, tensor) of what this rank trains, its data ranks joined."""
    names = {id(p): n for n, p in engine.module.named_parameters()}
    base = engine.optimizer.optimizer
    out = [(n, p, "weight", p.data) for n, p in engine.module.named_parameters()]
    for low, params, flat, ranks in flats_of(engine):
        states = {"master": flat.data}
        states.update({k: v for k, v in base.state[flat].items()
                       if torch.is_tensor(v) and v.shape == flat.shape})
        for what, v in states.items():
            full = dsrank.cat_ranks(v, ranks)
            for p in params:
                at = (p.data.data_ptr() - low.data_ptr()) // low.element_size()
                out.append((names[id(p)], p, what, full[at:at + p.numel()].reshape(p.shape)))
    return out


def global_name(name, param, names):
    """Native experts have numbers of their rank: the one in the whole model."""
    found = re.match(r"(.*deepspeed_experts\.)(\d+)(\..*)", name)
    if not found:
        return name
    from deepspeed.utils import groups
    head, number, tail = found.groups()
    own = {n[len(head):].split(".")[0] for n in names if n.startswith(head)}
    rank = groups._get_expert_parallel_rank(param.group_name)
    return "%s%d%s" % (head, rank * len(own) + int(number), tail)


def part(whole, name, param, engine, facts, j):
    """This rank's part of a tensor of the whole model."""
    if not getattr(param, "allreduce", True) and "deepspeed_experts" not in name:
        from deepspeed.utils import groups
        return whole.chunk(j["ep"], 0)[groups._get_expert_parallel_rank(param.group_name)]
    cut = facts["merged"].get(name)
    if not cut or j["tp"] == 1:
        return whole
    axis, parts = (int(n) for n in (re.findall(r"\d+", cut) + ["1"])[:2])
    if ".self_attn." in name:       # AutoTP gives each rank whole KV heads
        heads = facts["spec"]["model"]["kv"]
        sizes = [(heads // j["tp"] + (t < heads % j["tp"])) * whole.shape[axis] // heads
                 for t in range(j["tp"])]
        return whole.split(sizes, axis)[engine.tp_rank]
    return torch.cat([p.chunk(j["tp"], axis)[engine.tp_rank] for p in whole.chunk(parts, axis)], axis)


def unpadded(j, facts):
    """Whether the folder has no rows that pad the vocabulary: DeepSpeed's loader fills in zeros."""
    return bool(j["universal"] and facts["spec"].get("uci"))


def check(engine, facts, truth, j):
    """(equal, names that this rank has, sentences)"""
    equal, seen, said = 0, set(), []
    names = [n for n, _ in engine.module.named_parameters()]
    drift = () if j["universal"] else facts["truth"]["replicas_differ"]
    vocab = facts["spec"]["model"]["vocab"]
    for name, p, what, got in live(engine):
        name = global_name(name, p, names)
        key = name + "|" + what
        seen.add(key)
        if key not in truth:
            said.append("%s came from nowhere" % key)
            continue
        if engine.pp_rank and key in drift:         # a copy of its own on a later stage
            continue
        whole = truth[key]
        if unpadded(j, facts) and name.endswith("word_embeddings.weight"):
            whole = whole.clone()
            whole[vocab:] = 0
        want = part(whole, name, p, engine, facts, j)
        if want.dtype == got.dtype and want.shape == got.shape and torch.equal(want, got):
            equal += 1
        else:
            said.append("%s: %s %s, want %s %s%s" % (
                key, got.dtype, list(got.shape), want.dtype, list(want.shape),
                "" if want.shape != got.shape else ", %d elements differ" % (want != got).sum()))
    return equal, seen, said


def resume(j, rank, world):
    """One combination, on every rank. Returns what rank 0 reports."""
    with open(os.path.join(j["fixture"], "case.json")) as f:
        facts = json.load(f)
    truth = load_file(os.path.join(j["fixture"], "truth.safetensors"))
    engine = parallel_models.build(j, facts, rank)
    path, _ = engine.load_checkpoint(j["folder"])
    if path is None:
        raise RuntimeError("load_checkpoint found nothing in the folder")
    equal, seen, said = check(engine, facts, truth, j)
    steps = {float(s["step"]) for s in engine.optimizer.optimizer.state.values() if "step" in s}
    if steps != {float(facts["data_step"])} or engine.global_steps != facts["data_step"]:
        said.append("steps %s, global steps %d, want %d" % (steps, engine.global_steps,
                                                          facts["data_step"]))
    losses = [parallel_models.train_step(engine, facts, facts["data_step"] + i, j)
              for i in range(STEPS if j["train"] else 0)]
    every = [None] * world
    dist.all_gather_object(every, (equal, seen, said))
    missing = set(truth) - set().union(*(e[1] for e in every))
    said = [s for e in every for s in e[2]] + ["%s is missing" % k for k in sorted(missing)]
    return {"losses": losses, "want": facts["next_losses"], "unpadded": unpadded(j, facts),
            "said": said, "equal": sum(e[0] for e in every),
            "wanted": sum(e[0] + len(e[2]) for e in every)}


# ------------------------------------------------------------------ all of it
def prepare(j, args, work):
    """Makes the folder. Returns "" or what zckpt said."""
    made = j["case"] == P + FOUR_HEADS
    if made and not os.path.isdir(os.path.join(work, "parallel")):
        said = save_four_heads(args, work)
        if said:
            return said
    j["fixture"] = os.path.join(work if made else args.fixtures, "parallel", j["case"])
    source = os.path.join(j["fixture"], "ckpt")
    rules = os.path.join(work, "rules.json")
    j["folder"] = source
    if j["args"]:
        j["folder"] = os.path.join(tempfile.mkdtemp(dir=work), "step")
        options = [rules if a == "RULES" else a for a in j["args"]]
        done = subprocess.run([args.zckpt, "reshard", "-q", *options, source, j["folder"]],
                              capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            return "zckpt reshard: exit %d: %s" % (done.returncode, done.stderr.strip()[-400:])
    return ""


def save_four_heads(args, work):
    """A fixture of AutoTP 2 whose model can be divided by four: the fixtures have two KV heads.
    Returns "" or what DeepSpeed said."""
    with open(os.path.join(args.fixtures, "parallel", P + "autotp-z1-bf16-w4-llama", "case.json")) as f:
        facts = json.load(f)
    facts["spec"]["model"]["kv"] = 4
    folder = os.path.join(work, "parallel", P + FOUR_HEADS)
    os.makedirs(folder)

    def train(rank, size):
        j = job(FOUR_HEADS, None, tp=2)
        engine = parallel_models.build(j, facts, rank)
        for step in range(facts["data_step"]):
            parallel_models.train_step(engine, facts, step, j)
        engine.save_checkpoint(os.path.join(folder, "ckpt"))
        every = [None] * size
        dist.all_gather_object(every, {n + "|" + what: t.clone() for n, _, what, t in live(engine)})
        facts["next_losses"] = [parallel_models.train_step(engine, facts, facts["data_step"] + i, j)
                                for i in range(STEPS)]
        if rank:
            return
        truth = {}
        for key, t in every[0].items():
            cut = facts["merged"].get(key.split("|")[0])
            truth[key] = torch.cat([e[key] for e in every], int(cut[-1])) if cut else t
        save_file(truth, os.path.join(folder, "truth.safetensors"))
        with open(os.path.join(folder, "case.json"), "w") as f:
            json.dump(facts, f)
    return dsrank.fork_ranks(2, train)


def title(j):
    args = "as it is" if j["args"] is None else " ".join(j["args"])
    return "%s, %s: %s%s" % (j["case"][len(P):], args, " ".join(
        "%s %d" % (k, j[k]) for k in ("tp", "pp", "ep", "dp") if j[k]),
        "" if j["train"] else ", loaded only")


def run(j, args, work):
    said = prepare(j, args, work)
    if said:
        return {"said": [said]}
    report = os.path.join(work, "report")

    def each(rank, size):
        signal.alarm(LIMIT)
        result = resume(j, rank, size)
        if rank == 0:
            with open(report, "w") as f:
                json.dump(result, f)
    said = dsrank.fork_ranks(j["tp"] * j["pp"] * j["dp"], each)
    if said:
        return {"said": [said.strip()[-1500:]]}
    with open(report) as f:
        return json.load(f)


def compare_losses(j, r, first):
    """Losses of a run with rows of zeros that pad its vocabulary are near those of the fixture's
    run; all such runs of a case have the same. Returns how far off they are, and a sentence."""
    want, tolerance = r["want"][:len(r["losses"])], TOLERANCE
    if r["unpadded"] and j["case"] in first:
        want = first[j["case"]]
    elif r["unpadded"]:
        first[j["case"]], tolerance = r["losses"], 2e-2
    off = max([abs(a - b) / b for a, b in zip(r["losses"], want)], default=0.0)
    return off, [] if off <= tolerance else ["losses %s, want %s" % (r["losses"], want)]


def run_all(chosen, args, work):
    """(passed, failed)"""
    failed, first = 0, {}
    for j in chosen:
        began = time.time()
        r = run(j, args, work)
        losses = "not trained"
        if r.get("losses"):
            off, said = compare_losses(j, r, first)
            losses = "losses off by %.1e" % off
            r["said"] += said
        print("%-6s %s: %d of %d equal, %s (%.1f s)" % (
            "FAILED" if r["said"] else "ok", title(j), r.get("equal", 0), r.get("wanted", 0),
            losses, time.time() - began), flush=True)
        failed += bool(r["said"])
        for s in r["said"][:4]:
            print("       %.1500s" % s)
    return len(chosen) - failed, failed


def main():
    if os.environ.get("PYTHONHASHSEED") != "0":
        # DeepSpeed orders groups of experts on several ranks by a hash; the fixture's order is that of 0
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable] + sys.argv)
    ap = argparse.ArgumentParser()
    ap.add_argument("--zckpt", default=os.environ.get("ZCKPT"))
    ap.add_argument("--fixtures", default=os.environ.get("ZCKPT_FIXTURES"))
    ap.add_argument("--only", action="append", help="part of a combination's name")
    args = ap.parse_args()
    dsrank.prepare()
    chosen = [j for j in jobs() if not args.only or any(o in title(j) for o in args.only)]
    with tempfile.TemporaryDirectory(prefix="zckpt-parallel-") as work:
        with open(os.path.join(work, "rules.json"), "w") as f:
            json.dump(RULES, f)
        passed, failed = run_all(chosen, args, work)
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
