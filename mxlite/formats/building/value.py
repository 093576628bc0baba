"""The value of a name in a foreign graph while the graph is read."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

import numpy as np

from ...graph import Entry, Shape

if TYPE_CHECKING:
    from .builder import Builder


class GraphValue:
    """An array known while importing (`array`), or an output of the graph being made (`entry`).

    Shape and dtype are always known. Python's operators make nodes, broadcasting as numpy does; between two
    values the types must be equal, a Python number takes the other's type.
    """

    __slots__ = ("array", "builder", "dtype", "entry", "name", "shape")

    def __init__(
        self,
        builder: Builder,
        shape: Shape,
        dtype: Any,
        array: np.ndarray | None,
        entry: Entry | None,
        name: str | None = None,
    ) -> None:
        self.builder = builder
        self.shape = shape
        self.dtype: np.dtype[Any] = dtype
        self.array = array
        self.entry = entry
        self.name = name

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        count = 1
        for d in self.shape:
            count *= d
        return count

    def __repr__(self) -> str:
        kind = "constant" if self.array is not None else "value"
        return f"<{kind} {self.dtype}{list(self.shape)}>"

    def __add__(self, other: Any) -> GraphValue:
        return self.builder.binary("add", self, other)

    def __radd__(self, other: Any) -> GraphValue:
        return self.builder.binary("add", self, other)

    def __sub__(self, other: Any) -> GraphValue:
        return self.builder.binary("sub", self, other)

    def __rsub__(self, other: Any) -> GraphValue:
        return self.builder.reverse("sub", self, other)

    def __mul__(self, other: Any) -> GraphValue:
        return self.builder.binary("mul", self, other)

    def __rmul__(self, other: Any) -> GraphValue:
        return self.builder.binary("mul", self, other)

    def __truediv__(self, other: Any) -> GraphValue:
        return self.builder.binary("div", self, other)

    def __rtruediv__(self, other: Any) -> GraphValue:
        return self.builder.reverse("div", self, other)

    def __pow__(self, other: Any) -> GraphValue:
        return self.builder.binary("power", self, other)

    def __neg__(self) -> GraphValue:
        return self.builder.op("negative", self)

    def __gt__(self, other: Any) -> GraphValue:
        return self.builder.compare("greater", self, other)

    def __ge__(self, other: Any) -> GraphValue:
        return self.builder.compare("greater_equal", self, other)

    def __lt__(self, other: Any) -> GraphValue:
        return self.builder.compare("lesser", self, other)

    def __le__(self, other: Any) -> GraphValue:
        return self.builder.compare("lesser_equal", self, other)

    def equals(self, other: Any) -> GraphValue:
        """Elementwise equality, as bool. (`==` keeps Python's meaning.)"""
        return self.builder.compare("equal", self, other)
