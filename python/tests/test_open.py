"""An open checkpoint says what it holds, and every element is that of the live training run."""
import gc
import json
import sys
import threading

import pytest

import zckpt


def test_facts_of_a_step(z3):
    with zckpt.open(z3) as ck:
        assert (ck.format, ck.stage, ck.world, ck.step, ck.tag) == ("deepspeed", 3, 2, 3, "global_step3")
        assert ck.writer == "DeepSpeed 0.19.8"
        assert ck.facts["group.0.lr"] == "0.01"
        assert "emb.weight" in ck and "nothing" not in ck and len(ck) == len(list(ck))
        assert ck.states[:1] and set(ck.states) >= {"weight", "master", "exp_avg", "exp_avg_sq"}
        assert ck.findings == [] and "stage 3" in repr(ck)


def test_names_roles_and_shapes(any_case):
    said = json.loads((any_case / "case.json").read_text())
    with zckpt.open(any_case / "ckpt") as ck:
        for p in said["params"]:
            assert ck[p["name"]].shape == tuple(p["shape"])
            assert ck[p["name"]].role == ("trainable" if p["requires_grad"] else "frozen")
            assert ck[p["name"]].group == p["group"]


def test_every_state_is_that_of_the_live_run(any_case):
    seen = 0
    with zckpt.open(any_case / "ckpt") as ck, zckpt.open(any_case / "truth.safetensors") as truth:
        for key in truth:
            name, state = key.split("|", 1)
            if state not in ("master", "exp_avg", "exp_avg_sq"):
                continue
            assert ck[name].state(state).bytes() == truth[key].bytes(), key
            seen += 1
    assert seen > 50


def test_a_slice_is_the_part_of_the_whole(z3):
    with zckpt.open(z3) as ck:
        state = ck["emb.weight"].state("master")
        rows, columns = state.shape
        whole = state.bytes()
        assert state.bytes(slice(3, 9)) == whole[3 * columns * 4:9 * columns * 4]
        assert state.bytes((7, 5)) == whole[(7 * columns + 5) * 4:][:4]
        assert state.bytes((slice(None), 2)) == b"".join(
            whole[(r * columns + 2) * 4:][:4] for r in range(rows))
        assert state.bytes((slice(None, None, -1), slice(None))) == b"".join(
            whole[r * columns * 4:][:columns * 4] for r in reversed(range(rows)))


def test_many_small_pieces_are_streamed(z3, monkeypatch):
    from zckpt import checkpoint

    with zckpt.open(z3) as ck:
        state = ck["emb.weight"].state("master")
        for index in [(slice(None), 2), (slice(None, None, 2), slice(None, None, -3)), (slice(5, 2), 0)]:
            want = state.bytes(index)
            monkeypatch.setattr(checkpoint, "MOST_RUNS", 0)
            assert state.bytes(index) == want
            monkeypatch.undo()


def test_into_memory_of_the_caller(z3):
    with zckpt.open(z3) as ck:
        state = ck["emb.weight"].state("exp_avg")
        buffer = bytearray(state.nbytes)
        state.into(buffer)
        assert buffer == state.bytes()
        part = bytearray(40)
        state.into(part, first=7, count=10)
        assert part == buffer[28:68]
        with pytest.raises(zckpt.UsageError, match="39 bytes, 10 elements of float32 take 40"):
            state.into(bytearray(39), first=7, count=10)
        with pytest.raises(zckpt.UsageError):
            state.into(bytes(state.nbytes))
        with pytest.raises(zckpt.UsageError):
            state.into(bytearray(state.nbytes), first=1)


def test_bf16_is_the_rounded_master(z3):
    with zckpt.open(z3) as ck:
        weight = ck["blocks.0.up.weight"]
        assert weight.dtype == "bfloat16" and weight.dtype == "BF16" and weight.state().derived
        assert weight.bytes() == weight.state("master").bytes(dtype="bf16")


