"""Resumes checkpoints in one version of DeepSpeed: resume_worker.py PLAN.json

PLAN names the version, the jobs (resume_cases.py makes them) and the file that gets one line
of JSON per result. All jobs of one world size run in one group of forked ranks; a job that
ends its group is marked, and the rest go on in a new one.
"""
import collections
import contextlib
import glob
import io
import json
import math
import os
import shutil
import sys
import tempfile
import time
import traceback

STEPS = 3
TOLERANCE = {"fp32": 1e-5, "bf16": 6e-4, "fp16": 6e-4}     # rounding gives 3.5e-4 at most
# fp16 without ZeRO has another optimizer around Adam, which rounds in another order; another
# version of DeepSpeed keeps buffers in another type.
OTHER_RUN_TOLERANCE = 2e-3
# A 16-bit model of a few dozen elements: Adam blows one rounding of a gradient that should be
# zero up to a whole step. Its first loss is judged as any other, those after it by this.
TINY, TINY_TOLERANCE = 400, 1e-2


# ------------------------------------------------------------------ DeepSpeed, on every rank
def same_states(want, got):
    """Whether the optimizers' scalars agree, over all groups or sub-groups that there are.

    The number of sub-groups may differ, so each kind of scalar is a set of values."""
    def kinds(scalars):
        out = collections.defaultdict(set)
        for k, v in scalars.items():
            v = {a: b for a, b in v.items() if a != "shape"}
            out[k.split(".", 1)[1]].add(json.dumps(v, sort_keys=True))
        return out
    return kinds(want) == kinds(got)


def check_scalars(case, live, got):
    said = []
    if not same_states(live["scalars"], got["scalars"]):
        said.append("optimizer scalars %s, want %s" % (got["scalars"], live["scalars"]))
    for k in ("lr", "global_steps", "skipped_steps", "global_samples", "lr_scheduler"):
        a, b = json.loads(json.dumps([live[k], got[k]], default=str))
        if a != b:
            said.append("%s %s, want %s" % (k, b, a))
    if live["loss_scale"] is not None and got["loss_scale"] is not None and \
            live["loss_scale"] != got["loss_scale"]:
        said.append("loss scale %s, want %s" % (got["loss_scale"], live["loss_scale"]))
    if live.get("loss_scaler") and got["loss_scaler"] and \
            live["loss_scaler"] != got["loss_scaler"]:
        said.append("loss scaler %s, want %s" % (got["loss_scaler"], live["loss_scaler"]))
    return said


def begun_anew(facts, truth):
    """What --reset-optimizer leaves of both: states are zero, their steps too."""
    import torch
    kept = ("weight", "master", "buffer")
    truth = {k: t if k.rsplit("|", 1)[1] in kept else torch.zeros_like(t)
             for k, t in truth.items()}
    scalars = {k: dict(v, value=type(v["value"])(0)) if k.endswith(".step") else v
               for k, v in facts["live"]["scalars"].items()}
    return dict(facts, live=dict(facts["live"], scalars=scalars), next_losses=None), truth


def same_narrowed(a, b):
    """Equal in the narrower of both types: older versions keep buffers in the run's precision."""
    narrow = min(a.dtype, b.dtype, key=lambda d: d.itemsize)
    return a.shape == b.shape and a.to(narrow).equal(b.to(narrow))


def check_tensors(facts, truth, got, other_version):
    """(number equal, number wanted, sentences)"""
    import shards
    lost = set(facts["not_in_checkpoint"])
    lost |= {b["name"] + "|buffer" for b in facts["buffers"] if not b["persistent"]}
    want = {k: t for k, t in truth.items() if k not in lost}
    said = ["%s came from nowhere" % k for k in got
            if k not in truth and not k.endswith("|weight")]
    equal = 0
    for k, t in want.items():
        if k not in got:
            said.append("%s is missing" % k)
        elif other_version and k.endswith("|buffer") and same_narrowed(got[k], t):
            equal += 1
        elif not shards.same_bits(got[k], t):
            a, b = got[k].float().reshape(-1), t.float().reshape(-1)
            far = "%d of %d elements" % (int((a != b).sum()), a.numel()) \
                if a.shape == b.shape and got[k].dtype == t.dtype else \
                "%s %s, want %s %s" % (got[k].dtype, list(got[k].shape), t.dtype, list(t.shape))
            said.append("%s has other bits (%s)" % (k, far))
        else:
            equal += 1
    return equal, len(want), said


