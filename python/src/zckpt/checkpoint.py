"""An open checkpoint: its tensors by name, their states, and facts about the step.

    >>> import zckpt
    >>> ck = zckpt.open(RUN)
    >>> ck.format, ck.stage, ck.world
    ('deepspeed', 3, 2)
    >>> ck["emb.weight"].shape
    (61, 12)
    >>> row = ck["emb.weight"].state("exp_avg").bytes(0)
    >>> len(row)
    48

Nothing is read before an element is asked for, and a slice reads only its own bytes.
"""
from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Mapping
from ctypes import byref
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from . import _abi as abi
from . import _dtypes as dtypes
from ._dtypes import Dtype
from ._index import Selection
from ._native import Progress, Run, call, encode, lib, sized, strings, text
from .errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from .values import Values

Path = Union[str, "os.PathLike[str]"]

ROLES = {
    abi.CKPT_ROLE_TRAINABLE: "trainable", abi.CKPT_ROLE_FROZEN: "frozen",
    abi.CKPT_ROLE_BUFFER: "buffer", abi.CKPT_ROLE_ALIAS: "alias", abi.CKPT_ROLE_PLAIN: "plain",
    abi.CKPT_ROLE_UNTRAINED: "untrained",
}
SEVERITIES = {abi.CKPT_INFO: "info", abi.CKPT_WARN: "warning", abi.CKPT_ERROR: "error"}
MOST_RUNS = 65536       # pieces of a slice that one load is given; more are streamed
SMALL = 1 << 20         # bytes; a smaller read is not worth a thread


class Finding:
    """Something wrong or odd.  ``zckpt explain ID`` explains each ``id``."""

    __slots__ = ("id", "severity", "where", "text")

    def __init__(self, raw: Any):
        self.id, self.severity = text(raw.id), SEVERITIES[raw.severity]
        self.where, self.text = text(raw.where), text(raw.text)

    def __repr__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"<{self.severity} {self.id}: {place}{self.text}>"


