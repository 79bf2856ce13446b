"""Vision-language models: zckpt's names, steps and folders against transformers and DeepSpeed.

    vl_cases.py WORK [--zckpt PATH] [--ztrain PATH] [--only WORD]

Tiny Qwen2-VL, Qwen2.5-VL, Qwen3-VL and InternVL with random weights, saved by transformers, tied and
not. For each:
  1. `zckpt shard` names the parameters as named_parameters() does, in its order, and the state dict
     has the model's names
  2. with the tower frozen, an engine of stock DeepSpeed with other weights loads the step, has the
     weights, trains on pictures and text, and saves
  3. `zckpt convert` of that step gives the names and shapes that save_pretrained() writes of the
     model; from_pretrained() finds every key and no other; the logits are those of the live model
  4. as a state dict of torch it has the names of the modules, and load_state_dict(strict) takes it
  5. `--naming native` gives a folder with the names of the modules
  6. `zckpt diff` finds the step and the folder equal
  7. a folder of torch.distributed.checkpoint with the names of the modules gives them too
  8. `--language-part` gives a decoder that AutoModelForCausalLM loads; for text its logits are
     those of the whole model, and put back it makes the whole model again
  9. ztrain trains that decoder, and put back as the guide says it is the whole model's
"""
import argparse
import json
import os
import subprocess
import sys

import dsrank
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

TEXT = dict(vocab_size=101, hidden_size=32, intermediate_size=56, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
            bos_token_id=1, eos_token_id=2)
ROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}
TOKENS = dict(image_token_id=99, video_token_id=98, vision_start_token_id=97, vision_end_token_id=96)
LINEAR = torch.nn.functional.linear
TOWER = {"internvl": ("model.vision_tower.*", "model.multi_modal_projector.*")}
# model, tied, stage, frozen as published or by the module's name
CASES = [("qwen2_vl", True, 2, False), ("qwen2_5_vl", False, 2, True), ("qwen2_5_vl", True, 3, False),
         ("qwen3_vl", False, 3, False), ("qwen3_vl", True, 2, False), ("internvl", False, 2, True),
         ("internvl", True, 3, False)]


def config(model, tied):
    text, more = dict(TEXT, tie_word_embeddings=tied), dict(TOKENS)
    if model == "internvl":
        text["model_type"], more = "qwen2", dict(image_token_id=99)
        vision = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                      intermediate_size=24, image_size=[28, 28], patch_size=[14, 14])
    else:
        text["rope_parameters"] = ROPE
        vision = dict(depth=2, num_heads=2)
    if model == "qwen2_vl":
        vision.update(embed_dim=16, hidden_size=32, mlp_ratio=2)
    if model == "qwen2_5_vl":
        vision.update(hidden_size=16, intermediate_size=24, out_hidden_size=32,
                      fullatt_block_indexes=[1])
    if model == "qwen3_vl":
        text["head_dim"] = 8
        vision.update(depth=3, hidden_size=16, intermediate_size=24, out_hidden_size=32,
                      deepstack_visual_indexes=[0, 1], num_position_embeddings=16)
    return AutoConfig.for_model(model, text_config=text, vision_config=vision,
                                tie_word_embeddings=tied, **more)


def net_of(case, dtype, seed):
    torch.manual_seed(seed)
    return AutoModelForImageTextToText.from_config(config(case[0], case[1]), dtype=dtype,
                                                   attn_implementation="eager")


def inputs(net):
    """A row with one picture: its patches and as many tokens as they become."""
    c = net.config
    g = torch.Generator().manual_seed(3)
    dtype = next(net.parameters()).dtype
    if c.model_type == "internvl":
        pictures, n = dict(pixel_values=torch.randn(1, 3, 28, 28, generator=g).to(dtype)), 1
    else:
        v = c.vision_config
        wide = v.in_channels * v.temporal_patch_size * v.patch_size ** 2
        pictures, n = dict(pixel_values=torch.randn(16, wide, generator=g).to(dtype),
                           image_grid_thw=torch.tensor([[1, 4, 4]])), 4
    ids = torch.arange(12)[None] * 7 % 90 + 3
    ids[0, 3:3 + n] = c.image_token_id
    if c.model_type != "internvl":
        ids[0, 2] = c.vision_start_token_id
        pictures["mm_token_type_ids"] = (ids == c.image_token_id).int()
    return dict(input_ids=ids, attention_mask=torch.ones_like(ids), **pictures)


