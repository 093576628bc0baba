"""Host cost of a step of a bound program on a GPU: Python alone, with a driver whose calls do nothing.

    python benchmarks/gpu_host_time.py [model ...]       some seconds each; prints

Needs no GPU. CPU time per step of a Module whose step has become one CUDA graph and whose batch lies on the
device: that of the calling thread, for which there is a target, and that including the worker that launches;
the driver's own time for a launch comes on top (some microseconds each).
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
MODELS = ("mlp", "lenet", "resnet50", "resnet110_cifar", "resnet152")


class SilentDriver:
    """Stand-in for mxlite.backends.gpu.runtime.driver.Driver whose calls do nothing."""

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


def measure(model: str, batch: int = 2) -> tuple[int, float, float, float]:
    """(steps of the plan, microseconds of CPU time per step: of the calling thread, of all threads; driver
    calls per step).
    """
    opened: list[SilentDriver] = []

    def open_driver(index: int) -> Any:
        opened.append(SilentDriver(index))
        return opened[-1]

    with drivers_of(open_driver, 1):
        net, shapes = mx.models.get(model), mx.models.shapes_of(model, batch=batch)
        shapes = {"softmax_label": (batch,), **shapes}
        label = [n for n in shapes if n.endswith("_label")]
        data = [n for n in shapes if n not in label]
        module = mx.mod.Module(net, data, label, context=mx.gpu(0), fused_update=True)
        module.bind(*([(n, shapes[n]) for n in names] for names in (data, label)))
        module.init_params(mx.init.Xavier())
        module.init_optimizer(optimizer="sgd", optimizer_params={"momentum": 0.9})
        fed = mx.io.DataBatch(
            *([mx.nd.zeros(shapes[n], ctx=mx.gpu(0)) for n in names] for names in (data, label))
        )
        asks = everything = float("inf")
        for count in (5, *[STEPS] * ROUNDS):
            mx.nd.waitall()
            calls, start, all_start = opened[0].calls, time.thread_time(), time.process_time()
            for _ in range(count):
                module.forward_backward(fed)
                module.update()
            stop = time.thread_time()
            mx.nd.waitall()
            if count == STEPS:
                asks = min(asks, (stop - start) / count * 1e6)
                everything = min(everything, (time.process_time() - all_start) / count * 1e6)
        steps = len(module.memory_plan.schedule.task)
        return steps, asks, everything, (opened[0].calls - calls) / count


def main() -> int:
    worst = 0.0
    print(
        "| network | steps of the plan | who asks, us per step | all threads | calls of the driver per step |"
    )
    print("| --- | ---: | ---: | ---: | ---: |")
    for model in sys.argv[1:] or MODELS:
        steps, us, everything, calls = measure(model)
        worst = max(worst, us)
        print(f"| {model} | {steps} | {us:.1f} | {everything:.1f} | {calls:.1f} |", flush=True)
    print(f"target: below {TARGET_US:g} us; {'met' if worst < TARGET_US else 'missed'}")
    return 0 if worst < TARGET_US else 1


if __name__ == "__main__":
    sys.exit(main())