class State:
    """A state of a tensor: its weight, its master, a moment.

    ``state[index]`` gives a numpy array, a torch tensor or bytes, as ``framework`` of open() says.
    """

    def __init__(self, tensor: "Tensor", number: int, raw: Any):
        self.tensor, self._number = tensor, number
        self.name = text(raw.name)
        self.dtype = dtypes.by_number(raw.dtype)
        self.derived = bool(raw.flags & abi.CKPT_STATE_DERIVED)
        self.per_rank = bool(raw.flags & abi.CKPT_STATE_PER_RANK)

    @property
    def shape(self) -> Tuple[int, ...]:
        return self.tensor.shape

    @property
    def numel(self) -> int:
        return self.tensor.numel

    @property
    def nbytes(self) -> int:
        return self.dtype.nbytes(self.numel)

    def __repr__(self) -> str:
        return f"<state {self.name} of {self.tensor.name}: {self.dtype} {list(self.shape)}>"

    def into(self, buffer: Any, first: int = 0, count: Optional[int] = None, dtype: Any = None) -> None:
        """Read elements [first, first + count), row-major, into memory of the caller.

        ``buffer`` is a torch tensor or anything writable with the buffer protocol: a bytearray, a
        numpy array, a memoryview.  It must be contiguous and hold exactly these elements.  Nothing
        is copied: the bytes go from the file to its memory.
        """
        count = self.numel - first if count is None else count
        kind = dtypes.parse(dtype) if dtype is not None else self.dtype
        address, size, keep = _memory(buffer)
        if size != kind.nbytes(count):
            raise UsageError(f"the buffer has {size} bytes, {count} elements of {kind} "
                             f"take {kind.nbytes(count)}", "USAGE")
        self._load([(first, count, address)], kind, size)
        del keep

    def bytes(self, index: Any = Ellipsis, dtype: Any = None) -> bytearray:
        """The selected elements as bytes, little endian and row-major.  Needs no other package."""
        kind = dtypes.parse(dtype) if dtype is not None else self.dtype
        chosen = Selection(self.shape, index)
        out = bytearray(kind.nbytes(chosen.numel))
        self._fill(chosen, kind, out)
        return out

    def numpy(self, index: Any = Ellipsis, dtype: Any = None) -> Any:
        """The selected elements as a numpy array.

        numpy has no bfloat16: with ml_dtypes installed the array has its type, without it the
        elements are widened to float32, which is exact.
        """
        import numpy

        kind, found = dtypes.for_numpy(dtypes.parse(dtype) if dtype is not None else self.dtype)
        chosen = Selection(self.shape, index)
        out = numpy.empty(chosen.shape, found)
        self._fill(chosen, kind, out.reshape(-1).view("u1") if out.size else b"")
        return out

    def torch(self, index: Any = Ellipsis, dtype: Any = None, device: Any = None) -> Any:
        """The selected elements as a torch tensor, on ``device`` if one is given."""
        kind = dtypes.parse(dtype) if dtype is not None else self.dtype
        chosen = Selection(self.shape, index)
        out = dtypes.torch_empty(chosen.shape, kind)
        self._fill(chosen, kind, out)
        return out if device is None else out.to(device)

    def __getitem__(self, index: Any) -> Any:
        framework = self.tensor.checkpoint.framework
        read = {"torch": self.torch, "numpy": self.numpy, "bytes": self.bytes}[framework]
        return read(index)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without dimensions has no len()")
        return self.shape[0]

    def _fill(self, chosen: Selection, kind: Dtype, out: Any) -> None:
        if not chosen.numel:
            return
        address, size, keep = _memory(out)
        if kind.bits < 8 and chosen.numel != self.numel:
            raise UnsupportedError(f"a slice of {kind}, whose elements are smaller than a byte: "
                                   "read the whole state", "UNSUPPORTED", self.tensor.name)
        if chosen.nruns > MOST_RUNS and not chosen.has_list:
            self._stream(chosen, kind, address)
        else:
            step = kind.nbytes(chosen.run)
            self._load([(first, chosen.run, address + k * step) for k, first in enumerate(chosen.runs())],
                       kind, size)
        del keep

    def _load(self, pieces: Sequence[Tuple[int, int, int]], kind: Dtype, size: int) -> None:
        ranges = (abi.ckpt_load_range * len(pieces))()
        name = encode(self.name)
        for slot, (first, count, address) in zip(ranges, pieces):
            slot.tensor, slot.state, slot.dtype = self.tensor._number, name, kind.number
            slot.first, slot.count, slot.dst = first, count, address
        self.tensor.checkpoint._load(ranges, size)

    def _stream(self, chosen: Selection, kind: Dtype, address: int) -> None:
        at = [address]

        @abi.ckpt_bytes_fn  # type: ignore[untyped-decorator,unused-ignore]
        def take(_arg: Any, data: Any, n: int, _err: Any) -> int:
            ctypes.memmove(at[0], data, n)
            at[0] += n
            return 0

        opts = sized(abi.ckpt_cat_opts, state=encode(self.name), slice=encode(chosen.text()),
                     dtype=0 if kind == self.dtype else kind.number, form=abi.CKPT_CAT_RAW)
        with self.tensor.checkpoint._alone() as handle:
            call("ckpt_cat", handle, self.tensor._number, byref(opts), take, None, None)