def freeze(net):
    for n, p in net.named_parameters():
        p.requires_grad = "language_model" in n or n.startswith("lm_head")


def frozen_names(case):
    if not case[3]:
        return ",".join(TOWER.get(case[0], ("model.visual.*",)))
    return "visual.*" if case[0] != "internvl" else "vision_tower.*,multi_modal_projector.*"


def ds_config(stage):
    return {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "steps_per_print": 10 ** 6,
            "zero_optimization": {"stage": stage, "overlap_comm": False,
                                  "stage3_param_persistence_threshold": 50},
            "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}


def logits_of(net):
    with torch.no_grad():
        return net(**inputs(net), use_cache=False).logits


def zckpt(exe, *args):
    r = subprocess.run([exe, *args], capture_output=True, text=True, timeout=120,
                       stdin=subprocess.DEVNULL)
    return "" if r.returncode == 0 else "zckpt %s: exit %d: %s%s" % (
        args[0], r.returncode, r.stdout.strip()[-300:], r.stderr.strip()[-300:])


def shapes_in(folder):
    with safe_open(os.path.join(folder, "model.safetensors"), "pt") as f:
        return {k: tuple(f.get_slice(k).get_shape()) for k in f.keys()}


# ------------------------------------------------------------------ the parts of a case
def check_step(net, run, stage):
    rank = "zero_pp_rank_0_" if stage == 3 else ""
    root = torch.load(os.path.join(run, "global_step0", rank + "mp_rank_00_model_states.pt"),
                      weights_only=False)
    want = [n for n, p in net.named_parameters() if p.requires_grad]
    got = [n for group in root["param_shapes"] for n in group]
    said = [] if want == got else ["%s where the model has %s" % next(
        (a, b) for a, b in zip(got + [None], want + [None]) if a != b)]
    if set(net.state_dict()) != set(root["module"]):
        said.append("names of module: %s" % sorted(set(net.state_dict()) ^ set(root["module"]))[:3])
    frozen = {n: tuple(p.shape) for n, p in net.named_parameters() if not p.requires_grad}
    if {n: tuple(s) for n, s in root["frozen_param_shapes"].items()} != frozen:
        said.append("frozen parameters are other ones")
    return said


def train(case, weights, first, run, rank):
    """Resume 'first', two steps, save to 'run'."""
    import deepspeed
    net = net_of(case, torch.float32, 77)
    freeze(net)
    opt = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=3.0)
    engine = deepspeed.initialize(model=net, optimizer=opt, config=ds_config(case[2]),
                                  dist_init_required=False)[0]
    path, _ = engine.load_checkpoint(first)
    said = ["nothing was loaded"] if path is None else []
    state = dsrank.gather(engine, net)
    for n, w in weights.items():
        if n + "|weight" in state and not torch.equal(state[n + "|weight"], w):
            said.append("%s is not what was saved" % n)
    engine.train()
    for _ in range(2):
        x = inputs(net)
        engine.backward(engine(**x, labels=x["input_ids"], use_cache=False).loss)
        engine.step()
    truth = {k: t for k, t in dsrank.gather(engine, net).items() if not k.endswith("|buffer")}
    if all(torch.equal(truth[n + "|weight"], w) for n, w in weights.items() if n + "|master" in truth):
        said.append("training changed nothing")
    engine.eval()
    torch.nn.functional.linear = LINEAR     # stage 3 has put its own there
    truth["live logits"] = logits_of(engine.module).contiguous()
    engine.save_checkpoint(run)
    torch.distributed.barrier()
    if rank == 0:
        net.config.architectures = [type(net).__name__]
        net.config.save_pretrained(run)
        save_file(truth, run + ".truth")
        with open(run + ".said", "w") as f:
            json.dump(said, f)


def load_folder(folder, dtype, auto=AutoModelForImageTextToText):
    net, info = auto.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", output_loading_info=True,
        local_files_only=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        if info.get(key):
            raise RuntimeError("%s: %s" % (key, sorted(map(str, info[key]))[:4]))
    net.eval()
    return net


