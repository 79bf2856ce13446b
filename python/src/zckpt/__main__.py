"""python -m zckpt: the program of this package's wheel, else the one on PATH."""
from __future__ import annotations

import os
import shutil
import sys
from importlib import metadata


def program() -> str:
    """The path of the program; exits with a message if there is none."""
    try:
        files = metadata.files("zckpt") or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "zckpt" and file.parent.name == "bin":
            path = os.path.realpath(str(file.locate()))
            if os.access(path, os.X_OK):
                return path
    found = shutil.which("zckpt")
    if not found:
        sys.exit("zckpt: this package was installed without the program, and PATH has none")
    return found


def main() -> None:
    path = program()
    os.execv(path, ["zckpt", *sys.argv[1:]])


if __name__ == "__main__":
    main()
