"""Element types: the library's numbers, and their names in safetensors, torch and numpy."""
from __future__ import annotations

import functools
from typing import Any, Sequence, Tuple

from . import _abi as abi
from ._native import encode, lib, text
from .errors import UsageError

# torch's name: numpy's type string.  Not in numpy: bfloat16 and the types of 8 bits and fewer.
_NUMPY = {
    "bool": "?", "uint8": "u1", "int8": "i1", "uint16": "<u2", "int16": "<i2", "uint32": "<u4",
    "int32": "<i4", "uint64": "<u8", "int64": "<i8", "float16": "<f2", "float32": "<f4",
    "float64": "<f8", "complex64": "<c8", "complex128": "<c16",
}


class Dtype:
    """An element type.  ``name`` is torch's ("bfloat16"), ``code`` safetensors' ("BF16")."""

    __slots__ = ("number", "code", "name", "bits")

    def __init__(self, number: int):
        self.number = number
        self.code = text(lib().ckpt_dtype_name(number))
        self.name = text(lib().ckpt_dtype_torch_name(number)) or self.code.lower()
        self.bits = lib().ckpt_dtype_bits(number)

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Dtype):
            return self.number == other.number
        return isinstance(other, str) and other in (self.name, self.code)

    def __hash__(self) -> int:
        return hash(self.name)

    def nbytes(self, count: int) -> int:
        """Bytes of 'count' elements."""
        return int(count * self.bits + 7) // 8


@functools.lru_cache(maxsize=None)
def by_number(number: int) -> Dtype:
    return Dtype(number)


@functools.lru_cache(maxsize=None)
def _by_name(name: str) -> Dtype:
    number = lib().ckpt_dtype_parse(encode(name))
    if not number:
        raise UsageError(f"there is no element type {name!r}; "
                         "types are named as in torch or safetensors: float32, bf16, F16", "USAGE")
    return by_number(number)


def parse(what: Any) -> Dtype:
    """Of a Dtype, a name ("bf16", "BF16", "bfloat16"), a torch.dtype or a numpy dtype."""
    if isinstance(what, Dtype):
        return what
    if isinstance(what, str):
        return _by_name(what)
    name = str(getattr(what, "name", what))         # numpy.dtype has a name, torch.dtype a repr
    if isinstance(what, type):
        name = what.__name__                        # numpy.float32, a class
    return _by_name(name[6:] if name.startswith("torch.") else name)


def rule(what: Any) -> int:
    """Of ckpt_convert_opts.dtype: "keep" too."""
    if what is None:
        return 0
    return abi.CKPT_KEEP if what == "keep" else parse(what).number


def to_torch(dtype: Dtype) -> Any:
    import torch

    found = getattr(torch, dtype.name, None)
    if not isinstance(found, torch.dtype):
        raise TypeError(f"this torch ({torch.__version__}) has no type {dtype.name}; "
                        "State.bytes() returns the elements as they are stored")
    return found


def torch_empty(shape: Sequence[int], dtype: Dtype) -> Any:
    """A torch tensor to read into.  Of float4 torch has pairs: half as many in the last dimension."""
    import torch

    if dtype.code == "F4" and hasattr(torch, "float4_e2m1fn_x2") and shape and not shape[-1] % 2:
        return torch.empty((*shape[:-1], shape[-1] // 2), dtype=torch.float4_e2m1fn_x2)
    return torch.empty(tuple(shape), dtype=to_torch(dtype))


def for_numpy(dtype: Dtype) -> Tuple[Dtype, Any]:
    """The type to read as, and numpy's for it: bfloat16 is widened to float32 without ml_dtypes."""
    import numpy

    found = _in_numpy(dtype)
    if found is None and dtype.name == "bfloat16":
        return parse("float32"), numpy.dtype("<f4")
    if found is None:
        raise TypeError(f"numpy has no type {dtype}: install ml_dtypes, or use State.bytes()")
    return dtype, found


def _in_numpy(dtype: Dtype) -> Any:
    import numpy

    if dtype.name in _NUMPY:
        return numpy.dtype(_NUMPY[dtype.name])
    try:
        import ml_dtypes  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    found = getattr(ml_dtypes, dtype.name, None)
    return None if found is None else numpy.dtype(found)
