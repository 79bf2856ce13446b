"""The commands of zckpt as functions.

Each takes a path, a list of paths that are overlaid, or an open Checkpoint.  ``progress`` is
called with (done, total) bytes; an exception in it stops the call and is raised again.  Ctrl-C
stops a call too.  Output is complete or absent.  Names and defaults are those of the program:
``zckpt COMMAND -h --all`` describes each.
"""
from __future__ import annotations

import contextlib
import ctypes
import math
from ctypes import byref
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from . import _abi as abi
from . import _dtypes as dtypes
from ._native import Progress, Run, call, encode, lib, rules, sized, strings, text
from .checkpoint import Checkpoint, Finding, Path
from .checkpoint import open as open_checkpoint
from .errors import UsageError

Source = Union[Path, Sequence[Path], Checkpoint]
Names = Optional[Union[str, Iterable[str]]]


@contextlib.contextmanager
def _opened(src: Source, tag: Optional[str] = None, **options: Any) -> Iterator[Checkpoint]:
    if isinstance(src, Checkpoint):
        if tag is not None and tag != src.tag:
            raise UsageError(f"the open checkpoint is step {src.tag!r}, tag is {tag!r}; "
                             "give the path of the run instead", "USAGE")
        if any(options.get(name) for name in ("order", "frozen", "buffers")):
            raise UsageError("order, frozen and buffers are options of opening; give them to open(), or give the path", "USAGE")
        yield src
        return
    with open_checkpoint(src, tag=tag, **options) as ck:
        yield ck


# ---------------------------------------------------------------- what is written


@dataclass
class Written:
    """A file that was written, or that a dry run would write."""

    path: str
    bytes: int
    tensors: int


@dataclass
class Report:
    """What convert, reshard or shard did."""

    files: List[Written]
    tensors: int
    read_bytes: int
    written_bytes: int
    resumed_bytes: int
    no_master: int      #: tensors whose fp32 values come from a 16-bit weight
    overflows: int      #: finite values that became infinite
    aliases: int        #: names that share the bytes of another one
    merged: int         #: tensors that an adapter changed or replaced
    threads: int
    seconds: float
    digest: str         #: with digest=True: of all that was written
    digests: Dict[Tuple[str, str], str] = field(repr=False)  #: (state, name) to hash

    @classmethod
    def _of(cls, raw: Any) -> "Report":
        out = cls([Written(text(f.path), f.bytes, f.ntensors) for f in raw.files[:raw.nfiles]], raw.ntensors,
                  raw.read_bytes, raw.written_bytes, raw.resumed_bytes, raw.no_master, raw.overflows,
                  raw.aliases, raw.merged, raw.threads, raw.seconds, text(raw.root), _lines(raw.digests, raw.ndigests))
        lib().ckpt_report_free(byref(raw))
        return out


def _lines(array: Any, n: int) -> Dict[Tuple[str, str], str]:
    return {(text(d.state), text(d.name)): text(d.hash) for d in array[:n]} if n else {}


_ONLY = {"trainable": abi.CKPT_ONLY_TRAINABLE, "frozen": abi.CKPT_ONLY_FROZEN, "buffers": abi.CKPT_ONLY_BUFFERS}
_TIED = {"alias": abi.CKPT_TIED_ALIAS, "dup": abi.CKPT_TIED_DUP, "drop": abi.CKPT_TIED_DROP}


def _one_of(what: str, value: str, known: Dict[str, int]) -> int:
    if value not in known:
        raise UsageError(f"{what} is {value!r}; it must be one of {', '.join(known)}", "USAGE")
    return known[value]


def _kinds(what: str, values: Names) -> int:
    flags = 0
    for value in [values] if isinstance(values, str) else values or ():
        flags |= _one_of(what, value, _ONLY)
    return flags


def _select(include: Names = None, exclude: Names = None, only: Names = None, skip: Names = None,
            rename: Optional[Dict[str, str]] = None, strip_prefix: Optional[str] = None,
            tied: str = "alias") -> Any:
    return ctypes.pointer(sized(
        abi.ckpt_select, include=strings(include), exclude=strings(exclude), rename=rules(rename),
        strip_prefix=encode(strip_prefix) if strip_prefix else None, only=_kinds("only", only),
        skip=_kinds("skip", skip), tied=_one_of("tied", tied, _TIED)))


