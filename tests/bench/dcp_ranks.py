"""usage: torchrun --nproc-per-node N dcp_ranks.py CONFIG.json FOLDER THREADS

The peer of saves in training: PyTorch's Distributed Checkpoint of what FSDP2 would hold of a Hugging
Face model: fp32 parameters and two moments of each as DTensors, cut by rows over the ranks, on GPUs or,
where there are none, in memory (gloo).  Into FOLDER (which is made, and removed), unsynced, with
THREADS of each rank that write.  Rank 0 prints

    bytes save async-stall async-total load

in seconds: of save(); what async_save() takes from the caller, with pinned staging, the second time
(the first one takes the pinned memory) and until it has ended; of load() into tensors that are there.
What was loaded is compared with what was saved.
"""
import json
import os
import shutil
import sys
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

warnings.filterwarnings("ignore")
config, folder, threads = json.load(open(sys.argv[1])), sys.argv[2], int(sys.argv[3])
cuda = torch.cuda.is_available()
if cuda:
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
device = "cuda" if cuda else "cpu"
mesh = init_device_mesh(device, (world,))


def shapes():
    h, i, v = (config[k] for k in ("hidden_size", "intermediate_size", "vocab_size"))
    d = config.get("head_dim") or h // config["num_attention_heads"]
    q, kv = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    yield "embed", (v, h)
    for layer in range(config["num_hidden_layers"]):
        for name, shape in (("q", (q, h)), ("k", (kv, h)), ("v", (kv, h)), ("o", (h, q)), ("gate", (i, h)),
                            ("up", (i, h)), ("down", (h, i)), ("norm1", (h,)), ("norm2", (h,))):
            yield f"layers.{layer}.{name}", shape
    yield "norm", (h,)
    if not config.get("tie_word_embeddings"):
        yield "head", (v, h)


def fill(tensor, number):
    """Other numbers in each tensor, that are known again."""
    local = tensor.to_local()
    local.copy_(torch.arange(local.numel(), dtype=torch.float32, device=device).view_as(local).add_(number))


def cut(shape):
    rows = (shape[0] + world - 1) // world
    mine = max(0, min(rows, shape[0] - rank * rows))
    return torch.empty((mine, *shape[1:]), dtype=torch.float32, device=device)


def settle():
    if cuda:
        torch.cuda.synchronize()
    dist.barrier()


def timed(call):
    settle()
    began = time.perf_counter()
    result = call()
    if cuda:
        torch.cuda.synchronize()
    own = time.perf_counter() - began
    dist.barrier()
    return time.perf_counter() - began, own, result


def writer(**more):
    return dcp.FileSystemWriter(folder, thread_count=threads, sync_files=False, **more)


def fresh():
    dist.barrier()
    if not rank:
        shutil.rmtree(folder, ignore_errors=True)
    dist.barrier()


state = {}
for name, shape in shapes():
    for kind in ("master", "exp_avg", "exp_avg_sq"):
        state[f"{kind}.{name}"] = DTensor.from_local(cut(shape), mesh, [Shard(0)], run_check=False,
                                                     shape=torch.Size(shape), stride=torch.empty(shape, device="meta").stride())
for number, tensor in enumerate(state.values()):
    fill(tensor, number)
size = sum(t.numel() for t in state.values()) * 4

fresh()
saved, _, _ = timed(lambda: dcp.save(state, storage_writer=writer()))
stall = total = float("nan")
behind = writer(cache_staged_state_dict=cuda)  # pinned, and kept for the next one
for turn in range(2):
    fresh()
    _, own, response = timed(lambda: dcp.async_save(state, storage_writer=behind))
    began = time.perf_counter()
    getattr(response, "upload_completion", response).result()
    dist.barrier()
    stall, total = own, own + time.perf_counter() - began
for tensor in state.values():
    tensor.to_local().zero_()
loaded, _, _ = timed(lambda: dcp.load(state, storage_reader=dcp.FileSystemReader(folder)))
for number, tensor in enumerate(state.values()):
    local = tensor.to_local()
    want = torch.arange(local.numel(), dtype=torch.float32, device=device).view_as(local).add_(number)
    if not torch.equal(local, want):
        sys.exit("dcp_ranks.py: what was loaded is not what was saved")
worst = torch.tensor([saved, stall, total, loaded], dtype=torch.float64)
dist.all_reduce(worst, op=dist.ReduceOp.MAX, group=dist.new_group(backend="gloo"))
fresh()
if not rank:
    print(size, *(f"{x:.6f}" for x in worst.tolist()), flush=True)
dist.destroy_process_group()
