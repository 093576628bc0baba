"""Tables of measured schedules: the seconds of some schedules of a task, and the features of each."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from mxlite import cpu
from mxlite.backends import backend_of, Request
from mxlite.backends.cpu.product_part import GENERATED
from mxlite.backends.timed_call import cold_and_warm
from mxlite.backends.tune.space import Schedule, TaskSpace
from mxlite.backends.tune.task import Task
from mxlite.backends.tune.worker import Bench
from mxlite.graph.attrs import parse_attrs
from mxlite.ops import find_op

FOLDER = Path(__file__).resolve().parent.parent / "data" / "schedules"
ROUNDS = 2  # of which the faster one counts: what disturbs only adds

PRODUCTS = (
    (256, 256, 256), (384, 384, 384), (512, 512, 512), (768, 768, 768), (64, 1024, 1024), (64, 2048, 512),
    (128, 512, 512), (128, 1024, 512), (16, 1024, 1024), (16, 2560, 2560), (8, 2048, 1024), (8, 1024, 2048),
    (32, 2560, 1024), (1024, 64, 64), (2048, 32, 128), (512, 48, 1000),
)  # fmt: skip
"""M, N, K."""
CONVOLUTIONS = (
    (2, 64, 56, 64, 3, 1), (2, 64, 56, 64, 1, 1), (2, 64, 56, 128, 3, 2), (2, 64, 56, 128, 1, 2),
    (2, 128, 28, 128, 3, 1), (2, 128, 28, 256, 3, 2), (2, 256, 14, 256, 3, 1), (2, 512, 7, 512, 3, 1),
)  # fmt: skip
"""Images, channels, size, filters, kernel, stride."""


@dataclass(frozen=True)
class Table:
    """Schedules of one task and their seconds; the default one is the first."""

    name: str
    family: str
    schedules: tuple[Schedule, ...]
    features: dict[Schedule, tuple[float, ...]]
    seconds: dict[Schedule, float]

    @property
    def best(self) -> float:
        return min(self.seconds.values())

    def row(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "name": self.name,
            "family": self.family,
            "schedules": [s.row() for s in self.schedules],
            "features": [list(self.features[s]) for s in self.schedules],
            "ns": [round(1e9 * self.seconds[s]) for s in self.schedules],
        }

    @classmethod
    def of(cls, row: dict[str, Any]) -> Table:
        schedules = tuple(s for told in row["schedules"] if (s := Schedule.of(told)) is not None)
        features = {s: tuple(f) for s, f in zip(schedules, row["features"])}
        return cls(
            row["name"],
            row["family"],
            schedules,
            features,
            {s: ns / 1e9 for s, ns in zip(schedules, row["ns"])},
        )


def tables(family: str) -> list[Table]:
    """Those that are kept of a family."""
    with gzip.open(FOLDER / f"{family}.json.gz", "rt") as file:
        return [Table.of(row) for row in json.load(file)]


def keep(family: str, found: Sequence[Table]) -> None:
    """Write the tables of a family."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = json.dumps([t.row() for t in found], separators=(",", ":"))
    (FOLDER / f"{family}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def tasks(family: str) -> list[tuple[str, Task]]:
    """The tasks of a family, and their names, on one thread."""
    if family == "products":
        return [(f"{m}x{n}x{k}", task_of("dot", ((m, k), (k, n)))) for m, n, k in PRODUCTS]
    found = []
    for n, c, size, f, kernel, stride in CONVOLUTIONS:
        options = dict(
            kernel=(kernel,) * 2, num_filter=f, stride=(stride,) * 2, pad=(kernel // 2,) * 2, no_bias=True
        )
        shapes = (n, size, size, c), (f, c, kernel, kernel)
        for backward in (False, True):
            name = f"{c}x{size}x{size} to {f}, {kernel}x{kernel}/{stride}{', gradient' * backward}"
            found.append((name, task_of("_convolution_channels_last", shapes, backward, **options)))
    return found


def task_of(
    name: str, shapes: Sequence[tuple[int, ...]], backward: bool = False, threads: int = 1, **options: Any
) -> Task:
    """A float32 call of an operator, or of its gradient, with inputs of these shapes."""
    op, kind = find_op(name), np.dtype("float32")
    a = parse_attrs(op, {k: str(v) for k, v in options.items()})
    ins, outs = op.infer_shape(a, *shapes)
    have = dict(zip((*op.input_names(a), *op.output_names(a)), (*ins, *outs)))
    have |= {f"d_{n}": s for n, s in have.items()}
    called = op.grad_op if backward else op
    assert called is not None
    arrays = [tuple((have[n], kind) for n in names(a)) for names in (called.input_names, called.output_names)]
    request = Request(called, a, tuple(ins), tuple(outs), kind, (kind,) * len(ins))
    return Task(request, arrays[0], arrays[1], threads, name)


def drawn(tasks: Sequence[Task], count: int, seed: int = 0) -> list[list[Schedule]]:
    """For each task its default schedule and others, as many of each kernel and way as there are.

    Those of products are the same for all tasks, drawn from the spaces of each.
    """
    spaces = [task.space(backend_of(cpu())) for task in tasks]
    if any(task.request.op.op_name != "dot" for task in tasks):
        return [_some(space, count, seed) for space in spaces]
    each = [_some(space, -(-count // len(spaces)) + 1, seed + k) for k, space in enumerate(spaces)]
    knobs = dict.fromkeys(s.knobs for some in zip(*each) for s in some if s.kernel != "reference")
    found = []
    for space in spaces:
        usual = space.default
        some = [usual, *(replace(usual, knobs=k) for k in knobs if k[0] == GENERATED)]
        found.append([s for s in some if space.kernel(s) is not None])
    return found


def _some(space: TaskSpace, count: int, seed: int) -> list[Schedule]:
    legal = space.legal
    kinds: dict[tuple[Any, ...], list[Schedule]] = {}
    for s in legal[1:]:
        kinds.setdefault((s.kernel, s.knobs[:1], s.knobs[len(s.knobs) // 2 :][:1]), []).append(s)
    random = Random(seed)
    for some in kinds.values():
        random.shuffle(some)
    found = [legal[0]]
    while len(found) < min(count, len(legal)):
        found += [some.pop() for some in kinds.values() if some]
    return found[:count]


def build(task: Task, schedules: Sequence[Schedule]) -> None:
    """Compile some schedules, so that measuring them does not."""
    bench = Bench(task, backend_of(cpu()))
    for s in schedules:
        bench.build(s)


def measured(name: str, family: str, task: Task, schedules: Sequence[Schedule]) -> Table:
    """Their table."""
    backend = backend_of(cpu())
    bench = Bench(task, backend)
    seconds = dict.fromkeys(schedules, float("inf"))
    bench.results(lambda: None)  # fills the arrays
    with backend.running(task.threads):
        calls = {s: bench.connected(bench.kernel(s)) for s in schedules}
        for _ in range(ROUNDS):
            for s, run in calls.items():
                seconds[s] = min(seconds[s], cold_and_warm(backend, task.threads, run, lambda: None)[1])
    space = bench.space
    features = {s: tuple(round(x, 3) for x in space.features(s)) for s in schedules}
    return Table(name, family, tuple(schedules), features, seconds)