def _flags(force: bool, restart: bool, dry_run: bool, strict: bool) -> int:
    return (force * abi.CKPT_WRITE_FORCE | restart * abi.CKPT_WRITE_RESTART |
            dry_run * abi.CKPT_WRITE_DRY_RUN | strict * abi.CKPT_WRITE_STRICT)


def _write(name: str, ck: Checkpoint, dst: Path, opts: Any, run: Run) -> Report:
    raw = abi.ckpt_report()
    with ck._alone() as handle:
        run.call(name, handle, encode(dst), byref(opts), byref(raw), findings=lambda: ck.errors)
    return Report._of(raw)


def convert(src: Source, dst: Path, *, dtype: Any = None, states: Names = None, tag: Optional[str] = None,
            include: Names = None, exclude: Names = None, only: Names = None, skip: Names = None,
            rename: Optional[Dict[str, str]] = None, strip_prefix: Optional[str] = None, tied: str = "alias",
            dtype_rules: Optional[Dict[str, str]] = None, max_shard_bytes: int = 0, aux: Optional[Path] = None,
            expect: Optional[Path] = None, force: bool = False, restart: bool = False, dry_run: bool = False,
            strict: bool = False, digest: bool = False, sums: bool = True, language_part: bool = False,
            threads: int = 0, mem_limit: int = 0, sync: str = "data", progress: Progress = None, to: Optional[str] = None,
            adapter: Optional[str] = None, adapter_config: Optional[Path] = None, lora_alpha: float = 0,
            lora_dropout: float = 0, lora_bias: Optional[str] = None, lora_task: Optional[str] = None,
            lora_base: Optional[str] = None, rslora: bool = False) -> Report:
    """Write weights: to a .safetensors file, a .pt, .pth or .bin state dict, or a folder.

    dtype is a type ("bf16", torch.bfloat16), None for fp32, or "keep"; states is "all" or names,
    each written to a file of its own.  language_part is the language model of a vision-language
    model, as a model of its own.  ``dst`` appears complete or not at all.

    With to="peft" the adapter of a LoRA run becomes a folder that PEFT loads; its alpha is that of
    the adapter_config.json beside the step, or ``lora_alpha``.
    """
    if to not in (None, "peft"):
        raise UsageError(f"to is {to!r}; it must be None or 'peft'", "USAGE")
    run = Run(threads, mem_limit, sync, progress)
    peft = _peft(None, adapter, adapter_config, lora_alpha, lora_dropout, lora_bias, lora_task, lora_base, rslora)
    if to is None and (adapter or adapter_config or lora_alpha or lora_dropout or lora_bias or lora_task or
                       lora_base or rslora):
        raise UsageError("options of an adapter go with to='peft', or with merge_lora()", "USAGE")
    opts = sized(
        abi.ckpt_convert_opts, peft=ctypes.pointer(peft) if to else None, run=run.pointer, dtype=dtypes.rule(dtype), dtype_rules=rules(dtype_rules),
        states=strings(states), max_shard_bytes=max_shard_bytes, aux_dir=encode(aux) if aux else None,
        expect_path=encode(expect) if expect else None,
        select=_select(include, exclude, only, skip, rename, strip_prefix, tied),
        flags=_flags(force, restart, dry_run, strict) | digest * abi.CKPT_CONVERT_DIGEST |
        (not sums) * abi.CKPT_CONVERT_NO_SUMS | language_part * abi.CKPT_CONVERT_LANGUAGE)
    with _opened(src, tag) as ck:
        return _write("ckpt_convert", ck, dst, opts, run)


def _peft(merge: Any, adapter: Optional[str], config: Optional[Path], alpha: float, dropout: float = 0,
          bias: Optional[str] = None, task: Optional[str] = None, base: Optional[str] = None,
          rslora: bool = False) -> Any:
    return sized(abi.ckpt_peft_opts, merge=merge, adapter=encode(adapter) if adapter else None,
                 config_path=encode(config) if config else None, alpha=alpha, dropout=dropout,
                 bias=encode(bias) if bias else None, task_type=encode(task) if task else None,
                 base_model=encode(base) if base else None, rslora=int(rslora))


