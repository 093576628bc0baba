"""One node of a symbol as the function that writes it sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....graph import Entry, Node, Shape
from ...building.errors import NotSupportedError
from .model_writer import ModelWriter


@dataclass(frozen=True)
class ExportedNode:
    """`n[0]` is the ONNX name of the first input; shapes and types are known for all."""

    writer: ModelWriter
    node: Node
    inputs: list[str]
    shapes: Mapping[Entry, Shape]
    dtypes: Mapping[Entry, Any]

    @property
    def op_name(self) -> str:
        assert self.node.op is not None
        return self.node.op.op_name

    @property
    def attrs(self) -> Any:
        return self.node.attrs

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, place: int) -> str:
        return self.inputs[place]

    def named(self, name: str) -> str | None:
        """The input that the operator calls `name`, None without one."""
        names = list(self.node.input_names)
        return self.inputs[names.index(name)] if name in names else None

    def shape(self, place: int = 0) -> Shape:
        """The shape of an input."""
        return self.shapes[self.node.inputs[place]]

    def dtype(self, place: int = 0) -> np.dtype[Any]:
        """The type of an input."""
        return np.dtype(self.dtypes[self.node.inputs[place]])

    def out_shape(self, place: int = 0) -> Shape:
        return self.shapes[Entry(self.node, place)]

    def out_dtype(self, place: int = 0) -> np.dtype[Any]:
        return np.dtype(self.dtypes[Entry(self.node, place)])

    def array(self, place: int, what: str) -> np.ndarray:
        """The numbers of an input that must be a parameter. Raises NotSupportedError otherwise."""
        found = self.writer.arrays.get(self.inputs[place])
        if found is None:
            raise NotSupportedError(f"{self.node.name!r}: {what} must be among the parameters")
        return found

    def require(self, holds: bool, what: str) -> None:
        """Raise NotSupportedError, naming the node, unless `holds`."""
        if not holds:
            raise NotSupportedError(f"{self.op_name} {self.node.name!r}: {what} has no form in ONNX here")