def dropped(facts, key):
    """Whether DeepSpeed's universal loader leaves this alone."""
    frozen = {p["name"] for p in facts["params"] if not p["requires_grad"]}
    return key.endswith("|buffer") or key.rsplit("|", 1)[0] in frozen


def restore_buffers(job, net):
    """The fixture's buffers, so that the next losses can be compared."""
    import torch
    from safetensors.torch import load_file
    truth = load_file(os.path.join(job["fixture"], "truth.safetensors"))
    with torch.no_grad():
        for name, b in net.named_buffers():
            if name + "|buffer" in truth:
                b.copy_(truth[name + "|buffer"])


def unscaled(facts, job):
    """Whether one of the two runs, the fixture's and this one, trains with wrong gradients.

    DeepSpeed 0.18.9 and 0.19.8 do not scale the loss of fp16 runs without ZeRO, and divide
    the gradients by the scale all the same. After its first step such a run is another.
    """
    def wrong(version, stage):
        return stage == "0" and tuple(int(x) for x in version.split(".")) >= (0, 18, 9)
    return facts["spec"]["precision"] == "fp16" and wrong(
        facts["deepspeed"], str(facts["spec"]["stage"])) != wrong(job["version"], job["stage"])


def resume(job, rank, world, report):
    """One combination on all ranks of the group; rank 0 reports."""
    import dsmodel
    import dsrank
    from safetensors.torch import load_file
    with open(os.path.join(job["fixture"], "case.json")) as f:
        facts = json.load(f)
    spec = facts["spec"]
    began = time.time()
    universal = job.get("universal")
    # the loader of universal checkpoints leaves frozen parameters as a new run has them
    other = 0 if universal and facts["data_step"] else 1
    engine, net = dsmodel.build_engine(spec, world, job["stage"], job["zero"],
                                       universal=bool(universal), other=other)
    fresh = net.norm.weight.detach().clone() if rank == 0 and job["stage"] != "3" else None
    loose = spec.get("save_kw", {}).get("exclude_frozen_parameters", False)
    path, _ = engine.load_checkpoint(job["ckpt"], load_module_strict=not loose)
    if path is None:
        raise RuntimeError("load_checkpoint found nothing in the folder")
    state = dsrank.gather(engine, net)
    got = dsmodel.scalars(engine)
    said = []
    if universal:
        state = {k: t for k, t in state.items() if not dropped(facts, k)}
        restore_buffers(job, net)
    result = {"id": job["id"], "losses": None}
    if rank == 0:
        truth = load_file(os.path.join(job["fixture"], "truth.safetensors"))
        if job.get("reset"):
            facts, truth = begun_anew(facts, truth)
        if universal:
            truth = {k: t for k, t in truth.items() if not dropped(facts, k)}
        result["equal"], result["wanted"], said = check_tensors(
            facts, truth, state, job["version"] != facts["deepspeed"])
        if fresh is not None and net.norm.weight.requires_grad and \
                fresh.equal(net.norm.weight):
            said.append("the weights are those from before the load")
        said += [s for s in check_scalars(facts, facts["live"], got)
                 if not (universal == "first group" and s.startswith("lr "))]
    if dsmodel.keeps_batch(spec, world) and facts["next_losses"] and not job.get("reset"):
        first, worst = facts["data_step"], 0.0
        small = sum(math.prod(p["shape"]) for p in facts["params"]) < TINY
        one = universal == "first group" or unscaled(facts, job)
        steps = 1 if one else STEPS
        for i, want in enumerate(facts["next_losses"][:steps]):
            loss = dsmodel.train_step(engine, spec, first + i, world, rank)
            off = abs(loss - want) / max(abs(want), 1e-30)
            worst = max(worst, off if off == off else math.inf)
            allowed = TOLERANCE[spec["precision"]]
            if i and allowed > 1e-5 and small:
                allowed = TINY_TOLERANCE
            elif allowed > 1e-5 and (job["version"] != facts["deepspeed"] or i and
                                     (spec["stage"] == 0) != (job["stage"] == "0")):
                allowed = OTHER_RUN_TOLERANCE
            if not off <= allowed:
                said.append("loss of step +%d is %.9g, want %.9g" % (i + 1, loss, want))
        result["losses"] = worst
    if rank == 0:
        result.update(said=said, seconds=time.time() - began)
        report(result)
    if hasattr(engine, "destroy"):
        engine.destroy()


