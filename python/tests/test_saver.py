"""What a loop saves resumes with the same bits, in this library, in every layout, at any world size."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

import zckpt

torch = pytest.importorskip("torch")


SCALAR = torch.tensor(1.5)


class Model(torch.nn.Module):
    """Tied, frozen and 0-dim tensors, a buffer that is not saved, two groups."""

    def __init__(self, scale=SCALAR):
        super().__init__()
        self.emb = torch.nn.Embedding(13, 8)
        self.up, self.down = torch.nn.Linear(8, 9), torch.nn.Linear(9, 8, bias=False)
        self.head = torch.nn.Linear(8, 13, bias=False)
        self.head.weight = self.emb.weight
        self.frozen = torch.nn.Linear(3, 3).requires_grad_(False)
        self.scale = torch.nn.Parameter(scale.clone())
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("scratch", torch.ones(2), persistent=False)

    def forward(self, x):
        self.seen += 1
        return self.head(self.down(torch.relu(self.up(self.emb(x)))) * self.scale)


def adamw(model):
    trained = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW([{"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
                              {"params": [p for p in trained if p.ndim >= 2]}], lr=1e-2, betas=(0.8, 0.95))


def train(model, optimizer, steps, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x = torch.randint(0, 13, (4, 5), generator=generator)
        loss = torch.nn.functional.cross_entropy(model(x).view(-1, 13), x.view(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def begun(seed=0, **options):
    torch.manual_seed(seed)
    model = Model(**options)
    return model, adamw(model)


def resumed(path):
    model = Model()
    optimizer = torch.optim.AdamW([{"params": [p for p in model.parameters() if p.requires_grad and p.ndim < 2]},
                                   {"params": [p for p in model.parameters() if p.requires_grad and p.ndim >= 2]}])
    did = zckpt.load_into(model, path, optimizer=optimizer)
    assert not did.missing and not did.unexpected and did.step == 3
    return model, optimizer


@pytest.mark.parametrize("layout", [
    {"to": "native"}, {"to": "deepspeed", "stage": 1, "layout_world": 2},
    {"to": "deepspeed", "stage": 3, "layout_world": 5}, {"to": "deepspeed", "stage": 2}, {"to": "universal"},
])
def test_a_run_resumes_with_the_same_bits(tmp_path, layout):
    model, optimizer = begun()
    train(model, optimizer, 3, seed=1)
    with zckpt.Saver(tmp_path / "run") as saver:
        saver.save(model, optimizer, 3, samples=60, client={"epoch": 1}, **layout)
    assert zckpt.verify(tmp_path / "run", full=True)
    other, its = resumed(tmp_path / "run")
    assert train(other, its, 3, seed=2) == train(model, optimizer, 3, seed=2)
    for (name, a), b in zip(model.state_dict().items(), other.state_dict().values()):
        assert torch.equal(a, b), name
    assert "scratch" not in zckpt.open(tmp_path / "run")


def test_weights_for_transformers(tmp_path):
    from safetensors.torch import load_file

    model, optimizer = begun()
    with zckpt.Saver(tmp_path) as saver:
        saver.save(model, optimizer, 3, to="huggingface", tag="export")
    weights = load_file(tmp_path / "export" / "model.safetensors")
    for name, value in model.state_dict().items():
        assert name == "head.weight" or torch.equal(weights[name], value), name


def test_saves_follow_each_other(tmp_path):
    model, optimizer = begun()
    with zckpt.Saver(tmp_path / "run") as saver:
        for step in (1, 2, 3):
            train(model, optimizer, 1, seed=step)
            saver.save(model, optimizer, step)
        saver.wait()
        with pytest.raises(zckpt.ExistsError):
            saver.save(model, optimizer, 3)
        saver.save(model, optimizer, 3, force=True, wait=True)
    assert [s.step for s in zckpt.steps(tmp_path / "run") if s.complete] == [3, 2, 1]
    with pytest.raises(zckpt.UsageError, match="closed"):
        saver.save(model, optimizer, 4)


def test_a_failed_save_leaves_nothing(tmp_path):
    model, optimizer = begun()
    with zckpt.Saver(tmp_path / "run") as saver:
        with pytest.raises(zckpt.UsageError, match="shape"):
            saver.save(model, optimizer, 3, masters={"up.weight": torch.zeros(2, 2)})
        with pytest.raises(zckpt.UsageError, match="JSON"):
            saver.save(model, optimizer, 4, client={"x": object()})
        saver.save(model, optimizer, 5)
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["global_step5", "latest"]


def test_16_bit_parameters_with_masters(tmp_path):
    model, optimizer = begun()
    train(model, optimizer, 2, seed=4)
    masters = {n: p.detach().clone() for n, p in model.named_parameters()}
    half = Model().to(torch.bfloat16)
    half.load_state_dict({n: v.to(torch.bfloat16) if v.is_floating_point() else v
                          for n, v in model.state_dict().items()})
    its = adamw(half)
    with zckpt.Saver(tmp_path / "run") as saver:
        saver.save(half, its, 3, masters=masters)
    with zckpt.open(tmp_path / "run", framework="torch") as ck:
        assert torch.equal(ck["up.weight"].state("master")[...], masters["up.weight"])
        assert torch.equal(ck["up.weight"][...], half.up.weight)
        assert ck["up.weight"].dtype == "bfloat16"
    again = Model().to(torch.bfloat16)
    zckpt.load_into(again, tmp_path / "run")
    assert all(torch.equal(a, b) for a, b in zip(again.state_dict().values(), half.state_dict().values()))


def test_load_into_refuses_other_models(tmp_path):
    model, optimizer = begun()
    with zckpt.Saver(tmp_path / "run") as saver:
        saver.save(model, optimizer, 3)
    with pytest.raises(zckpt.UsageError, match="did you mean|missing"):
        zckpt.load_into({"up.wieght": torch.zeros(9, 8)}, tmp_path / "run")
    with pytest.raises(zckpt.DamagedError, match="shape"):
        zckpt.load_into({"up.weight": torch.zeros(3, 3)}, tmp_path / "run", strict=False)
    part = {"up.weight": torch.zeros(9, 8)}
    did = zckpt.load_into(part, tmp_path / "run", strict=False)
    assert did.tensors == 1 and torch.equal(part["up.weight"], model.up.weight)


@pytest.mark.parametrize("world", [2, 5, 7])
def test_flat_parts_of_ranks(tmp_path, world):
    model, optimizer = begun()
    with zckpt.Saver(tmp_path / "run") as saver:
        saver.save(model, optimizer, 3)
    each = -(-model.up.weight.numel() // world)
    parts = []
    for rank in range(world):
        mine = {"up.weight": torch.full((each,), 9.0)}
        zckpt.load_into(mine, tmp_path / "run", rank=rank, world=world, strict=False)
        parts.append(mine["up.weight"])
    whole = torch.cat(parts)
    assert torch.equal(whole[:model.up.weight.numel()], model.up.weight.flatten())
    assert not whole[model.up.weight.numel():].any()


RANK = '''
import os, sys, torch
sys.path[:0] = [{tests!r}]
import torch.distributed as dist
from test_saver import Model, adamw, begun, resumed, train
import zckpt
rank, world, root, kind = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), {root!r}, {kind!r}
dist.init_process_group("gloo")
options = dict(scale=torch.tensor([1.5])) if kind == "fsdp2" else dict()    # it takes no scalars
model, optimizer = begun(**options)
if kind == "fsdp2":
    from torch.distributed.fsdp import fully_shard
    fully_shard(model)
    optimizer = adamw(model)
train(model, optimizer, 3, seed=1)
with zckpt.Saver(root, rank=rank, world=world, job="job") as saver:
    saver.save(model, optimizer, 3)
dist.barrier()
other, _ = begun(1, **options)
if kind == "fsdp2":
    fully_shard(other)
its = adamw(other)
zckpt.load_into(other, root, optimizer=its)
assert train(other, its, 2, seed=5) == train(model, optimizer, 2, seed=5)
print("rank", rank, "resumed", flush=True)
dist.barrier()
os._exit(0)
'''


@pytest.mark.parametrize("kind, world", [("ddp", 2), ("fsdp2", 3)])
def test_ranks_save_together(tmp_path, kind, world):
    if kind == "fsdp2" and not hasattr(__import__("torch.distributed.fsdp", fromlist=["x"]), "fully_shard"):
        pytest.skip("this torch has no fully_shard")
    root = tmp_path / "run"
    code = RANK.format(tests=str(Path(__file__).parent), root=str(root), kind=kind)
    script = tmp_path / "rank.py"
    script.write_text(code)
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    out = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(world),
                          "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", str(script)],
                         capture_output=True, text=True, env=env, timeout=300)
    assert out.stdout.count("resumed") == world, out.stdout + out.stderr
    model, optimizer = begun()
    train(model, optimizer, 3, seed=1)
    with zckpt.open(root, framework="torch") as ck:
        assert ck.world == world
        for name, value in model.state_dict().items():
            assert torch.allclose(ck[name][...].reshape(value.shape), value, atol=1e-6), name