def filled(case, truth, dtype):
    """A fresh model with the live state, without any file between."""
    net = net_of(case, dtype, 5)
    what = "|master" if dtype is torch.float32 else "|weight"
    state = {n: truth.get(n + what, truth.get(n + "|weight")) for n, _ in net.named_parameters()}
    net.load_state_dict(state, strict=False)
    net.tie_weights()
    net.eval()
    return net


def check_folder(exe, case, run, dtype, folder):
    out, truth = "%s-%s" % (run, dtype), load_file(run + ".truth")
    said = zckpt(exe, "convert", "--dtype", dtype, run, out, "-q")
    if said:
        return [said]
    want, got = shapes_in(folder), shapes_in(out)
    if want != got:
        return ["names or shapes are not those of save_pretrained(): %s" % sorted(
            set(want.items()) ^ set(got.items()))[:3]]
    kind = {"bf16": torch.bfloat16, "fp32": torch.float32}[dtype]
    logits = logits_of(load_folder(out, kind))
    said = zckpt(exe, "diff", run, out, "-q") if dtype == "fp32" else ""
    said = [said] if said else []
    if not torch.equal(logits, logits_of(filled(case, truth, kind))):
        said.append("logits are not those of the live %s state" % dtype)
    if dtype == "bf16" and not torch.equal(logits, truth["live logits"]):
        said.append("logits differ from the live model's")
    return said


def check_torch(exe, case, run):
    out = run + ".pt"
    said = zckpt(exe, "convert", run, out, "-q")
    if said:
        return [said]
    net = net_of(case, torch.float32, 9)
    net.load_state_dict(torch.load(out), strict=True)
    net.eval()
    same = torch.equal(logits_of(net), logits_of(filled(case, load_file(run + ".truth"), torch.float32)))
    return [] if same else ["the logits of the state dict are other ones"]


def check_native(exe, net, run, out):
    """The names of the modules in a folder as well."""
    said = zckpt(exe, "convert", "--naming", "native", run, out, "-q")
    if said:
        return [said]
    want = {n for n, _ in net.named_parameters()}
    return sorted(want ^ set(shapes_in(out)))


def check_dcp(exe, net, folder, at):
    import torch.distributed.checkpoint as dcp
    dcp.save({"model": net.state_dict()}, checkpoint_id=at)
    net.config.save_pretrained(at)
    said = zckpt(exe, "convert", "--dtype", "keep", at, at + "-hf", "-q")
    if said:
        return [said]
    a, b = (load_file(os.path.join(f, "model.safetensors")) for f in (folder, at + "-hf"))
    for k in [k for k in b if net.config.tie_word_embeddings and k.endswith("lm_head.weight")]:
        del b[k]        # DCP stores it a second time
    same = a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
    return [] if same else ["%s" % sorted(a.keys() ^ b.keys())[:3]]


def check_language(exe, case, source, out):
    """Of the folder as well as of the step."""
    said = zckpt(exe, "convert", "--dtype", "fp32", "--language-part", source, out, "-q")
    if said:
        return [said]
    whole = filled(case, load_file(source + ".truth"), torch.float32) if "-run" in source else \
        load_folder(source, torch.float32)
    alone = load_folder(out, torch.float32, AutoModelForCausalLM)
    ids = torch.arange(12)[None] * 7 % 90 + 3
    with torch.no_grad():
        want, got = (n(input_ids=ids, use_cache=False).logits for n in (whole, alone))
    said = [] if torch.equal(want, got) else ["logits differ by %g" % (want - got).abs().max()]
    again = net_of(case, torch.float32, 31)
    again.load_state_dict({k: v for k, v in whole.state_dict().items() if "language_model" not in k},
                          strict=False)
    again.model.language_model.load_state_dict(alone.model.state_dict())
    again.lm_head.load_state_dict(alone.lm_head.state_dict())
    again.eval()
    if not torch.equal(logits_of(again), logits_of(whole)):
        said.append("put back, it makes another model")
    return said


