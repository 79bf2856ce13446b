"""What can go wrong, as exceptions: one class for each kind of failure of libckpt.

Every exception has ``code`` (the name of the C code without its prefix, ``"CORRUPT"``), ``where``
(file or tensor, may be ``""``), ``offset`` (byte in ``where``, or None) and ``findings`` (those of
severity "error" that the checkpoint had by then).
"""
from __future__ import annotations

from typing import Any, Sequence


class Error(Exception):
    """A call of zckpt failed."""

    def __init__(self, message: str, code: str = "", where: str = "", offset: int | None = None,
                 findings: Sequence[Any] = ()):
        place = where if not where or offset is None else f"{where} at byte {offset}"
        super().__init__(f"{place}: {message}" if place else message)
        self.message, self.code, self.where, self.offset = message, code, where, offset
        self.findings = list(findings)

    def __str__(self) -> str:
        return str(self.args[0])


class SystemCallError(Error, OSError):
    """A system call failed: the disk, the network file system, permissions."""


class NoMemoryError(Error, MemoryError):
    """There is not enough memory."""


class NoSpaceError(SystemCallError):
    """The disk is full, or the result does not fit on it."""


class ExistsError(Error, FileExistsError):
    """The destination exists; ``force=True`` replaces it."""


class NotFoundError(Error, FileNotFoundError):
    """A file, a folder or a step is missing."""


class CanceledError(Error):
    """The call was stopped, by a progress callback or by Ctrl-C."""


class BusyError(Error):
    """Another process writes at the destination."""


class FormatError(Error):
    """The path is not a checkpoint of a known format."""


class DamagedError(Error):
    """Bytes are wrong: a file is cut short, contradicts itself, or does not match its sum."""


class IncompleteError(DamagedError):
    """Files of the step are missing."""


class UnsupportedError(Error):
    """The checkpoint is valid, and this library does not support it."""


class LimitError(Error):
    """A file is larger than a limit allows."""


class UnsafeError(Error):
    """A pickle asks for a refused call, or an archive holds a link or a path out of its folder."""


class UsageError(Error, ValueError):
    """An argument is wrong."""


class ExpectError(Error):
    """The result would not be what ``expect`` describes."""


_BY_CODE = {
    "IO": SystemCallError, "NOMEM": NoMemoryError, "NOSPACE": NoSpaceError, "EXISTS": ExistsError,
    "NOTFOUND": NotFoundError, "CANCELED": CanceledError, "BUSY": BusyError,
    "TRUNCATED": DamagedError, "CORRUPT": DamagedError, "MISMATCH": DamagedError,
    "INCOMPLETE": IncompleteError, "FORMAT": FormatError, "UNSUPPORTED": UnsupportedError,
    "LAYOUT": UnsupportedError, "LIMIT": LimitError, "UNSAFE": UnsafeError, "USAGE": UsageError,
    "EXPECT": ExpectError,
}


def for_code(code: str) -> type[Error]:
    """The class of a code's name."""
    return _BY_CODE.get(code, Error)
