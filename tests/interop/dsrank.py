"""DeepSpeed on CPU ranks: forked processes, gloo, and the state of the live engine.

torch and DeepSpeed are imported once, in the parent; every rank is a fork of it, so that a
run of hundreds of small engines pays for the imports once. Only data movement is helped
here (collectives that gloo does not offer for 16-bit types); no part of DeepSpeed that cuts,
pads, names or writes anything is changed.
"""
import contextlib
import datetime
import gc
import importlib
import os
import shutil
import sys
import tempfile
import traceback

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")       # needs no name service
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if "TORCH_EXTENSIONS_DIR" not in os.environ:
    os.environ["TORCH_EXTENSIONS_DIR"] = os.path.join(sys.prefix, "extensions")

import torch
import torch.distributed as dist

HALVES = (torch.bfloat16, torch.float16)


# ------------------------------------------------------------------ collectives
class Done:
    """A handle of work that has already happened."""

    def wait(self, *args):
        return True

    def is_completed(self):
        return True


def cat_ranks(t, group=None):
    """The 1-D tensors of all ranks, joined in rank order; bytes travel, so any dtype goes."""
    t = t.detach().contiguous().view(-1)
    raw = t.view(torch.uint8) if t.numel() else torch.empty(0, dtype=torch.uint8)
    out = [torch.empty_like(raw) for _ in range(dist.get_world_size(group))]
    PLAIN["all_gather"](out, raw, group=group)
    return torch.cat(out).view(t.dtype)


PLAIN = {}


def widen_gloo():
    """Lets 16-bit tensors through gloo: sums in fp32, copies as bytes."""
    if PLAIN:
        return
    for name in ("all_reduce", "broadcast", "all_gather"):
        PLAIN[name] = getattr(dist, name)

    def all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
        wide = tensor.detach().float() if tensor.dtype in HALVES else tensor.detach().clone()
        mean = op == dist.ReduceOp.AVG
        PLAIN["all_reduce"](wide, op=dist.ReduceOp.SUM if mean else op, group=group)
        if mean:
            wide /= dist.get_world_size(group)
        tensor.detach().copy_(wide)
        return Done() if async_op else None

    def broadcast(tensor, src=None, group=None, async_op=False, **kw):
        flat = tensor.detach().contiguous().view(-1)
        if flat.numel():
            PLAIN["broadcast"](flat.view(torch.uint8), src, group=group, **kw)
            tensor.detach().copy_(flat.view(tensor.shape))
        return Done() if async_op else None

    def all_gather(tensor_list, tensor, group=None, async_op=False):
        full = cat_ranks(tensor, group).view(len(tensor_list), -1)
        for i, one in enumerate(tensor_list):
            one.detach().view(-1).copy_(full[i])
        return Done() if async_op else None

    def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
        output_tensor.detach().view(-1).copy_(cat_ranks(input_tensor, group))
        return Done() if async_op else None

    def reduce_scatter_tensor(output, input, op=dist.ReduceOp.SUM, group=None, async_op=False):
        world, rank = dist.get_world_size(group), dist.get_rank(group)
        wide = input.detach().float().reshape(-1).clone()
        all_reduce(wide, op=op, group=group)
        n = wide.numel() // world
        output.detach().view(-1).copy_(wide[rank * n:(rank + 1) * n])
        return Done() if async_op else None

    def reduce_scatter(output, input_list, op=dist.ReduceOp.SUM, group=None, async_op=False):
        joined = torch.cat([t.detach().reshape(-1) for t in input_list])
        return reduce_scatter_tensor(output, joined, op, group, async_op)

    def reduce(tensor, dst=None, op=dist.ReduceOp.SUM, group=None, async_op=False, **kw):
        return all_reduce(tensor, op, group, async_op)

    mine = dict(all_reduce=all_reduce, broadcast=broadcast, all_gather=all_gather,
                all_gather_into_tensor=all_gather_into_tensor, reduce=reduce,
                _all_gather_base=all_gather_into_tensor, reduce_scatter=reduce_scatter,
                reduce_scatter_tensor=reduce_scatter_tensor,
                _reduce_scatter_base=reduce_scatter_tensor)
    for name, f in mine.items():
        setattr(dist, name, f)
        setattr(dist.distributed_c10d, name, f)
    import deepspeed.comm.torch as backend
    for name in ("has_coalescing_manager", "has_all_reduce_coalesced"):
        if hasattr(backend, name):
            setattr(backend, name, lambda: False)


def prepare(widen=True):
    """Once in the parent, before any fork. Without 'widen' gloo is used as it is."""
    torch.set_num_threads(1)
    import deepspeed
    from deepspeed.accelerator import get_accelerator
    from deepspeed.utils import logger
    logger.setLevel("ERROR")
    acc = get_accelerator()
    acc._communication_backend_name = "gloo"
    type(acc).is_fp16_supported = lambda self: True
    type(acc).is_bf16_supported = lambda self: True
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False   # would compile it
    if widen:
        widen_gloo()
    # what the first engine would import in every rank, and what every collection would walk
    for late in ("superoffload.superoffload_stage3", "zero.muon.muon_optimizer"):
        with contextlib.suppress(ImportError):      # older versions have neither
            importlib.import_module("deepspeed.runtime." + late)
    gc.collect()
    gc.freeze()


