"""One process of a Trainer of several, for trainer_cases.py: torchrun starts it.

    trainer_rank.py ARGUMENTS.json

The arguments are those of trainer_cases (fixtures, data, tokens), 'case', 'out', 'resume' and 'spoil'.
Each process writes OUT/seen.RANK.json: its share of each step's loss.
"""
import argparse
import json
import os
import sys

import numpy as np
import torch

import trainer_cases as cases


def main():
    with open(sys.argv[1]) as f:
        a = argparse.Namespace(**json.load(f))
    a.rows = torch.from_numpy(np.fromfile(a.data, "<u2").astype(np.int64).reshape(-1, a.tokens))
    world, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    c = cases.CASES[a.case]
    t = cases.trainer(a, c, a.out, cases.spoil if a.spoil else None, ddp_backend="gloo",
                      gradient_accumulation_steps=cases.ROWS // c[3] // world)
    t.train(resume_from_checkpoint=a.resume)
    with open(os.path.join(a.out, "seen.%d.json" % rank), "w") as f:
        json.dump({"%d" % n: x / world for n, x in t.seen.items()}, f)
    # gloo's threads end a process with SIGABRT, now and then, that leaves by Python's own way
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    os._exit(0)


if __name__ == "__main__":
    main()