def merge_lora(base: Source, adapter: Source, dst: Path, *, dtype: Any = "keep", name: Optional[str] = None,
               adapter_config: Optional[Path] = None, lora_alpha: float = 0, rslora: bool = False,
               max_shard_bytes: int = 0, aux: Optional[Path] = None, force: bool = False, restart: bool = False,
               dry_run: bool = False, strict: bool = False, digest: bool = False, sums: bool = True,
               threads: int = 0, mem_limit: int = 0, sync: str = "data", progress: Progress = None) -> Report:
    """Write a model with a LoRA adapter merged into it, W + s B A rounded once, in little memory.

    ``base`` is a model, ``adapter`` PEFT's folder or a training step; ``name`` chooses one of several
    adapters.  dtype "keep" is the type of the base.
    """
    run = Run(threads, mem_limit, sync, progress)
    with _opened(adapter) as small, _opened(base) as ck:
        if small is ck:
            raise UsageError("base and adapter are one open checkpoint; give the path of one", "USAGE")
        with small._alone() as merged:
            opts = sized(
                abi.ckpt_convert_opts, run=run.pointer, dtype=dtypes.rule(dtype),
                peft=ctypes.pointer(_peft(merged, name, adapter_config, lora_alpha, rslora=rslora)),
                max_shard_bytes=max_shard_bytes, aux_dir=encode(aux) if aux else None, select=_select(),
                flags=_flags(force, restart, dry_run, strict) | digest * abi.CKPT_CONVERT_DIGEST |
                (not sums) * abi.CKPT_CONVERT_NO_SUMS)
            return _write("ckpt_convert", ck, dst, opts, run)


_TO = {"deepspeed": abi.CKPT_TO_DEEPSPEED, "universal": abi.CKPT_TO_UNIVERSAL, "native": abi.CKPT_TO_NATIVE,
       "dcp": abi.CKPT_TO_DCP, "fsdp-ranks": abi.CKPT_TO_FSDP_RANKS, "trainer": abi.CKPT_TO_TRAINER,
       "torch-training": abi.CKPT_TO_TORCH_TRAINING}


def _stage(stage: Union[int, str, None]) -> int:
    if stage is None:
        return -1
    return 4 if stage == "bf16" else int(stage)


def _tristate(value: Optional[bool]) -> int:
    return -1 if value is None else int(value)


def reshard(src: Source, dst: Path, world: Optional[int] = None, *, stage: Union[int, str, None] = None,
            to: str = "deepspeed", tag: Optional[str] = None, new_tag: Optional[str] = None,
            round_robin: Optional[bool] = None, sub_group_size: int = 0, ds_version: Optional[str] = None,
            torch_version: Optional[str] = None, device: Optional[str] = None, layout: Optional[str] = None,
            ep: int = 0, whole: bool = False, reset_optimizer: bool = False, drop_states: Names = None,
            dtype: Any = None, order: Optional[Path] = None, frozen: Names = None, buffers: Names = None, force: bool = False,
            restart: bool = False, dry_run: bool = False, strict: bool = False, threads: int = 0,
            mem_limit: int = 0, sync: str = "data", progress: Progress = None) -> Report:
    """Write training state for ``world`` ranks (None: as many as wrote it) and ZeRO stage ``stage``
    (None: the source's; "bf16" is BF16_Optimizer), as a run that DeepSpeed resumes, in DeepSpeed's
    universal form, in the native one, as a folder that FSDP loads ("dcp"), as FSDP's rank files
    ("fsdp-ranks"), or as checkpoint-N of transformers' Trainer ("trainer").  Weights, masters and optimizer states keep every bit.
    ``ep`` is the number of expert ranks of DeepSpeed's experts (0: the source's).  ``whole`` joins the
    slices of a tensor parallel step for a run without that parallelism.

    Of a training file of torch ``dtype`` is the type of the run's weights ("fp16"); ``order``, ``frozen``
    and ``buffers`` say whose states its optimizer numbers, where zckpt does not know (see open()).
    """
    run = Run(threads, mem_limit, sync, progress)
    call("ckpt_settle", encode(dst), run.opts.sync, byref(ctypes.c_int()))
    with _opened(src, tag, keep_values=True, order=order, frozen=frozen, buffers=buffers) as ck:
        form = _one_of("to", to, _TO)
        ranks = world if world is not None else (ck.world or 0) if form == abi.CKPT_TO_DEEPSPEED else 0
        if not ranks and form == abi.CKPT_TO_DEEPSPEED:
            raise UsageError("world is missing: the source does not have a number of ranks", "USAGE")
        opts = sized(
            abi.ckpt_reshard_opts, run=run.pointer, world=ranks, stage=_stage(stage),
            round_robin=_tristate(round_robin), sub_group_size=sub_group_size, to=form,
            tag=encode(new_tag) if new_tag else None, ds_version=encode(ds_version) if ds_version else None,
            torch_version=encode(torch_version) if torch_version else None,
            device=encode(device) if device else None,
            layout=encode(layout) if layout else None, ep=ep, drop_states=strings(drop_states),
            weight_dtype=dtypes.parse(dtype).number if dtype is not None else 0,
            flags=_flags(force, restart, dry_run, strict) | reset_optimizer * abi.CKPT_RESHARD_RESET | whole * abi.CKPT_RESHARD_WHOLE)
        return _write("ckpt_reshard", ck, dst, opts, run)


