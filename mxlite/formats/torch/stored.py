"""A tensor that belongs to a module: a parameter, a buffer, or a constant of its code."""

from __future__ import annotations

from typing import Any

from ..building import Builder, GraphValue
from .tensor import numpy_array


class StoredTensor:
    """A tensor by its name in `state_dict`. It enters the graph where it is read first."""

    def __init__(self, name: str, tensor: Any, is_parameter: bool) -> None:
        self.name = name
        self.tensor = tensor
        self.is_parameter = is_parameter
        self._variable: GraphValue | None = None
        self._constant: GraphValue | None = None

    def variable(self, builder: Builder) -> GraphValue:
        """A variable of that name, the same each time."""
        if self._variable is None:
            array = numpy_array(self.tensor, f"{self.name!r}")
            self._variable = builder.variable(self.name, array.shape, array.dtype, array)
        return self._variable

    def constant(self, builder: Builder) -> GraphValue:
        """A parameter's variable; of a buffer the numbers, which the importer may compute with."""
        if self.is_parameter:
            return self.variable(builder)
        if self._constant is None:
            array = numpy_array(self.tensor, f"{self.name!r}")
            self._constant = builder.constant(array, name=self.name)
        return self._constant
