"""usage: gpu_times.py FILE.csv [FIRST-STEP]

Where a training step's time goes on a GPU, from what gpu_times.c wrote: the steps are separated by
the optimizer's kernel.  Per kind of work: ms a step, kernels a step; for the stream that computes:
how long it stood still, and what stood before the gaps.
"""
import collections
import csv
import re
import sys

rows = sorted((int(a), int(b), s, n) for a, b, s, n in csv.reader(open(sys.argv[1])))
first = int(sys.argv[2]) if len(sys.argv) > 2 else 3


def kind(name):
    for pattern, text in [
            (r"nccl.*AllGather", "nccl all-gather"), (r"nccl.*ReduceScatter", "nccl reduce-scatter"),
            (r"nccl", "nccl, others"), (r"sm90_xmma|nvjet|gemm|cublas|splitK", "gemm"),
            (r"cudnn.*(bprop|backward)|flash_bprop|bprop", "attention backward"),
            (r"cudnn|fprop|flash", "attention forward"), (r"^copy", "copies"), (r"^fill", "fills")]:
        if re.search(pattern, name):
            return text
    # Of C++ names the word itself, without types.
    m = re.match(r"_ZN?[^0-9]*(?:\d+_GLOBAL__N_\w*?)?(\d+)(\w+)", name)
    if not m:
        return name[:40]
    return m.group(2)[:int(m.group(1))]


ends = []
for a, b, s, n in rows:
    if kind(n) == "adam":
        if not ends or a - ends[-1][1] > 20_000_000:
            ends.append([a, b, s])
        ends[-1][1] = b
if len(ends) < first + 2:
    sys.exit(f"{len(ends)} steps are too few")
begin, end, steps = ends[first - 1][1], ends[-1][1], len(ends) - first
work = ends[-1][2]
total, count, gap = collections.Counter(), collections.Counter(), collections.Counter()
last, before = begin, "adam"
for a, b, s, n in rows:
    if a < begin or b > end:
        continue
    k = kind(n)
    total[k] += b - a
    count[k] += 1
    if s == work:
        gap[before] += max(0, a - last)
        last, before = max(last, b), k
print(f"{steps} steps of {(end - begin) / steps / 1e6:.1f} ms")
for k, t in total.most_common():
    print(f"{t / steps / 1e6:10.2f} ms {count[k] / steps:8.1f} x  {k}")
print(f"stood still {sum(gap.values()) / steps / 1e6:.2f} ms a step; after:")
for k, t in gap.most_common(8):
    print(f"{t / steps / 1e6:10.2f} ms  {k}")
