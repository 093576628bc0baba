"""What a step of a bound program on a GPU costs the host: Python alone, behind a driver that does nothing.

    python benchmarks/gpu_host_time.py [model ...]       some seconds each; prints

Needs no GPU. CPU time of the thread that asks and of the worker that launches, per step, when the step has
become one CUDA graph; the driver's own time for a launch comes on top (some microseconds each).
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import mxlite as mx
from mxlite.backends.gpu import drivers_of

STEPS, ROUNDS = 2000, 5
TARGET_US = 50.0
MODELS = ("mlp", "lenet", "resnet50", "resnet152")


class SilentDriver:
    """See mxlite.backends.gpu.driver.Driver; no call of it does anything."""

    name, architecture, multiprocessors, shared_bytes = "silent", "sm_90", 132, 227 * 1024

    def __init__(self, index: int) -> None:
        self._handles = itertools.count(1)
        self._addresses = itertools.count(1 << 40, 1 << 36)
        self._pinned: list[np.ndarray] = []
        self.calls = 0

    def memory(self) -> tuple[int, int]:
        return 1 << 40, 1 << 40

    def malloc(self, nbytes: int) -> int:
        return next(self._addresses)

    def host_malloc(self, nbytes: int) -> int:
        self._pinned.append(np.zeros(max(nbytes, 1), np.uint8))
        return int(self._pinned[-1].ctypes.data)

    def stream(self, *_: Any, **__: Any) -> int:
        return next(self._handles)

    event = load = function = end_capture = stream

    def blas(self) -> None:
        return None

    def seconds(self, first: int, second: int) -> float:
        return 1e-6

    def has_come(self, event: int) -> bool:
        return True

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)

        def nothing(*_: Any, **__: Any) -> None:
            self.calls += 1

        return nothing


def measure(model: str, batch: int = 2) -> tuple[int, float, float]:
    """(steps of the plan, microseconds of CPU time for a step, calls of the driver for it)."""
    opened: list[SilentDriver] = []

    def open_driver(index: int) -> Any:
        opened.append(SilentDriver(index))
        return opened[-1]

    with drivers_of(open_driver):
        net, shapes = mx.models.get(model), mx.models.shapes_of(model, batch=batch)
        optimizer = mx.optimizer.create("sgd", momentum=0.9)
        executor = net.simple_bind(mx.gpu(0), optimizer=optimizer, **shapes)
        hyper = np.full((len(executor.updated), 2), 0.1)
        best = float("inf")
        for count in (5, *[STEPS] * ROUNDS):
            mx.nd.waitall()
            calls, start = opened[0].calls, time.process_time()
            for _ in range(count):
                executor.step(hyper)
            mx.nd.waitall()
            if count == STEPS:
                best = min(best, (time.process_time() - start) / count * 1e6)
        return len(executor.memory_plan.schedule.task), best, (opened[0].calls - calls) / count


def main() -> int:
    worst = 0.0
    print("| network | steps of the plan | host, us per step | calls of the driver per step |")
    print("| --- | ---: | ---: | ---: |")
    for model in sys.argv[1:] or MODELS:
        steps, us, calls = measure(model)
        worst = max(worst, us)
        print(f"| {model} | {steps} | {us:.1f} | {calls:.1f} |", flush=True)
    print(f"target: below {TARGET_US:g} us; {'met' if worst < TARGET_US else 'missed'}")
    return 0 if worst < TARGET_US else 1


if __name__ == "__main__":
    sys.exit(main())