def check_ztrain(exe, ztrain, folder, text, at):
    """After check_language(), which made 'text' of 'folder'."""
    g = torch.Generator().manual_seed(1)
    rows = torch.randint(3, 90, (8, 12), generator=g)
    save_file({"input_ids": rows, "labels": rows.clone()}, at + "-rows.safetensors")
    r = subprocess.run([ztrain, "--model", text, "--data", at + "-rows.safetensors", "--steps", "3",
                        "--lr", "1e-3", "--save", at + "-trained"], capture_output=True, text=True,
                       timeout=120)
    said = "ztrain: exit %d: %s" % (r.returncode, r.stderr[-300:]) if r.returncode else zckpt(
        exe, "convert", "--aux", text, at + "-trained", at + "-new-text", "-q")
    if said:
        return [said]
    whole = load_folder(folder, torch.float32)
    alone = load_folder(at + "-new-text", torch.float32, AutoModelForCausalLM)
    whole.model.language_model.load_state_dict(alone.model.state_dict())
    whole.lm_head.load_state_dict(alone.lm_head.state_dict())
    whole.save_pretrained(at + "-new")
    again, before = load_folder(at + "-new", torch.float32), load_folder(folder, torch.float32)
    with torch.no_grad():
        a, b, c = (n(input_ids=rows, use_cache=False).logits for n in (again, alone, before))
    said = [] if torch.equal(a, b) else ["the whole model has other logits for text"]
    if torch.equal(a, c):
        said.append("training changed nothing")
    new = again.state_dict()
    for n, w in before.state_dict().items():
        if "language_model" not in n and "lm_head" not in n and not torch.equal(w, new[n]):
            said.append("%s is another one" % n)
    return said


def parts(exe, ztrain, work, case):
    """(what, check) of a case, in order; each needs the ones before."""
    name = "%s-%s-z%d" % (case[0], "tied" if case[1] else "untied", case[2])
    at = os.path.join(work, name)
    folder, first, run = at + "-hf", at + "-zero", at + "-run"
    source = net_of(case, torch.bfloat16, 5)
    freeze(source)
    weights = {n: p.detach().clone() for n, p in source.named_parameters()}

    def shard():
        source.save_pretrained(folder)
        said = zckpt(exe, "shard", folder, first, "--world", "2", "--stage", str(case[2]), "--lr",
                     "0.01", "--dtype", "bf16", "--frozen", frozen_names(case), "-q")
        return [said] if said else check_step(source, first, case[2])

    def resume():
        died = dsrank.fork_ranks(2, lambda rank, _: train(case, weights, first, run, rank))
        if died:
            return [died[-600:]]
        with open(run + ".said") as f:
            return json.load(f)
    return name, [("sharded", shard), ("resumed by DeepSpeed", resume),
                  ("as bf16", lambda: check_folder(exe, case, run, "bf16", folder)),
                  ("as fp32", lambda: check_folder(exe, case, run, "fp32", folder)),
                  ("as a state dict", lambda: check_torch(exe, case, run)),
                  ("native", lambda: check_native(exe, source, run, at + "-native")),
                  ("as DCP", lambda: check_dcp(exe, source, folder, at + "-dcp")),
                  ("language part of the step", lambda: check_language(exe, case, run, at + "-l1")),
                  ("language part of the folder",
                   lambda: check_language(exe, case, folder, at + "-l2"))] + [
                       ("trained by ztrain",
                        lambda: check_ztrain(exe, ztrain, folder, at + "-l2", at))] * bool(ztrain)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("work")
    ap.add_argument("--zckpt", default=os.environ.get("ZCKPT"))
    ap.add_argument("--ztrain", default=os.environ.get("ZTRAIN"))
    ap.add_argument("--only", default="")
    a = ap.parse_args()
    os.makedirs(a.work, exist_ok=True)
    torch.set_num_threads(1)
    dsrank.prepare()
    passed = failed = 0
    for case in CASES:
        if a.only not in case[0]:
            continue
        name, todo = parts(a.zckpt, a.ztrain, a.work, case)
        for what, check in todo:
            try:
                said = check()
            except Exception as e:
                said = ["%s: %s" % (type(e).__name__, str(e)[-500:])]
            passed, failed = passed + (not said), failed + bool(said)
            print("%s %s %s%s" % ("FAILED" if said else "ok", name, what,
                                  ": " + "; ".join(said[:3]) if said else ""), flush=True)
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
