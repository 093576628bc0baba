"""One node of a symbol as the function that writes it sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....graph import Entry, Node
from ...building.errors import NotSupportedError
from .free_axes import FreeLength, Length, Lengths
from .model_writer import ModelWriter


@dataclass(frozen=True)
class ExportedNode:
    """`n[0]` is the ONNX name of the first input. Types are known for all, shapes except for free lengths."""

    writer: ModelWriter
    node: Node
    inputs: list[str]
    shapes: Mapping[Entry, Lengths]
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

    def shape(self, place: int = 0) -> Lengths:
        """The shape of an input."""
        return self.shapes[self.node.inputs[place]]

    def number(self, axis: int, place: int = 0) -> int:
        """The length of one axis of an input. Raises NotSupportedError if a free axis decides it."""
        length = self.shape(place)[axis]
        if isinstance(length, FreeLength):
            raise NotSupportedError(
                f"{self.op_name} {self.node.name!r} needs a number for axis {axis} of its input {place + 1}, "
                f"but a free axis decides this length; give numbers in dynamic_input_shapes"
            )
        return length

    def dtype(self, place: int = 0) -> np.dtype[Any]:
        """The type of an input."""
        return np.dtype(self.dtypes[self.node.inputs[place]])

    def out_shape(self, place: int = 0) -> Lengths:
        return self.shapes[Entry(self.node, place)]

    def out_dtype(self, place: int = 0) -> np.dtype[Any]:
        return np.dtype(self.dtypes[Entry(self.node, place)])

    def reshaped(self, name: str, shape: Lengths, wanted: Lengths) -> str:
        """An array of `shape` seen as one of the shape `wanted`."""
        kept = [shape[i : i + 1] == (length,) for i, length in enumerate(wanted)]
        lengths = [0 if k and isinstance(d, FreeLength) else d for k, d in zip(kept, wanted)]
        open_ = [i for i, d in enumerate(lengths) if isinstance(d, FreeLength)]
        if len(open_) == 1:
            lengths[open_[0]] = -1  # follows from the others
        return self.writer.add("Reshape", name, self.vector(lengths))

    def vector(self, lengths: Sequence[Length]) -> str:
        """The array of these lengths, free ones taken from the shapes of arrays."""
        numbers = [d for d in lengths if not isinstance(d, FreeLength)]
        if len(numbers) == len(lengths):
            return self.writer.ints(numbers)
        parts = [self._length(d) if isinstance(d, FreeLength) else self.writer.ints([d]) for d in lengths]
        return parts[0] if len(parts) == 1 else self.writer.add("Concat", *parts, axis=0)

    def _length(self, length: FreeLength) -> str:
        own = [(name, self.shape(place)) for place, name in enumerate(self.inputs)]
        for name, shape in [*own, *self.writer.data.items()]:
            if length in shape:
                axis = shape.index(length)
                return self.writer.add("Shape", name, start=axis, end=axis + 1)
        raise NotSupportedError(
            f"{self.op_name} {self.node.name!r}: free axes decide a length that no axis of an input has; "
            f"give numbers in dynamic_input_shapes"
        )

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
