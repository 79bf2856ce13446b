"""Which fixtures the resume tests take, to which worlds and stages, and a sample of that."""
import collections
import glob
import json
import os
import random

WORLDS = (1, 2, 3, 4, 5, 8)
OPTION_WORLDS = (1, 3, 8)
TO_VERSIONS = ("0.19.8", "0.16.9", "0.14.5")    # --ds-version
LONG_WORLDS = (1, 2, 3, 4, 5, 6, 7, 8)          # 7 does not divide the batch: no losses there

# ------------------------------------------------------------------ what to run
# Not the writer's doing: what this DeepSpeed cannot resume even as it wrote it itself, or a
# target whose engine it cannot build. (name of the trait, why)
NEVER = {
    "muon": "Muon's momentum is not cut at the partition border (stages 1, 2) or changes its "
            "type on load (stage 3)",
    "elastic": "DeepSpeed cannot load elastic checkpoints of another world",
    "cpuadam": "needs a compiled operator",
    "odd tag": "DeepSpeed's glob does not find a tag with brackets",
    "refused layout": "not plain data parallel",
}


class Fixture:
    def __init__(self, folder):
        with open(os.path.join(folder, "case.json")) as f:
            self.facts = json.load(f)
        self.folder, self.name = folder, os.path.basename(folder)
        self.spec, self.version = self.facts["spec"], self.facts["deepspeed"]
        self.world, self.precision = self.facts["world"], self.facts["precision"]
        wide = self.spec.get("cfg", {}).get("data_types", {})
        self.stage = str(self.facts["stage"])
        if self.facts["optimizer_wrapper"] == "BF16_Optimizer" and wide and self.stage == "1":
            self.stage = "bf16"
        self.zero = self.spec.get("zero", {})
        self.opt = self.spec["opt"].get("kind", "adamw")

    def why_not(self):
        """Why no combination of this fixture can be judged, or None."""
        if self.facts["refuse"]:
            return NEVER["refused layout"]
        for trait, is_so in (("muon", self.opt == "muon"), ("cpuadam", self.opt == "cpuadam"),
                             ("elastic", self.zero.get("elastic_checkpoint")),
                             ("odd tag", "[" in self.facts["latest"])):
            if is_so:
                return NEVER[trait]
        if not str(self.facts.get("real_resume")).startswith("ok"):
            return "DeepSpeed itself does not resume it (%s)" % self.facts.get("real_resume")
        return None

    def targets(self):
        """The stages whose engine this DeepSpeed can build for this case."""
        masters16 = "bf16_master_weights_and_grads" in self.spec.get("cfg", {}).get("bf16", {})
        if masters16:
            return ("2", "3")
        if self.spec["opt"].get("groups") == "mixed":       # a group without parameters
            return ("3",)
        if self.opt == "adagrad":       # its stage-3 state cannot be loaded back at all
            return ("1", "2")
        out = ["1", "2", "3"]
        offload = "offload_optimizer" in self.zero
        # 0.17.6 gives bf16 with fp32 accumulation an optimizer that it cannot load
        if self.precision == "bf16" and not offload and self.version != "0.17.6":
            out.append("bf16")
        frozen = any(not p["requires_grad"] for p in self.facts["params"])
        # not where the optimizer of a run without ZeRO lists parameters that this one does not
        if not offload and not (frozen and self.spec["opt"].get("groups") == "one") and \
                not (self.precision == "bf16" and self.version == "0.17.6"):
            out.append("0")
        return tuple(out)

    def other_versions(self, stage):
        """The DeepSpeed versions that can run this case as well as the one that wrote it."""
        plain = not set(self.zero) - {"sub_group_size", "round_robin_gradients", "overlap_comm"}
        if not plain or self.opt != "adamw" or stage == "0" or self.spec.get("cfg"):
            return ()
        # a scheduler of another torch has other attributes; older DeepSpeed loads no group
        # without trained parameters
        if self.spec.get("sched") == "lambda" or self.spec["opt"].get("groups") == "mixed":
            return ()
        return tuple(v for v in TO_VERSIONS if v != self.version and
                     not (v == "0.14.5" and self.precision == "fp16"))  # its torch lacks that

    def traits(self, stage, world):
        s, m = self.spec, self.spec["model"]
        out = {"stage %s" % stage, self.precision, "DeepSpeed %s" % self.version,
               "%s to %s" % (self.stage, stage), "world %d" % world,
               "more ranks" if world > self.world else
               "fewer ranks" if world < self.world else "the same ranks"}
        if len({p.get("group") for p in self.facts["params"] if p["requires_grad"]}) > 1:
            out.add("several groups")
        out.update(["frozen"] if m.get("frozen") else [])
        out.update(["tied"] if m.get("tied") else [])
        out.update(["sub-groups"] if stage == "3" and "sub_group_size" in self.zero else [])
        if stage in ("1", "2") and self.stage in ("1", "2"):
            for key, name in (("round_robin_gradients", "round robin"),
                              ("parameter_alignment", "parameter_alignment")):
                out.update([name] if self.zero.get(key) else [])
        out.update(["scheduler"] if s.get("sched") else [])
        out.update(["client state"] if s.get("client") else [])
        out.update(["overflow"] if s.get("overflow_at") else [])
        out.update(["no step yet"] if not self.facts["data_step"] else [])
        out.update(["optimizer " + self.opt] if self.opt != "adamw" else [])
        return out


