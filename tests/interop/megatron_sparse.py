"""A Megatron-Core folder of a large mixture of experts, whose data is holes, opened and read in little memory.

    megatron_sparse.py [LAYERS]      94 layers: 235 B parameters, 470 GB; more ranks and experts are not made

The sizes are those of Qwen3-235B-A22B; tensor parallel 4, expert parallel 8, expert tensor parallel 2: `.metadata` has one block for
each expert, layer and rank, as Megatron-Core writes it, and every linear_fc2 and linear_proj is cut by columns.  One expert has
numbers.  What is checked: what `convert --dry-run`, `cat` and `ls` need in memory and read from the disk, and that `cat` gives these
numbers.  Nothing is timed.
"""
import argparse
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import tempfile
import types
import zlib

import numpy
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex, TensorProperties, TensorStorageMetadata)

ZCKPT = os.environ["ZCKPT"]
LAYERS = int(sys.argv[1]) if len(sys.argv) > 1 else 94
HIDDEN, HEADS, GROUPS, SIZE, EXPERTS, FFN, VOCAB = 4096, 64, 4, 128, 128, 1536, 151936
TP, EP, ETP = 4, 8, 2
BOUND = 512 << 20  # bytes of memory
passed = failed = 0


def check(what, good, why=""):
    global passed, failed
    passed += bool(good)
    failed += not good
    if not good:
        print(f"FAIL {what}: {why}")


class File:
    """A data file: archives one after the other, their tensors' bytes are holes or given."""

    def __init__(self, path):
        self.name, self.f, self.at = os.path.basename(path), open(path, "wb"), 0

    def put(self, head, data, n, tail):
        begin = self.at
        self.f.seek(begin)
        self.f.write(head)
        if data is not None:
            self.f.write(data)
        self.f.seek(begin + len(head) + n)
        self.f.write(tail)
        self.at = begin + len(head) + n + len(tail)
        return _StorageInfo(self.name, begin, self.at - begin)


sums = {}


def crc_of(n, data):
    if data is not None:
        return zlib.crc32(data)
    if n not in sums:
        sums[n] = 0
        zeros, left = bytes(1 << 20), n
        while left:
            k = min(left, len(zeros))
            sums[n] = zlib.crc32(zeros[:k], sums[n])
            left -= k
    return sums[n]


def archive(shape, data):
    """What torch.save makes of a bfloat16 tensor, in two parts: before its bytes and after."""
    n = 2 * int(numpy.prod(shape))
    head, entries = bytearray(), []

    def begin(name, size, crc):
        pad = -(len(head) + 30 + len(name)) % 64
        pad += 64 * (pad < 4)
        entries.append((name, size, crc, len(head)))
        head.extend(struct.pack("<IHHHHHIIIHH", 0x04034B50, 0, 0, 0, 0, 0, crc, size, size, len(name), pad))
        head.extend(name + struct.pack("<HH", 0x4246, pad - 4) + b"Z" * (pad - 4))

    for name, bytes_ in (("data.pkl", pickle_of(shape)), ("byteorder", b"little"), ("version", b"3\n")):
        begin(f"archive/{name}".encode(), len(bytes_), zlib.crc32(bytes_))
        head.extend(bytes_)
    begin("archive/data/0".encode(), n, crc_of(n, data))
    tail = bytearray()
    for name, size, crc, at in entries:
        tail.extend(struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 0, 0, 0, 0, 0, 0, crc, size, size, len(name), 0, 0, 0, 0, 0, at)
                    + name)
    tail.extend(struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, len(entries), len(entries), len(tail), len(head) + n, 0))
    return bytes(head), n, bytes(tail)


def pickle_of(shape):
    out = io.BytesIO()

    class Pickler(pickle._Pickler):
        def persistent_id(self, obj):
            return ("storage", torch.BFloat16Storage, "0", "cpu", int(numpy.prod(shape))) if isinstance(obj, Mark) else None

        def reducer_override(self, obj):
            if isinstance(obj, Tensor):
                strides = [int(numpy.prod(shape[i + 1:])) for i in range(len(shape))]
                return torch._utils._rebuild_tensor_v2, (Mark(), 0, tuple(shape), tuple(strides), False, {})
            return NotImplemented

        def save(self, obj, save_persistent_id=True):
            if isinstance(obj, Tensor):
                self.save_reduce(*self.reducer_override(obj), obj=obj)
            else:
                super().save(obj, save_persistent_id)

    Pickler(out, 2).dump(Tensor())
    return out.getvalue()


