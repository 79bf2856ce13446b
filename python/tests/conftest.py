"""What the tests share.

ZCKPT_FIXTURES is the folder of `make fixtures` (default: build/fixtures of the tree), and
ZCKPT_LIBRARY libckpt.so where the package is not installed from its wheel.
"""
import os
import shutil
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
FIXTURES = Path(os.environ.get("ZCKPT_FIXTURES", TOP / "build" / "fixtures"))
CASES = ("ds0.19.8-z3-bf16-w2", "ds0.19.8-z2-bf16-w8", "ds0.15.4-z3-fp32-w2", "ds0.19.8-z3-bf16-w8")


def case(name):
    folder = FIXTURES / "deepspeed" / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is missing: run 'make fixtures'")
    return folder


@pytest.fixture(params=CASES)
def any_case(request):
    return case(request.param)


@pytest.fixture
def z3():
    """A run of stage 3 on two ranks, in bf16."""
    return case(CASES[0]) / "ckpt"


@pytest.fixture
def copy(z3, tmp_path):
    """The same, to be damaged."""
    return Path(shutil.copytree(z3, tmp_path / "run"))
