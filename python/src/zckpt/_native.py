"""Loads libckpt and calls it: text, errors, progress and Ctrl-C.

A ctypes call releases the GIL, but Python's signal handlers wait until it returns.  So a call that
may take long runs in a thread, and the caller waits for it: Ctrl-C sets the cancel flag that the
library reads, waits until the library has cleaned up, and then raises KeyboardInterrupt.
"""
from __future__ import annotations

import _thread
import contextlib
import ctypes
import os
import threading
from ctypes import byref
from pathlib import Path
from typing import Any, Callable, Iterable, Optional

from . import _abi as abi
from . import errors

Progress = Optional[Callable[[int, int], Any]]

_lib: ctypes.CDLL | None = None
_lock = threading.Lock()


def _candidates() -> Iterable[str]:
    if os.environ.get("ZCKPT_LIBRARY"):
        yield os.environ["ZCKPT_LIBRARY"]
        return
    beside = Path(__file__).resolve().parent / "lib" / "libckpt.so"
    if beside.exists():
        yield str(beside)
    yield "libckpt.so.0"


def lib() -> ctypes.CDLL:
    """The library, loaded at the first call."""
    global _lib
    if _lib is not None:
        return _lib
    with _lock:
        if _lib is None:
            _lib = _load()
    return _lib


def _load() -> ctypes.CDLL:
    tried = []
    for path in _candidates():
        try:
            dll = ctypes.CDLL(path)
        except OSError as why:
            tried.append(str(why))
            continue
        dll.ckpt_version.restype = ctypes.c_char_p
        version = dll.ckpt_version().decode()
        if version.split(".")[:2] != abi.CKPT_VERSION_STRING.split(".")[:2]:
            raise ImportError(f"{path} is libckpt {version}, and this package is made for "
                              f"{abi.CKPT_VERSION_STRING}; install both from one release")
        for name, (result, arguments) in abi.FUNCTIONS.items():
            function = getattr(dll, name)
            function.restype, function.argtypes = result, arguments
        return dll
    raise ImportError("libckpt was not found: " + "; ".join(tried) +
                      ". Install the wheel, or set ZCKPT_LIBRARY to the path of libckpt.so")


def text(value: bytes | None) -> str:
    """Text of the library: UTF-8, other bytes as os.fsdecode() keeps them."""
    return "" if value is None else value.decode("utf-8", "surrogateescape")


def encode(value: str | os.PathLike[str] | bytes) -> bytes:
    """A path, name or pattern for the library."""
    raw = os.fspath(value)
    data = raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogateescape")
    if b"\0" in data:
        raise errors.UsageError("a path or name contains a NUL character", "USAGE")
    return data


def strings(values: Iterable[str] | None) -> Any:
    """A NULL-terminated array of strings; None for none."""
    if values is None:
        return None
    if isinstance(values, str):
        values = [values]
    items: list[bytes | None] = [encode(v) for v in values]
    return (ctypes.c_char_p * (len(items) + 1))(*items, None) if items else None


def rules(pairs: dict[str, str] | None) -> Any:
    """An array of struct ckpt_rule that ends with an empty one; None for none."""
    if not pairs:
        return None
    array = (abi.ckpt_rule * (len(pairs) + 1))()
    for slot, (pattern, value) in zip(array, pairs.items()):
        slot.pattern, slot.value = encode(pattern), encode(value)
    return array


def sized(struct: type, **fields: Any) -> Any:
    """An option struct with its own size in it."""
    return struct(size=ctypes.sizeof(struct), **fields)


def error(err: abi.ckpt_err, findings: Iterable[Any] = ()) -> errors.Error:
    """The exception for a filled struct ckpt_err."""
    code = text(lib().ckpt_code_name(err.code)).replace("CKPT_E_", "", 1)
    offset = None if err.offset == abi.CKPT_NO_OFFSET else err.offset
    message = text(err.msg).replace("--force", "force=True")
    return errors.for_code(code)(message, code, text(err.where), offset, list(findings))


def call(name: str, *args: Any, findings: Callable[[], Iterable[Any]] | None = None) -> None:
    """Call a function whose last argument is 'err'; raise what it reports."""
    err = abi.ckpt_err()
    if getattr(lib(), name)(*args, byref(err)):
        raise error(err, findings() if findings else ())


class Run:
    """Options of a call that moves bytes, and the call itself, which Ctrl-C can stop."""

    def __init__(self, threads: int = 0, mem_limit: int = 0, sync: str = "data",
                 progress: Progress = None, keep_bytes: int = 0):
        kinds = {"data": abi.CKPT_SYNC_DATA, "full": abi.CKPT_SYNC_FULL, "none": abi.CKPT_SYNC_NONE}
        if sync not in kinds:
            raise errors.UsageError(f"sync is {sync!r}; it must be one of {', '.join(kinds)}", "USAGE")
        self._stop = ctypes.c_int(0)
        self._progress = progress
        self._failure: BaseException | None = None
        self._callback = abi.ckpt_progress_fn(self._called) if progress else abi.ckpt_progress_fn()
        self.opts = sized(abi.ckpt_run_opts, threads=threads, mem_limit=mem_limit, sync=kinds[sync],
                          cancel=ctypes.pointer(self._stop), progress=self._callback,
                          keep_bytes=keep_bytes)

    @property
    def pointer(self) -> Any:
        return ctypes.pointer(self.opts)

    def _called(self, _arg: Any, at: Any) -> None:
        # An exception cannot pass through C: it stops the call and is raised after it.
        if self._failure is not None or self._progress is None:
            return
        try:
            self._progress(at[0].done_bytes, at[0].total_bytes)
        except BaseException as failure:  # noqa: BLE001
            self._failure = failure
            self._stop.value = 1

    def call(self, name: str, *args: Any, findings: Callable[[], Iterable[Any]] | None = None) -> None:
        """As call(), in a thread of its own."""
        err = abi.ckpt_err()
        function = getattr(lib(), name)
        result: list[int] = []
        done, claim = threading.Event(), threading.Lock()

        def work() -> None:
            if claim.acquire(blocking=False):
                try:
                    result.append(function(*args, byref(err)))
                finally:
                    done.set()

        stopped: BaseException | None = None
        try:
            _thread.start_new_thread(work, ())
            done.wait()
        except KeyboardInterrupt as interrupt:
            self._stop.value = 1
            if claim.acquire(blocking=False):   # the thread has not begun, and never will
                raise
            stopped = interrupt
        while not done.is_set():
            with contextlib.suppress(KeyboardInterrupt):
                done.wait()
        if stopped is not None:
            raise stopped
        if self._failure is not None:
            raise self._failure
        if not result:
            raise errors.Error(f"{name} did not return")
        if result[0]:
            raise error(err, findings() if findings else ())
