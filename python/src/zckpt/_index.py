"""What an index like ``[2:5, :, -1]`` selects: runs of elements in row-major order."""
from __future__ import annotations

import itertools
import operator
from typing import Any, List, Sequence

from .errors import UsageError


class Selection:
    """``shape`` of the result, and ``nruns`` pieces of ``run`` elements that it consists of.

    An index is what safetensors accepts: numbers, slices with any step, '...', None for a new
    dimension, and one list of numbers.
    """

    def __init__(self, shape: Sequence[int], index: Any):
        items = _full(shape, index)
        self._sizes = list(shape)
        self._dims = [d for d in items if d is not None]
        self.shape = tuple(1 if d is None else len(d) for d in items if not isinstance(d, int))
        self.has_list = any(isinstance(d, list) for d in items)
        self.numel = 1
        for n in self.shape:
            self.numel *= n
        # Dimensions from 'inner' on are whole; the one before it may be a part in one piece.
        inner, self.run, self._start = len(self._dims), 1, 0
        while inner and self._dims[inner - 1] == range(self._sizes[inner - 1]):
            inner -= 1
            self.run *= self._sizes[inner]
        part = self._dims[inner - 1] if inner else None
        if isinstance(part, range) and part.step == 1 and len(part):
            inner -= 1
            self._start = part.start * self.run
            self.run *= len(part)
        self._outer = inner
        self.nruns = self.numel // self.run if self.numel else 0

    def runs(self) -> Any:
        """The first element of each run."""
        if not self.numel:
            return
        strides, stride = [], 1
        for n in reversed(self._sizes):
            strides.append(stride)
            stride *= n
        strides.reverse()
        outer = [[i * s for i in ([d] if isinstance(d, int) else d)]
                 for d, s in zip(self._dims[:self._outer], strides)]
        start = self._start
        for at in itertools.product(*outer):
            yield sum(at) + start

    def text(self) -> str:
        """The index as `zckpt cat` reads it."""
        parts = []
        for d in self._dims:
            if isinstance(d, range):
                stop = d.stop if d.stop >= 0 else ""
                parts.append(f"{d.start}:{stop}:{d.step}" if len(d) else "0:0")
            else:
                parts.append(str(d))
        return ", ".join(parts)


def _full(shape: Sequence[int], index: Any) -> List[Any]:
    """For each dimension a number, a range or a list of numbers from 0; and None as given."""
    items = list(index) if isinstance(index, tuple) else [index]
    dots = [n for n, i in enumerate(items) if i is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    given = sum(1 for i in items if i is not Ellipsis and i is not None)
    if given > len(shape):
        raise IndexError(f"too many indices: the tensor has {len(shape)} dimensions, {given} are indexed")
    at = dots[0] if dots else len(items)
    items[at:at + len(dots)] = [slice(None)] * (len(shape) - given)
    if sum(1 for i in items if isinstance(i, list)) > 1:
        raise UsageError("an index can have one list; read the tensor and index the result", "USAGE")
    sizes = iter(enumerate(shape))
    return [None if i is None else _entry(i, *next(sizes)) for i in items]


def _entry(item: Any, dim: int, size: int) -> Any:
    if isinstance(item, slice):
        return range(size)[item]
    if isinstance(item, list):
        return [_entry(i, dim, size) for i in item]
    try:
        if isinstance(item, bool):
            raise TypeError
        number = operator.index(item)
    except TypeError:
        raise UsageError(f"an index is a number, a slice, '...', None or a list, not {type(item).__name__}; "
                         "read the tensor and index the result", "USAGE") from None
    if not -size <= number < size:
        raise IndexError(f"index {number} is out of bounds for dimension {dim} with size {size}")
    return number + size if number < 0 else number
