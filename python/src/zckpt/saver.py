"""Saves from a training loop, and weights into a model.

    saver = zckpt.Saver("run", rank=rank, world=world, job=job_id)
    for step in ...:
        ...
        if step % 100 == 0:
            saver.save(model, optimizer, step)      # training continues while threads write
    saver.close()                                   # waits; raises what went wrong

A step appears complete or not at all.  ``zckpt reshard``, ``convert`` and ``ztrain`` read it; with
``to="deepspeed"`` DeepSpeed's load_checkpoint() resumes it, with ``to="dcp"`` FSDP loads it.
"""
from __future__ import annotations

import ctypes
import json
import weakref
from ctypes import byref
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple, Union

from . import _abi as abi
from . import _dtypes as dtypes
from . import _torch
from ._native import Run, call, encode, error, lib, sized
from .checkpoint import Checkpoint, Path, _memory, _missing
from .checkpoint import open as open_checkpoint
from .errors import DamagedError, UsageError
from .verbs import Source, _one_of, _stage

_TO = {"native": abi.CKPT_TO_NATIVE, "deepspeed": abi.CKPT_TO_DEEPSPEED, "universal": abi.CKPT_TO_UNIVERSAL,
       "dcp": abi.CKPT_TO_DCP, "trainer": abi.CKPT_TO_TRAINER, "huggingface": abi.CKPT_TO_HUGGINGFACE}
_KINDS = {"trainable": abi.CKPT_ROLE_TRAINABLE, "frozen": abi.CKPT_ROLE_FROZEN,
          "buffer": abi.CKPT_ROLE_BUFFER, "alias": abi.CKPT_ROLE_ALIAS}


@dataclass
class Saved:
    """What a save cost this rank."""

    put_bytes: int
    written_bytes: int
    files: int
    file_bytes: int
    put_seconds: float
    write_seconds: float
    commit_seconds: float


