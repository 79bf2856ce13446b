"""The structs of _abi.py are those of the headers: a field at another place would be read as
another value, and nothing would say so."""
import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from zckpt import _abi

PYTHON = Path(__file__).resolve().parents[1]
INCLUDE = PYTHON.parent / "libckpt" / "include"


def structs():
    return {n: s for n, s in vars(_abi).items()
            if isinstance(s, type) and issubclass(s, ctypes.Structure) and s is not ctypes.Structure}


def test_the_file_is_what_the_headers_give():
    if not (PYTHON / "abi.py").exists() or not INCLUDE.is_dir():
        pytest.skip("the headers are not beside this package")
    subprocess.run([sys.executable, str(PYTHON / "abi.py"), "--check"], check=True)


def test_sizes_and_offsets_are_those_of_a_compiler(tmp_path):
    cc = shutil.which("cc") or shutil.which("gcc")
    if not cc or not INCLUDE.is_dir():
        pytest.skip("no C compiler, or no headers beside this package")
    lines = []
    for name, struct in structs().items():
        lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
        lines += [f'printf("{name}.{f[0]} %zu\\n", offsetof(struct {name}, {f[0]}));' for f in struct._fields_]
    source = tmp_path / "sizes.c"
    source.write_text("#include <ckpt.h>\n#include <stdio.h>\nint main(void) {\n" + "\n".join(lines) + "\n}\n")
    subprocess.run([cc, f"-I{INCLUDE}", "-o", str(tmp_path / "sizes"), str(source)], check=True)
    out = subprocess.run([str(tmp_path / "sizes")], check=True, capture_output=True, text=True).stdout
    want = dict(line.split() for line in out.splitlines())
    have = {}
    for name, struct in structs().items():
        have[name] = str(ctypes.sizeof(struct))
        have.update({f"{name}.{f[0]}": str(getattr(struct, f[0]).offset) for f in struct._fields_})
    assert len(have) > 300
    assert have == want
