#!/usr/bin/env python3
"""Honest files of many libraries: audit and doctor must accuse none of them.

usage: honest_files.py FOLDER [--small]

Writes training files, models, optimizers, random states and rank files as torch, transformers,
Lightning, accelerate, PEFT and FSDP2 write them, with the libraries themselves (what is not
installed is skipped), and asks $ZCKPT about each. --small leaves the files for the fixture
tests/fixtures/honest.tar.zst and asks nothing. Last line: N passed, N failed, N skipped.
"""
import argparse
import collections
import datetime
import enum
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time
import traceback

import torch

ACCUSED = ('UNSAFE', 'somebody may', 'do not load', 'refused name', 'FILE_DAMAGED', 'CORRUPT',
           'not be read to its end', 'TRUNCATED')


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(10, 4)
        self.block = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(2)])
        self.norm = torch.nn.BatchNorm1d(4)
        self.head = torch.nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        h = self.embed(x).mean(1)
        for b in self.block:
            h = b(h)
        return self.head(self.norm(h))


class Color(enum.Enum):
    RED = 1


class Marks(enum.Flag):
    A = 1
    B = 2


class Point(collections.namedtuple('Point', 'x y')):
    pass


def trained(groups=1, named=False, frozen=False, optimizer=torch.optim.AdamW, **more):
    torch.manual_seed(0)
    net = Net()
    if frozen:
        net.embed.weight.requires_grad_(False)
    params = [(n, p) for n, p in net.named_parameters() if p.requires_grad]
    if not named:
        params = [p for _, p in params]
    if groups == 2:
        flat = [p for p in net.parameters() if p.ndim == 1]
        params = [{'params': [p for p in net.parameters() if p.ndim > 1]},
                  {'params': flat, 'weight_decay': 0.0}]
    opt = optimizer(params, lr=1e-2, **more)
    for _ in range(2):
        net(torch.randint(0, 10, (3, 5))).square().sum().backward()
        opt.step()
        opt.zero_grad()
    return net, opt


def torch_files(d):
    net, opt = trained()
    sd, od = net.state_dict(), opt.state_dict()
    ema = {k: v + 1 if v.is_floating_point() else v for k, v in sd.items()}
    save = lambda what, name, **kw: torch.save(what, f'{d}/{name}', **kw)
    save(sd, 'state-dict.pt')
    save(sd, 'legacy.pt', _use_new_zipfile_serialization=False)
    save(sd, 'protocol4.pt', pickle_protocol=4)
    save({'model': sd, 'optimizer': od, 'epoch': 3, 'args': argparse.Namespace(lr=1e-3)},
         'model-optimizer.pt')
    save({'state_dict': sd, 'best': torch.tensor(0.5)}, 'state_dict.pt')
    save({'model_state_dict': sd, 'optimizer_state_dict': od, 'loss': torch.tensor(1.0),
          'rng': torch.get_rng_state()}, 'model_state_dict.pt')
    save({'module': sd, 'lr_scheduler': {'last_epoch': 2}}, 'module.pt')
    save({'model': sd, 'ema': ema}, 'model-ema.pt')
    save({'ema': ema, 'epoch': 1}, 'ema.pt')
    save({'generator': sd, 'discriminator': ema}, 'two-models.pt')
    n, o = trained(groups=2)
    save({'model': n.state_dict(), 'optimizer': o.state_dict()}, 'groups.pt')
    n, o = trained(frozen=True)
    save({'model': n.state_dict(), 'optimizer': o.state_dict()}, 'frozen.pt')
    n, o = trained(named=True, frozen=True)
    save({'model': n.state_dict(), 'optimizer': o.state_dict()}, 'named.pt')
    n, o = trained(optimizer=torch.optim.SGD, momentum=0.9)
    save({'model': n.state_dict(), 'optimizer': o.state_dict()}, 'sgd.pt')
    save({'model': sd, 'optimizer': opt}, 'optimizer-object.pt')
    save(net, 'whole-module.pt')
    save(torch.optim.swa_utils.AveragedModel(net).state_dict(), 'averaged.pt')
    save({'rng': torch.get_rng_state(), 'python': random.getstate(), 'when':
          datetime.datetime(2024, 1, 2), 'where': pathlib.Path('/a/b'), 'color': Color.RED,
          'marks': Marks.A | Marks.B, 'point': Point(1, 2), 'size': torch.Size([2]),
          'dtype': torch.bfloat16, 'device': torch.device('cpu'), 'set': {1, 2},
          'default': collections.defaultdict(list, a=[1]), 'counter': collections.Counter('ab'),
          'deque': collections.deque([1], 3), 'complex': 1j, 'bytes': b'ab', 'range': range(3),
          'slice': slice(1, 2)}, 'values.pt')
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda i: 1 / (i + 1))
    save({'scheduler': sched.state_dict(), 'scaler': torch.amp.GradScaler('cpu').state_dict()},
         'scheduler.pt')
    try:
        import numpy as np
        save({'rng': np.random.get_state(), 'scalar': np.float32(1), 'array': np.arange(3)},
             'numpy.pt')
    except ImportError:
        pass


