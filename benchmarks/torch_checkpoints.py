"""Checkpoints that mxlite plans for PyTorch's own steps, beside a checkpoint around each block.

    python benchmarks/torch_checkpoints.py            writes results/<date>-torch-checkpoints.md
    python benchmarks/torch_checkpoints.py --quick    one round; prints only

Bytes are those of PyTorch's allocator. Times are seconds of the processor, on one thread: the shortest of
some rounds in which all columns take turns.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

from harness import heading, markdown, RESULTS
from harness.machine import write_page

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from networks import twins
from torch import nn
from torch.nn import functional as F
from torch.profiler import profile, ProfilerActivity

import mxlite as mx
from mxlite.formats.torch import Applied
from mxlite.formats.torch.checkpoints.rehearsal import rehearse, state_bytes_of
from tests.formats.torch.modules.language import GPT

MIB = 2**20
ROUNDS = 9
ROOMIER = 1.25  # of the peak with a checkpoint around each block: a second budget

ABOUT = """\
Predicted: the most bytes of tensors (parameters, gradients, momentum, inputs, what autograd keeps) in a step
rehearsed without numbers. Measured: the same by PyTorch's allocator. Extra time: of the step, beyond that
without checkpoints. "Each block" has a checkpoint around every block; "planned" are those of
`mx.torch.plan` within the bytes predicted for that, and within {roomier} times as many. Beside
blocks: the time with a checkpoint around each block, divided by this one.

"""


class WithLoss(nn.Module):
    """Cross-entropy of what a network says."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = self.net(x)
        return F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))


class Encoder(nn.Module):
    """PyTorch's own encoder layers over words."""

    def __init__(self, words: int, width: int, layers: int) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(x)))


class Net(NamedTuple):
    """A network, its inputs, and the names of its blocks."""

    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[torch.Tensor, torch.Tensor]]
    is_block: Callable[[str, nn.Module], bool]


def words(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(0, 256, shape), torch.randint(0, 256, shape)


def images(batch: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch, 3, size, size), torch.randint(0, 10, (batch,))


NETS = {
    "GPT, 6 blocks of 192": Net(
        lambda: GPT(256, 192, 6, 6, 128), lambda: words(8, 128), lambda n, m: n.rpartition(".")[0] == "net.h"
    ),
    "encoder, 6 layers of 128": Net(
        lambda: Encoder(256, 128, 6),
        lambda: words(8, 128),
        lambda n, m: isinstance(m, nn.TransformerEncoderLayer),
    ),
    "ResNet-14 of 16": Net(
        lambda: twins.ResNet([2, 2, 2], 16, 10, small=True),
        lambda: images(32, 32),
        lambda n, m: isinstance(m, twins.PostActivation),
    ),
    "ResNet-26 of 16, bottlenecks": Net(
        lambda: twins.ResNet([2, 2, 2, 2], 16, 10, bottleneck=True, small=True),
        lambda: images(16, 32),
        lambda n, m: isinstance(m, twins.PostActivation),
    ),
}


class Column:
    """One way to run the steps of a network: a module of its own, with checkpoints."""

    def __init__(self, name: str, net: Net, checkpoint: Callable[[nn.Module, Any, Any], Any]) -> None:
        torch.manual_seed(7)
        self.name, self.module, self.inputs = name, WithLoss(net.make()).train(), net.inputs()
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.01, momentum=0.9, fused=True)
        checkpoint(self.module, self.inputs, self.optimizer)
        self.predicted = rehearse(self.module, self.inputs, None, state_bytes_of(self.optimizer)).peak_bytes
        self.step()
        self.measured = self._allocated()
        self.seconds = float("inf")

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.module(*self.inputs).backward()
        self.optimizer.step()

    def time(self) -> None:
        start = process_time()
        self.step()
        self.seconds = min(self.seconds, process_time() - start)

    def _allocated(self) -> int:
        """Peak bytes of tensors in a step, by the allocator's own count."""
        self.optimizer.zero_grad()
        gc.collect()
        states = [t for s in self.optimizer.state.values() for t in s.values() if isinstance(t, torch.Tensor)]
        there = (*self.module.parameters(), *self.module.buffers(), *self.inputs, *states)
        known = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in there}
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
            self.step()
        live = most = 0
        events = [e for e in found.profiler.kineto_results.events() if e.name() == "[memory]"]
        for event in sorted(events, key=lambda e: e.start_ns()):
            live += event.nbytes()
            most = max(most, live)
        return sum(known.values()) + most


def measure(net: Net, rounds: int) -> list[Column]:
    """The columns of one network, timed in turns."""

    def blocks(module: nn.Module, inputs: Any, optimizer: Any) -> Any:
        return Applied(module, {n: () for n, m in module.named_modules() if net.is_block(n, m)})

    def planned(share: float) -> Callable[[nn.Module, Any, Any], Any]:
        def put(module: nn.Module, inputs: Any, optimizer: Any) -> Any:
            budget = int(share * columns[1].predicted)
            return mx.torch.apply(module, mx.torch.plan(module, inputs, optimizer=optimizer, budget=budget))

        return put

    columns = [Column("none", net, lambda *_: None), Column("each block", net, blocks)]
    columns += [Column("planned", net, planned(1)), Column(f"planned, {ROOMIER} x", net, planned(ROOMIER))]
    for _ in range(rounds):
        for column in columns:
            column.time()
    return columns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    text = heading("Checkpoints of PyTorch", {"torch": torch.__version__}, "in the same process") + "\n"
    text += ABOUT.format(roomier=ROOMIER)
    rows = []
    for name, net in NETS.items():
        columns = measure(net, 1 if options.quick else ROUNDS)
        none, each = columns[:2]
        for c in columns:
            counted = sum(hasattr(type(m), "checkpointed") for m in c.module.modules())
            bytes_of = (
                f"{c.predicted / MIB:.1f}",
                f"{c.measured / MIB:.1f}",
                f"{c.measured / c.predicted:.2f}",
            )
            extra = f"{100 * (c.seconds / none.seconds - 1):.0f} %"
            beside = f"{each.seconds / c.seconds:.2f}"
            rows.append((name, c.name, counted, *bytes_of, f"{1000 * c.seconds:.0f}", extra, beside))
    titles = (
        "network",
        "checkpoints",
        "number",
        "predicted MiB",
        "measured MiB",
        "ratio",
        "ms",
        "extra time",
    )
    text += markdown((*titles, "beside blocks"), rows)
    write_page(text, None if options.quick else RESULTS, "torch-checkpoints")


if __name__ == "__main__":
    main()