def _child(rank, world, rendezvous, log, work):
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world),
                      LOCAL_SIZE=str(world), CROSS_RANK="0", CROSS_SIZE="1",
                      MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
    code = 1
    try:
        # Torch makes its thread pool anew after a fork.  Two threads of autograd that do it at once fail.
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank,
                                world_size=world, timeout=datetime.timedelta(seconds=60))
        import deepspeed
        deepspeed.init_distributed(dist_backend="gloo", dist_init_required=False)
        work(rank, world)
        dist.barrier()
        code = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def fork_ranks(world, work):
    """Runs work(rank, world) in forked ranks. Returns "" or what the first bad rank said."""
    scratch = tempfile.mkdtemp(prefix="zckpt-ranks-")
    log = lambda r: os.path.join(scratch, "rank%d.log" % r)
    sys.stdout.flush()
    sys.stderr.flush()
    pids = {}
    for r in range(world):
        pid = os.fork()
        if pid == 0:
            _child(r, world, os.path.join(scratch, "rendezvous"), log(r), work)
        pids[pid] = r
    said = ""
    while pids:
        pid, status = os.wait()
        r = pids.pop(pid, None)
        if r is None or status == 0:
            continue
        if not said:
            with open(log(r), errors="replace") as f:
                last = "".join(f.readlines()[-8:])
            said = "rank %d of %d (status %d): %s" % (r, world, status, last)
            for other in pids:        # the others would wait for it until gloo gives up
                os.kill(other, 9)
    shutil.rmtree(scratch, ignore_errors=True)
    return said


# ------------------------------------------------------------------ the live state
def kind_of(engine):
    o = engine.optimizer
    for kind, attr in (("stage3", "fp32_partitioned_groups_flat"),
                       ("stage12", "single_partition_of_fp32_groups"),
                       ("bf16opt", "fp32_groups_flat_partition"),
                       ("fused", "fp32_groups_flat"), ("unfused", "fp32_groups")):
        if hasattr(o, attr):
            return kind
    return "torch"


def _flat_states(state, flat):
    """The tensors of an optimizer's state that have the shape of its (flat) parameter."""
    out = {"master": flat.data}
    for k, v in state.items():
        if torch.is_tensor(v) and v.shape == flat.shape and k != "step":
            out[k] = v
    return out


def _from_stage3(o, base, put):
    for i, flat in enumerate(o.fp32_partitioned_groups_flat):
        for what, v in _flat_states(base.state.get(flat, {}), flat).items():
            at = 0
            for p in o.fp16_groups[i]:
                n = p.ds_tensor.ds_numel
                full = cat_ranks(v.reshape(-1)[at:at + n])
                put(p, what, full[:p.ds_numel].reshape(tuple(p.ds_shape)))
                at += n
            assert at == flat.numel(), (at, flat.numel())


def _from_flat(flats, lowflats, lists, base, put):
    """Stages 1, 2 and BF16_Optimizer.

    Where a parameter lies in its group's flat buffer is read off the address of the 16-bit
    (or fp32) copy the model computes with: that is a view into the flat buffer, so no table
    of DeepSpeed's is believed (its fragment map is wrong under round robin).
    """
    for i, flat in enumerate(flats):
        low = lowflats[i]
        for what, v in _flat_states(base.state.get(flat, {}), flat).items():
            full = cat_ranks(v.reshape(-1))
            assert full.numel() == low.numel(), (full.numel(), low.numel())
            for p in lists[i]:
                at = 0
                if p.numel():
                    at, rest = divmod(p.data.data_ptr() - low.data_ptr(), low.element_size())
                    assert rest == 0 and 0 <= at <= low.numel() - p.numel(), (at, rest)
                put(p, what, full[at:at + p.numel()].reshape(p.shape))


def gather(engine, net):
    """Every state of the running engine, full and unpartitioned: {"NAME|state": tensor}.

    A collective call. What the model computes with is "NAME|weight", a buffer "NAME|buffer".
    Fails when a master, rounded to the weight's type, is not the weight: then the gathering
    itself is wrong.
    """
    names = {id(p): n for n, p in net.named_parameters()}
    truth, o = {}, engine.optimizer
    base = getattr(o, "optimizer", o)
    kind = kind_of(engine)

    def put(p, what, t):
        truth[names[id(p)] + "|" + what] = t.detach().clone()

    if kind == "stage3":
        _from_stage3(o, base, put)
    elif kind == "stage12":
        _from_flat(o.single_partition_of_fp32_groups, o.bit16_groups_flat, o.bit16_groups,
                   base, put)
    elif kind == "bf16opt":
        _from_flat(o.fp32_groups_flat_partition, o.bf16_groups_flat, o.bf16_groups, base, put)
    elif kind == "fused":
        for flat, group in zip(o.fp32_groups_flat, o.fp16_groups):
            for what, v in _flat_states(base.state.get(flat, {}), flat).items():
                at = 0
                for p in group:
                    put(p, what, v.reshape(-1)[at:at + p.numel()].reshape(p.shape))
                    at += p.numel()
    elif kind == "unfused":
        for flats, group in zip(o.fp32_groups, o.fp16_groups):
            for flat, p in zip(flats, group):
                for what, v in _flat_states(base.state.get(flat, {}), flat).items():
                    put(p, what, v.reshape(p.shape))
    else:
        for g in base.param_groups:
            for p in g["params"]:
                if id(p) in names and p.requires_grad:
                    for what, v in _flat_states(base.state.get(p, {}), p).items():
                        put(p, what, v.reshape(p.shape))

    from deepspeed.runtime.zero.partition_parameters import GatheredParameters
    for n, p in net.named_parameters():
        if hasattr(p, "ds_id"):
            with GatheredParameters([p]):
                truth[n + "|weight"] = p.data.detach().clone()
        else:
            truth[n + "|weight"] = p.data.detach().clone()
        if n + "|master" in truth:
            w, m = truth[n + "|weight"], truth[n + "|master"]
            if not torch.equal(m.to(w.dtype), w):
                raise RuntimeError("gathered master of %s is not its weight" % n)
    for n, b in net.named_buffers():
        truth[n + "|buffer"] = b.detach().clone()
    return {k: t.contiguous() for k, t in truth.items()}
