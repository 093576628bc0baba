"""Passes as tests want them: lists of a backend with some left out, one pass by itself, a willing target."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mxlite.backends import Backend, Request
from mxlite.backends.cpu import passes as cpu
from mxlite.backends.fused.tiled import TileAttrs
from mxlite.backends.gpu import passes as gpu
from mxlite.backends.passes import named, NAMES
from mxlite.backends.passes.target import Target
from mxlite.backends.rewrite import Pass, Pipeline, Stage, Step
from mxlite.graph import Entry, Graph


def left_out(monkeypatch: Any, *names: str, of: Any = cpu) -> None:
    """Programs bound from here on are optimized without these passes."""
    assert NAMES.issuperset(names)
    monkeypatch.setattr(of, "PASSES", tuple(p for p in of.PASSES if p.name not in names))


def without_stage(monkeypatch: Any, stage: Stage) -> None:
    """Programs bound from here on have no passes of this stage."""
    monkeypatch.setattr(cpu, "PASSES", tuple(p for p in cpu.PASSES if p.stage is not stage))


def as_pass(run: Callable[[Step], Step], stage: Stage = Stage.STEP) -> Pass:
    """A function of a test as a pass."""
    return Pass(run.__name__, lambda step, target: run(step), stage)


@dataclass(frozen=True)
class Willing(Target):
    """A target with the kernels for which `answer` says yes, or `tiles` of a region. It generates code."""

    answer: Callable[[Request], bool] = lambda request: True
    tiles: Callable[[TileAttrs], bool] = lambda attrs: True

    def has_kernel(self, request: Request) -> bool:
        return self.answer(request)

    def has_tile_kernels(self, a: TileAttrs, ops: Any) -> bool:
        return self.tiles(a)

    def storable(self) -> frozenset[str]:
        return frozenset(gpu.NAMES)


def asking(name: str, target: Target) -> Pass:
    """The pass of that name, which asks this target."""
    (found,) = named(name)
    return Pass(name, lambda step, _: found.run(step, target), found.stage)


def alone(
    name: str, graph: Graph, kept: Iterable[Entry] = (), num_forward: int | None = None, **how: Any
) -> Step:
    """What one pass makes of a graph. how: `target`, the CPU's unless given, and `train`."""
    (work,) = named(name)
    target = how.pop("target", cpu.TARGET)
    return Pipeline((work,), target).run(work.stage, Step.of(graph, kept, num_forward, **how))


def optimized(graph: Graph, train: bool, pipeline: Pipeline | None = None) -> Graph:
    """A forward graph as the CPU prefers it, or with another backend's passes."""
    return (pipeline or cpu.optimize()).run(Stage.FORWARD, Step(graph, train=train)).graph


def with_gpu_passes(target: Target, kernels: Any) -> Backend:
    """A backend of host memory with these kernels, and the GPU's passes for another table."""
    return Backend("cpu", np, kernels, optimize=partial(gpu.optimize, target))


def rewritten(run: Callable[[Step], Step], step: Step) -> Step:
    """What a function of a test makes of a step, as if it were a pass."""
    return Pipeline((as_pass(run),)).run(Stage.STEP, step)
