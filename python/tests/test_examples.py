"""The examples and the README do what they say."""
import doctest
import os
import subprocess
import sys
from pathlib import Path

import pytest

import zckpt
from conftest import FIXTURES

PYTHON = Path(__file__).resolve().parents[1]


def run(name, *args):
    path = PYTHON / "examples" / name
    if not path.exists():
        pytest.skip("the examples are not beside this package")
    out = subprocess.run([sys.executable, str(path), *map(str, args)], capture_output=True, text=True,
                         env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert out.returncode == 0, out.stderr[-3000:]
    return out.stdout


def test_resume_elsewhere(z3, tmp_path):
    pytest.importorskip("torch")
    out = run("resume_elsewhere.py", z3, tmp_path / "new")
    assert "step 5" in out and "stage 2, 4 ranks" in out
    assert zckpt.verify(tmp_path / "new", full=True)


def test_trainer_callback(tmp_path):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    model = FIXTURES / "model" / "models" / "qwen25"
    if not model.is_dir():
        pytest.skip(f"{model} is missing: run 'make fixtures'")
    assert "['global_step4', 'global_step2'] hold the model" in run("trainer_callback.py", model, tmp_path / "run")


@pytest.mark.parametrize("page", ["README.md", "src/zckpt/checkpoint.py", "src/zckpt/values.py"])
def test_what_pages_show(page, z3, tmp_path, monkeypatch):
    pytest.importorskip("numpy")
    path = PYTHON / page
    if not path.exists():
        pytest.skip("the pages are not beside this package")
    monkeypatch.chdir(tmp_path)
    os.symlink(z3, "RUN")
    text = path.read_text() if path.suffix == ".md" else \
        __import__(f"zckpt.{path.stem}", fromlist=["x"]).__doc__
    test = doctest.DocTestParser().get_doctest(text, {"zckpt": zckpt, "RUN": "RUN"}, page, str(path), 0)
    assert test.examples
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(test)
    assert not result.failed
