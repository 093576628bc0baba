"""`mx.models.resnet(version="memonger")` for PyTorch; parameter names as in networks/twins.py."""

from __future__ import annotations

from collections.abc import Sequence

from networks.twins import through
from torch import nn, Tensor
from torch.nn import functional as F


def add_parts(
    to: nn.Module, name: str, inputs: int, filters: int, kernel: int, stride: int, pad: int
) -> None:
    """A convolution with bias and a norm whose scale is fixed (`Net.first_values` sets it to 1)."""
    norm = nn.BatchNorm2d(filters, eps=1e-3)
    norm.weight.requires_grad_(False)
    to.add_module(f"{name}_conv", nn.Conv2d(inputs, filters, kernel, stride, pad))
    to.add_module(f"{name}_bn", norm)


def run_parts(of: nn.Module, name: str, x: Tensor) -> Tensor:
    """Apply convolution, norm and leaky rectifier."""
    x = getattr(of, f"{name}_bn")(getattr(of, f"{name}_conv")(x))
    return F.leaky_relu(x, 0.25, inplace=True)


class Block(nn.Module):
    """Three convolutions, each with norm and leaky rectifier; no activation after the sum."""

    def __init__(self, inputs: int, filters: int, stride: int, project: bool) -> None:
        super().__init__()
        self.project = project
        add_parts(self, "a", inputs, filters, 1, 1, 0)
        add_parts(self, "b", filters, filters, 3, stride, 1)
        add_parts(self, "c", filters, filters * 4, 1, 1, 0)
        if project:
            add_parts(self, "skip", inputs, filters * 4, 1, stride, 0)

    def forward(self, x: Tensor) -> Tensor:
        out = run_parts(self, "c", run_parts(self, "b", run_parts(self, "a", x)))
        return (run_parts(self, "skip", x) if self.project else x) + out


class Memonger(nn.Module):
    """Network for images of 224x224. checkpointed: see `through` of networks/twins.py."""

    def __init__(self, stages: Sequence[int], classes: int, checkpointed: bool | str = False) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        add_parts(self, "stem", 3, 64, 7, 2, 3)
        self.blocks: list[nn.Module] = []
        inputs = 64
        for stage, count in enumerate(stages):
            for i in range(count):
                block = Block(inputs, 64 << stage, 2 if stage and not i else 1, not i)
                self.add_module(f"stage{stage + 1}_block{i + 1}", block)
                self.blocks.append(block)
                inputs = 256 << stage
        self.fc1 = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = through(self.blocks, F.max_pool2d(run_parts(self, "stem", x), 3, 2), self.checkpointed)
        return self.fc1(F.avg_pool2d(x, 7, 1).flatten(1))