def test_tied_names(z3):
    with zckpt.open(z3) as ck:
        tied = [n for n in ck if ck[n].role == "alias"]
        assert tied
        for name in tied:
            assert ck[name].bytes() == ck[ck[name].alias_of].bytes()
            assert ck[name].shape == ck[ck[name].alias_of].shape


def test_all_at_once_as_bytes(z3):
    with zckpt.open(z3, framework="bytes") as ck:
        everything = ck.load()
        assert set(everything) == set(ck)
        assert all(everything[n] == ck[n].bytes() == ck[n][...] for n in ck)


def test_scalars(z3):
    with zckpt.open(z3) as ck:
        scalars = [n for n in ck if ck[n].shape == ()]
        assert scalars and all(len(ck[n].bytes()) == ck[n].state().nbytes for n in scalars)


@pytest.mark.parametrize("call, error, text", [
    (lambda ck: ck["emb.weigth"], KeyError, "did you mean 'emb.weight'"),
    (lambda ck: ck["emb.weight"].state("momentum"), zckpt.UsageError, "exp_avg"),
    (lambda ck: ck["emb.weight"].bytes(99), IndexError, "99"),
    (lambda ck: ck["emb.weight"].bytes(dtype="float99"), zckpt.UsageError, "float99"),
    (lambda ck: ck["emb.weight"].bytes(dtype="int8"), zckpt.Error, "int8|conver|I8"),
    (lambda ck: ck[3], KeyError, "3"),
])
def test_wrong_names(z3, call, error, text):
    with zckpt.open(z3) as ck, pytest.raises(error, match=text):
        call(ck)


def test_a_path_that_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        zckpt.open(tmp_path / "nothing")
    assert isinstance(caught.value, zckpt.NotFoundError)
    assert caught.value.code == "NOTFOUND" and caught.value.where.endswith("nothing")
    with pytest.raises(zckpt.UsageError):
        zckpt.open("a\0b")
    with pytest.raises(zckpt.Error):
        zckpt.open([])


def test_a_damaged_file_is_a_damaged_error(copy):
    shard = next(copy.glob("global_step3/*optim_states.pt"))
    shard.write_bytes(shard.read_bytes()[:-4000])
    with pytest.raises(zckpt.DamagedError) as caught:
        with zckpt.open(copy, framework="bytes") as ck:
            ck.load()
    assert "FILE_DAMAGED" in str(caught.value) or any(f.id == "FILE_DAMAGED" for f in caught.value.findings)


def test_a_missing_rank_is_an_incomplete_error(copy):
    next(copy.glob("global_step3/*rank_1*optim_states.pt")).unlink()
    with pytest.raises(zckpt.IncompleteError) as caught:
        with zckpt.open(copy, framework="bytes") as ck:
            ck.load()
    assert any(f.id == "RANK_FILE_MISSING" for f in caught.value.findings)


def test_closed(z3):
    ck = zckpt.open(z3)
    tensor = ck["emb.weight"]
    ck.close()
    ck.close()
    with pytest.raises(zckpt.UsageError, match="closed"):
        tensor.bytes()
    assert repr(ck) == "<closed checkpoint>"


def test_files_are_closed_with_the_object(z3):
    before = len(list(__import__("pathlib").Path("/proc/self/fd").iterdir()))
    for _ in range(50):
        zckpt.open(z3)["emb.weight"].bytes()
    gc.collect()
    after = len(list(__import__("pathlib").Path("/proc/self/fd").iterdir()))
    assert after <= before + 2


def test_threads_read_at_once(z3):
    with zckpt.open(z3) as ck:
        want = {n: bytes(ck[n].bytes()) for n in ck}
        wrong = []

        def work():
            for _ in range(20):
                wrong.extend(n for n in ck if bytes(ck[n].bytes()) != want[n])

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert wrong == []


def test_import_brings_no_other_package():
    import subprocess

    code = ("import sys; sys.modules['numpy'] = sys.modules['torch'] = None; import zckpt; "
            "zckpt.open; assert 'transformers' not in sys.modules; print('fine')")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert out.stdout == "fine\n", out.stderr
