"""The functions do what the commands do, say what they did, and stop without leaving anything."""
import os
import signal
import subprocess
import sys
import time

import pytest

import zckpt


def test_convert_and_diff(any_case, tmp_path):
    report = zckpt.convert(any_case / "ckpt", tmp_path / "w.safetensors", digest=True)
    assert report.tensors and report.written_bytes == (tmp_path / "w.safetensors").stat().st_size
    assert report.files[0].path == str(tmp_path / "w.safetensors") and report.digests
    answer = zckpt.diff(any_case / "ckpt", tmp_path / "w.safetensors")
    assert answer and answer.same and answer.compared and not answer.differing
    with zckpt.open(tmp_path / "w.safetensors") as out, zckpt.open(any_case / "truth.safetensors") as truth:
        masters = [n for n in out if f"{n}|master" in truth]
        assert masters
        for name in masters:
            assert out[name].bytes() == truth[f"{name}|master"].bytes()


def test_convert_takes_options(z3, tmp_path):
    out = tmp_path / "folder"
    zckpt.convert(z3, out, dtype="bf16", include="blocks.*", exclude=["*.bias"], rename={"blocks.": "layers."})
    with zckpt.open(out) as ck:
        assert list(ck) and all(n.startswith("layers.") and not n.endswith(".bias") for n in ck)
        assert {ck[n].dtype.name for n in ck} == {"bfloat16"}
    with pytest.raises(FileExistsError) as caught:
        zckpt.convert(z3, out)
    assert "force=True" in str(caught.value)
    zckpt.convert(z3, out, force=True, only="trainable")
    states = zckpt.convert(z3, tmp_path / "states", states="all")
    assert {os.path.basename(f.path) for f in states.files} >= {"exp_avg.safetensors", "master.safetensors"}


def test_dry_run_writes_nothing(z3, tmp_path):
    report = zckpt.convert(z3, tmp_path / "w.safetensors", dry_run=True)
    assert report.files[0].bytes and list(tmp_path.iterdir()) == []


def test_training_files_take_a_type_and_names(tmp_path):
    from conftest import FIXTURES

    path = FIXTURES / "honest" / "torch" / "groups.pt"
    names = [f"{n}\n" for n in ("embed.weight", "block.0.weight", "block.1.weight", "block.0.bias", "block.1.bias",
                                "norm.weight", "norm.bias")]
    order = tmp_path / "order"
    order.write_text("".join(names))
    zckpt.reshard(path, tmp_path / "run", 2, stage=2, dtype="fp16", order=order)
    weight = zckpt.open(tmp_path / "run")["block.0.weight"]
    assert "16" in str(weight.state().dtype) and "32" in str(weight.state("master").dtype)
    order.write_text("".join(names[1:]))
    for options in ({"order": order}, {"frozen": "embed.weight"}, {"buffers": ["norm.*"]}):
        with pytest.raises(zckpt.Error):
            zckpt.reshard(path, tmp_path / "bad", 2, **options)
    with zckpt.open(path) as ck, pytest.raises(zckpt.UsageError):
        zckpt.reshard(ck, tmp_path / "bad", 2, order=order)
    assert not (tmp_path / "bad").exists()


def test_reshard_keeps_every_bit(any_case, tmp_path):
    before = zckpt.digest(any_case / "ckpt")
    assert before.lines
    for number, options in enumerate([{"world": 3}, {"stage": 2}, {"world": 1, "to": "native"},
                                      {"to": "universal"}, {"world": 4, "stage": 3, "new_tag": "other"}]):
        dst = tmp_path / str(number)
        zckpt.reshard(any_case / "ckpt", dst, **options)
        assert zckpt.digest(dst).root == before.root, options
        assert zckpt.verify(dst, full=True)
    assert zckpt.open(tmp_path / "0").world == 3 and zckpt.open(tmp_path / "1").stage == 2
    assert zckpt.open(tmp_path / "4").tag == "other"