class Tensor:
    """A tensor of the checkpoint, whole, however many ranks hold parts of it.

    ``tensor[index]``, ``numpy()``, ``torch()`` and ``bytes()`` read its weight; ``state(name)`` is
    any other state.  A second name of a tied tensor gives that tensor's states.
    """

    def __init__(self, checkpoint: "Checkpoint", number: int, raw: Any):
        self.checkpoint, self._number = checkpoint, number
        self.name, self.role = text(raw.name), ROLES[raw.role]
        self.shape: Tuple[int, ...] = tuple(raw.shape[i] for i in range(raw.ndim))
        self.numel: int = raw.numel
        self.group: Optional[int] = None if raw.group < 0 else raw.group
        self.alias_of: Optional[str] = None
        self._nstates = raw.nstates
        if raw.role == abi.CKPT_ROLE_ALIAS:
            target = checkpoint._raw(raw.alias_of)
            self._number, self.alias_of = raw.alias_of, text(target.name)
            self._nstates = target.nstates
            self.shape = tuple(target.shape[i] for i in range(target.ndim))
            self.numel = target.numel

    @property
    def states(self) -> Dict[str, State]:
        """All states by name."""
        out = {}
        for number in range(self._nstates):
            raw = abi.ckpt_state_info()
            call("ckpt_state_get", self.checkpoint._handle, self._number, number, byref(raw))
            out[text(raw.name)] = State(self, number, raw)
        return out

    def state(self, name: str = "weight") -> State:
        """The state of this name: "weight", "master", "exp_avg", "exp_avg_sq", ..."""
        number, raw = ctypes.c_uint32(), abi.ckpt_state_info()
        call("ckpt_state_find", self.checkpoint._handle, self._number, encode(name), byref(number))
        call("ckpt_state_get", self.checkpoint._handle, self._number, number, byref(raw))
        return State(self, number.value, raw)

    @property
    def dtype(self) -> Dtype:
        return self.state().dtype

    def __repr__(self) -> str:
        tied = f", tied to {self.alias_of}" if self.alias_of else ""
        return f"<tensor {self.name}: {self.role} {list(self.shape)}{tied}>"

    def __getitem__(self, index: Any) -> Any:
        return self.state()[index]

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.state().__array__(dtype, copy)

    def __len__(self) -> int:
        return len(self.state())

    def bytes(self, index: Any = Ellipsis, dtype: Any = None) -> bytearray:
        return self.state().bytes(index, dtype)

    def numpy(self, index: Any = Ellipsis, dtype: Any = None) -> Any:
        return self.state().numpy(index, dtype)

    def torch(self, index: Any = Ellipsis, dtype: Any = None, device: Any = None) -> Any:
        return self.state().torch(index, dtype, device)


