"""Modules of PyTorch of nine families, imported and trained by mxlite, beside PyTorch: peak bytes and time.

    python benchmarks/torch_imported.py            writes results/<date>-torch-imported.md
    python benchmarks/torch_imported.py --quick    two blocks, one round; prints only

Both run in one process, on one thread. Times are seconds of the processor: the shortest of some rounds in
which the columns take turns.
"""

from __future__ import annotations

import argparse
import os
import sys
from inspect import signature
from math import prod
from time import process_time
from typing import Any

import torch
from harness import heading, markdown, RESULTS
from harness.machine import write_page
from peers.imported_nets import blocks_of, CLASSES, FAMILIES, Family, IMAGE, LENGTH, WORDS
from torch_checkpoints import Column, MIB, Net, WithLoss

import mxlite as mx
from mxlite.formats.torch import Applied

BLOCKS, BATCH, ROUNDS = 6, 8, 5
RATE, MOMENTUM = 0.01, 0.9
PEAK, SPEED = 0.6, 1.2  # wanted: peak without a budget / eager's; speed beside checkpoints of each block

ABOUT = """\
A step is forward, cross-entropy, backward and an update by SGD with momentum, of {blocks} blocks at batch
{batch}. Peaks: PyTorch's by its allocator's events (parameters, gradients, momentum, inputs, what autograd
keeps), mxlite's as planned, all bytes of the program. "Each block": a checkpoint around every block, in
PyTorch; "within": mxlite's step with that peak as its budget. Speed: the time of PyTorch with these
checkpoints divided by that of mxlite within their peak. Losses apart: the largest difference of mxlite's two
columns, relative. Wanted: peak / eager of at most {peak}, a geometric mean of the speeds of at least {speed}.

"""


class Imported:
    """The steps of an imported network, within a budget in bytes."""

    def __init__(self, module: WithLoss, inputs: Any, budget: int | None) -> None:
        symbol, args, aux = mx.from_torch(module, inputs)
        names = [n for n in symbol.list_arguments() if n not in args]
        data = {n: x.numpy() for n, x in zip(signature(module.forward).parameters, inputs) if n in names}
        self.module = mx.mod.Module(symbol, names, None, memory_budget=budget, fused_update=True)
        self.module.bind([mx.io.DataDesc(n, data[n].shape, data[n].dtype) for n in names])
        self.module.set_params(args, aux)
        settings = {"learning_rate": RATE, "momentum": MOMENTUM, "rescale_grad": 1.0}
        self.module.init_optimizer(optimizer="sgd", optimizer_params=settings)
        self.batch = mx.io.DataBatch([mx.nd.array(data[n], dtype=data[n].dtype) for n in names], [])
        self.peak = self.module.memory_plan.peak_bytes
        self.seconds = float("inf")
        self.losses = [self.step()]

    def step(self) -> float:
        self.module.forward_backward(self.batch)
        self.module.update()
        loss = float(self.module.get_outputs()[0].asnumpy())
        mx.nd.waitall()
        return loss

    def time(self) -> None:
        start = process_time()
        self.losses.append(self.step())
        self.seconds = min(self.seconds, process_time() - start)


def measure(family: Family, blocks: int, rounds: int) -> tuple[list[object], float, float]:
    """The row of a family, its peak beside eager's, and its speed beside checkpoints."""

    def inputs() -> tuple[torch.Tensor, torch.Tensor]:
        if family.words:
            return torch.randint(0, WORDS, (BATCH, LENGTH)), torch.randint(0, WORDS, (BATCH, LENGTH))
        return torch.randn(BATCH, 3, IMAGE, IMAGE), torch.randint(0, CLASSES, (BATCH,))

    def each(module: torch.nn.Module, inputs: Any, optimizer: Any) -> None:
        Applied(module, dict.fromkeys(blocks_of(module), ()))

    net = Net(lambda: family.make(blocks), inputs, lambda name, part: False)
    eager, checkpointed = Column("eager", net, lambda *_: None), Column("each block", net, each)
    torch.manual_seed(7)
    module = WithLoss(net.make()).train()
    batch = net.inputs()
    ours, within = (Imported(module, batch, budget) for budget in (None, checkpointed.measured))
    for _ in range(rounds):
        for column in (eager, checkpointed, ours, within):
            column.time()
    apart = max(abs(a - b) / abs(b) for a, b in zip(ours.losses, within.losses))
    peak, speed = ours.peak / eager.measured, checkpointed.seconds / within.seconds
    peaks = (eager.measured, ours.peak, checkpointed.measured, within.peak)
    times = (eager.seconds, ours.seconds, checkpointed.seconds, within.seconds)
    row = [family.name, *(f"{n / MIB:.1f}" for n in peaks), f"{peak:.2f}"]
    return [*row, *(f"{1000 * s:.0f}" for s in times), f"{speed:.2f}", f"{apart:.0e}"], peak, speed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=[f.name for f in FAMILIES], help="one family")
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ |= {"MXLITE_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    blocks, rounds = (2, 1) if options.quick else (BLOCKS, ROUNDS)
    text = heading("Imported modules beside PyTorch", {"torch": torch.__version__}, "in the same process")
    text += "\n" + ABOUT.format(blocks=blocks, batch=BATCH, peak=PEAK, speed=SPEED)
    rows, peaks, speeds = [], [], []
    for family in FAMILIES:
        if options.only in (None, family.name):
            print(family.name, file=sys.stderr, flush=True)
            row, peak, speed = measure(family, blocks, rounds)
            rows.append(row)
            peaks.append(peak)
            speeds.append(speed)
    titles = ("network", "eager MiB", "mxlite MiB", "each block MiB", "within MiB", "peak / eager")
    times = ("eager ms", "mxlite ms", "each block ms", "within ms", "speed", "losses apart")
    text += markdown((*titles, *times), rows)
    mean, fit = prod(speeds) ** (1 / len(speeds)), sum(p <= PEAK for p in peaks)
    text += f"\nGeometric mean of the speeds: {mean:.2f}. Peaks of at most {PEAK} of eager's: "
    text += f"{fit} of {len(peaks)}.\n"
    write_page(text, None if options.quick or options.only else RESULTS, "torch-imported")


if __name__ == "__main__":
    main()