def test_differences_are_named(copy, tmp_path):
    zckpt.convert(copy, tmp_path / "a.safetensors")
    zckpt.convert(copy, tmp_path / "b.safetensors", sums=False)
    raw = bytearray((tmp_path / "b.safetensors").read_bytes())
    raw[-1] ^= 0x40
    (tmp_path / "b.safetensors").write_bytes(raw)
    answer = zckpt.diff(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    assert not answer and answer.differing == 1
    worst = answer.rows[0]
    assert worst.what == "values" and worst.differ == 1 and worst.differs


def test_verify_finds_a_flipped_bit(copy):
    assert zckpt.verify(copy) and zckpt.verify(copy, full=True).ok
    shard = next(copy.glob("global_step3/*optim_states.pt"))
    raw = bytearray(shard.read_bytes())
    with zckpt.open(copy) as ck:
        place = bytes(ck["emb.weight"].state("exp_avg").bytes((0, slice(0, 4))))
    raw[raw.index(place)] ^= 1
    shard.write_bytes(raw)
    answer = zckpt.verify(copy, full=True)
    assert not answer and [f for f in answer.findings if f.severity == "error"]


def test_an_open_checkpoint_is_a_source(z3, tmp_path):
    with zckpt.open(z3) as ck:
        assert zckpt.verify(ck).ok
        assert zckpt.diff(ck, ck).same
        zckpt.convert(ck, tmp_path / "w.pt")
        assert zckpt.digest(ck, states="master").root == zckpt.digest(z3, states=["master"]).root
        with pytest.raises(zckpt.UsageError):
            zckpt.convert(ck, tmp_path / "v.pt", tag="other")


def test_shard_begins_a_run(tmp_path):
    from conftest import FIXTURES

    model = FIXTURES / "model" / "models" / "qwen25"
    if not model.is_dir():
        pytest.skip(f"{model} is missing: run 'make fixtures'")
    zckpt.shard(model, tmp_path / "run", 2, stage=3, lr=1e-5, groups="decay")
    with zckpt.open(tmp_path / "run") as ck:
        assert (ck.stage, ck.world, ck.step) == (3, 2, 0)
        assert float(ck.facts["group.0.lr"]) == 1e-5
    assert zckpt.diff(model, tmp_path / "run", scalars=False)


def test_steps(copy):
    (one,) = zckpt.steps(copy)
    assert one.complete and one.latest and one.chosen and one.step == 3
    next(copy.glob("global_step3/*rank_1*optim_states.pt")).unlink()
    (one,) = zckpt.steps(copy)
    assert not one.complete and one.why and not one.chosen


def test_plan():
    small, large = zckpt.plan("qwen2.5-7b", 8, stage=3), zckpt.plan("qwen2.5-7b", 8, stage=0)
    assert small.parameters == 7615616512 and small.gpu_bytes < large.gpu_bytes
    assert sum(t.bytes for t in large.terms) >= large.gpu_bytes
    assert zckpt.plan("qwen2.5-7b", 8, stage=3, offload="params").host_bytes > 0
    with pytest.raises(zckpt.UsageError, match="offload"):
        zckpt.plan("qwen2.5-7b", 8, offload="disk")


def test_plan_of_adapters():
    whole = zckpt.plan("qwen3-8b", 1, micro_batch=2, sequence=4096)
    few = zckpt.plan("qwen3-8b", 1, micro_batch=2, sequence=4096, lora="r=16,target=q_proj+v_proj")
    more = zckpt.plan("qwen3-8b", 1, micro_batch=2, sequence=4096, lora="r=16,target=all-linear")
    assert few.parameters - whole.parameters == 36 * 16 * (2 * 4096 + 4096 + 1024)
    assert few.parameters < more.parameters and few.gpu_bytes < more.gpu_bytes < whole.gpu_bytes
    for text in "r=0", "r=16,target=nothing", "16":
        with pytest.raises(zckpt.UsageError):
            zckpt.plan("qwen3-8b", 1, lora=text)
    with pytest.raises(zckpt.UsageError, match="tower"):
        zckpt.plan("qwen3-8b", 1, freeze_tower=True)


def test_plan_of_fp8():
    plain = zckpt.plan("qwen3-8b", 2, engine="ztrain", stage=2)
    eight = zckpt.plan("qwen3-8b", 2, engine="ztrain", stage=2, fp8="tensorwise")
    assert len(eight.terms) == len(plain.terms) + 1 and eight.gpu_bytes == plain.gpu_bytes
    assert any("fp8" in t.name for t in eight.terms)
    for options, text in ({"fp8": "rowwise", "engine": "ztrain"}, "fp8"), ({"fp8": "tensorwise"}, "engine"):
        with pytest.raises(zckpt.UsageError, match=text):
            zckpt.plan("qwen3-8b", 2, **options)


@pytest.mark.parametrize("options, text", [
    ({"dtype": "int3"}, "int3"), ({"only": "weights"}, "trainable"), ({"tied": "no"}, "alias"),
    ({"states": ["nothing"]}, "nothing"), ({"include": "nothing*"}, "selected|matches|tensor"), ({"sync": "maybe"}, "sync"),
    ({"tag": "global_step9"}, "global_step9"),
])
def test_wrong_options(z3, tmp_path, options, text):
    with pytest.raises(zckpt.Error, match=text):
        zckpt.convert(z3, tmp_path / "w.safetensors", **options)
    assert list(tmp_path.iterdir()) == []


def large(folder):
    """Weights of 256 MB, long enough to be stopped."""
    import json
    import struct

    n = 64 << 20
    head = json.dumps({"w": {"dtype": "F32", "shape": [n], "data_offsets": [0, 4 * n]}}).encode()
    with open(folder / "large.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        file.truncate(8 + len(head) + 4 * n)
    return folder / "large.safetensors"


def test_an_exception_of_progress_stops_the_call(tmp_path):
    src = large(tmp_path)

    def progress(done, total):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        zckpt.convert(src, tmp_path / "out.safetensors", dtype="bf16", progress=progress, threads=1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["large.safetensors"]


def test_ctrl_c_stops_the_call(tmp_path):
    src = large(tmp_path)
    code = ("import sys, zckpt\n"
            "def progress(done, total):\n"
            "    print('running', flush=True)\n"
            "    import time; time.sleep(0.3)\n"
            f"try:\n    zckpt.convert({str(src)!r}, {str(tmp_path / 'out.safetensors')!r}, dtype='bf16',\n"
            "                  progress=progress, threads=1)\n"
            "except KeyboardInterrupt:\n    print('interrupted', flush=True)\n")
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "running\n"
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert out.splitlines()[-1] == "interrupted" and child.returncode == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["large.safetensors"]


def test_other_threads_run_meanwhile(tmp_path):
    import threading

    src, counted, stop = large(tmp_path), [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        at = []
        zckpt.convert(src, tmp_path / "out.safetensors", dtype="bf16", progress=lambda d, t: at.append(counted[0]))
    finally:
        stop.set()
        thread.join()
    assert counted[0] > 0 and at[-1] > at[0]


def lora_case(tmp_path):
    """A LoRA run under PEFT's names, and its base."""
    from conftest import case
    run = case("ds0.19.8-z3-bf16-w2-lora") / "ckpt"
    zckpt.convert(run, tmp_path / "run.safetensors", tied="drop", rename={
        "blocks": "base_model.model.blocks", "lora_A": "lora_A.default.weight",
        "lora_B": "lora_B.default.weight", ".base.": ".base_layer."})
    zckpt.convert(run, tmp_path / "base.safetensors", tied="drop", only="frozen", rename={".base.": "."},
                  dtype="fp32")
    return tmp_path / "run.safetensors", tmp_path / "base.safetensors"


def test_adapter_for_peft(tmp_path):
    run, _ = lora_case(tmp_path)
    with pytest.raises(zckpt.UsageError, match="lora-alpha"):
        zckpt.convert(run, tmp_path / "no", to="peft", include="*lora*")
    report = zckpt.convert(run, tmp_path / "out", to="peft", lora_alpha=6, include="*lora*")
    assert report.tensors == 8 and sorted(os.listdir(tmp_path / "out")) == [
        "adapter_config.json", "adapter_model.safetensors"]
    with pytest.raises(zckpt.UsageError, match="to is 'lora'"):
        zckpt.convert(run, tmp_path / "no", to="lora")
    with pytest.raises(zckpt.UsageError, match="to='peft'"):
        zckpt.convert(run, tmp_path / "no", lora_alpha=6)


def test_merge_lora(tmp_path):
    run, base = lora_case(tmp_path)
    zckpt.convert(run, tmp_path / "out", to="peft", lora_alpha=6, include="*lora*")
    report = zckpt.merge_lora(base, tmp_path / "out", tmp_path / "m.safetensors")
    assert report.merged == 4
    name, module = "blocks.1.up.weight", "base_model.model.blocks.1.up.lora_%s.weight"
    with zckpt.open(base) as w, zckpt.open(tmp_path / "out") as ab, zckpt.open(tmp_path / "m.safetensors") as m:
        old, new = (memoryview(x[name].bytes()).cast("f") for x in (w, m))
        a, b = (memoryview(ab[module % x].bytes()).cast("f") for x in "AB")
        r, columns = ab[module % "A"].shape
        for i in range(len(old)):
            more = sum(b[i // columns * r + k] * a[k * columns + i % columns] for k in range(r)) * 6 / r
            assert abs(new[i] - (old[i] + more)) <= 1e-6 * (abs(old[i]) + abs(more))
        assert any(o != n for o, n in zip(old, new))
    with zckpt.open(base) as one, pytest.raises(zckpt.UsageError, match="one open checkpoint"):
        zckpt.merge_lora(one, one, tmp_path / "no")