def shard(src: Source, dst: Path, world: int = 0, *, to: str = "deepspeed", stage: Union[int, str, None] = None, lr: Optional[float] = None,
          ds_config: Optional[Path] = None, weight_decay: Optional[float] = None, beta1: Optional[float] = None,
          beta2: Optional[float] = None, eps: Optional[float] = None, first_lr: Optional[float] = None,
          groups: str = "one", dtype: Any = None, config: Optional[Path] = None, order: Optional[Path] = None,
          frozen: Names = None, buffers: Names = None, new_tag: Optional[str] = None,
          round_robin: Optional[bool] = None, sub_group_size: int = 0, ds_version: Optional[str] = None,
          tp: int = 1, vocab_divisor: int = 128,
          force: bool = False, restart: bool = False, dry_run: bool = False, strict: bool = False,
          threads: int = 0, mem_limit: int = 0, sync: str = "data", progress: Progress = None) -> Report:
    """Write the ZeRO step that a run begins with from model weights.  ``stage`` and ``lr`` come
    from the arguments or from ``ds_config``; groups is "one" or "decay" (as the Trainer has them).

    With ``to="megatron"`` it is a checkpoint of Megatron-Core: only ``dtype``, ``config``,
    ``buffers``, ``tp`` and ``vocab_divisor`` count, and ``world`` is not needed.
    """
    run = Run(threads, mem_limit, sync, progress)
    unset = math.nan
    opts = sized(
        abi.ckpt_shard_opts, run=run.pointer, world=world, stage=_stage(stage), round_robin=_tristate(round_robin),
        sub_group_size=sub_group_size, tag=encode(new_tag) if new_tag else None,
        flags=_flags(force, restart, dry_run, strict), ds_version=encode(ds_version) if ds_version else None,
        dtype=dtypes.parse(dtype).number if dtype is not None else 0,
        ds_config_path=encode(ds_config) if ds_config else None, config_path=encode(config) if config else None,
        order_path=encode(order) if order else None,
        groups=_one_of("groups", groups, {"one": abi.CKPT_GROUPS_ONE, "decay": abi.CKPT_GROUPS_DECAY}),
        frozen=strings(frozen), buffers=strings(buffers), tp=tp, vocab_divisor=vocab_divisor,
        to=_one_of("to", to, {"deepspeed": abi.CKPT_SHARD_DEEPSPEED, "megatron": abi.CKPT_SHARD_MEGATRON}),
        **{k: unset if v is None else v for k, v in (("lr", lr), ("first_lr", first_lr),
                                                     ("weight_decay", weight_decay), ("beta1", beta1),
                                                     ("beta2", beta2), ("eps", eps))})
    with _opened(src) as ck:
        return _write("ckpt_shard", ck, dst, opts, run)


# ---------------------------------------------------------------- what is checked


