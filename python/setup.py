"""Builds libckpt and the program by the Makefile of the tree, and puts both into the wheel.

    pip wheel ./python          or   python3 -m build --wheel python

The wheel is for every Python: the package loads the library with ctypes.  Its tag names the C
library that the two files need, which is read from their symbol versions.  ZCKPT_BUNDLE names a
folder that has libckpt.so and zckpt already.
"""
import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel

HERE = Path(__file__).resolve().parent
TOP = Path(os.environ.get("ZCKPT_TOP", HERE.parent))


def version():
    header = (TOP / "libckpt" / "include" / "ckpt.h").read_text()
    return re.search(r'CKPT_VERSION_STRING "(.*)"', header).group(1)


@functools.lru_cache(maxsize=None)
def bundle():
    """The folder with libckpt.so and zckpt, which need nothing but the C library."""
    given = os.environ.get("ZCKPT_BUNDLE")
    if not given:
        jobs = str(os.cpu_count() or 1)
        subprocess.run(["make", "-s", "-C", str(TOP), "-j" + jobs, "bundle"], check=True, stdout=sys.stderr)
    return Path(given) if given else TOP / "build" / "bundle"


def glibc(files):
    """The newest version of the C library's symbols that the files use, as (2, 17)."""
    newest = (2, 5)
    for path in files:
        for match in re.finditer(rb"GLIBC_(\d+)\.(\d+)", path.read_bytes()):
            newest = max(newest, (int(match.group(1)), int(match.group(2))))
    return newest


class BuildWithLibrary(build_py):
    def run(self):
        shutil.rmtree(self.build_lib, ignore_errors=True)   # files of an earlier build
        super().run()
        into = Path(self.build_lib) / "zckpt"
        (into / "lib").mkdir(parents=True, exist_ok=True)
        shutil.copy2(bundle() / "libckpt.so", into / "lib" / "libckpt.so")
        for name in ("LICENSE", "LICENSES"):            # ours, and those of the libraries within
            if (bundle() / name).exists():
                shutil.copy2(bundle() / name, into / name)


class TaggedWheel(bdist_wheel):
    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        machine = os.uname().machine
        major, minor = glibc([bundle() / "libckpt.so", bundle() / "zckpt"])
        return "py3", "none", f"manylinux_{major}_{minor}_{machine}"


class WithBinaries(Distribution):
    def has_ext_modules(self):
        return True


setup(
    version=version(),
    cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": TaggedWheel},
    distclass=WithBinaries,
    data_files=[("bin", [os.path.relpath(bundle() / "zckpt", HERE)])],
)