# ------------------------------------------------------------------ DeepSpeed's own tools
@contextlib.contextmanager
def silence():
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def full_truth(job, facts, truth):
    """Names to fp32 (or integer) values: trained parameters by their masters, the rest."""
    master = {k[:-7]: t for k, t in truth.items() if k.endswith("|master")}
    lost = set(facts["not_in_checkpoint"])
    lost |= {b["name"] + "|buffer" for b in facts["buffers"] if not b["persistent"]}
    rest = {k.rsplit("|", 1)[0]: t for k, t in truth.items()
            if k.rsplit("|", 1)[1] in ("weight", "buffer") and k not in lost}
    return master, {n: t for n, t in rest.items() if n not in master}


def check_z2f(job, facts, truth):
    """zero_to_fp32 of the new folder. None where this DeepSpeed has no such thing."""
    if job["stage"] in ("0", "bf16"):
        return None
    import shards
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint as stock
    with silence():
        got = {k: t.detach() for k, t in stock(job["ckpt"]).items()}
    master, rest = full_truth(job, facts, truth)
    alias = dict(facts["tied"])
    said = []
    for n in list(master) + [a for a in alias if alias[a] in master]:
        if n not in got:
            said.append("zero_to_fp32 lacks %s" % n)
        elif not shards.same_bits(got[n].float(), master[alias.get(n, n)].float()):
            said.append("zero_to_fp32: %s has other bits" % n)
    frozen = {p["name"] for p in facts["params"] if not p["requires_grad"]}
    for n, t in rest.items():
        if n in got and not shards.same_bits(got[n].float(), t.float()):
            said.append("zero_to_fp32: %s has other bits" % n)
        if n not in got and not (n in frozen and job["stage"] == "1"):
            said.append("zero_to_fp32 lacks %s" % n)
    return said