@dataclass
class Verified:
    """The answer of verify().  It is true where no finding is an error."""

    findings: List[Finding]
    full: bool              #: every byte was read
    files: int
    file_bytes: int
    read_bytes: int
    checksums: int          #: CRC-32 of archive members that were compared
    sums: int               #: sums of pieces of tensors that were compared
    elements: int           #: of masters that were compared with weights
    copies: int             #: elements of further copies that were compared
    manifest: str           #: the manifest that was compared or written, or ""

    @property
    def ok(self) -> bool:
        return not any(f.severity == "error" for f in self.findings)

    def __bool__(self) -> bool:
        return self.ok


def verify(src: Source, *, full: bool = False, tag: Optional[str] = None, write_manifest: bool = False,
           force: bool = False, as_warning: Iterable[str] = (), threads: int = 0, mem_limit: int = 0,
           sync: str = "data", progress: Progress = None) -> Verified:
    """Check that a checkpoint is complete and its parts belong together; full reads every byte.

    Damage is in the findings.  An exception means that the path could not be checked: it is
    missing, is not a checkpoint, or does not open at all.
    """
    run = Run(threads, mem_limit, sync, progress)
    flags = (full * abi.CKPT_VERIFY_FULL | write_manifest * abi.CKPT_VERIFY_WRITE_MANIFEST |
             force * abi.CKPT_VERIFY_FORCE)
    opts, out = sized(abi.ckpt_verify_opts, run=run.pointer, flags=flags), abi.ckpt_verified()
    with _opened(src, tag, as_warning=as_warning) as ck:
        with ck._alone() as handle:
            run.call("ckpt_verify", handle, byref(opts), byref(out), findings=lambda: ck.errors)
        return Verified(ck.findings, full or write_manifest, out.files, out.file_bytes, out.read_bytes,
                        out.checksums, out.sums, out.elements, out.copies, text(out.manifest_path) if out.manifest else "")


@dataclass
class Digests:
    """Hashes that do not depend on ranks, stage and format."""

    root: str
    lines: Dict[Tuple[str, str], str]   #: (state, name) to XXH3-128 as 32 hex digits
    read_bytes: int


def digest(src: Source, *, states: Names = None, tag: Optional[str] = None, include: Names = None,
           exclude: Names = None, only: Names = None, skip: Names = None, threads: int = 0, mem_limit: int = 0,
           progress: Progress = None) -> Digests:
    """Hash every state of every tensor; two checkpoints with equal hashes hold the same state."""
    run = Run(threads, mem_limit, progress=progress)
    opts = sized(abi.ckpt_digest_opts, run=run.pointer, states=strings(states),
                 select=_select(include, exclude, only, skip))
    raw = abi.ckpt_digests()
    with _opened(src, tag) as ck:
        with ck._alone() as handle:
            run.call("ckpt_digest", handle, byref(opts), byref(raw), findings=lambda: ck.errors)
        out = Digests(text(raw.root), _lines(raw.lines, raw.nlines), raw.read_bytes)
        lib().ckpt_digests_free(byref(raw))
    return out


_WHAT = {
    abi.CKPT_DIFF_SAME: "same", abi.CKPT_DIFF_WITHIN: "within", abi.CKPT_DIFF_TIED_ONLY_A: "tied only in a",
    abi.CKPT_DIFF_TIED_ONLY_B: "tied only in b", abi.CKPT_DIFF_DTYPE: "dtype", abi.CKPT_DIFF_VALUES: "values",
    abi.CKPT_DIFF_STATE_A: "state only in a", abi.CKPT_DIFF_STATE_B: "state only in b",
    abi.CKPT_DIFF_ONLY_A: "only in a", abi.CKPT_DIFF_ONLY_B: "only in b", abi.CKPT_DIFF_TYPES: "types",
    abi.CKPT_DIFF_SHAPE: "shape",
}


@dataclass
class Difference:
    """One state of one tensor, compared."""

    name: str
    state: str
    what: str           #: "same", "within", "values", "dtype", "shape", "only in a", ...
    differs: bool
    numel: int
    differ: int         #: elements whose bits differ
    max_abs: float
    max_at: int         #: the element with the largest difference
    rel_l2: float
    max_ulps: int


@dataclass
class Diff:
    """The answer of diff().  It is true where nothing differs."""

    rows: List[Difference]      #: the worst first
    scalars: Dict[str, Tuple[Optional[str], Optional[str]]]     #: that differ: key to (a, b)
    compared: int
    differing: int              #: rows and scalars
    unread: Tuple[int, int]     #: tensors of kinds that are not read, in a and in b
    read_bytes: int

    @property
    def same(self) -> bool:
        return not self.differing

    def __bool__(self) -> bool:
        return self.same