class Checkpoint(Mapping):  # type: ignore[type-arg]
    """A mapping from names to tensors.  Close it, or use it in a ``with`` statement."""

    def __init__(self, paths: Sequence[Path], *, tag: Optional[str] = None, subtree: Optional[str] = None,
                 as_warning: Iterable[str] = (), threads: int = 0, framework: str = "numpy",
                 limits: Optional[Dict[str, int]] = None, keep_values: bool = False, names: Optional[Path] = None,
                 model_config: Optional[Path] = None, tp_rules: Optional[Path] = None, vocab_size: int = 0,
                 find_states: bool = False, order: Optional[Path] = None, frozen: Optional[Iterable[str]] = None,
                 buffers: Optional[Iterable[str]] = None):
        if framework in ("pt", "torch"):
            framework = "torch"
        elif framework in ("np", "numpy"):
            framework = "numpy"
        elif framework != "bytes":
            raise UsageError(f"framework is {framework!r}; it must be 'numpy', 'torch' or 'bytes'", "USAGE")
        self.framework = framework
        bounds = sized(abi.ckpt_limits)
        for name, value in (limits or {}).items():
            call("ckpt_limits_set", byref(bounds), encode(name), value)
        opts = sized(abi.ckpt_open_opts, tag=encode(tag) if tag is not None else None, threads=threads,
                     limits=ctypes.pointer(bounds), as_warning=strings(as_warning),
                     subtree=encode(subtree) if subtree is not None else None, keep_values=int(keep_values), find_states=int(find_states),
                     names=encode(names) if names is not None else None, vocab_size=vocab_size,
                     model_config=encode(model_config) if model_config is not None else None,
                     tp_rules=encode(tp_rules) if tp_rules is not None else None,
                     order_path=encode(order) if order is not None else None,
                     frozen=strings(frozen), buffers=strings(buffers))
        array = (ctypes.c_char_p * len(paths))(*[encode(p) for p in paths])
        out = ctypes.c_void_p()
        call("ckpt_open", array, len(paths), byref(opts), byref(out))
        self._open: Optional[ctypes.c_void_p] = out
        self._lock = threading.Lock()
        self._names: Optional[Dict[str, int]] = None
        self._finalizer = weakref.finalize(self, lib().ckpt_close, out)
        info = self._info()
        self.format, self.path, self.tag = text(info.format), text(info.path), text(info.tag)
        self.chosen_because = text(info.why)
        self.stage = None if info.stage < 0 else int(info.stage)
        self.world = int(info.world) or None
        self.step = None if info.step < 0 else int(info.step)
        self.optimizer, self.writer = text(info.optimizer), text(info.writer)
        self.nbytes, self.fingerprint = int(info.file_bytes), text(info.fingerprint)

    # -- the handle

    @property
    def _handle(self) -> ctypes.c_void_p:
        if self._open is None:
            raise UsageError("the checkpoint is closed", "USAGE")
        return self._open

    def _alone(self) -> "_Alone":
        return _Alone(self)

    def _info(self) -> Any:
        info = abi.ckpt_info()
        lib().ckpt_info_get(self._handle, byref(info))
        return info

    def _raw(self, number: int) -> Any:
        raw = abi.ckpt_tensor_info()
        call("ckpt_tensor_get", self._handle, number, byref(raw))
        return raw

    def close(self) -> None:
        """Close the files.  A second call does nothing."""
        if self._open is not None:
            self._open = None
            self._finalizer()

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # -- what it holds

    def _index(self) -> Dict[str, int]:
        if self._names is None:
            self._names = {text(self._raw(i).name): i for i in range(self._info().ntensors)}
        return self._names

    def __getitem__(self, name: str) -> Tensor:
        number = self._index().get(name) if isinstance(name, str) else None
        if number is None:
            raise KeyError(_missing(name, self._index()))
        return Tensor(self, number, self._raw(number))

    def __iter__(self) -> Iterator[str]:
        return iter(self._index())

    def __len__(self) -> int:
        return len(self._index())

    def __contains__(self, name: object) -> bool:
        return name in self._index()

    def __repr__(self) -> str:
        if self._open is None:
            return "<closed checkpoint>"
        stage = f", stage {self.stage}, {self.world} ranks" if self.stage is not None else ""
        return f"<checkpoint {self.path}: {self.format}{stage}, {len(self)} tensors>"

    @property
    def findings(self) -> List[Finding]:
        """What is wrong or odd, in the order of discovery.  verify() adds to it."""
        out, raw = [], abi.ckpt_finding()
        for number in range(self._info().nfindings):
            call("ckpt_finding_get", self._handle, number, byref(raw))
            out.append(Finding(raw))
        return out

    @property
    def errors(self) -> List[Finding]:
        """The findings that stop a call that writes."""
        return [f for f in self.findings if f.severity == "error"]

    @property
    def facts(self) -> Dict[str, str]:
        """Counters, hyper-parameters and versions of the step, as text: "group.0.lr"."""
        out: Dict[str, str] = {}
        key, value = ctypes.c_char_p(), ctypes.c_char_p()
        number = 0
        while not lib().ckpt_fact_get(self._handle, number, byref(key), byref(value), None):
            out[text(key.value)] = text(value.value)
            number += 1
        return out

    @property
    def states(self) -> List[str]:
        """Names of all states that some tensor has."""
        seen: Dict[str, None] = {}
        for name in self:
            seen.update(dict.fromkeys(self[name].states))
        return list(seen)

    def extra(self, rank: int = 0) -> "Values":
        """What the step holds besides tensors, of one rank: hyper-parameters, client state, ..."""
        from .values import Values

        return Values(self, rank)

    # -- reading

    def _load(self, ranges: Any, size: int, run: Optional[Run] = None, check: bool = False) -> Any:
        out = abi.ckpt_loaded()
        opts = sized(abi.ckpt_load_opts, flags=abi.CKPT_LOAD_CHECK if check else 0)
        if size < SMALL and run is None:
            call("ckpt_load", self._handle, ranges, len(ranges), byref(opts), byref(out),
                 findings=lambda: self.errors)
        else:
            run = run or Run()
            opts.run = run.pointer
            run.call("ckpt_load", self._handle, ranges, len(ranges), byref(opts), byref(out),
                     findings=lambda: self.errors)
        return out

    def load(self, names: Optional[Iterable[str]] = None, *, state: str = "weight", dtype: Any = None,
             framework: Optional[str] = None, device: Any = None, check: bool = True, threads: int = 0,
             progress: Progress = None) -> Dict[str, Any]:
        """Many tensors at once, as a dict: in the order of the files, with several threads.

        ``names`` None is every tensor that has the state.  ``check`` compares the bytes with the
        sums that the files have of them.  Tied names share one tensor.
        """
        kind = framework or self.framework
        chosen = list(names) if names is not None else [n for n in self if state in self[n].states]
        out: Dict[str, Any] = {}
        made: Dict[int, Any] = {}
        work = []
        for name in chosen:
            tensor = self[name]
            if tensor._number not in made:
                made[tensor._number] = _empty(tensor.state(state), dtype, kind)
                work.append((tensor, made[tensor._number]))
            out[name] = made[tensor._number][1]
        ranges = (abi.ckpt_load_range * len(work))()
        keep, size = [], 0
        for slot, (tensor, (want, array)) in zip(ranges, work):
            address, n, alive = _memory(array) if tensor.numel else (0, 0, None)
            slot.tensor, slot.state, slot.dtype = tensor._number, encode(state), want.number
            slot.first, slot.count, slot.dst = 0, tensor.numel, address
            keep.append(alive)
            size += n
        self._load(ranges, size, Run(threads=threads, progress=progress), check)
        if device is not None and kind in ("pt", "torch"):
            moved = {id(a): a.to(device) for a in out.values()}
            out = {n: moved[id(a)] for n, a in out.items()}
        return out


