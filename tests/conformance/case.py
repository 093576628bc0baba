"""What a row of `cases.py` is: one operator, its parameters, and inputs worth trying."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from mxlite.graph.attrs import parse_attrs
from mxlite.graph.ir import Shape
from mxlite.graph.opdef import Op

Maker = Callable[[np.random.Generator, Shape], np.ndarray]


MANY = 2**16
"""Elements of an array beyond which its numbers come again: so many are there for their bytes alone."""


def normal(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Standard normal numbers; the default."""
    return np.resize(rng.standard_normal(MANY), shape) if prod(shape) > MANY else rng.standard_normal(shape)


def positive(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Numbers in [0.5, 2): for log, sqrt, division."""
    return rng.uniform(0.5, 2.0, shape)


def unit(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Numbers in [0.05, 0.95)."""
    return rng.uniform(0.05, 0.95, shape)


def apart(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Numbers about -2 to 2, all distinct, none within a step of 0 or of another: for kinks and maxima."""
    n = prod(shape)
    return ((rng.permutation(n) - n / 2 + 0.25) * (4.0 / max(n, 1))).reshape(shape)


def fractions(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Numbers whose fractional part is in [0.1, 0.4): for roundings and remainders."""
    return rng.integers(-4, 5, shape) + rng.uniform(0.1, 0.4, shape)


def zeros(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    return np.zeros(shape)


def ones(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    return np.ones(shape)


def few(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """The numbers 0, 1, 2: many ties, many zeros."""
    return rng.integers(0, 3, shape).astype(float)


def integers(low: int, high: int) -> Maker:
    """Whole numbers in [low, high): labels and indices."""
    return lambda rng, shape: rng.integers(low, high, shape).astype(float)


def constant(value: Any) -> Maker:
    """Always this array."""
    return lambda rng, shape: np.broadcast_to(np.asarray(value, float), shape).copy()


@dataclass(frozen=True, eq=False)
class Case:
    """One row; each is equal to itself alone.

    op            the operator
    attrs         its parameters, as a user writes them; typed ones of an operator that no user writes
    shapes        of the inputs in use, in the order of `op.input_names`
    dtype         of all inputs, unless `dtypes` says otherwise for one. A case of float64 is also run in
                  float32 and the results compared
    given         inputs in `op.inferred` that have another shape than the one that follows
    make          input name -> how to fill it (`normal` unless given)
    grad_inputs   inputs whose gradient is compared with finite differences; None: all that have one
    objective     f(attrs, inputs, outputs) -> the number that the gradients are derivatives of, where
                  inputs and outputs are dicts by name; None: sum of out * d_out. For losses
    tolerance     largest relative error of a gradient
    tolerance32   of float32 results against float64's
    train         the `train` service
    torch         f(attrs, *inputs) in PyTorch, on tensors: what the visible outputs, and by its autograd the
                  gradients, must be. None: no independent word in PyTorch
    mxnet         whether MXNet 1.9.1's stored results (`golden/mxnet/operators.npz`) are compared, where it
                  has an operator of that name; a text says why not
    empty         whether the row works with 0 for the length of axis 0 of all inputs that share it
    large         shapes for the allocation check; None: axis 0 of every input that shares it with the first
                  input is made long. Inputs whose shape `follows` are inferred
    large_attrs   parameters that differ for the allocation check: of operators without inputs
    """

    op: type[Op]
    attrs: Any = field(default_factory=dict)
    shapes: Sequence[Shape] = ((3, 4),)
    dtype: str = "float64"
    dtypes: Mapping[str, str] = field(default_factory=dict)
    given: tuple[str, ...] = ()
    make: Mapping[str, Maker] = field(default_factory=dict)
    grad_inputs: tuple[str, ...] | None = None
    objective: Callable[[Any, dict[str, np.ndarray], dict[str, np.ndarray]], float] | None = None
    tolerance: float = 1e-6
    tolerance32: float = 1e-4
    train: bool = True
    torch: Callable[..., Any] | None = None
    mxnet: bool | str = True
    empty: bool = True
    large: Sequence[Shape] | None = None
    large_attrs: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def parsed(self) -> Any:
        """`attrs` as the operator's typed Attrs."""
        return self.attrs if isinstance(self.attrs, self.op.Attrs) else parse_attrs(self.op, self.attrs)

    def follows(self, name: str) -> bool:
        """Whether the shape of an input is left to inference."""
        return name in self.op.inferred and name not in self.given

    def kinds(self, dtype: str | None = None) -> list[str]:
        """The dtype of each input; `dtype` takes the place of the row's."""
        return [self.dtypes.get(n, dtype or self.dtype) for n in self.op.input_names(self.parsed)]

    def inputs(self, shapes: Sequence[Shape] | None = None, dtype: str | None = None) -> list[np.ndarray]:
        """Fresh input arrays, always the same numbers; `dtype` takes the place of the row's."""
        rng = np.random.default_rng(1)
        names = self.op.input_names(self.parsed)
        return [
            np.asarray(self.make.get(n, normal)(rng, tuple(s))).astype(kind, order="C", copy=False)
            for n, s, kind in zip(names, shapes or self.shapes, self.kinds(dtype), strict=True)
        ]
