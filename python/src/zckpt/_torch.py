"""How a torch model and its optimizer are described: tensors, groups, and what a rank holds.

A rank's part of a parameter is a box of the whole tensor: all of it, the local shard of a DTensor
(FSDP2, tensor parallel), or, where every rank holds everything, an equal share.
"""
from __future__ import annotations

from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ._index import Selection
from .errors import UnsupportedError


class Part(NamedTuple):
    """Elements ``runs`` of the whole tensor, which are consecutive in ``local``, contiguous."""

    local: Any
    runs: List[Tuple[int, int]]     # (first element, count)


class Described(NamedTuple):
    """A tensor of the model, in the order of its state dict."""

    name: str
    value: Any
    kind: str                       # "trainable", "frozen", "buffer", "alias"
    group: int                      # of the optimizer, -1 = none
    alias_of: Optional[str]


def is_dtensor(value: Any) -> bool:
    return hasattr(value, "placements") and hasattr(value, "device_mesh") and hasattr(value, "to_local")


def box(value: Any) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    """Shape and offset of a DTensor's local shard in the whole tensor."""
    import importlib

    try:
        utils = importlib.import_module("torch.distributed.tensor._utils")
    except ImportError:                             # before torch 2.5
        utils = importlib.import_module("torch.distributed._tensor._utils")
    for placement in value.placements:
        name = type(placement).__name__
        if name not in ("Shard", "Replicate"):
            raise UnsupportedError(f"a DTensor with the placement {name}; Shard and Replicate are supported",
                                   "UNSUPPORTED")
    shape, offset = utils.compute_local_shape_and_global_offset(value.shape, value.device_mesh, value.placements)
    return tuple(shape), tuple(offset)


def held(value: Any) -> Part:
    """What this rank holds: for loading."""
    if not is_dtensor(value):
        return Part(value, [(0, value.numel())] if value.numel() else [])
    shape, offset = box(value)
    chosen = Selection(tuple(value.shape), tuple(slice(o, o + n) for o, n in zip(offset, shape)))
    return Part(value.to_local(), [(first, chosen.run) for first in chosen.runs()])


def owned(value: Any, rank: int, world: int) -> Part:
    """What this rank saves, so that all ranks together save each element once."""
    if not is_dtensor(value):
        total = value.numel()
        first, last = total * rank // world, total * (rank + 1) // world
        flat = value.detach().reshape(-1)[first:last]
        return Part(flat, [(first, last - first)] if last > first else [])
    mesh = value.device_mesh
    for dim, placement in enumerate(value.placements):
        if placement.is_replicate() and mesh.get_local_rank(dim):
            return Part(value.to_local().detach().reshape(-1)[:0], [])
    part = held(value)
    return Part(part.local.detach().reshape(-1), part.runs)


def describe(model: Any, optimizer: Any) -> List[Described]:
    """All tensors of the state dict; within a group they are in the optimizer's order."""
    groups = {id(p): g for g, group in enumerate(optimizer.param_groups) for p in group["params"]}
    first: Dict[int, str] = {}
    out = []
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name, value in model.state_dict(keep_vars=True).items():
        if not hasattr(value, "numel"):
            continue                                # get_extra_state()
        if name not in parameters:
            out.append(Described(name, value, "buffer", -1, None))
        elif id(value) in first:
            out.append(Described(name, value, "alias", -1, first[id(value)]))
        else:
            first[id(value)] = name
            group = groups.get(id(value), -1)
            out.append(Described(name, value, "trainable" if group >= 0 else "frozen", group, None))
    return list(_ordered(out, optimizer))


def _ordered(tensors: List[Described], optimizer: Any) -> Iterator[Described]:
    by_id = {id(t.value): t for t in tensors if t.kind == "trainable"}
    queues = [iter([by_id[id(p)] for p in group["params"] if id(p) in by_id]) for group in optimizer.param_groups]
    for tensor in tensors:
        yield tensor if tensor.kind != "trainable" else next(queues[tensor.group])


def state_names(optimizer: Any) -> List[str]:
    """Names of the states that have the shape of their parameter, such as "exp_avg"."""
    names: Dict[str, None] = {}
    for group in optimizer.param_groups:
        for p in group["params"]:
            for key, value in optimizer.state.get(p, {}).items():
                if hasattr(value, "shape") and value.shape == p.shape and (value.ndim or key != "step"):
                    names[key] = None
    return list(names)


def step_of(optimizer: Any, group: Dict[str, Any]) -> int:
    for p in group["params"]:
        step = optimizer.state.get(p, {}).get("step")
        if step is not None:
            return int(step)
    return int(group.get("step", 0))
