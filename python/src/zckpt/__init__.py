"""zckpt: sharded training checkpoints, read and converted without unpickling anything.

    zckpt.open(path)                 tensors by name, their states, findings
    zckpt.safe_open(path, "pt")      the calls of safetensors, on any checkpoint
    zckpt.convert(src, dst)          weights as safetensors or .pt; to="peft": a LoRA adapter
    zckpt.merge_lora(base, adapter, dst)  a model with an adapter merged
    zckpt.reshard(src, dst, world)   training state for another number of ranks
    zckpt.verify, diff, digest, shard, plan, steps
    zckpt.Saver                      saves from a training loop
    zckpt.load_into(model, src)      weights into a model, or a rank's part of it

Modules are imported when they are used: ``import zckpt`` costs a few milliseconds.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "checkpoint": ("Checkpoint", "Finding", "State", "Tensor", "open"),
    "safe": ("safe_open",),
    "verbs": ("convert", "diff", "digest", "merge_lora", "plan", "reshard", "shard", "steps", "verify"),
    "saver": ("Saver", "load_into"),
    "values": ("Opaque", "SmallTensor", "Values"),
    "errors": ("BusyError", "CanceledError", "DamagedError", "Error", "ExistsError", "ExpectError",
               "FormatError", "IncompleteError", "LimitError", "NoMemoryError", "NoSpaceError",
               "NotFoundError", "SystemCallError", "UnsafeError", "UnsupportedError", "UsageError"),
}
_MODULE_OF = {name: module for module, names in _WHERE.items() for name in names}
__all__ = sorted(_MODULE_OF)

if TYPE_CHECKING:
    from .checkpoint import Checkpoint, Finding, State, Tensor, open
    from .errors import (BusyError, CanceledError, DamagedError, Error, ExistsError, ExpectError,
                         FormatError, IncompleteError, LimitError, NoMemoryError, NoSpaceError,
                         NotFoundError, SystemCallError, UnsafeError, UnsupportedError, UsageError)
    from .safe import safe_open
    from .saver import Saver, load_into
    from .values import Opaque, SmallTensor, Values
    from .verbs import convert, diff, digest, merge_lora, plan, reshard, shard, steps, verify


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return importlib.import_module("." + name, __name__)
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'zckpt' has no attribute {name!r}")
    value = getattr(importlib.import_module("." + _MODULE_OF[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE_OF])
