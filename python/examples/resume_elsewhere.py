"""Plain torch: resume a DeepSpeed run without DeepSpeed, train on, and save a step that it resumes.

    python resume_elsewhere.py RUN NEW_RUN

The model here is a small one of this file; yours replaces it.  Any number of processes reads any
number of ranks' files: torchrun --nproc-per-node N does the same with DDP or fully_shard().
"""
import sys

import torch

import zckpt


def model_of(ck):
    """A module with the parameters that the checkpoint has."""
    model = torch.nn.Module()
    for name in ck:
        tensor = ck[name]
        if tensor.role not in ("trainable", "frozen"):
            continue
        *path, last = name.split(".")
        module = model
        for part in path:
            if not hasattr(module, part):
                module.add_module(part, torch.nn.Module())
            module = getattr(module, part)
        module.register_parameter(last, torch.nn.Parameter(
            torch.zeros(tensor.shape), requires_grad=tensor.role == "trainable"))
    return model


def main(run, new_run):
    with zckpt.open(run) as ck:
        model, step = model_of(ck), ck.step
        groups = [[] for _ in range(1 + max(ck[n].group or 0 for n in ck))]
        for name, parameter in model.named_parameters():
            if ck[name].group is not None:
                groups[ck[name].group].append(parameter)
        optimizer = torch.optim.AdamW([{"params": g} for g in groups])
        zckpt.load_into(model, ck, optimizer=optimizer, strict=False)
    for _ in range(2):
        loss = sum((p ** 2).sum() for p in model.parameters() if p.requires_grad)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        print(f"step {step}: loss {loss.item():.6f}")
    with zckpt.Saver(new_run) as saver:
        saver.save(model, optimizer, step, to="deepspeed", stage=2, layout_world=4)
    print(zckpt.open(new_run))


if __name__ == "__main__":
    main(*sys.argv[1:])
