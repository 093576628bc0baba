"""PyTorch's side: eager, channels last, compiled, with bf16 autocast, or with bf16 parameters."""

from __future__ import annotations

import gc
import platform
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from harness.worker import serve
from networks import twins
from networks.named import load
from torch import nn
from torch.nn import functional as F
from torch.profiler import profile, ProfilerActivity

from peers.peer import Arrays, inferred, Peer

DIMENSIONS = {torch.channels_last: 4, torch.channels_last_3d: 5}


class PyTorch(Peer):
    """The usual loop: forward, cross-entropy, backward, fused SGD; gradients are set to None, not zeroed."""

    def versions(self) -> dict[str, str]:
        return {
            "torch": torch.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "threads": str(torch.get_num_threads()),
        }

    def build(
        self,
        spec: dict[str, Any],
        channels_last: bool = False,
        compiled: bool = False,
        autocast: bool = False,
        checkpointed: bool | str = False,
        activation_budget: float | None = None,
        narrow_params: bool = False,
    ) -> None:
        if activation_budget is not None:
            import torch._functorch.config as functorch

            functorch.activation_memory_budget = activation_budget
        net = self.network(spec, **({"checkpointed": checkpointed} if checkpointed else {}))
        load(net, {**Arrays(spec["arrays"], "arg"), **Arrays(spec["arrays"], "aux")})
        self.x, self.y = self.batch(spec)
        if channels_last:
            last = self.layout(spec)
            net = net.to(memory_format=last)
            self.x = [x.contiguous(memory_format=last) if x.ndim == DIMENSIONS[last] else x for x in self.x]
        if narrow_params:
            net = net.to(torch.bfloat16)
            self.x = [x.to(torch.bfloat16) if x.is_floating_point() else x for x in self.x]
        self.net = net = self.wrapped(net.train(spec["train"]))
        self.autocast = autocast

        def objective(*batch: torch.Tensor) -> torch.Tensor:
            *x, y = batch
            return self.objective(net(*x), y)

        run: Any = objective if spec["train"] else net
        self.call = torch.compile(run) if compiled else run
        if spec["train"]:
            self.optimizer = torch.optim.SGD(
                net.parameters(), lr=spec["rate"], momentum=spec["momentum"], fused=True
            )

    def network(self, spec: dict[str, Any], **options: Any) -> nn.Module:
        kind, own = spec["twin"]
        return twins.TWINS[kind](**own, **options)

    def wrapped(self, net: nn.Module) -> nn.Module:
        """What is called in its place."""
        return net

    def batch(self, spec: dict[str, Any]) -> tuple[list[torch.Tensor], torch.Tensor]:
        """The network's inputs, and the labels."""
        x = torch.tensor(Arrays(spec["arrays"], "data")["data"])
        y = torch.tensor(Arrays(spec["arrays"], "label")["softmax_label"]).long()
        return [x.long() if spec["is_tokens"] else x], y

    def layout(self, spec: dict[str, Any]) -> torch.memory_format:
        """The format of images where channels are the last axis."""
        return torch.channels_last

    def objective(self, scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(scores, y)

    def push_step(self) -> None:
        if not self.spec["train"]:
            with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
                self.out = self.call(*self.x)
            return
        self.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            self.out = self.call(*self.x, self.y)
        self.out.backward()
        self.optimizer.step()

    def loss(self, turn: int) -> float:
        if self.spec["train"]:
            return float(self.out.detach())
        return inferred(F.softmax(self.out.float(), -1).numpy(), self.y.numpy(), turn)

    def allocated(self) -> int:
        """Peak bytes of tensors in a step, by the allocator's own count.

        Tensors that exist before it (weights, optimizer states, inputs) are summed; then the profiler records
        each allocation and each release. Gradients are freed first, so that both events of each are recorded.
        Workspace that libraries allocate elsewhere is not included.
        """
        if self.spec["train"]:
            self.optimizer.zero_grad()
        self.out = None
        gc.collect()
        known = {}
        for t in (*self.net.parameters(), *self.net.buffers(), *self.x, self.y, *self._states()):
            known[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
            self.push_step()
            if self.spec["train"]:
                self.optimizer.zero_grad()
            self.push_step()
        events = [e for e in found.profiler.kineto_results.events() if e.name() == "[memory]"]
        total = peak = 0
        for e in sorted(events, key=lambda e: e.start_ns()):
            total += e.nbytes()
            peak = max(peak, total)
        return sum(known.values()) + peak

    def _states(self) -> list[torch.Tensor]:
        if not self.spec["train"]:
            return []
        return [t for s in self.optimizer.state.values() for t in s.values() if isinstance(t, torch.Tensor)]


if __name__ == "__main__":
    serve(PyTorch().answer)