def beyond_converter(job, facts):
    """Whether DeepSpeed's converter fails on its own checkpoints of this kind, too.

    Stages 1 and 2: parameters without dimensions; padding that is counted on the last rank
    (BF16_Optimizer, and all before 0.16.4) and is longer than what that rank has.
    Stage 3: more than one sub-group before 0.18, and before 0.19.2 garbage where a rank lies
    wholly past a parameter's end.
    """
    version = tuple(int(x) for x in job["version"].split("."))
    train = [p for p in facts["params"] if p["requires_grad"]]
    if job["stage"] != "3":
        sizes = collections.Counter()
        for p in train:
            sizes[p.get("group")] += math.prod(p["shape"])
        part = lambda total: 2 * -(-total // (2 * job["world"]))
        short = any(part(t) * job["world"] - t > part(t) for t in sizes.values())
        last = job["stage"] == "bf16" or version < (0, 16, 4)
        return any(not p["shape"] for p in train) or (last and short)
    past = any(-(-math.prod(p["shape"]) // job["world"]) * (job["world"] - 1) >
               math.prod(p["shape"]) for p in train)
    many = len({p.get("group") for p in train}) > 1 or "sub_group_size" in facts["spec"].get(
        "zero", {}) or "sub_group_size" in job["zero"]
    return (version < (0, 18, 0) and many) or (version < (0, 19, 2) and past)


def check_universal(job, facts, truth, work):
    """ds_to_universal of the new folder. None where DeepSpeed's converter cannot."""
    adam = {"exp_avg", "exp_avg_sq"}
    if job.get("reset"):
        facts, truth = begun_anew(facts, truth)
    held = {k.rsplit("|", 1)[1] for k in truth}
    if job["stage"] == "0" or not adam <= held or "round_robin" in job["zero_text"] or \
            beyond_converter(job, facts):
        return None
    own = facts["spec"].get("client") == "uci"
    import inspect
    import deepspeed.checkpoint.ds_to_universal as d2u
    import torch
    inject = "inject_missing_state" in inspect.getsource(d2u)
    if job["stage"] != "3" and not own and not inject:
        return None
    if job["stage"] == "3" and not hasattr(d2u, "_extract_zero_shard_files_stage3"):
        return None
    import types
    with open(os.path.join(job["ckpt"], "latest")) as f:
        tag = f.read().strip()
    out = os.path.join(work, "universal")
    shutil.rmtree(out, ignore_errors=True)
    args = types.SimpleNamespace(
        input_folder=os.path.join(job["ckpt"], tag), output_folder=out, num_extract_workers=1,
        num_merge_workers=1, keep_temp_folder=False, strict=True,
        inject_missing_state=not own and job["stage"] != "3")
    with silence():
        d2u.main(args)
    said = []
    import shards
    for k, t in truth.items():
        n, what = k.rsplit("|", 1)
        if what != "master" and what not in adam:
            continue
        path = os.path.join(out, "zero", n, ("fp32" if what == "master" else what) + ".pt")
        if not os.path.exists(path):
            said.append("ds_to_universal lacks %s" % k)
            continue
        got = torch.load(path, weights_only=False)
        got = got["param"] if isinstance(got, dict) else got
        if not shards.same_bits(got.float().reshape(-1), t.float().reshape(-1)):
            said.append("ds_to_universal: %s has other bits" % k)
    shutil.rmtree(out, ignore_errors=True)
    return said


# what must follow the new world and stage; all else in a model file is the client's
CHANGING = ("module", "param_shapes", "frozen_param_shapes", "frozen_param_fragments",
            "shared_params", "dp_world_size", "optimizer", "ds_config",
            "universal_checkpoint_info")


OF_VERSION = ("ds_version", "checkpoint_parallel_dimensions", "data_sampler", "random_ltd",
              "sparse_tensor_module_names")


def check_client(job, facts):
    """Every object of the model files that does not depend on world and stage is as before."""
    import unpickle_equal
    with open(os.path.join(job["ckpt"], "latest")) as f:
        tag = f.read().strip()
    said = []
    new = sorted(glob.glob(os.path.join(glob.escape(os.path.join(job["ckpt"], tag)),
                                        "*model_states.pt")))
    old = sorted(glob.glob(os.path.join(job["fixture"], "ckpt", facts["latest"],
                                        "*model_states.pt")))
    want = job["world"] if job["stage"] == "3" else 1
    if len(new) != want:
        said.append("%d model files, want %d" % (len(new), want))
    for r, path in enumerate(sorted(new, key=len)):     # rank r of stage 3 is as rank r mod N
        changing = CHANGING + (OF_VERSION if job["version"] != facts["deepspeed"] else ())
        source = unpickle_equal.load(sorted(old, key=len)[r % len(old)])
        made = unpickle_equal.load(path)
        if made["dp_world_size"] != job["world"]:
            said.append("dp_world_size %s in %s" % (made["dp_world_size"],
                                                    os.path.basename(path)))
        said += ["%s: %s" % (os.path.basename(path), s) for s in unpickle_equal.differences(
            {k: v for k, v in source.items() if k not in changing},
            {k: v for k, v in made.items() if k not in changing}, storages=False)]
        del made
    return said


def check_keys(job, facts):
    """The shards have the keys that this DeepSpeed writes at this stage, and none is stale."""
    import unpickle_equal
    with open(os.path.join(job["ckpt"], "latest")) as f:
        tag = f.read().strip()
    shard_files = lambda folder: sorted(glob.glob(os.path.join(glob.escape(folder),
                                                               "*_optim_states.pt")))
    new = shard_files(os.path.join(job["ckpt"], tag))
    said = []
    if job["stage"] != "0" and len(new) != job["world"]:
        said.append("%d optimizer files, want %d" % (len(new), job["world"]))
    if not job["alike"] or not new:
        return said
    with open(os.path.join(job["alike"], "case.json")) as f:
        latest = json.load(f)["latest"]
    theirs = unpickle_equal.load(shard_files(os.path.join(job["alike"], "ckpt", latest))[0])
    mine = unpickle_equal.load(new[-1])
    state = (mine["optimizer_state_dict"].get("optimizer_state_dict") or
             mine["optimizer_state_dict"]["base_optimizer_state"])
    steps = [e["step"].data_ptr() for e in state["state"].values()
             if hasattr(e.get("step"), "data_ptr")] if isinstance(state, dict) else []
    if len(set(steps)) != len(steps):
        said.append("sub-groups share a count of steps, which each of them would advance")
    for what, a, b in (("shard", theirs, mine),
                       ("optimizer_state_dict", theirs["optimizer_state_dict"],
                        mine["optimizer_state_dict"])):
        if list(a) != list(b):
            said.append("keys of %s: %s, DeepSpeed writes %s" % (what, list(b), list(a)))
        said += ["%s.%s is a %s, DeepSpeed writes a %s" % (what, k, type(b[k]).__name__,
                                                          type(a[k]).__name__)
                 for k in a if k in b and type(a[k]) is not type(b[k])
                 and k not in ("loss_scaler", "overflow", "clip_grad", "ds_config")]
    return said


def tools(job, work):
    from safetensors.torch import load_file
    with open(os.path.join(job["fixture"], "case.json")) as f:
        facts = json.load(f)
    truth = load_file(os.path.join(job["fixture"], "truth.safetensors"))
    out = {"id": job["id"], "said": []}
    for name, check in (("z2f", lambda: check_z2f(job, facts, truth)),
                        ("universal", lambda: check_universal(job, facts, truth, work)),
                        ("client", lambda: check_client(job, facts)),
                        ("keys", lambda: check_keys(job, facts))):
        try:
            said = check()
        except BaseException as e:
            where = traceback.extract_tb(e.__traceback__)[-1]
            said = ["%s: %s: %s (%s:%d)" % (name, type(e).__name__, str(e)[:300],
                                            os.path.basename(where.filename), where.lineno)]
        out[name] = None if said is None else not said
        out["said"] += said or []
    return out


# ------------------------------------------------------------------ one version's process
def last_words(said):
    """The exception at the end of a rank's traceback, and where it came from."""
    lines = [x.strip() for x in said.splitlines() if x.strip() and set(x.strip()) - set("^~")]
    place = [x for x in lines if x.startswith("File ")][-1:]
    return ("%s (%s)" % (lines[-1], place[0]) if lines and place else said)[-500:]


def worker(path):
    """Runs the jobs of one DeepSpeed version; one line of JSON per result."""
    with open(path) as f:
        plan = json.load(f)
    import dsmodel
    import dsrank
    dsmodel.install_user_classes()
    dsrank.prepare()
    import deepspeed
    have = deepspeed.__version__.split("+")[0]
    if have != plan["version"]:
        print("resume: DeepSpeed %s, want %s" % (have, plan["version"]), file=sys.stderr)
        return 1
    done = set()

    def report(result):
        with open(plan["results"], "a") as f:
            f.write(json.dumps(result) + "\n")

    for world in sorted({j["world"] for j in plan["jobs"]}):
        todo = [j for j in plan["jobs"] if j["world"] == world]
        while todo:
            def work(rank, size):
                for j in todo:
                    resume(j, rank, size, report)
            said = dsrank.fork_ranks(world, work)
            done = set()
            if os.path.exists(plan["results"]):
                with open(plan["results"]) as f:
                    done = {json.loads(line)["id"] for line in f}
            if not said:
                break
            # the first one without a result is the one that ended the group
            left = [j for j in todo if j["id"] not in done]
            if left:
                report({"id": left[0]["id"], "said": [last_words(said)], "equal": 0, "wanted": 0,
                        "losses": None, "died": True})
                left = left[1:]
            todo = left
    if plan["tools"]:
        work = tempfile.mkdtemp(prefix="zckpt-resume-tools-")
        for j in plan["jobs"]:
            report(dict(tools(j, work), tools=True))
        shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(worker(sys.argv[1]))
