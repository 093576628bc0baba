"""Single operators and what computes the same in PyTorch: one row for each operator, attributes and shapes.

This file imports neither framework: a row's function is given PyTorch's module `t` and the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Input:
    """An array of numbers drawn evenly from [low, high). `whole`: they are indices or class numbers, float32
    for mxlite and int64 for PyTorch; `condition`: they are 0 or 1, float32 for mxlite and bool for PyTorch.
    `definite`: they are positive definite matrices.
    """

    shape: tuple[int, ...]
    low: float = -2.0
    high: float = 2.0
    kind: str = "float"
    definite: bool = False

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        values = rng.uniform(self.low, self.high, self.shape)
        if self.definite:
            values = values @ values.swapaxes(-1, -2) + np.eye(self.shape[-1])
        return (values if self.kind == "float" else np.floor(values)).astype(np.float32)


@dataclass(frozen=True)
class Row:
    """`op` of mxlite with `attrs`, and PyTorch's function of the same inputs.

    `loss`: the function whose gradient is that of `op`, where it is another one. `size`: a key of SIZES.
    """

    op: str
    attrs: dict[str, Any]
    inputs: Sequence[Input]
    torch: Callable[..., Any]
    loss: Callable[..., Any] | None = None
    size: str = ""

    @property
    def title(self) -> str:
        return " ".join([self.op, *(f"{k}={v}".replace(" ", "") for k, v in self.attrs.items())])

    @property
    def shape(self) -> str:
        """The shape of the largest input."""
        return " x ".join(map(str, max((i.shape for i in self.inputs), key=np.prod)))


def floats(*shape: int, low: float = -2.0, high: float = 2.0) -> Input:
    return Input(shape, low, high)


def definite(count: int, n: int) -> Input:
    """So many matrices of n rows."""
    return Input((count, n, n), definite=True)


def below(n: int, *shape: int) -> Input:
    """Whole numbers in [0, n)."""
    return Input(shape, 0, n, "whole")


ELEMENTWISE = {
    "sin": (-2.0, 2.0),
    "cos": (-2.0, 2.0),
    "tan": (-1.0, 1.0),
    "arcsin": (-0.9, 0.9),
    "arctan": (-2.0, 2.0),
    "sinh": (-2.0, 2.0),
    "erf": (-2.0, 2.0),
    "exp": (-2.0, 2.0),
    "log": (0.1, 2.0),
    "sqrt": (0.1, 2.0),
}
"""Functions that have one name in both -> where they are evaluated."""


def elementwise(name: str, n: int, k: int) -> Row:
    low, high = ELEMENTWISE[name]
    return Row(name, {}, [floats(n, k, low=low, high=high)], lambda t, x: getattr(t, name)(x))


def of_matrices(n: int, k: int) -> list[Row]:
    """Rows for n by k matrices."""
    x, labels, of_rows = floats(n, k), below(k, n), below(n, n)
    return [
        Row("sum", {"axis": 1}, [x], lambda t, x: x.sum(1)),
        Row("sum", {"axis": 0}, [x], lambda t, x: x.sum(0)),
        Row("sum", {}, [x], lambda t, x: x.sum()),
        Row("mean", {"axis": 1}, [x], lambda t, x: x.mean(1)),
        Row("mean", {"axis": 0}, [x], lambda t, x: x.mean(0)),
        Row("mean", {}, [x], lambda t, x: x.mean()),
        Row("max", {"axis": 1}, [x], lambda t, x: x.amax(1)),
        Row("max", {"axis": 0}, [x], lambda t, x: x.amax(0)),
        Row("min", {"axis": 1}, [x], lambda t, x: x.amin(1)),
        Row("min", {"axis": 0}, [x], lambda t, x: x.amin(0)),
        Row("norm", {"axis": 1}, [x], lambda t, x: t.linalg.vector_norm(x, dim=1)),
        Row("argmax", {"axis": 1}, [x], lambda t, x: x.argmax(1)),
        Row("argmax", {"axis": 0}, [x], lambda t, x: x.argmax(0)),
        Row("logsumexp", {"axis": 1}, [x], lambda t, x: x.logsumexp(1)),
        Row("prod", {"axis": 1}, [floats(n, k, low=0.9, high=1.1)], lambda t, x: x.prod(1)),
        Row("cumsum", {"axis": 1}, [x], lambda t, x: x.cumsum(1)),
        Row("cumsum", {"axis": 0}, [x], lambda t, x: x.cumsum(0)),
        Row("cumprod", {"axis": 1}, [floats(n, k, low=0.9, high=1.1)], lambda t, x: x.cumprod(1)),
        Row("topk", {"axis": 1, "k": 5, "ret_typ": "value"}, [x], lambda t, x: x.topk(5, 1)[0]),
        Row("linalg_potrf", {}, [definite(n, min(32, k // 16))], lambda t, x: t.linalg.cholesky(x)),
        Row("sort", {"axis": 1}, [x], lambda t, x: x.sort(1)[0]),
        Row("RMSNorm", {}, [x, floats(k)], lambda t, x, g: t.nn.functional.rms_norm(x, (k,), g, 1e-5)),
        Row(
            "LayerNorm",
            {},
            [x, floats(k), floats(k)],
            lambda t, x, g, b: t.nn.functional.layer_norm(x, (k,), g, b),
        ),
        Row("L2Normalization", {}, [x], lambda t, x: t.nn.functional.normalize(x, dim=1)),
        Row("softmax", {}, [x], lambda t, x: x.softmax(1)),
        Row("log_softmax", {}, [x], lambda t, x: x.log_softmax(1)),
        Row(
            "softmax_cross_entropy",
            {},
            [x, labels],
            lambda t, x, y: t.nn.functional.cross_entropy(x, y, reduction="sum"),
        ),
        Row("cross_entropy", {}, [x, labels], lambda t, x, y: t.nn.functional.cross_entropy(x, y)),
        Row(
            "SoftmaxOutput",
            {},
            [x, labels],
            lambda t, x, y: x.softmax(1),
            loss=lambda t, x, y: t.nn.functional.cross_entropy(x, y, reduction="sum"),
        ),
        *(elementwise(name, n, k) for name in ELEMENTWISE),
        Row("broadcast_power", {}, [floats(n, k, low=0.1), x], lambda t, x, y: x.pow(y)),
        Row("gelu", {}, [x], lambda t, x: t.nn.functional.gelu(x)),
        Row("pick", {"keepdims": True}, [x, below(k, n, 1)], lambda t, x, i: x.gather(1, i)),
        Row("one_hot", {"depth": k}, [labels], lambda t, i: t.nn.functional.one_hot(i, k)),
        Row("take", {}, [x, of_rows], lambda t, x, i: x.index_select(0, i)),
        Row(
            "Embedding",
            {"input_dim": n, "output_dim": k},
            [of_rows, x],
            lambda t, i, w: t.nn.functional.embedding(i, w),
        ),
        Row("gather_nd", {}, [x, below(min(n, k), 2, n)], lambda t, x, i: x[i[0], i[1]]),
        Row(
            "where",
            {},
            [Input((n, k), 0, 2, "condition"), x, x],
            lambda t, c, x, y: t.where(c, x, y),
        ),
        Row("concat", {"num_args": 2, "dim": 1}, [x, x], lambda t, x, y: t.cat((x, y), 1)),
        Row("transpose", {}, [x], lambda t, x: x.t().contiguous()),
    ]


def of_images(n: int, c: int, h: int, w: int) -> list[Row]:
    """Rows for n images of c channels, (N, C, H, W)."""
    x, of_channels = floats(n, c, h, w), floats(c)
    return [
        Row("sum", {"axis": (0, 2, 3)}, [x], lambda t, x: x.sum((0, 2, 3))),
        Row("mean", {"axis": (0, 2, 3)}, [x], lambda t, x: x.mean((0, 2, 3))),
        Row(
            "GroupNorm",
            {"num_groups": 8},
            [x, of_channels, of_channels],
            lambda t, x, g, b: t.nn.functional.group_norm(x, 8, g, b),
        ),
        Row(
            "InstanceNorm",
            {"eps": 1e-5},
            [x, of_channels, of_channels],
            lambda t, x, g, b: t.nn.functional.instance_norm(x, weight=g, bias=b),
        ),
        Row("L2Normalization", {"mode": "channel"}, [x], lambda t, x: t.nn.functional.normalize(x, dim=1)),
        Row("transpose", {"axes": (0, 2, 3, 1)}, [x], lambda t, x: x.permute(0, 2, 3, 1).contiguous()),
    ]


SIZES = {"small": ((64, 128), (2, 16, 14, 14)), "middle": ((512, 1024), (16, 64, 28, 28))}
"""A matrix and images whose arrays stay in a core's own cache, and of a few MiB."""


def rows() -> list[Row]:
    """All rows; those of one operator and of both sizes follow each other."""
    sized = [
        [replace(row, size=size) for row in of_matrices(*matrix) + of_images(*images)]
        for size, (matrix, images) in SIZES.items()
    ]
    return [row for both in zip(*sized, strict=True) for row in both]


ROWS = rows()
