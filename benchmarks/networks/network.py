"""A network that is built twice, for mxlite and for PyTorch, and the sizes at which it is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import nn

import mxlite as mx
from mxlite.symbol import Symbol

from .values import first_values, MOMENTUM, Shape

Loss = Literal["classes", "squares", "binary"]


@dataclass(frozen=True)
class Input:
    """The shape of an input. `below`: whole numbers in [0, below); 0: normal ones. `value`: always these."""

    shape: Shape
    below: int = 0
    value: np.ndarray | None = field(default=None, compare=False)

    @classmethod
    def fixed(cls, value: np.ndarray, below: int = 0) -> Input:
        return cls(value.shape, below, value)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        if self.value is not None:
            return self.value.astype(np.float32)
        drawn = rng.integers(0, self.below, self.shape) if self.below else rng.standard_normal(self.shape)
        return drawn.astype(np.float32)


@dataclass(frozen=True)
class Network:
    """A network without its loss, in both frameworks.

    `symbol(**sizes)`: our scores. `twin(**sizes)`: PyTorch's module; its forward takes the inputs in the
    order of `inputs`, and its parameters are named as ours, see `named.py`. `inputs(batch, **sizes)`: by the
    names of our variables. `loss`: the mean of cross-entropies of the scores' rows (..., classes), of squared
    differences, or of binary cross-entropies of each score. `layout`: PyTorch's channels-last format of its
    images, if it has any. `quick`: sizes and batch for a check without times. `bound`: of the relative
    difference of gradients, see peers/agreement.py; large where rectifiers stand behind batch normalizations:
    rounding decides on which side of zero some of their inputs are, and so far each such difference spreads.
    """

    title: str
    symbol: Callable[..., Symbol]
    twin: Callable[..., nn.Module]
    inputs: Callable[..., dict[str, Input]]
    batch: int
    sizes: Mapping[str, Any]
    quick: Mapping[str, Any]
    loss: Loss = "classes"
    layout: Literal["", "channels_last", "channels_last_3d"] = ""
    rate: float = 0.01
    bound: float = 1e-4


@dataclass(frozen=True)
class Case:
    """A network that trains or, with a batch of one, answers; `name` is that of its module."""

    name: str
    network: Network
    train: bool
    quick: bool = False

    @property
    def sizes(self) -> dict[str, Any]:
        sizes = dict(self.network.quick if self.quick else self.network.sizes)
        sizes.pop("batch", None)
        return sizes

    @property
    def batch(self) -> int:
        if not self.train:
            return 1
        return int(self.network.quick.get("batch", 2)) if self.quick else self.network.batch

    @property
    def title(self) -> str:
        return f"{self.network.title} B{self.batch}" + ("" if self.train else ", inference")

    @property
    def is_image(self) -> bool:
        return bool(self.network.layout)

    @property
    def inputs(self) -> dict[str, Input]:
        return self.network.inputs(self.batch, **self.sizes)

    def scores(self) -> Symbol:
        return self.network.symbol(**self.sizes)

    def shapes(self) -> dict[str, Shape]:
        """Shapes of the inputs, and of the labels if it trains."""
        return {n: i.shape for n, i in self.inputs.items()} | (
            {"softmax_label": self.labels().shape} if self.train else {}
        )

    def labels(self) -> Input:
        _, (shape,), _ = self.scores().infer_shape(**{n: i.shape for n, i in self.inputs.items()})
        if self.network.loss == "classes":
            return Input((prod(shape[:-1]),), shape[-1])
        return Input(shape, 2 if self.network.loss == "binary" else 0)

    def symbol(self) -> Symbol:
        """What is run: the sum of all losses, (1,), or the scores."""
        return loss_of(self.scores(), self.network.loss) if self.train else self.scores()

    def arrays(self) -> dict[str, np.ndarray]:
        """First values by name, prefixed with `arg:`, `aux:`, `data:` or `label:`."""
        rng = np.random.default_rng(2)
        data = {f"data:{n}": i.draw(rng) for n, i in self.inputs.items()}
        label = {"label:softmax_label": self.labels().draw(rng)}
        return first_values(self.symbol(), self.shapes()) | data | label

    def prepare(self, folder: Path) -> dict[str, Any]:
        """Write the symbol, first values and one batch into `folder`; returns settings for the peer."""
        symbol, arrays = folder / f"{self.name}.json", folder / f"{self.name}.npz"
        symbol.write_text(self.symbol().tojson(), encoding="utf-8")
        np.savez(arrays, **self.arrays())
        return dict(
            symbol=str(symbol),
            arrays=str(arrays),
            train=self.train,
            rows=prod(self.labels().shape),
            rate=self.network.rate,
            momentum=MOMENTUM,
            name=self.name,
            sizes=self.sizes,
            whole=[n for n, i in self.inputs.items() if i.below],
            loss=self.network.loss,
            layout=self.network.layout,
        )


def loss_of(scores: Symbol, loss: Loss) -> Symbol:
    """The sum of the losses of all rows or scores, (1,)."""
    label = mx.sym.Variable("softmax_label")
    if loss == "classes":
        rows = mx.sym.Reshape(scores, shape=(-1, 0), reverse=True, name="softmax_rows")
        total = mx.sym.softmax_cross_entropy(rows, label, name="softmax_entropy")
    elif loss == "squares":
        total = mx.sym.sum(mx.sym.square(scores - label), name="softmax_squares")
    else:
        softplus = mx.sym.Activation(scores, act_type="softrelu", name="softmax_softplus")
        total = mx.sym.sum(softplus - scores * label, name="softmax_entropies")
    return mx.sym.MakeLoss(total, name="softmax")