class Mark:
    pass


class Tensor:
    pass


def make(run):
    step = os.path.join(run, "iter_0000100")
    os.makedirs(step)
    files = [File(os.path.join(step, f"__{r}_0.distcp")) for r in range(TP * EP)]
    tensors, places, kept = {}, {}, {}
    archives = {}

    def block(key, shape, offset, size, rank, data=None):
        if data is not None or tuple(size) not in archives:
            made = archive(size, data)
            if data is None:
                archives[tuple(size)] = made
        else:
            made = archives[tuple(size)]
        info = files[rank].put(made[0], data, made[1], made[2])
        one = tensors.setdefault(key, TensorStorageMetadata(TensorProperties(dtype=torch.bfloat16), torch.Size(shape), []))
        one.chunks.append(ChunkStorageMetadata(torch.Size(offset), torch.Size(size)))
        places[MetadataIndex(key, torch.Size(offset))] = info

    rows = -(-VOCAB // (128 * TP)) * 128 * TP
    for t in range(TP):
        for key in "embedding.word_embeddings.weight", "output_layer.weight":
            block(key, [rows, HIDDEN], [t * rows // TP, 0], [rows // TP, HIDDEN], t)
    block("decoder.final_layernorm.weight", [HIDDEN], [0], [HIDDEN], 0)
    qkv = (HEADS + 2 * GROUPS) * SIZE
    attn = "decoder.layers.self_attention."
    for n in range(LAYERS):
        for t in range(TP):
            block(attn + "linear_qkv.weight", [LAYERS, qkv, HIDDEN], [n, t * qkv // TP, 0], [1, qkv // TP, HIDDEN], t)
            block(attn + "linear_proj.weight", [LAYERS, HIDDEN, HEADS * SIZE], [n, 0, t * HEADS * SIZE // TP],
                  [1, HIDDEN, HEADS * SIZE // TP], t)
        for key, size in ((attn + "q_layernorm.weight", SIZE), (attn + "k_layernorm.weight", SIZE),
                          (attn + "linear_qkv.layer_norm_weight", HIDDEN), ("decoder.layers.mlp.linear_fc1.layer_norm_weight", HIDDEN)):
            block(key, [LAYERS, size], [n, 0], [1, size], 0)
        block("decoder.layers.mlp.router.weight", [LAYERS, EXPERTS, HIDDEN], [n, 0, 0], [1, EXPERTS, HIDDEN], 0)
        experts = "decoder.layers.mlp.experts.experts."
        for e in range(EXPERTS):
            for t in range(ETP):
                rank = e // (EXPERTS // EP) * TP + t
                part = FFN // ETP
                for half in range(2):
                    block(experts + "linear_fc1.weight", [LAYERS, EXPERTS, 2 * FFN, HIDDEN], [n, e, half * FFN + t * part, 0],
                          [1, 1, part, HIDDEN], rank)
                data = None
                if n == 1 and e == 77:
                    values = numpy.arange(HIDDEN * part, dtype=numpy.uint32) * 2654435761 + t
                    kept[t] = (values >> 16).astype("<u2").reshape(HIDDEN, part)
                    data = kept[t].tobytes()
                block(experts + "linear_fc2.weight", [LAYERS, EXPERTS, HIDDEN, FFN], [n, e, 0, t * part], [1, 1, HIDDEN, part],
                      rank, data)
    sizes = sum(f.at for f in files)
    for f in files:
        f.f.truncate(f.at)
        f.f.close()
    with open(os.path.join(step, ".metadata"), "wb") as f:
        pickle.dump(Metadata(tensors, None, places), f)
    args = argparse.Namespace(
        num_layers=LAYERS, hidden_size=HIDDEN, num_attention_heads=HEADS, num_query_groups=GROUPS, group_query_attention=True,
        kv_channels=SIZE, ffn_hidden_size=12288, num_experts=EXPERTS, moe_ffn_hidden_size=FFN, swiglu=True, qk_layernorm=True,
        untie_embeddings_and_output_weights=True, padded_vocab_size=rows, make_vocab_size_divisible_by=128, add_qkv_bias=False,
        tensor_model_parallel_size=TP, pipeline_model_parallel_size=1, expert_model_parallel_size=EP, expert_tensor_parallel_size=ETP,
        world_size=TP * EP, moe_grouped_gemm=False, moe_layer_freq=1, normalization="RMSNorm")
    torch.save({"args": args, "checkpoint_version": 3.0, "iteration": 100}, os.path.join(step, "common.pt"))
    with open(os.path.join(step, "metadata.json"), "w") as f:
        json.dump({"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch",
                   "common_backend_version": 1}, f)
    with open(os.path.join(run, "latest_checkpointed_iteration.txt"), "w") as f:
        f.write("100")
    with open(os.path.join(run, "config.json"), "w") as f:
        json.dump({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
                   "num_attention_heads": HEADS, "num_key_value_heads": GROUPS, "head_dim": SIZE, "intermediate_size": 12288,
                   "num_experts": EXPERTS, "num_experts_per_tok": 8, "moe_intermediate_size": FFN, "vocab_size": VOCAB,
                   "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "tie_word_embeddings": False,
                   "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "torch_dtype": "bfloat16"}, f)
    return step, sizes, os.path.getsize(os.path.join(step, ".metadata")), len(places), numpy.concatenate([kept[0], kept[1]], axis=1)


# a small process of its own: its child's memory begins with this process, not with torch's
MEASURE = """
import json, os, resource, sys
def read():
    return int(open("/proc/self/io").read().split()[1])
before, pid = read(), os.fork()
if not pid:
    for fd, name in (1, "out"), (2, "err"):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), fd)
    os.execv(sys.argv[1], sys.argv[1:])
status = os.waitpid(pid, 0)[1]
use = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({"rc": os.waitstatus_to_exitcode(status), "read": read() - before, "memory": use.ru_maxrss * 1024,
                  "cpu": use.ru_utime + use.ru_stime}))
"""


def measured(*args):
    """Bytes of memory and bytes read by one call, its output and errors."""
    with tempfile.TemporaryDirectory() as dir:
        made = subprocess.run([sys.executable, "-I", "-S", "-c", MEASURE, ZCKPT, *args], cwd=dir, stdout=subprocess.PIPE, check=True)
        text = {name: open(os.path.join(dir, name), "rb").read() for name in ("out", "err")}
    return types.SimpleNamespace(out=text["out"], err=text["err"].decode(), **json.loads(made.stdout))


def main():
    with tempfile.TemporaryDirectory() as run:
        step, bytes_, index, blocks, want = make(run)
        print(f"{LAYERS} layers: {bytes_ / 1e9:.0f} GB in {blocks} blocks, .metadata {index / 1e6:.1f} MB; on the disk "
              f"{sum(os.stat(os.path.join(step, f)).st_blocks for f in os.listdir(step)) * 512 / 1e6:.0f} MB")
        heads = blocks * 1500 + index  # what an archive has besides its tensor, and the index
        name = "model.layers.1.mlp.experts.77.down_proj.weight"
        for what, call, more in (
                ("inspect", ("inspect", run), 0), ("verify", ("verify", run), 0),
                ("convert --dry-run", ("convert", "--dry-run", "--dtype", "keep", run, os.path.join(run, "hf")), 0),
                ("cat", ("cat", "--to", "raw", run, name), want.nbytes)):
            m = measured(*call)
            full = what == "convert --dry-run" and m.rc == 3 and "not enough space" in m.err  # planned, and this disk is small
            check(what, m.rc == 0 or full, f"exit {m.rc}: {m.err[-600:]}")
            check(f"memory of {what}", m.memory <= BOUND, f"{m.memory / 1e6:.0f} MB, more than {BOUND / 1e6:.0f}")
            check(f"bytes read by {what}", m.read <= heads + 2 * more + (64 << 20), f"{m.read / 1e6:.0f} MB of {heads / 1e6:.0f}")
            print(f"{what}: {m.memory / 1e6:.0f} MB of memory, {m.read / 1e6:.1f} MB read, {m.cpu:.1f} s of a CPU")
            if what == "cat":
                check("the numbers of one expert", m.out == want.tobytes(), f"{len(m.out)} bytes, wanted {want.nbytes}")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return failed != 0


sys.exit(main())
