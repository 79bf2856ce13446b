"""safe_open() answers as that of safetensors does, on its files and on any other checkpoint."""
import pytest

import zckpt

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors")

INDEXES = [slice(None), 0, -1, slice(1, 3), (slice(None), 1), (0, 0), (slice(0, 2), slice(1, 2)), (..., 0),
           (..., slice(1, None)), slice(0, 0), slice(-2, None), 100, (0, 0, 0, 0, 0), slice(0, 100), [0, 1],
           (0, [0, 1]), None, (None, 0), slice(None, None, 2)]


@pytest.fixture
def file(tmp_path):
    from safetensors.torch import save_file

    torch.manual_seed(1)
    tensors = {
        "a": torch.randn(5, 7, 3), "b": torch.randn(4, dtype=torch.bfloat16), "s": torch.tensor(3.5),
        "empty": torch.zeros(0, 4), "i": torch.arange(12).reshape(3, 4), "bool": torch.tensor([True, False]),
        "f8": torch.randn(8).to(torch.float8_e4m3fn), "h": torch.randn(2, 3, dtype=torch.float16),
        "c": torch.randn(3, dtype=torch.complex64), "u": torch.arange(3, dtype=torch.uint8),
    }
    save_file(tensors, tmp_path / "all.safetensors", metadata={"format": "pt", "x": "1"})
    return tmp_path / "all.safetensors"


def bits(tensor):
    return torch.cat([tensor.reshape(-1), tensor.reshape(-1)]).view(torch.uint8) if tensor.numel() else tensor.shape


def same(a, b):
    x, y = bits(a), bits(b)
    return a.shape == b.shape and a.dtype == b.dtype and (x == y if not a.numel() else torch.equal(x, y))


def answer(slices, index):
    try:
        return slices[index]
    except Exception as error:  # noqa: BLE001
        return error


def test_as_safetensors_does(file):
    with safetensors.safe_open(file, "pt") as theirs, zckpt.safe_open(file, "pt") as ours:
        assert ours.keys() == theirs.keys()
        assert ours.metadata() == theirs.metadata()
        filled = [k for k in theirs.offset_keys() if k != "empty"]
        assert [k for k in ours.offset_keys() if k != "empty"] == filled
        compared = 0
        for key in theirs.keys():
            assert same(ours.get_tensor(key), theirs.get_tensor(key)), key
            a, b = theirs.get_slice(key), ours.get_slice(key)
            assert b.get_shape() == a.get_shape() and b.get_dtype() == a.get_dtype(), key
            for index in INDEXES:
                want, got = answer(a, index), answer(b, index)
                if isinstance(want, Exception):
                    assert isinstance(got, Exception), (key, index, got)
                else:
                    assert same(got, want), (key, index, got, want)
                    compared += 1
        assert compared > 100


def test_numpy_as_safetensors_does(file):
    numpy = pytest.importorskip("numpy")
    with safetensors.safe_open(file, "np") as theirs, zckpt.safe_open(file, "np") as ours:
        for key in ("a", "s", "empty", "i", "bool", "h", "c", "u"):
            a, b = theirs.get_tensor(key), ours.get_tensor(key)
            assert a.dtype == b.dtype and a.shape == b.shape and numpy.array_equal(a, b), key


def test_names_that_are_missing(file):
    with zckpt.safe_open(file) as ours, pytest.raises(KeyError, match="zz"):
        ours.get_tensor("zz")
    with pytest.raises(FileNotFoundError):
        zckpt.safe_open(file.parent / "none.safetensors", "pt")
    with pytest.raises(zckpt.UsageError, match="tf"):
        zckpt.safe_open(file, "tf")


def test_closed_and_backend(file):
    with safetensors.safe_open(file, "pt") as theirs, zckpt.safe_open(file, "pt", backend="pread") as ours:
        want, got = {k: theirs.get_tensor(k) for k in theirs.keys()}, ours.get_tensors()
        assert sorted(got) == sorted(want) and all(same(got[k], want[k]) for k in want)
    for call in ours.keys, ours.offset_keys, ours.get_tensors, ours.metadata:
        with pytest.raises(zckpt.UsageError, match="closed"):
            call()
    with pytest.raises(zckpt.UsageError, match="shm"):
        zckpt.safe_open(file, "pt", backend="shm")


@pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="this torch has no float4")
def test_float4(tmp_path):
    from safetensors.torch import save_file

    data = torch.arange(6, dtype=torch.uint8).reshape(2, 3)
    save_file({"w": data.view(torch.float4_e2m1fn_x2)}, tmp_path / "f4.safetensors")
    with zckpt.safe_open(tmp_path / "f4.safetensors", "pt") as ours:
        for got in ours.get_tensor("w"), ours.get_tensors()["w"]:
            assert got.dtype == torch.float4_e2m1fn_x2 and torch.equal(got.view(torch.uint8), data)


def test_a_step_as_its_export(any_case, tmp_path):
    zckpt.convert(any_case / "ckpt", tmp_path / "out.safetensors", dtype="keep")
    with safetensors.safe_open(tmp_path / "out.safetensors", "pt") as export, \
            zckpt.safe_open(any_case / "ckpt", "pt") as step:
        assert set(export.keys()) <= set(step.keys())
        for key in export.keys():
            assert same(step.get_tensor(key), export.get_tensor(key)), key
        assert step.metadata()["format"] == "pt"


def test_states_and_tags(z3):
    with zckpt.safe_open(z3, "pt", tag="global_step3", state="exp_avg") as moments:
        assert moments.get_slice("emb.weight").get_dtype() == "F32"
        assert "seen" not in moments.keys()
