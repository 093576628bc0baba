"""The products, convolutions and depthwise convolutions that benchmarks/products.py compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

PRODUCTS = [
    (8, 4096, 1024), (16, 2560, 2560), (32, 2560, 2560), (64, 2560, 2560), (128, 2560, 2560),
    (32, 4096, 4096), (64, 1024, 4096), (64, 4096, 1024), (256, 1024, 1024), (512, 512, 512),
    (1024, 1024, 1024), (2048, 2048, 2048),
]  # fmt: skip
"""M, N, K of a product of plain matrices, (M, K) @ (K, N)."""

CONVOLUTIONS = {
    "C1": (224, 3, 64, 7, 2), "C2": (56, 64, 64, 3, 1), "C3": (56, 64, 64, 1, 1), "C4": (56, 64, 128, 3, 2),
    "C5": (56, 64, 128, 1, 2), "C6": (28, 128, 128, 3, 1), "C7": (28, 128, 256, 3, 2),
    "C8": (28, 128, 256, 1, 2), "C9": (14, 256, 256, 3, 1), "C10": (14, 256, 512, 3, 2),
    "C11": (14, 256, 512, 1, 2), "C12": (7, 512, 512, 3, 1),
}  # fmt: skip
"""Those of ResNet-18: height and width, channels in and out, kernel, stride (T. Chen et al., 2018, "TVM: an
automated end-to-end optimizing compiler for deep learning", table 2)."""
DEPTHWISE = {
    "D1": (112, 32, 1), "D2": (112, 64, 2), "D3": (56, 128, 1), "D4": (56, 128, 2), "D5": (28, 256, 1),
    "D6": (28, 256, 2), "D7": (14, 512, 1), "D8": (14, 512, 2), "D9": (7, 1024, 1),
}  # fmt: skip
"""Those of MobileNet, 3 x 3: height and width, channels, stride."""


@dataclass(frozen=True)
class Array:
    """An input, drawn."""

    shape: tuple[int, ...]

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        return rng.uniform(-1, 1, self.shape).astype(np.float32)


@dataclass(frozen=True)
class Row:
    """One product or, if there is a stride, one convolution of a batch of one image."""

    title: str
    inputs: tuple[Array, ...]
    stride: int = 0
    groups: int = 1

    @property
    def pad(self) -> int:
        return (self.inputs[1].shape[-1] - 1) // 2

    @property
    def flops(self) -> int:
        x, w = (i.shape for i in self.inputs)
        if not self.stride:
            return 2 * prod(x) * w[1]
        across = (x[-1] + 2 * self.pad - w[-1]) // self.stride + 1
        return 2 * across**2 * prod(w)

    @property
    def shape(self) -> str:
        return " @ ".join("x".join(map(str, i.shape)) for i in self.inputs)


def _rows() -> Sequence[Row]:
    found = [
        Row("x".join(map(str, size)), (Array((size[0], size[2])), Array((size[2], size[1]))))
        for size in PRODUCTS
    ]
    for name, (side, i, o, kernel, stride) in CONVOLUTIONS.items():
        found.append(Row(name, (Array((1, i, side, side)), Array((o, i, kernel, kernel))), stride))
    for name, (side, channels, stride) in DEPTHWISE.items():
        found.append(
            Row(name, (Array((1, channels, side, side)), Array((channels, 1, 3, 3))), stride, channels)
        )
    return found


ROWS = _rows()
