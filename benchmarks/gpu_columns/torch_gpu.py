"""PyTorch's side on a GPU (on the CPU when this file is tested)."""

from __future__ import annotations

import gc
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from harness.worker import serve
from networks import twins
from networks.named import load
from peers.peer import Arrays, Peer
from torch.nn import functional as F

from gpu_columns import pushed
from gpu_columns.decoder import Decoder
from gpu_columns.memonger import Memonger
from gpu_columns.search import bisected

twins.TWINS |= {"Decoder": Decoder, "Memonger": Memonger}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class OnGPU(Peer):
    """The usual training loop; gradients are set to None, not zeroed. `tf32`: allow TF32 products."""

    def versions(self) -> dict[str, str]:
        found = {"torch": torch.__version__, "device": DEVICE}
        if DEVICE == "cuda":
            found |= {"CUDA": str(torch.version.cuda), "cuDNN": str(torch.backends.cudnn.version())}
        return found

    def build(
        self,
        spec: dict[str, Any],
        channels_last: bool = False,
        compiled: bool = False,
        autocast: bool = False,
        tf32: bool = False,
        checkpointed: bool | str = False,
    ) -> None:
        if DEVICE == "cpu" and not os.environ.get("MXLITE_BENCHMARK_EMULATED"):
            built = torch.version.cuda or "no CUDA"
            raise RuntimeError(f"PyTorch {torch.__version__}, made for {built}, sees no GPU here.")
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cudnn.benchmark = True
        kind, options = spec["twin"]
        net = twins.TWINS[kind](**options, **({"checkpointed": checkpointed} if checkpointed else {}))
        load(net, {**Arrays(spec["arrays"], "arg"), **Arrays(spec["arrays"], "aux")})
        x = torch.tensor(Arrays(spec["arrays"], "data")["data"])
        x = x.long() if spec["is_tokens"] else x
        y = torch.tensor(Arrays(spec["arrays"], "label")["softmax_label"]).long()
        net, self.x, self.y = net.to(DEVICE).train(), x.to(DEVICE), y.to(DEVICE)
        if channels_last and spec["is_image"]:
            net = net.to(memory_format=torch.channels_last)
            self.x = self.x.contiguous(memory_format=torch.channels_last)
        self.net, self.autocast, self.compiled = net, autocast, compiled

        def objective(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return F.cross_entropy(net(x), y)

        self.call: Any = torch.compile(objective, mode="max-autotune") if compiled else objective
        self.optimizer = torch.optim.SGD(
            net.parameters(), lr=spec["rate"], momentum=spec["momentum"], fused=True
        )
        self.host_s = 0.0

    def push_step(self) -> None:
        self.optimizer.zero_grad()
        if self.compiled:  # outputs of the previous step's graphs may be overwritten
            torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast(DEVICE, torch.bfloat16, enabled=self.autocast):
            self.out = self.call(self.x, self.y)
        self.out.backward()
        self.optimizer.step()

    def wait(self) -> None:
        if DEVICE == "cuda":
            torch.cuda.synchronize()

    def loss(self, turn: int) -> float:
        return float(self.out.detach())

    def run(self, count: int) -> float:
        self.wait()
        if DEVICE == "cuda":
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
        start = time.perf_counter()
        self.host_s = pushed(self.push_step, count)
        if DEVICE == "cpu":
            return (time.perf_counter() - start) / count
        last.record()
        self.wait()
        return float(first.elapsed_time(last)) / 1e3 / count

    def host(self) -> float:
        """Host seconds per step of the last run."""
        return self.host_s

    def memory(self) -> dict[str, Any]:
        """Peak of one step by the allocator's own count, and the memory it has reserved on the device."""
        found: dict[str, Any] = {}
        if DEVICE == "cuda":
            gc.collect()
            torch.cuda.reset_peak_memory_stats()
            self.push_step()
            self.wait()
            found["allocated"] = torch.cuda.max_memory_allocated()
            found["gone"] = torch.cuda.max_memory_reserved()
        return found

    def plan(self) -> dict[str, Any]:
        return {}

    def graphs(self) -> dict[str, Any]:
        return {}

    def largest(
        self, spec: dict[str, Any], nbytes: int, checkpointed: bool = False, most: int = 4096, **options: Any
    ) -> int:
        """The largest batch whose step stays within `nbytes` by the allocator's own count."""
        self.build(spec, checkpointed=checkpointed, **options)
        shape = self.x.shape[1:]

        def fits(batch: int) -> bool:
            try:
                self.x = torch.randn(batch, *shape, device=DEVICE)
                if options.get("channels_last"):
                    self.x = self.x.contiguous(memory_format=torch.channels_last)
                self.y = torch.zeros(batch, dtype=torch.long, device=DEVICE)
                self.push_step()
                return bool(self.memory()["allocated"] <= nbytes)
            except torch.OutOfMemoryError:
                return False
            finally:
                self.optimizer.zero_grad()
                self.out = None
                torch.cuda.empty_cache()

        return bisected(fits, most)


if __name__ == "__main__":
    serve(OnGPU().answer)
