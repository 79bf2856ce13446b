"""The calls of safetensors' safe_open, on every checkpoint that zckpt reads.

    with zckpt.safe_open(RUN, framework="pt") as f:
        for name in f.keys():
            tensor = f.get_tensor(name)

What is read is the model's weights, in the type that the model computes with; ``state="master"``
gives the fp32 masters, ``state="exp_avg"`` a moment.
"""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from . import _abi as abi
from ._native import call
from .checkpoint import Checkpoint, Path, State, Tensor
from .errors import UsageError

_FRAMEWORKS = {"pt": "torch", "torch": "torch", "pytorch": "torch", "np": "numpy", "numpy": "numpy"}
_BACKENDS = (None, "mmap", "pread")


class Slice:
    """A tensor of which parts are read: ``f.get_slice(name)[0:2]``."""

    def __init__(self, state: State, framework: str, device: Any):
        self._state, self._framework, self._device = state, framework, device

    def get_shape(self) -> List[int]:
        return list(self._state.shape)

    def get_dtype(self) -> str:
        """As safetensors spells it: "BF16"."""
        return self._state.dtype.code

    def __getitem__(self, index: Any) -> Any:
        if self._framework == "numpy":
            return self._state.numpy(index)
        return self._state.torch(index, device=self._device)

    def __len__(self) -> int:
        return len(self._state)


class safe_open:  # noqa: N801
    """``framework`` is "pt" or "np"; ``device`` is where torch tensors go, as in safetensors.

    ``backend`` is accepted as safetensors has it ("mmap", "pread"), and changes nothing: no file is
    mapped.  Also: ``tag`` of the step, ``state`` (default: the weights), and what open() accepts.
    """

    def __init__(self, filename: Union[Path, Sequence[Path]], framework: str = "pt",
                 device: Any = "cpu", backend: Optional[str] = None, *, tag: Optional[str] = None,
                 state: str = "weight", **options: Any):
        if framework not in _FRAMEWORKS:
            raise UsageError(f"framework is {framework!r}; 'pt' and 'np' are supported", "USAGE")
        if backend not in _BACKENDS:
            raise UsageError(f"backend is {backend!r}; 'mmap' and 'pread' are supported", "USAGE")
        self._framework = _FRAMEWORKS[framework]
        if isinstance(device, int):
            device = f"cuda:{device}"
        self._device = None if str(device) == "cpu" or self._framework == "numpy" else device
        self._state = state
        paths = [filename] if isinstance(filename, (str, bytes)) or hasattr(filename, "__fspath__") \
            else list(filename)
        self._checkpoint = Checkpoint(paths, tag=tag, framework=self._framework, **options)
        self._names = [n for n in self._checkpoint if self._has(self._checkpoint[n])]

    def _has(self, tensor: Tensor) -> bool:
        return self._state in tensor.states

    def __enter__(self) -> "safe_open":
        return self

    def __exit__(self, *_: Any) -> None:
        self._checkpoint.close()

    def keys(self) -> List[str]:
        """All names, sorted."""
        return sorted(self._all())

    def offset_keys(self) -> List[str]:
        """All names in the order of their bytes in the files."""
        return sorted(self._all(), key=self._place)

    def _all(self) -> List[str]:
        assert self._checkpoint._handle, "a closed checkpoint raises here"
        return self._names

    def _place(self, name: str) -> Tuple[str, int, str]:
        state, raw = self._find(name), abi.ckpt_extent_info()
        if not state.numel or state.derived:
            return "", 0, name
        call("ckpt_extent_get", self._checkpoint._handle, state.tensor._number, state._number, 0, raw)
        return (raw.path or b"").decode("utf-8", "surrogateescape"), raw.offset, name

    def _find(self, name: str) -> State:
        return self._checkpoint[name].state(self._state)

    def get_tensor(self, name: str) -> Any:
        return self.get_slice(name)[...]

    def get_tensors(self) -> Dict[str, Any]:
        """All tensors by name, read together on several threads."""
        return self._checkpoint.load(self.offset_keys(), state=self._state, device=self._device)

    def get_slice(self, name: str) -> Slice:
        return Slice(self._find(name), self._framework, self._device)

    def metadata(self) -> Optional[Dict[str, str]]:
        """Of a .safetensors file its own metadata; of any other checkpoint facts about the step."""
        facts = self._checkpoint.facts
        own = {k[len("metadata."):]: v for k, v in facts.items() if k.startswith("metadata.")}
        if own or self._checkpoint.format in ("safetensors", "huggingface"):
            return own or None
        return {"format": "pt", **facts}
