"""The page of benchmarks/gpu.py: results so far, rewritten after each column."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from harness import heading
from harness.machine import today
from networks.suite import Net
from peers.column import Column
from peers.contest import Entries, Terms

from . import HOST_STEPS, report, verdicts
from .batches import Found
from .columns import PRECISIONS, ROOM
from .contest import Clock

TUNING = "MXLITE_GPU_TUNING_SECONDS"
ASKED = 90  # seconds for a framework to report its version

ABOUT = """\
Device time of a step between two events (median (least-most) of the rounds), {seconds:g} s of steps in each
of {rounds} rounds. A step is forward, cross entropy, backward and SGD with momentum (PyTorch: the fused one),
on one batch that stays the same and lies on the GPU. float32 is without TF32 on both sides. channels_last and
max-autotune (torch.compile, which uses CUDA graphs) have images in channels_last; PyTorch's bfloat16 is
autocast. Dropout is left out. ResNet-1001 is `mx.models`' resnet1001_memonger. mxlite without a budget makes
again what is cheap and saves most; "all memory" is the fastest schedule, which makes nothing again.

JAX: the whole step under `jax.jit`, its state donated; time is the clock's, until all of a round is done.
Plain functions, channels last; attention is cuDNN's in bfloat16, else XLA's; an LSTM, and the equal blocks of
ResNet-1001, are `lax.scan`. remat: `jax.checkpoint` around every block or layer. Matrix products are of
precision "highest" in float32, "tensorfloat32" for TF32; in bfloat16 weights are rounded where they are used,
and norms, losses and cells of an LSTM stay float32.

"""
HOST = """\
The time until the last of {steps} steps was pushed (fewer where a round has fewer), divided by their number:
without waiting for the device, except where a framework waits by itself. Median (least-most) of the rounds.

"""
MEMORY = """\
planned: what the plan said before anything was allocated; of JAX what XLA says of the compiled step. peak:
mxlite's measured bytes; the peak of PyTorch's allocator in a step; that of JAX's since its process began,
trials while compiling included. gone: bytes fewer free on the device than before the network was built,
modules, graphs and libraries included; of PyTorch and JAX what their allocators have reserved.

"""
BATCHES = """\
Of mxlite: what a step that was run takes of the device, modules, graphs and libraries included. Of PyTorch:
the peak of its allocator.

"""


@dataclass
class Page:
    """The results so far. deep: entries of ResNet-1001 (`deep_net`) within budgets."""

    output: Path | None
    terms: Terms
    results: report.Results = field(default_factory=list)
    deep_net: Net | None = None
    deep: Entries | None = None
    batches: list[Found] = field(default_factory=list)
    head: str = ""
    start: float = field(default_factory=perf_counter)

    def write(self) -> str:
        """The page's text; also written to a file, if there is a folder for it."""
        text = self.head + self.body()
        if self.output is not None:
            self.output.mkdir(parents=True, exist_ok=True)
            (self.output / f"{today()}-gpu.md").write_text(text, encoding="utf-8")
        return text

    def body(self) -> str:
        """The page below the heading."""
        terms = self.terms
        text = f"- all of it took {(perf_counter() - self.start) / 60:.1f} minutes\n\n"
        text += ABOUT.format(seconds=terms.seconds, rounds=terms.rounds)
        if TUNING in os.environ:
            text += f"A process of mxlite's had {os.environ[TUNING]} s to measure kernels.\n\n"
        if terms.threads == 1:
            text += "Nothing here says anything of a GPU: it is the tests' emulated one, of others the CPU.\n"
        else:
            text += "## Targets\n\n" + verdicts.targets(self.results, self.deep, self.batches)
        return text + "".join(
            f"\n## {title}\n\n{found}" for title, found in self._sections().items() if found
        )

    def _sections(self) -> dict[str, str]:
        found = {title: report.times(self.results, p) for p, title in PRECISIONS.items()}
        found["Memory"] = MEMORY + report.memory(self.results)
        found["The host"] = HOST.format(steps=HOST_STEPS) + report.host(self.results)
        whole: report.Results = []
        if self.deep and self.deep_net is not None:
            whole = [(self.deep_net, self.deep)]
            (precision,) = {e.column.precision for e in self.deep.values()}
            title = f"ResNet-1001 within budgets, {PRECISIONS[precision]}"
            found[title] = report.times(whole, precision) + "\n" + report.memory(whole)
        if self.batches:
            title = f"Largest batch of ResNet-50 in {ROOM / 1e9:g} GB"
            precision = PRECISIONS[self.batches[0].column.precision]
            found[f"{title}, {precision}"] = BATCHES + "".join(
                f"- {b.column.title}: {b}\n" for b in self.batches
            )
        found["Left out"] = report.notes([*self.results, *whole])
        return found


def about(columns: Sequence[Column], clock: Clock) -> str:
    """The heading: machine, GPU, versions of all frameworks. Each may take at most 1/10 of the time."""
    found: dict[str, dict[str, str]] = {}
    for column in columns:
        if column.side not in found and not column.missing():
            found[column.side] = {}
            with suppress(RuntimeError, OSError), column.start(1) as worker:  # reported below
                found[column.side] = worker.ask(min(ASKED, clock.left / 10), do="versions")
    peers = {f"{side} {k}": v for side, own in found.items() for k, v in own.items()}
    return heading("A training step on the GPU", peers or {"no column": "could be asked"})