# what the sample must hold at least, where the fixtures have it
NEED = {"stage 1": 10, "stage 2": 10, "stage 3": 10, "stage bf16": 6, "bf16": 15, "fp16": 5,
        "fp32": 5, "several groups": 10, "sub-groups": 3, "frozen": 6, "tied": 10,
        "round robin": 3, "parameter_alignment": 3, "2 to 3": 5, "3 to 2": 5, "1 to 3": 2,
        "3 to 1": 2, "1 to 2": 1, "2 to 1": 1, "bf16 to 3": 1, "3 to bf16": 1, "bf16 to 2": 1,
        "2 to bf16": 1, "bf16 to bf16": 2, "2 to 2": 5, "3 to 3": 5, "1 to 1": 2,
        "stage 0": 6, "0 to 1": 1, "0 to 2": 1, "0 to 3": 1, "1 to 0": 1, "2 to 0": 1,
        "3 to 0": 1, "bf16 to 0": 1, "0 to 0": 1, "more ranks": 12, "fewer ranks": 12,
        "client state": 2, "overflow": 2, "scheduler": 2, "no step yet": 1,
        "chosen sub-groups": 2, "chosen round robin": 2, "other version": 6, "begun anew": 3,
        "by way of native": 8}

CHOSEN = {t for t in NEED if t.startswith("chosen")} | {"other version", "begun anew",
                                                        "by way of native"}


def combinations(fixtures, worlds):
    out = []
    for f in fixtures:
        for world in worlds:
            for stage in f.targets():
                if world == f.world and stage == f.stage:
                    continue
                base = {"fixture": f, "world": world, "stage": stage, "args": [], "zero": {},
                        "version": f.version, "traits": f.traits(stage, world)}
                out.append(base)
                # the same again with a choice of the command line
                more = {}
                if world not in OPTION_WORLDS:
                    pass
                elif stage == "3" and "sub_group_size" not in f.zero:
                    more = dict(args=["--sub-group-size", "300"], zero={"sub_group_size": 300})
                    name = {"chosen sub-groups", "sub-groups"}
                elif stage in ("1", "2") and f.zero.get("round_robin_gradients"):
                    more = dict(args=["--no-round-robin"],
                                zero={"round_robin_gradients": False})
                    name = {"chosen round robin"}
                elif stage in ("1", "2") and f.opt == "adamw":
                    more = dict(args=["--round-robin"], zero={"round_robin_gradients": True})
                    name = {"chosen round robin"}
                for v in f.other_versions(stage) if world in OPTION_WORLDS else ():
                    out.append(dict(base, args=["--ds-version", v], version=v,
                                    traits=base["traits"] | {"other version"}))
                if world in OPTION_WORLDS and stage != "0" and f.facts["data_step"]:
                    out.append(dict(base, args=["--reset-optimizer"],
                                    traits=base["traits"] | {"begun anew"}))
                if world in OPTION_WORLDS:
                    out.append(dict(base, native=(world + f.world) % 5 + 1,
                                    traits=base["traits"] | {"by way of native"}))
                if more:
                    gone = {"round robin"} if "--no-round-robin" in more["args"] else set()
                    out.append(dict(base, traits=(base["traits"] | name) - gone, **more))
    for c in out:
        c["id"] = "%s to %s:%d%s%s" % (c["fixture"].name, c["stage"], c["world"],
                                       " " + " ".join(c["args"]) if c["args"] else "",
                                       " by native:%d" % c["native"] if "native" in c else "")
    return out


def sample(every, count, seed):
    """A seeded choice of `count` that first sees to the least numbers of NEED."""
    pool = sorted(every, key=lambda c: c["id"])
    random.Random(seed).shuffle(pool)
    have, chosen, used = collections.Counter(), [], collections.Counter()

    def gain(c):
        g = sum(1.0 for t in c["traits"] if have[t] < NEED.get(t, 0))
        if (c["args"] or "native" in c) and not any(have[t] < NEED[t] for t in c["traits"] & CHOSEN):
            g -= 2.5                            # most of them with the defaults
        return g - 0.4 * used[c["fixture"].name] + (0.8 if have["DeepSpeed " +
                                                   c["fixture"].version] < count // 6 else 0)

    while pool and len(chosen) < count:
        best = max(pool, key=gain)
        pool.remove(best)
        chosen.append(best)
        have.update(best["traits"])
        used[best["fixture"].name] += 1
    return chosen


def fixtures_of(folder):
    return [Fixture(os.path.dirname(path)) for path in
            sorted(glob.glob(os.path.join(folder, "deepspeed", "*", "case.json")))]