def diff(a: Source, b: Source, *, tag: Optional[str] = None, tag2: Optional[str] = None, states: Names = None,
         include: Names = None, exclude: Names = None, only: Names = None, rename: Optional[Dict[str, str]] = None,
         abs_tolerance: Optional[float] = None, rel_tolerance: Optional[float] = None, scalars: bool = True,
         threads: int = 0, mem_limit: int = 0, progress: Progress = None) -> Diff:
    """Compare two checkpoints of any format, stage and world size, bit for bit or with tolerances.

    A checkpoint and its export are the same if the export is correct.
    """
    run = Run(threads, mem_limit, progress=progress)
    tolerant = abs_tolerance is not None or rel_tolerance is not None
    opts = sized(abi.ckpt_diff_opts, run=run.pointer, states=strings(states),
                 select=_select(include, exclude, only, None, rename),
                 abs_tolerance=abs_tolerance or 0.0, rel_tolerance=rel_tolerance or 0.0,
                 flags=tolerant * abi.CKPT_DIFF_TOLERANCE | (not scalars) * abi.CKPT_DIFF_NO_SCALARS)
    raw = abi.ckpt_diff_result()
    with _opened(a, tag) as one, _opened(b, tag2) as other:
        both = {id(one): one, id(other): other}
        with contextlib.ExitStack() as stack:
            for key in sorted(both):        # one order, so that two threads never wait for each other
                stack.enter_context(both[key]._alone())
            run.call("ckpt_diff", one._handle, other._handle, byref(opts), byref(raw),
                     findings=lambda: [*one.errors, *other.errors])
        rows = [Difference(text(r.name), text(r.state_a or r.state_b), _WHAT.get(r.what, "?"),
                           r.what >= abi.CKPT_DIFF_DTYPE, r.numel, r.differ, r.max_abs, r.max_at, r.rel_l2,
                           r.max_ulps) for r in raw.rows[:raw.nrows]]
        unequal = {text(s.key): (None if s.a is None else text(s.a), None if s.b is None else text(s.b))
                   for s in raw.scalars[:raw.nscalars] if s.differs}
        out = Diff(rows, unequal, raw.nstates, raw.ndiffering, (raw.nopaque_a, raw.nopaque_b), raw.read_bytes)
        lib().ckpt_diff_free(byref(raw))
    return out


# ---------------------------------------------------------------- runs and plans


@dataclass
class Step:
    """A step in the folder of a run."""

    name: str
    path: str
    step: Optional[int]
    complete: bool
    why: str            #: why it is not complete, or ""
    latest: bool        #: 'latest' selects it
    chosen: bool        #: the one to resume from


def steps(run: Path) -> List[Step]:
    """The steps of a run's folder, the newest first.  Each is opened and checked, as `zckpt ls` does."""
    raw, job = abi.ckpt_steps(), Run()
    job.call("ckpt_steps_list", encode(run), job.pointer, None, byref(raw))
    out = [Step(text(s.name), text(s.path), None if s.step < 0 else s.step, bool(s.whole), text(s.why),
                i == raw.latest, i == raw.chosen) for i, s in enumerate(raw.step[:raw.nsteps])]
    lib().ckpt_steps_free(byref(raw))
    return out


@dataclass
class Term:
    """A summand of an estimate."""

    place: str          #: "gpu": bytes of each GPU; "host": bytes of a host
    name: str
    bytes: int
    formula: str


@dataclass
class Estimate:
    """What a run needs.  Bytes."""

    parameters: int
    gpu_bytes: int
    host_bytes: int
    peak: str           #: when the GPU needs the most
    terms: List[Term] = field(repr=False)
    save_bytes: int = 0
    save_files: int = 0


_OFFLOAD = {"none": 0, "optimizer": abi.CKPT_OFFLOAD_OPTIMIZER,
            "params": abi.CKPT_OFFLOAD_OPTIMIZER | abi.CKPT_OFFLOAD_PARAMS}


