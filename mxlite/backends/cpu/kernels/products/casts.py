"""Casts of parts of a float32 array to 16 bits: a kernel for each shape of a part."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .....core.dtype import float32
from .....graph.ir import Shape
from .....graph.opdef import DType
from .....ops.elementwise.cast import Cast
from ....base import Backend, ChosenKernel, Request, Run
from ..generated.elementwise import ROWS as ELEMENTWISE


class Casts:
    """Casts of float32 to `dtype`, with a kernel for each shape; those for `shapes` are created at once."""

    def __init__(self, dtype: DType, shapes: Iterable[Shape]) -> None:
        self.attrs = Cast.Attrs(dtype=dtype.name)
        self.kernels: dict[Shape, ChosenKernel] = {}
        for shape in shapes:
            self.kernel(shape)

    def kernel(self, shape: Shape) -> ChosenKernel:
        if shape not in self.kernels:
            asked = Request(Cast, self.attrs, (shape,), (shape,), float32, (float32,))
            found = (row(asked) for row in ELEMENTWISE.get(Cast, ()))
            whole = Backend.reference(Cast, self.attrs, (shape,), (shape,), float32)
            self.kernels[shape] = next((k for k in found if k is not None), whole)
        return self.kernels[shape]

    def call(self, source: Any, target: Any) -> Run:
        kernel = self.kernel(source.shape)
        return kernel.link(kernel.run, np, self.attrs, source, out=target)
