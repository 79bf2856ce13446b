"""numpy arrays and torch tensors have the type, shape and bits of the checkpoint."""
import json

import pytest

import zckpt

numpy = pytest.importorskip("numpy")


def test_numpy(any_case):
    with zckpt.open(any_case / "ckpt") as ck:
        for name in ck:
            for state in ck[name].states.values():
                array = state.numpy()
                assert array.shape == ck[name].shape
                if state.dtype != "bfloat16":
                    assert array.tobytes() == bytes(state.bytes())


def test_numpy_slices(z3):
    with zckpt.open(z3) as ck:
        state = ck["blocks.0.qkv.weight"].state("master")
        whole = state.numpy()
        for index in [0, -1, slice(2, 30, 3), (slice(None), 5), (slice(None, None, -1), slice(1, 4)), (3, 4), ...,
                      (..., None), [1, 0, 2], (slice(0, 0),)]:
            assert numpy.array_equal(state[index], whole[index]), index
        assert numpy.array_equal(numpy.asarray(state), whole)
        assert len(state) == whole.shape[0]


def test_bf16_without_its_type_is_widened(z3, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with zckpt.open(z3) as ck:
        array = ck["emb.weight"].numpy()
        bits = numpy.frombuffer(bytes(ck["emb.weight"].bytes()), "<u2").astype("<u4") << 16
        assert array.dtype == numpy.float32 and array.tobytes() == bits.tobytes()
        assert ck.load(["emb.weight"])["emb.weight"].tobytes() == array.tobytes()


def test_torch(any_case):
    torch = pytest.importorskip("torch")
    said = json.loads((any_case / "case.json").read_text())
    with zckpt.open(any_case / "ckpt", framework="torch") as ck:
        for p in said["params"]:
            tensor = ck[p["name"]][...]
            assert list(tensor.shape) == p["shape"] and tensor.dtype == getattr(torch, ck[p["name"]].dtype.name)
            flat = torch.frombuffer(ck[p["name"]].bytes(), dtype=tensor.dtype)
            assert torch.equal(flat, tensor.reshape(-1))
            if p["shape"] and p["shape"][0] and "master" in ck[p["name"]].states:
                master = ck[p["name"]].state("master")
                assert torch.equal(master.torch(-1), master.torch()[-1])
            out = torch.empty_like(tensor)
            ck[p["name"]].state().into(out)
            assert torch.equal(out, tensor)


def test_load_is_what_each_tensor_gives(any_case):
    with zckpt.open(any_case / "ckpt") as ck:
        for state, dtype in (("weight", None), ("master", "float64"), ("exp_avg", None)):
            seen = []
            loaded = ck.load(state=state, dtype=dtype, progress=lambda done, total: seen.append((done, total)))
            assert loaded and seen
            for name, array in loaded.items():
                assert numpy.array_equal(array, ck[name].state(state).numpy(dtype=dtype)), name
        alias = next(n for n in ck if ck[n].role == "alias")
        both = ck.load([alias, ck[alias].alias_of])
        assert both[alias] is both[ck[alias].alias_of]


def test_load_checks_the_sums(copy):
    zckpt.reshard(copy, copy.parent / "native", to="native")
    data = next((copy.parent / "native").glob("*/*.safetensors"))
    raw = bytearray(data.read_bytes())
    raw[-100] ^= 1
    data.write_bytes(raw)
    with zckpt.open(copy.parent / "native") as ck, pytest.raises(zckpt.DamagedError):
        for state in ck.states:
            ck.load(state=state)