_FP8 = {"tensorwise": abi.CKPT_FP8_TENSORWISE, "tensorwise_with_gw_hp": abi.CKPT_FP8_TENSORWISE_GW_HP,
        "tensorwise_fast": abi.CKPT_FP8_TENSORWISE_FAST}


def plan(model: Union[Source, int], gpus: int = 1, *, stage: Optional[int] = None, offload: Optional[str] = None,
         dtype: Any = None, micro_batch: int = 0, sequence: int = 0, accumulation: int = 0,
         recompute: bool = False, gpus_per_node: int = 0, ds_config: Optional[Path] = None,
         engine: str = "deepspeed", lora: Optional[str] = None, freeze_tower: bool = False,
         fp8: Optional[str] = None) -> Estimate:
    """Estimate memory and disk space of a run before it starts.

    model is the name of a published one ("qwen2.5-7b"), a config.json, a checkpoint or a number of
    parameters.  engine is "deepspeed", or "ztrain" for its CPU ranks.  lora trains adapters, with the
    rest frozen: "r=16,target=q_proj+v_proj" or "r=16,target=all-linear".  freeze_tower trains the
    language part of a vision-language model.  fp8 is a recipe of ``ztrain --fp8``: its 8-bit copies are
    a term of their own, in no sum.
    """
    if fp8 is not None and engine != "ztrain":
        raise UsageError('fp8 is a recipe of ztrain: give engine="ztrain"', "USAGE")
    setup = sized(abi.ckpt_setup, gpus=gpus)
    if ds_config is not None:
        call("ckpt_setup_read", encode(ds_config), byref(setup), byref(ctypes.c_uint()))
    given = {"stage": stage, "micro": micro_batch or None, "sequence": sequence or None,
             "accumulation": accumulation or None, "gpus_per_node": gpus_per_node or None,
             "dtype": dtypes.parse(dtype).number if dtype is not None else None,
             "offload": _one_of("offload", offload, _OFFLOAD) if offload is not None else None}
    for name, value in given.items():
        if value is not None:
            setattr(setup, name, value)
    setup.recompute = int(recompute)
    setup.engine = _one_of("engine", engine, {"deepspeed": abi.CKPT_ENGINE_DEEPSPEED,
                                              "ztrain": abi.CKPT_ENGINE_ZTRAIN})
    setup.fp8 = _one_of("fp8", fp8, _FP8) if fp8 is not None else 0
    with _model(model) as handle:
        if freeze_tower:
            call("ckpt_model_freeze_tower", handle)
        if lora is not None:
            call("ckpt_model_lora", handle, encode(lora))
        info, raw = abi.ckpt_model_info(), abi.ckpt_estimate()
        lib().ckpt_model_get(handle, byref(info))
        call("ckpt_estimate", handle, byref(setup), byref(raw))
    places = {abi.CKPT_PLACE_GPU: "gpu", abi.CKPT_PLACE_HOST: "host"}
    terms = [Term(places[t.place], text(t.name), t.bytes, text(t.formula)) for t in raw.term[:raw.nterms]]
    return Estimate(info.params, raw.gpu_bytes, raw.host_bytes, text(lib().ckpt_phase_name(raw.peak)), terms,
                    raw.save.bytes, raw.save.files)


@contextlib.contextmanager
def _model(what: Any) -> Iterator[ctypes.c_void_p]:
    handle = ctypes.c_void_p()
    if isinstance(what, int):
        call("ckpt_model_from_count", what, byref(handle))
    elif isinstance(what, Checkpoint):
        call("ckpt_model_from_ckpt", what._handle, None, byref(handle))
    elif isinstance(what, str) and any(what.lower() == n for n in models()):
        call("ckpt_model_from_name", encode(what), byref(handle))
    elif not isinstance(what, (list, tuple)) and str(what).endswith(".json"):
        call("ckpt_model_from_config", encode(what), byref(handle))
    else:
        with open_checkpoint(what) as ck:
            call("ckpt_model_from_ckpt", ck._handle, None, byref(handle))
    try:
        yield handle
    finally:
        lib().ckpt_model_free(handle)


def models() -> List[str]:
    """The published models that plan() knows by name."""
    out: List[str] = []
    while (name := lib().ckpt_model_name(len(out))) is not None:
        out.append(text(name))
    return out
