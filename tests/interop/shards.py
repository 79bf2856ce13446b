"""A second reader of DeepSpeed folders, on torch.load: the check on the generated truth.

Written from the layout formulas alone (parameters in the order of param_shapes, stage 1 and 2
flat and cut in equal parts, stage 3 cut per parameter), so that a mistake in gathering the
live state does not become the truth that zckpt is judged by. Only for files made here: it
unpickles them.
"""
import glob
import math
import os
import re

import torch


def _load(path):
    return torch.load(path, map_location="cpu", weights_only=False)


def _numbered(pattern):
    rank = lambda p: int(re.search(r"zero_pp_rank_(\d+)_", p).group(1))
    return sorted(glob.glob(pattern), key=rank)


def _take(out, name, state, flat, at, shape):
    n = math.prod(shape)
    out["%s|%s" % (name, state)] = flat[at:at + n].reshape(tuple(shape)).clone()
    return at + n


def _flat_stage(zeros, shapes, out):
    """Stages 1 and 2 and BF16_Optimizer: join the ranks, then walk the group."""
    world = len(zeros)
    for g, group in enumerate(shapes):
        sizes = [math.prod(s) for s in group.values()]
        gaps = zeros[0].get("param_alignment_paddings", [[0] * len(sizes)] * len(shapes))[g]
        total = sum(sizes) + sum(gaps)
        part = 2 * math.ceil(total / (2 * world))
        parts = {"master": [z["single_partition_of_fp32_groups"][g] for z in zeros]}
        for z in zeros:
            base = z["base_optimizer_state"]
            state = base["state"].get(g, {}) if isinstance(base, dict) else base[g]
            for k, v in state.items():
                if torch.is_tensor(v) and v.dim() == 1 and k != "step":
                    parts.setdefault(k, []).append(v)
        for k, pieces in parts.items():
            assert len(pieces) == world, (k, len(pieces), world)
            for r, p in enumerate(pieces):
                lean = min(max(total - r * part, 0), part)
                assert p.numel() in (lean, part), (k, r, p.numel(), lean, part)
            flat, at = torch.cat([p.detach() for p in pieces]), 0
            for (name, shape), gap in zip(group.items(), gaps):
                at = _take(out, name, k, flat, at, shape) + gap


def _stage3(zeros, shapes, out):
    """Stage 3: each parameter is cut alone; piece r follows piece r of the one before."""
    world = len(zeros)
    groups = zeros[0]["optimizer_state_dict"]["param_groups"]
    number = [i for g in groups for i in g["params"]] or list(range(len(shapes)))
    for i, group in enumerate(shapes):
        parts = {"master": [z["fp32_flat_groups"][i] for z in zeros]}
        for z in zeros:
            for k, v in z["optimizer_state_dict"]["state"].get(number[i], {}).items():
                if torch.is_tensor(v) and v.dim() == 1 and k != "step":
                    parts.setdefault(k, []).append(v)
        for k, pieces in parts.items():
            assert len(pieces) == world, (k, len(pieces), world)
            at = 0
            for name, shape in group.items():
                n = math.ceil(math.prod(shape) / world)
                whole = torch.cat([p.detach()[at:at + n] for p in pieces])
                _take(out, name, k, whole, 0, shape)
                at += n
            assert all(p.numel() == at for p in pieces), (k, at)


def read(folder, tag):
    """{"NAME|state": tensor} of what the files hold; names of aliases are left out."""
    step = os.path.join(folder, tag)
    models = _numbered(os.path.join(step, "zero_pp_rank_*_model_states.pt")) or \
        [os.path.join(step, "mp_rank_00_model_states.pt")]
    first, out = _load(models[0]), {}
    buffers, seen = set(first["buffer_names"]), set()
    whole = os.path.basename(models[0]).startswith("mp_rank")
    for name, t in first["module"].items():
        if name in buffers:
            out[name + "|buffer"] = t
        elif whole and (t.numel() == 0 or t.data_ptr() not in seen):
            seen.add(t.data_ptr())          # a tied weight is saved as the same storage
            out[name + "|weight"] = t.detach()
    shards = _numbered(os.path.join(step, "*zero_pp_rank_*_optim_states.pt"))
    if not shards:
        return out
    zeros = [_load(p)["optimizer_state_dict"] for p in shards]
    if "fp32_flat_groups" not in zeros[0]:
        _flat_stage(zeros, first["param_shapes"], out)
        return out
    _stage3(zeros, first["param_shapes"], out)
    fragments = [_load(p)["frozen_param_fragments"] or {} for p in models]
    for name, shape in (first["frozen_param_shapes"] or {}).items():
        whole = torch.cat([f[name] for f in fragments])
        _take(out, name, "weight", whole, 0, shape)
    return out


def differences(case, truth, found):
    """Sentences on where the files and the truth part; empty when they agree."""
    said = []
    lost = set(case["not_in_checkpoint"])
    stage3 = case["stage"] == 3
    trained = {k.rsplit("|", 1)[0] for k in truth if k.endswith("|master")}
    for key, t in truth.items():
        name, state = key.rsplit("|", 1)
        if key in lost:
            continue
        if case["stage"] == 0 and state not in ("weight", "buffer"):
            continue                    # stage 0 stores no names for these
        if stage3 and state == "weight" and name in trained:
            continue                    # stage 3 stores placeholders
        if key not in found:
            said.append("%s is not in the files" % key)
        elif found[key].dtype != t.dtype or found[key].shape != t.shape:
            said.append("%s: %s %s in the files, %s %s live" % (
                key, found[key].dtype, tuple(found[key].shape), t.dtype, tuple(t.shape)))
        elif not same_bits(found[key], t):
            said.append("%s: other bits" % key)
    said += ["%s only in the files" % k for k in found if k not in truth]
    return said


def same_bits(a, b):
    """Equal dtype, shape and bytes (NaN and the sign of zero included)."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    a, b = a.detach().contiguous().view(-1), b.detach().contiguous().view(-1)
    return a.numel() == 0 or torch.equal(a.view(torch.uint8), b.view(torch.uint8))
