"""The ONNX graph that is being written: nodes, arrays, names that occur once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..dtypes import NUMBER
from ..package import onnx_package
from .free_axes import Lengths


class ModelWriter:
    """Nodes in their order, and the arrays that they read."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.arrays: dict[str, np.ndarray] = {}
        self.data: dict[str, Lengths] = {}  # inputs of the model, and their shapes
        self._names: set[str] = set()
        self.label = "node"

    def unique(self, name: str) -> str:
        """`name`, with a number appended if it is taken."""
        found, count = name, 0
        while found in self._names:
            found, count = f"{name}_{count}", count + 1
        self._names.add(found)
        return found

    def array(self, name: str, array: np.ndarray) -> str:
        """The name by which nodes read an array."""
        name = self.unique(name)
        self.arrays[name] = array
        return name

    def constant(self, value: Any, dtype: Any = None) -> str:
        return self.array(f"{self.label}_const", np.asarray(value, dtype))

    def ints(self, values: Iterable[int]) -> str:
        return self.constant(list(values), np.int64)

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """The name of the output of a new node; "" stands for an input that is left out."""
        return self.several(op, inputs, 1, **attributes)[0]

    def several(self, op: str, inputs: Iterable[str], count: int, **attributes: Any) -> list[str]:
        """The names of the outputs of a new node."""
        names = [self.unique(f"{self.label}_{op}") for _ in range(count)]
        given = {k: v for k, v in attributes.items() if v is not None}
        self.nodes.append(onnx_package().helper.make_node(op, list(inputs), names, names[0], **given))
        return names

    def cast(self, name: str, dtype: Any) -> str:
        return self.add("Cast", name, to=NUMBER[np.dtype(dtype)])
