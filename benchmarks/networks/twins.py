"""PyTorch counterparts of the suite's networks; imported only if PyTorch is installed.

Parameters are named as `named.py` says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn, Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


def convolution(inputs: int, filters: int, kernel: int, stride: int = 1, bias: bool = False) -> nn.Conv2d:
    return nn.Conv2d(inputs, filters, kernel, stride, kernel // 2, bias=bias)


def through(blocks: Sequence[nn.Module], x: Tensor, checkpointed: bool | str) -> Tensor:
    """`blocks` one after the other. checkpointed: True keeps the input of each block, "segments" that of each
    of sqrt(number) segments; backward recomputes the rest."""
    if checkpointed == "segments":
        count = max(1, round(len(blocks) ** 0.5))
        return checkpoint_sequential(list(blocks), count, x, use_reentrant=False)
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
    return x


State = tuple[Tensor, ...]


def by_stretches(
    run: Callable[..., State], items: Sequence[Any], state: State, checkpointed: bool | str
) -> State:
    """`run(items, *state)` returns the next state; checkpointed: in segments of `items`, as in `through`."""
    if not checkpointed:
        return run(items, *state)
    count = len(items) if checkpointed is True else max(1, round(len(items) ** 0.5))
    for part in np.array_split(np.arange(len(items)), count):
        state = checkpoint(run, [items[i] for i in part], *state, use_reentrant=False)
    return state


class PostActivation(nn.Module):
    """Convolution and norm, twice or (a bottleneck) three times; a rectifier after each and after the
    sum."""

    def __init__(self, inputs: int, filters: int, stride: int, bottleneck: bool, project: bool) -> None:
        super().__init__()
        if bottleneck:
            parts = [(filters, 1, 1), (filters, 3, stride), (filters * 4, 1, 1)]
        else:
            parts = [(filters, 3, stride), (filters, 3, 1)]
        self.count = len(parts)
        self.width = parts[-1][0]
        before = inputs
        for i, (width, kernel, step) in enumerate(parts, 1):
            self.add_module(f"conv{i}", convolution(before, width, kernel, step))
            self.add_module(f"bn{i}", nn.BatchNorm2d(width))
            before = width
        self.skip_conv = convolution(inputs, before, 1, stride) if project else None
        self.skip_bn = nn.BatchNorm2d(before) if project else None

    def forward(self, x: Tensor) -> Tensor:
        out = x
        for i in range(1, self.count + 1):
            out = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(out))
            if i < self.count:
                out = F.relu(out, inplace=True)
        if self.skip_conv is not None and self.skip_bn is not None:
            x = self.skip_bn(self.skip_conv(x))
        out += x
        return F.relu(out, inplace=True)


class ResNet(nn.Module):
    """`mx.models.resnet` and `resnet_cifar`, version 1. small: the stem for images of 32x32.

    checkpointed: see `through`.
    """

    def __init__(
        self,
        stages: Sequence[int],
        width: int,
        classes: int,
        bottleneck: bool = False,
        small: bool = False,
        checkpointed: bool | str = False,
    ) -> None:
        super().__init__()
        self.small, self.checkpointed = small, checkpointed
        self.stem_conv = convolution(3, width, 3) if small else convolution(3, width, 7, 2)
        self.stem_bn = nn.BatchNorm2d(width)
        self.blocks: list[nn.Module] = []
        inputs = width
        for stage, count in enumerate(stages):
            for i in range(count):
                stride = 2 if stage and not i else 1
                project = not i and (stride > 1 or bottleneck)
                block = PostActivation(inputs, width << stage, stride, bottleneck, project)
                self.add_module(f"stage{stage + 1}_block{i + 1}", block)
                self.blocks.append(block)
                inputs = block.width
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem_bn(self.stem_conv(x)), inplace=True)
        if not self.small:
            x = F.max_pool2d(x, 3, 2, 1)
        x = through(self.blocks, x, self.checkpointed)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class PreActivation(nn.Module):
    """Norm, rectifier, convolution, three times; no activation after the sum."""

    def __init__(self, inputs: int, filters: int, stride: int, project: bool) -> None:
        super().__init__()
        quarter = filters // 4
        for name, before, width, kernel, step in (
            ("a", inputs, quarter, 1, 1),
            ("b", quarter, quarter, 3, stride),
            ("c", quarter, filters, 1, 1),
        ):
            self.add_module(f"{name}_bn", nn.BatchNorm2d(before, eps=2e-5))
            self.add_module(f"{name}_conv", convolution(before, width, kernel, step))
        self.skip_conv = convolution(inputs, filters, 1, stride) if project else None

    def forward(self, x: Tensor) -> Tensor:
        act = F.relu(self.a_bn(x), inplace=True)
        out = self.b_conv(F.relu(self.b_bn(self.a_conv(act)), inplace=True))
        out = self.c_conv(F.relu(self.c_bn(out), inplace=True))
        out += self.skip_conv(act) if self.skip_conv is not None else x
        return out


class DeepResNet(nn.Module):
    """The network of examples/train_resnet.py. checkpointed: see `through`."""

    def __init__(
        self, depth: int, width: int, classes: int, channels: int = 1, checkpointed: bool | str = False
    ) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.stem_conv = convolution(channels, width, 3)
        self.blocks: list[nn.Module] = []
        inputs = width
        for stage in range(3):
            filters = width << stage
            for i in range((depth - 2) // 9):
                block = PreActivation(inputs, filters, 2 if stage and not i else 1, not i)
                self.add_module(f"stage{stage + 1}_block{i + 1}", block)
                self.blocks.append(block)
                inputs = filters
        self.head_bn = nn.BatchNorm2d(inputs, eps=2e-5)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = through(self.blocks, self.stem_conv(x), self.checkpointed)
        x = F.relu(self.head_bn(x), inplace=True)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class UNet(nn.Module):
    """`mx.models.unet`. (N, 3, H, W) -> (N, classes, H * W). checkpointed: see `through`, by levels."""

    def __init__(self, classes: int, width: int, levels: int = 5, checkpointed: bool | str = False) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        down, up = range(levels), range(levels - 2, -1, -1)
        self.levels = [f"down{i}" for i in down] + [f"up{i}" for i in up]
        before = 3
        for name in self.levels:
            filters = width << int(name[-1])
            if name.startswith("up"):
                self.add_module(name, nn.ConvTranspose2d(before, filters, 2, 2))
                before = 2 * filters
            for i in (1, 2):
                self.add_module(f"{name}_conv{i}", convolution(before, filters, 3))
                self.add_module(f"{name}_bn{i}", nn.BatchNorm2d(filters))
                before = filters
        self.score = convolution(before, classes, 1, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        (x,) = by_stretches(self.some, self.levels, (x,), self.checkpointed)
        return self.score(x).flatten(2)

    def some(self, levels: Sequence[str], x: Tensor, *bridges: Tensor) -> State:
        """Apply some levels; the arguments after x are the skip connections of the way down."""
        waiting = list(bridges)
        for name in levels:
            if name.startswith("up"):
                x = torch.cat([waiting.pop(), getattr(self, name)(x)], 1)
            elif name != "down0":
                waiting.append(x)
                x = F.max_pool2d(x, 2)
            for i in (1, 2):
                x = getattr(self, f"{name}_bn{i}")(getattr(self, f"{name}_conv{i}")(x))
                x = F.relu(x, inplace=True)
        return (x, *waiting)


class Cell(nn.Module):
    """One layer of `mx.models.lstm_unrolled`."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.i2h, self.h2h = nn.Linear(inputs, 4 * hidden), nn.Linear(hidden, 4 * hidden)

    def forward(self, x: Tensor, c: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        write, new, keep, show = (self.i2h(x) + self.h2h(h)).chunk(4, 1)
        c = torch.sigmoid(keep) * c + torch.sigmoid(write) * torch.tanh(new)
        return c, torch.sigmoid(show) * torch.tanh(c)


class UnrolledLSTM(nn.Module):
    """`mx.models.lstm_unrolled` from zero initial states. (T, N, inputs) -> (T * N, classes). checkpointed:
    see `through`; a block is a step."""

    def __init__(
        self, layers: int, hidden: int, inputs: int, classes: int, checkpointed: bool | str = False
    ) -> None:
        super().__init__()
        self.layers, self.hidden, self.checkpointed = layers, hidden, checkpointed
        self.embed = nn.Linear(inputs, hidden, bias=False)
        for k in range(layers):
            self.add_module(f"l{k}", Cell(hidden, hidden))
        self.cls = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        state = (x.new_zeros(x.shape[1], self.hidden),) * (2 * self.layers)
        state = by_stretches(self.some, x.unbind(0), state, self.checkpointed)
        return self.cls(torch.cat(state[2 * self.layers :]))

    def some(self, steps: Sequence[Tensor], *state: Tensor) -> State:
        """Run some steps; the state is c and h of each layer, followed by the results of all steps."""
        known, tops = list(state[: 2 * self.layers]), list(state[2 * self.layers :])
        for x in steps:
            top = self.embed(x)
            for k in range(self.layers):
                known[2 * k : 2 * k + 2] = getattr(self, f"l{k}")(top, *known[2 * k : 2 * k + 2])
                top = known[2 * k + 1]
            tops.append(top)
        return (*known, *tops)


class VGG(nn.Module):
    """`mx.models.vgg` without dropout, for images of 224x224."""

    def __init__(self, counts: Sequence[int], classes: int) -> None:
        super().__init__()
        self.stages: list[list[nn.Module]] = []
        inputs = 3
        for stage, (count, filters) in enumerate(zip(counts, (64, 128, 256, 512, 512)), 1):
            self.stages.append([])
            for i in range(1, count + 1):
                layer = convolution(inputs, filters, 3, bias=True)
                self.add_module(f"conv{stage}_{i}", layer)
                self.stages[-1].append(layer)
                inputs = filters
        self.fc6 = nn.Linear(inputs * 7 * 7, 4096)
        self.fc7 = nn.Linear(4096, 4096)
        self.fc8 = nn.Linear(4096, classes)

    def forward(self, x: Tensor) -> Tensor:
        for layers in self.stages:
            for layer in layers:
                x = F.relu(layer(x), inplace=True)
            x = F.max_pool2d(x, 2)
        x = F.relu(self.fc6(x.flatten(1)), inplace=True)
        return self.fc8(F.relu(self.fc7(x), inplace=True))


class LeNet(nn.Module):
    """`mx.models.lenet`."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 20, 5), nn.Conv2d(20, 50, 5)
        self.fc1, self.fc2 = nn.Linear(50 * 4 * 4, 500), nn.Linear(500, classes)

    def forward(self, x: Tensor) -> Tensor:
        for layer in (self.conv1, self.conv2):
            x = F.max_pool2d(torch.tanh(layer(x)), 2)
        return self.fc2(torch.tanh(self.fc1(x.flatten(1))))


class MLP(nn.Module):
    """`mx.models.mlp`."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        self.count = len(widths) - 1
        for i, (inputs, width) in enumerate(pairwise(widths), 1):
            self.add_module(f"fc{i}", nn.Linear(inputs, width))

    def forward(self, x: Tensor) -> Tensor:
        for i in range(1, self.count):
            x = F.relu(getattr(self, f"fc{i}")(x), inplace=True)
        return getattr(self, f"fc{self.count}")(x)


class LSTM(nn.Module):
    """`mx.models.lstm` without dropout, from zero initial states. (T, N) tokens -> (T * N, vocabulary)."""

    def __init__(self, layers: int, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, hidden)
        self.lstm = nn.LSTM(hidden, hidden, layers)
        self.score = nn.Linear(hidden, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        return self.score(self.lstm(self.embed(x))[0].flatten(0, 1))


class DenseNet(nn.Module):
    """`mx.models.densenet` of 121 layers."""

    def __init__(self, classes: int, width: int = 64, growth: int = 32) -> None:
        super().__init__()
        self.stem_conv, self.stem_bn = convolution(3, width, 7, 2), nn.BatchNorm2d(width)
        self.layers = (6, 12, 24, 16)
        for b, count in enumerate(self.layers, 1):
            for i in range(1, count + 1):
                name = f"block{b}_layer{i}"
                self.add_module(f"{name}_bn1", nn.BatchNorm2d(width))
                self.add_module(f"{name}_conv1", convolution(width, 4 * growth, 1))
                self.add_module(f"{name}_bn2", nn.BatchNorm2d(4 * growth))
                self.add_module(f"{name}_conv2", convolution(4 * growth, growth, 3))
                width += growth
            self.add_module(f"block{b}_bn", nn.BatchNorm2d(width))
            if b < len(self.layers):
                self.add_module(f"block{b}_conv", convolution(width, width // 2, 1))
                width //= 2
        self.fc = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.normed("stem_bn", self.stem_conv(x)), 3, 2, 1)
        for b, count in enumerate(self.layers, 1):
            for i in range(1, count + 1):
                name = f"block{b}_layer{i}"
                out = getattr(self, f"{name}_conv1")(self.normed(f"{name}_bn1", x))
                x = torch.cat([x, getattr(self, f"{name}_conv2")(self.normed(f"{name}_bn2", out))], 1)
            x = self.normed(f"block{b}_bn", x)
            if b < len(self.layers):
                x = F.avg_pool2d(getattr(self, f"block{b}_conv")(x), 2)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))

    def normed(self, name: str, x: Tensor) -> Tensor:
        return F.relu(getattr(self, name)(x), inplace=True)


class TransformerBlock(nn.Module):
    """networks/transformer_block.py. (N, L, width) -> (N, classes)."""

    def __init__(self, width: int, heads: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.heads = heads
        self.self_norm, self.ffn_norm, self.norm = (nn.LayerNorm(width, eps=1e-5) for _ in range(3))
        self.query, self.key, self.value, self.joined = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.score = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        normal = self.self_norm(x)
        heads = [
            part(normal).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        ]
        out = F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        x = x + self.joined(out)
        x = x + self.narrow(F.gelu(self.wide(self.ffn_norm(x))))
        return self.score(self.norm(x).mean(1))


TWINS = {
    c.__name__: c
    for c in (ResNet, DeepResNet, UNet, UnrolledLSTM, VGG, LeNet, MLP, LSTM, DenseNet, TransformerBlock)
}
