"""Networks that are trained with Gluon, and with PyTorch, from equal parameters and batches.

This file imports neither framework. Parameters are inputs, in the order of the layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .operators import below, floats, Input

RATE, MOMENTUM = 0.05, 0.9
COLUMN = "MXLITE_BENCHMARK_GLUON"
"""The variable of the environment that says how Gluon runs: call by call, a program, or a whole step."""
CALLS, PROGRAM, STEP = "calls", "program", "step"


@dataclass(frozen=True)
class GluonNet:
    """`inputs` are data, labels, then a weight and a bias for each layer. `image`: convolutions of 3 x 3,
    whose results are added to what they read, a mean over each channel and a dense layer; else dense layers.
    """

    title: str
    image: bool
    inputs: Sequence[Input]


def _even(scale: float, *shape: int) -> Input:
    return floats(*shape, low=-scale, high=scale)


def _dense(rows: int, width: int, layers: int, classes: int = 10) -> GluonNet:
    shapes = [*((width, width),) * layers, (classes, width)]
    arrays = [x for s in shapes for x in (_even(1.7 * s[1] ** -0.5, *s), _even(0.1, s[0]))]
    title = f"{layers} dense layers of {width}, batch {rows}"
    return GluonNet(title, False, [floats(rows, width), below(classes, rows), *arrays])


def _residual(rows: int, size: int, channels: int, layers: int, classes: int = 10) -> GluonNet:
    shape = (channels, channels, 3, 3)
    arrays = [x for _ in range(layers) for x in (_even(0.05, *shape), _even(0.1, channels))]
    arrays += [_even(0.2, classes, channels), _even(0.1, classes)]
    data = [floats(rows, channels, size, size), below(classes, rows)]
    title = f"{layers} residual convolutions of {channels}, {rows} x {size} x {size}"
    return GluonNet(title, True, [*data, *arrays])


NETS = (
    _dense(16, 64, 4),
    _dense(64, 512, 6),
    _residual(8, 12, 16, 8),
    _residual(16, 28, 32, 12),
)