class _Alone:
    """The handle for one call that may change it."""

    def __init__(self, checkpoint: Checkpoint):
        self._checkpoint = checkpoint

    def __enter__(self) -> ctypes.c_void_p:
        self._checkpoint._lock.acquire()
        return self._checkpoint._handle

    def __exit__(self, *_: Any) -> None:
        self._checkpoint._lock.release()


def _empty(state: State, dtype: Any, framework: str) -> Tuple[Dtype, Any]:
    kind = dtypes.parse(dtype) if dtype is not None else state.dtype
    if framework in ("pt", "torch"):
        return kind, dtypes.torch_empty(state.shape, kind)
    if framework == "bytes":
        return kind, bytearray(kind.nbytes(state.numel))
    import numpy

    kind, found = dtypes.for_numpy(kind)
    return kind, numpy.empty(state.shape, found)


def _memory(buffer: Any) -> Tuple[int, int, Any]:
    """Address and bytes of writable, contiguous memory, and what keeps it there."""
    if hasattr(buffer, "data_ptr"):                 # torch
        if not buffer.is_contiguous():
            raise UsageError("the tensor is not contiguous", "USAGE")
        if buffer.device.type != "cpu":
            raise UsageError(f"the tensor is on {buffer.device}: read to the CPU, then move it", "USAGE")
        return buffer.data_ptr(), buffer.numel() * buffer.element_size(), buffer
    if hasattr(buffer, "__array_interface__"):      # numpy, whose types memoryview may not know
        if not buffer.flags.c_contiguous or not buffer.flags.writeable:
            raise UsageError("the array must be contiguous and writable", "USAGE")
        return buffer.__array_interface__["data"][0], buffer.nbytes, buffer
    view = memoryview(buffer)
    if view.readonly or not view.c_contiguous:
        raise UsageError("the buffer must be contiguous and writable", "USAGE")
    if not view.nbytes:
        return 0, 0, view
    raw = (ctypes.c_char * view.nbytes).from_buffer(view)
    return ctypes.addressof(raw), view.nbytes, raw


def _missing(name: Any, names: Iterable[str]) -> str:
    import difflib

    near = difflib.get_close_matches(str(name), names, 1)
    return f"the checkpoint has no tensor {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def open(path: Union[Path, Sequence[Path]], tag: Optional[str] = None, **options: Any) -> Checkpoint:
    """Open a checkpoint: a DeepSpeed run or step, checkpoint-N, a Hugging Face folder, a
    .safetensors or .pt file, a pack.  Several paths are overlaid, as when each node kept its own
    files.  Nothing in a file is executed.

    tag         the step: its name or number (default: the one that 'latest' names)
    framework   "numpy" (default), "torch" or "bytes": what ``tensor[index]`` and load() give
    subtree     of a torch file: the entry to read, such as "ema"
    as_warning  names of findings that do not stop a call
    threads     that read metadata
    limits      bounds of docs/limits.md by name, such as {"pickle_bytes": 2 << 30}
    names       of a Megatron-Core checkpoint: "hf", "native", or a file with a table of names
    model_config  config.json of the model, or its folder (default: found beside the checkpoint)
    find_states  find optimizer states without names by content (Megatron-Core): reads all weights
    vocab_size  rows of the vocabulary without padding (default: as config.json says)
    tp_rules    a JSON file that says how tensor-parallel slices are joined
    order       of a training file of torch: a file with its parameters' names in the optimizer's order
    frozen, buffers  of such a file: patterns of tensors that its optimizer does not have
    """
    paths = [path] if isinstance(path, (str, bytes)) or hasattr(path, "__fspath__") else list(path)
    return Checkpoint(paths, tag=tag, **options)
