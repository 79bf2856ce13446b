"""Values of a step that are not tensors of the model: counters, the scheduler, hyper-parameters,
what the client saved.

    >>> with zckpt.open(RUN) as ck, ck.extra() as values:
    ...     values["param_groups.0.betas"], values["global_steps"]
    ([0.9, 0.999], 3)

No object is made and nothing is called: what a pickle builds by a call is an Opaque with its name.
"""
from __future__ import annotations

import ctypes
from ctypes import byref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, Tuple

from . import _abi as abi
from . import _dtypes as dtypes
from ._native import call, encode, lib, text
from .errors import Error, UsageError

if TYPE_CHECKING:
    from .checkpoint import Checkpoint


@dataclass(frozen=True)
class Opaque:
    """A class, a function, or what a call of it would give: ``name`` is "module.name"."""

    name: str


@dataclass(frozen=True)
class SmallTensor:
    """A tensor beside the model's; ``data`` is None if it has more than 1 MiB."""

    dtype: str
    shape: Tuple[int, ...]
    data: Optional[bytes]


class Values:
    """The values of one rank; ``values[path]`` gives them as dicts, lists, numbers and strings.

    A path is keys and numbers joined by dots; docs of ckpt_value.h list its roots: param_groups,
    loss_scaler, optimizer, model.  "" is everything that the rank's model file holds.
    """

    def __init__(self, checkpoint: "Checkpoint", rank: int = 0):
        self._checkpoint = checkpoint       # must outlive this
        handle = ctypes.c_void_p()
        call("ckpt_values_open", checkpoint._handle, rank, 0, byref(handle),
             findings=lambda: checkpoint.errors)
        self._open: Optional[ctypes.c_void_p] = handle

    def close(self) -> None:
        if self._open is not None:
            lib().ckpt_values_close(self._open)
            self._open = None

    def __enter__(self) -> "Values":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_open", None) is not None and self._checkpoint._open is not None:
            self.close()

    def __getitem__(self, path: str) -> Any:
        raw = abi.ckpt_value()
        if self._open is None or self._checkpoint._open is None:
            raise UsageError("the values are closed", "USAGE")
        call("ckpt_value_get", self._open, encode(path), byref(raw))
        return self._value(path, raw)

    def get(self, path: str, default: Any = None) -> Any:
        """The value, or ``default`` if the step has none at this path."""
        try:
            return self[path]
        except Error as why:
            if why.code in ("NOTFOUND", "USAGE"):
                return default
            raise

    def _items(self, path: str, n: int) -> Any:
        step = ctypes.c_char_p()
        for item in range(n):
            call("ckpt_value_step", self._open, encode(path), item, byref(step))
            yield text(step.value), self[f"{path}.{text(step.value)}" if path else text(step.value)]

    def _value(self, path: str, raw: Any) -> Any:
        kind = raw.kind
        if kind == abi.CKPT_VALUE_NONE:
            return None
        if kind in (abi.CKPT_VALUE_BOOL, abi.CKPT_VALUE_INT):
            return bool(raw.i) if kind == abi.CKPT_VALUE_BOOL else raw.i
        if kind == abi.CKPT_VALUE_FLOAT:
            return raw.f
        if kind == abi.CKPT_VALUE_LIST:
            return [value for _, value in self._items(path, raw.n)]
        if kind == abi.CKPT_VALUE_DICT:
            return {_plain(key): value for key, value in self._items(path, raw.n)}
        data = ctypes.string_at(raw.bytes, raw.n) if raw.bytes else None
        if kind == abi.CKPT_VALUE_BIGINT:
            return int.from_bytes(data or b"", "little", signed=True)
        if kind == abi.CKPT_VALUE_STRING:
            return text(data)
        if kind == abi.CKPT_VALUE_BYTES:
            return data or b""
        if kind == abi.CKPT_VALUE_TENSOR:
            return _tensor(raw)
        return Opaque(text(data))


def _tensor(raw: Any) -> SmallTensor:
    dtype = dtypes.by_number(raw.dtype)
    data = ctypes.string_at(raw.bytes, dtype.nbytes(raw.numel)) if raw.bytes else None
    return SmallTensor(dtype.name, tuple(raw.shape[i] for i in range(raw.ndim)), data)


def _plain(step: str) -> str:
    """A key without the backslashes of a path."""
    out, escaped = [], False
    for c in step:
        if c == "\\" and not escaped:
            escaped = True
            continue
        out.append(c)
        escaped = False
    return "".join(out)
