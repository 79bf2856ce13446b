"""The peer of save sessions: PyTorch's Distributed Checkpoint, of as many bytes.

    dcp.py FOLDER MIB

Saves a dictionary of 72 CPU tensors in fp32 into FOLDER (which is made), unsynced and with two
threads, then loads it into tensors that are there already. Prints the seconds of both.
"""
import shutil
import sys
import time
import warnings

import torch
import torch.distributed.checkpoint as dcp

warnings.filterwarnings("ignore")
folder, mib = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(2)
numel = mib * (1 << 20) // 4 // 72
state = {f"layers.{i}.w": torch.arange(numel, dtype=torch.float32) for i in range(72)}
begin = time.perf_counter()
dcp.save(state, storage_writer=dcp.FileSystemWriter(folder, thread_count=2, sync_files=False))
saved = time.perf_counter()
for tensor in state.values():
    tensor.zero_()
zeroed = time.perf_counter()
dcp.load(state, storage_reader=dcp.FileSystemReader(folder))
loaded = time.perf_counter()
if not all(torch.equal(t, torch.arange(numel, dtype=torch.float32)) for t in state.values()):
    sys.exit("dcp.py: what was loaded is not what was saved")
print(f"{saved - begin:.6f} {loaded - zeroed:.6f}")
shutil.rmtree(folder)