class Saver:
    """The saves of one rank into the folder ``root``; at most one is in progress.

    job      the same text on every rank, and a new one at each start of the job; needed if
             world > 1
    local    ``root`` is on storage of this rank alone
    buffer_bytes  for copies of what is saved (256 MiB)
    """

    def __init__(self, root: Path, *, rank: int = 0, world: int = 1, job: Optional[str] = None, threads: int = 0,
                 buffer_bytes: int = 0, sync: str = "data", timeout: float = 300.0, local: bool = False):
        self.root, self.rank, self.world = root, rank, world
        opts = sized(abi.ckpt_saver_opts, root=encode(root), job=encode(job) if job else None, rank=rank,
                     nranks=world, threads=threads, buffer_bytes=buffer_bytes, sync=Run(sync=sync).opts.sync,
                     timeout_ms=int(timeout * 1000), flags=abi.CKPT_SAVER_LOCAL if local else 0)
        handle = ctypes.c_void_p()
        call("ckpt_saver_new", byref(opts), byref(handle))
        self._handle: Optional[ctypes.c_void_p] = handle
        self._finalizer = weakref.finalize(self, lib().ckpt_saver_free, handle)

    def save(self, model: Any, optimizer: Any, step: int, *, tag: Optional[str] = None, to: str = "native",
             stage: Union[int, str] = 1, layout_world: int = 0, samples: int = 0,
             masters: Optional[Dict[str, Any]] = None, scheduler: Any = None, client: Optional[Dict[str, Any]] = None, ds_config: Optional[Dict[str, Any]] = None,
             clip_grad: float = 0.0, aux: Optional[Path] = None, force: bool = False, latest: bool = True,
             wait: bool = False) -> None:
        """Save the model and its optimizer as step ``step``.

        Every rank calls it with the same arguments.  Parameters are plain tensors that every rank
        holds (one process, DDP), or DTensors (FSDP2).  ``masters`` are fp32 values by name, where
        the model has 16-bit parameters and the caller keeps masters; else they are the parameters.
        ``stage`` and ``layout_world`` are the layout of to="deepspeed".  Returns when the memory
        may change; ``wait`` waits until the step is in its place.
        """
        tensors = _torch.describe(model, optimizer)
        states = ["master", *_torch.state_names(optimizer)]
        spec = _Spec(tensors, states, optimizer)
        raw = spec.step(
            tag=encode(tag or f"global_step{step}"), to=_one_of("to", to, _TO), stage=_stage(stage), world=layout_world,
            steps=step, samples=samples, clip_grad=clip_grad, ds_config=_json(ds_config), client=_json(client),
            scheduler=_json(scheduler.state_dict() if hasattr(scheduler, "state_dict") else scheduler),
            aux_dir=encode(aux) if aux else None,
            flags=force * abi.CKPT_SAVE_FORCE | (not latest) * abi.CKPT_SAVE_NO_LATEST)
        call("ckpt_save_begin", self._open, byref(raw))
        try:
            for number, tensor in enumerate(tensors):
                self._put_tensor(number, tensor, states, optimizer, masters or {})
        except BaseException as why:
            lib().ckpt_save_abort(self._open, encode(str(why) or type(why).__name__))
            raise
        call("ckpt_save_commit", self._open)
        if wait:
            self.wait()

    @property
    def _open(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise UsageError("the saver is closed", "USAGE")
        return self._handle

    def _put_tensor(self, number: int, tensor: _torch.Described, states: List[str], optimizer: Any,
                    masters: Dict[str, Any]) -> None:
        import torch

        if not lib().ckpt_save_needs(self._open, number):
            return
        if tensor.kind != "trainable":
            self._put(number, "weight", _torch.owned(tensor.value, self.rank, self.world))
            return
        for state in states:
            value = masters.get(tensor.name, tensor.value) if state == "master" else \
                optimizer.state.get(tensor.value, {}).get(state)
            if value is None:                       # this parameter had no gradient yet
                value = torch.zeros_like(tensor.value, dtype=torch.float32)
            if value.shape != tensor.value.shape:
                raise UsageError(f"the master has shape {list(value.shape)}, the parameter "
                                 f"{list(tensor.value.shape)}", "USAGE", tensor.name)
            part = _torch.owned(value, self.rank, self.world)
            self._put(number, state, part._replace(local=part.local.to(torch.float32)))

    def _put(self, number: int, state: str, part: _torch.Part) -> None:
        local = part.local.to("cpu").contiguous()
        address, _, keep = _memory(local) if local.numel() else (0, 0, None)
        for first, count in part.runs:
            call("ckpt_save_put", self._open, number, encode(state), first, count, address, 0)
            address += count * local.element_size()
        del keep

    def wait(self, timeout: Optional[float] = None) -> Saved:
        """Wait for the save in progress: on rank 0 until the step is in its place.

        Raises what went wrong; then nothing of the step is in its place.  BusyError after
        ``timeout`` seconds, if the save still runs.  Ctrl-C interrupts the waiting, not the save.
        """
        left = None if timeout is None else int(timeout * 1000)
        out = abi.ckpt_saved()
        while True:
            part = 200 if left is None else min(200, left)
            err = abi.ckpt_err()
            if not lib().ckpt_save_wait(self._open, max(part, 1), byref(out), byref(err)):
                break
            left = left if left is None else left - part
            if not lib().ckpt_save_pending(self._open) or (left is not None and left <= 0):
                raise error(err)
        return Saved(out.put_bytes, out.written_bytes, out.nfiles, out.file_bytes, out.put_seconds,
                     out.write_seconds, out.commit_seconds)

    def close(self) -> None:
        """Wait for the save in progress and free the saver.  Raises what went wrong."""
        if self._handle is None:
            return
        try:
            self.wait()
        finally:
            self._handle = None
            self._finalizer()

    def __enter__(self) -> "Saver":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class _Spec:
    """struct ckpt_save_step, and what it points to."""

    def __init__(self, tensors: List[_torch.Described], states: List[str], optimizer: Any):
        self._tensors = (abi.ckpt_save_tensor * len(tensors))()
        self._keep: List[Any] = []
        numbers = {t.name: i for i, t in enumerate(tensors)}
        for slot, t in zip(self._tensors, tensors):
            shape = (ctypes.c_uint64 * max(len(t.value.shape), 1))(*t.value.shape)
            self._keep.append(shape)
            slot.name, slot.shape, slot.ndim = encode(t.name), shape, len(t.value.shape)
            slot.role, slot.group = _KINDS[t.kind], t.group
            slot.dtype = dtypes.parse(t.value.dtype).number
            slot.alias_of = numbers[t.alias_of] if t.alias_of else 0
            slot.derived = int(t.kind == "trainable")
        self._states = (abi.ckpt_save_state * len(states))()
        for state, name in zip(self._states, states):
            state.name, state.dtype = encode(name), abi.CKPT_F32
        groups = optimizer.param_groups
        self._groups = (abi.ckpt_save_group * len(groups))()
        for slot, group in zip(self._groups, groups):
            beta1, beta2 = group.get("betas", (0.9, 0.999))
            slot.lr, slot.initial_lr = float(group["lr"]), float(group.get("initial_lr", group["lr"]))
            slot.weight_decay, slot.eps = float(group.get("weight_decay", 0.0)), float(group.get("eps", 1e-8))
            slot.beta1, slot.beta2 = float(beta1), float(beta2)
            slot.step = _torch.step_of(optimizer, group)

    def step(self, **fields: Any) -> Any:
        return sized(abi.ckpt_save_step, tensor=self._tensors, ntensors=len(self._tensors), state=self._states,
                     nstates=len(self._states), group=self._groups, ngroups=len(self._groups), **fields)


def _json(value: Any) -> Optional[bytes]:
    if value is None:
        return None
    try:
        return json.dumps(value).encode()
    except (TypeError, ValueError) as why:
        raise UsageError(f"{why}: what goes along with a step must be JSON", "USAGE") from None


# ---------------------------------------------------------------- loading


@dataclass
class Loaded:
    """What load_into() did."""

    tensors: int
    bytes_read: int
    missing: List[str]      #: names of the target that the checkpoint lacks
    unexpected: List[str]   #: names of the checkpoint that the target lacks
    step: Optional[int]


def load_into(target: Any, src: Source, *, optimizer: Any = None, rank: int = 0, world: int = 1,
              tag: Optional[str] = None, strict: bool = True, check: bool = True, threads: int = 0,
              progress: Any = None) -> Loaded:
    """Read a checkpoint into a torch module, or into a dict of tensors or arrays, in place.

    fp32 tensors get the fp32 masters, others the weights, rounded to their type.  A DTensor gets
    its local shard.  In a dict, a 1-D tensor of ceil(numel / world) elements gets the part of
    ``rank``, filled with zeros at its end; this is how ZeRO stage 3 cuts parameters.  With
    ``optimizer`` (of a torch module) its states are filled too: moments, steps, learning rates.
    """
    if isinstance(src, Checkpoint):
        return _load_into(target, src, optimizer, rank, world, strict, check, threads, progress)
    with open_checkpoint(src, tag=tag) as ck:
        return _load_into(target, ck, optimizer, rank, world, strict, check, threads, progress)


def _load_into(target: Any, ck: Checkpoint, optimizer: Any, rank: int, world: int, strict: bool, check: bool,
               threads: int, progress: Any) -> Loaded:
    is_module = hasattr(target, "state_dict")
    values: Dict[str, Any] = dict(target.state_dict(keep_vars=True)) if is_module else dict(target)
    values = {n: v for n, v in values.items() if hasattr(v, "shape")}
    missing = [n for n in values if n not in ck]
    unexpected = [n for n in ck if n not in values]
    if strict and (missing or unexpected):
        said = [_missing(missing[0], ck)] if missing else []
        said += [f"the checkpoint has {unexpected[0]!r}, and the target has not"] if unexpected else []
        raise UsageError("; ".join(said) + f" ({len(missing)} missing, {len(unexpected)} unexpected; "
                         "strict=False loads the others)", "USAGE", ck.path)
    work = _Work(ck)
    seen = set()
    for name, value in values.items():
        if name not in ck or id(value) in seen:
            continue
        seen.add(id(value))
        wide = str(value.dtype) in ("torch.float32", "float32")
        work.add(name, "master" if wide and ck[name].role == "trainable" else "weight", value, rank, world)
    if optimizer is not None:
        _add_optimizer(work, target, optimizer, ck)
    read = work.run(check, threads, progress)
    return Loaded(len(seen), read, missing, unexpected, ck.step)


class _Work:
    """Ranges to load, and what is copied afterwards to memory that cannot be read into."""

    def __init__(self, ck: Checkpoint):
        self._ck = ck
        self._ranges: List[Tuple[int, bytes, int, int, int, int]] = []
        self._keep: List[Any] = []
        self._copies: List[Tuple[Any, Any]] = []

    def add(self, name: str, state: str, value: Any, rank: int = 0, world: int = 1) -> None:
        tensor = self._ck[name]
        kind = dtypes.parse(value.dtype)
        if not hasattr(value, "data_ptr"):
            runs = self._flat_or_whole(tensor, value.shape, value.size, rank, world)
            self._add_runs(tensor, state, kind, value, runs)
            return
        part = _torch.held(value)
        whole = tuple(value.shape)
        runs = part.runs if whole == tensor.shape else \
            self._flat_or_whole(tensor, whole, value.numel(), rank, world)
        local = part.local.detach()
        if local.device.type != "cpu" or not local.is_contiguous():
            import torch

            stage = torch.zeros(local.shape, dtype=local.dtype)
            self._copies.append((local, stage))
            local = stage
        elif whole != tensor.shape:
            local.zero_()
        self._add_runs(tensor, state, kind, local, runs)

    def _flat_or_whole(self, tensor: Any, shape: Any, numel: int, rank: int, world: int) -> List[Tuple[int, int]]:
        if tuple(shape) == tensor.shape:
            return [(0, tensor.numel)] if tensor.numel else []
        each = -(-tensor.numel // world)
        if world > 1 and len(shape) == 1 and numel == each:
            first = min(rank * each, tensor.numel)
            return [(first, min(each, tensor.numel - first))] if first < tensor.numel else []
        raise DamagedError(f"the target has shape {list(shape)}, the checkpoint {list(tensor.shape)}",
                           "MISMATCH", tensor.name)

    def _add_runs(self, tensor: Any, state: str, kind: Any, local: Any, runs: List[Tuple[int, int]]) -> None:
        if not runs:
            return
        address, size, keep = _memory(local)
        self._keep.append(keep)
        for first, count in runs:
            self._ranges.append((tensor._number, encode(state), first, count, kind.number, address))
            address += kind.nbytes(count)

    def run(self, check: bool, threads: int, progress: Any) -> int:
        ranges = (abi.ckpt_load_range * len(self._ranges))()
        for slot, fields in zip(ranges, self._ranges):
            slot.tensor, slot.state, slot.first, slot.count, slot.dtype, slot.dst = fields
        out = self._ck._load(ranges, 0, Run(threads=threads, progress=progress), check)
        for local, stage in self._copies:
            local.copy_(stage)
        return int(out.bytes_read)


_HYPER = ("lr", "initial_lr", "weight_decay", "betas", "eps", "momentum", "dampening", "nesterov", "amsgrad",
          "maximize")


def _add_optimizer(work: _Work, model: Any, optimizer: Any, ck: Checkpoint) -> None:
    import torch

    names = {}
    for name, p in model.named_parameters():
        names[id(p)] = name
    facts = ck.facts
    with ck.extra() as values:
        saved = values.get("param_groups", [])
    for g, group in enumerate(optimizer.param_groups):
        if g < len(saved):
            group.update({key: tuple(saved[g][key]) if key == "betas" else saved[g][key]
                          for key in _HYPER if key in saved[g] and (key in group or key == "initial_lr")})
        for p in group["params"]:
            name = names.get(id(p))
            if name is None or name not in ck:
                continue
            state = optimizer.state[p]
            for key, found in ck[name].states.items():
                if key in ("weight", "master"):
                    continue
                state[key] = torch.zeros_like(p, dtype=dtypes.to_torch(found.dtype))
                work.add(name, key, state[key])
            step = facts.get(f"group.{g}.step", facts.get("global_steps"))
            if step is not None:
                state["step"] = torch.tensor(float(step))