def transformers_files(d):
    import transformers
    args = transformers.TrainingArguments(output_dir=d + '/x', report_to=[])
    torch.save(args, d + '/training_args.bin')
    net, opt = trained()
    sched = transformers.get_linear_schedule_with_warmup(opt, 1, 10)
    torch.save(opt.state_dict(), d + '/optimizer.pt')
    torch.save(sched.state_dict(), d + '/scheduler.pt')
    torch.save({'python': random.getstate(), 'cpu': torch.get_rng_state()}, d + '/rng_state.pth')
    torch.save(net.state_dict(), d + '/pytorch_model.bin')


def lightning_files(d):
    import pytorch_lightning as pl

    class Lit(pl.LightningModule):
        def __init__(self, lr=1e-2, path=pathlib.Path('x')):
            super().__init__()
            self.save_hyperparameters()
            self.model = Net()

        def training_step(self, batch, i):
            return self.model(batch).square().sum()

        def configure_optimizers(self):
            opt = torch.optim.AdamW(self.parameters(), self.hparams.lr)
            return [opt], [torch.optim.lr_scheduler.StepLR(opt, 1)]

    data = torch.utils.data.DataLoader(torch.randint(0, 10, (8, 5)), batch_size=4)
    trainer = pl.Trainer(max_epochs=1, accelerator='cpu', logger=False, enable_progress_bar=False,
                         enable_model_summary=False, default_root_dir=d, callbacks=[
                             pl.callbacks.ModelCheckpoint(dirpath=d, filename='lightning')])
    trainer.fit(Lit(), data)


def accelerate_files(d):
    import accelerate
    acc = accelerate.Accelerator(cpu=True)
    net, opt = trained()
    sched = torch.optim.lr_scheduler.StepLR(opt, 1)
    net, opt, sched = acc.prepare(net, opt, sched)
    acc.save_state(d, safe_serialization=False)


def peft_files(d):
    import peft
    net = peft.get_peft_model(Net(), peft.LoraConfig(target_modules=['block.0'], r=2))
    net.save_pretrained(d, safe_serialization=False)


def fsdp_rank(rank, d):
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.fsdp import fully_shard
    # ranks meet by a file: a port that was free a moment ago can be taken again
    dist.init_process_group('gloo', init_method=f'file://{d}/meet', rank=rank, world_size=2)
    torch.manual_seed(0)
    mesh = torch.distributed.init_device_mesh('cpu', (2,))
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 3))
    for m in net:
        fully_shard(m, mesh=mesh)
    fully_shard(net, mesh=mesh)
    torch.save(net.state_dict(), f'{d}/model_world_size_2_rank_{rank}.pt')
    dcp.save({'model': net.state_dict()}, checkpoint_id=d + '/dcp')
    # No teardown: on a busy machine gloo's threads can end the process there ("terminate called
    # without an active exception").  Each rank leaves when both have written.
    pathlib.Path(d, f'done-{rank}').touch()
    until = time.monotonic() + 60
    while not pathlib.Path(d, f'done-{1 - rank}').exists() and time.monotonic() < until:
        time.sleep(0.01)
    os._exit(0)


def fsdp_files(d):
    os.environ.setdefault('GLOO_SOCKET_IFNAME', 'lo')
    d = os.path.abspath(d)
    for left in (2, 1, 0):
        try:
            torch.multiprocessing.spawn(fsdp_rank, (d,), nprocs=2)
            break
        except torch.multiprocessing.ProcessExitedException as e:
            if not left:
                raise
            # a rank that a signal ended: torch's own fault, which is not what is judged here
            print(f'fsdp: tried again: {e}')
            shutil.rmtree(d)
            os.makedirs(d)
    for name in ('meet', 'done-0', 'done-1'):
        pathlib.Path(d, name).unlink(missing_ok=True)


def accused_by(path):
    for verb in ('audit', 'doctor'):
        p = subprocess.run([os.environ['ZCKPT'], verb, path], capture_output=True, text=True)
        for line in (p.stdout + p.stderr).splitlines():
            if any(word in line for word in ACCUSED):
                return f'{verb}: {line[:200]}'
    return None


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('folder')
    ap.add_argument('--small', action='store_true')
    opts = ap.parse_args()
    passed = failed = skipped = 0
    for make in (torch_files, transformers_files, lightning_files, accelerate_files, peft_files,
                 fsdp_files):
        name = make.__name__.replace('_files', '')
        d = os.path.join(opts.folder, name)
        os.makedirs(d, exist_ok=True)
        try:
            make(d)
        except ImportError as e:
            print(f'{name}: skipped: {e}')
            skipped += 1
            continue
        except Exception:
            print(f'failed: {name}: the library does not write its files:')
            traceback.print_exc(file=sys.stdout)
            failed += 1
            continue
        for top, _, files in os.walk(d):
            for f in files if not opts.small else ():
                if f.endswith(('.json', '.md')):
                    continue
                bad = accused_by(os.path.join(top, f))
                passed += not bad
                failed += bool(bad)
                if bad:
                    print(f'failed: {name}/{f}: {bad}')
    print(f'{passed} passed, {failed} failed, {skipped} skipped')
    return failed > 0


if __name__ == '__main__':
    sys.exit(main())
