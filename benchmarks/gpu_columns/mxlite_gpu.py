"""mxlite's side on a GPU, or on the tests' emulated one."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from harness.worker import serve
from peers.mxlite_peer import MXLite

import mxlite as mx
from gpu_columns import pushed
from gpu_columns.search import bisected, downwards
from mxlite.backends import backend_of
from mxlite.backends.gpu.compiler import nvrtc
from mxlite.backends.gpu.vendor import cublaslt, cudnn


class OnGPU(MXLite):
    """`run` measures device time between two events, and host time while it pushes steps."""

    def __init__(self) -> None:
        super().__init__()
        self.open = ExitStack()
        if os.environ.get("MXLITE_BENCHMARK_EMULATED"):
            from tests.emulators.emulated_driver import emulated_gpus

            self.open.enter_context(emulated_gpus(capacity=2**32, late=1.0))
        self.context = mx.gpu(0)
        self.device: Any = None
        self.host_s = 0.0

    def versions(self) -> dict[str, str]:
        device = backend_of(self.context).device
        return {
            "mxlite": mx.__version__,
            "GPU": f"{device.name}, {device.architecture}, {device.memory()[1] / 2**30:.0f} GiB",
            "NVRTC": ".".join(map(str, nvrtc.version())) if nvrtc.available() else "absent",
            "cuBLASLt": cublaslt_version(),
            "cuDNN": cudnn_version(),
        }

    def build(self, spec: dict[str, Any], **options: Any) -> None:
        self.device = backend_of(self.context).device
        self.free_before = self.device.memory()[0]
        super().build(spec, **options)

    def run(self, count: int) -> float:
        device = self.device
        mx.nd.waitall()
        with device.active():
            first, last = device.driver.event(timed=True), device.driver.event(timed=True)
            device.driver.record(first, device.compute)
        self.host_s = pushed(self.push_step, count)
        mx.nd.waitall()
        with device.active():
            device.driver.record(last, device.compute)
            device.driver.synchronize_event(last)
            return device.driver.seconds(first, last) / count

    def memory(self) -> dict[str, Any]:
        gone = self.free_before - self.device.memory()[0]
        return {**super().memory(), "gone": gone}

    def host(self) -> float:
        """Host seconds per step of the last run."""
        return self.host_s

    def graphs(self) -> dict[str, Any]:
        """Numbers of tasks that are captured into graphs and that run on the host."""
        kernels = [str(t.kernel) for t in self.module.memory_plan.problem.tasks]
        hosted = sorted({k for k in kernels if k.startswith("host: ")})
        return {
            "tasks": len(kernels),
            "on the host": sum(k.startswith("host: ") for k in kernels),
            "as": hosted,
        }

    def largest(
        self,
        symbol: str,
        shapes: dict[str, list[int]],
        nbytes: int,
        most_extra: float,
        amp: str | None = None,
        first: int = 0,
        most: int = 4096,
    ) -> int:
        """The largest batch for which a plan within `nbytes` takes at most that extra time; needs no device.
        first: the largest batch to consider, if not 0.
        """
        net = mx.sym.load(symbol)
        sgd = mx.optimizer.SGD(momentum=0.9)

        def fits(batch: int) -> bool:
            sizes = {n: (batch, *s[1:]) for n, s in shapes.items()}
            asked: dict[str, Any] = dict(memory_budget=nbytes, optimizer=sgd, amp=amp, **sizes)
            try:
                plan = net.memory_plan(self.context, **asked)
            except mx.MemoryBudgetError:
                return False
            return bool(plan.extra_time <= most_extra)

        return downwards(fits, first) if first else bisected(fits, most)


def cublaslt_version() -> str:
    """Version of the cuBLASLt library used for products, as 13.0.2."""
    found = cublaslt.library()
    if found is None:
        return "absent"
    return f"{found.version // 10000}.{found.version // 100 % 100}.{found.version % 100}"


def cudnn_version() -> str:
    """Versions of cuDNN and of the front end that loads it."""
    found = cudnn.library()
    if found is None:
        return "absent"
    front = "of unknown version"
    with suppress(importlib.metadata.PackageNotFoundError):
        front = importlib.metadata.version("nvidia-cudnn-frontend")
    return f"{found.backend_version()}, front end {front}"


if __name__ == "__main__":
    serve(OnGPU().answer)
